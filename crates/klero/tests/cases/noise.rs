//! Gumbel noise at the ends of its bits, over all of them, and where it must reach far.

use crate::common::{Kind, logits_of};
use crate::{batch, row, seeded, tokens_of};
use klero::hash::{Case, row_hash, uniform};
use klero::noise::Noise;
use klero::{Edits, Row};
use rayon::prelude::*;
use std::collections::BTreeSet;

fn assert_in_range(bits: u64) {
    let noise = Noise::from_bits(bits);
    assert!(noise.exponential > 0.0 && (-3.82..45.1).contains(&noise.gumbel), "{noise:?}");
}

/// Case 46: bits of zeros, of ones, and the 128 greatest words whose (x + ½)/2³² is 1 in f32, as either half of the bits.
#[test]
fn noise_is_finite_where_a_uniform_number_would_round_to_one() {
    let rounded = |word: u32| ((f64::from(word) + 0.5) / 2f64.powi(32)) as f32 == 1.0;
    let words: Vec<u32> = (u32::MAX - 200..=u32::MAX).filter(|word| rounded(*word)).collect();
    assert_eq!(words.len(), 128);
    for word in words.into_iter().chain([0, 1, u32::MAX]) {
        for other in [0, 1, u32::MAX] {
            assert_in_range(u64::from(word) << 32 | u64::from(other));
            assert_in_range(u64::from(other) << 32 | u64::from(word));
        }
        assert!(uniform(u64::from(word) << 32 | u64::from(u32::MAX)) < 1.0);
    }
}

/// Case 46: a banned id whose noise is the greatest of a million rows does not win; unbanned it does.
#[test]
fn the_luckiest_banned_id_does_not_win() {
    let id = 1208;
    let noise = |position| Noise::of(row_hash(7847, position, Case::Fresh), id).gumbel;
    let mut positions: Vec<u64> = (0..1_000_000).filter(|position| noise(*position) > 9.0).collect();
    positions.push(12_345);
    assert!(positions.len() > 80, "{}", positions.len());
    let logits = Kind::Flat.logits(1, 2000, 1.0);
    let banned = BTreeSet::from([id]);
    let edits = Edits { banned: Some(&banned), ..Default::default() };
    let mut free_wins = 0;
    for position in positions {
        let free = row(&seeded(7847), position);
        let tokens = tokens_of(&batch(&logits.repeat(2), 2), &[free, free.with_edits(edits)]);
        free_wins += usize::from(tokens[0] == id);
        assert!(tokens[1] != id && tokens[1] < 2000);
    }
    assert!(free_wins > 60, "{free_wins}");
}

/// Case 47: all values of the top 24 bits, with the other 40 at both ends.
#[test]
fn noise_is_finite_for_all_upper_bits() {
    (0..1u64 << 24).into_par_iter().for_each(|top| {
        assert_in_range(top << 40);
        assert_in_range(top << 40 | ((1 << 40) - 1));
    });
}

/// Case 48: 262 144 ids lie 20.5 below one. In 100 000 rows 32.8 of them are expected, 12 to 58 wanted.
#[test]
fn a_far_tail_comes_at_its_rate() {
    let mut logits = vec![0.0; 262_145];
    logits[100_000] = 20.5;
    let in_tail = |k: &u64| tokens_of(&batch(&logits, 1), &[row(&seeded(k / 64), k % 64)]) != [100_000];
    let hits = (0..100_000u64).into_par_iter().filter(in_tail).count();
    assert!((12..=58).contains(&hits), "{hits} hits");
}

/// Case 50, as far as it concerns one machine: a million tokens are those of f64 scores, written out, also where two logits
/// are one step of f32 apart.
#[test]
fn a_million_tokens_are_those_of_f64_scores() {
    let close = [1.0f32, 1.0f32.next_up(), 1.0f32.next_down(), 1.0, 0.999];
    let spread = logits_of(&[0.05, 0.3, 0.25, 0.15, 0.25]);
    for logits in [&close[..], &spread] {
        let data = logits.repeat(64);
        (0..7813u64).into_par_iter().for_each(|call| {
            let rows: Vec<Row> = (0..64).map(|position| row(&seeded(call), position)).collect();
            for (position, token) in (0..).zip(tokens_of(&batch(&data, 64), &rows)) {
                let z = row_hash(call, position, Case::Fresh);
                let score = |id: &u32| f64::from(logits[*id as usize]) + Noise::of(z, *id).gumbel;
                let best = (0..5).max_by(|a, b| score(a).total_cmp(&score(b)));
                assert_eq!(Some(token), best, "seed {call} at {position}");
            }
        });
    }
}
