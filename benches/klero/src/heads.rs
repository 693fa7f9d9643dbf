//! The fused head: a draw beside the same weights' product alone, and beside candle's.

use crate::case::{Case, FILTERS, Filters};
use crate::peer::Peer;
use crate::table::{Line, Table};
use crate::{Settings, clock, draws, floors, rows};
use anyhow::Result;
use half::{bf16, f16};
use klero::{BlockQ4K, BlockQ6K, BlockQ8_0, FusedHead, Weights};
use serde::Serialize;
use std::time::Duration;

/// What is asked of a peer: the product of a matrix of this type and shape with some rows.
#[derive(Serialize)]
struct Product {
    kind: &'static str,
    weights: &'static str,
    vocabulary: usize,
    dim: usize,
    rows: usize,
    budget_ms: u64,
}

const TYPES: [&str; 6] = ["bf16", "f16", "f32", "q8_0", "q6_k", "q4_k"];

/// Heads of the usual shapes and types, on two threads.
pub fn heads(settings: &Settings, peers: &mut [Peer]) -> Result<Vec<Table>> {
    let shapes = [(49_152, 576), (262_144, 640), (151_936, 2048)];
    let two = draws::pool(2)?;
    let mut tables = Vec::new();
    for (vocabulary, dim) in shapes.into_iter().take(if settings.quick { 1 } else { 3 }) {
        let own = ["product alone, kept", "product alone, one row"].map(str::to_owned);
        let mut table = Table {
            title: format!("Fused head, V = {vocabulary}, D = {dim}"),
            floor: "two threads reading the weights",
            unit: "µs on two threads.",
            peers: own.into_iter().chain(peers.iter().map(|peer| peer.name.clone())).collect(),
            lines: vec![],
        };
        for name in TYPES {
            let Some((weights, bytes)) = weights(name, vocabulary, dim)? else { continue };
            let memory = vec![1.0f32; bytes / 4];
            for (rows, (filter, filters)) in [(1, FILTERS[0]), (1, FILTERS[3]), (16, FILTERS[0]), (16, FILTERS[3])] {
                let request = Product {
                    kind: "product",
                    weights: name,
                    vocabulary,
                    dim,
                    rows,
                    budget_ms: budget(settings).as_millis() as u64,
                };
                let case = format!("{name}, {rows} × {filter}");
                table.lines.push(two.install(|| line(settings, peers, case, &weights, &memory, &request, filters))?);
            }
        }
        println!("{table}");
        tables.push(table);
    }
    Ok(tables)
}

fn budget(settings: &Settings) -> Duration {
    Duration::from_millis(if settings.quick { 20 } else { 80 })
}

fn line(
    settings: &Settings,
    peers: &mut [Peer],
    case: String,
    weights: &Weights,
    memory: &[f32],
    request: &Product,
    filters: Filters,
) -> Result<Line> {
    let (rows, dim) = (request.rows, weights.cols());
    let hidden: Vec<f32> = (0..(rows * dim) as u64).map(|i| rows::normal(3, i) as f32).collect();
    let head = FusedHead::new(weights)?;
    let drawn: Vec<_> = (0..rows as u64).map(|i| Case::new(String::new(), weights.rows(), filters).row(i)).collect();
    let mut logits = vec![0.0; rows * weights.rows()];
    let mut line = Line { case, klero: vec![], floor: vec![], peers: vec![vec![]; 2 + peers.len()] };
    for _ in 0..settings.rounds() {
        line.klero.push(clock::us(budget(settings), || head.draw(&hidden, &drawn).expect("a sound call").len()));
        line.floor.push(clock::us(budget(settings), || floors::read(memory)));
        line.peers[0].push(clock::us(budget(settings), || weights.matmul(&hidden, &mut logits).expect("a sound call")));
        let (one, out) = (&hidden[..dim], &mut logits[..weights.rows()]);
        line.peers[1].push(clock::us(budget(settings), || weights.matmul(one, out).expect("a sound call")));
        for (peer, times) in peers.iter_mut().zip(&mut line.peers[2..]) {
            times.extend(peer.us(request)?);
        }
    }
    Ok(line)
}

/// Random weights of a type and the bytes they take; None where the type does not fit the shape.
fn weights(name: &str, vocabulary: usize, dim: usize) -> Result<Option<(Weights<'static>, usize)>> {
    let elements = vocabulary * dim;
    let values = || (0..elements as u64).map(|i| (klero::hash::splitmix64(i) >> 40) as f32 * 2f32.powi(-23) - 1.0);
    // Bytes of blocks with a plain scale wherever one stands.
    let blocks = |bytes: usize, size: usize, scales: &[usize]| -> Vec<u8> {
        let mut data: Vec<u8> =
            (0..(elements / size * bytes) as u64).map(|i| klero::hash::splitmix64(i) as u8).collect();
        for block in data.chunks_exact_mut(bytes) {
            for at in scales {
                block[*at..at + 2].copy_from_slice(&f16::from_f32(0.001).to_le_bytes());
            }
        }
        data
    };
    if name.ends_with("_k") && !dim.is_multiple_of(256) {
        return Ok(None);
    }
    Ok(Some(match name {
        "bf16" => (Weights::bf16(vocabulary, dim, values().map(bf16::from_f32).collect::<Vec<_>>())?, 2 * elements),
        "f16" => (Weights::f16(vocabulary, dim, values().map(f16::from_f32).collect::<Vec<_>>())?, 2 * elements),
        "f32" => (Weights::f32(vocabulary, dim, values().collect::<Vec<_>>())?, 4 * elements),
        "q8_0" => {
            let blocks = BlockQ8_0::from_bytes(&blocks(BlockQ8_0::BYTES, 32, &[0]))?;
            (Weights::q8_0(vocabulary, dim, blocks)?, elements / 32 * BlockQ8_0::BYTES)
        }
        "q6_k" => {
            let blocks = BlockQ6K::from_bytes(&blocks(BlockQ6K::BYTES, 256, &[208]))?;
            (Weights::q6_k(vocabulary, dim, blocks)?, elements / 256 * BlockQ6K::BYTES)
        }
        _ => {
            let blocks = BlockQ4K::from_bytes(&blocks(BlockQ4K::BYTES, 256, &[0, 2]))?;
            (Weights::q4_k(vocabulary, dim, blocks)?, elements / 256 * BlockQ4K::BYTES)
        }
    }))
}
