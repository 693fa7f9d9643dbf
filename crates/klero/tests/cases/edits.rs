//! Biases and bans of ids that are none, and what min_p leaves, also in a row with a draft.

use crate::common::{Kind, logits_of};
use crate::{DRAWS, alone, batch, draw_all, row, seeded, solo};
use klero::{Draft, Edits, Error, LogitBias, Policy, RowError, SamplingParams};
use std::collections::BTreeSet;

/// Case 57: an id below zero cannot be said; one from the vocabulary's end on is refused by name, and its neighbour drawn.
#[test]
fn a_bias_or_ban_of_an_id_beyond_the_vocabulary_is_refused() {
    let logits = Kind::Flat.logits(1, 100, 4.0).repeat(2);
    let plain = row(&seeded(1), 0);
    let biased = |id| LogitBias::new([(5, 1.0), (id, -3.0)]).unwrap();
    let banned = |id| BTreeSet::from([5, id]);
    for id in [100, 1 << 31, u32::MAX] {
        let (bias, ban) = (biased(id), banned(id));
        for edits in
            [Edits { bias: Some(&bias), ..Default::default() }, Edits { banned: Some(&ban), ..Default::default() }]
        {
            let found = batch(&logits, 2).draw(&[plain.with_edits(edits), plain]).unwrap();
            let error = found[0].clone().unwrap_err();
            assert!(matches!(error, RowError::Id { row: 0, id: named, valid: 100, .. } if named == id), "{error}");
            assert_eq!((error.status(), error.to_string().contains(&id.to_string())), ("invalid", true));
            assert_eq!(crate::bits(&found[1]), alone(&logits[..100], plain));
        }
        let policy = Policy { blacklist: Some(&ban), force_top_k: None };
        assert!(matches!(batch(&logits, 2).with_policy(policy).draw(&[plain; 2]), Err(Error::Shape(_))));
    }
    let (bias, ban) = (biased(99), banned(99));
    let last = Edits { bias: Some(&bias), banned: Some(&ban), ..Default::default() };
    assert!(batch(&logits, 2).draw(&[plain.with_edits(last); 2]).unwrap()[0].is_ok());
    for json in [r#"{"-1": 5}"#, r#"{"4294967296": 5}"#, r#"{"x": 5}"#, r#"{"1": "x"}"#, r#"{"1": null}"#] {
        assert!(serde_json::from_str::<LogitBias>(json).is_err(), "{json}");
    }
    for json in ["[-1]", "[4294967296]", "[1.5]"] {
        assert!(serde_json::from_str::<BTreeSet<u32>>(json).is_err(), "{json}");
    }
}

/// Case 59: min_p keeps ids 1 and 3 of four, for any seed and with any draft; a bias is heard there too.
#[test]
fn min_p_and_bias_hold_beside_seeds_and_drafts() {
    let logits = logits_of(&[0.05, 0.55, 0.10, 0.30]);
    let bias = LogitBias::new([(0, 4.0)]).unwrap();
    let edits = Edits { bias: Some(&bias), ..Default::default() };
    let flat = [0.25f32.ln(); 4];
    for draw in DRAWS {
        let mut drawn = BTreeSet::new();
        for seed in 0..100 {
            let plain = row(&SamplingParams { min_p: 0.5, draw, ..seeded(seed) }, 2);
            let rows = [plain, plain, plain.with_edits(edits)];
            let found = draw_all(&batch(&logits.repeat(3), 3), &rows);
            assert_eq!((found[0].kept, &found[0]), (2, &found[1]), "seed {seed}");
            assert_eq!((found[2].token, found[2].kept), (0, 1), "0.05 · e⁴ is more than twice the others");
            drawn.insert(found[0].token);
            for token in 0..4 {
                for draft in [Draft::new(token, &flat), Draft::one_hot(token), Draft::coupled(token)] {
                    let rows = [plain.with_draft(draft), plain.with_draft(draft).with_edits(edits)];
                    let found = draw_all(&batch(&logits.repeat(2), 2), &rows);
                    assert!([1, 3].contains(&found[0].token), "draft {draft:?} gave {}", found[0].token);
                    assert_eq!(found[1].token, 0);
                }
            }
        }
        assert_eq!(drawn, [1, 3].into());
        assert_eq!(solo(&logits, SamplingParams { min_p: 0.55, draw, ..seeded(1) }).kept, 1);
    }
}
