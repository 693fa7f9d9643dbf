//! Speculation: the target's law with any draft, and the same text again.

use crate::common::{Case, Kind, Rng, log_softmax};
use crate::{DRAWS, assert_fits, batch, draw_all, row, seeded, tokens_of};
use klero::hash::{Stream, uniform};
use klero::{Draft, Proposal, Row, SamplingParams, Speculation};
use rayon::prelude::*;

/// Case 63: a million verified rows over ten random pairs of target and draft, by both draws.
#[test]
fn what_a_million_verifications_emit_is_the_target() {
    const VOCAB: usize = 12;
    const ROWS: u64 = 64;
    for pair in 0..10 {
        let mut rng = Rng::new(pair);
        let mut random = |scale: f64| (0..VOCAB).map(|_| (scale * rng.normal()) as f32).collect::<Vec<f32>>();
        let (target, draft) = (random(1.5), log_softmax(&random(1.0)));
        let (targets, drafts) = (target.repeat(ROWS as usize), draft.repeat(ROWS as usize));
        for draw in DRAWS {
            let at = |k: u64| row(&SamplingParams { draw, ..seeded((pair << 32) + k / 64) }, k % 64);
            let call = |call: u64| {
                let rows: Vec<Row> = (call * ROWS..(call + 1) * ROWS).map(at).collect();
                let drafting: Vec<Row> = rows.iter().map(|row| row.with_stream(Stream::Draft)).collect();
                let drafted = tokens_of(&batch(&drafts, rows.len()), &drafting);
                let verified: Vec<Row> = rows
                    .iter()
                    .zip(drafted)
                    .map(|(row, token)| row.with_draft(Draft::new(i64::from(token), &draft).with_delta(0.0)))
                    .collect();
                let mut counts = vec![0; VOCAB];
                for token in tokens_of(&batch(&targets, rows.len()), &verified) {
                    counts[token as usize] += 1;
                }
                counts
            };
            let sum = |a: Vec<u64>, b: Vec<u64>| a.iter().zip(&b).map(|(a, b)| a + b).collect();
            let counts = (0..782).into_par_iter().map(call).reduce(|| vec![0; VOCAB], sum);
            let truth = Case::new(target.clone(), seeded(0)).oracle().unwrap().probabilities;
            assert_fits(&counts, &truth, &format!("pair {pair}, {draw:?}"));
        }
    }
}

/// The logits that a toy model gives after a text.
fn model(text: &[u32]) -> Vec<f32> {
    let hash = text.iter().fold(11u64, |hash, token| hash.wrapping_mul(37).wrapping_add(u64::from(*token)));
    Kind::Flat.logits(hash, 50, 5.0)
}

/// Writes 40 tokens by drafts of `length` tokens, which a worse model draws with the row's own noise.
fn coupled_text(params: &SamplingParams, length: usize) -> (Vec<u32>, usize) {
    let (mut text, mut accepted) = (vec![], 0);
    while text.len() < 40 {
        let mut ahead = text.clone();
        for _ in 0..length {
            let worse: Vec<f32> = model(&ahead).iter().map(|l| (l * 4.0).round() / 4.0).collect();
            ahead.extend(tokens_of(&batch(&worse, 1), &[row(params, ahead.len() as u64)]));
        }
        let drafted = &ahead[text.len()..];
        let logits: Vec<f32> = (text.len()..=ahead.len()).flat_map(|end| model(&ahead[..end])).collect();
        let draft = Speculation::new(row(params, text.len() as u64), drafted, |_| Proposal::Coupled);
        let verified = batch(&logits, length + 1).verify(&[draft]).unwrap().remove(0).unwrap();
        text.extend(&drafted[..verified.accepted]);
        text.push(verified.token);
        accepted += verified.accepted;
    }
    text.truncate(40);
    (text, accepted)
}

/// Case 64: coupled drafts of any length change no token, and other seeds give other texts.
#[test]
fn a_text_is_the_same_for_coupled_drafts_of_any_length() {
    for draw in DRAWS {
        let params = |seed| SamplingParams { draw, top_p: 0.95, ..seeded(seed) };
        let (plain, _) = coupled_text(&params(1), 0);
        for length in 1..=7 {
            let (text, accepted) = coupled_text(&params(1), length);
            assert_eq!(text, plain, "drafts of {length}");
            assert!(accepted > 10, "{accepted} tokens were accepted");
        }
        assert_ne!(coupled_text(&params(2), 3).0, plain);
    }
}

/// Case 64: with the same drafts, rejection gives the same outcome again, in any batch.
#[test]
fn rejection_repeats_itself_in_any_batch() {
    let text = [3, 14, 15, 9, 26, 5, 35];
    let logprobs: Vec<Vec<f32>> = (0..7).map(|j| log_softmax(&Kind::Flat.logits(j, 50, 2.0))).collect();
    for draw in DRAWS {
        for length in 0..=7 {
            let drafted = &text[..length];
            let logits: Vec<f32> = (0..=length).flat_map(|end| model(&text[..end])).collect();
            let verify = |seed: u64, copies: usize| {
                let start = row(&SamplingParams { draw, ..seeded(seed) }, 100);
                let proposal = |j: usize| Proposal::Distribution { logprobs: &logprobs[j], delta: 0.0 };
                let draft = Speculation::new(start, drafted, proposal);
                let data = logits.repeat(copies);
                batch(&data, copies * (length + 1)).verify(&vec![draft; copies]).unwrap()
            };
            let mut endings = std::collections::HashSet::new();
            for seed in 0..20 {
                let alone = verify(seed, 1).remove(0);
                assert!(verify(seed, 5).iter().all(|again| *again == alone), "seed {seed}, {length} drafts");
                endings.insert(alone.unwrap().token);
            }
            assert!(endings.len() > 5, "a seed changes the text");
        }
    }
}

/// Case 64: no coin reaches 1, not even that of the 129 hashes whose upper half is 1 once it is rounded to f32.
#[test]
fn coins_stay_below_one() {
    for upper in u32::MAX - 128..=u32::MAX {
        for lower in [0, u32::MAX] {
            assert!(uniform(u64::from(upper) << 32 | u64::from(lower)) < 1.0);
        }
    }
    // A draft that is as likely as under the target is accepted by any coin.
    let logits = [0.0; 2];
    let even = log_softmax(&logits);
    for seed in 0..1000 {
        let draft = row(&seeded(seed), seed).with_draft(Draft::new(1, &even).with_delta(0.0));
        let found = draw_all(&batch(&logits, 1), &[draft]).remove(0);
        assert_eq!((found.token, found.verification.map(|v| v.accepted)), (1, Some(true)));
    }
}
