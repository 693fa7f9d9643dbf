//! Models by id, from a hub on this machine that does all that a hub, a network and a disk can do.
#![cfg(feature = "hub")]

#[path = "support/mock.rs"]
mod mock;
mod support;

use klero_models::Model;
use klero_models::hub::{Hub, HubError, ModelId, Options, Progress};
use mock::{COMMIT, Mock, REPOSITORY, Reply, Request, git_hash, sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::tiny::{TempFolder, Tiny};
use support::written::Written;

const GGUF: &str = "tiny.gguf";

/// A cache of its own for a test.
struct Cache(TempFolder);

impl Cache {
    fn new(test: &str) -> Self {
        Self(TempFolder::new(&format!("hub-{test}")))
    }

    fn options(&self, mock: &Mock) -> Options {
        let cache = self.root();
        let pause = Duration::from_millis(1);
        Options { endpoint: mock.url(), cache, token: None, offline: false, retries: 2, pause }
    }

    fn fetch(&self, mock: &Mock, id: &str) -> Result<PathBuf, HubError> {
        fetch(self.options(mock), id)
    }

    fn error(&self, mock: &Mock, id: &str) -> HubError {
        self.fetch(mock, id).expect_err("it is refused")
    }

    fn root(&self) -> PathBuf {
        self.0.0.join("hub")
    }

    fn repository(&self) -> PathBuf {
        self.root().join("models--owner--tiny")
    }

    fn snapshot(&self) -> PathBuf {
        self.repository().join("snapshots").join(COMMIT)
    }

    /// The names of all bytes that are there, whole or not.
    fn blobs(&self) -> Vec<String> {
        names(&self.repository().join("blobs"))
    }

    /// What Hugging Face's own tools leave: no list of files.
    fn forget_names(&self) {
        fs::remove_dir_all(self.repository().join(".files")).unwrap();
    }
}

fn fetch(options: Options, id: &str) -> Result<PathBuf, HubError> {
    Hub::new(options).fetch(&ModelId::parse(id)?, &mut ())
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(folder).into_iter().flatten().map(name).collect();
    names.sort();
    names
}

fn model() -> Vec<u8> {
    Tiny::llama().bytes()
}

/// A hub with one model, whose answers with the bytes of large files are changed.
fn with_bytes(change: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static) -> Mock {
    Mock::with_fault(&[(GGUF, model())], move |request, reply| {
        if request.path.starts_with("/elsewhere/") { change(request, reply) } else { reply }
    })
}

/// The same whose answers with what the hub says of a large file are changed.
fn with_metadata(change: impl Fn(Reply) -> Reply + Send + Sync + 'static) -> Mock {
    Mock::with_fault(&[(GGUF, model())], move |request, reply| if is_head(request) { change(reply) } else { reply })
}

fn is_head(request: &Request) -> bool {
    request.method == "HEAD"
}

fn is_listing(request: &Request) -> bool {
    request.path.starts_with("/api/models/")
}

/// Keeps what it hears.
#[derive(Default)]
struct Heard {
    notes: Vec<String>,
    files: Vec<(String, u64, u64)>,
    bytes: u64,
    finished: usize,
}

impl Progress for Heard {
    fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }

    fn start(&mut self, file: &str, size: u64, there: u64) {
        self.files.push((file.to_owned(), size, there));
    }

    fn advance(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    fn finish(&mut self) {
        self.finished += 1;
    }
}

#[test]
fn a_model_is_fetched_and_loads_and_lies_where_other_tools_look() {
    let (cache, mock) = (Cache::new("plain"), Mock::new(&[(GGUF, model()), ("README.md", b"Hello".to_vec())]));
    let mut heard = Heard::default();
    let id = ModelId::parse(REPOSITORY).unwrap();
    let path = Hub::new(cache.options(&mock)).fetch(&id, &mut heard).unwrap();
    assert_eq!(path, cache.snapshot().join(GGUF));
    assert_eq!(fs::read(&path).unwrap(), model());
    Model::load(&path).unwrap();
    let blob = sha256(&model());
    assert_eq!(fs::read_link(&path).unwrap(), Path::new("../../blobs").join(&blob));
    assert_eq!(cache.blobs(), [blob]);
    assert_eq!(fs::read_to_string(cache.repository().join("refs/main")).unwrap(), COMMIT);
    let size = model().len() as u64;
    assert_eq!((heard.files, heard.bytes, heard.finished), (vec![(GGUF.to_owned(), size, 0)], size, 1));
    assert!(heard.notes.is_empty(), "{:?}", heard.notes);
}

#[test]
fn what_is_in_the_cache_needs_no_hub() {
    let (cache, mock) = (Cache::new("cached"), Mock::new(&[("a-Q8_0.gguf", model()), ("a-F16.gguf", model())]));
    let options = cache.options(&mock);
    let path = fetch(options.clone(), "owner/tiny").unwrap();
    drop(mock);
    for id in ["owner/tiny", "owner/tiny:q8", "owner/tiny@main:a-Q8_0.gguf", &format!("owner/tiny@{COMMIT}")] {
        assert_eq!(fetch(options.clone(), id).unwrap(), path, "{id}");
    }
    assert!(matches!(fetch(options, "owner/tiny:F16"), Err(HubError::Broken { .. } | HubError::Network { .. })));
}

#[test]
fn a_transfer_goes_on_in_the_next_call_from_where_it_broke_off() {
    for at in [1, 1000, model().len() - 1] {
        let cache = Cache::new(&format!("next-{at}"));
        let mock = with_bytes(move |request, mut reply| {
            if request.from().is_none() {
                reply.body.truncate(at);
            }
            reply
        });
        let options = Options { retries: 0, ..cache.options(&mock) };
        let broken = fetch(options.clone(), REPOSITORY).unwrap_err();
        let (there, size) = (at as u64, model().len() as u64);
        assert!(
            matches!(&broken, HubError::Broken { length, size: whole, .. } if (*length, *whole) == (there, size)),
            "{broken}"
        );
        assert!(!cache.snapshot().join(GGUF).exists());
        assert_eq!(cache.blobs(), [format!("{}.incomplete", sha256(&model()))]);

        let mut heard = Heard::default();
        let path = Hub::new(options).fetch(&ModelId::parse(REPOSITORY).unwrap(), &mut heard).unwrap();
        assert_eq!(mock.ranges(), [0, there]);
        assert_eq!(fs::read(path).unwrap(), model());
        assert_eq!(cache.blobs(), [sha256(&model())]);
        assert_eq!((heard.files, heard.bytes), (vec![(GGUF.to_owned(), size, there)], size - there));
    }
}

#[test]
fn a_transfer_that_breaks_off_again_and_again_gets_there() {
    let cache = Cache::new("again");
    let mock = with_bytes(|_, mut reply| {
        reply.body.truncate(7000);
        reply
    });
    let mut heard = Heard::default();
    let hub = Hub::new(Options { retries: 1, ..cache.options(&mock) });
    let path = hub.fetch(&ModelId::parse(REPOSITORY).unwrap(), &mut heard).unwrap();
    assert_eq!(fs::read(path).unwrap(), model());
    let pieces = model().len().div_ceil(7000);
    assert!(pieces > 5);
    assert_eq!(mock.ranges(), (0..pieces as u64).map(|piece| piece * 7000).collect::<Vec<_>>());
    assert_eq!(heard.notes.len(), pieces - 1);
    assert!(heard.notes[0].contains("trying again"), "{}", heard.notes[0]);
}

#[test]
fn a_server_that_cannot_go_on_begins_again() {
    let cache = Cache::new("begin");
    let mock = with_bytes(|request, reply| match request.from() {
        None => {
            let mut reply = reply;
            reply.body.truncate(5000);
            reply
        }
        Some(_) => Reply::new(200, model()),
    });
    assert_eq!(fs::read(cache.fetch(&mock, REPOSITORY).unwrap()).unwrap(), model());
    assert_eq!(mock.ranges(), [0, 5000]);
    // One that breaks off at the same place whenever it begins again is given up.
    let cache = Cache::new("begin-end");
    let mock = with_bytes(|_, _| {
        let mut reply = Reply::new(200, model());
        reply.body.truncate(5000);
        reply
    });
    let error = cache.error(&mock, REPOSITORY);
    assert!(matches!(error, HubError::Broken { length: 5000, .. }), "{error}");
    assert_eq!(mock.ranges().len(), 3);
    assert!(!cache.snapshot().join(GGUF).exists());
}

#[test]
fn what_is_shorter_or_longer_than_announced_is_never_taken_for_whole() {
    type Fault = fn(&Request, Reply) -> Reply;
    let wrong: [(&str, Fault); 6] = [
        ("short", |_, _| Reply::new(200, &model()[..5000])),
        ("long", |_, _| Reply::new(200, [model(), vec![0]].concat())),
        ("empty", |_, _| Reply::new(200, "")),
        ("part-of-longer", |request, reply| match request.from() {
            None => Reply { body: reply.body[..10].to_vec(), ..reply },
            Some(from) => reply.with("content-range", format!("bytes {from}-99999/100000")),
        }),
        ("no-more", |request, reply| match request.from() {
            None => Reply { body: reply.body[..10].to_vec(), ..reply },
            Some(_) => Reply::new(416, ""),
        }),
        ("no-length", |_, _| {
            // Ends with the connection, and early.
            let reply = Reply::new(200, &model()[..5000]);
            Reply { headers: without(reply.headers, "content-length"), ..reply }
        }),
    ];
    for (name, fault) in wrong {
        let (cache, mock) = (Cache::new(name), with_bytes(fault));
        let error = cache.error(&mock, REPOSITORY);
        match name {
            "no-length" => assert!(matches!(error, HubError::Broken { length: 5000, .. }), "{error}"),
            _ => {
                assert!(matches!(error, HubError::Corrupt { what: "size", .. }), "{name}: {error}");
                assert!(cache.blobs().is_empty(), "{name}");
            }
        }
        assert!(!cache.snapshot().join(GGUF).exists(), "{name}");
        assert_eq!(fs::read(cache.fetch(&Mock::new(&[(GGUF, model())]), REPOSITORY).unwrap()).unwrap(), model());
    }
}

#[test]
fn other_bytes_than_those_asked_for_are_refused() {
    for range in ["bytes 11-40000/41000", "bytes 0-9", "lines 10-20/30", ""] {
        let cache = Cache::new("range");
        let mock = with_bytes(move |request, reply| match request.from() {
            None => Reply { body: reply.body[..10].to_vec(), ..reply },
            Some(_) => reply.with("content-range", range),
        });
        assert!(matches!(cache.error(&mock, REPOSITORY), HubError::Answer { .. }), "{range}");
    }
}

#[test]
fn bytes_that_are_not_those_announced_are_thrown_away() {
    let cache = Cache::new("hash");
    let mock = with_bytes(|_, mut reply| {
        reply.body[1000] ^= 1;
        reply
    });
    let error = cache.error(&mock, REPOSITORY);
    assert!(matches!(&error, HubError::Corrupt { what: "SHA-256", expected, .. } if *expected == sha256(&model())));
    assert!(cache.blobs().is_empty() && !cache.snapshot().join(GGUF).exists());

    // Small files have the hash that Git gives them.
    let files = folder_files();
    let mock = Mock::with_fault(&files, |request, mut reply| {
        if request.path.contains("resolve-cache") && request.path.ends_with("/config.json") && !is_head(request) {
            reply.body[0] ^= 1;
        }
        reply
    });
    let cache = Cache::new("git-hash");
    assert!(matches!(cache.error(&mock, REPOSITORY), HubError::Corrupt { what: "Git hash", .. }));
    assert!(cache.blobs().is_empty());

    // What an earlier call left may be anything.
    let cache = Cache::new("left");
    let mock = Mock::new(&[(GGUF, model())]);
    let left = cache.repository().join("blobs").join(format!("{}.incomplete", sha256(&model())));
    fs::create_dir_all(left.parent().unwrap()).unwrap();
    fs::write(&left, vec![0; 5000]).unwrap();
    assert!(matches!(cache.error(&mock, REPOSITORY), HubError::Corrupt { what: "SHA-256", .. }));
    fs::write(&left, vec![0; model().len() + 1]).unwrap();
    assert_eq!(fs::read(cache.fetch(&mock, REPOSITORY).unwrap()).unwrap(), model());
    let cache = Cache::new("left-whole");
    let left = cache.repository().join("blobs").join(format!("{}.incomplete", sha256(&model())));
    fs::create_dir_all(left.parent().unwrap()).unwrap();
    fs::write(&left, model()).unwrap();
    let mock = Mock::new(&[(GGUF, model())]);
    cache.fetch(&mock, REPOSITORY).unwrap();
    assert!(mock.ranges().is_empty());
}

#[test]
fn refusals_say_what_to_do() {
    let table: [(u16, &str, &[&str]); 7] = [
        (404, "", &["there is no model `owner/tiny`"]),
        (401, "RepoNotFound", &["there is no model `owner/tiny`", "HF_TOKEN"]),
        (404, "RevisionNotFound", &["`owner/tiny` has no revision `main`"]),
        (401, "", &["refuses `owner/tiny` (401)", "accept its licence at http://127.0.0.1", "set HF_TOKEN"]),
        (403, "GatedRepo", &["refuses `owner/tiny` (403)", "accept its licence at http://127.0.0.1", "set HF_TOKEN"]),
        (500, "", &["answered with status 500"]),
        (418, "", &["answered with status 418"]),
    ];
    for (status, code, said) in table {
        let cache = Cache::new("refusals");
        let refuse = move |status| {
            let reply = Reply::new(status, "a page of text");
            if code.is_empty() { reply } else { reply.with("x-error-code", code) }
        };
        let mock = Mock::with_fault(&[(GGUF, model())], move |_, _| refuse(status));
        let error = cache.error(&mock, REPOSITORY).to_string();
        assert!(said.iter().all(|part| error.contains(part)), "{error}");
        let tries = if status == 500 { 3 } else { 1 };
        assert_eq!(mock.requests("GET", "/").len(), tries, "{status}");

        // The list may be open and the files not.
        let mock = with_metadata(move |_| refuse(status));
        let error = cache.error(&mock, REPOSITORY).to_string();
        let said = if (status, code) == (404, "") { &["answered with status 404"] } else { said };
        assert!(said.iter().all(|part| error.contains(part)), "{error}");
        assert_eq!(mock.requests("HEAD", "/").len(), tries, "{status}");
        assert!(cache.blobs().is_empty());
    }
    let cache = Cache::new("refused-token");
    let mock = with_metadata(|_| Reply::new(403, "").with("x-error-code", "GatedRepo"));
    let error = fetch(Options { token: Some("hf_secret".to_owned()), ..cache.options(&mock) }, REPOSITORY).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("the one that was sent may not") && !format!("{text}{error:?}").contains("secret"), "{text}");
}

#[test]
fn a_hub_that_is_busy_is_waited_for() {
    for status in [429, 500, 502, 503] {
        for part in [is_listing, is_head, |request: &Request| request.path.starts_with("/elsewhere/")] {
            let cache = Cache::new("busy");
            let count = AtomicUsize::new(0);
            let mock = Mock::with_fault(&[(GGUF, model())], move |request, reply| {
                let busy = part(request) && count.fetch_add(1, Ordering::SeqCst) < 2;
                if busy { Reply::new(status, "").with("retry-after", 0) } else { reply }
            });
            assert_eq!(fs::read(cache.fetch(&mock, REPOSITORY).unwrap()).unwrap(), model());
        }
    }
    let cache = Cache::new("too-busy");
    let mock = Mock::with_fault(&[], |_, _| Reply::new(429, "").with("retry-after", 3600));
    let error = cache.error(&mock, REPOSITORY).to_string();
    assert!(error.contains("status 429 and asks to wait 3600s"), "{error}");
    assert_eq!(mock.requests("GET", "/").len(), 1);
}

#[test]
fn names_that_lead_out_of_the_cache_are_refused() {
    let folder = TempFolder::new("hub-hostile");
    // Each cache lies in a folder of its own, beside which nothing may appear.
    let cache = |name: &str| Cache(TempFolder(folder.0.join(name)));
    for name in [
        "../x.gguf",
        "/tmp/klero-x.gguf",
        "a/../../x.gguf",
        "a\\..\\x.gguf",
        "C:x.gguf",
        "a//x.gguf",
        "./x.gguf",
        "x\0.gguf",
    ] {
        let mock = Mock::new(&[(name, model())]);
        let error = cache("names").error(&mock, REPOSITORY);
        assert!(matches!(&error, HubError::Unsafe { name: named, .. } if named == name), "{error}");
        assert!(!error.to_string().contains('\0'));
        // Names that nobody asks for do no harm.
        let mock = Mock::new(&[(name, model()), ("sound-Q8_0.gguf", model())]);
        assert!(cache("others").fetch(&mock, "owner/tiny:sound").is_ok());
    }
    for etag in ["../../../x", "/tmp/klero-x", "a/b", "", "..", "a\\b"] {
        let mock = with_metadata(move |reply| reply.with("x-linked-etag", format!("\"{etag}\"")));
        assert!(matches!(cache("etags").error(&mock, REPOSITORY), HubError::Unsafe { .. }), "{etag}");
    }
    for commit in ["../../x", "", "main", &COMMIT[1..], &COMMIT.to_uppercase()] {
        let commit = commit.to_owned();
        let mock = Mock::with_fault(&[(GGUF, model())], move |_, reply| {
            let text = String::from_utf8(reply.body).unwrap();
            Reply::new(200, text.replace(COMMIT, &commit))
        });
        let error = cache("commits").error(&mock, REPOSITORY);
        assert!(matches!(error, HubError::Unsafe { what: "the commit", .. }), "{error}");
    }
    assert_eq!(names(&folder.0), Vec::<String>::new());
    assert!(!Path::new("/tmp/klero-x.gguf").exists() && !Path::new("/tmp/klero-x").exists());
}

#[test]
fn answers_that_make_no_sense_are_refused() {
    type Change = fn(Reply) -> Reply;
    let metadata: [(&str, Change); 4] = [
        ("no size", |reply| Reply { headers: without(reply.headers, "x-linked-size"), ..reply }),
        ("no etag", |reply| Reply { headers: without(reply.headers, "x-linked-etag"), ..reply }),
        ("a size that is none", |reply| reply.with("x-linked-size", "-1")),
        ("another commit", |reply| reply.with("x-repo-commit", "f".repeat(40))),
    ];
    for (name, change) in metadata {
        let error = Cache::new("metadata").error(&with_metadata(change), REPOSITORY);
        assert!(matches!(error, HubError::Answer { .. }), "{name}: {error}");
    }
    let lists: [(&str, Vec<u8>); 5] = [
        ("empty", vec![]),
        ("not JSON", b"<html>".to_vec()),
        ("no files", br#"{"sha": "0123456789abcdef0123456789abcdef01234567"}"#.to_vec()),
        ("deep", vec![b'['; 100_000]),
        ("huge", [br#"{"siblings": ["#.to_vec(), vec![b' '; 17 << 20]].concat()),
    ];
    for (name, body) in lists {
        let mock = Mock::with_fault(&[], move |_, _| Reply::new(200, body.clone()));
        let error = Cache::new("list").error(&mock, REPOSITORY);
        assert!(matches!(error, HubError::Answer { .. }), "{name}: {error}");
    }
}

fn without<V>(
    mut map: std::collections::BTreeMap<&'static str, V>,
    key: &str,
) -> std::collections::BTreeMap<&'static str, V> {
    map.remove(key);
    map
}

#[test]
fn redirections_end() {
    let around = |request: &Request, _| Reply::new(307, "").with("location", &request.path);
    for part in [is_listing, is_head] {
        let cache = Cache::new("around");
        let mock = Mock::with_fault(
            &[(GGUF, model())],
            move |request, reply| {
                if part(request) { around(request, reply) } else { reply }
            },
        );
        let error = cache.error(&mock, REPOSITORY);
        assert!(error.to_string().contains("more than 10 redirections"), "{error}");
    }
    let cache = Cache::new("around-bytes");
    let error = cache.error(&with_bytes(around), REPOSITORY);
    assert!(error.to_string().contains("too many redirects"), "{error}");
    for elsewhere in ["http://[", "//other/x", "no path", "ftp://127.0.0.1/x"] {
        let mock = Mock::with_fault(&[], move |_, _| Reply::new(307, "").with("location", elsewhere));
        let error = Cache::new("nowhere").error(&mock, REPOSITORY);
        assert!(matches!(error, HubError::Answer { .. }), "{elsewhere}: {error}");
    }
}

#[test]
fn a_repository_that_changed_its_name_is_found() {
    let cache = Cache::new("renamed");
    let mock = Mock::with_fault(&[(GGUF, model())], |request, reply| {
        let new = request.path.replace("old/name", REPOSITORY);
        if new == request.path { reply } else { Reply::new(307, "").with("location", new) }
    });
    assert_eq!(fs::read(cache.fetch(&mock, "old/name").unwrap()).unwrap(), model());
}

#[test]
fn the_token_is_told_to_the_hub_alone() {
    let (cache, mock) = (Cache::new("token"), Mock::new(&[(GGUF, model())]));
    fetch(Options { token: Some("hf_secret".to_owned()), ..cache.options(&mock) }, REPOSITORY).unwrap();
    let sent = |requests: Vec<Request>| requests.iter().all(|request| request.headers.contains_key("authorization"));
    assert!(
        sent(mock.requests("GET", "/api")) && sent(mock.requests("HEAD", "/")) && sent(mock.requests("GET", "/owner"))
    );
    let elsewhere = mock.requests("GET", "/elsewhere/");
    assert!(elsewhere.len() == 1 && !elsewhere[0].headers.contains_key("authorization"), "{elsewhere:?}");
}

#[test]
fn a_hub_that_cannot_be_reached_is_said_at_once() {
    let (cache, mock) = (Cache::new("unreachable"), Mock::new(&[]));
    let options = Options { pause: Duration::from_secs(100), ..cache.options(&mock) };
    drop(mock);
    let start = Instant::now();
    let error = fetch(options.clone(), REPOSITORY).unwrap_err();
    assert!(matches!(error, HubError::Network { .. }), "{error}");
    let endpoint = "http://no-such-host.invalid".to_owned();
    let error = fetch(Options { endpoint, ..options.clone() }, REPOSITORY).unwrap_err();
    assert!(error.to_string().starts_with("cannot reach http://no-such-host.invalid/api/models/owner/tiny"), "{error}");
    let endpoint = "no address".to_owned();
    assert!(matches!(fetch(Options { endpoint, ..options }, REPOSITORY), Err(HubError::Network { .. })));
    assert!(start.elapsed() < Duration::from_secs(100));
}

#[test]
fn offline_asks_for_nothing() {
    let (cache, mock) = (Cache::new("offline"), Mock::new(&[("a-Q8_0.gguf", model()), ("a-F16.gguf", model())]));
    let offline = Options { offline: true, ..cache.options(&mock) };
    let error = fetch(offline.clone(), REPOSITORY).unwrap_err();
    assert!(matches!(&error, HubError::Offline { what, .. } if what == REPOSITORY), "{error}");
    assert!(mock.requests("GET", "/").is_empty());

    let path = cache.fetch(&mock, "owner/tiny:Q8_0").unwrap();
    let asked = mock.requests("GET", "/").len();
    assert_eq!(fetch(offline.clone(), REPOSITORY).unwrap(), path);
    let error = fetch(offline.clone(), "owner/tiny:F16").unwrap_err();
    assert!(matches!(&error, HubError::Offline { what, .. } if what == "a-F16.gguf of owner/tiny"), "{error}");
    assert!(matches!(fetch(offline.clone(), "owner/tiny:Q9"), Err(HubError::NoFile { .. })));
    assert!(matches!(fetch(offline.clone(), "owner/tiny@v2"), Err(HubError::Offline { .. })));
    // Where no list of files was kept, those that are here are chosen from.
    cache.forget_names();
    assert_eq!(fetch(offline, REPOSITORY).unwrap(), path);
    assert_eq!(mock.requests("GET", "/").len(), asked);
}

#[test]
fn without_a_list_of_files_the_hub_is_asked_and_else_the_cache_goes() {
    let (cache, mock) = (Cache::new("unlisted"), Mock::new(&[("a-Q8_0.gguf", model()), ("a-Q4_K_M.gguf", model())]));
    let path = cache.fetch(&mock, "owner/tiny:Q8_0").unwrap();
    cache.forget_names();
    // The hub knows of a file that is preferred.
    assert_eq!(cache.fetch(&mock, REPOSITORY).unwrap(), cache.snapshot().join("a-Q4_K_M.gguf"));
    fs::remove_file(cache.snapshot().join("a-Q4_K_M.gguf")).unwrap();
    cache.forget_names();
    let hub = Hub::new(cache.options(&mock));
    drop(mock);
    let mut heard = Heard::default();
    assert_eq!(hub.fetch(&ModelId::parse(REPOSITORY).unwrap(), &mut heard).unwrap(), path);
    let [note] = &heard.notes[..] else { panic!("{:?}", heard.notes) };
    assert!(note.starts_with("cannot reach") && note.ends_with("going by what is in the cache"), "{note}");
}

#[test]
fn what_the_cached_commit_does_not_have_may_have_come_since() {
    const OLD: &str = "fedcba9876543210fedcba9876543210fedcba98";
    let cache = Cache::new("since");
    fs::create_dir_all(cache.repository().join("snapshots").join(OLD)).unwrap();
    for (folder, name, text) in [("refs", "main", OLD), (".files", OLD, r#"["README.md"]"#)] {
        fs::create_dir_all(cache.repository().join(folder)).unwrap();
        fs::write(cache.repository().join(folder).join(name), text).unwrap();
    }
    let mock = Mock::new(&[(GGUF, model())]);
    let error = cache.error(&mock, &format!("{REPOSITORY}@{OLD}"));
    assert!(matches!(error, HubError::NoModel { .. }), "{error}");
    assert!(mock.requests("GET", "/").is_empty());
    assert_eq!(cache.fetch(&mock, REPOSITORY).unwrap(), cache.snapshot().join(GGUF));
    assert_eq!(fs::read_to_string(cache.repository().join("refs/main")).unwrap(), COMMIT);
}

#[test]
fn revisions_are_branches_tags_and_commits() {
    let (cache, mock) = (Cache::new("revisions"), Mock::new(&[(GGUF, model())]));
    let path = cache.fetch(&mock, &format!("{REPOSITORY}@{COMMIT}")).unwrap();
    assert!(!cache.repository().join("refs").exists());
    assert_eq!(cache.fetch(&mock, "owner/tiny@refs/pr/1").unwrap(), path);
    assert_eq!(fs::read_to_string(cache.repository().join("refs/refs/pr/1")).unwrap(), COMMIT);
    assert_eq!(mock.ranges(), [0]);
    let error = cache.error(&mock, "owner/tiny@v9");
    assert!(matches!(error, HubError::NoRevision { .. }), "{error}");
}

#[test]
fn bytes_of_another_commit_are_not_fetched_again() {
    let (cache, mock) = (Cache::new("blob"), Mock::new(&[(GGUF, model())]));
    let path = cache.fetch(&mock, REPOSITORY).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(cache.fetch(&mock, REPOSITORY).unwrap(), path);
    // A link to nothing is no file.
    let blob = cache.repository().join("blobs").join(sha256(&model()));
    fs::remove_file(&blob).unwrap();
    assert_eq!(mock.ranges(), [0]);
    assert_eq!(fs::read(cache.fetch(&mock, REPOSITORY).unwrap()).unwrap(), model());
    assert_eq!(mock.ranges(), [0, 0]);
}

#[test]
fn two_at_once_fetch_once() {
    let cache = Cache::new("twice");
    let mock = with_bytes(|_, reply| {
        thread::sleep(Duration::from_millis(100));
        reply
    });
    let fetched = thread::scope(|scope| {
        let run = || fs::read(cache.fetch(&mock, REPOSITORY).unwrap()).unwrap();
        [scope.spawn(run), scope.spawn(run)].map(|thread| thread.join().unwrap())
    });
    assert_eq!(fetched, [model(), model()]);
    assert_eq!(mock.ranges(), [0]);
}

#[test]
fn a_cache_that_cannot_be_used_is_named() {
    let (cache, mock) = (Cache::new("unusable"), Mock::new(&[(GGUF, model())]));
    fs::write(cache.root(), "a file where a folder should be").unwrap();
    let error = cache.error(&mock, REPOSITORY);
    assert!(matches!(&error, HubError::Cache { path, .. } if path.starts_with(cache.root())), "{error}");
    fs::remove_file(cache.root()).unwrap();

    let mock = with_metadata(|reply| reply.with("x-linked-size", 1u64 << 60));
    let error = cache.error(&mock, REPOSITORY);
    assert!(matches!(error, HubError::NoSpace { needed, .. } if needed == 1 << 60), "{error}");
    assert!(mock.ranges().is_empty());
}

/// A model in safetensors; what is in its files does not matter to the hub.
fn folder_files() -> Vec<(&'static str, Vec<u8>)> {
    let text = |name: &'static str| (name, format!("{{\"{name}\": 1}}").into_bytes());
    vec![
        text("config.json"),
        text("tokenizer.json"),
        text("model.safetensors"),
        ("generation_config.json", vec![]),
        text("README.md"),
        text("pytorch_model.bin"),
        text("onnx/config.json"),
    ]
}

#[test]
fn safetensors_come_with_all_that_belongs_to_them() {
    let (cache, mock) = (Cache::new("folder"), Mock::new(&folder_files()));
    let options = cache.options(&mock);
    let path = fetch(options.clone(), REPOSITORY).unwrap();
    assert_eq!(path, cache.snapshot());
    let expected = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"];
    assert_eq!(names(&path), expected);
    for (name, bytes) in folder_files().iter().filter(|(name, _)| expected.contains(name)) {
        assert_eq!(&fs::read(path.join(name)).unwrap(), bytes, "{name}");
    }
    assert!(cache.blobs().contains(&git_hash(&folder_files()[0].1)));
    drop(mock);
    assert_eq!(fetch(options.clone(), REPOSITORY).unwrap(), path);
    // A folder of which something is missing is not given out.
    fs::remove_file(path.join("tokenizer.json")).unwrap();
    let error = fetch(Options { offline: true, ..options }, REPOSITORY).unwrap_err();
    assert!(matches!(&error, HubError::Offline { what, .. } if what == "tokenizer.json of owner/tiny"), "{error}");
}

#[test]
fn a_fetched_folder_loads() {
    let written = Written::new("hub-written");
    let folder = written.path("llama");
    let files: Vec<_> = names(&folder).into_iter().map(|name| (fs::read(folder.join(&name)).unwrap(), name)).collect();
    let files: Vec<_> = files.iter().map(|(bytes, name)| (name.as_str(), bytes.clone())).collect();
    let cache = Cache::new("loads");
    let model = Model::load(&cache.fetch(&Mock::new(&files), REPOSITORY).unwrap()).unwrap();
    let hidden = |model: &Model| model.forward(&mut [(&mut model.new_sequence(), &[1, 2, 3])]).unwrap();
    assert_eq!(hidden(&model), hidden(&Model::load(&folder).unwrap()));
}

#[test]
fn an_index_names_its_files() {
    let with_index = |index: &str| {
        let mut files = folder_files();
        files[2] = ("model.safetensors.index.json", index.as_bytes().to_vec());
        files.push(("model-1.safetensors", b"one".to_vec()));
        files.push(("model-2.safetensors", b"two".to_vec()));
        files.push(("other.safetensors", b"other".to_vec()));
        Mock::new(&files)
    };
    let cache = Cache::new("index");
    let index =
        r#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}}"#;
    let path = cache.fetch(&with_index(index), REPOSITORY).unwrap();
    assert_eq!(fs::read(path.join("model-2.safetensors")).unwrap(), b"two");
    assert!(path.join("model-1.safetensors").exists() && !path.join("other.safetensors").exists());

    for (index, part) in [
        (r#"{"weight_map": {"a": "../../x"}}"#, "not safe to store"),
        (r#"{"weight_map": {"a": "absent.safetensors"}}"#, "status 404"),
        (r#"{"weight_map": 1}"#, "no index of safetensors"),
        ("", "no index of safetensors"),
    ] {
        let error = Cache::new("index-wrong").error(&with_index(index), REPOSITORY).to_string();
        assert!(error.contains(part), "{index}: {error}");
    }
}

#[test]
fn the_file_meant_is_chosen_by_rule_or_asked_for() {
    let folder = ["config.json", "tokenizer.json", "model.safetensors"];
    let table: [(&[&str], &str, Result<&str, &str>); 19] = [
        (&["a.gguf"], "", Ok("a.gguf")),
        (&["A.GGUF"], "", Ok("A.GGUF")),
        (&["a.gguf", "mmproj-a.gguf"], "", Ok("a.gguf")),
        (&["a.gguf", folder[0], folder[1], folder[2]], "", Ok("a.gguf")),
        (&["a-Q2_K.gguf", "a-q4_k_m.gguf", "a-Q8_0.gguf"], "", Ok("a-q4_k_m.gguf")),
        (&["a-Q2_K.gguf", "a-Q8_0.gguf"], "", Ok("a-Q8_0.gguf")),
        (&["a-Q2_K.gguf", "a-Q8_0.gguf", folder[0], folder[1], folder[2]], "", Ok("")),
        (&["a-Q2_K.gguf", "a-F16.gguf"], "", Err("FILE one of a-F16.gguf, a-Q2_K.gguf")),
        (&["a-Q8_0.gguf", "b-Q8_0.gguf"], "", Err("FILE one of a-Q8_0.gguf, b-Q8_0.gguf")),
        (&["a-Q2_K.gguf", "a-F16.gguf"], ":f16", Ok("a-F16.gguf")),
        (&["a-Q2_K.gguf", "b/a Q2+.gguf"], ":b/a Q2+.gguf", Ok("b/a Q2+.gguf")),
        (&["a-Q2_K.gguf", "b/a-F16.gguf"], ":a-F16.gguf", Ok("b/a-F16.gguf")),
        (&["F16.gguf", "a-F16.gguf"], ":F16.gguf", Ok("F16.gguf")),
        (&["a-BF16.gguf", "a-F16.gguf"], ":F16", Err("FILE one of a-BF16.gguf, a-F16.gguf")),
        (&["a-F16.gguf", folder[0], folder[1], folder[2]], ":Q9", Err("no GGUF file `Q9`; it has a-F16.gguf")),
        (&["README.md"], ":Q9", Err("no GGUF file `Q9`; it has none")),
        (&["README.md", "model.bin"], "", Err("neither a GGUF file nor")),
        (&[folder[0], folder[2]], "", Err("neither a GGUF file nor")),
        (&[], "", Err("neither a GGUF file nor")),
    ];
    for (files, suffix, expected) in table {
        let files: Vec<_> = files.iter().map(|name| (*name, name.as_bytes().to_vec())).collect();
        let (cache, mock) = (Cache::new("choice"), Mock::new(&files));
        match (cache.fetch(&mock, &format!("{REPOSITORY}{suffix}")), expected) {
            (Ok(path), Ok(name)) => assert_eq!(path, cache.snapshot().join(name), "{files:?}{suffix}"),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, _) => panic!("{files:?}{suffix}: {found:?}"),
        }
    }
}

#[test]
fn ids_are_read_and_written() {
    let longest = format!("{}/{}", "a".repeat(47), "b".repeat(48));
    for id in
        ["a/b", "Qwen/Qwen2.5-0.5B_x", "a/b@main", "a/b@refs/pr/1:f/g.gguf", "a/b:Q4_K_M", "a/b:x@y.gguf", &longest]
    {
        assert_eq!(ModelId::parse(id).unwrap().to_string(), id);
    }
    let id = ModelId::parse("a/b@v1.0:x@y.gguf").unwrap();
    assert_eq!((id.repository(), id.revision(), id.file()), ("a/b", "v1.0", Some("x@y.gguf")));
    for id in [
        "",
        "a",
        "/",
        "a/",
        "/b",
        "a/b/c",
        "../b",
        "a/..",
        ".a/b",
        "a/b.",
        "-a/b",
        "a--b/c",
        "a b/c",
        "ä/b",
        "a/b@",
        "a/b:",
        "a/b@..",
        "a/b@x/../y",
        "a/b@/x",
        "a/b:../x.gguf",
        "a/b:/x",
        "a/b:x\\y",
        "a/b:x:y",
        "a/b@x\n",
        "a\0/b",
        "~/b",
        "https://huggingface.co/a/b",
        &format!("{longest}x"),
    ] {
        let error = ModelId::parse(id).unwrap_err();
        assert!(matches!(&error, HubError::Id { .. }), "{id}: {error}");
    }
}
