//! Inputs that broke other samplers, as data: every line of `attacks/*.jsonl` is a row, drawn here in every way there is. None
//! may panic, each must end as its line says, and no neighbour may notice. `attacks/README.md` tells the format.

mod common;

use common::{Kind, Rng, bits, draw_here};
use half::{bf16, f16};
use klero::{
    Draft, Draw, Edits, Element, History, LogitBias, Logits, Outcome, Policy, Row, RowError, Sampling, SamplingParams,
};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::Path;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attack {
    name: String,
    logits: LogitsRecipe,
    #[serde(default)]
    params: Value,
    position: Option<u64>,
    vocabulary: Option<usize>,
    #[serde(default)]
    edits: BTreeMap<String, Value>,
    draft: Option<DraftRecipe>,
    expect: String,
    token: Option<u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum LogitsRecipe {
    List(Vec<Number>),
    Made(Made),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Made {
    kind: String,
    vocabulary: usize,
    #[serde(default)]
    seed: u64,
    scale: Option<f32>,
    value: Option<Number>,
    #[serde(default)]
    fill: Vec<Fill>,
    #[serde(default)]
    set: BTreeMap<String, Number>,
    #[serde(rename = "type")]
    element: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fill {
    from: usize,
    to: usize,
    value: Number,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DraftRecipe {
    token: i64,
    /// The draft's logprobs; none: a guess.
    logprobs: Option<LogitsRecipe>,
    #[serde(default)]
    coupled: bool,
    delta: Option<Number>,
}

/// A number, or what JSON has no number for: "nan", "inf", "-inf".
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Digits(f64),
    Word(String),
}

impl Number {
    fn value(&self) -> f64 {
        match self {
            Self::Digits(number) => *number,
            Self::Word(word) => word.parse().expect("nan, inf or -inf"),
        }
    }
}

impl LogitsRecipe {
    fn values(&self) -> Vec<f32> {
        match self {
            Self::List(numbers) => numbers.iter().map(|number| number.value() as f32).collect(),
            Self::Made(made) => made.values(),
        }
    }

    fn element(&self) -> &str {
        match self {
            Self::Made(Made { element: Some(element), .. }) => element,
            _ => "f32",
        }
    }
}

impl Made {
    fn values(&self) -> Vec<f32> {
        let mut rng = Rng::new(self.seed);
        let scale = self.scale.unwrap_or(1.0);
        let mut values: Vec<f32> = match self.kind.as_str() {
            "normal" => (0..self.vocabulary).map(|_| rng.normal() as f32 * scale).collect(),
            "equal" => vec![self.value.as_ref().map_or(0.0, Number::value) as f32; self.vocabulary],
            "ascending" => (0..self.vocabulary).map(|id| id as f32 * scale).collect(),
            kind => panic!("there is no kind of logits named {kind}"),
        };
        for fill in &self.fill {
            values[fill.from..fill.to].fill(fill.value.value() as f32);
        }
        for (id, number) in &self.set {
            values[id.parse::<usize>().expect("an id")] = number.value() as f32;
        }
        values
    }
}

/// The edits of an attack, once they could be read.
#[derive(Default)]
struct EditsOwned {
    history: History,
    bias: LogitBias,
    banned: BTreeSet<u32>,
    allowed: Option<Vec<u32>>,
    blacklist: BTreeSet<u32>,
    force_top_k: usize,
}

impl EditsOwned {
    fn read(from: &BTreeMap<String, Value>) -> Result<Self, serde_json::Error> {
        let mut edits = Self::default();
        for (field, value) in from {
            let value = value.clone();
            match field.as_str() {
                "prompt" => edits.history = History::of_prompt(serde_json::from_value::<Vec<u32>>(value)?),
                "bias" => edits.bias = serde_json::from_value(value)?,
                "banned" => edits.banned = serde_json::from_value(value)?,
                "allowed" => edits.allowed = Some(serde_json::from_value(value)?),
                "blacklist" => edits.blacklist = serde_json::from_value(value)?,
                "force_top_k" => edits.force_top_k = serde_json::from_value(value)?,
                _ => panic!("there is no edit named {field}"),
            }
        }
        Ok(edits)
    }

    fn edits(&self) -> Edits<'_> {
        Edits {
            history: Some(&self.history),
            drafted: &[],
            bias: Some(&self.bias),
            banned: Some(&self.banned),
            allowed: self.allowed.as_deref(),
        }
    }

    fn policy(&self) -> Policy<'_> {
        Policy { blacklist: Some(&self.blacklist), force_top_k: NonZeroUsize::new(self.force_top_k) }
    }
}

/// The parameters, or None where they are refused.
fn sampling(params: &Value, draw: Draw) -> Option<Sampling> {
    let params = if params.is_null() { Value::Object(Default::default()) } else { params.clone() };
    let read: SamplingParams = serde_json::from_value(params).ok()?;
    let seed = read.seed.or(Some(1));
    SamplingParams { draw, seed, ..read }.check().ok()
}

fn word<T>(result: &Result<T, RowError>) -> &'static str {
    result.as_ref().map_or_else(RowError::status, |_| "ok")
}

impl Attack {
    fn run(&self) {
        let edits = EditsOwned::read(&self.edits).ok();
        for draw in [Draw::Gumbel, Draw::InverseCdf] {
            match (sampling(&self.params, draw), &edits) {
                (Some(sampling), Some(edits)) => self.run_with(sampling, edits),
                _ => assert_eq!(self.expect, "refused"),
            }
        }
    }

    fn run_with(&self, sampling: Sampling, edits: &EditsOwned) {
        let values = self.logits.values();
        match self.logits.element() {
            "f32" => self.draw(&values, sampling, edits),
            "f16" => self.draw(&values.into_iter().map(f16::from_f32).collect::<Vec<_>>(), sampling, edits),
            "bf16" => self.draw(&values.into_iter().map(bf16::from_f32).collect::<Vec<_>>(), sampling, edits),
            element => panic!("there is no type of logits named {element}"),
        }
    }

    fn draw<E: Element>(&self, logits: &[E], sampling: Sampling, edits: &EditsOwned) {
        let logprobs = self.draft.as_ref().and_then(|draft| draft.logprobs.as_ref()).map(LogitsRecipe::values);
        let plain = Row::new(sampling, self.position.unwrap_or(0)).with_edits(edits.edits());
        let draft = self.draft.as_ref().map(|draft| draft.draft(logprobs.as_deref()));
        let row = Row { draft, vocabulary: self.vocabulary, ..plain };
        let width = logits.len();
        let batch = Logits::new(logits, 1, width).unwrap().batch().with_policy(edits.policy());
        let found = batch.draw(&[row]).unwrap().remove(0);
        assert_eq!(word(&found), self.expect, "{found:?}");
        let bare = &batch.tokens(&[row]).unwrap()[0];
        assert_eq!((word(bare), bare.as_ref().ok()), (word(&found), found.as_ref().ok().map(|outcome| &outcome.token)));
        for sample in batch.samples(&[row], 3).unwrap().remove(0) {
            assert_eq!(word(&sample), self.expect);
        }
        let undrafted = batch.draw(&[Row { draft: None, ..row }]).unwrap().remove(0);
        assert_eq!(word(&batch.explain(0, &row, 5).unwrap()), word(&undrafted), "an explanation leaves drafts aside");
        if let Ok(outcome) = &found {
            self.assert_sound(outcome, width, edits);
        }
        self.assert_alone(logits, row, &found, edits);
    }

    fn assert_sound(&self, outcome: &Outcome, width: usize, edits: &EditsOwned) {
        let valid = self.vocabulary.unwrap_or(width);
        assert!((outcome.token as usize) < valid && outcome.kept >= 1 && outcome.kept <= valid, "{outcome:?}");
        assert!(!edits.banned.contains(&outcome.token) && !edits.blacklist.contains(&outcome.token), "{outcome:?}");
        assert!(outcome.logprob.is_finite() && outcome.logprob <= 0.0 && outcome.log_normalizer.is_finite());
        for listed in &outcome.top {
            assert!((listed.token as usize) < valid && listed.logprob.is_finite(), "{listed:?}");
            assert!(listed.raw_logprob.is_none_or(|raw| !raw.is_nan()), "{listed:?}");
        }
        assert!(self.token.is_none_or(|token| token == outcome.token), "token {}", outcome.token);
    }

    /// The row between two good ones: all three are what they are alone.
    fn assert_alone<E: Element>(&self, logits: &[E], row: Row, found: &Result<Outcome, RowError>, edits: &EditsOwned) {
        let good: Vec<f32> = Kind::Flat.logits(3, logits.len(), 4.0);
        let values: Vec<f32> = logits.iter().map(|logit| logit.widen()).collect();
        let mate = Row::new(SamplingParams { seed: Some(9), ..Default::default() }.check().unwrap(), 5);
        let data = [&good[..], &values, &good].concat();
        let batch = Logits::new(&data, 3, logits.len()).unwrap().batch().with_policy(edits.policy());
        let together = batch.draw(&[mate, row, mate]).unwrap();
        assert_eq!(bits(&together[1]), bits(found), "between two rows");
        let policy_is_off = edits.blacklist.is_empty() && edits.force_top_k == 0;
        for neighbour in [&together[0], &together[2]] {
            assert_eq!(bits(neighbour), bits(&together[0]));
            assert!(!policy_is_off || good.is_empty() || bits(neighbour) == bits(&Ok(draw_here(&good, mate))));
        }
    }
}

impl DraftRecipe {
    fn draft<'a>(&self, logprobs: Option<&'a [f32]>) -> Draft<'a> {
        let draft = match logprobs {
            _ if self.coupled => Draft::coupled(self.token),
            Some(logprobs) => Draft::new(self.token, logprobs),
            None => Draft::one_hot(self.token),
        };
        self.delta.as_ref().map_or(draft, |delta| draft.with_delta(delta.value()))
    }
}

#[test]
fn every_attack_ends_as_its_line_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../attacks");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    let (mut attacks, mut failed) = (0, Vec::new());
    for file in &files {
        for (number, line) in (1..).zip(std::fs::read_to_string(file).unwrap().lines()) {
            let place = format!("{}:{number}", file.file_name().unwrap().display());
            let attack: Attack = serde_json::from_str(line).unwrap_or_else(|error| panic!("{place}: {error}"));
            attacks += 1;
            if std::panic::catch_unwind(|| attack.run()).is_err() {
                failed.push(format!("{place} ({})", attack.name));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(attacks > 50 && files.len() > 5, "{attacks} attacks in {} files", files.len());
}
