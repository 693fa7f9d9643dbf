//! The hub's HTTP: what it is asked, and what its answers mean.

use super::path::{is_commit, url_part, url_path};
use super::patience::Patience;
use super::{HubError, ModelId, Options};
use serde::Deserialize;
use std::time::Duration;
use ureq::http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, LOCATION, RANGE,
    RETRY_AFTER,
};
use ureq::http::{Response, Uri};
use ureq::typestate::WithoutBody;
use ureq::{Agent, Body, RequestBuilder};

/// The most bytes that the list of a repository's files may have.
const LARGEST_LIST: u64 = 16 << 20;

/// How often the hub may send a request on to another of its own addresses.
const HOPS: usize = 10;

/// How long a connection may take to be there, and how long it may be silent.
const CONNECT: Duration = Duration::from_secs(15);
const SILENCE: Duration = Duration::from_secs(60);

/// A connection to the hub.
pub struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    patience: Patience,
}

/// The files of a repository at a commit.
pub struct Listing {
    pub commit: String,
    pub names: Vec<String>,
}

/// What the hub says of a file before it is fetched.
pub struct Metadata {
    /// Where the hub itself has it, or sends on from.
    pub url: String,
    /// The hash of the file, as a rule: its SHA-256, or that of a Git blob.
    pub etag: String,
    pub size: u64,
}

/// The bytes of a file from some position on.
pub struct Bytes {
    /// Where they begin: as asked for, or at 0.
    pub from: u64,
    /// Size of the whole file, if it was told.
    pub size: Option<u64>,
    pub body: Body,
}

/// The part of the answer about a repository that is read.
#[derive(Deserialize)]
struct Repository {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

impl Client {
    pub fn new(options: &Options) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("klero/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .build()
            .new_agent();
        let endpoint = options.endpoint.trim_end_matches('/').to_owned();
        Self { agent, endpoint, token: options.token.clone(), patience: options.patience() }
    }

    /// The files of a repository at a revision.
    pub fn listing(&self, id: &ModelId, revision: &str) -> Result<Listing, HubError> {
        let url = format!("{}/api/models/{}/revision/{}", self.endpoint, id.repository(), url_part(revision));
        let (url, mut response) = self.ask_for_listing(&url, id)?;
        let body = response.body_mut().with_config().limit(LARGEST_LIST).read_to_vec();
        let body = body.map_err(|error| match error {
            ureq::Error::BodyExceedsLimit(limit) => answer(&url, format!("more than {limit} bytes of file names")),
            error => network(&url, &error),
        })?;
        let repository: Repository =
            serde_json::from_slice(&body).map_err(|error| answer(&url, format!("no list of files: {error}")))?;
        match is_commit(&repository.sha) {
            true => {
                let names = repository.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
                Ok(Listing { commit: repository.sha, names })
            }
            false => Err(HubError::Unsafe { what: "the commit", name: repository.sha }),
        }
    }

    /// Waits for a hub that is busy. One that cannot be reached at all is not waited for.
    fn ask_for_listing(&self, url: &str, id: &ModelId) -> Result<(String, Response<Body>), HubError> {
        let mut patience = self.patience.clone();
        loop {
            match self.ask(url, "GET", id) {
                Err(HubError::Status { status: 404, .. }) => {
                    let (repository, endpoint) = (id.repository().to_owned(), self.endpoint.clone());
                    return Err(HubError::NoRepository { repository, endpoint });
                }
                Err(error @ HubError::Status { .. }) => patience.wait(error, |_| {})?,
                answer => return answer,
            }
        }
    }

    /// What the hub says of a file.
    pub fn metadata(&self, id: &ModelId, commit: &str, name: &str) -> Result<Metadata, HubError> {
        let url = format!("{}/{}/resolve/{commit}/{}", self.endpoint, id.repository(), url_path(name));
        let (url, response) = self.ask(&url, "HEAD", id)?;
        let header = |name| text(response.headers(), name);
        let linked = |name| header(HeaderName::from_static(name));
        // A redirection has a length of its own.
        let is_elsewhere = response.status().is_redirection();
        let size = linked("x-linked-size").or_else(|| header(CONTENT_LENGTH).filter(|_| !is_elsewhere));
        let etag = linked("x-linked-etag").or_else(|| header(ETAG));
        let (Some(size), Some(etag)) = (size.and_then(|size| size.parse().ok()), etag) else {
            return Err(answer(&url, "no size or no etag of the file"));
        };
        if let Some(other) = linked("x-repo-commit").filter(|other| *other != commit) {
            return Err(answer(&url, format!("the file of another commit, {other:?}")));
        }
        let etag = etag.trim_start_matches("W/").trim_matches('"');
        Ok(Metadata { etag: etag.to_owned(), size, url })
    }

    /// A file's bytes from a position on, or from its beginning if the server cannot begin elsewhere.
    ///
    /// None if the file has no byte at this position.
    pub fn bytes(&self, id: &ModelId, url: &str, from: u64) -> Result<Option<Bytes>, HubError> {
        let request = self.request(self.agent.get(url));
        let request = if from > 0 { request.header(RANGE, format!("bytes={from}-")) } else { request };
        let response = request.call().map_err(|error| network(url, &error))?;
        let header = |name| text(response.headers(), name).unwrap_or_default();
        let (from, size) = match response.status().as_u16() {
            416 => return Ok(None),
            200 => (0, header(CONTENT_LENGTH).parse().ok()),
            206 => parse_range(header(CONTENT_RANGE)).filter(|(start, _)| *start == from).ok_or_else(|| {
                answer(url, format!("bytes {:?} where those from {from} on were asked for", header(CONTENT_RANGE)))
            })?,
            _ => return Err(self.refusal(url, &response, id)),
        };
        Ok(Some(Bytes { from, size, body: response.into_body() }))
    }

    /// Asks the hub itself, and follows it from one of its own addresses to another, as after a change of name. Returns
    /// the last address with its answer: success, or where else to go.
    fn ask(&self, url: &str, method: &str, id: &ModelId) -> Result<(String, Response<Body>), HubError> {
        let mut url = url.to_owned();
        for _ in 0..HOPS {
            let request = self.request(if method == "HEAD" { self.agent.head(&url) } else { self.agent.get(&url) });
            let response = request.config().max_redirects(0).build().call().map_err(|error| network(&url, &error))?;
            if !response.status().is_redirection() {
                return match response.status().is_success() {
                    true => Ok((url, response)),
                    false => Err(self.refusal(&url, &response, id)),
                };
            }
            match text(response.headers(), LOCATION).and_then(|to| own_address(&url, to)) {
                Some(next) => url = next,
                None => return Ok((url, response)),
            }
        }
        Err(answer(&url, format!("more than {HOPS} redirections")))
    }

    fn request(&self, request: RequestBuilder<WithoutBody>) -> RequestBuilder<WithoutBody> {
        // A compressed answer would have another length than the file.
        let request = request.header(ACCEPT_ENCODING, "identity");
        match &self.token {
            Some(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }

    /// What an answer other than success means. The hub says it in a header; what others say, only the status tells.
    fn refusal(&self, url: &str, response: &Response<Body>, id: &ModelId) -> HubError {
        let (repository, endpoint) = (id.repository().to_owned(), self.endpoint.clone());
        let status = response.status().as_u16();
        let header = |name| text(response.headers(), name);
        match (header(HeaderName::from_static("x-error-code")), status) {
            (Some("RevisionNotFound"), _) => HubError::NoRevision { repository, revision: id.revision().to_owned() },
            (Some("RepoNotFound"), _) => HubError::NoRepository { repository, endpoint },
            (_, 401 | 403) => HubError::Refused { repository, endpoint, status, token: self.token.is_some() },
            _ => {
                let wait = header(RETRY_AFTER).and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
                HubError::Status { url: url.to_owned(), status, wait }
            }
        }
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// The first byte and the size of the whole in `bytes FIRST-LAST/SIZE`; the size may be `*`.
fn parse_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, size.parse().ok()))
}

/// The address that a redirection leads to, if it is one of the same server.
fn own_address(from: &str, to: &str) -> Option<String> {
    let from: Uri = from.parse().ok()?;
    let origin = format!("{}://{}", from.scheme_str()?, from.authority()?);
    let path = to.strip_prefix(&origin).unwrap_or(to);
    (path.starts_with('/') && !path.starts_with("//")).then(|| origin + path)
}

fn answer(url: &str, reason: impl Into<String>) -> HubError {
    HubError::Answer { url: url.to_owned(), reason: reason.into() }
}

fn network(url: &str, error: &ureq::Error) -> HubError {
    HubError::Network { url: url.to_owned(), reason: error.to_string() }
}
