//! Sections of aligned lines.

use anstyle::Style;
use std::fmt::{self, Display, Formatter};

/// The column at which values begin.
const COLUMN: usize = 26;
const TITLE: Style = Style::new().bold();

/// A title, and what is known under it by name.
pub struct Section {
    title: String,
    rows: Vec<(String, String)>,
}

impl Section {
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), rows: Vec::new() }
    }

    /// The section with another value, which may have several lines.
    pub fn with(mut self, name: impl Into<String>, value: impl Display) -> Self {
        self.rows.push((name.into(), value.to_string()));
        self
    }

    /// The section with a value if there is one.
    pub fn with_some(self, name: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}

impl Display for Section {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{TITLE}{}{TITLE:#}", self.title)?;
        for (name, value) in &self.rows {
            let names = std::iter::once(name.as_str()).chain(std::iter::repeat(""));
            for (name, line) in names.zip(value.lines()) {
                writeln!(f, "  {name:<width$}{line}", width = COLUMN - 2)?;
            }
        }
        Ok(())
    }
}

/// A number of bytes in the unit that suits it.
pub fn bytes(n: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(bits, _)| n >> bits > 0) {
        Some((bits, unit)) => format!("{:.1} {unit}", n as f64 / f64::from(1u32 << bits)),
        None => format!("{n} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_aligned_under_their_title() {
        let section = Section::new("models").with("default", "one\ntwo").with_some("none", None::<u8>);
        let page = anstream::adapter::strip_str(&section.to_string()).to_string();
        assert_eq!(page, "models\n  default                 one\n                          two\n");
    }

    #[test]
    fn bytes_have_a_unit() {
        let numbers = [0, 1023, 1024, 98_362_432, 151 << 30];
        assert_eq!(numbers.map(bytes), ["0 bytes", "1023 bytes", "1.0 KiB", "93.8 MiB", "151.0 GiB"]);
    }
}
