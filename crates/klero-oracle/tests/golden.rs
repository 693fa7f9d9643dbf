//! The oracle itself is held against draws recorded from two other implementations.

use klero_oracle::golden::{self, Example};
use klero_oracle::{Outcome, Verification, draw};

fn run<E>(example: &Example<E>) -> Outcome {
    let draft = example.draft.as_ref().map(golden::DraftRow::as_draft);
    draw(&example.logits, example.vocab, &example.params, draft.as_ref())
        .unwrap_or_else(|status| panic!("draw {}: {status:?}", example.id))
}

/// Whether two numbers, both possibly −∞, differ by at most `tolerance`.
fn near(a: f64, b: f64, tolerance: f64) -> bool {
    a == b || (a - b).abs() <= tolerance
}

fn same_verification(a: &Verification, b: &Verification) -> bool {
    a.accepted == b.accepted
        && near(a.accept_probability, b.accept_probability, 2e-4)
        && near(a.draft_logprob, b.draft_logprob, 2e-4)
        && near(a.accept_uniform, b.accept_uniform, 1e-12)
        && near(a.residual_uniform, b.residual_uniform, 1e-12)
}

#[test]
fn every_recorded_inverse_cdf_draw() {
    let mut count = 0;
    for example in golden::draws() {
        let (id, expect, outcome) = (example.id, &example.expect, run(&example));
        assert_eq!((outcome.token, outcome.kept), (expect.token, expect.kept), "draw {id}");
        assert!(near(outcome.logprob, expect.logprob, 2e-4), "draw {id}: {}", outcome.logprob);
        assert!(near(outcome.uniform, expect.uniform, 1e-12), "draw {id}: {}", outcome.uniform);
        match (&outcome.verification, &expect.verification) {
            (Some(ours), Some(theirs)) => assert!(same_verification(ours, theirs), "draw {id}: {ours:?}"),
            (ours, theirs) => assert!(ours.is_none() && theirs.is_none(), "draw {id}"),
        }
        count += 1;
    }
    assert_eq!(count, 401);
}

#[test]
fn every_recorded_gumbel_draw() {
    let mut count = 0;
    for example in golden::gumbels() {
        let (id, expect, outcome) = (example.id, &example.expect, run(&example));
        let noise = outcome.noise.expect("Gumbel draws with noise");
        assert_eq!((outcome.token, outcome.kept), (expect.token, expect.kept), "draw {id}");
        assert_eq!((outcome.row_hash, noise.r), (expect.row_hash, expect.noise.r), "draw {id}");
        assert!(near(outcome.logprob, expect.logprob, 1e-9), "draw {id}: {}", outcome.logprob);
        for (ours, theirs) in [(noise.exponential, expect.noise.exponential), (noise.gumbel, expect.noise.gumbel)] {
            assert!(near(ours, theirs, 1e-12 * theirs.abs()), "draw {id}: {ours} for {theirs}");
        }
        count += 1;
    }
    assert_eq!(count, 200);
}

#[test]
fn recorded_prompts_can_be_read() {
    let models = golden::models();
    assert!(!models.is_empty());
    for model in models {
        assert_eq!((model.top5.len(), model.greedy.len()), (5, 8), "{}", model.text);
    }
}
