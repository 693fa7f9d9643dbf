//! Cases with their times, as a table and as JSON lines.

use crate::clock::median;
use serde::Serialize;
use std::fmt;

/// One measured thing and what it is compared with.
#[derive(Clone, Debug)]
pub struct Line {
    /// What was measured.
    pub case: String,
    /// Microseconds, one number a round.
    pub klero: Vec<f64>,
    /// The least that the machine allows, likewise; empty where none is known.
    pub floor: Vec<f64>,
    /// Times of peers, in the order of the table's; empty where one cannot do it.
    pub peers: Vec<Vec<f64>>,
}

/// Lines under one heading.
#[derive(Debug)]
pub struct Table {
    /// What they have in common.
    pub title: String,
    /// What the floor is.
    pub floor: &'static str,
    /// The unit of the times and what happens in them.
    pub unit: &'static str,
    /// The names of the peers.
    pub peers: Vec<String>,
    /// The cases.
    pub lines: Vec<Line>,
}

/// A line of `--json`. `ratio` is how many times as long the peer takes; the floor's own line has the peer "floor".
#[derive(Serialize)]
struct Object<'t> {
    table: &'t str,
    case: &'t str,
    klero_us: f64,
    peer: &'t str,
    peer_us: f64,
    ratio: f64,
    floor_us: Option<f64>,
}

fn middle(times: &[f64]) -> Option<f64> {
    (!times.is_empty()).then(|| median(&mut times.to_vec()))
}

impl Table {
    /// A JSON object for each case and peer.
    pub fn json(&self) -> Vec<String> {
        let mut objects = Vec::new();
        for line in &self.lines {
            let floor_us = middle(&line.floor);
            let peers = self.peers.iter().map(String::as_str).zip(line.peers.iter().map(|times| middle(times)));
            let named = peers.chain([("floor", floor_us)]);
            for (peer, peer_us) in named.filter_map(|(peer, us)| Some((peer, us?))) {
                let klero_us = middle(&line.klero).unwrap_or(f64::NAN);
                let (table, case, ratio) = (&*self.title, &*line.case, peer_us / klero_us);
                objects.push(Object { table, case, klero_us, peer, peer_us, ratio, floor_us });
            }
        }
        objects.iter().map(|object| serde_json::to_string(object).expect("numbers and texts")).collect()
    }
}

/// Digits that tell a time apart.
fn time(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2}"),
        us if us < 100.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "## {}\n\n{}\n", self.title, self.unit)?;
        let floor = if self.floor.is_empty() { None } else { Some(format!("floor: {}", self.floor)) };
        let heads: Vec<String> = ["case".to_owned(), "Klero".to_owned()].into_iter().chain(floor).collect();
        // A peer that can do none of it has no column.
        let columns = (0..self.peers.len()).filter(|i| self.lines.iter().any(|line| !line.peers[*i].is_empty()));
        let columns: Vec<usize> = columns.collect();
        let peers = columns.iter().map(|i| &self.peers[*i]);
        let words: Vec<&str> = heads.iter().chain(peers).map(String::as_str).collect();
        writeln!(f, "| {} |\n|{}", words.join(" | "), "---|".repeat(words.len()))?;
        for line in &self.lines {
            let klero = middle(&line.klero).unwrap_or(f64::NAN);
            write!(f, "| {} | {} |", line.case, time(klero))?;
            if !self.floor.is_empty() {
                match middle(&line.floor) {
                    Some(floor) => write!(f, " {} ({:.2} ×) |", time(floor), klero / floor)?,
                    None => write!(f, " – |")?,
                }
            }
            for times in columns.iter().map(|i| &line.peers[*i]) {
                match middle(times) {
                    Some(peer) => write!(f, " {} ({:.1} ×) |", time(peer), peer / klero)?,
                    None => write!(f, " – |")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
