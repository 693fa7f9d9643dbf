//! A request: which tensors, which parameters.

use super::fields::{Fields, refusal};
use super::verify::Verify;
use crate::edits::{OwnedEdits, parse_id};
use crate::tensors::BlockType;
use klero::hash::Stream;
use klero::{History, LogitBias, Sampling, SamplingParams};
use serde::Deserialize;
use serde_json::{Map, Value};

/// A request whose parameters were checked; its tensors are still names.
#[derive(Debug)]
pub struct Request {
    pub(super) source: Source,
    pub(super) row: Option<usize>,
    pub(super) sampling: Sampling,
    pub(super) position: u64,
    pub(super) stream: Stream,
    pub(super) vocabulary: Option<usize>,
    pub(super) edits: OwnedEdits,
    pub(super) allowed: Option<Allowed>,
    /// Ids whose logprobs are reported.
    pub(super) ids: Vec<u32>,
    pub(super) samples: Option<usize>,
    pub(super) verify: Option<Verify>,
}

/// Where a request's logits come from.
#[derive(Debug)]
pub(super) enum Source {
    /// A tensor.
    Logits(String),
    /// The product of two.
    Head { hidden: String, weights: String, blocks: BlockType },
}

/// Which ids may be drawn.
#[derive(Debug)]
pub(super) enum Allowed {
    /// These.
    Ids(Vec<u32>),
    /// Those whose bits are set in a tensor.
    Bitmask(String),
}

/// The most samples of one request.
const MAX_SAMPLES: usize = 1024;

impl Request {
    /// Reads and checks a line.
    ///
    /// # Errors
    /// A text that says what is wrong with it, but not where it stands.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let mut fields = Fields::parse(line)?;
        let request = Self {
            source: source(&mut fields)?,
            row: fields.row()?,
            position: position(&mut fields)?,
            stream: fields.take("stream", "\"target\" or \"mtp\"")?.unwrap_or_default(),
            vocabulary: fields.take("vocabulary", "an integer that is at least 0")?,
            edits: edits(&mut fields)?,
            allowed: allowed(&mut fields)?,
            ids: fields.ids("ids")?.unwrap_or_default(),
            samples: samples(&mut fields)?,
            verify: fields.value("verify").map(|value| Verify::of(Fields::of("verify", value)?)).transpose()?,
            // What is left are sampling parameters, or unknown.
            sampling: params(fields.rest())?.check().map_err(|error| error.to_string())?,
        };
        let whole_draft = request.verify.as_ref().is_some_and(|verify| verify.tokens().is_some());
        match (whole_draft && request.row.is_some(), request.samples) {
            (true, _) => Err("`row` has no meaning with `draft_tokens`, which take all rows".to_owned()),
            (_, Some(_)) if request.verify.is_some() => Err("`samples` has no meaning with `verify`".to_owned()),
            _ => Ok(request),
        }
    }
}

fn source(fields: &mut Fields) -> Result<Source, String> {
    let blocks = fields.take("weights_type", "\"q8_0\", \"q4_0\", \"q4_k\", \"q5_k\" or \"q6_k\"")?;
    match (fields.tensor("logits")?, fields.tensor("hidden")?, fields.tensor("weights")?) {
        (Some(logits), None, None) => Ok(Source::Logits(logits)),
        (None, Some(hidden), Some(weights)) => Ok(Source::Head { hidden, weights, blocks: blocks.unwrap_or_default() }),
        _ => Err("must have either `logits`, or `hidden` and `weights`".to_owned()),
    }
}

fn position(fields: &mut Fields) -> Result<u64, String> {
    let position = fields.take("position", "an integer in 0..=18446744073709551615")?;
    position.ok_or_else(|| "missing field `position`".to_owned())
}

fn edits(fields: &mut Fields) -> Result<OwnedEdits, String> {
    let mut history = History::of_prompt(fields.ids("prompt_ids")?.unwrap_or_default());
    fields.ids("output_ids")?.unwrap_or_default().into_iter().for_each(|id| history.write(id));
    let bias = fields.value("logit_bias").map(bias).transpose()?.unwrap_or_default();
    let banned = fields.ids("banned")?.unwrap_or_default().into_iter().collect();
    Ok(OwnedEdits { history, bias, banned })
}

fn bias(value: Value) -> Result<LogitBias, String> {
    let mut biases = Vec::new();
    for (id, bias) in Fields::of("logit_bias", value)?.rest() {
        let name = format!("logit_bias of id {id}");
        let id = parse_id(&id).map_err(|error| format!("logit_bias: {error}"))?;
        biases.push((id, bias.as_f64().ok_or_else(|| refusal(&name, &bias, "a number"))?));
    }
    LogitBias::new(biases).map_err(|error| error.to_string())
}

fn allowed(fields: &mut Fields) -> Result<Option<Allowed>, String> {
    match (fields.ids("allowed")?, fields.tensor("allowed_bitmask")?) {
        (Some(_), Some(_)) => Err("must have at most one of `allowed` and `allowed_bitmask`".to_owned()),
        (ids, bitmask) => Ok(ids.map(Allowed::Ids).or(bitmask.map(Allowed::Bitmask))),
    }
}

fn samples(fields: &mut Fields) -> Result<Option<usize>, String> {
    let rule = "an integer in 1..=1024";
    match fields.take("samples", rule)? {
        Some(n) if !(1..=MAX_SAMPLES).contains(&n) => Err(refusal("samples", &n.into(), rule)),
        samples => Ok(samples),
    }
}

/// Each parameter is read alone first, so that what is wrong with it is said with its name.
fn params(fields: Map<String, Value>) -> Result<SamplingParams, String> {
    let read = |fields: Map<String, Value>| SamplingParams::deserialize(Value::Object(fields));
    for (name, value) in &fields {
        let alone = Map::from_iter([(name.clone(), value.clone())]);
        read(alone).map_err(|error| format!("{name}: {error}"))?;
    }
    read(fields).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::verify::{Drafted, Proposed};

    fn refused(line: &str) -> String {
        Request::parse(line.as_bytes()).expect_err(line)
    }

    #[test]
    fn a_request_is_read_whole() {
        let line = r#"{"hidden":"h","weights":"w","row":3,"seed":"-1","position":18446744073709551615,"stream":"mtp",
            "top_k":5,"draw":"inverse_cdf","vocabulary":7,"verify":{"draft_token":-1,"draft_logprobs":"d"},
            "ids":[0,1048575],"prompt_ids":[4],"output_ids":[9,9],"logit_bias":{"3":-1.5},"allowed":[]}"#;
        let request = Request::parse(line.as_bytes()).unwrap();
        assert!(matches!(&request.source, Source::Head { hidden, weights, .. } if hidden == "h" && weights == "w"));
        assert_eq!((request.row, request.position, request.vocabulary), (Some(3), u64::MAX, Some(7)));
        assert_eq!((request.sampling.seed(), request.stream), (u64::MAX, Stream::Draft));
        assert_eq!((request.ids, request.samples), (vec![0, 1_048_575], None));
        assert_eq!(request.edits.bias, LogitBias::new([(3, -1.5)]).unwrap());
        assert_eq!([4, 9, 5].map(|id| request.edits.history.written(id)), [Some(0), Some(2), None]);
        assert!(matches!(request.allowed, Some(Allowed::Ids(ids)) if ids.is_empty()));
        let verify = request.verify.unwrap();
        assert!(matches!(verify.drafted, Drafted::Token(-1)));
        let whole = |delta: f64| delta == klero::Draft::DELTA;
        assert!(matches!(verify.proposed, Proposed::Logprobs { row: None, delta, .. } if whole(delta)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for (line, expected) in [
            ("{", "EOF while parsing an object at column 1"),
            ("[1]", "a request is [1], must be a JSON object"),
            ("{\"logits\":\"a\"}", "missing field `position`"),
            ("{\"logits\":\"a\",\"position\":-1}", "position is -1, must be an integer in 0..="),
            ("{\"position\":1}", "either `logits`, or `hidden` and `weights`"),
            ("{\"logits\":\"a\",\"hidden\":\"b\",\"weights\":\"c\",\"position\":1}", "either `logits`, or"),
            ("{\"hidden\":\"b\",\"position\":1}", "either `logits`, or"),
            ("{\"logits\":7,\"position\":1}", "logits is 7, must be the name of a tensor"),
            ("{\"logits\":\"a\",\"position\":1,\"position\":2}", "duplicate field `position`"),
            ("{\"logits\":\"\",\"position\":1,\"logit_bias\":{\"1\":1,\"1\":2}}", "duplicate field `1`"),
        ] {
            let error = refused(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
        assert!(Request::parse(b"{\"logits\":\"\xFF\",\"position\":1}").unwrap_err().contains("column"));
    }

    #[test]
    fn every_field_is_refused_by_name_with_value_and_rule() {
        for (field, expected) in [
            (r#""top_k":0"#, "top_k is 0, must be"),
            (r#""tempo":0"#, "unknown field `tempo`"),
            (r#""temperature":"warm""#, r#"temperature: invalid type: string "warm", expected f64"#),
            (r#""seed":18446744073709551616"#, "18446744073709551615"),
            (r#""filter_order":"top_k_first""#, "filter_order: unknown variant `top_k_first`"),
            (r#""repetition_penalty":0"#, "repetition_penalty is 0, must be"),
            (r#""frequency_penalty":1e39"#, "frequency_penalty is"),
            (r#""presence_penalty":-1e39"#, "presence_penalty is"),
            (r#""kept_ids":1"#, "kept_ids: invalid type"),
            (r#""confidence":"yes""#, "confidence: invalid type"),
            (r#""stream":"both""#, r#"stream is "both", must be "target" or "mtp""#),
            (r#""row":1.5"#, "row is 1.5, must be an integer"),
            (r#""vocabulary":-4"#, "vocabulary is -4, must be an integer"),
            (r#""ids":5"#, "ids is 5, must be an array of ids"),
            (r#""ids":[1,2.0]"#, "ids holds 2.0, must hold ids: integers in 0..=1048575"),
            (r#""prompt_ids":["a"]"#, r#"prompt_ids holds "a", must"#),
            (r#""output_ids":[-1]"#, "output_ids holds -1, must"),
            (r#""banned":[1048576]"#, "banned holds 1048576, must"),
            (r#""allowed":[1099511627776]"#, "allowed holds 1099511627776, must"),
            (r#""allowed_bitmask":[1]"#, "allowed_bitmask is [1], must be the name of a tensor"),
            (r#""allowed":[1],"allowed_bitmask":"m""#, "at most one of `allowed` and `allowed_bitmask`"),
            (r#""logit_bias":[1]"#, "logit_bias is [1], must be a JSON object"),
            (r#""logit_bias":{"-1":1}"#, "logit_bias: an id is -1, must be an integer in 0..=1048575"),
            (r#""logit_bias":{"1":"a"}"#, r#"logit_bias of id 1 is "a", must be a number"#),
            (r#""logit_bias":{"1":1e39}"#, "for id 1, must be a finite number"),
            (r#""logit_bias":{"1":1,"01":1}"#, "must be given once for each id"),
            (r#""samples":0"#, "samples is 0, must be an integer in 1..=1024"),
            (r#""samples":1025"#, "samples is 1025, must be"),
            (r#""samples":"2""#, r#"samples is "2", must be"#),
            (r#""samples":1,"verify":{"draft_token":1,"one_hot":true}"#, "`samples` has no meaning with `verify`"),
        ] {
            let error = refused(&format!("{{\"logits\":\"a\",\"position\":1,{field}}}"));
            assert!(error.contains(expected), "{field}: {error}");
        }
        let long = format!(r#"{{"logits":"a","position":1,"stream":"{}"}}"#, "é".repeat(1000));
        assert!(refused(&long).len() < 300);
    }

    #[test]
    fn a_draft_is_refused_by_name_with_value_and_rule() {
        let one = "exactly one of `draft_logprobs`, `one_hot`, `coupled`";
        let long = format!(r#""draft_tokens":{:?},"coupled":true"#, [7; 1025]);
        for (fields, expected) in [
            (r#""draft_token":1"#, one),
            (r#""draft_token":1,"one_hot":false"#, one),
            (r#""draft_token":1,"one_hot":true,"coupled":true"#, one),
            (r#""draft_token":1,"draft_logprobs":"d","coupled":true"#, one),
            (r#""coupled":true"#, "either `draft_token` or `draft_tokens`"),
            (r#""draft_token":1,"draft_tokens":[1],"coupled":true"#, "either `draft_token` or `draft_tokens`"),
            (r#""draft_token":1.5,"coupled":true"#, "draft_token is 1.5, must be −1 (none) or an id"),
            (r#""draft_tokens":[-1],"coupled":true"#, "draft_tokens holds -1, must hold ids"),
            (&long, "draft_tokens has 1025 ids, must be at most 1024"),
            (r#""draft_token":1,"coupled":1"#, "coupled is 1, must be true or false"),
            (r#""draft_token":1,"coupled":true,"delta":0"#, "`delta` has no meaning with `coupled`"),
            (r#""draft_token":1,"one_hot":true,"delta":"0""#, r#"delta is "0", must be a finite number"#),
            (r#""draft_token":1,"one_hot":true,"row":1"#, "`row` in `verify` has no meaning"),
            (r#""draft_tokens":[1],"draft_logprobs":"d","row":1"#, "`row` has no meaning with `draft_tokens`"),
            (r#""draft_token":1,"one_hot":true,"hot":1"#, "unknown field `hot` in `verify`"),
        ] {
            let error = refused(&format!("{{\"logits\":\"a\",\"position\":1,\"verify\":{{{fields}}}}}"));
            assert!(error.contains(expected), "{fields}: {error}");
        }
        assert!(refused(r#"{"logits":"a","position":1,"verify":5}"#).contains("verify is 5, must be a JSON object"));
        let row = r#"{"logits":"a","row":0,"position":1,"verify":{"draft_tokens":[1],"coupled":true}}"#;
        assert!(refused(row).contains("`row` has no meaning with `draft_tokens`"));
    }
}
