//! The page that explains a draw, as text with styles; whoever prints it takes the styles out where they do not belong.

use super::bar::bar;
use crate::words::{beside, count, number, padded, percent, quote_short};
use anstyle::{AnsiColor, Style};
use klero::{Draw, ExplainedToken, Explanation, Fate, FilterOrder, GREEDY_TEMPERATURE, Lot, SamplingParams};
use std::fmt::{self, Display, Formatter};

const HEADING: Style = Style::new().bold();
const DRAWN: Style = AnsiColor::Green.on_default().bold();
const REMOVED: Style = Style::new().dimmed();

/// Columns of a token's text, and of a bar.
const TEXT: usize = 18;
const BAR: usize = 16;

/// A draw with everything that is said about it.
pub struct Page<'a> {
    /// Where the logits come from.
    pub source: &'a str,
    /// The parameters as asked for.
    pub params: &'a SamplingParams,
    /// The biases and bans.
    pub edits: Option<String>,
    /// The draw.
    pub explanation: &'a Explanation,
    /// The bytes of a token, where there is a tokenizer.
    pub text: &'a dyn Fn(u32) -> Option<&'a [u8]>,
}

impl Display for Page<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        self.table(f)?;
        self.sentences(f)
    }
}

impl Page<'_> {
    fn head(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADING}{}{HEADING:#}", self.source)?;
        writeln!(f, "{}", self.parameters())?;
        if let Some(edits) = &self.edits {
            writeln!(f, "{edits}")?;
        }
        writeln!(f, "{}\n", self.randomness())
    }

    /// Where the randomness comes from.
    pub fn randomness(&self) -> String {
        let Explanation { outcome, hash, uniform, draw, .. } = self.explanation;
        let hash = format!("seed {}, position {}: hash {hash:016x}", outcome.seed, outcome.position);
        match draw {
            Draw::Gumbel => hash,
            Draw::InverseCdf => format!("{hash}, u = {uniform:.9}"),
        }
    }

    /// The parameters; those that are off are not worth a word.
    pub fn parameters(&self) -> String {
        let params = self.params;
        let mut words = vec![format!("temperature {}", params.temperature)];
        if self.greedy() {
            words.push("greedy, no filters".to_owned());
        } else {
            let filters = [
                (params.top_p < 1.0, format!("top_p {}", params.top_p)),
                (params.top_k > 0, format!("top_k {}", params.top_k)),
                (params.min_p > 0.0, format!("min_p {}", params.min_p)),
            ];
            words.extend(filters.into_iter().filter_map(|(on, word)| on.then_some(word)));
            if params.filter_order == FilterOrder::MinPFirst {
                words.push("min_p first".to_owned());
            }
        }
        let penalties = [
            (params.repetition_penalty != 1.0, format!("repetition_penalty {}", params.repetition_penalty)),
            (params.frequency_penalty != 0.0, format!("frequency_penalty {}", params.frequency_penalty)),
            (params.presence_penalty != 0.0, format!("presence_penalty {}", params.presence_penalty)),
        ];
        words.extend(penalties.into_iter().filter_map(|(on, word)| on.then_some(word)));
        words.push(match params.draw {
            Draw::Gumbel => "Gumbel draw".to_owned(),
            Draw::InverseCdf => "inverse CDF draw".to_owned(),
        });
        words.join(", ")
    }

    fn greedy(&self) -> bool {
        self.params.temperature < GREEDY_TEMPERATURE
    }

    fn table(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = if self.named() { format!("{:TEXT$} ", "token") } else { String::new() };
        let lot = match self.explanation.draw {
            Draw::Gumbel => format!("{:>7} {:>9}", "noise", "score"),
            Draw::InverseCdf => format!("{:>8} {:>8}", "from", "to"),
        };
        let head = format!("  rank {text}{:>7} {:>9} {:>9} {:>9}  {lot}", "id", "logit", "chance", "before");
        writeln!(f, "{HEADING}{head}{HEADING:#}")?;
        let mut next = 0;
        for token in &self.explanation.tokens {
            if token.rank > next {
                writeln!(f, "     ⋮")?;
            }
            next = token.rank + 1;
            self.line(f, token)?;
        }
        self.rest(f)
    }

    fn line(&self, f: &mut Formatter<'_>, token: &ExplainedToken) -> fmt::Result {
        let drawn = token.token == self.explanation.outcome.token;
        let style = match token.lot {
            _ if drawn => DRAWN,
            Some(_) => Style::new(),
            None => REMOVED,
        };
        let mark = if drawn { '▶' } else { ' ' };
        let text = self.quoted(token.token, TEXT).map(|text| padded(&text, TEXT + 1)).unwrap_or_default();
        let edited = self.edited(token);
        let (logit, rank) = (number(edited.unwrap_or(token.logit.into()), 9), token.rank + 1);
        let (chance, before) = (percent(token.probability), percent(token.mass_before));
        let line = format!("{mark}{rank:>5} {text}{:>7} {logit:>9} {chance:>9} {before:>9}  ", token.token);
        let end = match token.lot {
            Some(lot) => self.lot(lot, token.probability),
            None => format!("removed: {}", self.why_removed(token)),
        };
        let was = edited.map(|_| format!("  logit was {}", number(token.logit.into(), 9))).unwrap_or_default();
        writeln!(f, "{style}{line}{end}{was}{style:#}")
    }

    /// The logit after penalties and bias, where they changed it.
    pub fn edited(&self, token: &ExplainedToken) -> Option<f64> {
        let temperature = if self.greedy() { GREEDY_TEMPERATURE } else { self.params.temperature };
        let inverse = 1.0 / temperature as f32;
        (token.scaled != token.logit * inverse).then(|| f64::from(token.scaled) / f64::from(inverse))
    }

    fn lot(&self, lot: Lot, probability: f64) -> String {
        let numbers = match lot {
            Lot::Race { noise, score } => format!("{:>7.3} {:>9}", noise.gumbel, number(score, 9)),
            Lot::Interval { from, to } => format!("{from:>8.6} {to:>8.6}"),
        };
        format!("{numbers}  {}", bar(probability / self.best().probability, BAR))
    }

    /// Which filter removed a token, with the numbers.
    pub fn why_removed(&self, token: &ExplainedToken) -> String {
        let params = self.params;
        match token.fate {
            Fate::Kept => String::new(),
            Fate::TopP if params.filter_order == FilterOrder::MinPFirst => {
                format!("better ones among what is left hold top_p {}", params.top_p)
            }
            Fate::TopP => format!("{} before it > top_p {}", beside(token.mass_before, params.top_p), params.top_p),
            Fate::TopK => format!("rank {} > top_k {}", token.rank + 1, params.top_k),
            Fate::MinP => {
                let share = token.probability / self.best().probability;
                format!("{} of the best < min_p {}", beside(share, params.min_p), params.min_p)
            }
        }
    }

    fn rest(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.left_out() {
            Some(words) => writeln!(f, "       {words}\n"),
            None => writeln!(f),
        }
    }

    /// What the table leaves out, if anything.
    pub fn left_out(&self) -> Option<String> {
        let Explanation { tokens, candidates, outcome, .. } = self.explanation;
        let more = candidates - tokens.len();
        let kept = outcome.kept - tokens.iter().filter(|token| token.fate == Fate::Kept).count();
        (more > 0).then(|| format!("… and {} more, {} of them kept", count(more), count(kept)))
    }

    fn sentences(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let token = self.explanation.outcome.token;
        let name = match self.quoted(token, 40) {
            Some(text) => format!("{text}, token {token}"),
            None => format!("token {token}"),
        };
        writeln!(f, "Drawn: {DRAWN}{name}{DRAWN:#}. {}", self.how())?;
        writeln!(f, "{}", self.filtered())?;
        writeln!(f, "{}", self.chances())
    }

    /// What the filters left, in a sentence.
    pub fn filtered(&self) -> String {
        let Explanation { outcome, candidates, kept_mass, .. } = self.explanation;
        let (all, kept) = (count(*candidates), count(outcome.kept));
        match outcome.kept == *candidates {
            true => format!("All {all} possible tokens took part."),
            false => format!(
                "Of {all} possible tokens the filters kept {kept}, which hold {} of the probability.",
                percent(*kept_mass)
            ),
        }
    }

    /// How probable the drawn token was, in a sentence.
    pub fn chances(&self) -> String {
        let outcome = &self.explanation.outcome;
        let logprob = |value: f64| format!("{} (logprob {value:.4})", percent(value.exp()).trim());
        let processed = logprob(outcome.logprob);
        let raw = outcome.raw_logprob.map(|raw| format!(",\n{} in the model's own distribution", logprob(raw)));
        format!("Its probability was {processed} after temperature and filters{}.", raw.unwrap_or_default())
    }

    /// How the lot fell, in a sentence.
    pub fn how(&self) -> String {
        let drawn = self.explanation.tokens.iter().find(|token| token.token == self.explanation.outcome.token);
        match drawn.and_then(|token| token.lot) {
            Some(Lot::Race { score, .. }) => {
                let scaled = match self.params.temperature {
                    1.0 => "logit".to_owned(),
                    _ if self.greedy() => format!("logit / {GREEDY_TEMPERATURE}"),
                    temperature => format!("logit / {temperature}"),
                };
                let score = number(score, 12);
                format!(
                    "Every token kept got noise from the hash;\nits score, {scaled} + noise = {score}, is the greatest."
                )
            }
            Some(Lot::Interval { from, to }) => {
                let u = self.explanation.uniform;
                format!(
                    "The tokens kept share the line from 0 to 1, in the order of their ids;\nu = {u:.6} falls into its part, {from:.6} to {to:.6}."
                )
            }
            None => String::new(),
        }
    }

    /// The most probable token.
    pub fn best(&self) -> &ExplainedToken {
        &self.explanation.tokens[0]
    }

    fn named(&self) -> bool {
        self.quoted(self.explanation.outcome.token, TEXT).is_some()
    }

    fn quoted(&self, token: u32, width: usize) -> Option<String> {
        (self.text)(token).map(|bytes| quote_short(bytes, width))
    }
}
