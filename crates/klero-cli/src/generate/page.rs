//! Texts for a person: one after the other, each as it comes once it is its turn.

use super::output::{Output, Token};
use super::table::Table;
use super::writing::{Ended, Label};
use anstream::{AutoStream, ColorChoice};
use anstyle::Style;
use std::io::{self, Stdout, Write};

/// The standard output: plain text, but for a heading and a prompt that stand out on a terminal.
pub struct Page<'p> {
    out: Stdout,
    heading: Style,
    dim: Style,
    /// The texts, in the order in which they are printed.
    texts: Vec<Printed<'p>>,
    /// The text that is being printed.
    turn: usize,
    line_open: bool,
}

/// A text that is printed, or waits for its turn.
pub struct Printed<'p> {
    /// What stands above it, where there are several.
    heading: Option<String>,
    /// What it begins with.
    begin: &'p str,
    /// What was not printed yet.
    waiting: String,
    /// What is shown of its tokens, where asked for.
    table: Option<Table<'p>>,
    begun: bool,
    ended: bool,
}

impl<'p> Printed<'p> {
    pub fn new(heading: Option<String>, begin: &'p str, table: Option<Table<'p>>) -> Self {
        Self { heading, begin, waiting: String::new(), table, begun: false, ended: false }
    }
}

impl<'p> Page<'p> {
    pub fn new(texts: Vec<Printed<'p>>) -> Self {
        let out = io::stdout();
        let (heading, dim) = match AutoStream::choice(&out) {
            ColorChoice::Never => (Style::new(), Style::new()),
            _ => (Style::new().bold(), Style::new().dimmed()),
        };
        Self { out, heading, dim, texts, turn: 0, line_open: false }
    }

    /// Prints all that waits and has its turn.
    fn print(&mut self) -> io::Result<()> {
        while self.turn < self.texts.len() {
            if !std::mem::replace(&mut self.texts[self.turn].begun, true) {
                self.begin_text()?;
            }
            let waiting = std::mem::take(&mut self.texts[self.turn].waiting);
            self.text(&waiting)?;
            if !self.texts[self.turn].ended {
                break;
            }
            self.end_text()?;
            self.turn += 1;
        }
        self.out.flush()
    }

    fn begin_text(&mut self) -> io::Result<()> {
        let Printed { heading, begin, .. } = &self.texts[self.turn];
        let (bold, dim, begin) = (self.heading, self.dim, *begin);
        if let Some(heading) = heading {
            let gap = if self.turn > 0 { "\n" } else { "" };
            writeln!(self.out, "{gap}{bold}== {heading}{bold:#}")?;
        }
        write!(self.out, "{dim}")?;
        self.text(begin)?;
        write!(self.out, "{dim:#}")
    }

    fn end_text(&mut self) -> io::Result<()> {
        self.finish_line()?;
        match &self.texts[self.turn].table {
            Some(table) => write!(self.out, "\n{table}"),
            None => Ok(()),
        }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        if !text.is_empty() {
            self.line_open = !text.ends_with('\n');
        }
        self.out.write_all(text.as_bytes())
    }

    fn finish_line(&mut self) -> io::Result<()> {
        if self.line_open { self.text("\n") } else { Ok(()) }
    }
}

impl Output for Page<'_> {
    fn begin(&mut self) -> io::Result<()> {
        self.print()
    }

    fn token(&mut self, label: &Label, token: &Token) -> io::Result<()> {
        let text = &mut self.texts[label.index];
        text.waiting.push_str(token.text);
        if let Some(table) = &mut text.table {
            table.push(token.outcome);
        }
        self.print()
    }

    fn end(&mut self, ended: &Ended) -> io::Result<()> {
        let text = &mut self.texts[ended.label.index];
        text.waiting.push_str(ended.rest);
        text.ended = true;
        self.print()
    }

    fn close(&mut self) -> io::Result<()> {
        self.finish_line()
    }
}
