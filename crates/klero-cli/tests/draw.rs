//! `klero draw` beyond the golden data: requests of every kind, good and bad.

mod support;

use half::{bf16, f16};
use klero::{BlockQ4K, BlockQ6K, BlockQ8_0, FusedHead, Weights};
use safetensors::Dtype;
use serde_json::{Value, json};
use support::{Folder, Tensor, bare, draw, draw_lines, klero, noise, replies, safetensors};

#[test]
fn bad_lines_are_reported_with_their_number_and_the_others_still_run() {
    let tensors = [
        Tensor::f32("a", &[4], &[0.0, 1.0, 2.0, 3.0]),
        Tensor::f32("m", &[2, 4], &noise(8, 1)),
        Tensor { name: "ints".into(), dtype: Dtype::I16, shape: vec![4], bytes: vec![0; 8] },
        Tensor::f32("cube", &[1, 2, 2], &noise(4, 1)),
    ];
    let good = r#"{"logits":"a","seed":1,"position":0}"#;
    let bad = [
        ("{\"logits\":", "EOF while parsing a value at column 10"),
        (r#"{"logits":"a","seed":1}"#, "missing field `position`"),
        (r#"{"logits":"a","position":0,"top_k":0}"#, "top_k is 0, must be −1 (off)"),
        (r#"{"logits":"a","position":0,"temprature":0}"#, "unknown field `temprature`"),
        (r#"{"logits":"b","position":0}"#, "tensor `b` not found"),
        (r#"{"logits":"ints","position":0}"#, "tensor `ints` is I16, must be F32, F16 or BF16"),
        (r#"{"logits":"m","position":0}"#, "tensor `m` has shape [2, 4]: give `row`"),
        (r#"{"logits":"m","row":2,"position":0}"#, "row is 2, must be below 2"),
        (r#"{"logits":"a","row":0,"position":0}"#, "must be [rows, n] for a `row`"),
        (r#"{"logits":"cube","position":0}"#, "tensor `cube` has shape [1, 2, 2]"),
        (r#"{"logits":"a","position":0,"vocabulary":5}"#, "vocabulary is 5, must be at most 4"),
        (r#"{"hidden":"a","weights":"a","position":0}"#, "tensor `a` has shape [4], must be [V, D]"),
        (r#"{"hidden":"a","weights":"ints","position":0}"#, "tensor `ints` has shape [4], must be [V, D]"),
        (
            r#"{"logits":"a","position":0,"verify":{"draft_token":4,"draft_logprobs":"a"}}"#,
            "draft_token is 4, must be −1 (none) or an id below 4",
        ),
    ];
    let mut lines = format!("{good}\n\n");
    for (line, _) in &bad {
        lines += &format!("{line}\n  \n{good}\r\n");
    }
    let ran = draw_lines("bad-lines", &tensors, lines.as_bytes(), &[]);
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
    let ran = draw("statuses", &tensors, &requests, &[]);
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
    let padded = draw("padded", &tensors, &[json!({"logits": "infinite", "position": 3, "vocabulary": 3})], &[]);
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
    let ran = draw("fused", &tensors, &requests, &[]);
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
    let ran = draw("misfits", &tensors, &requests, &[]);
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
    let replies = replies(&draw("seeds", &tensors, &requests, &[]));
    for reply in &replies {
        assert_eq!(reply["seed"], "18446744073709551615");
        assert_eq!(bare(reply.clone()), replies[0]);
        assert_eq!(reply["raw_logprob"], reply["logprob"], "nothing was processed");
    }
    let ran = draw("seeds-random", &tensors, &[requests[0].clone(), json!({"logits": "a", "position": 5})], &[]);
    let again = json!({"logits": "a", "position": 5, "seed": self::replies(&ran)[1]["seed"]});
    let replayed = draw("seeds-again", &tensors, &[again], &[]);
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
    let replies = replies(&draw("blocks", &tensors, &requests, &[]));
    assert_eq!(bare(replies[0].clone()), bare(replies[1].clone()));
    assert_eq!(bare(replies[2].clone()), bare(replies[3].clone()));
    assert!(
        replies[4]["error"].as_str().unwrap().contains("rows of 210 bytes, must be blocks of 176"),
        "{}",
        replies[4]
    );
}
