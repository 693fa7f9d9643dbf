//! Masks that leave nothing, and masks of a neighbour.

use crate::common::{Kind, bits};
use crate::{DRAWS, alone, batch, row, seeded};
use klero::{Edits, Input, Policy, Proposal, Row, RowError, SamplingParams, Speculation};
use std::collections::BTreeSet;

const VOCAB: usize = 100;
const NOTHING: [u32; 4] = [0; 4];
/// Id 3 alone.
const ONLY: [u32; 4] = [1 << 3, 0, 0, 0];
/// Only ids from 96 on.
const LAST: [u32; 4] = [0, 0, 0, u32::MAX];

/// Cases 39 and 41: bans and grammar together leave no id, in every way there is. The row says so; no token is made up, and
/// the row beside it is its own.
#[test]
fn a_row_without_an_allowed_id_says_so() {
    let all: BTreeSet<u32> = (0..VOCAB as u32).collect();
    let end = BTreeSet::from([3]);
    let logits = Kind::Flat.logits(1, VOCAB, 4.0).repeat(2);
    let batch = batch(&logits, 2);
    let masked = |banned, allowed| Edits { banned, allowed, ..Default::default() };
    for draw in DRAWS {
        for (temperature, top_k, top_p) in [(1.0, -1, 1.0), (0.0, -1, 1.0), (0.7, 20, 0.9)] {
            let plain = row(&SamplingParams { temperature, top_k, top_p, draw, top_logprobs: 3, ..seeded(2) }, 0);
            for empty in [
                plain.with_edits(masked(Some(&all), None)),
                plain.with_edits(masked(None, Some(&NOTHING))),
                plain.with_edits(masked(Some(&end), Some(&ONLY))),
                plain.with_edits(masked(None, Some(&LAST))).with_vocabulary(96),
                plain.with_vocabulary(0),
            ] {
                let expected = RowError::Empty { row: 0, input: Input::Logit };
                let found = batch.draw(&[empty, plain]).unwrap();
                assert_eq!(found[0], Err(expected));
                assert_eq!(bits(&found[1]), alone(&logits[..VOCAB], plain));
                assert_eq!(batch.tokens(&[empty, plain]).unwrap()[0], Err(expected));
                assert_eq!(batch.samples(&[empty, plain], 3).unwrap()[0].len(), 3);
                assert!(batch.samples(&[empty, plain], 3).unwrap()[0].iter().all(Result::is_err));
                assert!(batch.prompt_logprobs(&[0, 1], &empty).unwrap()[0].is_err());
            }
            let draft = Speculation::new(plain.with_edits(masked(None, Some(&NOTHING))), &[3], |_| Proposal::OneHot {
                delta: 0.0,
            });
            let expected = RowError::Empty { row: 0, input: Input::Logit };
            assert_eq!(batch.verify(&[draft]).unwrap(), [Err(expected)]);
            // The end of the text is all that the grammar allows, and an engine that never ends forbids it.
            let policy = Policy { blacklist: Some(&end), force_top_k: None };
            let ending = plain.with_edits(masked(None, Some(&ONLY)));
            let found = super::batch(&logits, 2).with_policy(policy).draw(&[ending, plain]).unwrap();
            assert_eq!(found[0].as_ref().map_err(RowError::status), Err("empty"));
            assert!(found[1].as_ref().is_ok_and(|outcome| outcome.token != 3));
        }
    }
}

/// Case 40.
#[test]
fn a_mask_is_its_rows_alone() {
    let logits = Kind::Flat.logits(2, VOCAB, 4.0);
    for draw in DRAWS {
        let plain = row(&SamplingParams { draw, top_logprobs: 9, ..seeded(3) }, 0);
        let masked = |words| plain.with_edits(Edits { allowed: Some(words), ..Default::default() });
        let rows: [Row; 5] = [masked(&ONLY), plain, masked(&NOTHING), plain, masked(&LAST)];
        let found = batch(&logits.repeat(5), 5).draw(&rows).unwrap();
        for unmasked in [1, 3] {
            assert_eq!(bits(&found[unmasked]), alone(&logits, plain));
        }
        assert_eq!(found[0].as_ref().unwrap().token, 3);
        assert!(found[2].is_err());
        assert!(found[4].as_ref().unwrap().token >= 96);
    }
}
