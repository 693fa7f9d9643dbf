//! `klero draw`: replays draws from a file of tensors, a JSON line a request.

mod batch;
mod reply;
pub mod request;

use crate::cli::DrawArgs;
use crate::failure::{Failure, tell};
use crate::tensors::{TensorFile, Tensors};
use batch::Job;
use klero::{Outcome, Policy, RowError, Speculated};
use reply::Reply;
use request::Request;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::process::ExitCode;

/// Why a request gives no token.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The request itself: bad JSON, a bad parameter, a tensor that is not there or does not fit.
    Request(String),
    /// What the library found wrong with its row.
    Row(RowError),
}

/// What a request that was drawn gives.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A draw.
    One(Outcome),
    /// Several of one row, at least one.
    Samples(Vec<Outcome>),
    /// A whole draft.
    Draft(Speculated),
}

/// Runs every request and writes every reply. The exit code is 1 if a request was invalid; rows whose numbers give no
/// token are results like others.
pub fn run(args: &DrawArgs) -> Result<ExitCode, Failure> {
    let file = TensorFile::read(&args.tensors)?;
    let bytes = read_requests(&args.requests)?;
    let blacklist = (!args.blacklist.is_empty()).then(|| args.blacklist.iter().copied().collect());
    let policy = Policy { blacklist: blacklist.as_ref(), force_top_k: args.force_top_k };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut code = ExitCode::SUCCESS;
    for (line, reply) in answer(&file.tensors()?, &bytes, policy) {
        if let Some(error) = reply.invalid() {
            tell(format_args!("line {line}: {error}"));
            code = ExitCode::FAILURE;
        }
        serde_json::to_writer(&mut out, &reply).map_err(std::io::Error::from)?;
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(code)
}

/// The replies to request lines over the bytes of a file of tensors.
pub fn replay(tensors: &[u8], requests: &[u8]) -> Result<Vec<String>, String> {
    let tensors = Tensors::read(tensors)?;
    let replies = answer(&tensors, requests, Policy::default());
    replies.iter().map(|(_, reply)| serde_json::to_string(reply).map_err(|error| error.to_string())).collect()
}

/// The reply to each line that is not blank, with the line's number.
fn answer(tensors: &Tensors, bytes: &[u8], policy: Policy) -> Vec<(usize, Reply)> {
    let lines: Vec<(usize, &[u8])> =
        (1..).zip(bytes.split(|byte| *byte == b'\n')).filter(|(_, line)| !line.trim_ascii().is_empty()).collect();
    let requests: Vec<Result<Request, String>> = lines.iter().map(|(_, line)| Request::parse(line)).collect();
    let outcomes = batch::draw(tensors, &jobs(tensors, &requests), policy);
    let replies = requests.iter().zip(outcomes).enumerate();
    let reply = |(row, (request, outcome)): (usize, (&Result<Request, String>, _))| {
        Reply::new(row, request.as_ref().ok(), outcome)
    };
    lines.iter().map(|(line, _)| *line).zip(replies.map(reply)).collect()
}

fn read_requests(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = match path.to_str() {
        Some("-") => std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes),
        _ => std::fs::read(path),
    };
    read.map_err(|error| Failure::Run(format!("cannot read {}: {error}", path.display())))
}

/// Finds each request's tensors.
fn jobs<'a>(tensors: &Tensors<'a>, requests: &'a [Result<Request, String>]) -> Vec<Result<Job<'a>, Fault>> {
    let job = |request: &'a Result<Request, String>| match request {
        Ok(request) => Job::new(tensors, request),
        Err(error) => Err(error.clone()),
    };
    requests.iter().map(|request| job(request).map_err(Fault::Request)).collect()
}
