//! `klero generate`: writes texts to the standard output and sums up on the standard error.

mod lines;
mod output;
mod page;
mod summary;
mod table;
mod writing;

use crate::cli::{DraftArgs, DraftSource, GenerateArgs};
use crate::failure::Failure;
use crate::generation::{DraftError, DraftModel, Drafter, Engine, GenerationError, PIECE, Source, Text};
use crate::interrupt::{INTERRUPTED, interrupted, listen};
use crate::prompt;
use klero::Sampling;
use klero_models::Model;
use lines::Lines;
use output::Output;
use page::{Page, Printed};
use std::process::ExitCode;
use summary::summarize;
use table::Table;
use writing::{Ending, Label, Several, Writing};

/// Writes the texts.
pub fn run(args: &GenerateArgs) -> Result<ExitCode, Failure> {
    let sampling = args.params().check()?;
    let prompts = prompt::texts(&args.prompts)?;
    let labels = labels(&prompts, args.n.into(), sampling);
    let model = prompt::load_model(&args.source)?;
    let draft = match &args.draft.draft {
        Some(DraftSource::Model(path)) => Some(Model::load(&prompt::model_path(Some(path))?)?),
        Some(DraftSource::Ngram) | None => None,
    };
    let mut engine = engine(args, &model, draft.as_ref())?;
    let texts = texts(args, &prompts, &model, sampling)?;
    listen()?;
    let mut output = output(args, &prompts, &labels, &model);
    output.begin()?;
    let written = write(args, &mut engine, texts, &labels, &model, output.as_mut());
    output.close()?;
    let writings = written?;
    summarize(&model, &writings, &engine.timing(), args.draft.draft.is_some());
    exit_code(&writings)
}

/// The texts to write, prompt after prompt.
fn labels(prompts: &[String], samples: usize, sampling: Sampling) -> Vec<Label> {
    let several = Several { prompts: prompts.len(), samples };
    let all = (0..prompts.len()).flat_map(|prompt| (0..samples).map(move |sample| (prompt, sample)));
    let label = |(index, (prompt, sample))| Label {
        index,
        prompt,
        sample,
        several,
        seed: sampling.sample(sample as u64).seed(),
    };
    all.enumerate().map(label).collect()
}

/// The model with what holds for all texts, and who guesses ahead.
fn engine<'m>(args: &'m GenerateArgs, model: &'m Model, draft: Option<&'m Model>) -> Result<Engine<'m>, Failure> {
    let engine = Engine::new(model)?.with_policy(args.policy.policy());
    let source = match (&args.draft.draft, draft) {
        (None, _) => return Ok(engine),
        (Some(_), Some(draft)) => Source::Model(DraftModel::new(draft, model)?),
        (Some(_), None) => Source::Ngram,
    };
    let DraftArgs { draft_tokens, draft_verify, .. } = args.draft;
    Ok(engine.with_drafter(Drafter { source, tokens: draft_tokens.into(), rule: draft_verify.into() }))
}

/// A text for each prompt.
fn texts(args: &GenerateArgs, prompts: &[String], model: &Model, sampling: Sampling) -> Result<Vec<Text>, Failure> {
    let text = |prompt: &String| -> Result<Text, Failure> {
        let tokens = prompt::encode(model.tokenizer(), prompt, args.source.control)?;
        let edits = args.sampling.edits(&tokens)?;
        Ok(Text::new(model, tokens, sampling, edits, args.max_tokens.get())?)
    };
    let named = |(i, prompt)| {
        text(prompt)
            .map_err(|failure| if prompts.len() > 1 { failure.of(format!("prompt {}", i + 1)) } else { failure })
    };
    prompts.iter().enumerate().map(named).collect()
}

/// The form of the standard output.
fn output<'a>(args: &GenerateArgs, prompts: &'a [String], labels: &[Label], model: &'a Model) -> Box<dyn Output + 'a> {
    if args.report.json {
        return Box::new(Lines::new(model.tokenizer(), args.report.logprobs.is_some()));
    }
    let printed = |label: &Label| {
        let heading = label.name().map(|name| format!("{name}, seed {}", label.seed));
        Printed::new(heading, &prompts[label.prompt], Table::asked(&args.report, model.tokenizer()))
    };
    Box::new(Page::new(labels.iter().map(printed).collect()))
}

/// Reads the prompts, then draws and writes until every text has ended.
fn write<'m>(
    args: &GenerateArgs,
    engine: &mut Engine,
    mut prompts: Vec<Text>,
    labels: &[Label],
    model: &'m Model,
    output: &mut dyn Output,
) -> Result<Vec<Writing<'m>>, Failure> {
    let mut all: Vec<&mut Text> = prompts.iter_mut().collect();
    // What several texts share is read once, but for the last token, after which they part.
    let keep = if args.n > 1 { 1 } else { PIECE };
    while !interrupted() && engine.read_ahead(&mut all, keep)? {}
    let text = |label: &Label| prompts[label.prompt].sample(label.sample as u64);
    let mut writings: Vec<Writing> =
        labels.iter().map(|label| Writing::new(*label, text(label), model, &args.stop)).collect();
    drop(prompts);
    while !interrupted() {
        let mut open: Vec<&mut Writing> = writings.iter_mut().filter(|writing| writing.ending.is_none()).collect();
        if open.is_empty() {
            break;
        }
        let mut texts: Vec<&mut Text> = open.iter_mut().map(|writing| &mut writing.text).collect();
        let steps = engine.step(&mut texts)?;
        for (writing, step) in open.into_iter().zip(steps) {
            writing.take(step, output)?;
        }
    }
    for writing in writings.iter_mut().filter(|writing| writing.ending.is_none()) {
        writing.end(Ending::Interrupted, output)?;
    }
    Ok(writings)
}

/// What failed, if anything; else whether it was interrupted.
fn exit_code(writings: &[Writing]) -> Result<ExitCode, Failure> {
    let errors = writings.iter().filter_map(|writing| match (&writing.ending, writing.label.name()) {
        (Some(Ending::Failed(error)), None) => Some(error.to_string()),
        (Some(Ending::Failed(error)), Some(name)) => Some(format!("{name}: {error}")),
        _ => None,
    });
    let errors: Vec<String> = errors.collect();
    let interrupted = writings.iter().any(|writing| matches!(writing.ending, Some(Ending::Interrupted)));
    match (errors.is_empty(), interrupted) {
        (false, _) => Err(Failure::Run(errors.join("; "))),
        (true, true) => Ok(ExitCode::from(INTERRUPTED)),
        (true, false) => Ok(ExitCode::SUCCESS),
    }
}

impl From<GenerationError> for Failure {
    fn from(error: GenerationError) -> Self {
        Self::Run(error.to_string())
    }
}

impl From<DraftError> for Failure {
    fn from(error: DraftError) -> Self {
        Self::Run(error.to_string())
    }
}
