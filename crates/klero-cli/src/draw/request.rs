//! A request: which tensors, which parameters.

use crate::tensors::BlockType;
use klero::hash::Stream;
use klero::{Draft, History, LogitBias, Sampling, SamplingParams};
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

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
    /// The text so far, where the request gives one.
    pub history: Option<History>,
    pub logit_bias: Option<LogitBias>,
    pub banned: Option<BTreeSet<u32>>,
    pub allowed: Option<Allowed>,
    /// Ids whose logprobs are asked for.
    pub ids: Vec<u32>,
    /// How many samples to draw; none: one, which is not called a sample.
    pub samples: Option<usize>,
}

/// Where a request's logits come from.
#[derive(Debug)]
pub enum Source {
    /// A tensor.
    Logits(String),
    /// The product of two.
    Head { hidden: String, weights: String, blocks: BlockType },
}

/// Which ids may be drawn.
#[derive(Debug)]
pub enum Allowed {
    Ids(BTreeSet<u32>),
    /// A tensor with a bit for each.
    Bitmask(String),
}

/// What is to be verified.
#[derive(Debug)]
pub struct Verify {
    pub drafted: Drafted,
    pub proposal: ProposalName,
    pub row: Option<usize>,
    pub delta: f64,
}

/// What was drafted.
#[derive(Debug, PartialEq)]
pub enum Drafted {
    /// A token for the row; −1 for none.
    Token(i64),
    /// The tokens of several rows, one after the other.
    Tokens(Vec<u32>),
}

/// How it was drafted.
#[derive(Debug, PartialEq)]
pub enum ProposalName {
    /// From the distribution in this tensor.
    Logprobs(String),
    OneHot,
    Coupled,
}

/// The most samples a request may ask for.
const MAX_SAMPLES: usize = 1024;

/// The fields of a request that are not sampling parameters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    logits: Option<String>,
    hidden: Option<String>,
    weights: Option<String>,
    #[serde(default)]
    weights_type: BlockType,
    row: Option<usize>,
    position: u64,
    #[serde(default)]
    stream: Stream,
    vocabulary: Option<usize>,
    verify: Option<Verification>,
    prompt_ids: Option<Vec<Value>>,
    output_ids: Option<Vec<Value>>,
    logit_bias: Option<Map<String, Value>>,
    banned: Option<Vec<Value>>,
    allowed: Option<Vec<Value>>,
    allowed_bitmask: Option<String>,
    #[serde(default)]
    ids: Vec<Value>,
    samples: Option<usize>,
}

const PLACE: [&str; 17] = [
    "logits",
    "hidden",
    "weights",
    "weights_type",
    "row",
    "position",
    "stream",
    "vocabulary",
    "verify",
    "prompt_ids",
    "output_ids",
    "logit_bias",
    "banned",
    "allowed",
    "allowed_bitmask",
    "ids",
    "samples",
];

/// `verify` as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Verification {
    draft_token: Option<i64>,
    draft_tokens: Option<Vec<Value>>,
    draft_logprobs: Option<String>,
    #[serde(default)]
    one_hot: bool,
    #[serde(default)]
    coupled: bool,
    row: Option<usize>,
    delta: Option<f64>,
}

impl Request {
    /// Reads and checks a line. The error says what is wrong with it, but not where it stands.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let Object(fields) = serde_json::from_slice(line).map_err(|error| in_line(&error))?;
        let (place, params): (Map<_, _>, Map<_, _>) =
            fields.into_iter().partition(|(name, _)| PLACE.contains(&name.as_str()));
        let params: SamplingParams = typed(params)?;
        let place: Place = typed(place)?;
        let sampling = params.check().map_err(|error| error.to_string())?;
        Self::checked(place, sampling)
    }

    fn checked(place: Place, sampling: Sampling) -> Result<Self, String> {
        let verify = place.verify.map(Verify::checked).transpose()?;
        if matches!(&verify, Some(Verify { drafted: Drafted::Tokens(_), .. })) {
            let alone = |field: &str, given: bool| match given {
                true => Err(format!("`{field}` does not go with `draft_tokens`")),
                false => Ok(()),
            };
            alone("row", place.row.is_some())?;
            alone("samples", place.samples.is_some())?;
        }
        if let Some(n) = place.samples.filter(|n| !(1..=MAX_SAMPLES).contains(n)) {
            return Err(format!("samples is {n}, must be in 1..={MAX_SAMPLES}"));
        }
        Ok(Self {
            source: source(place.logits, place.hidden, place.weights, place.weights_type)?,
            row: place.row,
            sampling,
            position: place.position,
            stream: place.stream,
            vocabulary: place.vocabulary,
            verify,
            history: history(place.prompt_ids, place.output_ids)?,
            logit_bias: place.logit_bias.map(logit_bias).transpose()?,
            banned: place.banned.map(|banned| set_of("banned", &banned)).transpose()?,
            allowed: allowed(place.allowed, place.allowed_bitmask)?,
            ids: ids_of("ids", &place.ids)?,
            samples: place.samples,
        })
    }
}

impl Verify {
    fn checked(given: Verification) -> Result<Self, String> {
        let drafted = match (given.draft_token, given.draft_tokens) {
            (Some(token), None) => Drafted::Token(token),
            (None, Some(tokens)) => Drafted::Tokens(ids_of("draft_tokens", &tokens)?),
            _ => return Err("verify must have either `draft_token` or `draft_tokens`".to_owned()),
        };
        let proposal = match (given.draft_logprobs, given.one_hot, given.coupled) {
            (Some(logprobs), false, false) => ProposalName::Logprobs(logprobs),
            (None, true, false) => ProposalName::OneHot,
            (None, false, true) => ProposalName::Coupled,
            _ => return Err("verify must have one of `draft_logprobs`, `one_hot` and `coupled`".to_owned()),
        };
        Ok(Self { drafted, proposal, row: given.row, delta: given.delta.unwrap_or(Draft::DELTA) })
    }
}

fn source(
    logits: Option<String>,
    hidden: Option<String>,
    weights: Option<String>,
    blocks: BlockType,
) -> Result<Source, String> {
    match (logits, hidden, weights) {
        (Some(logits), None, None) => Ok(Source::Logits(logits)),
        (None, Some(hidden), Some(weights)) => Ok(Source::Head { hidden, weights, blocks }),
        _ => Err("must have either `logits`, or `hidden` and `weights`".to_owned()),
    }
}

fn history(prompt: Option<Vec<Value>>, output: Option<Vec<Value>>) -> Result<Option<History>, String> {
    if prompt.is_none() && output.is_none() {
        return Ok(None);
    }
    let mut history = History::of_prompt(ids_of("prompt_ids", &prompt.unwrap_or_default())?);
    ids_of("output_ids", &output.unwrap_or_default())?.into_iter().for_each(|id| history.write(id));
    Ok(Some(history))
}

fn logit_bias(given: Map<String, Value>) -> Result<LogitBias, String> {
    let mut biases = Vec::with_capacity(given.len());
    for (id, bias) in given {
        let number = bias.as_f64().ok_or_else(|| format!("logit_bias of {id} is {bias}, must be a number"))?;
        let id = id.parse().map_err(|_| format!("logit_bias holds id {id:?}, must be {ID_RULE}"))?;
        biases.push((id, number));
    }
    LogitBias::new(biases).map_err(|error| error.to_string())
}

fn allowed(ids: Option<Vec<Value>>, bitmask: Option<String>) -> Result<Option<Allowed>, String> {
    match (ids, bitmask) {
        (Some(_), Some(_)) => Err("must not have both `allowed` and `allowed_bitmask`".to_owned()),
        (Some(ids), None) => Ok(Some(Allowed::Ids(set_of("allowed", &ids)?))),
        (None, bitmask) => Ok(bitmask.map(Allowed::Bitmask)),
    }
}

const ID_RULE: &str = "an id, an integer in 0..=4294967295";

fn ids_of(field: &str, values: &[Value]) -> Result<Vec<u32>, String> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    values.iter().map(|value| id(value).ok_or_else(|| format!("{field} holds {value}, must be {ID_RULE}"))).collect()
}

fn set_of(field: &str, values: &[Value]) -> Result<BTreeSet<u32>, String> {
    Ok(ids_of(field, values)?.into_iter().collect())
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
        assert!(matches!(&request.source, Source::Head { hidden, weights, .. } if hidden == "h" && weights == "w"));
        assert_eq!((request.row, request.position, request.vocabulary), (Some(3), u64::MAX, Some(7)));
        assert_eq!((request.sampling.seed(), request.stream), (u64::MAX, Stream::Draft));
        let verify = request.verify.unwrap();
        assert_eq!((verify.drafted, verify.delta, verify.row), (Drafted::Token(-1), Draft::DELTA, None));
        assert_eq!(verify.proposal, ProposalName::Logprobs("d".to_owned()));
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
        ] {
            let error = refused(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
        for (fields, expected) in [
            (r#""verify":{"draft_token":1}"#, "one of `draft_logprobs`, `one_hot` and `coupled`"),
            (r#""verify":{"draft_token":1,"one_hot":true,"coupled":true}"#, "one of `draft_logprobs`,"),
            (r#""verify":{"coupled":true}"#, "either `draft_token` or `draft_tokens`"),
            (r#""verify":{"draft_tokens":[1,-1],"coupled":true}"#, "draft_tokens holds -1, must be an id"),
            (r#""row":0,"verify":{"draft_tokens":[1],"coupled":true}"#, "`row` does not go with `draft_tokens`"),
            (r#""samples":0"#, "samples is 0, must be in 1..=1024"),
            (r#""samples":1025"#, "samples is 1025"),
            (r#""banned":[3,-1]"#, "banned holds -1, must be an id"),
            (r#""banned":[4294967296]"#, "banned holds 4294967296"),
            (r#""banned":["x"]"#, "banned holds \"x\""),
            (r#""ids":[1.5]"#, "ids holds 1.5"),
            (r#""prompt_ids":[null]"#, "prompt_ids holds null"),
            (r#""output_ids":[true]"#, "output_ids holds true"),
            (r#""allowed":[-7]"#, "allowed holds -7"),
            (r#""allowed":[7],"allowed_bitmask":"m""#, "both `allowed` and `allowed_bitmask`"),
            (r#""logit_bias":{"-1":2}"#, "logit_bias holds id \"-1\""),
            (r#""logit_bias":{"3":"2"}"#, "logit_bias of 3 is \"2\""),
            (r#""logit_bias":{"3":1e39}"#, "for id 3, must be a finite number"),
            (r#""weights_type":"q3_k""#, "unknown variant `q3_k`"),
            (r#""repetition_penalty":0"#, "repetition_penalty is 0"),
            (r#""filter_order":"top_k_first""#, "unknown variant `top_k_first`"),
        ] {
            let error = refused(&format!("{{\"logits\":\"a\",\"position\":1,{fields}}}"));
            assert!(error.contains(expected), "{fields}: {error}");
        }
        assert!(Request::parse(b"{\"logits\":\"\xFF\",\"position\":1}").unwrap_err().contains("column"));
    }
}
