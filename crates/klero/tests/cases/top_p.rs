//! The edges of top_p.

use crate::common::{Kind, logits_of};
use crate::{DRAWS, row, seeded, solo};
use half::{bf16, f16};
use klero::{Element, FilterOrder, Logits, SamplingParams};
use std::collections::HashSet;

/// Case 21, with logits in every type.
#[test]
fn a_tiny_top_p_is_the_argmax_in_every_type() {
    let mut logits = Kind::Flat.logits(1, 4096, 4.0);
    logits[2000] = 3.0;
    tiny_top_p(&logits);
    tiny_top_p(&logits.iter().map(|l| f16::from_f32(*l)).collect::<Vec<_>>());
    tiny_top_p(&logits.iter().map(|l| bf16::from_f32(*l)).collect::<Vec<_>>());
}

fn tiny_top_p<E: Element>(logits: &[E]) {
    for draw in DRAWS {
        for top_p in [1e-3, 1e-4, 1e-7, 1e-8, 1e-30] {
            for seed in 0..20 {
                let params = SamplingParams { top_p, draw, ..seeded(seed) };
                let drawn = Logits::new(logits, 1, 4096).unwrap().draw(&[row(&params, 0)]).unwrap();
                let found = drawn[0].as_ref().unwrap();
                assert_eq!((found.token, found.kept, found.logprob), (2000, 1, 0.0), "top_p {top_p}");
            }
        }
    }
}

/// Case 25: top_p looks at the full distribution, unless the other order is asked for.
#[test]
fn the_order_of_the_filters_shows_in_the_probabilities() {
    let logits = logits_of(&[0.1, 0.2, 0.3, 0.4]);
    for draw in DRAWS {
        let params = |seed| SamplingParams { top_k: 2, top_p: 0.5, top_logprobs: 4, draw, ..seeded(seed) };
        let found = solo(&logits, params(1));
        let listed: Vec<_> = found.top.iter().map(|listed| (listed.token, listed.logprob.exp())).collect();
        assert_eq!((listed[0].0, listed[1].0, listed.len()), (3, 2, 2));
        assert!((listed[0].1 - 4.0 / 7.0).abs() < 1e-6 && (listed[1].1 - 3.0 / 7.0).abs() < 1e-6, "{listed:?}");
        let drawn: HashSet<u32> = (0..200).map(|seed| solo(&logits, params(seed)).token).collect();
        assert_eq!(drawn, [2, 3].into());
        let other = solo(&logits, SamplingParams { filter_order: FilterOrder::MinPFirst, ..params(1) });
        assert_eq!((other.token, other.kept, other.logprob), (3, 1, 0.0));
    }
}

/// Case 26.
#[test]
fn top_p_of_one_is_no_top_p() {
    let logits = Kind::Flat.logits(2, 1000, 4.0);
    let read = |json: String| solo(&logits, serde_json::from_str(&json).unwrap());
    let tokens: HashSet<u32> = (0..5)
        .map(|seed| {
            let found = read(format!(r#"{{"seed": {seed}, "top_p": 1.0, "top_logprobs": 9}}"#));
            assert_eq!(found, read(format!(r#"{{"seed": {seed}, "top_logprobs": 9}}"#)));
            found.token
        })
        .collect();
    assert!(tokens.len() > 1);
}
