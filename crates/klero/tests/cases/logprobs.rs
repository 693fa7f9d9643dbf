//! Which distribution the logprobs are of, and what the list of the best holds.

use crate::common::{Kind, NEG};
use crate::{DRAWS, seeded, solo};
use klero::SamplingParams;

/// Case 52: processed and raw logprobs against sums in f64.
#[test]
fn processed_and_raw_are_each_what_they_say() {
    let logits = Kind::Real.logits(1, 1000, 6.0);
    let log_sum = |logits: &[f64]| logits.iter().map(|l| l.exp()).sum::<f64>().ln();
    let raw: Vec<f64> = logits.iter().map(|l| f64::from(*l)).collect();
    let halved: Vec<f64> = raw.iter().map(|l| l / 2.0).collect();
    for draw in DRAWS {
        let both = SamplingParams { top_logprobs: 1000, raw_logprobs: true, draw, ..seeded(1) };
        let found = solo(&logits, SamplingParams { temperature: 2.0, top_p: 0.9, ..both });
        assert!(found.kept > 1 && found.kept < 1000 && found.top.len() == found.kept);
        let kept: Vec<f64> = found.top.iter().map(|listed| halved[listed.token as usize]).collect();
        for (listed, x) in found.top.iter().zip(&kept) {
            assert!((listed.logprob - (x - log_sum(&kept))).abs() < 1e-6, "{listed:?}");
            let expected = raw[listed.token as usize] - log_sum(&raw);
            assert!((listed.raw_logprob.unwrap() - expected).abs() < 1e-6, "{listed:?}");
        }
        let sum: f64 = found.top.iter().map(|listed| listed.logprob.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
        let own = found.top.iter().find(|listed| listed.token == found.token).unwrap();
        assert_eq!((own.logprob, own.raw_logprob), (found.logprob, found.raw_logprob));
    }
}

/// Cases 53 and 54: five are asked for and two are kept, so two are listed, in order, with finite numbers.
#[test]
fn a_list_ends_where_nothing_is_kept() {
    let logits = [1.0, NEG, 2.0, 1.0, 2.0, 0.5];
    for draw in DRAWS {
        let five = SamplingParams { top_logprobs: 5, raw_logprobs: true, draw, ..seeded(1) };
        for params in [
            SamplingParams { top_k: 2, ..five.clone() },
            SamplingParams { top_p: 0.35, ..five.clone() },
            SamplingParams { min_p: 0.9, ..five.clone() },
        ] {
            let found = solo(&logits, params);
            assert_eq!((found.kept, found.top.len()), (2, 2));
            assert_eq!((found.top[0].token, found.top[1].token), (2, 4), "equal logprobs by id");
            for listed in &found.top {
                assert!((listed.logprob - 0.5f64.ln()).abs() < 1e-6 && listed.raw_logprob.unwrap().is_finite());
            }
        }
        let mut lead = logits;
        lead[3] = 3.0;
        let found = solo(&lead, SamplingParams { temperature: 0.0, ..five });
        assert_eq!((found.token, found.logprob, found.top[0].logprob), (3, 0.0, 0.0));
        assert_eq!(found.top.iter().map(|listed| listed.token).collect::<Vec<_>>(), [3, 2, 4, 0, 5]);
        assert!(found.top.iter().all(|listed| listed.logprob.is_finite()));
    }
}
