//! `klero draw`: replays draws from a file of tensors, a JSON line a request.

mod batch;
mod fields;
mod job;
mod reply;
mod request;
mod verify;

use crate::cli::DrawArgs;
use crate::failure::{Failure, tell};
use crate::input;
use crate::tensors::{TensorFile, Tensors};
use job::Job;
use klero::{Policy, RowError};
use reply::Reply;
pub use request::Request;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// Why a request gives no token.
#[derive(Clone, Debug)]
enum Fault {
    /// The request itself: bad JSON, a bad parameter, a tensor that is not there or does not fit.
    Request(String),
    /// What the library found wrong with its row.
    Row(RowError),
}

/// Runs every request and writes every reply. The exit code is 1 if a request was invalid; rows whose numbers give no
/// token are results like others.
pub(crate) fn run(args: &DrawArgs) -> Result<ExitCode, Failure> {
    let file = TensorFile::read(&args.tensors)?;
    let tensors = file.tensors()?;
    let requests = input::read(&args.requests)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let invalid = replay(&tensors, &requests, &args.policy.policy(), &mut out)?;
    out.flush()?;
    for error in &invalid {
        tell(error);
    }
    Ok(if invalid.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Draws what `requests` ask for, a JSON object a line, and writes a reply a line. Returns what is wrong with each invalid
/// request, and in which line it stands.
///
/// ```
/// use klero_cli::{draw::replay, tensors::Tensors};
/// // Three logits, each 0: a length, a header of that length, and the numbers.
/// let header = br#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}"#;
/// let bytes = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 12]].concat();
/// let tensors = Tensors::deserialize(&bytes).unwrap();
///
/// let requests = br#"{"logits": "a", "position": 7, "banned": [0, 2]}
///     {"logits": "a", "position": 7, "banned": [-1]}"#;
/// let mut replies = Vec::new();
/// let invalid = replay(&tensors, requests, &klero::Policy::default(), &mut replies)?;
/// assert!(replies.starts_with(br#"{"row":0,"status":"ok","token":1,"logprob":0.0,"kept":1,"#));
/// assert_eq!(invalid, ["line 2: banned holds -1, must hold ids: integers in 0..=1048575"]);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// What `out` fails with.
pub fn replay(tensors: &Tensors, requests: &[u8], policy: &Policy, out: &mut impl Write) -> io::Result<Vec<String>> {
    let lines = (1..).zip(requests.split(|byte| *byte == b'\n')).filter(|(_, line)| !line.trim_ascii().is_empty());
    let (lines, requests): (Vec<usize>, Vec<Result<Request, String>>) =
        lines.map(|(number, line)| (number, Request::parse(line))).unzip();
    let heads = job::heads(tensors, requests.iter().flatten());
    let jobs: Vec<Result<Job, Fault>> = requests
        .iter()
        .map(|request| match request {
            Ok(request) => Job::new(tensors, &heads, request).map_err(Fault::Request),
            Err(error) => Err(Fault::Request(error.clone())),
        })
        .collect();

    let mut invalid = Vec::new();
    let answers = requests.iter().zip(batch::draw(&jobs, policy));
    for (row, (line, (request, answer))) in lines.iter().zip(answers).enumerate() {
        let reply = Reply::new(row, request.as_ref().ok(), answer);
        invalid.extend(reply.invalid().map(|error| format!("line {line}: {error}")));
        serde_json::to_writer(&mut *out, &reply)?;
        out.write_all(b"\n")?;
    }
    Ok(invalid)
}
