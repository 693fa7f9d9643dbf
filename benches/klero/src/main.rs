//! Measures Klero beside its peers and the floors of the machine; `./bench` runs it.
//!
//! A case is measured in rounds. In each, Klero, the floor and every peer take their turn, so that whatever the machine
//! does between rounds hits all alike; what is told is the median of the rounds, and the ratio within this run.

mod case;
mod clock;
mod draws;
mod floors;
mod generation;
#[cfg(feature = "cuda")]
mod gpu;
mod heads;
mod machine;
mod peer;
mod rows;
mod table;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use peer::Peer;
use std::fs;
use std::path::{Path, PathBuf};
use table::Table;

/// Measures Klero beside its peers.
#[derive(Parser)]
#[command(name = "bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The CPU: draws from ready logits, batches, the fused head, generation.
    Cpu(Settings),
    /// A GPU: the fused head.
    #[cfg(feature = "cuda")]
    Gpu(Settings),
}

#[derive(clap::Args)]
struct Settings {
    /// Two short rounds and fewer cases: to see that all works.
    #[arg(long)]
    quick: bool,
    /// Write a JSON object for each case and peer to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables to this file, with the machine and the date.
    #[arg(long, value_name = "FILE.md")]
    record: Option<PathBuf>,
    /// A peer, as NAME=COMMAND; it answers requests on its standard input.
    #[arg(long, value_name = "NAME=COMMAND")]
    peer: Vec<String>,
    /// Only these parts. On the CPU: draws, batches, heads, generation; on a GPU: graph, eager, host.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<String>,
    /// On a GPU: ids of a tile, in place of the number that Klero would choose.
    #[arg(long, value_name = "IDS")]
    tile: Option<u32>,
    /// On a GPU: only these numbers of rows.
    #[arg(long, value_name = "ROWS", value_delimiter = ',')]
    rows: Vec<usize>,
    /// Where inputs are left for the peers.
    #[arg(long, value_name = "FOLDER", default_value = "target/bench")]
    folder: PathBuf,
}

impl Settings {
    fn rounds(&self) -> usize {
        if self.quick { 2 } else { 5 }
    }
}

fn main() -> Result<()> {
    const CPU: [(&str, Part); 4] = [
        ("draws", draws::rows),
        ("batches", draws::batches),
        ("heads", heads::heads),
        ("generation", generation::generation),
    ];
    let (settings, parts, what) = match Cli::parse().command {
        Command::Cpu(settings) => (settings, &CPU[..], "the CPU".to_owned()),
        #[cfg(feature = "cuda")]
        Command::Gpu(settings) => (settings, &gpu::PARTS[..], gpu::card()?),
    };
    fs::create_dir_all(&settings.folder)?;
    let mut peers = settings.peer.iter().map(|peer| Peer::start(peer)).collect::<Result<Vec<_>>>()?;
    peers.iter_mut().try_for_each(Peer::greet)?;
    let machine = machine::describe(&what, &peers);
    println!("{machine}");
    let mut tables = Vec::new();
    for (name, part) in parts {
        if settings.only.is_empty() || settings.only.iter().any(|only| only == name) {
            tables.extend(part(&settings, &mut peers)?);
        }
    }
    if let Some(path) = &settings.json {
        let lines: Vec<String> = tables.iter().flat_map(Table::json).collect();
        write(path, &(lines.join("\n") + "\n"))?;
    }
    if let Some(path) = &settings.record {
        let pages: Vec<String> = tables.iter().map(Table::to_string).collect();
        write(path, &format!("{machine}\n{}", pages.join("\n")))?;
    }
    Ok(())
}

/// A part of the measurement: its tables, each printed as soon as it is whole.
type Part = fn(&Settings, &mut [Peer]) -> Result<Vec<Table>>;

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
