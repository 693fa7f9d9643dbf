//! `klero generate`: several texts at once, what is told of their tokens, guesses ahead; with models of a few kilobytes.

mod support;
#[path = "../../klero-models/tests/support/tiny.rs"]
#[allow(dead_code, reason = "made for the tests of models")]
mod tiny;

use serde_json::Value as Json;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use support::{Folder, Ran, command, klero, klero_reading};
use tiny::{Tiny, Value};

/// A model with room for a text, in a folder of its own.
fn model(name: &str) -> (Folder, String) {
    let folder = Folder::new(name);
    let mut tiny = Tiny::llama();
    tiny.set("llama.context_length", Value::U32(120));
    let model = folder.write("tiny.gguf", &tiny.bytes());
    (folder, model)
}

/// Printable characters only, so that a text is as long as its tokens: the ids of this vocabulary are bytes.
fn bans() -> Vec<String> {
    let odd = (0..32).chain(127..258).flat_map(|id| ["--ban".to_owned(), id.to_string()]);
    odd.collect()
}

fn generate(model: &str, args: &[&str]) -> Ran {
    let bans = bans();
    let bans: Vec<&str> = bans.iter().map(String::as_str).collect();
    let ran = klero(&[&["generate", "-m", model, "--temperature", "0.5"], args, &bans[..]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran
}

/// The seeds of the summary, in order.
fn seeds(ran: &Ran) -> Vec<&str> {
    ran.stderr.lines().filter_map(|line| Some(line.split_once(", seed ")?.1.split_once(':')?.0)).collect()
}

fn json(ran: &Ran) -> Vec<Json> {
    ran.stdout.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
}

#[test]
fn several_texts_are_printed_whole_one_after_the_other_as_they_are_alone() {
    let (_folder, model) = model("texts-several");
    let flags = ["--seed", "-3", "--max-tokens", "20", "--stop", "q"];
    let ran = generate(&model, &[&["-p", "one ", "-n", "3", "-p", "the second prompt "], &flags[..]].concat());
    let seeds = seeds(&ran);
    assert_eq!(seeds.len(), 6, "{}", ran.stderr);
    assert_eq!((seeds[0], &seeds[..3]), ("18446744073709551613", &seeds[3..]));
    let mut page = Vec::new();
    for (i, prompt) in ["one ", "the second prompt "].into_iter().enumerate() {
        for (j, seed) in seeds[..3].iter().enumerate() {
            let alone = generate(&model, &[&["-p", prompt], &flags[2..], &["--seed", seed]].concat());
            let heading = format!("== prompt {} of 2, sample {} of 3, seed {seed}\n", i + 1, j + 1);
            page.push(format!("{heading}{}", alone.stdout));
        }
    }
    assert_eq!(ran.stdout, page.join("\n"));
    // The prompts are read once, and told of once.
    assert!(ran.stderr.contains("\nprompt     22 tokens "), "{}", ran.stderr);
    let samples = generate(&model, &[&["-p", "one ", "-n", "2"], &flags[..]].concat());
    assert!(samples.stdout.starts_with("== sample 1 of 2, seed 18446744073709551613\none "), "{}", samples.stdout);
}

#[test]
fn a_prompt_may_stand_in_a_file_or_come_on_the_standard_input() {
    let (folder, model) = model("texts-files");
    let file = folder.write("prompt.txt", "line one\nlïne two\n".as_bytes());
    let flags = ["generate", "-m", &model, "--seed", "4", "--max-tokens", "6", "--ban", "256"];
    let told = |args: &[&str], stdin: &str| {
        let ran = klero_reading(&[&flags, args].concat(), stdin.as_bytes());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stdout
    };
    let alone = told(&["-p", "line one\nlïne two\n"], "");
    assert!(alone.starts_with("line one\nlïne two\n"));
    assert_eq!(told(&["--prompt-file", &file], ""), alone);
    assert_eq!(told(&["--prompt-file", "-"], "line one\nlïne two\n"), alone);
    let both = told(&["--prompt-file", "-", "--prompt-file", &file, "-p", "first"], "second");
    let begins: Vec<&str> = both.split("== prompt ").collect();
    assert!(begins[1].starts_with("1 of 3, seed 4\nfirst"), "{both}");
    assert!(begins[2].starts_with("2 of 3, seed 4\nsecond"), "{both}");
    assert!(begins[3].ends_with(&alone), "{both}");

    let latin = folder.write("latin.txt", b"caf\xe9");
    for (args, stdin, code, expected) in [
        (&["--prompt-file", "-"][..], "", 2, "error: the prompt is empty: there is no text in -"),
        (&["--prompt-file", "nowhere.txt"], "", 1, "error: cannot read nowhere.txt: "),
        (&["--prompt-file", &latin], "", 1, "latin.txt: stream did not contain valid UTF-8"),
        (&["-p", "a", "-p", ""], "", 2, "error: the prompt is empty: give some text with --prompt"),
        (&[], "", 2, "--prompt"),
        (&["-p", "a", "-p", &"b".repeat(121)], "", 1, "error: prompt 2: 121 tokens exceed the model's context of 120"),
        (&["-p", "a", "-n", "0"], "", 2, "-n"),
        (&["-p", "a", "-n", "1025"], "", 2, "1024"),
        (&["-p", "a", "--logprobs", "1001"], "", 2, "error: top_logprobs is 1001, must be 0..=1000"),
        (&["-p", "a", "--raw-logprobs"], "", 2, "--json"),
        (&["-p", "a", "--kept-ids", "--logprobs", "1"], "", 2, "--json"),
        (&["-p", "a", "--draft-tokens", "3"], "", 2, "--draft"),
        (&["-p", "a", "--draft", "ngram", "--draft-tokens", "0"], "", 2, "--draft-tokens"),
        (&["-p", "a", "--draft", "nowhere.gguf"], "", 1, "error: cannot read nowhere.gguf"),
    ] {
        let ran = klero_reading(&[&flags, args].concat(), stdin.as_bytes());
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains(expected) && ran.stdout.is_empty(), "{expected}: {ran:?}");
    }
}

/// The bytes of a JSON token.
fn bytes(token: &Json) -> Vec<u8> {
    token["bytes"].as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap() as u8).collect()
}

#[test]
fn json_lines_hold_every_token_and_agree_with_the_texts() {
    let (_folder, model) = model("texts-json");
    // Few tokens: the bytes of é and of €, beside a and q.
    let bias = [0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0x61, 0x71].map(|id: u32| format!("{id}=60"));
    let bias: Vec<&str> = bias.iter().flat_map(|bias| ["--logit-bias", bias.as_str()]).collect();
    let prompts = ["-p", "é and ", "-p", "€", "-n", "4", "--seed", "8", "--max-tokens", "30", "--stop", "aq"];
    let args = [&["generate", "-m", &model, "--temperature", "2"], &prompts[..], &bias[..]].concat();
    let page = klero(&args);
    let ran =
        klero(&[&args[..], &["--json", "--logprobs", "2", "--raw-logprobs", "--confidence", "--kept-ids"]].concat());
    assert_eq!((ran.code, page.code), (Some(0), Some(0)), "{}", ran.stderr);
    let lines = json(&ran);
    let (mut whole, mut stopped, mut split) = (Vec::new(), 0, 0);
    for prompt in 0..2 {
        for sample in 0..4 {
            let own: Vec<&Json> =
                lines.iter().filter(|line| line["prompt"] == prompt && line["sample"] == sample).collect();
            let (end, tokens) = own.split_last().unwrap();
            assert_eq!(end["tokens"], tokens.len());
            let written: String = tokens.iter().map(|token| token["text"].as_str().unwrap()).collect();
            let all: Vec<u8> = tokens.iter().flat_map(|token| bytes(token)).collect();
            assert!(String::from_utf8_lossy(&all).starts_with(&written));
            split += tokens.iter().filter(|token| token["text"] == "").count();
            let text = end["text"].as_str().unwrap();
            match end["ended"].as_str().unwrap() {
                "stop" => {
                    assert_eq!(format!("{text}aq"), written);
                    stopped += 1;
                }
                "length" => assert!(text == written && tokens.len() == 30),
                other => panic!("ended by {other}"),
            }
            for (i, token) in tokens.iter().enumerate() {
                assert_eq!(token["position"], [6 + 1, 3][prompt] + i);
                assert_eq!(bytes(token), [token["id"].as_u64().unwrap() as u8]);
                let (logprob, top) = (token["logprob"].as_f64().unwrap(), token["top_logprobs"].as_array().unwrap());
                assert!(logprob <= 0.0 && top.len() == 2 && top[0]["logprob"].as_f64().unwrap() >= logprob);
                assert!(top[0]["raw_logprob"].is_f64() && token["raw_logprob"].as_f64().unwrap() < logprob);
                assert_eq!(token["kept"], token["kept_ids"].as_array().unwrap().len());
                assert!(token["confidence"]["entropy"].as_f64().unwrap() > 0.0);
            }
            let (i, j, seed) = (prompt + 1, sample + 1, end["seed"].as_str().unwrap());
            let heading = format!("== prompt {i} of 2, sample {j} of 4, seed {seed}\n");
            whole.push(format!("{heading}{}{text}\n", ["é and ", "€"][prompt]));
        }
    }
    assert_eq!(page.stdout, whole.join("\n"));
    assert!(stopped > 0 && stopped < 8 && split > 20, "{stopped} stopped, {split} without text");
    // Texts grow together: the first tokens of all come before any second one.
    assert!(lines[..8].iter().all(|line| line["position"] == [7, 3][line["prompt"].as_u64().unwrap() as usize]));
    // What was not asked for is not told.
    let bare = json(&klero(&[&args[..], &["--json"]].concat()));
    let fields: Vec<&str> = bare[0].as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = ["prompt", "sample", "position", "id", "text", "bytes", "logprob", "kept"];
    expected.sort_unstable();
    assert_eq!(fields, expected);
}

#[test]
fn the_table_shows_each_token_with_the_best_in_its_place() {
    let (_folder, model) = model("texts-table");
    let args = ["-p", "ab", "--seed", "6", "--max-tokens", "5", "--top-k", "4"];
    let json: Vec<Json> = json(&generate(&model, &[&args[..], &["--logprobs", "6", "--json"]].concat()));
    let ran = generate(&model, &[&args[..], &["--logprobs", "6"]].concat());
    let (text, table) = ran.stdout.split_once("\n\n").unwrap();
    assert_eq!(text, format!("ab{}", json[5]["text"].as_str().unwrap()));
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["token", "logprob", "kept", "best"]);
    assert_eq!(lines.len(), 6);
    for (line, token) in lines[1..].iter().zip(&json) {
        let logprob = |of: &Json| format!("{:?} {:.4}", of["text"].as_str().unwrap(), of["logprob"].as_f64().unwrap());
        let best: Vec<String> = token["top_logprobs"].as_array().unwrap().iter().map(logprob).collect();
        assert_eq!(best.len(), 4, "no more than the filters left");
        let expected = format!("{} {} {}", logprob(token), token["kept"], best.join(" "));
        let squeezed = |text: &str| text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed(line), squeezed(&expected));
    }
    let alone = generate(&model, &[&args[..], &["--logprobs", "0", "--raw-logprobs", "--confidence"]].concat());
    let headings = ["token", "logprob", "raw", "kept", "entropy", "largest", "smaller"];
    assert_eq!(alone.stdout.lines().nth(2).unwrap().split_whitespace().collect::<Vec<_>>(), headings);
}

#[test]
fn what_holds_for_all_rows_holds_for_texts() {
    let (_folder, model) = model("texts-policy");
    let best = |flags: &[&str]| {
        let args = ["-p", "ab", "--seed", "6", "--max-tokens", "12", "--json", "--logprobs", "1"];
        json(&generate(&model, &[&args[..], flags].concat()))
    };
    let forced = best(&["--force-top-k", "1"]);
    let (_, tokens) = forced.split_last().unwrap();
    assert!(tokens.iter().all(|token| token["kept"] == 1 && token["id"] == token["top_logprobs"][0]["id"]));
    let first = tokens[0]["id"].to_string();
    assert_ne!(best(&["--force-top-k", "1", "--blacklist", &first])[0]["id"], tokens[0]["id"]);
    let ran = klero(&["generate", "-m", &model, "-p", "a", "--blacklist", "258"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("the blacklist holds id 258, must be below"), "{ran:?}");
}

#[test]
fn guesses_change_no_byte_and_are_told_of() {
    let (folder, model) = model("texts-drafts");
    let mut tiny = Tiny::llama();
    tiny.set("llama.context_length", Value::U32(50));
    tiny.tensor("output_norm.weight").data.iter_mut().skip(2).step_by(16).for_each(|byte| *byte ^= 0x20);
    let other = folder.write("other.gguf", &tiny.bytes());
    let args = ["-p", "abcabcabc", "-p", "xyz", "-n", "2", "--seed", "2", "--max-tokens", "60", "--logprobs", "1"];
    let args = [&args[..], &["--frequency-penalty", "0.1", "--top-p", "0.9", "--stop", "aaa"]].concat();
    let plain = generate(&model, &args);
    for draft in ["ngram", &other, &model] {
        let ran = generate(&model, &[&args[..], &["--draft", draft, "--draft-tokens", "3"]].concat());
        assert_eq!(ran.stdout, plain.stdout, "{draft}");
        let told = ran.stderr.lines().find(|line| line.starts_with("draft ")).unwrap();
        assert_eq!(told.contains("(100.0 %, "), draft == model, "{told}");
        assert!(told.contains(" accepted ") && told.ends_with(" tokens a step)"), "{told}");
    }
    assert!(!plain.stderr.contains("\ndraft "), "{}", plain.stderr);
    let rejection = ["--draft", &other, "--draft-verify", "rejection"];
    let ran = generate(&model, &[&args[..], &rejection].concat());
    assert_ne!(ran.stdout, plain.stdout);
    assert_eq!(ran.stdout, generate(&model, &[&args[..], &rejection].concat()).stdout, "a seed gives one text");

    tiny.metadata.iter_mut().filter(|(key, _)| key == "tokenizer.ggml.tokens").for_each(|(_, value)| {
        if let Value::Texts(tokens) = value {
            tokens.swap(65, 66);
        }
    });
    let foreign = folder.write("foreign.gguf", &tiny.bytes());
    let ran = klero(&["generate", "-m", &model, "-p", "a", "--draft", &foreign]);
    let expected = "error: token 65 of the draft model is \"B\", must be \"A\" as in the model\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), expected));
}

#[test]
fn a_text_that_fails_is_told_of_and_leaves_the_others_alone() {
    let (_folder, model) = model("texts-failing");
    // A token of the prompt fails if its logit is above 0: divided by the penalty, it is beyond f32.
    let prompts: Vec<String> = ('a'..='z').flat_map(|prompt| ["-p".to_owned(), prompt.to_string()]).collect();
    let prompts: Vec<&str> = prompts.iter().map(String::as_str).collect();
    let flags = ["--repetition-penalty", "1e-40", "--seed", "1", "--max-tokens", "1", "--ban", "256"];
    let args = [&["generate", "-m", &model], &flags[..], &prompts[..]].concat();
    let ran = klero(&[&args[..], &["--json"]].concat());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let ends: Vec<Json> = json(&ran).into_iter().filter(|line| line.get("ended").is_some()).collect();
    let (failed, whole): (Vec<&Json>, Vec<&Json>) = ends.iter().partition(|end| end["ended"] == "failed");
    assert!(failed.len() > 5 && whole.len() > 5 && ends.len() == 26, "{ends:?}");
    for end in failed {
        let name = format!("prompt {} of 26: position 1: row 0: ", end["prompt"].as_u64().unwrap() + 1);
        assert!(ran.stderr.contains(&name) && end["tokens"] == 0, "{}", ran.stderr);
        assert!(end["error"].as_str().unwrap().contains("infinite or overflows"), "{end}");
    }
    assert!(whole.iter().all(|end| end["ended"] == "length" && end["tokens"] == 1 && end.get("error").is_none()));
    let page = klero(&args);
    assert_eq!((page.code, page.stdout.matches("== prompt ").count()), (Some(1), 26));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_every_text() {
    let mut child = command(&["generate", "-p", "One", "-p", "Two", "--max-tokens", "2000", "--json", "--seed", "5"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    out.read_line(&mut text).unwrap();
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    out.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let lines: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ends = &lines[lines.len() - 2..];
    for (prompt, end) in ends.iter().enumerate() {
        let own = lines.iter().filter(|line| line["prompt"] == prompt && line.get("id").is_some()).count();
        assert_eq!(
            (&end["prompt"], &end["ended"], &end["tokens"]),
            (&prompt.into(), &"interrupted".into(), &own.into())
        );
    }
}
