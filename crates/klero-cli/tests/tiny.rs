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

/// What `klero generate` writes after a prompt.
fn written(model: &str, prompt: &str, flags: &[&str]) -> String {
    let ran = klero(&[&["generate", "-m", model, "-p", prompt, "--temperature", "0"], flags].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.stdout.trim_end().strip_prefix(prompt).expect("the prompt is written first").to_owned()
}

#[test]
fn biases_bans_and_penalties_change_the_text_as_it_grows() {
    let folder = Folder::new("tiny-edits");
    let model = folder.write("tiny.gguf", &Tiny::llama().bytes());
    let six = |prompt: &str, flags: &[&str]| written(&model, prompt, &[&["--max-tokens", "6"], flags].concat());
    // The ids of this vocabulary are bytes: A is 65. Its own logits are small beside these biases.
    let biased = ["--logit-bias", "65=500", "--logit-bias", "66=450", "--logit-bias", "67=-1e4"];
    let with = |flags: &[&str]| six("x", &[&biased[..], flags].concat());
    assert_eq!(with(&[]), "AAAAAA");
    assert_eq!(with(&["--ban", "65"]), "BBBBBB");
    // What was written counts, each time it was.
    assert_eq!(with(&["--frequency-penalty", "100"]), "ABABAB");
    assert_eq!(with(&["--presence-penalty", "100"]), "ABAAAA");
    assert_eq!(with(&["--presence-penalty", "-100", "--ban", "65"]), "BBBBBB");
    // The prompt counts for the repetition penalty alone.
    let explain = |flags: &[&str]| {
        let args = ["explain", "-m", &model, "-p", "A", "--temperature", "0", "--shown", "300"];
        let ran = klero(&[&args, flags].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        ran.stdout
    };
    assert_eq!(explain(&["--frequency-penalty", "0.5"]).matches("logit was").count(), 0);
    let repeated = explain(&["--repetition-penalty", "2"]);
    let edited: Vec<&str> = repeated.lines().filter(|line| line.contains("logit was")).collect();
    assert!(matches!(edited[..], [line] if line.contains(" \"A\" ")), "{repeated}");
    assert!(repeated.contains("repetition_penalty 2"), "{repeated}");
}

#[test]
fn explain_shows_the_token_that_generate_writes_under_the_same_flags() {
    let folder = Folder::new("tiny-explain");
    let model = folder.write("tiny.gguf", &Tiny::llama().bytes());
    let edits = ["--logit-bias", "97=40", "--logit-bias", "98=39.5", "--ban", "99", "--repetition-penalty", "1.2"];
    for seed in ["1", "2", "3", "4"] {
        let flags = [&edits[..], &["--filter-order", "min_p_first", "--top-p", "0.99", "--seed", seed]].concat();
        let wrote = klero(&[&["generate", "-m", &model, "-p", "a", "--max-tokens", "1"], &flags[..]].concat()).stdout;
        let token = wrote.trim_end().strip_prefix('a').unwrap();
        let page = klero(&[&["explain", "-m", &model, "-p", "a"], &flags[..]].concat()).stdout;
        assert!(page.contains(&format!("Drawn: \"{token}\", token ")), "{token}: {page}");
        assert!(page.contains("\ntoken 97 +40, token 98 +39.5, token 99 banned\n"), "{page}");
        assert!(page.contains("min_p first") && page.contains("Of 257 possible tokens"), "{page}");
    }
}

#[test]
fn edits_that_make_no_sense_are_refused() {
    let folder = Folder::new("tiny-refused");
    let model = folder.write("tiny.gguf", &Tiny::llama().bytes());
    for command in ["generate", "explain"] {
        for (flags, code, expected) in [
            (&["--ban", "-1"][..], 2, "an id is -1, must be an integer in 0..=1048575"),
            (&["--ban", "x"], 2, "an id is x, must be"),
            (&["--ban", "2147483648"], 2, "an id is 2147483648, must be"),
            (&["--ban", "258"], 1, "banned holds id 258, must be below 258"),
            (&["--logit-bias", "258=1"], 1, "logit_bias holds id 258, must be below 258"),
            (&["--logit-bias", "5"], 2, "logit_bias is 5, must be an id, =, and a number"),
            (&["--logit-bias", "-5=1"], 2, "an id is -5, must be"),
            (&["--logit-bias", "5=much"], 2, "logit_bias is 5=much, must be"),
            (&["--logit-bias", "5=nan"], 2, "logit_bias is NaN for id 5, must be a finite number"),
            (&["--logit-bias", "5=1", "--logit-bias", "5=2"], 2, "must be given once for each id"),
            (&["--repetition-penalty", "0"], 2, "repetition_penalty is 0, must be a finite number above 0"),
            (&["--frequency-penalty", "inf"], 2, "frequency_penalty is inf, must be a finite number"),
            (&["--presence-penalty=-inf"], 2, "presence_penalty is -inf, must be a finite number"),
            (&["--filter-order", "top_k_first"], 2, "top_k_first"),
        ] {
            let ran = klero(&[&[command, "-m", &model, "-p", "a"], flags].concat());
            assert_eq!(ran.code, Some(code), "{ran:?}");
            assert!(ran.stderr.contains(expected), "{ran:?}");
        }
    }
}
