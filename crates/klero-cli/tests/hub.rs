//! `--model OWNER/NAME`, with a hub on this machine.
#![cfg(feature = "hub")]

#[path = "../../klero-models/tests/support/mock.rs"]
#[allow(dead_code, reason = "made for the tests of models")]
mod mock;
mod support;
#[path = "../../klero-models/tests/support/tiny.rs"]
#[allow(dead_code, reason = "made for the tests of models")]
mod tiny;

use mock::{Mock, Reply};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{Folder, Ran, command};
use tiny::Tiny;

fn model() -> Vec<u8> {
    Tiny::llama().bytes()
}

fn hub() -> Mock {
    Mock::new(&[("tiny.gguf", model())])
}

/// The command in an environment with this hub and this home, and nothing else of Hugging Face.
fn with_hub(mock: &Mock, home: &Folder, args: &[&str]) -> Command {
    let mut command = command(args);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().to_uppercase();
        if text.starts_with("HF_") || text.starts_with("HUGGINGFACE") || text.ends_with("_PROXY") {
            command.env_remove(&name);
        }
    }
    command.env("HF_ENDPOINT", mock.url()).env("HF_HOME", home.path("home"));
    command
}

fn generate(mock: &Mock, home: &Folder, model: &str) -> Ran {
    ran(with_hub(mock, home, &arguments(model)))
}

fn ran(command: Command) -> Ran {
    support::run(command, b"")
}

fn arguments(model: &str) -> [&str; 7] {
    ["generate", "-m", model, "-p", "abc", "--seed", "5"]
}

#[test]
fn a_model_is_fetched_by_its_id_and_then_is_there() {
    let (mock, home) = (hub(), Folder::new("hub"));
    let from_file = generate(&mock, &home, &home.write("tiny.gguf", &model()));
    assert_eq!(from_file.code, Some(0), "{}", from_file.stderr);
    let fetched = generate(&mock, &home, "owner/tiny");
    assert_eq!((fetched.code, &fetched.stdout), (Some(0), &from_file.stdout), "{}", fetched.stderr);
    let line = fetched.stderr.lines().next().unwrap();
    assert!(line.starts_with("fetching tiny.gguf (") && line.ends_with("KiB)"), "{}", fetched.stderr);
    assert!(!fetched.stderr.contains('\x1b') && !fetched.stderr.contains('\r'), "{:?}", fetched.stderr);

    let asked = mock.requests("GET", "/").len();
    let explain = with_hub(&mock, &home, &["explain", "-m", "owner/tiny:tiny", "-p", "abc", "--seed", "5"]);
    let explained = ran(explain);
    assert!(explained.stdout.starts_with("owner/tiny:tiny after \"abc\"\n"), "{}", explained.stdout);
    let drafted = ran(with_hub(&mock, &home, &[&arguments("owner/tiny")[..], &["--draft", "owner/tiny"]].concat()));
    assert_eq!((drafted.code, &drafted.stdout), (Some(0), &from_file.stdout), "{}", drafted.stderr);
    assert_eq!(mock.requests("GET", "/").len(), asked);
    let tokens = with_hub(&mock, &home, &["tokenize", "-m", "owner/tiny", "-p", "abc"]);
    drop(mock);
    assert_eq!(ran(tokens).code, Some(0));
}

#[test]
fn a_path_that_exists_is_no_id() {
    let (mock, home) = (hub(), Folder::new("hub-path"));
    fs::create_dir_all(home.path("owner")).unwrap();
    home.write("owner/tiny", &model());
    let mut command = with_hub(&mock, &home, &arguments("owner/tiny"));
    command.current_dir(home.path(""));
    assert_eq!(ran(command).code, Some(0));
    // Nor is what ends like a file, or has too many parts.
    for missing in ["owner/missing.gguf", "/no/such/file", "no-such-file", "./owner/x"] {
        let ran = generate(&mock, &home, missing);
        assert!(ran.code == Some(1) && ran.stderr.contains(&format!("cannot read {missing}")), "{}", ran.stderr);
    }
    assert!(mock.requests("GET", "/").is_empty());
}

#[test]
fn what_fails_is_told_in_a_line() {
    let (mock, home) = (hub(), Folder::new("hub-fails"));
    let table = [
        ("owner/tiny@", 2, "`owner/tiny@` is not the id of a model: what stands after the @"),
        ("tiny:Q8_0", 2, "it must be OWNER/NAME[@REVISION][:FILE.gguf]"),
        ("owner/other", 1, "there is no model `owner/other` at http://127.0.0.1"),
        ("owner/tiny@v2", 1, "`owner/tiny` has no revision `v2`"),
        ("owner/tiny:Q8_0", 1, "`owner/tiny` has no GGUF file `Q8_0`; it has tiny.gguf"),
    ];
    for (id, code, part) in table {
        let ran = generate(&mock, &home, id);
        assert!(ran.code == Some(code) && ran.stderr.contains(part), "{id}: {:?} {}", ran.code, ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    }
    let mut offline = with_hub(&mock, &home, &arguments("owner/tiny"));
    offline.env("HF_HUB_OFFLINE", "ON");
    let asked = mock.requests("GET", "/").len();
    let offline = ran(offline);
    assert!(offline.code == Some(1) && offline.stderr.contains("HF_HUB_OFFLINE is set"), "{}", offline.stderr);
    assert_eq!(mock.requests("GET", "/").len(), asked);
}

#[test]
fn the_environment_names_the_cache_and_who_asks() {
    let (mock, home) = (hub(), Folder::new("hub-environment"));
    let mut command = with_hub(&mock, &home, &arguments("owner/tiny"));
    command.env("HF_HUB_CACHE", home.path("elsewhere")).env("HF_TOKEN", "hf_one");
    assert_eq!(ran(command).code, Some(0));
    assert!(fs::exists(home.path("elsewhere/models--owner--tiny/refs/main")).unwrap());

    fs::create_dir_all(home.path("home")).unwrap();
    home.write("home/token", b"hf_two\n");
    assert_eq!(generate(&mock, &home, "owner/tiny").code, Some(0));
    assert!(fs::exists(home.path("home/hub/models--owner--tiny/refs/main")).unwrap());

    let mut command = with_hub(&mock, &home, &arguments("owner/tiny"));
    let token = home.write("other-token", b"hf_three");
    command.env("HF_HUB_CACHE", home.path("third")).env("HF_TOKEN_PATH", token);
    assert_eq!(ran(command).code, Some(0));

    let asked = mock.requests("GET", "/api/models/");
    let sent: Vec<_> = asked.iter().map(|request| request.headers["authorization"].as_str()).collect();
    assert_eq!(sent, ["Bearer hf_one", "Bearer hf_two", "Bearer hf_three"]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_fetch_and_the_next_one_goes_on() {
    const HALF: usize = 20_000;
    let home = Folder::new("hub-interrupted");
    let mock = Mock::with_fault(&[("tiny.gguf", model())], |request, mut reply: Reply| {
        if request.path.starts_with("/elsewhere/") && request.from().is_none() {
            reply.body.truncate(HALF);
            reply.silence = Duration::from_secs(600);
        }
        reply
    });
    let mut command = with_hub(&mock, &home, &arguments("owner/tiny"));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let blobs = home.path("home/hub/models--owner--tiny/blobs");
    let length = || Some(fs::read_dir(&blobs).ok()?.next()?.ok()?.metadata().ok()?.len());
    let start = Instant::now();
    while length() != Some(HALF as u64) {
        assert!(start.elapsed() < Duration::from_secs(60), "the first half does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success() && !child.wait().unwrap().success());

    let next = generate(&mock, &home, "owner/tiny");
    assert!(next.code == Some(0) && next.stderr.contains("KiB, 19.53 KiB of it there)"), "{}", next.stderr);
    assert_eq!(mock.ranges(), [0, HALF as u64]);
}
