//! `klero draw` beyond the golden data: requests of every kind, good and bad.

mod support;

use half::{bf16, f16};
use klero::{
    BlockQ4K, BlockQ6K, BlockQ8_0, Draft, Edits, FusedHead, History, LogitBias, Logits, Outcome, Row, SamplingParams,
    Weights,
};
use safetensors::Dtype;
use serde_json::{Value, json};
use support::{Folder, Ran, Tensor, klero, klero_reading, noise, replies, safetensors};

/// Runs requests over tensors.
fn draw(name: &str, tensors: &[Tensor], requests: &[Value]) -> Ran {
    let lines: Vec<String> = requests.iter().map(Value::to_string).collect();
    draw_lines(name, tensors, lines.join("\n").as_bytes())
}

fn draw_lines(name: &str, tensors: &[Tensor], lines: &[u8]) -> Ran {
    let folder = Folder::new(name);
    let file = folder.write("t.safetensors", &safetensors(tensors));
    klero_reading(&["draw", "--tensors", &file, "--requests", "-"], lines)
}

/// The same reply but for its number.
fn bare(mut reply: Value) -> Value {
    reply["row"] = json!(0);
    reply
}

#[test]
fn bad_lines_are_reported_with_their_number_and_the_others_still_run() {
    let tensors = [
        Tensor::f32("a", &[4], &[0.0, 1.0, 2.0, 3.0]),
        Tensor::f32("m", &[2, 4], &noise(8, 1)),
        Tensor { name: "ints".into(), dtype: Dtype::I64, shape: vec![4], bytes: vec![0; 32] },
        Tensor { name: "mask".into(), dtype: Dtype::I32, shape: vec![2, 1], bytes: vec![0xFF; 8] },
        Tensor::f32("cube", &[1, 2, 2], &noise(4, 1)),
    ];
    let good = r#"{"logits":"a","seed":1,"position":0}"#;
    let bad = [
        ("{\"logits\":", "EOF while parsing a value at column 10"),
        (r#"{"logits":"a","seed":1}"#, "missing field `position`"),
        (r#"{"logits":"a","position":0,"top_k":0}"#, "top_k is 0, must be −1 (off)"),
        (r#"{"logits":"a","position":0,"temprature":0}"#, "unknown field `temprature`"),
        (r#"{"logits":"b","position":0}"#, "tensor `b` not found"),
        (r#"{"logits":"ints","position":0}"#, "tensor `ints` is I64, must be F32, BF16 or F16"),
        (r#"{"logits":"m","position":0}"#, "tensor `m` has shape [2, 4]: give `row`"),
        (r#"{"logits":"m","row":2,"position":0}"#, "row is 2, must be below 2"),
        (r#"{"logits":"a","row":0,"position":0}"#, "must be [rows, n] for a `row`"),
        (r#"{"logits":"cube","position":0}"#, "tensor `cube` has shape [1, 2, 2]"),
        (r#"{"logits":"a","position":0,"vocabulary":5}"#, "vocabulary is 5, must be at most 4"),
        (r#"{"hidden":"a","weights":"a","position":0}"#, "tensor `a` has shape [4], must be [V, D]"),
        (r#"{"hidden":"a","weights":"ints","position":0}"#, "tensor `ints` has shape [4], must be [V, D]"),
        (r#"{"logits":"a","position":0,"banned":[4]}"#, "banned holds id 4, must be below 4"),
        (r#"{"logits":"a","position":0,"banned":[2147483648]}"#, "banned holds id 2147483648"),
        (r#"{"logits":"a","position":0,"logit_bias":{"4":1}}"#, "logit_bias holds id 4"),
        (r#"{"logits":"a","position":0,"ids":[4]}"#, "ids holds id 4"),
        (r#"{"logits":"a","position":0,"allowed":[1,4]}"#, "allowed holds id 4, must be below 4"),
        (r#"{"logits":"a","position":0,"allowed_bitmask":"a"}"#, "tensor `a` is F32, must be I32 or U32"),
        (r#"{"logits":"a","position":0,"allowed_bitmask":"mask"}"#, "must be [words], or [rows, words] with `row`"),
        (
            r#"{"logits":"m","position":0,"verify":{"draft_tokens":[1,2],"coupled":true}}"#,
            "tensor `m` has shape [2, 4], must be [3, n]",
        ),
        (
            r#"{"logits":"a","position":0,"verify":{"draft_token":4,"draft_logprobs":"a"}}"#,
            "draft_token is 4, must be −1 (none) or an id below 4",
        ),
    ];
    let mut lines = format!("{good}\n\n");
    for (line, _) in &bad {
        lines += &format!("{line}\n  \n{good}\r\n");
    }
    let ran = draw_lines("bad-lines", &tensors, lines.as_bytes());
    assert_eq!(ran.code, Some(1));
    let reported: Vec<&str> = ran.stderr.lines().collect();
    let replies = replies(&ran);
    assert_eq!((reported.len(), replies.len()), (bad.len(), 2 * bad.len() + 1), "{}", ran.stderr);
    let expected = bare(replies[0].clone());
    assert_eq!((&expected["status"], expected["token"].is_u64()), (&json!("ok"), true));
    for (i, (line, error)) in bad.iter().enumerate() {
        let number = format!("line {}: ", 3 + 3 * i);
        assert!(reported[i].starts_with(&number) && reported[i].contains(error), "{line}: {}", reported[i]);
        let reply = &replies[1 + 2 * i];
        assert_eq!((&reply["row"], &reply["status"]), (&json!(1 + 2 * i), &json!("invalid")), "{line}");
        assert!(reply["error"].as_str().unwrap().contains(error) && reply["token"].is_null(), "{reply}");
        assert_eq!(bare(replies[2 + 2 * i].clone()), expected, "after {line}");
    }
}

#[test]
fn rows_without_a_token_are_results() {
    let row = |name: &str, at: usize, value: f32| {
        let mut values = [0.5, 1.0, 2.0, 0.25];
        values[at] = value;
        Tensor::f32(name, &[4], &values)
    };
    let tensors = [
        row("nan", 2, f32::NAN),
        row("infinite", 3, f32::INFINITY),
        Tensor::f32("empty", &[3], &[f32::NEG_INFINITY; 3]),
        row("fine", 1, f32::NEG_INFINITY),
    ];
    let requests: Vec<Value> =
        ["nan", "infinite", "empty", "fine"].iter().map(|name| json!({"logits": name, "position": 3})).collect();
    let ran = draw("statuses", &tensors, &requests);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let replies = replies(&ran);
    for (row, (status, error)) in
        [("nan", "logit 2 is NaN"), ("infinite", "logit 3 is infinite"), ("empty", "is −∞")].into_iter().enumerate()
    {
        let reply = &replies[row];
        assert_eq!((&reply["status"], &reply["position"]), (&json!(status), &json!(3)));
        let text = reply["error"].as_str().unwrap();
        assert!(text.starts_with(&format!("row {row}: ")) && text.contains(error), "{text}");
        for field in ["token", "logprob", "kept", "log_normalizer"] {
            assert!(reply[field].is_null() && reply.get(field).is_some(), "{reply}");
        }
    }
    assert_eq!((&replies[3]["status"], &replies[3]["kept"]), (&json!("ok"), &json!(3)));
    // Padding may hold anything.
    let padded = draw("padded", &tensors, &[json!({"logits": "infinite", "position": 3, "vocabulary": 3})]);
    assert_eq!(self::replies(&padded)[0]["status"], "ok");
}

/// Heads of every type, and the same weights for the library.
fn heads(vocabulary: usize, dim: usize) -> Vec<(Tensor, Weights<'static>)> {
    let values = noise(vocabulary * dim, 5);
    let halves: Vec<bf16> = values.iter().map(|value| bf16::from_f32(*value)).collect();
    let blocks = BlockQ8_0::quantize(&values).unwrap();
    let bytes = |block: &BlockQ8_0| [&block.d.to_le_bytes()[..], &block.qs.map(|q| q as u8)].concat();
    let tensor = |name: &str, dtype, width, bytes| Tensor {
        name: name.to_owned(),
        dtype,
        shape: vec![vocabulary, width],
        bytes,
    };
    vec![
        (Tensor::f32("f32", &[vocabulary, dim], &values), Weights::f32(vocabulary, dim, values.clone()).unwrap()),
        (
            tensor("bf16", Dtype::BF16, dim, halves.iter().flat_map(|half| half.to_le_bytes()).collect()),
            Weights::bf16(vocabulary, dim, halves).unwrap(),
        ),
        (
            tensor("q8_0", Dtype::U8, dim / 32 * 34, blocks.iter().flat_map(bytes).collect()),
            Weights::q8_0(vocabulary, dim, blocks).unwrap(),
        ),
        (
            tensor("f16", Dtype::F16, dim, values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect()),
            Weights::f16(vocabulary, dim, values.iter().map(|v| f16::from_f32(*v)).collect::<Vec<_>>()).unwrap(),
        ),
    ]
}

#[test]
fn a_hidden_state_and_weights_give_what_their_logits_give() {
    let (vocabulary, dim, rows) = (1000, 64, 70);
    let hidden = noise(rows * dim, 6);
    let (mut tensors, mut requests) = (vec![Tensor::f32("hidden", &[rows, dim], &hidden)], Vec::new());
    for (tensor, weights) in heads(vocabulary, dim) {
        let logits = FusedHead::new(&weights).unwrap().logits(&hidden).unwrap();
        let name = format!("logits-{}", tensor.name);
        tensors.push(Tensor::f32(&name, &[rows, vocabulary], &logits));
        for row in 0..rows {
            let params = json!({"row": row, "seed": row * 7, "position": row, "top_p": 0.9, "top_logprobs": 2});
            let mut fused = params.clone();
            fused["hidden"] = json!("hidden");
            fused["weights"] = json!(tensor.name);
            let mut ready = params;
            ready["logits"] = json!(name);
            requests.extend([fused, ready]);
        }
        tensors.push(tensor);
    }
    let ran = draw("fused", &tensors, &requests);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let replies = replies(&ran);
    assert_eq!(replies.len(), 8 * rows);
    for pair in replies.chunks(2) {
        assert_eq!(bare(pair[0].clone()), bare(pair[1].clone()));
        let best = pair[0]["top_logprobs"].as_array().unwrap().len() as u64;
        assert_eq!((&pair[0]["status"], best), (&json!("ok"), pair[0]["kept"].as_u64().unwrap().min(2)));
    }
}

#[test]
fn a_hidden_state_must_fit_its_head_and_a_head_must_be_one() {
    let mut tensors: Vec<Tensor> = heads(40, 64).into_iter().map(|(tensor, _)| tensor).collect();
    tensors.push(Tensor::f32("h", &[64], &noise(64, 1)));
    tensors.push(Tensor::f32("short", &[63], &noise(63, 1)));
    tensors.push(Tensor { name: "bytes".into(), dtype: Dtype::U8, shape: vec![2, 33], bytes: vec![0; 66] });
    tensors.push(Tensor { name: "ints".into(), dtype: Dtype::I32, shape: vec![2, 64], bytes: vec![0; 512] });
    let request = |hidden: &str, weights: &str| json!({"hidden": hidden, "weights": weights, "position": 1});
    let requests = [
        request("h", "bf16"),
        request("short", "bf16"),
        request("h", "bytes"),
        request("h", "ints"),
        request("h", "none"),
        request("h", "q8_0"),
    ];
    let ran = draw("misfits", &tensors, &requests);
    assert_eq!(ran.code, Some(1));
    let replies = replies(&ran);
    let statuses: Vec<&str> = replies.iter().map(|reply| reply["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["ok", "invalid", "invalid", "invalid", "invalid", "ok"]);
    for (row, error) in [
        (1, "the hidden state has length 63, must be 64, the width of `bf16`"),
        (2, "tensor `bytes`: shape: rows of 33 bytes, must be blocks of 34"),
        (3, "tensor `ints` is I32, must be F32, BF16, F16, or U8"),
        (4, "tensor `none` not found"),
    ] {
        assert!(replies[row]["error"].as_str().unwrap().contains(error), "{}", replies[row]);
    }
}

#[test]
fn seeds_are_numbers_or_text_signed_or_not() {
    let tensors = [Tensor::f32("a", &[500], &noise(500, 2))];
    let seeds = [json!(-1), json!("-1"), json!(u64::MAX), json!("18446744073709551615")];
    let requests: Vec<Value> =
        seeds.iter().map(|seed| json!({"logits": "a", "position": 5, "seed": seed, "raw_logprobs": true})).collect();
    let replies = replies(&draw("seeds", &tensors, &requests));
    for reply in &replies {
        assert_eq!(reply["seed"], "18446744073709551615");
        assert_eq!(bare(reply.clone()), replies[0]);
        assert_eq!(reply["raw_logprob"], reply["logprob"], "nothing was processed");
    }
    let ran = draw("seeds-random", &tensors, &[requests[0].clone(), json!({"logits": "a", "position": 5})]);
    let again = json!({"logits": "a", "position": 5, "seed": self::replies(&ran)[1]["seed"]});
    let replayed = draw("seeds-again", &tensors, &[again]);
    assert_eq!(self::replies(&replayed)[0], bare(self::replies(&ran)[1].clone()));
}

#[test]
fn damaged_files_are_refused_in_one_line() {
    let folder = Folder::new("damaged");
    let whole = safetensors(&[Tensor::f32("a", &[4], &[0.0; 4])]);
    let mut long_header = whole.clone();
    long_header[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let requests = folder.write("requests.jsonl", b"{\"logits\":\"a\",\"position\":0}");
    for bytes in [&whole[..whole.len() - 1], &whole[..20], &[], b"GGUF\x03\0\0\0\0\0\0\0", &long_header] {
        let file = folder.write("t.safetensors", bytes);
        let ran = klero(&["draw", "--tensors", &file, "--requests", &requests]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains("is not a safetensors file"), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1);
    }
    let file = folder.write("t.safetensors", &whole);
    let ran = klero(&["draw", "--tensors", &file, "--requests", "nowhere.jsonl"]);
    assert!(ran.code == Some(1) && ran.stderr.starts_with("error: cannot read nowhere.jsonl"), "{ran:?}");
    // A header of a length that leaves the numbers unaligned.
    let header = br#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}} "#;
    for pad in 0..4 {
        let header = [&header[..], &b"    "[..pad]].concat();
        let bytes = [&(header.len() as u64).to_le_bytes()[..], &header, &[0; 16]].concat();
        let file = folder.write("t.safetensors", &bytes);
        let ran = klero(&["draw", "--tensors", &file, "--requests", &requests]);
        assert_eq!((ran.code, &replies(&ran)[0]["kept"]), (Some(0), &json!(4)), "{ran:?}");
    }
}

/// The library's answer to a row, whose reply is to be the same.
fn ask(values: &[f32], params: &SamplingParams, edits: Edits, draft: Option<Draft>) -> Outcome {
    let row = Row { draft, ..Row::new(params.check().unwrap(), 5) }.with_edits(edits);
    Logits::new(values, 1, values.len()).unwrap().draw(&[row]).unwrap().remove(0).unwrap()
}

fn assert_is(reply: &Value, outcome: &Outcome) {
    assert_eq!((&reply["status"], &reply["token"]), (&json!("ok"), &json!(outcome.token)), "{reply}");
    assert_eq!((&reply["logprob"], &reply["kept"]), (&json!(outcome.logprob), &json!(outcome.kept)), "{reply}");
}

#[test]
fn edits_and_what_else_is_asked_for_are_the_librarys() {
    let values = noise(300, 4);
    let mask: Vec<u8> = (0..10u32).flat_map(|word| (0x5A5A_A5A5u32.rotate_left(word)).to_le_bytes()).collect();
    let words: Vec<u32> = (0..10u32).map(|word| 0x5A5A_A5A5u32.rotate_left(word)).collect();
    let tensors = [
        Tensor::f32("a", &[300], &values),
        Tensor { name: "mask".into(), dtype: Dtype::I32, shape: vec![10], bytes: mask },
    ];
    let base = |more: Value| {
        let mut request = json!({"logits": "a", "position": 5, "seed": 9, "temperature": 0.7});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    let requests = [
        base(json!({"prompt_ids": [1, 2, 3, 100_000], "output_ids": [7, 7, 8], "repetition_penalty": 1.5,
            "frequency_penalty": 0.5, "presence_penalty": -0.25})),
        base(json!({"logit_bias": {"17": 4.5, "18": -2}, "banned": [17, 20]})),
        base(json!({"allowed_bitmask": "mask", "kept_ids": true})),
        base(json!({"allowed": [3, 33, 299], "kept_ids": true, "confidence": true})),
        base(json!({"top_k": 2, "ids": [0, 1, 2], "raw_logprobs": true, "filter_order": "min_p_first", "top_p": 0.5})),
        base(json!({"verify": {"draft_token": 5, "one_hot": true}})),
        base(json!({"verify": {"draft_token": 5, "coupled": true}})),
    ];
    let ran = draw("edits", &tensors, &requests);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert!(!ran.stdout.contains("NaN") && !ran.stdout.contains("inf"));
    let replies = replies(&ran);

    let params = SamplingParams { temperature: 0.7, seed: Some(9), ..Default::default() };
    let mut history = History::of_prompt([1, 2, 3, 100_000]);
    [7, 7, 8].into_iter().for_each(|id| history.write(id));
    let penalised =
        SamplingParams { repetition_penalty: 1.5, frequency_penalty: 0.5, presence_penalty: -0.25, ..params.clone() };
    let edits = Edits { history: Some(&history), ..Default::default() };
    assert_is(&replies[0], &ask(&values, &penalised, edits, None));
    let (bias, banned) = (LogitBias::new([(17, 4.5), (18, -2.0)]).unwrap(), [17, 20].into());
    let edits = Edits { bias: Some(&bias), banned: Some(&banned), ..Default::default() };
    assert_is(&replies[1], &ask(&values, &params, edits, None));
    let edits = Edits { allowed: Some(&words), ..Default::default() };
    assert_is(&replies[2], &ask(&values, &params, edits, None));
    let kept: Vec<u32> = (0..300).filter(|id| words[*id as usize / 32] >> (id % 32) & 1 == 1).collect();
    assert_eq!(replies[2]["kept_ids"], json!(kept));
    assert_eq!(replies[3]["kept_ids"], json!([3, 33, 299]));
    let sure = &replies[3]["confidence"];
    assert!(["entropy", "largest", "smaller"].iter().all(|field| sure[field].is_f64()), "{sure}");
    let asked: Vec<&Value> = replies[4]["logprobs_of"].as_array().unwrap().iter().map(|one| &one["logprob"]).collect();
    assert!(asked.iter().any(|logprob| logprob.is_null()), "a removed id has no logprob: {asked:?}");
    assert_eq!(replies[4]["logprobs_of"][2]["token"], 2);
    for (reply, draft) in [(&replies[5], Draft::one_hot(5)), (&replies[6], Draft::coupled(5))] {
        let outcome = ask(&values, &params, Edits::default(), Some(draft));
        assert_is(reply, &outcome);
        let verification = outcome.verification.unwrap();
        assert_eq!(reply["accepted"], json!(verification.accepted));
        assert_eq!(reply["accept_probability"], json!(verification.accept_probability));
    }
}

#[test]
fn samples_and_whole_drafts_are_answered_in_one_line() {
    let (vocabulary, dim) = (90, 32);
    let weights = noise(vocabulary * dim, 8);
    let hidden = noise(3 * dim, 9);
    let whole = Weights::f32(vocabulary, dim, &weights[..]).unwrap();
    let logits = FusedHead::new(&whole).unwrap().logits(&hidden).unwrap();
    let tensors = [
        Tensor::f32("w", &[vocabulary, dim], &weights),
        Tensor::f32("h", &[3, dim], &hidden),
        Tensor::f32("l", &[3, vocabulary], &logits),
        Tensor::f32("d", &[2, vocabulary], &vec![-(vocabulary as f32).ln(); 2 * vocabulary]),
    ];
    let ready = json!({"logits": "l", "position": 4, "seed": 3});
    let fused = json!({"hidden": "h", "weights": "w", "position": 4, "seed": 3});
    let with = |base: &Value, more: Value| {
        let mut request = base.clone();
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    let one = |base: &Value, row: usize, position: u64| with(base, json!({"row": row, "position": position}));
    let verify = json!({"verify": {"draft_tokens": [1, 2], "draft_logprobs": "d", "delta": 0}});
    let coupled = json!({"verify": {"draft_tokens": [1, 2], "coupled": true}});
    let mut requests = vec![one(&ready, 0, 4), one(&ready, 1, 5)];
    for base in [&ready, &fused] {
        requests.extend([
            with(base, json!({"row": 1, "samples": 5})),
            with(base, verify.clone()),
            with(base, coupled.clone()),
        ]);
    }
    let ran = draw("several", &tensors, &requests);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
    let replies = replies(&ran);
    for (ready, fused) in replies[2..5].iter().zip(&replies[5..]) {
        assert_eq!(bare(ready.clone()), bare(fused.clone()));
    }
    let samples = replies[2]["samples"].as_array().unwrap();
    assert_eq!((samples.len(), &samples[0]["seed"], &samples[0]["token"]), (5, &json!("3"), &replies[2]["token"]));
    let sampling = SamplingParams { seed: Some(3), ..Default::default() }.check().unwrap();
    assert_eq!(samples[4]["seed"], json!(sampling.sample(4).seed().to_string()));
    for whole in [&replies[3], &replies[4]] {
        let (accepted, rows) = (whole["accepted"].as_u64().unwrap() as usize, whole["rows"].as_array().unwrap());
        assert_eq!((rows.len(), &rows[accepted]["token"]), (accepted + 1, &whole["token"]));
        assert_eq!(rows[0]["position"], 4);
    }
    // Coupled, the first row's token is the one that is drawn without a draft.
    assert_eq!(replies[4]["rows"][0]["token"], replies[0]["token"]);
}

#[test]
fn tensors_in_half_precision_are_the_numbers_they_widen_to() {
    let values = noise(200, 12);
    let halves: Vec<f16> = values.iter().map(|v| f16::from_f32(*v)).collect();
    let brains: Vec<bf16> = values.iter().map(|v| bf16::from_f32(*v)).collect();
    let tensor = |name: &str, dtype, bytes| Tensor { name: name.to_owned(), dtype, shape: vec![200], bytes };
    let tensors = [
        tensor("f16", Dtype::F16, halves.iter().flat_map(|v| v.to_le_bytes()).collect()),
        tensor("bf16", Dtype::BF16, brains.iter().flat_map(|v| v.to_le_bytes()).collect()),
        Tensor::f32("f16 wide", &[200], &halves.iter().map(|v| v.to_f32()).collect::<Vec<_>>()),
        Tensor::f32("bf16 wide", &[200], &brains.iter().map(|v| v.to_f32()).collect::<Vec<_>>()),
    ];
    let request = |name: &str| json!({"logits": name, "position": 1, "seed": 2, "top_p": 0.9});
    let replies = replies(&draw("halves", &tensors, &["f16", "f16 wide", "bf16", "bf16 wide"].map(request)));
    assert_eq!(bare(replies[0].clone()), bare(replies[1].clone()));
    assert_eq!(bare(replies[2].clone()), bare(replies[3].clone()));
}

#[test]
fn gguf_blocks_are_named_by_their_type() {
    let (vocabulary, dim) = (20, 256);
    let x = noise(dim, 3);
    let block = |size: usize, at: &[usize]| -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..vocabulary * size).map(|i| (i as u64).wrapping_mul(0x9E37_79B9).to_le_bytes()[2]).collect();
        for block in bytes.chunks_exact_mut(size) {
            at.iter().for_each(|at| block[*at..at + 2].copy_from_slice(&f16::from_f32(0.01).to_le_bytes()));
        }
        bytes
    };
    let (q4, q6) = (block(144, &[0, 2]), block(210, &[208]));
    let tensor = |name: &str, size, bytes: &[u8]| Tensor {
        name: name.to_owned(),
        dtype: Dtype::U8,
        shape: vec![vocabulary, size],
        bytes: bytes.to_vec(),
    };
    let logits = |weights: Weights| FusedHead::new(&weights).unwrap().logits(&x).unwrap();
    let q4_logits = logits(Weights::q4_k(vocabulary, dim, BlockQ4K::from_bytes(&q4).unwrap()).unwrap());
    let q6_logits = logits(Weights::q6_k(vocabulary, dim, BlockQ6K::from_bytes(&q6).unwrap()).unwrap());
    let tensors = [
        Tensor::f32("x", &[dim], &x),
        tensor("q4", 144, &q4),
        tensor("q6", 210, &q6),
        Tensor::f32("q4 logits", &[vocabulary], &q4_logits),
        Tensor::f32("q6 logits", &[vocabulary], &q6_logits),
    ];
    let fused = |name: &str, kind: &str| json!({"hidden": "x", "weights": name, "weights_type": kind, "position": 1, "seed": 2});
    let ready = |name: &str| json!({"logits": name, "position": 1, "seed": 2});
    let requests =
        [fused("q4", "q4_k"), ready("q4 logits"), fused("q6", "q6_k"), ready("q6 logits"), fused("q6", "q5_k")];
    let replies = replies(&draw("blocks", &tensors, &requests));
    assert_eq!(bare(replies[0].clone()), bare(replies[1].clone()));
    assert_eq!(bare(replies[2].clone()), bare(replies[3].clone()));
    assert!(
        replies[4]["error"].as_str().unwrap().contains("rows of 210 bytes, must be blocks of 176"),
        "{}",
        replies[4]
    );
}

#[test]
fn a_policy_holds_for_every_row() {
    let values = noise(100, 6);
    let folder = Folder::new("policy");
    let file = folder.write("t.safetensors", &safetensors(&[Tensor::f32("a", &[100], &values)]));
    let request = br#"{"logits":"a","position":1,"seed":2,"kept_ids":true}"#;
    let run = |flags: &[&str]| {
        klero_reading(&[&["draw", "--tensors", &file, "--requests", "-"][..], flags].concat(), request)
    };
    let mut best: Vec<u32> = (0..100).collect();
    best.sort_by(|a, b| values[*b as usize].total_cmp(&values[*a as usize]));
    let blacklist = format!("{},{}", best[0], best[2]);
    let reply = &replies(&run(&["--force-top-k", "3", "--blacklist", &blacklist]))[0];
    let mut kept = [best[1], best[3], best[4]];
    kept.sort_unstable();
    assert_eq!(reply["kept_ids"], json!(kept));
    let ran = run(&["--blacklist", "100"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("the blacklist holds id 100, must be below the vocabulary, 100"), "{}", ran.stderr);
    assert_eq!(run(&["--force-top-k", "0"]).code, Some(2));
}
