//! Whether the tokens follow the distribution, by chi-square over pooled bins, with fixed seeds.
//!
//! A right sampler fails one of these tests with a chance of at most 10⁻⁶ for each p-value that is taken (there are
//! some 250) and 10⁻³ for the counts of rare ids: one time in a thousand, for a new set of seeds. The seeds being
//! fixed, a failure is a change of the sampler, never chance. Each draw is one row on one thread; the draws run side by
//! side.

mod common;

use common::chi::{FALSE_ALARM, independence_p_value, p_value, upper_tail};
use common::{Case, DraftCase, EditsCase, NEG, Rng, draw_here, log_softmax};
use klero::hash::{Case as HashCase, row_hash, uniform};
use klero::hash::{Stream, splitmix64};
use klero::{Draft, Draw, FilterOrder, Logits, Row, SamplingParams, Shard, ShardStep};
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

/// A million steps, each with a target and a draft of its own kind: what is emitted follows the target.
#[test]
fn a_million_verified_steps_follow_their_targets() {
    const KINDS: usize = 8;
    let mut rng = Rng::new(71);
    let mut distribution = |spread: f64| -> Vec<f32> { (0..24).map(|_| (spread * rng.normal()) as f32).collect() };
    let pairs: Vec<(Vec<f32>, Vec<f32>)> =
        (0..KINDS).map(|kind| (distribution(2.0), log_softmax(&distribution(0.5 + kind as f64 / 3.0)))).collect();
    for draw in DRAWS {
        let params = SamplingParams { draw, seed: Some(29), ..Default::default() };
        let counts = count(500_000, KINDS * 24, |k| {
            let kind = (k / 5 % KINDS as u64) as usize;
            let (logits, logprobs) = &pairs[kind];
            let drafted = draw_here(logprobs, row(k, &params).with_stream(Stream::Draft)).token;
            let draft = Draft::new(i64::from(drafted), logprobs).with_delta(0.0);
            kind * 24 + draw_here(logits, row(k, &params).with_draft(draft)).token as usize
        });
        for (kind, counts) in counts.chunks(24).enumerate() {
            assert_fits(counts, &truth(&pairs[kind].0, &params), &format!("{draw:?} pair {kind}"));
        }
    }
}

/// A guess has no distribution, or one with all on its token; where it comes from does not matter.
#[test]
fn guesses_leave_the_target_as_it_is() {
    let mut rng = Rng::new(4);
    let logits: Vec<f32> = (0..16).map(|_| rng.normal() as f32).collect();
    let one_hot: Vec<Vec<f32>> =
        (0..16).map(|token| (0..16).map(|id| if id == token { 0.0 } else { NEG }).collect()).collect();
    for draw in DRAWS {
        let params = SamplingParams { draw, seed: Some(12), ..Default::default() };
        for written_out in [true, false] {
            let counts = count(200_000, 16, |k| {
                let token = (splitmix64(k) % 16) as usize;
                let draft = match written_out {
                    true => Draft::new(token as i64, &one_hot[token]),
                    false => Draft::one_hot(token as i64),
                };
                draw_here(&logits, row(k, &params).with_draft(draft.with_delta(0.0))).token as usize
            });
            assert_fits(&counts, &truth(&logits, &params), &format!("{draw:?} written out: {written_out}"));
        }
    }
}

/// A coupled draft of another model, drawn with the same noise: the token follows the target, the acceptance is at least
/// that of independent draws (Σ p q) and at most what any coupling can do (Σ min(p, q)).
#[test]
fn coupled_tokens_follow_the_target() {
    let mut rng = Rng::new(14);
    let logits: Vec<f32> = (0..32).map(|_| 1.5 * rng.normal() as f32).collect();
    let near: Vec<f32> = logits.iter().map(|l| l + 0.3 * rng.normal() as f32).collect();
    let n = 250_000;
    for draw in DRAWS {
        let params = SamplingParams { draw, seed: Some(5), ..Default::default() };
        let counts = count(n, 64, |k| {
            let drafted = draw_here(&near, row(k, &params)).token;
            let found = draw_here(&logits, row(k, &params).with_draft(Draft::coupled(i64::from(drafted))));
            2 * found.token as usize + usize::from(found.verification.unwrap().accepted)
        });
        let (p, q) = (truth(&logits, &params), truth(&near, &params));
        let emitted: Vec<u64> = counts.chunks(2).map(|pair| pair[0] + pair[1]).collect();
        assert_fits(&emitted, &p, &format!("{draw:?}"));
        let accepted = counts.iter().skip(1).step_by(2).sum::<u64>() as f64 / n as f64;
        let both = |with: fn(f64, f64) -> f64| p.iter().zip(&q).map(|(p, q)| with(*p, *q)).sum::<f64>();
        let (least, most) = (both(|p, q| p * q), both(f64::min));
        assert!(accepted > 3.0 * least && accepted < most + 0.005, "{draw:?}: {least} {accepted} {most}");
        if draw == Draw::Gumbel {
            assert!(accepted > 0.85 * most, "the noise is shared: {accepted} of {most}");
        }
    }
}

/// Every stage and every filter at once, in both orders.
#[test]
fn edited_and_filtered_draws_follow_the_processed_distribution() {
    for vocab in [40, 512, 5000] {
        let mut rng = Rng::new(vocab as u64 + 31);
        let logits: Vec<f32> = (0..vocab).map(|_| 1.2 * rng.normal() as f32).collect();
        let mut some = |n: usize| -> Vec<u32> { (0..n).map(|_| rng.below(vocab) as u32).collect() };
        let (prompt, output, banned) = (some(vocab / 4), some(vocab / 4), some(vocab / 10));
        let bias = vec![(1, 2.0), (7, -1.0), (30, 1.5)];
        let allowed = (0..vocab.div_ceil(32)).map(|i| u32::MAX ^ (1 << (i % 32))).collect();
        let edits = EditsCase {
            prompt,
            output,
            bias,
            banned,
            allowed: Some(allowed),
            blacklist: vec![3, 11],
            force_top_k: vocab * 3 / 4,
            ..Default::default()
        };
        for (draw, filter_order) in
            DRAWS.into_iter().flat_map(|d| [FilterOrder::TopPFirst, FilterOrder::MinPFirst].map(|order| (d, order)))
        {
            let params = SamplingParams {
                temperature: 1.4,
                top_p: 0.93,
                top_k: vocab as i64 / 3,
                min_p: 0.02,
                filter_order,
                repetition_penalty: 1.2,
                frequency_penalty: 0.2,
                presence_penalty: -0.1,
                draw,
                seed: Some(vocab as u64),
                ..Default::default()
            };
            let case = Case { edits: edits.clone().ready(), ..Case::new(logits.clone(), params.clone()) };
            let batch =
                Logits::new(&logits, 1, vocab).unwrap().with_tile(vocab).batch().with_policy(case.edits.policy());
            let counts = count(if vocab > 1000 { 2500 } else { 30_000 }, vocab, |k| {
                let row = row(k, &params).with_edits(case.edits.edits());
                batch.tokens(&[row]).unwrap().remove(0).unwrap() as usize
            });
            let truth = case.oracle().unwrap();
            assert!(truth.kept < vocab / 2);
            assert_fits(&counts, &truth.probabilities, &format!("V = {vocab} {draw:?} {filter_order:?}"));
        }
    }
}

/// Tokens that three shards agree on.
#[test]
fn merged_shards_draw_from_the_whole() {
    let vocab = 200;
    let mut rng = Rng::new(77);
    let logits: Vec<f32> = (0..vocab).map(|_| 1.5 * rng.normal() as f32).collect();
    let shards = [0..64, 64..128, 128..vocab];
    for (draw, top_p) in DRAWS.into_iter().flat_map(|draw| [(draw, 1.0), (draw, 0.8)]) {
        let params = SamplingParams { draw, top_p, seed: Some(8), ..Default::default() };
        let counts = count(60_000, vocab, |k| {
            let row = [row(k, &params)];
            let mut steps = shards.clone().map(|ids| {
                let shard = Shard { first: ids.start, vocabulary: vocab };
                Logits::new(&logits[ids.clone()], 1, ids.len()).unwrap().batch().shard_tokens(shard, &row).unwrap()
            });
            loop {
                match &steps {
                    [ShardStep::Done(a), ShardStep::Done(b), ShardStep::Done(c)] => {
                        assert!(a == b && b == c);
                        return *a[0].as_ref().unwrap() as usize;
                    }
                    _ => {
                        let messages = steps.each_ref().map(|step| step.message().unwrap_or_default().to_vec());
                        steps = steps.map(|step| step.merge(&messages).unwrap());
                    }
                }
            }
        });
        assert_fits(&counts, &truth(&logits, &params), &format!("{draw:?} top_p {top_p}"));
    }
}

/// The samples of one row are drawn apart from each other.
#[test]
fn samples_of_a_row_are_independent_draws() {
    let mut rng = Rng::new(78);
    let logits: Vec<f32> = (0..8).map(|_| rng.normal() as f32).collect();
    let batch = Logits::new(&logits, 1, 8).unwrap().batch();
    for draw in DRAWS {
        let params = SamplingParams { draw, seed: Some(1), ..Default::default() };
        let p = truth(&logits, &params);
        let pairs: Vec<f64> = p.iter().flat_map(|a| p.iter().map(move |b| a * b)).collect();
        let counts = count(100_000, 64, |k| {
            let samples = batch.samples(&[row(k, &params)], 3).unwrap().remove(0);
            let token = |j: usize| samples[j].as_ref().unwrap().token as usize;
            8 * token(k as usize % 2) + token(2)
        });
        assert_fits(&counts, &pairs, &format!("{draw:?}"));
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
