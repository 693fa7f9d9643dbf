//! `klero tokenize`, with the default model and with one whose tokens are single bytes.

mod support;
#[path = "../../klero-models/tests/support/tiny.rs"]
#[allow(dead_code, reason = "made for the tests of models")]
mod tiny;

use serde_json::{Value, json};
use support::{Folder, Ran, klero, klero_reading};
use tiny::Tiny;

fn tokenize(args: &[&str]) -> Ran {
    let ran = klero(&[&["tokenize"], args].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran
}

#[test]
fn tokens_are_listed_with_position_id_and_text() {
    let ran = tokenize(&["-p", "The quick brown fox 🦀"]);
    assert_eq!(ran.stderr, "7 tokens\n");
    assert_eq!(ran.stdout, LISTED);
}

const LISTED: &str = "\
0    504  \"The\"
1   2365  \" quick\"
2   6354  \" brown\"
3  16438  \" fox\"
4  15107  \" \\xf0\\x9f\"  bytes 20 f0 9f
5    116  \"\\xa6\"  bytes a6
6    218  \"\\x80\"  bytes 80
";

#[test]
fn a_control_token_is_marked_and_only_found_on_demand() {
    let control = tokenize(&["--control", "-p", "<|im_start|>a"]);
    assert_eq!(control.stdout, "0   1  \"<|im_start|>\"  control\n1  81  \"a\"\n");
    assert_eq!(control.stderr, "2 tokens\n");
    let text = tokenize(&["-p", "<|im_start|>a"]).stdout;
    assert!(text.lines().count() > 2 && !text.contains("control"), "{text}");
    assert_eq!(tokenize(&["--control", "--decode", "1,81"]).stdout, "<|im_start|>a\n");
    assert_eq!(tokenize(&["--decode", "1,81"]).stdout, "a\n");
}

#[test]
fn a_text_comes_the_same_from_a_flag_a_file_and_the_standard_input() {
    let folder = Folder::new("tokenize-sources");
    let text = "two\nlines, né\r\n";
    let file = folder.write("text", text.as_bytes());
    let ids = tokenize(&["--ids", "-p", text]).stdout;
    assert!(ids.lines().count() == 1 && ids.trim_end().split(' ').all(|id| id.parse::<u32>().is_ok()), "{ids}");
    assert_eq!(tokenize(&["--ids", "--file", &file]).stdout, ids);
    for args in [&["tokenize", "--ids"][..], &["tokenize", "--ids", "--file", "-"]] {
        assert_eq!(klero_reading(args, text.as_bytes()).stdout, ids);
    }
    // Back again, with commas and with spaces.
    let ids: Vec<&str> = ids.split_whitespace().collect();
    assert_eq!(tokenize(&["--decode", &ids.join(",")]).stdout, format!("{text}\n"));
    let ran = tokenize(&[&["--decode"], &ids[..]].concat());
    assert_eq!((ran.stdout, ran.stderr), (format!("{text}\n"), format!("{} tokens\n", ids.len())));
}

#[test]
fn json_tells_what_lines_tell() {
    let parse = |ran: Ran| serde_json::from_str::<Value>(&ran.stdout).unwrap();
    let args = ["-p", "Hi 🦀<|im_end|>", "--control"];
    let told = parse(tokenize(&[&args[..], &["--json"]].concat()));
    let listed = tokenize(&args).stdout;
    let tokens = told["tokens"].as_array().unwrap();
    assert_eq!((tokens.len(), told["count"].as_u64()), (listed.lines().count(), Some(tokens.len() as u64)));
    for (i, (token, line)) in tokens.iter().zip(listed.lines()).enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..2], [i.to_string(), token["id"].to_string()]);
        assert_eq!(token["position"], i);
        assert_eq!(token["control"] == true, words.last() == Some(&"control"), "{line}");
        assert_eq!(token["text"].is_null(), line.contains("  bytes "), "{line}");
        assert_eq!(token["text"].is_null(), token["bytes"].is_array(), "{token}");
    }
    assert!(tokens.iter().any(|token| token["bytes"].is_array()), "the crab is spread over tokens: {listed}");
    assert_eq!(
        tokens.last().unwrap(),
        &json!({"position": tokens.len() - 1, "id": 2, "text": "<|im_end|>", "control": true})
    );
    let (whole, part): (Vec<_>, Vec<_>) = tokens.iter().partition(|token| token["text"].is_string());
    let decode = |tokens: &[&Value]| {
        let ids: Vec<String> = tokens.iter().map(|token| token["id"].to_string()).collect();
        parse(tokenize(&["--json", "--decode", &ids.join(",")]))
    };
    assert_eq!(decode(&whole), json!({"text": "Hi"}));
    assert_eq!(decode(&part[..1]), json!({"text": null, "bytes": part[0]["bytes"]}));
    assert_eq!(decode(&tokens.iter().collect::<Vec<_>>()), json!({"text": "Hi 🦀"}));
}

#[test]
fn the_token_that_begins_a_text_is_put_there_where_the_model_expects_it() {
    let folder = Folder::new("tokenize-bos");
    let mut tiny = Tiny::llama();
    tiny.set("tokenizer.ggml.bos_token_id", tiny::Value::U32(257));
    let silent = folder.write("silent.gguf", &tiny.bytes());
    tiny.set("tokenizer.ggml.add_bos_token", tiny::Value::Raw(7, vec![1]));
    let model = folder.write("bos.gguf", &tiny.bytes());
    assert_eq!(tokenize(&["-m", &silent, "--ids", "-p", "ab"]).stdout, "97 98\n");
    assert_eq!(tokenize(&["-m", &model, "--ids", "-p", "ab"]).stdout, "257 97 98\n");
    assert_eq!(tokenize(&["-m", &model, "--ids", "-p", "ab", "--no-bos"]).stdout, "97 98\n");
    // Not twice, and before nothing too.
    assert_eq!(tokenize(&["-m", &model, "--ids", "--control", "-p", "<|im_start|>a"]).stdout, "257 97\n");
    assert_eq!(tokenize(&["-m", &model, "--ids", "-p", ""]).stdout, "257\n");
    let none = tokenize(&["-m", &model, "-p", "", "--no-bos"]);
    assert_eq!((none.stdout.as_str(), none.stderr.as_str()), ("", "0 tokens\n"));
}

#[test]
fn bytes_that_are_no_text_show() {
    let folder = Folder::new("tokenize-bytes");
    let model = folder.write("tiny.gguf", &Tiny::llama().bytes());
    let ran = tokenize(&["-m", &model, "-p", "é\n"]);
    assert_eq!(ran.stdout, "0  195  \"\\xc3\"  bytes c3\n1  169  \"\\xa9\"  bytes a9\n2   10  \"\\n\"\n");
    assert_eq!(tokenize(&["-m", &model, "--decode", "195,169"]).stdout, "é\n");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = Folder::new("tokenize-refused");
    let model = folder.write("tiny.gguf", &Tiny::llama().bytes());
    let bytes = folder.write("bytes", b"ab\xff");
    for (args, code, expected) in [
        (&["--decode", "97,258"][..], 1, "error: token 258 is outside the vocabulary of 258 ids"),
        (&["--decode", "-1"], 2, "an id is -1, must be an integer in 0..=1048575"),
        (&["--decode", "5,x"], 2, "an id is x, must be"),
        (&["--decode", "5,,6"], 2, "an id is , must be"),
        (&["--decode", ""], 2, "an id is , must be"),
        (&["--decode", "5", "-p", "a"], 2, "cannot be used with"),
        (&["--decode", "5", "--no-bos"], 2, "cannot be used with"),
        (&["-p", "a", "--file", "b"], 2, "cannot be used with"),
        (&["-p", "a", "--ids", "--json"], 2, "cannot be used with"),
        (&["--file", "nowhere"], 1, "error: cannot read nowhere: "),
        (&["--file", &bytes], 1, "is not a text: byte 2, 0xff, is not UTF-8"),
    ] {
        let ran = klero(&[&["tokenize", "-m", &model], args].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{ran:?}");
    }
    let ran = klero(&["tokenize", "-p", "a", "-m", "nowhere.gguf"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("error: cannot read nowhere.gguf"), "{ran:?}");
}
