//! The golden draws, computed by other people's code, through `klero draw`.

mod support;

use klero_oracle::Draw;
use klero_oracle::golden::{self, Example};
use serde_json::{Value, json};
use support::{Folder, Tensor, klero_reading, replies, safetensors};

/// Rows of one file: some are a megabyte long.
const TOGETHER: usize = 64;

/// Runs all examples through the command, file by file, and shows each with its reply to `check`.
fn replay<E>(name: &str, examples: impl Iterator<Item = Example<E>>, check: impl Fn(&Example<E>, &Value)) -> usize {
    let folder = Folder::new(name);
    let mut examples = examples.peekable();
    let mut count = 0;
    while examples.peek().is_some() {
        let batch: Vec<Example<E>> = examples.by_ref().take(TOGETHER).collect();
        let file = folder.write("rows.safetensors", &safetensors(&batch.iter().flat_map(tensors).collect::<Vec<_>>()));
        let requests: String = batch.iter().map(|example| request(example).to_string() + "\n").collect();
        let ran = klero_reading(&["draw", "--tensors", &file, "--requests", "-"], requests.as_bytes());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        let replies = replies(&ran);
        assert_eq!(replies.len(), batch.len());
        for (row, (example, reply)) in batch.iter().zip(&replies).enumerate() {
            assert_eq!((&reply["row"], &reply["status"]), (&json!(row), &json!("ok")), "line {}", example.id);
            assert_eq!(reply["seed"], json!(example.params.seed.to_string()), "line {}", example.id);
            assert_eq!(reply["position"], json!(example.params.position), "line {}", example.id);
            check(example, reply);
        }
        count += batch.len();
    }
    count
}

fn tensors<E>(example: &Example<E>) -> Vec<Tensor> {
    let logits = Tensor::f32(&format!("row-{}", example.id), &[example.vocab], &example.logits);
    let draft = example.draft.as_ref();
    let draft = draft.map(|draft| Tensor::f32(&format!("draft-{}", example.id), &[example.vocab], &draft.logprobs));
    std::iter::once(logits).chain(draft).collect()
}

fn request<E>(example: &Example<E>) -> Value {
    let params = &example.params;
    let mut request = json!({
        "logits": format!("row-{}", example.id),
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "seed": params.seed.to_string(),
        "position": params.position,
        "stream": if params.mtp { "mtp" } else { "target" },
        "draw": if params.draw == Draw::InverseCdf { "inverse_cdf" } else { "gumbel" },
    });
    if let Some(draft) = &example.draft {
        request["verify"] = json!({"draft_token": draft.token, "draft_logprobs": format!("draft-{}", example.id)});
    }
    request
}

/// Holds a number that was computed in f32 to its promise; null is −∞.
fn close(reply: &Value, field: &str, expected: f64, id: usize) {
    let found = reply[field].as_f64().unwrap_or(f64::NEG_INFINITY);
    let equal = found == expected || (found - expected).abs() <= 2e-4;
    assert!(equal && reply.get(field).is_some(), "line {id}: {field} is {found}, expected {expected}");
}

#[test]
fn inverse_cdf_draws_are_deepinfers() {
    let count = replay("draws", golden::draws(), |example, reply| {
        let (expect, id) = (&example.expect, example.id);
        assert_eq!((&reply["token"], &reply["kept"]), (&json!(expect.token), &json!(expect.kept)), "line {id}");
        close(reply, "logprob", expect.logprob, id);
        assert_eq!(reply.get("accepted").is_some(), expect.verification.is_some(), "line {id}");
        if let Some(expect) = &expect.verification {
            assert_eq!(reply["accepted"], json!(expect.accepted), "line {id}");
            close(reply, "accept_probability", expect.accept_probability, id);
            close(reply, "draft_logprob", expect.draft_logprob, id);
        }
    });
    assert_eq!(count, 401);
}

#[test]
fn gumbel_draws_are_those_of_the_law() {
    let count = replay("gumbel", golden::gumbels(), |example, reply| {
        let (expect, id) = (&example.expect, example.id);
        assert_eq!((&reply["token"], &reply["kept"]), (&json!(expect.token), &json!(expect.kept)), "line {id}");
        close(reply, "logprob", expect.logprob, id);
    });
    assert_eq!(count, 200);
}
