//! Peers: programs of their own that measure another sampler on the same inputs.
//!
//! A peer reads a JSON request a line and answers each with a line, `{"us": 12.5}` or `{"skip": "why"}`. It is started once
//! and asked in turn with the others.

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running peer.
pub struct Peer {
    /// Its name in tables.
    pub name: String,
    /// What it says of its version.
    pub version: String,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct Answer {
    us: Option<f64>,
    version: Option<String>,
}

impl Peer {
    /// Starts a peer, given as NAME=COMMAND.
    pub fn start(peer: &str) -> Result<Self> {
        let (name, command) = peer.split_once('=').ok_or_else(|| anyhow!("{peer:?} is not NAME=COMMAND"))?;
        let mut words = command.split_whitespace();
        let program = words.next().ok_or_else(|| anyhow!("peer {name} has no command"))?;
        let child = Command::new(program).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start {program}"))?;
        let (requests, answers) = (child.stdin.take(), child.stdout.take());
        let (requests, answers) = requests.zip(answers).context("a peer has no pipes")?;
        let answers = BufReader::new(answers);
        Ok(Self { name: name.to_owned(), version: String::new(), child, requests, answers })
    }

    /// Waits until it is ready and has said its version.
    pub fn greet(&mut self) -> Result<()> {
        self.version = self.answer(&serde_json::json!({"kind": "version"}))?.version.unwrap_or_default();
        Ok(())
    }

    /// Microseconds of one call; None where the peer cannot do it.
    pub fn us(&mut self, request: &impl Serialize) -> Result<Option<f64>> {
        Ok(self.answer(request)?.us)
    }

    fn answer(&mut self, request: &impl Serialize) -> Result<Answer> {
        let request = serde_json::to_string(request)?;
        writeln!(self.requests, "{request}")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let name = &self.name;
        serde_json::from_str(&line).with_context(|| format!("peer {name} answered {line:?} to {request}"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
