//! `klero draw`: drafts of one token or several, verified as the library verifies them.

mod support;

use klero::{
    Draft, Edits, FusedHead, History, Logits, Outcome, Proposal, Row, Sampling, SamplingParams, Speculated,
    Speculation, Weights,
};
use safetensors::Dtype;
use serde_json::{Value, json};
use support::{Tensor, bare, draw, noise, replies};

const V: usize = 70;
const K: usize = 3;
const DIM: usize = 8;

/// Logits of a draft's rows, ready and as a head, and a distribution for each drafted token.
struct Step {
    logits: Vec<f32>,
    logprobs: Vec<f32>,
    tensors: Vec<Tensor>,
}

impl Step {
    fn new() -> Self {
        let (hidden, weights) = (noise((K + 1) * DIM, 1), noise(V * DIM, 2));
        let logits = FusedHead::new(&Weights::f32(V, DIM, weights.clone()).unwrap()).unwrap().logits(&hidden).unwrap();
        // Near the target, so that some tokens are accepted.
        let near: Vec<f32> = logits[..K * V].iter().zip(noise(K * V, 3)).map(|(l, n)| l + n / 4.0).collect();
        let logprobs = near.chunks(V).flat_map(|row| {
            let total = row.iter().map(|l| l.exp()).sum::<f32>().ln();
            row.iter().map(move |l| l - total)
        });
        let logprobs: Vec<f32> = logprobs.collect();
        let tensors = vec![
            Tensor::f32("l", &[K + 1, V], &logits),
            Tensor::f32("h", &[K + 1, DIM], &hidden),
            Tensor::f32("w", &[V, DIM], &weights),
            Tensor::f32("d", &[K, V], &logprobs),
        ];
        Self { logits, logprobs, tensors }
    }

    fn proposal(&self, kind: &str, j: usize) -> Proposal<'_> {
        match kind {
            "one_hot" => Proposal::OneHot { delta: Draft::DELTA },
            "coupled" => Proposal::Coupled,
            _ => Proposal::Distribution { logprobs: &self.logprobs[j * V..][..V], delta: Draft::DELTA },
        }
    }

    fn verify(&self, draft: Speculation) -> Speculated {
        Logits::new(&self.logits, K + 1, V).unwrap().batch().verify(&[draft]).unwrap().remove(0).unwrap()
    }
}

fn sampling(seed: u64) -> Sampling {
    SamplingParams { seed: Some(seed), top_k: 40, ..Default::default() }.check().unwrap()
}

fn proposed(kind: &str) -> Value {
    if kind == "draft_logprobs" { json!("d") } else { json!(true) }
}

/// What is told of an outcome.
fn told(outcome: &Outcome) -> Value {
    let mut told = json!({
        "token": outcome.token, "logprob": outcome.logprob, "kept": outcome.kept,
        "log_normalizer": outcome.log_normalizer, "seed": outcome.seed.to_string(), "position": outcome.position,
    });
    if let Some(found) = outcome.verification {
        told["accepted"] = json!(found.accepted);
        told["accept_probability"] = json!(found.accept_probability);
        told["draft_logprob"] = json!(found.draft_logprob);
    }
    told
}

/// What is told of a whole draft.
fn told_of_draft(speculated: &Speculated) -> Value {
    let last = speculated.outcomes.last().unwrap();
    let mut told_last = told(&Outcome { verification: None, ..last.clone() });
    told_last["row"] = json!(0);
    told_last["status"] = json!("ok");
    told_last["accepted"] = json!(speculated.accepted);
    told_last["tokens"] = speculated.outcomes.iter().map(|outcome| outcome.token).collect();
    told_last["outcomes"] = speculated.outcomes.iter().map(told).collect();
    told_last
}

#[test]
fn whole_drafts_are_verified_as_the_library_does() {
    let step = Step::new();
    let (mut requests, mut expected) = (Vec::new(), Vec::new());
    for seed in 0..60 {
        // Drafts that a coupled draw makes are good ones.
        let alone = |j: usize| {
            let row = Row::new(sampling(seed), 9 + j as u64);
            Logits::new(&step.logits[j * V..][..V], 1, V).unwrap().draw(&[row]).unwrap().remove(0).unwrap().token
        };
        let tokens: Vec<u32> = (0..K).map(|j| if seed % 4 == j as u64 { 1 } else { alone(j) }).collect();
        for kind in ["draft_logprobs", "one_hot", "coupled"] {
            let draft = Speculation::new(Row::new(sampling(seed), 9), &tokens, |j| step.proposal(kind, j));
            let speculated = step.verify(draft);
            let request = json!({"seed": seed, "top_k": 40, "position": 9,
                "verify": {"draft_tokens": tokens, kind: proposed(kind)}});
            let (mut ready, mut fused) = (request.clone(), request);
            ready["logits"] = json!("l");
            fused["hidden"] = json!("h");
            fused["weights"] = json!("w");
            requests.extend([ready, fused]);
            expected.push(speculated);
        }
    }
    let ran = draw("whole-drafts", &step.tensors, &requests, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let mut counts = [0; K + 1];
    for (replies, speculated) in replies(&ran).chunks(2).zip(&expected) {
        for reply in replies {
            assert_eq!(bare(reply.clone()), told_of_draft(speculated));
        }
        counts[speculated.accepted] += 1;
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn drafts_masks_and_penalties_work_together() {
    let mut step = Step::new();
    let words = V.div_ceil(32);
    let masks: Vec<u32> = (0..K + 1).flat_map(|j| [!0, !(1 << j), !0]).collect();
    assert_eq!(masks.len(), (K + 1) * words);
    step.tensors.push(Tensor::words("m", Dtype::I32, &[K + 1, words], &masks));
    step.tensors.push(Tensor::words("m1", Dtype::I32, &[words], &masks[..words]));
    let mut history = History::of_prompt([4, 6]);
    history.write(6);
    let params =
        SamplingParams { seed: Some(3), presence_penalty: 1.0, repetition_penalty: 1.25, ..Default::default() };
    let tokens = [2, 5, 2];
    for (name, shared) in [("m", false), ("m1", true)] {
        let row =
            Row::new(params.check().unwrap(), 9).with_edits(Edits { history: Some(&history), ..Default::default() });
        let mut draft = Speculation::new(row, &tokens, |j| step.proposal("draft_logprobs", j));
        for (j, row) in draft.rows.iter_mut().enumerate() {
            row.edits.allowed = Some(if shared { &masks[..words] } else { &masks[j * words..][..words] });
        }
        let request = json!({"logits": "l", "position": 9, "seed": 3, "presence_penalty": 1, "repetition_penalty": 1.25,
            "prompt_ids": [4, 6], "output_ids": [6], "allowed_bitmask": name,
            "verify": {"draft_tokens": tokens, "draft_logprobs": "d"}});
        let ran = draw("draft-masks", &step.tensors, &[request], &[]);
        assert_eq!(replies(&ran)[0], told_of_draft(&step.verify(draft)), "{name}");
    }
}

#[test]
fn a_single_draft_comes_from_a_distribution_a_guess_or_the_noise() {
    let step = Step::new();
    for kind in ["draft_logprobs", "one_hot", "coupled"] {
        for token in [-1, 0, 5, 69] {
            let mut verify = json!({"draft_token": token, kind: proposed(kind)});
            if kind == "draft_logprobs" {
                verify["row"] = json!(1);
            }
            let request = json!({"logits": "l", "row": 1, "seed": 8, "top_k": 40, "position": 9, "verify": verify});
            let row = Row::new(sampling(8), 9).with_draft(Draft { token, proposal: step.proposal(kind, 1) });
            let outcome = Logits::new(&step.logits[V..2 * V], 1, V).unwrap().draw(&[row]).unwrap().remove(0).unwrap();
            let mut expected = told(&outcome);
            expected["row"] = json!(0);
            expected["status"] = json!("ok");
            let ran = draw("single-drafts", &step.tensors, &[request], &[]);
            assert_eq!(replies(&ran)[0], expected, "{kind} {token}");
        }
    }
}

#[test]
fn drafts_that_do_not_fit_are_refused() {
    let step = Step::new();
    let ask = |source: &str, verify: Value| match source {
        "h" => json!({"hidden": "h", "weights": "w", "position": 1, "seed": 1, "verify": verify}),
        name => json!({"logits": name, "position": 1, "seed": 1, "verify": verify}),
    };
    let mut step_tensors = step.tensors;
    step_tensors.push(Tensor::f32("narrow", &[K, V - 1], &noise(K * (V - 1), 1)));
    step_tensors.push(Tensor::f32("one", &[1, V], &noise(V, 1)));
    let wrong = [
        (ask("l", json!({"draft_tokens": [1, 2], "coupled": true})), "has shape [4, 70], must be [3, n] for the draft"),
        (ask("h", json!({"draft_tokens": [1, 2], "coupled": true})), "has shape [4, 8], must be [3, n] for the draft"),
        (ask("l", json!({"draft_tokens": [1, 2, 70], "coupled": true})), "draft_tokens holds id 70, must be below 70"),
        (ask("h", json!({"draft_tokens": [1, 2, 70], "one_hot": true})), "draft_tokens holds id 70, must be below 70"),
        (ask("l", json!({"draft_tokens": [1, 2, 1u64 << 40], "coupled": true})), "draft_tokens holds 1099511627776"),
        (ask("l", json!({"draft_tokens": [1, 2, 3], "draft_logprobs": "l"})), "must be [3, n] for the draft"),
        (
            ask("l", json!({"draft_tokens": [1, 2, 3], "draft_logprobs": "narrow"})),
            "draft_logprobs has length 69, must be at least 70",
        ),
        (ask("l", json!({"draft_tokens": [1, 2, 3], "one_hot": true, "delta": -1})), "delta is -1, must be finite"),
        (ask("l", json!({"draft_token": 1, "coupled": true})), "tensor `l` has shape [4, 70]: give `row`"),
        (ask("h", json!({"draft_tokens": [1, 2, 3], "draft_logprobs": "x"})), "tensor `x` not found"),
    ];
    let mut requests: Vec<Value> = wrong.iter().map(|(request, _)| request.clone()).collect();
    for token in [-2, 70, 1 << 31, 1 << 40, i64::MAX] {
        let mut request = ask("l", json!({"draft_token": token, "one_hot": true}));
        request["row"] = json!(0);
        requests.push(request);
    }
    // No token drafted is an ordinary draw.
    requests.push(ask("one", json!({"draft_tokens": [], "coupled": true})));
    let ran = draw("draft-misfits", &step_tensors, &requests, &[]);
    assert_eq!(ran.code, Some(1));
    let replies = replies(&ran);
    let (last, replies) = replies.split_last().unwrap();
    assert_eq!((&last["status"], &last["accepted"]), (&json!("ok"), &json!(0)));
    assert_eq!(last["tokens"], json!([last["token"]]));
    for (i, reply) in replies.iter().enumerate() {
        let expected = wrong.get(i).map_or("draft_token is ", |(_, expected)| expected);
        assert_eq!(reply["status"], "invalid", "{}", requests[i]);
        assert!(reply["error"].as_str().unwrap().contains(expected), "{}: {reply}", requests[i]);
    }
}
