//! Sampling parameters: what a caller asks for, checked once, then never again.
//!
//! [`SamplingParams`] is the request as a person writes it (and as JSON carries it). [`SamplingParams::check`] refuses
//! what makes no sense, with the field, the value and the rule, and returns a [`Sampling`]: the same in the numbers the
//! draw computes with, its seed decided.

use crate::MAX_TOP_LOGPROBS;
use crate::hash::splitmix64;
use crate::math::ln;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use thiserror::Error;

/// Temperatures below this are greedy: the best logit has probability 1 in practice.
pub const GREEDY_TEMPERATURE: f64 = 1e-5;

/// How a token is drawn from the processed distribution. Both are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Draw {
    /// The greatest x + Gumbel noise. A small change of the logits rarely changes the token.
    #[default]
    Gumbel,
    /// The first id, in vocabulary order, whose running weight exceeds u · total: DeepInfer's tokens.
    InverseCdf,
}

/// In which order the filters are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterOrder {
    /// top-p on the full distribution, then top-k, then min-p.
    #[default]
    TopPFirst,
    /// min-p, then top-k, then top-p on what is left, renormalised; there an id is removed if the mass before it *reaches*
    /// top_p. For people from engines that do so.
    MinPFirst,
}

/// What to draw with. The default draws from the model's own distribution, with a random seed.
///
/// ```
/// use klero::SamplingParams;
/// let params = SamplingParams { temperature: 0.8, top_p: 0.95, seed: Some(42), ..Default::default() };
/// assert_eq!(params.check()?.seed(), 42);
///
/// let refused = SamplingParams { top_k: 0, ..Default::default() }.check().unwrap_err();
/// assert_eq!(refused.to_string(), "top_k is 0, must be −1 (off) or 1..=2147483647: use −1 to turn it off");
/// # Ok::<(), klero::ParamError>(())
/// ```
///
/// In JSON every field may be left out; an unknown field is an error. `seed` is an integer in −2^63..=2^64 − 1, or the
/// same as text, which survives readers that keep numbers as f64:
///
/// ```
/// let params: klero::SamplingParams = serde_json::from_str(r#"{"top_k": 50, "seed": "-1"}"#).unwrap();
/// assert_eq!(params.seed, Some(u64::MAX));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingParams {
    /// T, finite and at least 0. Logits are multiplied by 1/T; below 1e-5 the draw is greedy and no filter applies.
    pub temperature: f64,
    /// In (0, 1]: an id is removed if the mass of all better ids is greater. 1 removes nothing.
    pub top_p: f64,
    /// −1 (off) or at least 1: how many ids top-p leaves at most.
    pub top_k: i64,
    /// In [0, 1): an id is removed if its probability is less than this share of the best one's. 0 removes nothing.
    pub min_p: f64,
    /// The order of the three filters.
    pub filter_order: FilterOrder,
    /// ρ, finite and above 0: a logit above 0 of an id in the text so far is divided by it, one below is multiplied. 1 is
    /// off.
    pub repetition_penalty: f64,
    /// Finite; times the number of times an id was written, subtracted from its logit. 0 is off.
    pub frequency_penalty: f64,
    /// Finite; subtracted from the logit of every id that was written. 0 is off.
    pub presence_penalty: f64,
    /// Any 64 bits; none: a random seed, which the outcome reports. A negative seed stands for its two's complement.
    #[serde(serialize_with = "write_seed", deserialize_with = "read_seed")]
    pub seed: Option<u64>,
    /// How many of the best kept tokens to report, 0..=1000.
    pub top_logprobs: usize,
    /// Whether to report raw logprobs too: the log-softmax of the unprocessed logits.
    pub raw_logprobs: bool,
    /// Whether to report the kept ids.
    pub kept_ids: bool,
    /// Whether to report how sure the processed distribution is: entropy, largest and smaller probabilities.
    pub confidence: bool,
    /// How the token is drawn.
    pub draw: Draw,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: -1,
            min_p: 0.0,
            filter_order: FilterOrder::TopPFirst,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: None,
            top_logprobs: 0,
            raw_logprobs: false,
            kept_ids: false,
            confidence: false,
            draw: Draw::Gumbel,
        }
    }
}

/// A parameter that was refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{field} is {value}, must be {rule}")]
pub struct ParamError {
    /// The field of [`SamplingParams`].
    pub field: &'static str,
    /// The value given.
    pub value: String,
    /// What it must be.
    pub rule: &'static str,
}

/// Parameters that were checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    pub(crate) temperature: f32,
    pub(crate) top_p: f32,
    pub(crate) top_k: Option<usize>,
    pub(crate) min_p: f32,
    pub(crate) filter_order: FilterOrder,
    pub(crate) penalties: Penalties,
    pub(crate) seed: u64,
    pub(crate) top_logprobs: usize,
    pub(crate) raw_logprobs: bool,
    pub(crate) kept_ids: bool,
    pub(crate) confidence: bool,
    pub(crate) draw: Draw,
}

/// What the text so far does to the logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Penalties {
    pub repetition: f32,
    pub frequency: f32,
    pub presence: f32,
}

impl Penalties {
    pub(crate) const OFF: Self = Self { repetition: 1.0, frequency: 0.0, presence: 0.0 };
}

impl Sampling {
    /// The seed: the one given, or the random one.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The same parameters for sample `j` of several: sample 0 takes the seed s itself, sample j > 0
    /// SplitMix64(s ^ SplitMix64(j)), so that no sample of one seed is a sample of a neighbouring seed.
    ///
    /// ```
    /// let sampling = klero::SamplingParams { seed: Some(7), ..Default::default() }.check()?;
    /// assert_eq!(sampling.sample(0).seed(), 7);
    /// assert_ne!(sampling.sample(1).seed(), 8);
    /// # Ok::<(), klero::ParamError>(())
    /// ```
    #[must_use]
    pub fn sample(self, j: u64) -> Self {
        let seed = if j == 0 { self.seed } else { splitmix64(self.seed ^ splitmix64(j)) };
        Self { seed, ..self }
    }

    /// 1/T as it multiplies the logits.
    pub fn inverse_temperature(&self) -> f32 {
        1.0 / self.temperature
    }

    /// The same without anything that is reported beside the token.
    pub(crate) fn bare(self) -> Self {
        Self { top_logprobs: 0, raw_logprobs: false, kept_ids: false, confidence: false, ..self }
    }

    /// The same penalties and seed, at temperature 1 and under a top-k alone.
    pub(crate) fn only_top_k(self, k: usize) -> Self {
        let order = FilterOrder::TopPFirst;
        Self { temperature: 1.0, top_p: 1.0, top_k: Some(k), min_p: 0.0, filter_order: order, ..self.bare() }
    }

    /// min-p removes all ids this deep below the greatest x, with a margin; infinite where it is off.
    pub(crate) fn min_p_depth(&self) -> f32 {
        match self.min_p > 0.0 {
            true => 1.01 * -ln(f64::from(self.min_p)) as f32 + 0.01,
            false => f32::INFINITY,
        }
    }

    /// Whether any filter may remove an id.
    pub(crate) fn filters(&self) -> bool {
        self.top_p < 1.0 || self.top_k.is_some() || self.min_p > 0.0
    }
}

impl SamplingParams {
    /// Checks every field and decides the seed.
    ///
    /// Fields are judged as given, then rounded once to f32.
    ///
    /// # Errors
    /// The first field that breaks its rule.
    pub fn check(&self) -> Result<Sampling, ParamError> {
        self.check_distribution()?;
        let penalties = self.checked_penalties()?;
        if self.top_logprobs > MAX_TOP_LOGPROBS {
            return refuse("top_logprobs", self.top_logprobs, "0..=1000");
        }
        let checked = Sampling {
            temperature: self.temperature as f32,
            top_p: self.top_p as f32,
            top_k: usize::try_from(self.top_k).ok(),
            min_p: self.min_p as f32,
            filter_order: self.filter_order,
            penalties,
            seed: self.seed.unwrap_or_else(random_seed),
            top_logprobs: self.top_logprobs,
            raw_logprobs: self.raw_logprobs,
            kept_ids: self.kept_ids,
            confidence: self.confidence,
            draw: self.draw,
        };
        if self.temperature < GREEDY_TEMPERATURE {
            let temperature = GREEDY_TEMPERATURE as f32;
            return Ok(Sampling { temperature, top_p: 1.0, top_k: None, min_p: 0.0, ..checked });
        }
        Ok(checked)
    }

    /// Checks temperature and filters.
    fn check_distribution(&self) -> Result<(), ParamError> {
        if !(self.temperature >= 0.0 && (self.temperature as f32).is_finite()) {
            return refuse("temperature", self.temperature, "a finite number that is at least 0");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return refuse("top_p", self.top_p, "in (0, 1]: to keep only the best token use a small value or top_k 1");
        }
        if !(self.top_k == -1 || (1..=i64::from(i32::MAX)).contains(&self.top_k)) {
            return refuse("top_k", self.top_k, "−1 (off) or 1..=2147483647: use −1 to turn it off");
        }
        if !(self.min_p >= 0.0 && self.min_p < 1.0) {
            return refuse("min_p", self.min_p, "in [0, 1): use 0 to turn it off");
        }
        Ok(())
    }

    fn checked_penalties(&self) -> Result<Penalties, ParamError> {
        let penalties = Penalties {
            repetition: self.repetition_penalty as f32,
            frequency: self.frequency_penalty as f32,
            presence: self.presence_penalty as f32,
        };
        if !(penalties.repetition > 0.0 && penalties.repetition.is_finite()) {
            let rule = "a finite number above 0 (in f32): use 1 to turn it off";
            return refuse("repetition_penalty", self.repetition_penalty, rule);
        }
        let rule = "a finite number (in f32)";
        if !penalties.frequency.is_finite() {
            return refuse("frequency_penalty", self.frequency_penalty, rule);
        }
        if !penalties.presence.is_finite() {
            return refuse("presence_penalty", self.presence_penalty, rule);
        }
        Ok(penalties)
    }
}

fn refuse<T>(field: &'static str, value: impl fmt::Display, rule: &'static str) -> Result<T, ParamError> {
    Err(ParamError { field, value: value.to_string(), rule })
}

fn random_seed() -> u64 {
    getrandom::u64().expect("the operating system gives random bits")
}

/// Reads a seed written as text: an integer in −2^63..=2^64 − 1.
///
/// ```
/// assert_eq!(klero::parse_seed("-1"), Ok(u64::MAX));
/// assert!(klero::parse_seed("18446744073709551616").is_err());
/// ```
///
/// # Errors
/// [`ParamError`] for anything else.
pub fn parse_seed(text: &str) -> Result<u64, ParamError> {
    let parsed = text.parse::<u64>().or_else(|_| text.parse::<i64>().map(|signed| signed as u64));
    parsed.map_err(|_| ParamError { field: "seed", value: text.to_owned(), rule: SEED_RULE })
}

const SEED_RULE: &str = "an integer in −9223372036854775808..=18446744073709551615";

fn write_seed<S: Serializer>(seed: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match seed {
        Some(seed) => serializer.serialize_some(&seed.to_string()),
        None => serializer.serialize_none(),
    }
}

fn read_seed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    deserializer.deserialize_any(SeedVisitor)
}

struct SeedVisitor;

impl de::Visitor<'_> for SeedVisitor {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SEED_RULE}, as a number or as text")
    }

    fn visit_u64<E: de::Error>(self, seed: u64) -> Result<Self::Value, E> {
        Ok(Some(seed))
    }

    fn visit_i64<E: de::Error>(self, seed: i64) -> Result<Self::Value, E> {
        Ok(Some(seed as u64))
    }

    fn visit_f64<E: de::Error>(self, seed: f64) -> Result<Self::Value, E> {
        Err(E::custom(ParamError { field: "seed", value: seed.to_string(), rule: SEED_RULE }))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        parse_seed(text).map(Some).map_err(E::custom)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> String {
        match serde_json::from_str::<SamplingParams>(json) {
            Ok(params) => params.check().expect_err(json).to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_float_refuses_what_is_not_a_number_in_its_range() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, -1e-300] {
            let default = SamplingParams::default;
            for params in [
                SamplingParams { temperature: bad, ..default() },
                SamplingParams { top_p: bad, ..default() },
                SamplingParams { min_p: bad, ..default() },
                SamplingParams { repetition_penalty: bad, ..default() },
            ] {
                assert!(params.check().is_err(), "{params:?}");
            }
            for params in [
                SamplingParams { frequency_penalty: bad, ..default() },
                SamplingParams { presence_penalty: bad, ..default() },
            ] {
                assert_eq!(params.check().is_err(), !bad.is_finite(), "{params:?}");
            }
        }
        assert!(refused(r#"{"repetition_penalty": 0}"#).contains("use 1 to turn it off"));
        assert!(refused(r#"{"repetition_penalty": 1e-60}"#).contains("above 0"));
        assert!(refused(r#"{"presence_penalty": 1e39}"#).contains("finite"));
        assert!(refused(r#"{"temperature": 1e39}"#).starts_with("temperature is 1000"));
        assert!(refused(r#"{"top_p": 0}"#).contains("small value or top_k 1"));
        assert!(refused(r#"{"top_p": 1.0000001}"#).contains("(0, 1]"));
        assert!(refused(r#"{"min_p": 1}"#).contains("[0, 1)"));
        assert!(refused(r#"{"temperature": "NaN"}"#).contains("invalid type"));
        assert!(refused(r#"{"temprature": 1}"#).contains("unknown field"));
    }

    #[test]
    fn integers_are_bounded() {
        for top_k in ["0", "-2", "2147483648"] {
            assert!(refused(&format!(r#"{{"top_k": {top_k}}}"#)).contains("use −1"));
        }
        assert!(refused(r#"{"top_logprobs": 1001}"#).contains("0..=1000"));
        assert!(refused(r#"{"top_logprobs": 1000000}"#).contains("1000000"));
    }

    #[test]
    fn seeds_are_any_64_bits_signed_or_not_number_or_text() {
        let read = |seed: &str| serde_json::from_str::<SamplingParams>(&format!(r#"{{"seed": {seed}}}"#));
        for (text, expected) in [
            ("-9223372036854775808", 1 << 63),
            ("-1", u64::MAX),
            ("0", 0),
            ("9223372036854775807", (1 << 63) - 1),
            ("9223372036854775808", 1 << 63),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(read(text).unwrap().seed, Some(expected));
            assert_eq!(read(&format!("{text:?}")).unwrap().seed, Some(expected));
        }
        for text in ["18446744073709551616", "-9223372036854775809", "1.5", "\"x\"", "\"\"", "true", "[1]"] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("18446744073709551615"), "{error}");
        }
        assert_eq!(read("null").unwrap().seed, None);
        let written = serde_json::to_value(SamplingParams { seed: Some(u64::MAX), ..Default::default() }).unwrap();
        assert_eq!(written["seed"], "18446744073709551615");
    }

    #[test]
    fn without_a_seed_each_check_takes_another() {
        let params = SamplingParams::default();
        assert_ne!(params.check().unwrap().seed(), params.check().unwrap().seed());
    }

    #[test]
    fn low_temperatures_are_greedy_and_drop_the_filters() {
        for temperature in [0.0, -0.0, 1e-300, 9.9e-6] {
            let params = SamplingParams { temperature, top_p: 0.5, top_k: 1, min_p: 0.5, ..Default::default() };
            let sampling = params.check().unwrap();
            assert!(!sampling.filters());
            assert_eq!(sampling.inverse_temperature(), 1.0 / 1e-5f32);
        }
        let params = SamplingParams { temperature: 1e-5, top_k: 1, ..Default::default() };
        assert!(params.check().unwrap().filters());
    }
}
