//! What becomes of a seed: three seeds, several samples of one.

use crate::common::Kind;
use crate::{DRAWS, batch, row, seeded, tokens_of};
use klero::{Row, SamplingParams};
use std::collections::HashSet;

/// Case 15, as far as it concerns the draw.
#[test]
fn seeds_are_heard() {
    let logits = Kind::Flat.logits(1, 300, 4.0);
    for draw in DRAWS {
        let text = |seed| {
            let rows: Vec<Row> = (0..20).map(|t| row(&SamplingParams { draw, ..seeded(seed) }, t)).collect();
            tokens_of(&batch(&logits.repeat(20), 20), &rows)
        };
        let texts = [11_111, 22_222, 33_333].map(text);
        assert!(texts[0] != texts[1] && texts[1] != texts[2] && texts[0] != texts[2]);
        assert_eq!(texts, [11_111, 22_222, 33_333].map(text));
    }
}

/// Cases 17 and 19: four samples of seed 7 are four texts, and no sample of a seed is the first of a neighbouring one.
#[test]
fn samples_are_streams_of_their_own() {
    let logits = Kind::Flat.logits(2, 300, 4.0);
    for draw in DRAWS {
        let texts = |seed: u64| {
            let params = SamplingParams { draw, ..seeded(seed) };
            let mut texts = vec![Vec::new(); 4];
            for position in 0..32 {
                let samples = batch(&logits, 1).samples(&[row(&params, position)], 4).unwrap().remove(0);
                for (text, outcome) in texts.iter_mut().zip(samples) {
                    text.push(outcome.unwrap().token);
                }
            }
            texts
        };
        assert_eq!(texts(7).into_iter().collect::<HashSet<_>>().len(), 4);
        for seed in [0, 7, u64::MAX - 1] {
            for (j, sample) in (0..).zip(texts(seed)).skip(1) {
                assert_ne!(sample, texts(seed.wrapping_add(j))[0], "sample {j} of seed {seed}");
            }
        }
    }
}
