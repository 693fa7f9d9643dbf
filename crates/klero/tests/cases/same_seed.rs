//! One seed and one position give one token, whatever shares the batch, the slot or the process.

use crate::common::{Kind, Rng, bits};
use crate::{DRAWS, alone, assert_fits, batch, draw_all, row, seeded, tokens_of};
use klero::hash::{Case, row_hash};
use klero::noise::Noise;
use klero::{FilterOrder, FusedHead, Row, SamplingParams, Weights};
use std::collections::HashSet;

/// Case 1.
#[test]
fn a_mate_without_a_seed_changes_nothing() {
    let data = [Kind::Flat.logits(1, 300, 6.0), Kind::Flat.logits(2, 300, 6.0)].concat();
    let first = row(&seeded(42), 3);
    let mut mates = HashSet::new();
    for _ in 0..4 {
        let found = draw_all(&batch(&data, 2), &[first, row(&SamplingParams::default(), 3)]);
        assert_eq!(bits(&Ok(found[0].clone())), alone(&data[..300], first));
        mates.insert(found[1].seed);
    }
    assert_eq!(mates.len(), 4, "the mate takes a new seed each time");
}

/// Case 2: each path finds the winner by the noise of the ids themselves. The same values in another order of ids have
/// other ranks, and each id keeps its noise.
#[test]
fn noise_belongs_to_the_id_not_to_its_rank() {
    let mut logits = Kind::Flat.logits(3, 300, 4.0);
    let mut rng = Rng::new(3);
    for position in 0..200 {
        rng.shuffle(&mut logits);
        let z = row_hash(42, position, Case::Fresh);
        let score = |id: u32| f64::from(logits[id as usize]) + Noise::of(z, id).gumbel;
        let base = SamplingParams { kept_ids: true, ..seeded(42) };
        for params in [
            base.clone(),
            SamplingParams { top_p: 0.9, ..base.clone() },
            SamplingParams { top_k: 50, ..base.clone() },
            SamplingParams { top_k: 299, ..base.clone() },
            SamplingParams { min_p: 0.1, ..base.clone() },
            SamplingParams { top_k: 200, top_p: 0.8, filter_order: FilterOrder::MinPFirst, ..base.clone() },
        ] {
            let rows = [row(&params, position), row(&SamplingParams { temperature: 0.0, ..seeded(42) }, position)];
            let found = draw_all(&batch(&logits.repeat(2), 2), &rows).remove(0);
            let kept = found.kept_ids.expect("they were asked for");
            let best = kept.into_iter().max_by(|a, b| score(*a).total_cmp(&score(*b)));
            assert_eq!(Some(found.token), best, "{params:?} at {position}");
        }
    }
}

/// Case 4: requests with seeds 30, 31 and 0 come and go in two slots.
#[test]
fn a_reused_slot_keeps_no_seed() {
    let logits = |seed: u64, position: u64| Kind::Flat.logits(seed ^ position << 8, 200, 6.0);
    let steps = [[(30, 0), (31, 0)], [(0, 0), (31, 1)], [(0, 1), (30, 1)], [(31, 2), (30, 2)], [(31, 3), (0, 2)]];
    for step in steps {
        let data = step.map(|(seed, position)| logits(seed, position)).concat();
        let rows = step.map(|(seed, position)| row(&seeded(seed), position));
        for (i, found) in draw_all(&batch(&data, 2), &rows).into_iter().enumerate() {
            assert_eq!(found.seed, step[i].0);
            assert_eq!(bits(&Ok(found)), alone(&data[200 * i..][..200], rows[i]), "{:?}", step[i]);
        }
    }
}

/// Case 5: of a text of 20 tokens, the state is thrown away after 9 and the rest drawn from seed and position.
#[test]
fn a_resumed_text_goes_on_as_if_nothing_had_been() {
    for draw in DRAWS {
        let write_to = |text: &mut Vec<u32>, length: usize| {
            while text.len() < length {
                let model = text.iter().fold(7u64, |hash, token| hash.wrapping_mul(31) + u64::from(*token));
                let logits = Kind::Flat.logits(model, 200, 6.0);
                let next = row(&SamplingParams { draw, ..seeded(5) }, text.len() as u64);
                text.extend(tokens_of(&batch(&logits, 1), &[next]));
            }
        };
        let mut whole = Vec::new();
        write_to(&mut whole, 20);
        let mut resumed = whole[..9].to_vec();
        write_to(&mut resumed, 20);
        assert_eq!(resumed, whole);
    }
}

/// Case 7: one seed at positions 0 to 63.
#[test]
fn positions_draw_independently_of_each_other() {
    for draw in DRAWS {
        for seed in 0..20 {
            let rows: Vec<Row> = (0..64).map(|t| row(&SamplingParams { draw, ..seeded(seed) }, t)).collect();
            let mut counts = [0; 8];
            for token in tokens_of(&batch(&[1.0; 64 * 8], 64), &rows) {
                counts[token as usize] += 1;
            }
            assert!(counts.iter().filter(|count| **count > 0).count() > 1);
            assert_fits(&counts, &[1.0; 8], &format!("seed {seed}, {draw:?}"));
        }
    }
}

/// Case 9.
#[test]
fn three_equal_requests_write_equal_texts() {
    let logits = Kind::Real.logits(4, 500, 6.0);
    for draw in DRAWS {
        for position in 0..100 {
            let same = row(&SamplingParams { draw, ..seeded(17) }, position);
            let tokens = tokens_of(&batch(&logits.repeat(3), 3), &[same; 3]);
            assert!(tokens[0] == tokens[1] && tokens[1] == tokens[2], "{tokens:?} at {position}");
        }
    }
}

/// Case 11: logprobs to the bit in batches of 1, 8, 44, 45 and 64 rows, through the fused head, again and again.
#[test]
fn logprobs_have_the_same_bits_in_any_batch() {
    let (vocab, cols) = (2000, 48);
    let weights = Weights::f32(vocab, cols, Kind::Flat.logits(5, vocab * cols, 2.0)).unwrap();
    let head = FusedHead::new(&weights).unwrap();
    let hidden = Kind::Flat.logits(6, 64 * cols, 2.0);
    let mates = [
        SamplingParams { raw_logprobs: true, top_logprobs: 20, ..seeded(1) },
        SamplingParams { temperature: 0.0, ..seeded(2) },
        SamplingParams { top_p: 0.9, ..seeded(3) },
        SamplingParams { top_k: 5, temperature: 2.0, ..seeded(4) },
    ];
    let rows: Vec<Row> = (0..64).map(|i| row(&mates[i % 4], i as u64)).collect();
    let expected = bits(&head.draw(&hidden[..cols], &rows[..1]).unwrap()[0]);
    for size in [1, 8, 44, 45, 64] {
        for _ in 0..3 {
            let found = head.draw(&hidden[..size * cols], &rows[..size]).unwrap();
            assert_eq!(bits(&found[0]), expected, "of {size} rows");
        }
    }
}
