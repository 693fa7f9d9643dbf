//! `klero explain`: one draw, shown so that a person can follow it.

mod bar;
mod page;
mod words;

use crate::cli::ExplainArgs;
use crate::failure::Failure;
use crate::prompt;
use crate::tensors::TensorFile;
use klero::{Edits, Explanation, FusedHead, History, Logits, Row, SamplingParams};
use klero_models::Tokenizer;
use page::Page;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Draws, explains and prints.
pub fn run(args: &ExplainArgs) -> Result<ExitCode, Failure> {
    let params = SamplingParams { raw_logprobs: true, ..args.sampling.params() };
    // The random seed is decided here, once.
    let sampling = params.check()?;
    let params = SamplingParams { seed: Some(sampling.seed()), ..params };
    let text = match (&args.prompt, &args.tensors, &args.logits) {
        (Some(prompt), ..) => from_prompt(args, &params, prompt)?,
        (None, Some(file), Some(logits)) => from_tensors(args, &params, file, logits)?,
        _ => return Err(Failure::Usage("give --prompt, or --tensors and --logits".to_owned())),
    };
    anstream::stdout().lock().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn from_prompt(args: &ExplainArgs, params: &SamplingParams, prompt: &str) -> Result<String, Failure> {
    let (model, tokens) = prompt::load(&args.source, prompt)?;
    let mut hidden = model.forward(&mut [(&mut model.new_sequence(), &tokens)])?;
    hidden.drain(..hidden.len() - model.config().dim);
    let logits = FusedHead::new(model.head())?.logits(&hidden)?;
    let tokenizer = model.tokenizer();
    let (history, bias, banned) =
        (History::of_prompt(tokens.iter().copied()), args.sampling.logit_bias()?, args.sampling.banned());
    let edits = Edits { history: Some(&history), bias: Some(&bias), banned: Some(&banned), ..Edits::default() };
    let row = Row::new(params.check()?, tokens.len() as u64).with_vocabulary(tokenizer.vocabulary()).with_edits(edits);
    let explanation = explain(&logits, &row, args.shown.get())?;
    let path = prompt::model_path(args.source.model.as_ref())?;
    let source = format!("{} after {}", file_name(&path), words::quote_short(prompt.as_bytes(), 60));
    Ok(page(&source, params, &explanation, Some(tokenizer)))
}

fn from_tensors(args: &ExplainArgs, params: &SamplingParams, file: &Path, name: &str) -> Result<String, Failure> {
    let tensors = TensorFile::read(file)?;
    let logits = tensors.tensors()?.row(name, args.row).map_err(Failure::Run)?;
    let (bias, banned) = (args.sampling.logit_bias()?, args.sampling.banned());
    let edits = Edits { bias: Some(&bias), banned: Some(&banned), ..Edits::default() };
    let row = Row::new(params.check()?, args.position.unwrap_or(0)).with_edits(edits);
    let explanation = explain(&logits, &row, args.shown.get())?;
    let row = args.row.map(|row| format!(", row {row}")).unwrap_or_default();
    let source = format!("tensor {name} of {}{row}", file_name(file));
    Ok(page(&source, params, &explanation, None))
}

fn explain(logits: &[f32], row: &Row, shown: usize) -> Result<Explanation, Failure> {
    let explained = Logits::new(logits, 1, logits.len())?.explain(0, row, shown)?;
    explained.map_err(|error| Failure::Run(error.to_string()))
}

fn page(source: &str, params: &SamplingParams, explanation: &Explanation, tokenizer: Option<&Tokenizer>) -> String {
    let text = |token: u32| tokenizer.map(|tokenizer| tokenizer.bytes(token, true));
    Page { source, params, explanation, text: &text }.to_string()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
