//! Whether the tokens follow the distribution, by chi-square over pooled bins, with fixed seeds.
//!
//! A right sampler fails one of these tests with a chance of at most 10⁻⁶ for each p-value that is taken (there are
//! some 250) and 10⁻³ for the counts of rare ids: one time in a thousand, for a new set of seeds. The seeds being
//! fixed, a failure is a change of the sampler, never chance. Each draw is one row on one thread; the draws run side by
//! side.

mod common;

use common::chi::{FALSE_ALARM, independence_p_value, p_value, upper_tail};
use common::{Case, DraftCase, NEG, Rng, draw_here, log_softmax};
use klero::hash::{Case as HashCase, row_hash, uniform};
use klero::hash::{Stream, splitmix64};
use klero::{Draft, Draw, Row, SamplingParams};
use rayon::prelude::*;

const DRAWS: [Draw; 2] = [Draw::Gumbel, Draw::InverseCdf];
const VOCABULARIES: [usize; 4] = [2, 16, 512, 50_000];

/// Counts what `draw` gives for 0..n, in parallel.
fn count(n: u64, classes: usize, draw: impl Fn(u64) -> usize + Sync) -> Vec<u64> {
    let none = || vec![0u64; classes];
    (0..n)
        .into_par_iter()
        .fold(none, |mut counts, k| {
            counts[draw(k)] += 1;
            counts
        })
        .reduce(none, |a, b| a.iter().zip(b).map(|(a, b)| a + b).collect())
}

/// The `k`-th row of a test: neighbouring seeds and neighbouring positions, as they are used.
fn row(k: u64, params: &SamplingParams) -> Row<'static> {
    let seed = params.seed.unwrap_or(0).wrapping_add(k / 64);
    Row::new(SamplingParams { seed: Some(seed), ..params.clone() }.check().unwrap(), 1000 + k % 64)
}

fn assert_fits(counts: &[u64], probabilities: &[f64], what: &str) {
    let p = p_value(counts, probabilities);
    assert!(p > FALSE_ALARM, "{what}: p-value {p:e}");
}

/// The laws that tokens are drawn from, as logits.
fn laws(vocab: usize) -> Vec<(&'static str, Vec<f32>)> {
    let mut rng = Rng::new(vocab as u64);
    let by_id = |logit: &dyn Fn(usize) -> f64| -> Vec<f32> { (0..vocab).map(|id| logit(id) as f32).collect() };
    let mut zipf = by_id(&|id| -((id + 1) as f64).ln());
    rng.shuffle(&mut zipf);
    let mut normal = || 2.0 * rng.normal();
    let normals: Vec<f64> = (0..vocab).map(|_| normal()).collect();
    vec![
        ("uniform", by_id(&|_| 1.5)),
        ("normal", by_id(&|id| normals[id])),
        ("zipf", zipf),
        ("geometric", by_id(&|id| id as f64 * 0.8f64.ln())),
        ("sparse", by_id(&|id| if id % 7 == 1 { 0.5 * normals[id] } else { f64::NEG_INFINITY })),
    ]
}

/// Enough draws to fill many bins, few enough to stay within seconds.
fn draws_for(vocab: usize) -> u64 {
    match vocab {
        50_000 => 3000,
        512 => 20_000,
        _ => 40_000,
    }
}

/// The probabilities in the oracle, which is not what is tested.
fn truth(logits: &[f32], params: &SamplingParams) -> Vec<f64> {
    Case::new(logits.to_vec(), SamplingParams { seed: Some(0), ..params.clone() }).oracle().unwrap().probabilities
}

fn fresh_counts(n: u64, logits: &[f32], params: &SamplingParams) -> Vec<u64> {
    count(n, logits.len(), |k| draw_here(logits, row(k, params)).token as usize)
}

/// Fresh draws from every law; `share` of the usual number where a draw costs more.
fn every_law(filters: impl Fn(usize) -> SamplingParams, share: u64, what: &str) {
    for vocab in VOCABULARIES {
        for (name, logits) in laws(vocab) {
            for draw in DRAWS {
                let params = SamplingParams { draw, seed: Some(vocab as u64), ..filters(vocab) };
                let counts = fresh_counts(draws_for(vocab) / share, &logits, &params);
                assert_fits(&counts, &truth(&logits, &params), &format!("{what} {name} V = {vocab} {draw:?}"));
            }
        }
    }
}

#[test]
fn plain_draws_follow_the_softmax() {
    every_law(|_| SamplingParams::default(), 1, "plain");
}

#[test]
fn filtered_draws_follow_what_the_filters_left() {
    let filters = |vocab: usize| SamplingParams {
        temperature: 1.3,
        top_p: 0.9,
        top_k: if vocab < 100 { 5 } else { 300 },
        ..Default::default()
    };
    every_law(filters, 3, "filtered");
}

/// A draft without a token is always rejected, so every row draws from the residual.
#[test]
fn rejected_rows_follow_the_residual() {
    for vocab in VOCABULARIES {
        for (name, logits) in laws(vocab) {
            let mut rng = Rng::new(vocab as u64 + 9);
            let draft: Vec<f32> = logits.iter().map(|l| l + rng.normal() as f32).collect();
            let logprobs = log_softmax(&draft);
            for draw in DRAWS {
                let params = SamplingParams { draw, seed: Some(7), ..Default::default() };
                let mut case = Case::new(logits.clone(), params.clone());
                case.draft = Some(DraftCase::new(-1, logprobs.clone(), 0.0));
                let residual = case.oracle().unwrap().residual.unwrap();
                let counts = count(draws_for(vocab) / 8, vocab, |k| {
                    let row = row(k, &params).with_draft(Draft::new(-1, &logprobs).with_delta(0.0));
                    draw_here(&logits, row).token as usize
                });
                if residual.iter().any(|rest| *rest > 1e-6) {
                    assert_fits(&counts, &residual, &format!("residual {name} V = {vocab} {draw:?}"));
                }
            }
        }
    }
}

/// With a draft drawn from its own distribution and δ = 0 the emitted token is the target's, whatever the draft.
#[test]
fn verified_tokens_follow_the_target_whatever_the_draft() {
    for (vocab, n) in [(2, 60_000), (16, 60_000), (512, 5000)] {
        let mut rng = Rng::new(vocab as u64 + 100);
        let logits: Vec<f32> = (0..vocab).map(|_| rng.normal() as f32 * 1.5).collect();
        let near: Vec<f32> = logits.iter().map(|l| l + 0.4 * rng.normal() as f32).collect();
        let far: Vec<f32> = (0..vocab).map(|_| rng.normal() as f32).collect();
        let flat = vec![0.0; vocab];
        for draft in [&near, &far, &flat] {
            let logprobs = log_softmax(draft);
            for draw in DRAWS {
                for (top_p, top_k) in [(1.0, -1), (0.8, 200)] {
                    let params = SamplingParams { top_p, top_k, draw, seed: Some(3), ..Default::default() };
                    let plain = SamplingParams { top_p: 1.0, top_k: -1, ..params.clone() };
                    let counts = count(n, vocab * 2, |k| {
                        let drafted = draw_here(&logprobs, row(k, &plain).with_stream(Stream::Draft)).token;
                        let draft = Draft::new(i64::from(drafted), &logprobs).with_delta(0.0);
                        let found = draw_here(&logits, row(k, &params).with_draft(draft));
                        2 * found.token as usize + usize::from(found.verification.unwrap().accepted)
                    });
                    let emitted: Vec<u64> = counts.chunks(2).map(|pair| pair[0] + pair[1]).collect();
                    let what = format!("V = {vocab} {draw:?} top_p {top_p}");
                    assert_fits(&emitted, &truth(&logits, &params), &what);

                    let accepted: u64 = counts.iter().skip(1).step_by(2).sum();
                    let draft = Draft::new(-1, &logprobs).with_delta(0.0);
                    let chance = draw_here(&logits, row(0, &params).with_draft(draft)).verification.unwrap();
                    let chance = chance.accept_probability;
                    assert_fits(&[accepted, n - accepted], &[chance, 1.0 - chance], &format!("{what} accepted"));
                }
            }
        }
    }
}

/// A draft without a distribution puts all on its token; where that comes from does not matter.
#[test]
fn one_hot_drafts_leave_the_target_as_it_is() {
    let mut rng = Rng::new(4);
    let logits: Vec<f32> = (0..16).map(|_| rng.normal() as f32).collect();
    let one_hot: Vec<Vec<f32>> =
        (0..16).map(|token| (0..16).map(|id| if id == token { 0.0 } else { NEG }).collect()).collect();
    for draw in DRAWS {
        let params = SamplingParams { draw, seed: Some(12), ..Default::default() };
        let counts = count(200_000, 16, |k| {
            let token = (splitmix64(k) % 16) as usize;
            let draft = Draft::new(token as i64, &one_hot[token]).with_delta(0.0);
            draw_here(&logits, row(k, &params).with_draft(draft)).token as usize
        });
        assert_fits(&counts, &truth(&logits, &params), &format!("{draw:?}"));
    }
}

/// 50 000 ids of probability 10⁻⁹ each beside one: 50 of a million draws are expected among them.
const RARE: usize = 50_000;

fn rare_row() -> Vec<f32> {
    let mut logits = vec![1e-9f64.ln() as f32; RARE + 1];
    logits[20_000] = (1.0 - RARE as f64 * 1e-9).ln() as f32;
    logits
}

#[test]
fn ids_of_probability_one_in_a_billion_come_at_their_rate_in_a_race() {
    let logits = rare_row();
    let params = SamplingParams { seed: Some(900), ..Default::default() };
    let counts = count(1_000_000, 2, |k| usize::from(draw_here(&logits, row(k, &params)).token != 20_000));
    assert!((26..=80).contains(&counts[1]), "{} rare ids in a million draws", counts[1]);
}

/// The inverse CDF takes a rare id only where u lies within 10⁻⁴ of a boundary of the best id's part, so of a million
/// rows those are drawn, and a sample of the rest.
#[test]
fn ids_of_probability_one_in_a_billion_come_at_their_rate_by_inverse_cdf() {
    let logits = rare_row();
    let params = SamplingParams { seed: Some(900), draw: Draw::InverseCdf, ..Default::default() };
    let outside = 20_000.0 * 1e-9;
    let counts = count(1_000_000, 3, |k| {
        let row = row(k, &params);
        let u = uniform(row_hash(row.sampling.seed(), row.position, HashCase::Fresh));
        let near = u < outside + 1e-4 || u > 1.0 - 1e-4;
        match near || k % 500 == 0 {
            true => usize::from(draw_here(&logits, row).token != 20_000) * if near { 1 } else { 2 },
            false => 0,
        }
    });
    assert!((26..=80).contains(&counts[1]), "{} rare ids in a million draws", counts[1]);
    assert_eq!(counts[2], 0, "a rare id where the best one should be");
}

#[test]
fn exact_ties_at_temperature_zero_are_shared_evenly() {
    for best in [1.0f32, 12.0, 100.0] {
        assert_shared(best, 2, Draw::Gumbel);
        assert_shared(best, 3, Draw::Gumbel);
    }
    assert_shared(100.0, 4, Draw::Gumbel);
    assert_shared(100.0, 4, Draw::InverseCdf);
}

/// Each of `tied` equal best ids gets its share within 1 %, which is five standard deviations.
fn assert_shared(best: f32, tied: usize, draw: Draw) {
    let draws = 250_000 * (tied as u64 - 1);
    let places = &[1usize, 6, 7, 10][..tied];
    let mut logits: Vec<f32> = (0..12).map(|id| best - 0.5 - id as f32).collect();
    for place in places {
        logits[*place] = best;
    }
    let params = SamplingParams { temperature: 0.0, top_k: 1, draw, seed: Some(5), ..Default::default() };
    let counts = fresh_counts(draws, &logits, &params);
    for place in places {
        let share = counts[*place] as f64 / draws as f64 * tied as f64;
        assert!((share - 1.0).abs() < 0.01, "l = {best}, {draw:?}: {counts:?}");
    }
    assert_eq!(places.iter().map(|place| counts[*place]).sum::<u64>(), draws, "only the best are drawn");
}

#[test]
fn a_banned_id_is_never_drawn() {
    let mut logits = common::logits_of(&[0.33, 0.34, 1.0, 0.33]);
    logits[2] = NEG;
    for draw in DRAWS {
        let params = SamplingParams { draw, seed: Some(1 << 40), ..Default::default() };
        let counts = fresh_counts(1_000_000, &logits, &params);
        assert_eq!(counts[2], 0);
        assert_fits(&counts, &truth(&logits, &params), "three of four");
    }
}

/// Tokens of `pairs(k)`, two rows each, must be independent and each follow the uniform law.
fn assert_independent(n: u64, what: &str, draw: Draw, pairs: impl Fn(u64) -> [(u64, u64); 2] + Sync) {
    let logits = [0.0; 8];
    let token = |(seed, position)| {
        let params = SamplingParams { draw, seed: Some(seed), ..Default::default() };
        draw_here(&logits, Row::new(params.check().unwrap(), position)).token as usize
    };
    let counts = count(n, 64, |k| {
        let [a, b] = pairs(k);
        token(a) * 8 + token(b)
    });
    assert_fits(&counts, &[1.0; 64], &format!("{what} {draw:?}"));
    let table: Vec<Vec<u64>> = counts.chunks(8).map(<[u64]>::to_vec).collect();
    let p = independence_p_value(&table);
    assert!(p > FALSE_ALARM, "{what} {draw:?}: p-value {p:e}");
}

#[test]
fn positions_and_seeds_are_independent() {
    const N: u64 = 60_000;
    for draw in DRAWS {
        assert_independent(N, "next position", draw, |k| [(42, k), (42, k + 1)]);
        assert_independent(N, "next seed", draw, |k| [(k, 17), (k + 1, 17)]);
        assert_independent(N, "seed and position in step", draw, |k| [(k, k), (k + 1, k + 1)]);
        assert_independent(N, "seed against position", draw, |k| [(k + 1, k), (k, k + 1)]);
        assert_independent(N, "far seeds", draw, |k| [(k << 32, 3), ((k << 32) + 1, 3)]);
        assert_independent(N, "top bits of the seed", draw, |k| [(k, 3), (k | 1 << 63, 3)]);
        assert_independent(N, "far positions", draw, |k| [(1, k << 32), (1, (k << 32) + 1)]);
        assert_independent(N, "the two streams", draw, |k| [(k, 5), (k.wrapping_add(1_000_000_007), 5)]);
        assert_independent(N, "samples of a request", draw, |k| [(k, 5), (splitmix64(k ^ splitmix64(1)), 5)]);
    }
}

/// The accept coin, the residual draw and the fresh draw of one position have numbers of their own.
#[test]
fn the_cases_of_a_position_are_independent() {
    let logits = [0.0; 8];
    let nothing = [NEG; 8];
    let certain = [[0.0f32].as_slice(), &[NEG; 7]].concat();
    for draw in DRAWS {
        let params = SamplingParams { draw, seed: Some(70), ..Default::default() };
        let verified = |k, token, logprobs| {
            draw_here(&logits, row(k, &params).with_draft(Draft::new(token, logprobs).with_delta(0.0)))
        };
        // Rejected beside an empty draft: the residual is the target itself.
        let counts = count(60_000, 64, |k| {
            draw_here(&logits, row(k, &params)).token as usize * 8 + verified(k, -1, &nothing).token as usize
        });
        assert_fits(&counts, &[1.0; 64], "fresh and residual");
        // A draft that was certain is accepted one time in eight.
        let coin = count(60_000, 16, |k| {
            let accepted = verified(k, 0, &certain).verification.unwrap().accepted;
            draw_here(&logits, row(k, &params)).token as usize * 2 + usize::from(accepted)
        });
        let chances: Vec<f64> = (0..16).map(|i| if i % 2 == 1 { 1.0 } else { 7.0 }).collect();
        assert_fits(&coin, &chances, "fresh token and coin");
        let after = count(60_000, 16, |k| {
            let accepted = verified(k, 0, &certain).verification.unwrap().accepted;
            verified(k, -1, &nothing).token as usize * 2 + usize::from(accepted)
        });
        assert_fits(&after, &chances, "residual token and coin");
    }
}

/// The noise of eight ids shares a block of random bits: the winner and the runner-up must still be any pair alike.
#[test]
fn winner_and_runner_up_are_any_pair() {
    let places: [usize; 8] = [16, 17, 18, 19, 20, 21, 22, 23];
    let params = SamplingParams { seed: Some(31), ..Default::default() };
    let counts = count(400_000, 64, |k| {
        let mut logits = [NEG; 24];
        for place in places {
            logits[place] = 0.0;
        }
        let winner = draw_here(&logits, row(k, &params)).token as usize;
        logits[winner] = NEG;
        (winner - 16) * 8 + draw_here(&logits, row(k, &params)).token as usize - 16
    });
    let chances: Vec<f64> = (0..64).map(|i| if i % 9 == 0 { 0.0 } else { 1.0 }).collect();
    assert_fits(&counts, &chances, "winner and runner-up");
}

#[test]
fn the_statistic_has_the_right_tail() {
    for (statistic, freedom, tail) in [
        (3.841, 1.0, 0.05),
        (18.307, 10.0, 0.05),
        (124.342, 100.0, 0.05),
        (35.564, 10.0, 1e-4),
        (161.319, 100.0, 1e-4),
        (1074.679, 1000.0, 0.05),
        (2.706, 10.0, 0.9875),
    ] {
        let found = upper_tail(statistic, freedom);
        assert!((found / tail - 1.0).abs() < 0.2, "{statistic} with {freedom}: {found} for {tail}");
    }
}

/// What the tests above must be able to see: a little bias of any kind, at their own numbers of draws.
#[test]
fn the_statistic_finds_bias_and_leaves_the_rest_alone() {
    let (_, logits) = laws(512).remove(1);
    let params = SamplingParams { seed: Some(512), ..Default::default() };
    let counts = fresh_counts(100_000, &logits, &params);
    let probabilities = truth(&logits, &params);
    assert!(p_value(&counts, &probabilities) > FALSE_ALARM);

    let warmer = truth(&logits, &SamplingParams { temperature: 1.05, ..params.clone() });
    assert!(p_value(&counts, &warmer) < FALSE_ALARM, "a temperature off by a twentieth");
    let cut = truth(&logits, &SamplingParams { top_p: 0.995, ..params.clone() });
    assert!(p_value(&counts, &cut) < FALSE_ALARM, "ids that should have been removed");
    let mut shifted = probabilities.clone();
    shifted.rotate_right(1);
    assert!(p_value(&counts, &shifted) < FALSE_ALARM, "ids off by one");
    let mut tilted = probabilities.clone();
    tilted.iter_mut().enumerate().for_each(|(id, p)| *p *= if id % 2 == 0 { 1.02 } else { 0.98 });
    assert!(p_value(&counts, &tilted) < 1e-3, "even ids two per cent too rare");

    let repeated: Vec<u64> = counts.iter().map(|count| count * 2).collect();
    assert!(p_value(&repeated, &probabilities) < FALSE_ALARM, "each draw counted twice");
    let table = [vec![1000, 1200], vec![1200, 1000]];
    assert!(independence_p_value(&table) < FALSE_ALARM, "numbers that depend on each other");
}

/// p-values of a right sampler are uniform themselves.
#[test]
fn the_p_values_of_right_draws_are_uniform() {
    for draw in DRAWS {
        let logits: Vec<f32> = (0..30).map(|id| (id % 5) as f32 * 0.2).collect();
        let probabilities = truth(&logits, &SamplingParams::default());
        let tenths = count(1000, 10, |test| {
            let params = SamplingParams { draw, seed: Some(test << 20), ..Default::default() };
            let mut counts = vec![0; 30];
            for k in 0..600 {
                counts[draw_here(&logits, row(k, &params)).token as usize] += 1;
            }
            ((p_value(&counts, &probabilities) * 10.0) as usize).min(9)
        });
        assert_fits(&tenths, &[1.0; 10], &format!("p-values {draw:?}"));
    }
}
