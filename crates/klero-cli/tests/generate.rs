//! `klero generate`, and `klero explain` from a prompt, with the default model.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use support::{Ran, command, klero};

const PROMPT: &str = "The quick brown fox";

/// Generates from [`PROMPT`]. Without the model the command fails, and its message says how to fetch it.
fn generate(args: &[&str]) -> Ran {
    let ran = klero(&[&["generate", "-p", PROMPT], args].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran
}

/// The line of the summary that begins with `name`.
fn summary<'r>(ran: &'r Ran, name: &str) -> &'r str {
    let line = ran.stderr.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name} in {}", ran.stderr)).trim()
}

#[test]
fn a_seed_gives_one_text_at_any_number_of_threads_and_another_seed_another() {
    let one = generate(&["--seed", "7", "--max-tokens", "24", "--threads", "1"]);
    let two = generate(&["--seed", "7", "--max-tokens", "24", "--threads", "2"]);
    assert_eq!(one.stdout, two.stdout);
    assert!(one.stdout.starts_with(PROMPT) && one.stdout.len() > PROMPT.len() + 20, "{}", one.stdout);
    assert!(one.stdout.ends_with('\n'));
    assert_eq!((summary(&one, "seed"), summary(&one, "ended")), ("7", "as long as asked for (--max-tokens)"));
    assert!(summary(&one, "text").starts_with("24 tokens") && summary(&one, "text").contains("head"));
    let other = generate(&["--seed", "-7", "--max-tokens", "24"]);
    assert_eq!(summary(&other, "seed"), (-7i64 as u64).to_string());
    assert_ne!(other.stdout, one.stdout);
    // A shorter text is the beginning of a longer one.
    let shorter = generate(&["--seed", "7", "--max-tokens", "10"]);
    assert!(one.stdout.starts_with(shorter.stdout.trim_end_matches('\n')));
}

#[test]
fn a_random_seed_is_told_and_repeats_the_text() {
    let first = generate(&["--max-tokens", "8"]);
    let again = generate(&["--max-tokens", "8", "--seed", summary(&first, "seed")]);
    assert_eq!(first.stdout, again.stdout);
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let whole = generate(&["--temperature", "0", "--max-tokens", "24"]).stdout;
    let written = whole.trim_end_matches('\n').strip_prefix(PROMPT).unwrap();
    // From the middle of one word into the next, so that it spans tokens.
    let middle = written.char_indices().nth(written.chars().count() / 2).unwrap().0;
    let stop: String = written[middle..].chars().take(7).collect();
    let ran = generate(&["--temperature", "0", "--max-tokens", "24", "--stop", "not to be found", "--stop", &stop]);
    let expected = format!("{PROMPT}{}", &written[..written.find(&stop).unwrap()]);
    assert_eq!(ran.stdout.trim_end_matches('\n'), expected.trim_end_matches('\n'));
    assert_eq!(summary(&ran, "ended"), "stop string");
}

#[test]
fn characters_that_are_spread_over_tokens_come_whole() {
    let text = |tokens: usize| {
        let tokens = tokens.to_string();
        let args =
            ["generate", "-p", "日本語のテキスト：", "--temperature", "0.5", "--seed", "3", "--max-tokens", &tokens];
        // The output is read as UTF-8, so half a character would fail here.
        klero(&args).stdout.trim_end().to_owned()
    };
    let texts: Vec<String> = (1..=8).map(text).collect();
    let waiting = texts.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert!(waiting > 0 && waiting < 7, "{texts:?}");
    for pair in texts.windows(2) {
        assert!(pair[1].starts_with(&pair[0]) && !pair[1].contains(char::REPLACEMENT_CHARACTER), "{pair:?}");
    }
}

#[test]
fn explain_shows_the_token_that_generate_writes() {
    for (draw, seed) in [("gumbel", "11"), ("inverse_cdf", "12")] {
        let flags = ["--temperature", "0.9", "--top-k", "40", "--draw", draw, "--seed", seed];
        let written = generate(&[&flags[..], &["--max-tokens", "1"]].concat()).stdout;
        let token = written.trim_end_matches('\n').strip_prefix(PROMPT).unwrap();
        let ran = klero(&[&["explain", "-p", PROMPT], &flags[..]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stdout.contains(&format!("Drawn: {token:?}, token ")), "{token:?}: {}", ran.stdout);
        assert!(ran.stdout.contains(&format!("seed {seed}, position 4: hash ")), "{}", ran.stdout);
    }
}

#[test]
fn a_reader_that_leaves_ends_it_quietly() {
    let mut child = command(&["generate", "-p", "One\n", "--max-tokens", "2000", "--seed", "5"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "One\n");
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));
}

#[cfg(unix)]
#[test]
fn ctrl_c_finishes_the_line_and_sums_up() {
    let mut child = command(&["generate", "-p", "One\n", "--max-tokens", "2000", "--seed", "5"])
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
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{stderr}");
    assert!(
        text.ends_with('\n') && stderr.contains("seed    5\n") && stderr.contains("ended   interrupted"),
        "{stderr}"
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let prompt = "a,b ".repeat(4000);
    for (args, code, expected) in [
        (&["-p", ""][..], 2, "error: the prompt is empty: give some text with --prompt"),
        (&["-p", "x", "--top-k", "0"], 2, "error: top_k is 0, must be −1 (off)"),
        (&["-p", "x", "--temperature", "-1"], 2, "error: temperature is -1"),
        (&["-p", "x", "--stop", ""], 2, "--stop"),
        (&["-p", "x", "--threads", "0"], 2, "--threads"),
        (&["-p", "x", "-m", "nowhere.gguf"], 1, "error: cannot read nowhere.gguf"),
        (&["-p", &prompt], 1, "exceed the model's context of 8192"),
    ] {
        let ran = klero(&[&["generate"], args].concat());
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{ran:?}");
    }
    let ran = command(&["generate", "-p", "x"]).env("KLERO_CACHE", "/nowhere").output().unwrap();
    let stderr = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.code() == Some(1) && stderr.contains("./demo") && stderr.contains("scripts/fetch-model"));
}
