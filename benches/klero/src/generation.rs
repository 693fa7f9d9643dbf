//! Texts of real models: tokens a second beside the peers', with the same files, settings and threads.

use crate::peer::Peer;
use crate::table::{Line, Table};
use crate::{Settings, draws, rows};
use anyhow::{Context, Result};
use klero::{History, SamplingParams};
use klero_cli::edits::OwnedEdits;
use klero_cli::generation::Generation;
use klero_models::Model;
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// What is asked of a peer: microseconds a token of a text after a prompt.
#[derive(Serialize)]
struct Request<'m> {
    kind: &'static str,
    model: &'m Path,
    prompt: &'static str,
    tokens: usize,
    temperature: f64,
    top_p: f64,
    threads: usize,
}

const PROMPT: &str = "Once upon a time, in a small harbour town, there lived a girl who";

/// Every model there is, on one thread and two.
pub fn generation(settings: &Settings, peers: &mut [Peer]) -> Result<Vec<Table>> {
    let mut table = Table {
        title: "Texts".to_owned(),
        floor: "",
        unit: "µs a token, after the prompt; temperature 0.8, top-p 0.95.",
        peers: peers.iter().map(|peer| peer.name.clone()).collect(),
        lines: vec![],
    };
    for (name, path) in rows::models() {
        let model = Model::load(&path)?;
        for threads in [1, 2] {
            let pool = draws::pool(threads)?;
            let case = format!("{name}, {threads} threads");
            let mut line = Line { case, klero: vec![], floor: vec![], peers: vec![vec![]; peers.len()] };
            let tokens = if settings.quick { 8 } else { 64 };
            let (temperature, top_p) = (0.8, 0.95);
            let request =
                Request { kind: "generate", model: &path, prompt: PROMPT, tokens, temperature, top_p, threads };
            for _ in 0..settings.rounds() {
                line.klero.push(pool.install(|| us_per_token(&model, &request))?);
                for (peer, times) in peers.iter_mut().zip(&mut line.peers) {
                    times.extend(peer.us(&request)?);
                }
            }
            table.lines.push(line);
        }
    }
    println!("{table}");
    Ok(vec![table])
}

/// The first token is not counted: it comes with the prompt.
fn us_per_token(model: &Model, request: &Request) -> Result<f64> {
    let tokenizer = model.tokenizer();
    let begin = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    let prompt: Vec<u32> = begin.into_iter().chain(tokenizer.encode(request.prompt, false)?).collect();
    let (temperature, top_p) = (request.temperature, request.top_p);
    let sampling = SamplingParams { temperature, top_p, seed: Some(1), ..Default::default() }.check()?;
    let history = History::of_prompt(prompt.iter().copied());
    let edits = OwnedEdits { history, ..OwnedEdits::default() };
    let mut text = Generation::new(model, prompt, sampling, edits, request.tokens + 1)?;
    text.next().context("the text is empty")??;
    let start = Instant::now();
    let mut count = 0;
    for outcome in text {
        outcome?;
        count += 1;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(count.max(1)))
}
