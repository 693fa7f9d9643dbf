//! A hub on this machine: the requests that Klero makes, answered as Hugging Face answers them, or worse.

use serde_json::json;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub const REPOSITORY: &str = "owner/tiny";
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A repository, at one commit, that is served until this goes out of scope.
pub struct Mock {
    state: Arc<State>,
    address: SocketAddr,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    /// By their names in lower case.
    pub headers: HashMap<String, String>,
}

/// What is answered.
pub struct Reply {
    pub status: u16,
    pub headers: BTreeMap<&'static str, String>,
    pub body: Vec<u8>,
    /// How long the connection stays open after it, with nothing more to hear.
    pub silence: Duration,
}

/// What a hub makes of an answer that would be right.
type Fault = Box<dyn Fn(&Request, Reply) -> Reply + Send + Sync>;

struct State {
    files: BTreeMap<String, Vec<u8>>,
    /// Where large files lie: the same machine under another name.
    elsewhere: String,
    fault: Fault,
    requests: Mutex<Vec<Request>>,
    closed: AtomicBool,
}

impl Mock {
    /// A hub that works.
    pub fn new(files: &[(&str, Vec<u8>)]) -> Self {
        Self::with_fault(files, |_, reply| reply)
    }

    /// A hub that does something else to its answers.
    pub fn with_fault(
        files: &[(&str, Vec<u8>)],
        fault: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            files: files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone())).collect(),
            elsewhere: format!("http://localhost:{}", address.port()),
            fault: Box::new(fault),
            requests: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let served = state.clone();
        thread::spawn(move || serve(&listener, &served));
        Self { state, address }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far that have this method and whose path begins so.
    pub fn requests(&self, method: &str, path: &str) -> Vec<Request> {
        let requests = self.state.requests.lock().unwrap();
        requests.iter().filter(|request| request.method == method && request.path.starts_with(path)).cloned().collect()
    }

    /// The same requests, as the positions that bytes were asked for from; 0 where none was named.
    pub fn ranges(&self) -> Vec<u64> {
        self.requests("GET", "/elsewhere/").iter().map(|request| request.from().unwrap_or(0)).collect()
    }
}

impl Drop for Mock {
    /// Nothing listens afterwards.
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        while TcpStream::connect(self.address).is_ok() {
            thread::yield_now();
        }
    }
}

impl Request {
    fn read(stream: &TcpStream) -> Option<Self> {
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next()?.ok()?;
        let mut words = first.split(' ');
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let header = |line: String| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.into()));
        let headers = lines.map_while(|line| line.ok().filter(|line| !line.is_empty()).and_then(header)).collect();
        Some(Self { method, path, headers })
    }

    /// Where the bytes that are asked for begin.
    pub fn from(&self) -> Option<u64> {
        self.headers.get("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

impl Reply {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let headers = [("content-length", body.len().to_string())].into();
        Self { status, headers, body, silence: Duration::ZERO }
    }

    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.insert(name, value.to_string());
        self
    }

    fn write(&self, request: &Request, mut stream: &TcpStream) {
        let mut text = format!("HTTP/1.1 {} Said So\r\nconnection: close\r\n", self.status);
        self.headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
        let body: &[u8] = if request.method == "HEAD" { &[] } else { &self.body };
        // Whoever asked may have heard enough.
        let _ = stream.write_all(&[text.as_bytes(), b"\r\n", body].concat());
        thread::sleep(self.silence);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read(&mut [0; 64]);
    }
}

fn serve(listener: &TcpListener, state: &Arc<State>) {
    for stream in listener.incoming() {
        if state.closed.load(Ordering::SeqCst) {
            return;
        }
        let (stream, state) = (stream.unwrap(), state.clone());
        thread::spawn(move || {
            let Some(request) = Request::read(&stream) else { return };
            state.requests.lock().unwrap().push(request.clone());
            (state.fault)(&request, state.answer(&request)).write(&request, &stream);
        });
    }
}

impl State {
    fn answer(&self, request: &Request) -> Reply {
        let path = request.path.trim_start_matches('/');
        if let Some(hash) = path.strip_prefix("elsewhere/") {
            let file = self.files.values().find(|bytes| sha256(bytes) == hash);
            return file.map_or_else(|| Reply::new(404, "no such bytes"), |bytes| piece(bytes, request));
        }
        let of_repository = |prefix: &str| path.strip_prefix(&format!("{prefix}{REPOSITORY}/"));
        if let Some(revision) = of_repository("api/models/").and_then(|path| path.strip_prefix("revision/")) {
            return self.listing(revision);
        }
        if let Some(path) = of_repository("api/resolve-cache/models/").and_then(|path| path.split_once('/')) {
            return self.small(path.1, request);
        }
        match of_repository("").and_then(|path| path.strip_prefix("resolve/")?.split_once('/')) {
            Some((revision, name)) if is_revision(revision) => self.resolve(name),
            // What the hub answers to strangers, so as not to tell what is private.
            _ => Reply::new(401, "Invalid username or password.").with("x-error-code", "RepoNotFound"),
        }
    }

    fn listing(&self, revision: &str) -> Reply {
        if !is_revision(revision) {
            return Reply::new(404, "").with("x-error-code", "RevisionNotFound");
        }
        let siblings: Vec<_> = self.files.keys().map(|name| json!({"rfilename": name})).collect();
        let listing = json!({"_id": "1", "id": REPOSITORY, "sha": COMMIT, "siblings": siblings, "private": false});
        Reply::new(200, listing.to_string())
    }

    /// Large files lie elsewhere, small ones behind another address of the hub's own.
    fn resolve(&self, name: &str) -> Reply {
        let decoded = name.replace("%20", " ").replace("%2B", "+");
        let Some(bytes) = self.files.get(&decoded) else {
            return Reply::new(404, "Entry not found").with("x-error-code", "EntryNotFound");
        };
        let reply = Reply::new(302, "Found. Redirecting").with("x-repo-commit", COMMIT);
        if !is_large(name) {
            return reply.with("location", format!("/api/resolve-cache/models/{REPOSITORY}/{COMMIT}/{name}"));
        }
        let hash = sha256(bytes);
        reply
            .with("x-linked-size", bytes.len())
            .with("x-linked-etag", format!("\"{hash}\""))
            .with("location", format!("{}/elsewhere/{hash}", self.elsewhere))
    }

    fn small(&self, name: &str, request: &Request) -> Reply {
        let bytes = &self.files[name];
        piece(bytes, request).with("x-repo-commit", COMMIT).with("etag", format!("\"{}\"", git_hash(bytes)))
    }
}

fn is_revision(text: &str) -> bool {
    [COMMIT, "main", "refs%2Fpr%2F1"].contains(&text)
}

fn is_large(name: &str) -> bool {
    name.ends_with("gguf") || name.ends_with("safetensors")
}

/// The bytes asked for.
fn piece(bytes: &[u8], request: &Request) -> Reply {
    let size = bytes.len();
    match request.from().map(|from| from as usize) {
        None => Reply::new(200, bytes),
        Some(from) if from < size => {
            Reply::new(206, &bytes[from..]).with("content-range", format!("bytes {from}-{}/{size}", size - 1))
        }
        Some(_) => Reply::new(416, "").with("content-range", format!("bytes */{size}")),
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn git_hash(bytes: &[u8]) -> String {
    let hash = Sha1::new_with_prefix(format!("blob {}\0", bytes.len())).chain_update(bytes).finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
