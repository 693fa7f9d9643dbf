//! Cases that went wrong in other samplers, each a small example of its kind.

mod common;

use common::{Case, DraftCase, Kind, NEG, Rng, bits, draw_here, logits_of, naive, on_threads};
use klero::hash::{Case as HashCase, Stream, row_hash, uniform};
use klero::{Draft, Draw, FusedHead, Logits, Outcome, Row, SamplingParams, Weights, parse_seed};
use std::collections::HashSet;

const DRAWS: [Draw; 2] = [Draw::Gumbel, Draw::InverseCdf];

fn seeded(seed: u64) -> SamplingParams {
    SamplingParams { seed: Some(seed), ..Default::default() }
}

fn solo(logits: &[f32], params: SamplingParams) -> Outcome {
    Case::new(logits.to_vec(), params).solo().unwrap()
}

/// The ids that are kept, best first.
fn kept(logits: &[f32], params: SamplingParams) -> Vec<u32> {
    let found = solo(logits, SamplingParams { top_logprobs: 1000, ..params });
    assert_eq!(found.top.len(), found.kept);
    found.top.iter().map(|listed| listed.token).collect()
}

#[test]
fn a_draw_needs_nothing_but_seed_and_position() {
    let logits = Kind::Flat.logits(1, 500, 6.0);
    let at = |position| {
        let row = Row::new(seeded(42).check().unwrap(), position);
        bits(&Ok(draw_here(&logits, row)))
    };
    let in_order: Vec<_> = (0..50).map(at).collect();
    let backwards: Vec<_> = (0..50).rev().map(at).collect();
    assert!(in_order.iter().eq(backwards.iter().rev()));
    // Resumed in the middle, on another thread, after other draws.
    let resumed = std::thread::scope(|scope| scope.spawn(|| (25..50).map(at).collect::<Vec<_>>()).join().unwrap());
    assert_eq!(resumed, in_order[25..]);
    let tokens: HashSet<u64> = in_order.iter().map(|bits| bits.as_ref().unwrap()[0]).collect();
    assert!(tokens.len() > 20, "one seed at 50 positions gave {} tokens", tokens.len());
}

#[test]
fn equal_rows_with_equal_seeds_give_equal_tokens_in_any_slot() {
    let logits = Kind::Real.logits(2, 700, 8.0);
    let data: Vec<f32> = logits.repeat(64);
    for batch in [1, 3, 8, 44, 45, 64] {
        let row = Row::new(seeded(9).check().unwrap(), 4);
        for outcome in Logits::new(&data, batch, 700).unwrap().draw(&vec![row; batch]).unwrap() {
            assert_eq!(bits(&outcome), bits(&Ok(draw_here(&logits, row))), "of {batch}");
        }
    }
}

/// A batch mate's filters choose no path for its neighbours.
#[test]
fn greedy_filtered_and_plain_rows_share_a_batch() {
    let logits = Kind::Flat.logits(3, 300, 8.0);
    let mates = [
        SamplingParams { temperature: 0.0, ..seeded(5) },
        SamplingParams { top_k: 5, ..seeded(5) },
        SamplingParams { top_p: 0.5, draw: Draw::InverseCdf, ..seeded(5) },
        SamplingParams { min_p: 0.2, raw_logprobs: true, top_logprobs: 7, ..seeded(5) },
    ];
    for params in &mates {
        for mate in &mates {
            let rows = [params, mate].map(|params| Row::new(params.check().unwrap(), 8));
            let found = Logits::new(&logits.repeat(2), 2, 300).unwrap().draw(&rows).unwrap();
            assert_eq!(bits(&found[0]), bits(&Ok(draw_here(&logits, rows[0]))), "{params:?} beside {mate:?}");
        }
    }
}

#[test]
fn seeds_are_any_64_bits_and_come_back() {
    let logits = [0.0; 64];
    for (text, seed) in [("-1", u64::MAX), ("-9223372036854775808", 1 << 63), ("18446744073709551615", u64::MAX)] {
        assert_eq!(parse_seed(text), Ok(seed));
        let found = solo(&logits, seeded(parse_seed(text).unwrap()));
        assert_eq!(found.seed, seed);
        assert_eq!(found.token, solo(&logits, seeded(seed)).token);
    }
    let without = SamplingParams::default();
    let (a, b) = (solo(&logits, without.clone()), solo(&logits, without));
    assert_ne!(a.seed, b.seed, "no seed is a new one each time");
    assert_eq!(solo(&logits, seeded(a.seed)).token, a.token, "and the one reported draws the same again");
}

#[test]
fn the_last_position_and_the_last_seed_wrap_as_the_hash_says() {
    let logits = Kind::Flat.logits(4, 100, 3.0);
    for position in [0, 1, u64::MAX / 3, u64::MAX - 1, u64::MAX] {
        for seed in [0, 1 << 63, u64::MAX - 1_000_000_006, u64::MAX] {
            for stream in [Stream::Target, Stream::Draft] {
                for draw in DRAWS {
                    let mut case = Case::new(logits.clone(), SamplingParams { draw, ..seeded(seed) });
                    (case.position, case.stream) = (position, stream);
                    let (found, truth) = (case.solo().unwrap(), case.oracle().unwrap());
                    assert!(truth.margin > 1e-5, "a closer call than this test wants");
                    assert_eq!((found.token as usize, found.position), (truth.token, position));
                }
            }
        }
    }
}

#[test]
fn filters_that_remove_nothing_are_off() {
    for vocab in [1, 2, 64, 65, 1000, 5000] {
        let logits = Kind::Flat.logits(vocab as u64, vocab, 5.0);
        for draw in DRAWS {
            let base = SamplingParams { draw, top_logprobs: 20, raw_logprobs: true, ..seeded(3) };
            let off = bits(&Ok(solo(&logits, base.clone())));
            let v = vocab as i64;
            for top_k in [v, v + 1, 9_999_999, 1 << 30, i64::from(i32::MAX)] {
                let found = solo(&logits, SamplingParams { top_k, ..base.clone() });
                assert_eq!(bits(&Ok(found)), off, "top_k {top_k} of {vocab}, {draw:?}");
            }
            for (top_p, min_p) in [(1.0, 0.0), (1.0 - 1e-12, 0.0), (1.0, 1e-40), (1.0, 1e-300)] {
                let found = solo(&logits, SamplingParams { top_p, min_p, ..base.clone() });
                assert_eq!(bits(&Ok(found)), off, "top_p {top_p}, min_p {min_p} of {vocab}, {draw:?}");
            }
        }
    }
}

#[test]
fn without_filters_seeds_differ_also_at_the_edges_of_the_parameters() {
    let logits = Kind::Flat.logits(5, 1000, 2.0);
    for draw in DRAWS {
        let base = SamplingParams { draw, ..Default::default() };
        for params in [
            SamplingParams { temperature: 1.0, ..base.clone() },
            SamplingParams { top_p: 1.0, ..base.clone() },
            SamplingParams { top_k: -1, ..base.clone() },
        ] {
            let tokens: HashSet<u32> =
                (0..8).map(|seed| solo(&logits, SamplingParams { seed: Some(seed), ..params.clone() }).token).collect();
            assert!(tokens.len() > 4, "{tokens:?}");
        }
    }
}

#[test]
fn ties_at_the_cut_go_to_lower_ids() {
    for draw in DRAWS {
        let base = SamplingParams { draw, ..seeded(1) };
        let top_k = |k| SamplingParams { top_k: k, ..base.clone() };
        assert_eq!(kept(&[5.0, 5.0, 5.0, 5.0, 1.0], top_k(2)), [0, 1]);
        assert_eq!(kept(&[1.0, 5.0, 5.0, 5.0, 5.0], top_k(2)), [1, 2]);
        assert_eq!(kept(&[-0.0, 0.0, -0.0, 1.0], top_k(3)), [3, 0, 1]);
        assert_eq!(kept(&[0.0, -0.0], top_k(1)), [0]);
        let top_p = |p| SamplingParams { top_p: p, ..base.clone() };
        assert_eq!(kept(&[1.0; 4], top_p(0.5)), [0, 1, 2], "equality stays");
        assert_eq!(kept(&[1.0; 4], top_p(0.499)), [0, 1]);
        assert_eq!(kept(&[1.0; 4], top_p(0.75)), [0, 1, 2, 3]);
        assert_eq!(kept(&[1.0; 4], top_p(f64::from(0.75f32.next_down()))), [0, 1, 2]);
        // Ties across blocks, at the cut of a list that is rewritten.
        let equal = vec![0.5; 5000];
        assert!(kept(&equal, top_k(900)).into_iter().eq(0..900));
        for batch in [1, 8] {
            let rows = vec![Row::new(top_k(2).check().unwrap(), 0); batch];
            let data = [5.0, 5.0, 5.0, 5.0, 1.0].repeat(batch);
            let found = Logits::new(&data, batch, 5).unwrap().draw(&rows).unwrap();
            assert!(found.iter().all(|outcome| outcome.as_ref().unwrap().token < 2));
        }
    }
}

#[test]
fn the_filters_come_in_the_laws_order() {
    let base = seeded(1);
    let both = |top_p, top_k| SamplingParams { top_p, top_k, ..base.clone() };
    assert_eq!(kept(&logits_of(&[0.1, 0.2, 0.3, 0.4]), both(0.5, 2)), [3, 2], "not top-k first: that gives {{3}}");
    assert_eq!(kept(&logits_of(&[0.5, 0.3, 0.2]), both(0.55, 2)), [0, 1]);
    assert_eq!(kept(&logits_of(&[0.5, 0.3, 0.2]), both(0.45, 2)), [0]);
    let min_p = |min_p, top_k| SamplingParams { min_p, top_k, ..base.clone() };
    assert_eq!(kept(&logits_of(&[0.05, 0.55, 0.10, 0.30]), min_p(0.5, -1)), [1, 3]);
    assert_eq!(kept(&logits_of(&[0.05, 0.55, 0.10, 0.30]), min_p(0.5, 1)), [1]);
    assert_eq!(kept(&[1.0, 1.0, 0.0], min_p(1.0 - 1e-12, -1)), [0, 1], "equal to the best is not below it");
}

#[test]
fn a_tiny_top_p_is_the_argmax() {
    let mut logits = Kind::Flat.logits(6, 4096, 4.0);
    logits[2000] = 3.0;
    for draw in DRAWS {
        for top_p in [1e-3, 1e-4, 1e-7, 1e-8, 1e-30, f64::from(f32::from_bits(1)), f64::MIN_POSITIVE] {
            let found = solo(&logits, SamplingParams { top_p, draw, top_logprobs: 5, ..seeded(3) });
            assert_eq!((found.token, found.kept, found.logprob, found.top.len()), (2000, 1, 0.0, 1), "top_p {top_p}");
        }
        let few = SamplingParams { top_k: 1, top_p: 0.8, temperature: 0.01, draw, ..seeded(3) };
        assert_eq!(solo(&logits, few).token, 2000);
    }
}

#[test]
fn cold_rows_are_the_argmax_and_hot_ones_are_flat() {
    let mut logits = Kind::Flat.logits(7, 300, 100.0);
    logits[123] = 100.0;
    logits[7] = -100.0;
    for draw in DRAWS {
        for temperature in [0.0, -0.0, 1e-5, 1e-12, 1e-38, 1e-45, f64::MIN_POSITIVE] {
            let found = solo(&logits, SamplingParams { temperature, draw, ..seeded(8) });
            assert_eq!((found.token, found.logprob), (123, 0.0), "T = {temperature}");
        }
        for temperature in [1e6, 1e30, f64::from(f32::MAX)] {
            let hot = SamplingParams { temperature, draw, ..seeded(8) };
            let found = solo(&logits, hot.clone());
            assert!((found.logprob + 300f64.ln()).abs() < 1e-3, "T = {temperature}");
            let tokens: HashSet<u32> =
                (0..200).map(|seed| solo(&logits, SamplingParams { seed: Some(seed), ..hot.clone() }).token).collect();
            assert!(tokens.len() > 100, "{} tokens at T = {temperature}", tokens.len());
            assert_eq!(solo(&logits, SamplingParams { top_k: 1, ..hot }).kept, 1);
        }
    }
    // 1e-5 as f32 lies below 1e-5; the value given counts.
    let warm = SamplingParams { temperature: 1e-5, top_k: 1, ..seeded(2) };
    assert_eq!(kept(&[1.0, 2.0, 2.0], warm.clone()), [1]);
    let cold = SamplingParams { temperature: 1e-5f64.next_down(), ..warm };
    assert_eq!(kept(&[1.0, 2.0, 2.0], cold).len(), 3);
}

#[test]
fn a_low_top_p_or_temperature_gives_numbers() {
    let logits = [2.0, 1.0, 0.0];
    for params in [
        SamplingParams { top_p: 1e-4, ..seeded(1) },
        SamplingParams { temperature: 1e-4, ..seeded(1) },
        SamplingParams { temperature: 1e-4, top_p: 1e-4, min_p: 0.999, ..seeded(1) },
    ] {
        let found = solo(&logits, SamplingParams { raw_logprobs: true, ..params });
        assert_eq!((found.token, found.logprob), (0, 0.0));
        assert!((found.raw_logprob.unwrap() + 0.407_605_964).abs() < 1e-6);
    }
}

#[test]
fn a_one_hot_row_gives_its_id_whatever_the_seed() {
    for draw in DRAWS {
        for seed in 0..20_000 {
            let found = draw_here(&[NEG, 0.0, NEG, NEG], {
                Row::new(SamplingParams { top_k: 1 << 30, draw, ..seeded(seed) }.check().unwrap(), seed)
            });
            assert_eq!((found.token, found.kept), (1, 1));
        }
    }
}

/// The smallest and the greatest u that ten million positions hold, at rows with holes at both ends and in the middle.
#[test]
fn the_ends_of_u_hit_no_hole() {
    let z = |position| row_hash(1, position, HashCase::Fresh);
    let (mut low, mut high) = (0, 0);
    for position in 0..10_000_000 {
        low = if z(position) < z(low) { position } else { low };
        high = if z(position) > z(high) { position } else { high };
    }
    assert!(uniform(z(low)) < 1e-6 && uniform(z(high)) > 1.0 - 1e-6);
    for vocab in [3usize, 130, 1000] {
        let mut logits = vec![-1.0; vocab];
        for hole in [0, vocab / 2, vocab - 1] {
            logits[hole] = NEG;
        }
        let row =
            |position| Row::new(SamplingParams { draw: Draw::InverseCdf, ..seeded(1) }.check().unwrap(), position);
        if vocab > 3 {
            assert_eq!(draw_here(&logits, row(low)).token, 1, "the first id that has a weight");
            assert_eq!(draw_here(&logits, row(high)).token as usize, vocab - 2, "the last id that has a weight");
        }
        // An id with a weight below the last unit has no chance, even at the end.
        let mut tail = vec![-200.0; vocab];
        tail[0] = 0.0;
        assert_eq!(draw_here(&tail, row(high)).token, 0);
    }
}

/// Rows where a mass of 2^43 units and more decides by one of them.
#[test]
fn one_unit_of_mass_decides_for_top_p() {
    let mut rng = Rng::new(8);
    let (mut over, mut under) = (0, 0);
    while over < 3 || under < 3 {
        let logits = [0.0, -2.0 * rng.unit() as f32, -3.0, -3.5, -4.0];
        let masses = naive::Masses::new(&logits, 1.0);
        let mass = masses.weights[0] + masses.weights[1];
        let top_p = f64::from((mass as f64 / masses.total as f64) as f32);
        let by_one = match masses.exceeds(mass, top_p) {
            true => !masses.exceeds(mass - 1, top_p),
            false => masses.exceeds(mass + 1, top_p),
        };
        if !by_one {
            continue;
        }
        let count = if masses.exceeds(mass, top_p) { &mut over } else { &mut under };
        *count += 1;
        let expected = if masses.exceeds(mass, top_p) { 2 } else { 3 };
        assert_eq!(solo(&logits, SamplingParams { top_p, ..seeded(1) }).kept, expected, "{logits:?} {top_p:?}");
    }
}

/// The first position from 0 on whose u lies in [low, high).
fn position_with(seed: u64, low: f64, high: f64) -> u64 {
    (0..1 << 33).find(|t| (low..high).contains(&uniform(row_hash(seed, *t, HashCase::Fresh)))).expect("some u is there")
}

fn by_cdf(logits: &[f32], position: u64) -> u32 {
    let params = SamplingParams { draw: Draw::InverseCdf, ..seeded(1) };
    draw_here(logits, Row::new(params.check().unwrap(), position)).token
}

/// Of rows of `vocab` ids, the one for which `distance` is greatest.
fn most_rounded(vocab: usize, distance: impl Fn(&naive::Masses) -> f64) -> (Vec<f32>, naive::Masses) {
    let with_masses = |seed| {
        let logits = Kind::Flat.logits(seed, vocab, 2.0);
        let masses = naive::Masses::new(&logits, 1.0);
        (logits, masses)
    };
    let rounded = |seed: &u64| distance(&with_masses(*seed).1);
    with_masses((0..3000).max_by(|a, b| rounded(a).total_cmp(&rounded(b))).unwrap())
}

/// A block may weigh more than its ids: u then lands behind the last of them.
#[test]
fn where_rounding_leaves_a_block_without_a_hit_its_last_weight_takes_it() {
    let sum = |masses: &naive::Masses| masses.weights.iter().sum::<u64>() as f64;
    let gap = |masses: &naive::Masses| 1.0 - sum(masses) / masses.total as f64;
    let (mut logits, masses) = most_rounded(40, gap);
    assert!(gap(&masses) > 2e-8);
    let position = position_with(1, 1.0 - 0.9 * gap(&masses), 1.0);
    assert_eq!(by_cdf(&logits, position), 39);
    // Ids too small for a unit of mass stand behind it, in the same block.
    logits.extend([-200.0; 10]);
    assert_eq!(by_cdf(&logits, position), 39);
}

/// Without a filter it is the masses of blocks that run against u, not the sums of single weights.
#[test]
fn blocks_decide_by_their_own_mass() {
    let shares = |masses: &naive::Masses| {
        let singles = |ids: &[u64]| ids.iter().sum::<u64>() as f64;
        let blocks = masses.blocks[0] as f64 / masses.total as f64;
        (blocks, singles(&masses.weights[..64]) / singles(&masses.weights))
    };
    let (logits, masses) = most_rounded(128, |masses| (shares(masses).0 - shares(masses).1).abs());
    let (blocks, singles) = shares(&masses);
    let (low, high) = (blocks.min(singles), blocks.max(singles));
    assert!(high - low > 2e-8);
    let position = position_with(1, low + 0.05 * (high - low), high - 0.05 * (high - low));
    let token = by_cdf(&logits, position);
    assert_eq!(token < 64, blocks > singles, "token {token}");
}

#[test]
fn lists_are_as_long_as_there_is_to_tell() {
    let logits = [0.0, -1.0, NEG, -2.0, -3.0];
    for draw in DRAWS {
        let list = |n, params: SamplingParams| {
            solo(&logits, SamplingParams { top_logprobs: n, draw, ..params })
                .top
                .iter()
                .map(|t| t.token)
                .collect::<Vec<_>>()
        };
        assert!(list(0, seeded(1)).is_empty());
        assert_eq!(list(3, seeded(1)), [0, 1, 3]);
        assert_eq!(list(1000, seeded(1)), [0, 1, 3, 4], "nothing at −∞ is listed");
        assert_eq!(list(5, SamplingParams { top_k: 2, ..seeded(1) }), [0, 1]);
        let cold = SamplingParams { temperature: 0.0, ..seeded(1) };
        assert_eq!(list(2, cold), [0, 1]);
    }
    // Below T = 1e-5 what is drawn has logprob 0 and the others a number, never NaN.
    let cold = SamplingParams { temperature: 0.0, top_logprobs: 4, raw_logprobs: true, ..seeded(1) };
    let found = solo(&logits, cold);
    assert_eq!(found.top[0].logprob, 0.0);
    assert!(found.top.iter().all(|t| t.logprob.is_finite() && t.raw_logprob.unwrap().is_finite()));
}

#[test]
fn processed_and_raw_logprobs_by_hand() {
    let logits = logits_of(&[0.1, 0.2, 0.3, 0.4]);
    let params = SamplingParams { temperature: 2.0, top_p: 0.5, top_logprobs: 4, raw_logprobs: true, ..seeded(1) };
    let found = solo(&logits, params);
    let roots = [0.4f64.sqrt(), 0.3f64.sqrt()];
    assert_eq!(found.kept, 2);
    for ((listed, root), raw) in found.top.iter().zip(roots).zip([0.4f64, 0.3]) {
        assert!((listed.logprob - (root / (roots[0] + roots[1])).ln()).abs() < 1e-6);
        assert!((listed.raw_logprob.unwrap() - raw.ln()).abs() < 1e-6);
    }
    // Raw logprobs are over the valid vocabulary.
    let params = SamplingParams { raw_logprobs: true, top_k: 1, ..seeded(1) };
    let row = Row::new(params.check().unwrap(), 0).with_vocabulary(3);
    let found = Logits::new(&logits, 1, 4).unwrap().draw(&[row]).unwrap().remove(0).unwrap();
    assert!(found.token == 2 && (found.raw_logprob.unwrap() - 0.5f64.ln()).abs() < 1e-6);
}

/// Target (0.5, 0.3, 0.2) against draft (0.2, 0.6, 0.2), δ = 0: R = (0.3, 0, 0).
#[test]
fn rejection_by_hand() {
    let logits = logits_of(&[0.5, 0.3, 0.2]);
    let logprobs = logits_of(&[0.2, 0.6, 0.2]);
    for draw in DRAWS {
        for seed in 0..200 {
            let verify = |token| {
                let row = Row::new(SamplingParams { draw, ..seeded(seed) }.check().unwrap(), 3);
                let found = draw_here(&logits, row.with_draft(Draft::new(token, &logprobs).with_delta(0.0)));
                (found.token, found.verification.unwrap())
            };
            let (token, verification) = verify(1);
            let u = uniform(row_hash(seed, 3, HashCase::Accept));
            assert_eq!((token, verification.accepted), (u32::from(u < 0.5), u < 0.5));
            assert!((verification.accept_probability - 0.7).abs() < 1e-6);
            assert_eq!(verification.draft_logprob, Some(f64::from(logprobs[1])));
            assert_eq!((verify(0).0, verify(0).1.accepted), (0, true));
            let (token, verification) = verify(-1);
            assert_eq!((token, verification.accepted, verification.draft_logprob), (0, false, None));
        }
    }
}

#[test]
fn where_no_residual_is_left_the_best_token_stands_in() {
    let excessive = [0.0; 200];
    let mut logits = vec![1.0; 200];
    (logits[70], logits[150]) = (2.0, 2.0);
    for draw in DRAWS {
        for (top_p, top_k) in [(1.0, -1), (0.5, -1), (1.0, 1)] {
            let row = Row::new(SamplingParams { draw, top_p, top_k, ..seeded(1) }.check().unwrap(), 0);
            let found = draw_here(&logits, row.with_draft(Draft::new(-1, &excessive).with_delta(0.0)));
            let verification = found.verification.unwrap();
            assert_eq!((found.token, verification.accepted, verification.accept_probability), (70, false, 1.0));
        }
    }
}

#[test]
fn a_draft_that_a_filter_removed_is_never_accepted() {
    let logits = logits_of(&[0.5, 0.3, 0.2]);
    let logprobs = [NEG, NEG, 0.0];
    for draw in DRAWS {
        for seed in 0..500 {
            let row = Row::new(SamplingParams { draw, top_k: 2, ..seeded(seed) }.check().unwrap(), 0);
            let found = draw_here(&logits, row.with_draft(Draft::new(2, &logprobs)));
            assert!(found.token < 2 && !found.verification.unwrap().accepted && found.logprob.is_finite());
        }
    }
}

/// A draft equal to the target is all but always accepted, and the row after it is an ordinary one.
#[test]
fn a_perfect_draft_is_accepted() {
    let logits = Kind::Flat.logits(11, 200, 4.0);
    let logprobs = common::log_softmax(&logits);
    let mut accepted = 0;
    for seed in 0..2000 {
        let mut case = Case::new(logits.clone(), seeded(seed));
        let token = i64::from(draw_here(&logits, case.row().with_stream(Stream::Draft)).token);
        case.draft = Some(DraftCase::new(token, logprobs.clone(), Draft::DELTA));
        let found = case.solo().unwrap();
        let verification = found.verification.unwrap();
        accepted += i32::from(verification.accepted);
        assert!((verification.accept_probability - (-5e-5f64).exp()).abs() < 1e-6);
    }
    assert_eq!(accepted, 2000);
}

#[test]
fn a_call_inside_a_busy_pool_ends_and_changes_nothing() {
    use rayon::prelude::*;
    let logits = Kind::Flat.logits(12, 20_000, 5.0);
    let draw = |seed: u64| {
        let params = SamplingParams { top_p: 0.9, ..seeded(seed) };
        bits(&Case::new(logits.clone(), params).solo())
    };
    let alone: Vec<_> = (0..40).map(draw).collect();
    for threads in 1..=3 {
        let nested: Vec<_> = on_threads(threads, || (0..40u64).into_par_iter().map(draw).collect());
        assert_eq!(nested, alone, "{threads} threads");
    }
    // Several callers at once, as in a server.
    let callers: Vec<_> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..4).map(|_| scope.spawn(|| (0..40).map(draw).collect::<Vec<_>>())).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    assert!(callers.iter().all(|found| *found == alone));
}

/// Large hidden states, so that logits are large too, give the same through the head and from its logits.
#[test]
fn the_fused_head_holds_at_the_edges_of_its_inputs() {
    let (vocab, cols) = (130, 32);
    let data = Kind::Flat.logits(13, vocab * cols, 2.0);
    let weights = Weights::f32(vocab, cols, data).unwrap();
    let head = FusedHead::new(&weights).unwrap();
    for scale in [0.0, 1e-30, 1.0, 1e6, 1e30, 1e37] {
        let hidden: Vec<f32> = Kind::Flat.logits(14, cols, 2.0).iter().map(|h| h * scale).collect();
        for temperature in [0.0, 1.0, 1e6] {
            let row = Row::new(SamplingParams { temperature, ..seeded(1) }.check().unwrap(), 0);
            let logits = head.logits(&hidden).unwrap();
            let ready = Logits::new(&logits, 1, vocab).unwrap().draw(&[row]).unwrap();
            assert_eq!(bits(&head.draw(&hidden, &[row]).unwrap()[0]), bits(&ready[0]), "{scale} at T = {temperature}");
        }
    }
}
