//! The fused head on a GPU: a draw beside the product alone, a bare read of the weights, and peers.
//!
//! Weights are random bf16 numbers and larger than the card's cache. Times are the card's, between two events around as many
//! calls as fit a budget, queued one behind the other; a graph holds one call and is replayed.

use crate::Settings;
use crate::peer::Peer;
use crate::table::{Line, Table};
use anyhow::{Context, Result};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, sys};
use klero::cuda::{CudaError, Device, Head, Inputs, Outputs, Want, Workspace};
use klero::hash::splitmix64;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The parts of `./bench gpu`.
pub const PARTS: [(&str, crate::Part); 3] = [("graph", graph), ("eager", eager), ("host", host)];

/// Hidden size and vocabulary.
const SHAPES: [(usize, usize); 4] = [(4096, 151_936), (8192, 128_256), (2048, 151_936), (640, 262_144)];
const ROWS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// The card's name.
pub fn card() -> Result<String> {
    Ok(Device::new(0)?.name().to_owned())
}

/// What a peer is asked.
#[derive(Serialize)]
struct Request<'n> {
    kind: &'static str,
    /// Which of the things that the script can do.
    method: &'n str,
    dim: usize,
    vocabulary: usize,
    rows: usize,
    graph: bool,
    budget_ms: u64,
}

fn graph(settings: &Settings, peers: &mut [Peer]) -> Result<Vec<Table>> {
    tables(settings, peers, true)
}

fn eager(settings: &Settings, peers: &mut [Peer]) -> Result<Vec<Table>> {
    tables(settings, peers, false)
}

fn tables(settings: &Settings, peers: &mut [Peer], graph: bool) -> Result<Vec<Table>> {
    let bench = Bench::new()?;
    let mut all = Vec::new();
    for (dim, vocabulary) in SHAPES.into_iter() {
        let weights = bench.random(dim * vocabulary, 0.02)?;
        // SAFETY: the weights outlive the head.
        let head = unsafe { Head::borrowed(&bench.device, bench.address(&weights), false, vocabulary, dim)? };
        let head = if let Some(ids) = settings.tile { head.with_tile(ids)? } else { head };
        let lines = ROWS
            .into_iter()
            .filter(|rows| settings.rows.is_empty() || settings.rows.contains(rows))
            .map(|rows| Case::new(&bench, &head, dim, rows)?.lines(settings, peers, graph))
            .collect::<Result<Vec<_>>>()?;
        let way = if graph { "replayed from a graph" } else { "launched one by one" };
        let table = Table {
            title: format!("D = {dim}, V = {vocabulary}, {way}"),
            floor: "a bare read of the weights",
            unit: "Microseconds of a call.",
            peers: peers.iter().map(|peer| peer.name.clone()).collect(),
            lines: lines.into_iter().flatten().collect(),
        };
        println!("{table}");
        all.push(table);
    }
    Ok(all)
}

/// What the host spends on a call.
fn host(settings: &Settings, _: &mut [Peer]) -> Result<Vec<Table>> {
    let bench = Bench::new()?;
    let (dim, vocabulary) = (512, 32_000);
    let weights = bench.random(dim * vocabulary, 0.02)?;
    // SAFETY: the weights outlive the head.
    let head = unsafe { Head::borrowed(&bench.device, bench.address(&weights), false, vocabulary, dim)? };
    let mut lines = Vec::new();
    for rows in [1, 64, 256] {
        let case = Case::new(&bench, &head, dim, rows)?;
        let times = (0..settings.rounds()).map(|_| {
            bench.stream.synchronize()?;
            let start = Instant::now();
            (0..100).try_for_each(|_| case.run(What::Tokens))?;
            let us = start.elapsed().as_secs_f64() * 1e4;
            bench.stream.synchronize()?;
            Ok(us)
        });
        let klero = times.collect::<Result<Vec<f64>>>()?;
        lines.push(Line { case: format!("{rows} rows"), klero, floor: Vec::new(), peers: Vec::new() });
    }
    let (title, unit) = ("The host's part".to_owned(), "Microseconds until a call returns, the card being busy.");
    let table = Table { title, floor: "", unit, peers: Vec::new(), lines };
    println!("{table}");
    Ok(vec![table])
}

struct Bench {
    device: Device,
    stream: Arc<CudaStream>,
}

impl Bench {
    fn new() -> Result<Self> {
        let device = Device::new(0)?;
        let context = CudaContext::new(0)?;
        // SAFETY: everything here is on one stream.
        unsafe { context.disable_event_tracking() };
        Ok(Self { device, stream: context.new_stream()? })
    }

    fn address<T>(&self, slice: &CudaSlice<T>) -> u64 {
        slice.device_ptr(&self.stream).0
    }

    /// Random bf16 numbers, nearly normal, from a block that is repeated at odd distances.
    fn random(&self, count: usize, scale: f32) -> Result<CudaSlice<u16>> {
        let mut state = count as u64;
        let mut unit = || {
            state = splitmix64(state);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        let block: Vec<u16> = (0..(1 << 22) + 3)
            .map(|_| half::bf16::from_f32((unit() + unit() + unit() + unit()) * 1.7 * scale).to_bits())
            .collect();
        let values: Vec<u16> = block.iter().copied().cycle().take(count).collect();
        Ok(self.stream.clone_htod(&values)?)
    }

    /// Microseconds of one of `calls` calls on the stream.
    fn us(&self, calls: u32, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
        let flags = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let start = self.stream.record_event(flags)?;
        (0..calls).try_for_each(|_| call())?;
        let end = self.stream.record_event(flags)?;
        end.synchronize()?;
        Ok(f64::from(start.elapsed_ms(&end)?) * 1e3 / f64::from(calls))
    }
}

/// What is timed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Tokens,
    Logprobs,
    Product,
    Read,
}

/// One number of rows of one head.
struct Case<'b> {
    bench: &'b Bench,
    head: &'b Head,
    dim: usize,
    vocabulary: usize,
    inputs: Inputs,
    workspaces: [Workspace; 2],
    outputs: [Outputs; 2],
    /// What the addresses above lie in.
    _memory: (CudaSlice<u16>, CudaSlice<f32>, CudaSlice<u64>),
}

impl<'b> Case<'b> {
    fn new(bench: &'b Bench, head: &'b Head, dim: usize, rows: usize) -> Result<Self> {
        let hidden = bench.random(rows * dim, 1.0)?;
        let temperature = bench.stream.clone_htod(&vec![0.8f32; rows])?;
        let words: Vec<u64> = (0..rows as u64).map(splitmix64).chain((0..rows as u64 * 6).map(|_| 7)).collect();
        let words = bench.stream.clone_htod(&words)?;
        let at = |part: usize| bench.address(&words) + (part * rows * 8) as u64;
        let inputs = Inputs {
            hidden: bench.address(&hidden),
            hidden_stride: dim,
            rows,
            samples: 1,
            temperature: bench.address(&temperature),
            seed: at(0),
            position: at(1),
            ..Inputs::default()
        };
        let tokens = Outputs { token: at(2), status: at(3), ..Outputs::default() };
        let outputs = [tokens, Outputs { logprob: at(4), log_normalizer: at(5), ..tokens }];
        let workspace = |logprobs| head.workspace(rows, 1, Want { logprobs, shards: 1 });
        let workspaces = [workspace(false)?, workspace(true)?];
        bench.stream.synchronize()?;
        let vocabulary = head.vocabulary();
        let memory = (hidden, temperature, words);
        Ok(Self { bench, head, dim, vocabulary, inputs, workspaces, outputs, _memory: memory })
    }

    fn run(&self, what: What) -> Result<()> {
        let stream = self.bench.stream.cu_stream() as u64;
        let [plain, full] = &self.workspaces;
        // SAFETY: all memory is of the case, and the stream is waited for before it goes.
        let done: Result<(), CudaError> = unsafe {
            match what {
                What::Tokens => self.head.enqueue(stream, &self.inputs, plain, &self.outputs[0]),
                What::Logprobs => self.head.enqueue(stream, &self.inputs, full, &self.outputs[1]),
                What::Product => self.head.product(stream, &self.inputs, plain),
                What::Read => self.head.read(stream, plain),
            }
        };
        Ok(done?)
    }

    fn graph(&self, what: What) -> Result<cudarc::driver::CudaGraph> {
        let stream = &self.bench.stream;
        stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
        self.run(what)?;
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        stream.end_capture(flags)?.context("nothing was captured")
    }

    /// Lines for the draw, the draw with logprobs, and the product alone, in rounds with the floor and the peers.
    fn lines(&self, settings: &Settings, peers: &mut [Peer], graph: bool) -> Result<Vec<Line>> {
        let whats = [What::Tokens, What::Logprobs, What::Product, What::Read];
        let mut graphs = BTreeMap::new();
        for what in whats {
            self.run(what)?; // compiles
            self.bench.stream.synchronize()?;
            if graph {
                graphs.insert(what, self.graph(what)?);
            }
        }
        let mut times: BTreeMap<What, Vec<f64>> = BTreeMap::new();
        let mut theirs = vec![Vec::new(); peers.len()];
        let budget = Duration::from_millis(if settings.quick { 5 } else { 12 });
        for _ in 0..settings.rounds() {
            for what in whats {
                let call = || match graphs.get(&what) {
                    Some(graph) => Ok(graph.launch()?),
                    None => self.run(what),
                };
                let once = self.bench.us(2, call)?;
                let calls = (budget.as_secs_f64() * 1e6 / once).clamp(5.0, 200.0) as u32;
                times.entry(what).or_default().push(self.bench.us(calls, call)?);
            }
            for (peer, theirs) in peers.iter_mut().zip(&mut theirs) {
                let method = peer.name.clone();
                let request = Request {
                    kind: "fused",
                    method: &method,
                    dim: self.dim,
                    vocabulary: self.vocabulary,
                    rows: self.inputs.rows,
                    graph,
                    budget_ms: budget.as_millis() as u64,
                };
                theirs.extend(peer.us(&request)?);
            }
        }
        let floor = times.remove(&What::Read).unwrap_or_default();
        let rows = self.inputs.rows;
        let line = |name: &str, klero: Vec<f64>, peers: Vec<Vec<f64>>| Line {
            case: format!("{rows} rows{name}"),
            klero,
            floor: floor.clone(),
            peers,
        };
        let none = || vec![Vec::new(); peers.len()];
        let mut take = |what| times.remove(&what).unwrap_or_default();
        Ok(vec![
            line("", take(What::Tokens), theirs),
            line(", with logprobs", take(What::Logprobs), none()),
            line(", product alone", take(What::Product), none()),
        ])
    }
}
