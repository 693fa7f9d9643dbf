//! `klero generate` with a model of a few kilobytes whose tokens are single bytes: every end a text can come to.

mod support;
#[path = "../../klero-models/tests/support/tiny.rs"]
#[allow(dead_code, reason = "made for the tests of models")]
mod tiny;

use support::{Folder, klero};
use tiny::Tiny;

#[test]
fn a_full_context_ends_the_text_and_an_end_token_too() {
    let folder = Folder::new("tiny");
    let model = folder.write("tiny.gguf", &Tiny::llama().bytes());
    let mut ends = [0; 2];
    for seed in 0..60 {
        let seed = seed.to_string();
        // Bytes drawn at random are rarely text; what comes out must be, or reading it would fail.
        let ran = klero(&["generate", "-m", &model, "-p", "é!", "--seed", &seed, "--temperature", "2"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stdout.starts_with("é!") && ran.stdout.ends_with('\n'), "{}", ran.stdout);
        let told = |line: &str| ran.stderr.contains(line);
        match told("ended   the model's context of 12 tokens is full\n") {
            // Positions 3 to 12: the last token is drawn, and has no place to be read.
            true => assert!(told("text       10 tokens"), "{}", ran.stderr),
            false => assert!(told("ended   end of the text\n"), "{}", ran.stderr),
        }
        ends[usize::from(told("end of the text"))] += 1;
    }
    assert!(ends[0] > 0 && ends[1] > 0, "{ends:?}");
}

#[test]
fn a_prompt_may_fill_the_context_but_not_more() {
    let folder = Folder::new("tiny-prompt");
    let model = folder.write("tiny.gguf", &Tiny::llama().bytes());
    let full = klero(&["generate", "-m", &model, "-p", "twelve bytes", "--seed", "1"]);
    assert!(full.code == Some(0) && full.stderr.contains("context of 12 tokens is full"), "{}", full.stderr);
    let more = klero(&["generate", "-m", &model, "-p", "thirteen byte", "--seed", "1"]);
    assert_eq!((more.code, more.stdout.as_str()), (Some(1), ""));
    assert_eq!(more.stderr, "error: 13 tokens exceed the model's context of 12\n");
}

#[test]
fn control_tokens_are_text_unless_asked_for() {
    let folder = Folder::new("tiny-control");
    let model = folder.write("tiny.gguf", &Tiny::llama().bytes());
    let prompt = ["-m", &model, "-p", "<|im_start|>a"];
    let text = klero(&[&["explain"], &prompt[..]].concat());
    assert!(text.code == Some(1) && text.stderr.contains("13 tokens exceed"), "{text:?}");
    let control = klero(&[&["explain", "--control"], &prompt[..]].concat());
    assert!(control.code == Some(0) && control.stdout.contains("position 2: hash "), "{control:?}");
}
