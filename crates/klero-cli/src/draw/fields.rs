//! The fields of a JSON object, taken one by one, so that what is wrong with one is said with its name, its value and the
//! rule.

use klero::MAX_VOCABULARY;
use serde::de::{DeserializeOwned, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::{Map, Value};
use std::fmt;

/// The fields that were not taken yet.
pub struct Fields(Map<String, Value>);

impl Fields {
    /// The fields of the object on a line.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let Unique(value) = serde_json::from_slice(line).map_err(|error| in_line(&error))?;
        Self::of("a request", value)
    }

    /// The fields of an object called `name`.
    pub fn of(name: &str, value: Value) -> Result<Self, String> {
        match value {
            Value::Object(fields) => Ok(Self(fields)),
            other => Err(refusal(name, &other, "a JSON object")),
        }
    }

    /// A field as it is; null counts as none.
    pub fn value(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    /// A field of a type that says by itself whether a value fits.
    pub fn take<T: DeserializeOwned>(&mut self, name: &str, rule: &str) -> Result<Option<T>, String> {
        let typed = |value: Value| T::deserialize(&value).map_err(|_| refusal(name, &value, rule));
        self.value(name).map(typed).transpose()
    }

    /// The name of a tensor.
    pub fn tensor(&mut self, name: &str) -> Result<Option<String>, String> {
        self.take(name, "the name of a tensor")
    }

    /// The index of a row of a tensor.
    pub fn row(&mut self) -> Result<Option<usize>, String> {
        self.take("row", "an integer that is at least 0")
    }

    /// An array of ids.
    pub fn ids(&mut self, name: &str) -> Result<Option<Vec<u32>>, String> {
        let ids = |value: Value| match value {
            Value::Array(values) => values.iter().map(|value| id(name, value)).collect(),
            other => Err(refusal(name, &other, "an array of ids")),
        };
        self.value(name).map(ids).transpose()
    }

    /// What was not taken.
    pub fn rest(self) -> Map<String, Value> {
        self.0
    }

    /// Refuses what was not taken.
    pub fn finish(self, name: &str) -> Result<(), String> {
        match self.0.keys().next() {
            Some(field) => Err(format!("unknown field `{field}` in {name}")),
            None => Ok(()),
        }
    }
}

/// An id of some vocabulary: whether the row's own holds it is for the draw to say.
fn id(name: &str, value: &Value) -> Result<u32, String> {
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < MAX_VOCABULARY);
    id.ok_or_else(|| format!("{name} holds {}, must hold ids: integers in 0..={}", shown(value), MAX_VOCABULARY - 1))
}

/// Why a value is refused.
pub fn refusal(name: &str, value: &Value, rule: &str) -> String {
    format!("{name} is {}, must be {rule}", shown(value))
}

/// A value as JSON, but not all of a long one.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The message of an error within a line, which is always line 1 to the parser.
fn in_line(error: &serde_json::Error) -> String {
    let (message, column) = (error.to_string(), error.column());
    match message.strip_suffix(&format!(" at line 1 column {column}")) {
        Some(bare) => format!("{bare} at column {column}"),
        None => message,
    }
}

/// JSON in which no object holds a field twice. The parser's own objects would keep the last and say nothing.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Unique(element)) = elements.next_element()? {
            array.push(element);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some((name, Unique(value))) = entries.next_entry::<String, Unique>()? {
            if fields.contains_key(&name) {
                return Err(A::Error::custom(format!("duplicate field `{name}`")));
            }
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}
