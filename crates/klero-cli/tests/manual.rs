//! `klero completions` and `klero man`.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use support::{Folder, klero};

/// What `klero` or one of its commands says with `--help`.
fn help(command: &[&str]) -> String {
    let ran = klero(&[command, &["--help"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.stdout
}

/// The names of all commands, as `--help` lists them.
fn commands() -> Vec<String> {
    let help = help(&[]);
    let list = help.split("Commands:\n").nth(1).expect("a list of commands").split("\n\n").next().unwrap();
    let commands: Vec<String> =
        list.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next().map(str::to_owned)).collect();
    assert!(["generate", "doctor", "help"].iter().all(|name| commands.iter().any(|found| found == name)), "{help}");
    commands.into_iter().filter(|name| name != "help").collect()
}

/// The long flags that a text names.
fn flags(text: &str) -> BTreeSet<String> {
    let name = |rest: &str| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect::<String>();
    text.split("--").skip(1).map(name).filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase())).collect()
}

/// Runs a program on something to read; None, and a word of it, if it is not installed.
fn run(program: &str, args: &[&str], stdin: &[u8]) -> Option<(bool, String)> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).env("LC_ALL", "C.UTF-8");
    let Ok(mut child) = command.spawn() else {
        println!("skipped: {program} is not installed");
        return None;
    };
    let mut pipe = child.stdin.take().unwrap();
    let stdin = stdin.to_vec();
    let writer = std::thread::spawn(move || pipe.write_all(&stdin));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8(text).unwrap()))
}

#[test]
fn completions_know_every_command_and_flag() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = klero(&["completions", shell]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{shell}");
        for command in commands() {
            assert!(ran.stdout.contains(&command), "{command} in {shell}");
            for flag in flags(help(&[&command]).split("\n\nExamples:").next().unwrap()) {
                assert!(ran.stdout.contains(&flag), "--{flag} of {command} in {shell}");
            }
        }
    }
}

#[test]
fn shells_accept_their_scripts() {
    for shell in ["bash", "zsh", "fish"] {
        let script = klero(&["completions", shell]).stdout;
        let Some((accepted, said)) = run(shell, &["-n"], script.as_bytes()) else { continue };
        assert!(accepted && said.is_empty(), "{shell}: {said}");
    }
}

#[test]
fn bash_completes_commands_flags_and_values() {
    let script = klero(&["completions", "bash"]).stdout;
    for (line, expected) in [
        (&["klero", "ex"][..], &["explain"][..]),
        (&["klero", "tokenize", "--js"], &["--json"]),
        (&["klero", "generate", "--draw", ""], &["gumbel", "inverse_cdf"]),
        (&["klero", "completions", "z"], &["zsh"]),
    ] {
        let words: String = line.iter().map(|word| format!("'{word}' ")).collect();
        let (last, before) = (line[line.len() - 1], line[line.len() - 2]);
        let ask = format!(
            "{script}\nCOMP_WORDS=({words}) COMP_CWORD={}\n_klero klero '{last}' '{before}'\necho \"${{COMPREPLY[@]}}\"",
            line.len() - 1
        );
        let Some((accepted, said)) = run("bash", &[], ask.as_bytes()) else { return };
        assert!(accepted, "{said}");
        assert_eq!(said.split_whitespace().collect::<Vec<_>>(), expected, "{line:?}");
    }
}

#[test]
fn there_is_a_page_for_every_command_and_it_names_every_flag() {
    let folder = Folder::new("man");
    let dir = folder.path("share/man1");
    assert_eq!(klero(&["man", "--dir", &dir]).code, Some(0));
    let mut expected: BTreeSet<String> = commands().iter().map(|name| format!("klero-{name}.1")).collect();
    expected.insert("klero.1".to_owned());
    let found: BTreeSet<String> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, expected);
    let main = klero(&["man"]);
    assert_eq!((main.code, main.stderr.as_str()), (Some(0), ""));
    assert_eq!(main.stdout, fs::read_to_string(format!("{dir}/klero.1")).unwrap());

    for file in found {
        let page = fs::read(format!("{dir}/{file}")).unwrap();
        let Some((rendered, text)) = run("groff", &["-man", "-Tutf8", "-P-cbou", "-ww", "-rLL=100n"], &page) else {
            return;
        };
        assert!(rendered && !text.contains("warning") && !text.contains("error:"), "{file}: {text}");
        assert!(text.contains(concat!("klero ", env!("CARGO_PKG_VERSION"))), "{file}: {text}");
        // A dash for options is a plain one, so that it can be searched and copied.
        let name: Vec<&str> = file.strip_suffix(".1").unwrap().split('-').skip(1).collect();
        let help = help(&name);
        let missing: Vec<String> = flags(&help).difference(&flags(&text)).cloned().collect();
        assert!(missing.is_empty(), "{file} lacks {missing:?}: {text}");
        // Examples stand line by line, as they would be typed.
        let after = help.split("\nExamples:\n").nth(1).unwrap_or_default();
        for line in after.lines() {
            assert!(text.lines().any(|found| found.trim() == line.trim()), "{file} lacks {line:?}: {text}");
        }
    }
}

#[test]
fn man_shows_a_page() {
    let page = klero(&["man"]).stdout;
    let Some((shown, text)) = run("man", &["-l", "-"], page.as_bytes()) else { return };
    assert!(shown && text.contains("NAME") && text.contains("klero-generate(1)"), "{text}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = Folder::new("man-refused");
    let file = folder.write("file", b"");
    for (args, code, expected) in [
        (&["completions"][..], 2, "<SHELL>"),
        (&["completions", "tcsh"], 2, "possible values: bash"),
        (&["man", "--dir", &file], 1, "error: cannot write "),
    ] {
        let ran = klero(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{ran:?}");
    }
}
