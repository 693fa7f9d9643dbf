//! Logits wider than the tokenizer.

use crate::common::{Kind, bits};
use crate::{DRAWS, batch, row, seeded};
use klero::{Edits, FilterOrder, Policy, SamplingParams};
use std::num::NonZeroUsize;

/// Case 61: 248 320 logits for 248 077 tokens, the padding far above the rest.
#[test]
fn padding_is_not_there() {
    let (width, valid) = (248_320, 248_077);
    let mut logits = Kind::Real.logits(1, width, 8.0);
    logits[valid..].fill(1e30);
    let own = &logits[..valid];
    for draw in DRAWS {
        let base = SamplingParams { top_logprobs: 20, raw_logprobs: true, confidence: true, draw, ..seeded(1) };
        for params in [
            base.clone(),
            SamplingParams { temperature: 0.0, ..base.clone() },
            SamplingParams { top_p: 0.95, ..base.clone() },
            SamplingParams { top_k: 50, top_p: 0.9, filter_order: FilterOrder::MinPFirst, ..base.clone() },
        ] {
            for force_top_k in [None, NonZeroUsize::new(40)] {
                let policy = Policy { blacklist: None, force_top_k };
                let asked = row(&params, 3);
                let found = batch(&logits, 1).with_policy(policy).draw(&[asked.with_vocabulary(valid)]).unwrap();
                let expected = batch(own, 1).with_policy(policy).draw(&[asked]).unwrap();
                assert_eq!(bits(&found[0]), bits(&expected[0]), "{params:?}");
                let outcome = found[0].as_ref().unwrap();
                assert!((outcome.token as usize) < valid);
                assert!(outcome.top.len() == 20 || params.temperature == 0.0);
                assert!(outcome.top.iter().all(|listed| (listed.token as usize) < valid && listed.logprob <= 0.0));
            }
        }
    }
}

/// Case 61, a tokenizer with holes: the greatest id bounds it, not the number of tokens; the holes are the mask's.
#[test]
fn a_sparse_vocabulary_is_bounded_by_its_greatest_id() {
    let mut logits = vec![50.0; 200];
    let mut allowed = [0u32; 7];
    for id in (0..130).step_by(3) {
        logits[id] = 0.0;
        allowed[id / 32] |= 1 << (id % 32);
    }
    let edits = Edits { allowed: Some(&allowed), ..Default::default() };
    for draw in DRAWS {
        let mut last = false;
        for seed in 0..500 {
            let asked = row(&SamplingParams { draw, ..seeded(seed) }, 0).with_vocabulary(130).with_edits(edits);
            let found = batch(&logits, 1).draw(&[asked]).unwrap().remove(0).unwrap();
            assert!(found.token < 130 && found.token.is_multiple_of(3) && found.kept == 44);
            last |= found.token == 129;
        }
        assert!(last, "there are 44 tokens, and 129 is one of them");
    }
}
