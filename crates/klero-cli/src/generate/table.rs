//! Tokens with their logprobs, as a table.

use crate::cli::ReportArgs;
use crate::words::{count, quote_short};
use klero::Outcome;
use klero_models::Tokenizer;
use std::fmt::{self, Display, Formatter};

/// Columns of a token's text.
const TEXT: usize = 20;

/// A line for each token: what is known of it, then the best tokens in its place.
pub struct Table<'t> {
    tokenizer: &'t Tokenizer,
    lines: Vec<Vec<Cell>>,
}

/// A cell, with what stands above its column.
struct Cell {
    heading: &'static str,
    text: String,
    /// Text stands left, numbers right.
    left: bool,
}

impl<'t> Table<'t> {
    /// An empty table, if the arguments ask for one.
    pub fn asked(args: &ReportArgs, tokenizer: &'t Tokenizer) -> Option<Self> {
        args.logprobs.map(|_| Self { tokenizer, lines: Vec::new() })
    }

    /// Adds a token.
    pub fn push(&mut self, outcome: &Outcome) {
        let raw = outcome.raw_logprob.map(|raw| number("raw", raw));
        let mut line = vec![self.token("token", outcome.token), number("logprob", outcome.logprob)];
        line.extend(raw);
        line.push(Cell { heading: "kept", text: count(outcome.kept), left: false });
        if let Some(sure) = outcome.confidence {
            line.extend(
                [("entropy", sure.entropy), ("largest", sure.largest), ("smaller", sure.smaller)]
                    .map(|(h, v)| number(h, v)),
            );
        }
        for (rank, best) in outcome.top.iter().enumerate() {
            let heading = if rank == 0 { "best" } else { "" };
            line.extend([self.token(heading, best.token), number("", best.logprob)]);
        }
        self.lines.push(line);
    }

    fn token(&self, heading: &'static str, token: u32) -> Cell {
        Cell { heading, text: quote_short(self.tokenizer.bytes(token, true), TEXT), left: true }
    }
}

fn number(heading: &'static str, value: f64) -> Cell {
    Cell { heading, text: format!("{value:.4}"), left: false }
}

impl Display for Table<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // Where fewer tokens are left than asked for, a line is shorter.
        let Some(longest) = self.lines.iter().max_by_key(|line| line.len()) else { return Ok(()) };
        let heading = |cell: &Cell| Cell { text: cell.heading.to_owned(), ..*cell };
        let lines: Vec<Vec<Cell>> = vec![longest.iter().map(heading).collect()];
        let lines: Vec<&Vec<Cell>> = lines.iter().chain(&self.lines).collect();
        let width = |column: usize| {
            lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..longest.len()).map(width).collect();
        for line in lines {
            let cells = line.iter().zip(&widths).map(|(cell, width)| match cell.left {
                true => format!("{:<width$}", cell.text),
                false => format!("{:>width$}", cell.text),
            });
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}
