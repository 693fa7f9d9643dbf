//! The golden draws, computed by other people's code, through the library.

use klero::hash::{Case, Stream, row_hash, uniform};
use klero::noise::Noise;
use klero::{Draft, Draw, Logits, Outcome, Row, SamplingParams};
use klero_oracle::golden::{self, Example};

fn draw<E>(example: &Example<E>, draw: Draw) -> Outcome {
    let params = &example.params;
    let sampling = SamplingParams {
        temperature: params.temperature,
        top_p: params.top_p,
        top_k: params.top_k,
        min_p: params.min_p,
        seed: Some(params.seed),
        draw,
        ..Default::default()
    }
    .check()
    .unwrap();
    let stream = if params.mtp { Stream::Draft } else { Stream::Target };
    let mut row = Row::new(sampling, params.position).with_stream(stream);
    if let Some(draft) = &example.draft {
        row = row.with_draft(Draft::new(draft.token, &draft.logprobs));
    }
    let logits = Logits::new(&example.logits, 1, example.vocab).unwrap();
    logits.draw(&[row]).unwrap().remove(0).unwrap()
}

fn close(found: f64, expected: f64, what: &str, id: impl std::fmt::Debug) {
    let equal = found == expected || (found - expected).abs() <= 2e-4;
    assert!(equal, "line {id:?}: {what} is {found}, expected {expected}");
}

#[test]
fn inverse_cdf_draws_are_deepinfers() {
    let mut lines = 0;
    for example in golden::draws() {
        let (found, expect, id) = (draw(&example, Draw::InverseCdf), &example.expect, example.id);
        assert_eq!((found.token as usize, found.kept), (expect.token, expect.kept), "line {id:?}");
        close(found.logprob, expect.logprob, "logprob", id);
        let seed = if example.params.mtp { Stream::Draft } else { Stream::Target }.seed(example.params.seed);
        let u = uniform(row_hash(seed, example.params.position, Case::Fresh));
        assert!((u - expect.uniform).abs() < 1e-15, "line {id:?}");
        assert_eq!(found.verification.is_some(), expect.verification.is_some());
        if let (Some(found), Some(expect)) = (found.verification, &expect.verification) {
            assert_eq!(found.accepted, expect.accepted, "line {id:?}");
            close(found.accept_probability, expect.accept_probability, "accept_probability", id);
            close(found.draft_logprob.unwrap_or(f64::NEG_INFINITY), expect.draft_logprob, "draft_logprob", id);
        }
        lines += 1;
    }
    assert_eq!(lines, 401);
}

#[test]
fn gumbel_draws_are_those_of_the_law() {
    let mut lines = 0;
    for example in golden::gumbels() {
        let (found, expect, id) = (draw(&example, Draw::Gumbel), &example.expect, example.id);
        assert_eq!((found.token as usize, found.kept), (expect.token, expect.kept), "line {id:?}");
        close(found.logprob, expect.logprob, "logprob", id);
        let z = row_hash(example.params.seed, example.params.position, Case::Fresh);
        assert_eq!(z, expect.row_hash, "line {id:?}");
        let noise = Noise::of(z, found.token);
        assert_eq!(noise.bits, expect.noise.r, "line {id:?}");
        assert!((noise.exponential / expect.noise.exponential - 1.0).abs() < 1e-14, "line {id:?}");
        assert!((noise.gumbel - expect.noise.gumbel).abs() < 1e-13, "line {id:?}");
        lines += 1;
    }
    assert_eq!(lines, 200);
}
