//! `klero explain`: one draw, shown so that a person can follow it.

mod bar;
mod output;
mod page;
mod picture;

use crate::cli::ExplainArgs;
use crate::failure::Failure;
use crate::prompt;
use crate::tensors::{Rows, TensorFile};
use crate::words;
use klero::{Batch, Explanation, FusedHead, Row, SamplingParams};
use klero_models::Tokenizer;
use page::Page;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Draws, explains and prints.
pub fn run(args: &ExplainArgs) -> Result<ExitCode, Failure> {
    if args.pictures().filter(|path| output::is_stdout(path)).count() > 1 {
        return Err(Failure::Usage("--svg and --png are both -: one picture fits the standard output".to_owned()));
    }
    let params = SamplingParams { raw_logprobs: true, ..args.sampling.params() };
    // The random seed is decided here, once.
    let sampling = params.check()?;
    let params = SamplingParams { seed: Some(sampling.seed()), ..params };
    match (&args.prompt, &args.tensors, &args.logits) {
        (Some(prompt), ..) => from_prompt(args, &params, prompt)?,
        (None, Some(file), Some(logits)) => from_tensors(args, &params, file, logits)?,
        _ => return Err(Failure::Usage("give --prompt, or --tensors and --logits".to_owned())),
    }
    Ok(ExitCode::SUCCESS)
}

fn from_prompt(args: &ExplainArgs, params: &SamplingParams, prompt: &str) -> Result<(), Failure> {
    let (model, tokens) = prompt::load(&args.source, prompt)?;
    let mut hidden = model.forward(&mut [(&mut model.new_sequence(), &tokens)])?;
    hidden.drain(..hidden.len() - model.config().dim);
    let logits = FusedHead::new(model.head())?.batch(&hidden)?;
    let tokenizer = model.tokenizer();
    let edits = args.sampling.edits(&tokens)?;
    let row = Row::new(params.check()?, tokens.len() as u64)
        .with_vocabulary(tokenizer.vocabulary())
        .with_edits(edits.edits());
    let explanation = explain(&logits, &row, args.shown.get())?;
    let model = prompt::model_name(args.source.model.as_ref())?;
    let source = format!("{model} after {}", words::quote_short(prompt.as_bytes(), 60));
    show(&source, args, params, &explanation, Some(tokenizer))
}

fn from_tensors(args: &ExplainArgs, params: &SamplingParams, file: &Path, name: &str) -> Result<(), Failure> {
    let tensors = TensorFile::read(file)?;
    let logits = tensors.tensors()?.numbers(name, Rows::One(args.row)).map_err(Failure::Run)?;
    if args.sampling.penalises() {
        return Err(Failure::Usage("penalties need a text: give --prompt instead of --tensors".to_owned()));
    }
    let edits = args.sampling.edits(&[])?;
    let row = Row::new(params.check()?, args.position.unwrap_or(0)).with_edits(edits.edits());
    let explanation = explain(&logits.logits(1)?, &row, args.shown.get())?;
    let row = args.row.map(|row| format!(", row {row}")).unwrap_or_default();
    let source = format!("tensor {name} of {}{row}", prompt::file_name(file));
    show(&source, args, params, &explanation, None)
}

fn explain(logits: &Batch, row: &Row, shown: usize) -> Result<Explanation, Failure> {
    logits.explain(0, row, shown)?.map_err(|error| Failure::Run(error.to_string()))
}

/// Prints the page and writes the pictures: these first, for whoever reads the page may leave early.
fn show(
    source: &str,
    args: &ExplainArgs,
    params: &SamplingParams,
    explanation: &Explanation,
    tokenizer: Option<&Tokenizer>,
) -> Result<(), Failure> {
    let text = |token: u32| tokenizer.map(|tokenizer| tokenizer.bytes(token, true));
    let page = Page { source, params, edits: args.sampling.describe_edits(), explanation, text: &text };
    if let Some(path) = &args.svg {
        output::write(path, picture::svg(&page).as_bytes())?;
    }
    if let Some(path) = &args.png {
        let png = picture::png(&page).map_err(|why| Failure::Usage(format!("--png {}: {why}", path.display())))?;
        output::write(path, &png)?;
    }
    if !args.pictures().any(output::is_stdout) {
        anstream::stdout().lock().write_all(page.to_string().as_bytes())?;
    }
    Ok(())
}
