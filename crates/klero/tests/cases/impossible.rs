//! Ids that must never come: banned ones, ones without probability, ones that are none.

use crate::common::{NEG, logits_of};
use crate::{DRAWS, assert_fits, batch, row, seeded, tokens_of};
use klero::hash::{Case, GOLDEN, row_hash, uniform};
use klero::{Draft, Draw, Edits, Row, SamplingParams};
use rayon::prelude::*;
use std::collections::BTreeSet;

/// Rows of one call where many are drawn.
const TOGETHER: u64 = 64;

/// How often each of four ids comes in `draws` draws, 64 positions of each seed.
fn counts(logits: &[f32; 4], draws: u64, draw: Draw, edits: Edits) -> [u64; 4] {
    let data = logits.repeat(TOGETHER as usize);
    let call = |call: u64| {
        let at = |k: u64| row(&SamplingParams { draw, ..seeded(k / 64) }, k % 64).with_edits(edits);
        let rows: Vec<Row> = (call * TOGETHER..(call + 1) * TOGETHER).map(at).collect();
        let mut counts = [0; 4];
        for token in tokens_of(&batch(&data, rows.len()), &rows) {
            counts[token as usize] += 1;
        }
        counts
    };
    let sum = |a: [u64; 4], b: [u64; 4]| [0, 1, 2, 3].map(|id| a[id] + b[id]);
    (0..draws / TOGETHER).into_par_iter().map(call).reduce(|| [0; 4], sum)
}

/// Case 42: an id in the middle has no probability, once by its logit and once by a ban.
#[test]
fn an_id_without_probability_never_comes() {
    let hole = logits_of(&[0.33, 0.34, 0.0, 0.33]);
    let full = logits_of(&[0.33, 0.34, 0.9, 0.33]);
    let banned = BTreeSet::from([2]);
    let ban = Edits { banned: Some(&banned), ..Default::default() };
    for draw in DRAWS {
        for (logits, edits) in [(&hole, Edits::default()), (&full, ban)] {
            let found = counts(&[logits[0], logits[1], logits[2], logits[3]], 25_000_000, draw, edits);
            assert_eq!(found[2], 0);
            assert_fits(&found, &[0.33, 0.34, 0.0, 0.33], &format!("{draw:?}"));
        }
    }
}

/// The seed that gives the hash z at a position.
fn seed_with(z: u64, position: u64, case: Case) -> u64 {
    // SplitMix64 backwards: each step is one to one.
    let unshift = |z: u64, by: u32| (0..64 / by).fold(z, |found, _| z ^ (found >> by));
    let divide = |z: u64, factor: u64| {
        let inverse = (0..6).fold(factor, |i, _| i.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(i))));
        z.wrapping_mul(inverse)
    };
    let z = divide(unshift(z, 31), 0x94D0_49BB_1331_11EB);
    let z = divide(unshift(z, 27), 0xBF58_476D_1CE4_E5B9);
    let y = unshift(z, 30).wrapping_sub(GOLDEN);
    let q = position.wrapping_mul(3).wrapping_add(case as u64).wrapping_mul(GOLDEN);
    match case {
        Case::Fresh | Case::Residual => y.wrapping_sub(q ^ (q << 13)),
        Case::Accept => y ^ q,
    }
}

/// Case 42: u exactly 0 and as great as it can be, at rows with holes at both ends.
#[test]
fn the_ends_of_u_take_the_ends_of_the_weights() {
    for vocab in [5usize, 130, 5000] {
        let mut logits = vec![-1.0; vocab];
        for hole in [0, 1, vocab / 2, vocab - 1] {
            logits[hole] = NEG;
        }
        // An id of no whole unit of mass behind the last weight.
        logits[vocab - 2] = -200.0;
        for position in [0, 7, u64::MAX] {
            for (z, u, token) in [(0, 0.0, 2), (u64::MAX, 1.0 - 2f64.powi(-53), vocab - 3)] {
                let token = if vocab == 5 { 3 } else { token };
                let seed = seed_with(z, position, Case::Fresh);
                assert_eq!((row_hash(seed, position, Case::Fresh), uniform(z)), (z, u));
                for filtered in [false, true] {
                    let top_k = if filtered { (vocab as i64 - 5).max(1) } else { -1 };
                    let found = |draw| {
                        let row = row(&SamplingParams { draw, top_k, ..seeded(seed) }, position);
                        tokens_of(&batch(&logits, 1), &[row])[0] as usize
                    };
                    assert_eq!(found(Draw::InverseCdf), token, "u = {u} of {vocab}");
                    assert!(logits[found(Draw::Gumbel)] > NEG);
                }
            }
        }
    }
}

/// Case 64, the coin at its ends: at 0 it accepts what the target may draw and nothing else; at its greatest it still accepts what
/// the target gives more than the draft did.
#[test]
fn the_ends_of_the_coin_accept_only_what_the_target_may_draw() {
    let logits = [NEG, 0.0, -12.0];
    let logprobs = [0.5f32.ln(), 0.5f32.ln(), 0.0];
    let drafts = |token| [Draft::new(token, &logprobs), Draft::one_hot(token)];
    for draw in DRAWS {
        // Id 1 has the probability 1 − 6·10⁻⁶: the greatest coin accepts it where the draft held half as much, and not where
        // the draft held 1.
        for (z, accepted) in
            [(0, [[false; 2], [true; 2], [true; 2]]), (u64::MAX, [[false; 2], [true, false], [false; 2]])]
        {
            let seed = seed_with(z, 9, Case::Accept);
            assert_eq!(row_hash(seed, 9, Case::Accept), z);
            for (token, accepted) in (0..3).zip(accepted) {
                for (draft, accepted) in drafts(token).into_iter().zip(accepted) {
                    let row = row(&SamplingParams { draw, ..seeded(seed) }, 9).with_draft(draft.with_delta(0.0));
                    let found = batch(&logits, 1).draw(&[row]).unwrap().remove(0).unwrap();
                    assert_eq!(found.verification.unwrap().accepted, accepted, "{draft:?} at coin {z}");
                    assert_ne!(found.token, 0);
                }
            }
        }
    }
}

/// Case 44.
#[test]
fn a_one_hot_row_gives_its_id_for_a_million_seeds() {
    let one_hot = [NEG, 0.0, NEG, NEG];
    let data = one_hot.repeat(TOGETHER as usize);
    for draw in DRAWS {
        (0..1_000_000 / TOGETHER).into_par_iter().for_each(|call| {
            let at = |seed| row(&SamplingParams { top_k: 1_073_741_824, draw, ..seeded(seed) }, 0);
            let rows: Vec<Row> = (call * TOGETHER..(call + 1) * TOGETHER).map(at).collect();
            assert!(tokens_of(&batch(&data, rows.len()), &rows).iter().all(|token| *token == 1));
        });
    }
}
