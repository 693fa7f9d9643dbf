//! What is told on the standard error: seeds, how texts ended, and how fast they came.

use super::writing::Writing;
use crate::failure::tell;
use crate::generation::{Drafts, Timing};
use klero_models::Model;
use std::time::Duration;

/// Sums up.
pub fn summarize(model: &Model, writings: &[Writing], timing: &Timing, drafted: bool) {
    tell("");
    if let [only] = writings {
        tell(format_args!("seed    {}", only.label.seed));
    }
    tell_speed(writings, timing);
    if drafted {
        tell_drafts(timing);
    }
    for writing in writings {
        let Some(ending) = &writing.ending else { continue };
        let ending = ending.describe(model);
        match writing.label.name() {
            None => tell(format_args!("ended   {ending}")),
            Some(name) => {
                let (seed, tokens) = (writing.label.seed, writing.tokens);
                tell(format_args!("ended   {name}, seed {seed}: {tokens} tokens, {ending}"));
            }
        }
    }
}

fn tell_speed(writings: &[Writing], timing: &Timing) {
    // What samples share is read once, but for its last token.
    let prompts = writings.iter().filter(|writing| writing.label.sample == 0).map(|writing| writing.text.prompt_len());
    let prompt = (timing.prompt.0.min(prompts.sum()), timing.prompt.1);
    let (tokens, head) = timing.head;
    let whole = timing.body.1 + head + timing.drafts.time;
    tell(format_args!("prompt  {:>5} tokens  {:>8} tokens/s", prompt.0, speed(prompt)));
    let (all, body, head) = (speed((tokens, whole)), speed(timing.body), speed(timing.head));
    tell(format_args!("text    {tokens:>5} tokens  {all:>8} tokens/s  (body {body}, head {head})"));
}

fn tell_drafts(timing: &Timing) {
    let Drafts { drafted, accepted, steps, .. } = timing.drafts;
    let ratio = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
    let (share, a_step) = (100.0 * ratio(accepted, drafted), ratio(timing.head.0, steps));
    tell(format_args!(
        "draft   {drafted:>5} tokens  {accepted:>8} accepted  ({share:.1} %, {a_step:.2} tokens a step)"
    ));
}

/// Tokens per second; a dash where there is nothing to measure.
fn speed((tokens, time): (usize, Duration)) -> String {
    let seconds = time.as_secs_f64();
    if tokens == 0 || seconds == 0.0 { "-".to_owned() } else { format!("{:.1}", tokens as f64 / seconds) }
}
