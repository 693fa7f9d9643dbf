//! Draws from ready logits: one row beside the peers, and batches on one thread and two.

use crate::case::{Case, FILTERS};
use crate::peer::Peer;
use crate::table::{Line, Table};
use crate::{Settings, clock, floors, rows};
use anyhow::{Result, anyhow};
use klero::Logits;
use std::fs;
use std::time::Duration;

/// One row, one thread.
pub fn rows(settings: &Settings, peers: &mut [Peer]) -> Result<Vec<Table>> {
    let one = pool(1)?;
    let mut inputs: Vec<(String, Vec<f32>)> = Vec::new();
    for (name, model) in rows::models() {
        let row = rows::real(&model)?;
        inputs.push((format!("a row of {name}, V = {}", row.len()), row));
    }
    for vocabulary in [32_000, 151_936, 262_144] {
        inputs.push((format!("flat (normal × 3), V = {vocabulary}"), rows::flat(vocabulary, vocabulary as u64)));
    }
    if settings.quick {
        inputs.drain(..inputs.len() - 2);
    }
    let mut tables = Vec::new();
    for (number, (title, row)) in inputs.iter().enumerate() {
        let path = settings.folder.join(format!("row-{number}.f32"));
        fs::write(&path, row.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())?;
        let mut table = Table {
            title: format!("One draw from {title}"),
            floor: "a pass",
            unit: "µs, one thread. The floor is a pass of hash, exp and comparison without filters, of exp and sum with them, of a \
                   maximum where the draw is greedy.",
            peers: peers.iter().map(|peer| peer.name.clone()).collect(),
            lines: vec![],
        };
        for (filter, filters) in FILTERS {
            for logprobs in [0, 20] {
                let with = if logprobs == 0 { "" } else { ", 20 logprobs" };
                let case = Case {
                    input: path.clone(),
                    logprobs,
                    budget_ms: budget(settings).as_millis() as u64,
                    ..Case::new(format!("{filter}{with}"), row.len(), filters)
                };
                table.lines.push(one.install(|| line(settings, peers, &case, row))?);
            }
        }
        println!("{table}");
        tables.push(table);
    }
    Ok(tables)
}

fn budget(settings: &Settings) -> Duration {
    Duration::from_millis(if settings.quick { 10 } else { 40 })
}

fn line(settings: &Settings, peers: &mut [Peer], case: &Case, row: &[f32]) -> Result<Line> {
    let logits = Logits::new(row, 1, row.len())?;
    let floor = match (case.temperature > 0.0, case.name.starts_with("no filter")) {
        (false, _) => floors::largest,
        (true, true) => floors::race,
        (true, false) => floors::exp_sum,
    };
    let mut line = Line { case: case.name.clone(), klero: vec![], floor: vec![], peers: vec![vec![]; peers.len()] };
    let mut position = 0;
    for _ in 0..settings.rounds() {
        line.klero.push(clock::us(budget(settings), || {
            position += 1;
            logits.draw(&[case.row(position)]).expect("a sound call").remove(0).expect("a sound row").token
        }));
        line.floor.push(clock::us(budget(settings), || floor(row)));
        for (peer, times) in peers.iter_mut().zip(&mut line.peers) {
            times.extend(peer.us(case)?);
        }
    }
    Ok(line)
}

/// Many rows on one thread and two.
pub fn batches(settings: &Settings, _: &mut [Peer]) -> Result<Vec<Table>> {
    let vocabulary = 151_936;
    let (one, two) = (pool(1)?, pool(2)?);
    let mut table = Table {
        title: format!("Batches of ready logits, V = {vocabulary}"),
        floor: "two threads reading the logits",
        unit: "µs a batch on two threads; in the column of one thread, in brackets, what the second gains.",
        peers: vec!["one thread".to_owned()],
        lines: vec![],
    };
    for count in if settings.quick { vec![8] } else { vec![8, 64, 256] } {
        let row = rows::flat(vocabulary, 7);
        let all: Vec<f32> = (0..count).flat_map(|i| row.iter().map(move |x| x + i as f32 * 0.01)).collect();
        let logits = Logits::new(&all, count, vocabulary)?;
        for (filter, filters) in FILTERS {
            let name = format!("{count} rows, {filter}");
            let case = Case::new(name.clone(), vocabulary, filters);
            let rows: Vec<_> = (0..count).map(|i| case.row(i as u64)).collect();
            let draw = || logits.draw(&rows).expect("a sound call").len();
            let mut line = Line { case: name, klero: vec![], floor: vec![], peers: vec![vec![]] };
            for _ in 0..settings.rounds() {
                line.klero.push(two.install(|| clock::us(budget(settings), draw)));
                line.floor.push(two.install(|| clock::us(budget(settings), || floors::read(&all))));
                line.peers[0].push(one.install(|| clock::us(budget(settings), draw)));
            }
            table.lines.push(line);
        }
    }
    println!("{table}");
    Ok(vec![table])
}

/// A pool of so many threads.
pub fn pool(threads: usize) -> Result<rayon::ThreadPool> {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(|error| anyhow!(error))
}
