//! `klero draw`: what a request may ask for, each field beside the library's own answer, and refused where it is wrong.

mod support;

use half::{bf16, f16};
use klero::{Edits, FilterOrder, FusedHead, History, LogitBias, Logits, Outcome, Policy, Row, SamplingParams, Weights};
use safetensors::Dtype;
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use support::{Tensor, bare, draw, draw_lines, noise, replies};

const V: usize = 100;
/// Words of a mask.
const WORDS: usize = V.div_ceil(32);

fn logits() -> Vec<f32> {
    noise(V, 3)
}

/// What a reply must say, written down independently of the command. Null stands for what is not finite.
fn told(outcome: &Outcome) -> Value {
    let logprobs = |list: &[klero::TokenLogprob]| -> Value { list.iter().map(logprob).collect() };
    let mut told = logprob(&klero::TokenLogprob {
        token: outcome.token,
        logprob: outcome.logprob,
        raw_logprob: outcome.raw_logprob,
    });
    told["kept"] = json!(outcome.kept);
    told["log_normalizer"] = json!(outcome.log_normalizer);
    told["seed"] = json!(outcome.seed.to_string());
    told["position"] = json!(outcome.position);
    if !outcome.top.is_empty() {
        told["top_logprobs"] = logprobs(&outcome.top);
    }
    if !outcome.asked.is_empty() {
        told["logprobs_of"] = logprobs(&outcome.asked);
    }
    if let Some(ids) = &outcome.kept_ids {
        told["kept_ids"] = json!(ids);
    }
    if let Some(sure) = outcome.confidence {
        told["confidence"] = json!({"entropy": sure.entropy, "largest": sure.largest, "smaller": sure.smaller});
    }
    told
}

fn logprob(of: &klero::TokenLogprob) -> Value {
    let mut told = json!({"token": of.token, "logprob": of.logprob});
    if let Some(raw) = of.raw_logprob {
        told["raw_logprob"] = json!(raw);
    }
    told
}

fn told_of(outcome: &Outcome, row: usize) -> Value {
    let mut told = told(outcome);
    told["row"] = json!(row);
    told["status"] = json!("ok");
    told
}

fn library(values: &[f32], row: &Row) -> Outcome {
    Logits::new(values, 1, values.len()).unwrap().draw(&[*row]).unwrap().remove(0).unwrap()
}

/// A request of `fields` beside a name, a seed and a position.
fn request(fields: Value) -> Value {
    let mut request = json!({"logits": "a", "seed": 5, "position": 9});
    request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    request
}

fn mask(ids: &[u32]) -> Vec<u32> {
    let mut words = vec![0; WORDS];
    ids.iter().for_each(|id| words[*id as usize / 32] |= 1 << (id % 32));
    words
}

#[test]
fn every_field_gives_what_the_library_gives() {
    let values = logits();
    let seeded = SamplingParams { seed: Some(5), ..Default::default() };
    let mut history = History::of_prompt([7, 8, 99]);
    [8, 8, 31].into_iter().for_each(|id| history.write(id));
    let bias = LogitBias::new([(5, 6.5), (64, -3.25)]).unwrap();
    let (banned, allowed) = ([3, 4, 98].into(), mask(&[1, 31, 32, 99]));
    let text = Edits { history: Some(&history), ..Default::default() };
    let ids = [9, 9, 0, 99];
    let cases: Vec<(Value, SamplingParams, Edits, &[u32])> = vec![
        (json!({}), seeded.clone(), Edits::default(), &[]),
        (
            json!({"repetition_penalty": 1.5, "prompt_ids": [7, 8, 99, 8], "output_ids": [8, 8, 31]}),
            SamplingParams { repetition_penalty: 1.5, ..seeded.clone() },
            text,
            &[],
        ),
        (
            json!({"frequency_penalty": 0.7, "prompt_ids": [7, 8, 99], "output_ids": [8, 31, 8]}),
            SamplingParams { frequency_penalty: 0.7, ..seeded.clone() },
            text,
            &[],
        ),
        (
            json!({"presence_penalty": -0.7, "prompt_ids": [7, 8, 99], "output_ids": [31, 8, 8]}),
            SamplingParams { presence_penalty: -0.7, ..seeded.clone() },
            text,
            &[],
        ),
        (
            json!({"filter_order": "min_p_first", "top_p": 0.4, "top_k": 9, "min_p": 0.1, "kept_ids": true}),
            SamplingParams {
                filter_order: FilterOrder::MinPFirst,
                top_p: 0.4,
                top_k: 9,
                min_p: 0.1,
                kept_ids: true,
                ..seeded.clone()
            },
            Edits::default(),
            &[],
        ),
        (
            json!({"logit_bias": {"5": 6.5, "64": -3.25}}),
            seeded.clone(),
            Edits { bias: Some(&bias), ..Default::default() },
            &[],
        ),
        (json!({"banned": [98, 4, 3, 4]}), seeded.clone(), Edits { banned: Some(&banned), ..Default::default() }, &[]),
        (
            json!({"allowed": [99, 1, 31, 32]}),
            seeded.clone(),
            Edits { allowed: Some(&allowed), ..Default::default() },
            &[],
        ),
        (
            json!({"allowed_bitmask": "mask"}),
            seeded.clone(),
            Edits { allowed: Some(&allowed), ..Default::default() },
            &[],
        ),
        (
            json!({"ids": ids, "top_k": 20, "raw_logprobs": true, "top_logprobs": 3}),
            SamplingParams { top_k: 20, raw_logprobs: true, top_logprobs: 3, ..seeded.clone() },
            Edits::default(),
            &ids,
        ),
        (
            json!({"confidence": true, "temperature": 0.5}),
            SamplingParams { confidence: true, temperature: 0.5, ..seeded.clone() },
            Edits::default(),
            &[],
        ),
    ];
    let tensors = [Tensor::f32("a", &[V], &values), Tensor::words("mask", Dtype::U32, &[WORDS], &allowed)];
    let requests: Vec<Value> = cases.iter().map(|(fields, ..)| request(fields.clone())).collect();
    let ran = draw("each-field", &tensors, &requests, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let replies = replies(&ran);
    for (row, (fields, params, edits, ids)) in cases.into_iter().enumerate() {
        let asked = Row::new(params.check().unwrap(), 9).with_edits(edits).with_ids(ids);
        assert_eq!(replies[row], told_of(&library(&values, &asked), row), "{fields}");
        assert!(row == 0 || bare(replies[row].clone()) != replies[0], "{fields} changes something");
    }
    assert!(replies[9]["logprobs_of"].as_array().unwrap().iter().any(|of| of["logprob"].is_null()));
    for word in ["nan", "inf", "NaN", "Infinity"] {
        assert!(!ran.stdout.contains(word), "{}", ran.stdout);
    }
}

#[test]
fn masks_come_by_row_in_either_type() {
    let rows = 3;
    let values = noise(rows * V, 4);
    let words: Vec<u32> = (0..rows as u32).flat_map(|row| mask(&[row, 40 + row])).collect();
    let tensors = [
        Tensor::f32("m", &[rows, V], &values),
        Tensor::words("unsigned", Dtype::U32, &[rows, WORDS], &words),
        Tensor::words("signed", Dtype::I32, &[rows, WORDS], &words),
        Tensor::words("one", Dtype::I32, &[WORDS], &words[..WORDS]),
    ];
    let ask = |row: usize, mask: &str| json!({"logits": "m", "row": row, "seed": 1, "position": 0, "kept_ids": true, "allowed_bitmask": mask});
    let requests: Vec<Value> =
        (0..rows).flat_map(|row| [ask(row, "unsigned"), ask(row, "signed"), ask(row, "one")]).collect();
    let replies = replies(&draw("mask-rows", &tensors, &requests, &[]));
    for (i, reply) in replies.iter().enumerate() {
        let row = if i % 3 == 2 { 0 } else { i / 3 };
        assert_eq!(reply["kept_ids"], json!([row, 40 + row]), "{reply}");
    }
}

#[test]
fn ids_that_are_none_are_refused_and_the_others_run() {
    let tensors = [
        Tensor::f32("a", &[V], &logits()),
        Tensor::f32("h", &[4], &noise(4, 1)),
        Tensor::f32("w", &[V, 4], &noise(4 * V, 2)),
    ];
    let mut requests = Vec::new();
    for field in ["ids", "banned", "allowed", "logit_bias"] {
        for id in [-1, V as i64, 1 << 20, 1 << 31, 1 << 32, 1 << 40, i64::MIN, i64::MAX] {
            let value = if field == "logit_bias" { json!({id.to_string(): 1.0}) } else { json!([0, id]) };
            requests.push(json!({"logits": "a", "position": 1, "seed": 1, field: value}));
            requests.push(json!({"hidden": "h", "weights": "w", "position": 1, "seed": 1, field: value}));
            requests.push(json!({"hidden": "h", "weights": "w", "position": 1, "seed": 1}));
        }
    }
    for field in ["prompt_ids", "output_ids"] {
        for id in [-1i64, 1 << 20, 1 << 31, 1 << 40] {
            requests.push(json!({"logits": "a", "position": 1, "seed": 1, field: [id]}));
            requests.push(json!({"hidden": "h", "weights": "w", "position": 1, "seed": 1, field: [id]}));
            requests.push(json!({"hidden": "h", "weights": "w", "position": 1, "seed": 1}));
        }
    }
    let ran = draw("no-ids", &tensors, &requests, &[]);
    assert_eq!(ran.code, Some(1));
    let replies = replies(&ran);
    assert_eq!(replies.len(), requests.len());
    for (request, reply) in requests.iter().zip(&replies) {
        let Some(field) = ["ids", "banned", "allowed", "logit_bias", "prompt_ids", "output_ids"]
            .into_iter()
            .find(|field| request.get(field).is_some())
        else {
            assert_eq!(bare(reply.clone()), bare(replies[2].clone()));
            assert_eq!(reply["status"], "ok");
            continue;
        };
        let value = request[field].as_object().map_or_else(
            || request[field].as_array().unwrap().last().unwrap().to_string(),
            |bias| bias.keys().next().unwrap().clone(),
        );
        let error = reply["error"].as_str().unwrap();
        assert_eq!((&reply["status"], &reply["token"]), (&json!("invalid"), &Value::Null), "{request}");
        assert!(error.contains(field) && error.contains(&value) && error.contains("must"), "{request}: {error}");
    }
}

#[test]
fn a_padded_vocabulary_bounds_every_id() {
    let mut values = logits();
    values[90..].fill(f32::NAN);
    let tensors = [
        Tensor::f32("a", &[V], &values),
        Tensor::words("enough", Dtype::U32, &[3], &[!0; 3]),
        Tensor::words("short", Dtype::U32, &[2], &[!0; 2]),
        Tensor::f32("wide", &[WORDS], &[0.0; WORDS]),
    ];
    let padded = |fields: Value| {
        let mut request = request(fields);
        request["vocabulary"] = json!(90);
        request
    };
    let fine = [
        json!({"ids": [89], "banned": [89], "logit_bias": {"89": 1}, "allowed": [0, 88], "kept_ids": true}),
        json!({"allowed_bitmask": "enough"}),
        // A text may hold what this vocabulary does not.
        json!({"prompt_ids": [90, 5000], "output_ids": [99], "repetition_penalty": 2, "presence_penalty": 1}),
    ];
    let wrong = [
        (json!({"ids": [90]}), "ids holds id 90, must be below 90"),
        (json!({"banned": [90]}), "banned holds id 90, must be below 90"),
        (json!({"logit_bias": {"90": 1}}), "logit_bias holds id 90, must be below 90"),
        (json!({"allowed": [90]}), "allowed holds id 90, must be below 90"),
        (json!({"allowed_bitmask": "short"}), "allowed has 2 words of 32 bits, must be at least 3"),
        (json!({"allowed_bitmask": "wide"}), "tensor `wide` is F32, must be I32 or U32"),
        (json!({"allowed_bitmask": "none"}), "tensor `none` not found"),
        (json!({"vocabulary": 101}), "vocabulary is 101, must be at most 100"),
        (json!({"vocabulary": u64::MAX, "allowed": [1]}), "vocabulary is 18446744073709551615, must be at most"),
    ];
    let requests: Vec<Value> = fine
        .iter()
        .cloned()
        .map(padded)
        .chain(wrong.iter().map(|(fields, _)| {
            if fields.get("vocabulary").is_some() { request(fields.clone()) } else { padded(fields.clone()) }
        }))
        .collect();
    let replies = replies(&draw("padding", &tensors, &requests, &[]));
    for reply in &replies[..fine.len()] {
        assert_eq!(reply["status"], "ok", "{reply}");
    }
    assert_eq!((&replies[0]["kept_ids"], &replies[0]["logprobs_of"][0]["logprob"]), (&json!([0, 88]), &Value::Null));
    let plain =
        library(&values[..90], &Row::new(SamplingParams { seed: Some(5), ..Default::default() }.check().unwrap(), 9));
    for row in [1, 2] {
        assert_eq!(replies[row], told_of(&plain, row));
    }
    for ((fields, error), reply) in wrong.iter().zip(&replies[fine.len()..]) {
        assert!(reply["status"] == "invalid" && reply["error"].as_str().unwrap().contains(error), "{fields}: {reply}");
    }
}

#[test]
fn samples_are_those_of_the_library_ready_or_fused() {
    let (dim, rows, n) = (8, 3, 70);
    let (hidden, weights) = (noise(rows * dim, 1), noise(V * dim, 2));
    let matrix = Weights::f32(V, dim, weights.clone()).unwrap();
    let values = FusedHead::new(&matrix).unwrap().logits(&hidden).unwrap();
    let tensors = [
        Tensor::f32("m", &[rows, V], &values),
        Tensor::f32("h", &[rows, dim], &hidden),
        Tensor::f32("w", &[V, dim], &weights),
    ];
    let mut requests = Vec::new();
    for row in 0..rows {
        let asked = json!({"row": row, "seed": "7", "position": 4, "raw_logprobs": true, "top_k": 30});
        for (source, samples) in [(0, Some(n)), (1, Some(n)), (1, None), (1, Some(1)), (0, Some(1024))] {
            let mut request = asked.clone();
            if source == 0 {
                request["logits"] = json!("m");
            } else {
                request["hidden"] = json!("h");
                request["weights"] = json!("w");
            }
            if let Some(samples) = samples {
                request["samples"] = json!(samples);
            }
            requests.push(request);
        }
    }
    let ran = draw("samples", &tensors, &requests, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let replies = replies(&ran);
    let params = SamplingParams { seed: Some(7), raw_logprobs: true, top_k: 30, ..Default::default() };
    for row in 0..rows {
        let batch = Logits::new(&values[row * V..][..V], 1, V).unwrap().batch();
        let all = batch.samples(&[Row::new(params.check().unwrap(), 4)], 1024).unwrap().remove(0);
        let outcomes: Vec<Outcome> = all.into_iter().map(Result::unwrap).collect();
        let of = |count: usize| -> Value {
            let sample = |outcome: &Outcome| {
                json!({"token": outcome.token, "logprob": outcome.logprob, "raw_logprob": outcome.raw_logprob,
                    "seed": outcome.seed.to_string()})
            };
            outcomes[..count].iter().map(sample).collect()
        };
        for (i, count) in [(0, n), (1, n), (3, 1), (4, 1024)] {
            let (place, mut expected) = (row * 5 + i, told_of(&outcomes[0], row * 5 + i));
            expected["samples"] = of(count);
            assert_eq!(replies[place], expected);
        }
        assert_eq!(replies[row * 5 + 2], told_of(&outcomes[0], row * 5 + 2));
    }
}

#[test]
fn halves_give_what_their_widened_numbers_give() {
    let (dim, rows) = (32, 3);
    let (values, hidden, weights) = (noise(rows * V, 1), noise(rows * dim, 2), noise(V * dim, 3));
    let draft: Vec<f32> = noise(V, 4).iter().map(|value| value - 7.0).collect();
    let f16s = |values: &[f32]| -> Vec<f16> { values.iter().map(|value| f16::from_f32(*value)).collect() };
    let bf16s = |values: &[f32]| -> Vec<bf16> { values.iter().map(|value| bf16::from_f32(*value)).collect() };
    let mut tensors = vec![Tensor::f32("w", &[V, dim], &weights)];
    for (name, shape, values) in
        [("logits", vec![rows, V], &values), ("hidden", vec![rows, dim], &hidden), ("draft", vec![V], &draft)]
    {
        let (f16s, bf16s) = (f16s(values), bf16s(values));
        let widened: Vec<f32> = f16s.iter().map(|value| value.to_f32()).collect();
        tensors.push(Tensor::f32(&format!("{name}-wide-f16"), &shape, &widened));
        tensors.push(Tensor::f16(&format!("{name}-f16"), &shape, &f16s));
        let widened: Vec<f32> = bf16s.iter().map(|value| value.to_f32()).collect();
        tensors.push(Tensor::f32(&format!("{name}-wide-bf16"), &shape, &widened));
        tensors.push(Tensor::bf16(&format!("{name}-bf16"), &shape, &bf16s));
    }
    let mut requests = Vec::new();
    for kind in ["f16", "wide-f16", "bf16", "wide-bf16"] {
        let verify = json!({"draft_token": 3, "draft_logprobs": format!("draft-{kind}")});
        let asked = json!({"row": 2, "seed": 3, "position": 1, "top_p": 0.9, "top_logprobs": 5, "verify": verify});
        let (mut ready, mut fused) = (asked.clone(), asked);
        ready["logits"] = json!(format!("logits-{kind}"));
        fused["hidden"] = json!(format!("hidden-{kind}"));
        fused["weights"] = json!("w");
        requests.extend([ready, fused]);
    }
    let ran = draw("halves", &tensors, &requests, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let replies: Vec<Value> = replies(&ran).into_iter().map(bare).collect();
    for (half, wide) in [(0, 2), (1, 3), (4, 6), (5, 7)] {
        assert_eq!(replies[half], replies[wide]);
    }
    assert_ne!(replies[0], replies[4]);
}

#[test]
fn a_policy_holds_for_every_request() {
    let values = logits();
    let dim = 4;
    let weights = noise(V * dim, 2);
    let tensors = [
        Tensor::f32("a", &[V], &values),
        Tensor::f32("h", &[dim], &noise(dim, 1)),
        Tensor::f32("w", &[V, dim], &weights),
        Tensor::f32("tiny", &[5], &values[..5]),
    ];
    let mut best: Vec<u32> = (0..V as u32).collect();
    best.sort_by(|a, b| values[*b as usize].total_cmp(&values[*a as usize]));
    let list = format!("{},{}", best[0], best[2]);
    let fused = json!({"hidden": "h", "weights": "w", "seed": 5, "position": 9, "kept_ids": true});
    let requests = [request(json!({"kept_ids": true, "raw_logprobs": true})), fused];
    let ran = draw("policy", &tensors, &requests, &["--force-top-k", "3", "--blacklist", &list]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let replies = replies(&ran);
    let listed = [best[0], best[2]].into();
    let policy = Policy { blacklist: Some(&listed), force_top_k: NonZeroUsize::new(3) };
    let params = SamplingParams { seed: Some(5), kept_ids: true, raw_logprobs: true, ..Default::default() };
    let batch = Logits::new(&values, 1, V).unwrap().batch().with_policy(policy);
    let outcome = batch.draw(&[Row::new(params.check().unwrap(), 9)]).unwrap().remove(0).unwrap();
    assert_eq!(replies[0], told_of(&outcome, 0));
    assert_eq!((&replies[0]["kept"], &replies[1]["kept"]), (&json!(3), &json!(3)));
    let off = draw("policy-off", &tensors, &requests[..1], &["--force-top-k", "0"]);
    assert_eq!(self::replies(&off)[0]["kept"], V);

    let narrow = [request(json!({"logits": "tiny"})), request(json!({}))];
    let ran = draw("policy-narrow", &tensors, &narrow, &["--blacklist", "5"]);
    let replies = self::replies(&ran);
    assert_eq!((ran.code, &replies[1]["status"]), (Some(1), &json!("ok")));
    assert!(replies[0]["error"].as_str().unwrap().contains("the blacklist holds id 5, must be below"), "{ran:?}");
    for (flags, expected) in [
        (["--blacklist", "-1"], "an id is -1, must be an integer in 0..=1048575"),
        (["--blacklist", "1,,2"], "an id is , must be"),
        (["--blacklist", "4294967296"], "an id is 4294967296, must be"),
        (["--force-top-k", "-1"], "--force-top-k"),
    ] {
        let ran = draw("policy-wrong", &tensors, &narrow, &flags);
        assert!(ran.code == Some(2) && ran.stderr.contains(expected), "{ran:?}");
    }
}

#[test]
fn extreme_requests_get_an_answer_in_json() {
    let tensors = [
        Tensor::f32("a", &[4], &[0.0, 3e38, -3e38, f32::NEG_INFINITY]),
        Tensor::f32("none", &[0], &[]),
        Tensor::words("no-words", Dtype::I32, &[0], &[]),
    ];
    let lines = [
        r#"{"logits":"a","position":0,"temperature":0.1}"#,
        r#"{"logits":"a","position":0,"temperature":1e38}"#,
        r#"{"logits":"a","position":0,"banned":[1],"ids":[0,1,2,3],"raw_logprobs":true,"confidence":true}"#,
        r#"{"logits":"a","position":0,"allowed":[]}"#,
        r#"{"logits":"a","position":0,"allowed":[3]}"#,
        r#"{"logits":"a","position":0,"logit_bias":{"1":3e38}}"#,
        r#"{"logits":"a","position":0,"repetition_penalty":1e-38,"prompt_ids":[1]}"#,
        r#"{"logits":"a","position":0,"frequency_penalty":3e38,"output_ids":[0,0,0]}"#,
        r#"{"logits":"none","position":0}"#,
        r#"{"logits":"none","position":0,"samples":3,"allowed":[]}"#,
        r#"{"logits":"a","position":0,"allowed_bitmask":"no-words"}"#,
        r#"{"logits":"a","position":0,"vocabulary":0,"samples":2}"#,
        r#"{"logits":"a","position":18446744073709551615,"samples":1024,"verify":null}"#,
    ];
    let ran = draw_lines("extremes", &tensors, lines.join("\n").as_bytes(), &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let statuses: Vec<Value> = replies(&ran).iter().map(|reply| reply["status"].clone()).collect();
    let expected = [
        "infinite", "ok", "ok", "empty", "empty", "infinite", "infinite", "infinite", "empty", "empty", "invalid",
        "empty", "ok",
    ];
    assert_eq!(statuses, expected, "{}", ran.stdout);
    assert!(!ran.stdout.contains("NaN") && !ran.stdout.contains("inf,") && !ran.stdout.contains(":inf"));
}
