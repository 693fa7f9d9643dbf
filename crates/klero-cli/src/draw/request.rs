//! A request: which tensors, which parameters.

use klero::hash::Stream;
use klero::{Draft, Sampling, SamplingParams};
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// A request whose parameters were checked; its tensors are still names.
#[derive(Debug)]
pub struct Request {
    pub source: Source,
    pub row: Option<usize>,
    pub sampling: Sampling,
    pub position: u64,
    pub stream: Stream,
    pub vocabulary: Option<usize>,
    pub verify: Option<Verify>,
}

/// Where a request's logits come from.
#[derive(Debug)]
pub enum Source {
    /// A tensor.
    Logits(String),
    /// The product of two.
    Head { hidden: String, weights: String },
}

/// A draft to verify.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verify {
    pub draft_token: i64,
    pub draft_logprobs: String,
    pub row: Option<usize>,
    #[serde(default = "default_delta")]
    pub delta: f64,
}

fn default_delta() -> f64 {
    Draft::DELTA
}

/// The fields of a request that are not sampling parameters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    logits: Option<String>,
    hidden: Option<String>,
    weights: Option<String>,
    row: Option<usize>,
    position: u64,
    #[serde(default)]
    stream: Stream,
    vocabulary: Option<usize>,
    verify: Option<Verify>,
}

const PLACE: [&str; 8] = ["logits", "hidden", "weights", "row", "position", "stream", "vocabulary", "verify"];

impl Request {
    /// Reads and checks a line. The error says what is wrong with it, but not where it stands.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let Object(fields) = serde_json::from_slice(line).map_err(|error| in_line(&error))?;
        let (place, params): (Map<_, _>, Map<_, _>) =
            fields.into_iter().partition(|(name, _)| PLACE.contains(&name.as_str()));
        let params: SamplingParams = typed(params)?;
        let place: Place = typed(place)?;
        let source = match (place.logits, place.hidden, place.weights) {
            (Some(logits), None, None) => Source::Logits(logits),
            (None, Some(hidden), Some(weights)) => Source::Head { hidden, weights },
            _ => return Err("must have either `logits`, or `hidden` and `weights`".to_owned()),
        };
        Ok(Self {
            source,
            row: place.row,
            sampling: params.check().map_err(|error| error.to_string())?,
            position: place.position,
            stream: place.stream,
            vocabulary: place.vocabulary,
            verify: place.verify,
        })
    }
}

fn typed<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())
}

/// The message of an error within a line, which is always line 1 to the parser.
fn in_line(error: &serde_json::Error) -> String {
    let (message, column) = (error.to_string(), error.column());
    match message.strip_suffix(&format!(" at line 1 column {column}")) {
        Some(bare) => format!("{bare} at column {column}"),
        None => message,
    }
}

/// A JSON object, none of whose fields is given twice.
struct Object(Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Map<String, Value>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a request, which is a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut fields = Map::new();
                while let Some((name, value)) = entries.next_entry::<String, Value>()? {
                    if fields.contains_key(&name) {
                        return Err(A::Error::custom(format!("duplicate field `{name}`")));
                    }
                    fields.insert(name, value);
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Fields).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        Request::parse(line.as_bytes()).expect_err(line)
    }

    #[test]
    fn a_request_is_read_whole() {
        let line = r#"{"hidden":"h","weights":"w","row":3,"seed":"-1","position":18446744073709551615,"stream":"mtp",
            "top_k":5,"draw":"inverse_cdf","vocabulary":7,"verify":{"draft_token":-1,"draft_logprobs":"d"}}"#;
        let request = Request::parse(line.as_bytes()).unwrap();
        assert!(matches!(&request.source, Source::Head { hidden, weights } if hidden == "h" && weights == "w"));
        assert_eq!((request.row, request.position, request.vocabulary), (Some(3), u64::MAX, Some(7)));
        assert_eq!((request.sampling.seed(), request.stream), (u64::MAX, Stream::Draft));
        let verify = request.verify.unwrap();
        assert_eq!((verify.draft_token, verify.delta, verify.row), (-1, Draft::DELTA, None));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for (line, expected) in [
            ("{", "EOF while parsing an object at column 1"),
            ("[1]", "expected a request, which is a JSON object at column 0"),
            ("{\"logits\":\"a\"}", "missing field `position`"),
            ("{\"logits\":\"a\",\"position\":-1}", "expected u64"),
            ("{\"position\":1}", "either `logits`, or `hidden` and `weights`"),
            ("{\"logits\":\"a\",\"hidden\":\"b\",\"weights\":\"c\",\"position\":1}", "either `logits`, or"),
            ("{\"hidden\":\"b\",\"position\":1}", "either `logits`, or"),
            ("{\"logits\":\"a\",\"position\":1,\"top_k\":0}", "top_k is 0"),
            ("{\"logits\":\"a\",\"position\":1,\"tempo\":0}", "unknown field `tempo`"),
            ("{\"logits\":\"a\",\"position\":1,\"seed\":18446744073709551616}", "18446744073709551615"),
            ("{\"logits\":\"a\",\"position\":1,\"position\":2}", "duplicate field `position`"),
            ("{\"logits\":\"a\",\"position\":1,\"stream\":\"both\"}", "unknown variant `both`"),
            ("{\"logits\":\"a\",\"position\":1,\"verify\":{\"draft_token\":1}}", "missing field `draft_logprobs`"),
        ] {
            let error = refused(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
        assert!(Request::parse(b"{\"logits\":\"\xFF\",\"position\":1}").unwrap_err().contains("column"));
    }
}
