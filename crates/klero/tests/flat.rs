//! Flat rows under filters, whose cut lies far behind the list of the best ids: they are found by other ways in a call of few
//! rows, in one of many, and in shards of a vocabulary, which must all agree; and greedy rows, most of whose blocks are skipped.

mod common;

use common::{NEG, Rng, on_threads};
use klero::{Draw, Edits, FilterOrder, Logits, Outcome, Row, SamplingParams};

/// Rows beyond which a call keeps no ids at hand.
const MANY: usize = 17;

fn drawn(values: &[f32], rows: usize, row: &Row) -> Outcome {
    let many = values.repeat(rows);
    let mut outcomes = Logits::new(&many, rows, values.len()).unwrap().draw(&vec![*row; rows]).unwrap();
    outcomes.pop().unwrap().unwrap()
}

/// Flat rows: normal numbers, equal numbers, two levels, few values, numbers among −∞, and numbers far from 0.
fn rows(v: usize) -> Vec<(&'static str, Vec<f32>)> {
    let mut rng = Rng::new(v as u64);
    let mut row = |f: &mut dyn FnMut(&mut Rng) -> f32| (0..v).map(|_| f(&mut rng)).collect::<Vec<f32>>();
    vec![
        ("normal", row(&mut |rng| 3.0 * rng.normal() as f32)),
        ("equal", row(&mut |_| -0.0)),
        ("two levels", row(&mut |rng| if rng.below(3) == 0 { 1.0 } else { -1.0 })),
        ("few values", row(&mut |rng| (rng.normal() as f32).round())),
        ("with holes", row(&mut |rng| if rng.below(4) == 0 { NEG } else { 2.0 * rng.normal() as f32 })),
        ("far away", row(&mut |rng| 1e6 + 8.0 * rng.normal() as f32)),
    ]
}

#[test]
fn few_rows_and_many_rows_find_the_same_cut() {
    let filters =
        [(0.95, -1, 0.0), (0.5, -1, 0.0), (0.9999, -1, 0.0), (1.0, 5000, 0.0), (0.9, 3000, 1e-3), (1.0, -1, 1e-4)];
    // The last has more ids above most cuts than are kept at hand.
    for v in [3000, 20_011, 90_000] {
        for (name, values) in rows(v) {
            for (top_p, top_k, min_p) in filters {
                for (filter_order, draw) in [
                    (FilterOrder::TopPFirst, Draw::Gumbel),
                    (FilterOrder::MinPFirst, Draw::Gumbel),
                    (FilterOrder::TopPFirst, Draw::InverseCdf),
                ] {
                    let params = SamplingParams {
                        top_p,
                        top_k,
                        min_p,
                        filter_order,
                        draw,
                        temperature: 1.5,
                        kept_ids: true,
                        confidence: true,
                        seed: Some(v as u64),
                        ..Default::default()
                    };
                    let row = Row::new(params.check().unwrap(), 3);
                    let few = on_threads(1, || drawn(&values, 1, &row));
                    assert_eq!(few.kept_ids.as_ref().unwrap().len(), few.kept, "{name} {v} {params:?}");
                    assert_eq!(few, on_threads(2, || drawn(&values, 2, &row)), "{name} {v} {params:?}");
                    if v < 90_000 {
                        assert_eq!(few, on_threads(2, || drawn(&values, MANY, &row)), "{name} {v} {params:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_greedy_row_is_a_race_among_its_best_logits_wherever_they_stand() {
    let v = 10_000;
    let mut rng = Rng::new(5);
    for round in 0..40u64 {
        let mut values: Vec<f32> = (0..v).map(|_| 3.0 * rng.normal() as f32).collect();
        let ties: Vec<usize> = (0..1 + round as usize % 4).map(|_| rng.below(v)).collect();
        ties.iter().for_each(|id| values[*id] = 20.0);
        if round % 2 == 1 {
            // Ascending: no block is below one seen before.
            values.sort_by(f32::total_cmp);
        }
        let best: Vec<u32> = (0..v as u32).filter(|id| values[*id as usize] == 20.0).collect();
        let params = SamplingParams { temperature: 0.0, seed: Some(round), ..Default::default() };
        let row = Row::new(params.check().unwrap(), round);
        let outcome = drawn(&values, 1, &row);
        assert!(best.contains(&outcome.token));
        assert_eq!(outcome.kept, v);
        assert!((outcome.logprob + (best.len() as f64).ln()).abs() < 1e-6, "{round}: {outcome:?}");
        let mut allowed = vec![u32::MAX; v.div_ceil(32)];
        allowed[outcome.token as usize / 32] &= !(1 << (outcome.token % 32));
        let edits = Edits { allowed: Some(&allowed), ..Default::default() };
        let other = drawn(&values, 1, &row.with_edits(edits));
        assert_eq!(other.kept, v - 1);
        assert_eq!(best.len() > 1, best.contains(&other.token), "{round}");
        let bare = Logits::new(&values, 1, v).unwrap().batch().tokens(&[row]).unwrap().remove(0).unwrap();
        assert_eq!(bare, outcome.token);
    }
}
