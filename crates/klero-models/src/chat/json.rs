//! The filter `tojson` as Python's `json.dumps` writes: blanks after separators, nothing escaped for HTML. Templates are
//! written for that, and models were taught what it writes.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use std::fmt::Write;

/// Nesting that no honest value has.
const DEEPEST: usize = 64;

/// Blanks by which a level may be indented.
const WIDEST: usize = 16;

/// How it is laid out.
struct Layout {
    indent: Option<usize>,
    between: String,
    after_key: String,
    ascii: bool,
    sorted: bool,
}

/// `value | tojson(indent, separators, ensure_ascii, sort_keys)`.
pub(super) fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    let layout = Layout {
        indent,
        between: if indent.is_some() { "," } else { ", " }.to_owned(),
        after_key: ": ".to_owned(),
        ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sorted: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    let layout = match separators {
        None => layout,
        Some(two) => {
            let [between, after_key] = <[String; 2]>::try_from(two).map_err(|_| refuse("separators must be two"))?;
            Layout { between, after_key, ..layout }
        }
    };
    if layout.indent.is_some_and(|indent| indent > WIDEST) {
        return Err(refuse("indent is above 16"));
    }
    let mut out = String::new();
    layout.write(&mut out, value, 0)?;
    Ok(out)
}

fn refuse(reason: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {reason}"))
}

impl Layout {
    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEEPEST {
            return Err(refuse("the value is nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&value.to_string()),
            ValueKind::String => self.string(out, value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.items(out, ['[', ']'], &items, depth, |out, item| self.write(out, item, depth + 1))?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sorted {
                    keys.sort();
                }
                self.items(out, ['{', '}'], &keys, depth, |out, key| {
                    self.string(out, &key.to_string());
                    out.push_str(&self.after_key);
                    self.write(out, &value.get_item(key)?, depth + 1)
                })?;
            }
            kind => return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: {kind} is no JSON"))),
        }
        Ok(())
    }

    fn items(
        &self,
        out: &mut String,
        [open, close]: [char; 2],
        items: &[Value],
        depth: usize,
        mut write: impl FnMut(&mut String, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let line = |out: &mut String, depth: usize| {
            if let Some(indent) = self.indent {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent * depth));
            }
        };
        out.push(open);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                out.push_str(&self.between);
            }
            line(out, depth + 1);
            write(out, item)?;
        }
        if !items.is_empty() {
            line(out, depth);
        }
        out.push(close);
        Ok(())
    }

    fn string(&self, out: &mut String, text: &str) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{C}' => out.push_str("\\f"),
                c if c < ' ' || self.ascii && !(' '..='~').contains(&c) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}
