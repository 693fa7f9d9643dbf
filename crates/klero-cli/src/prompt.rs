//! A model and the tokens of a prompt.

use crate::cli::PromptArgs;
use crate::failure::Failure;
use klero_models::{Model, Tokenizer};
use std::path::PathBuf;

/// The file of the model asked for: the one named, or the default.
pub fn model_path(model: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    Ok(match model {
        Some(path) => path.clone(),
        None => klero_models::default_model()?,
    })
}

/// Loads the model and cuts the prompt into tokens.
pub fn load(args: &PromptArgs, prompt: &str) -> Result<(Model, Vec<u32>), Failure> {
    if prompt.is_empty() {
        return Err(Failure::Usage("the prompt is empty: give some text with --prompt".to_owned()));
    }
    let model = Model::load(&model_path(args.model.as_ref())?)?;
    let tokens = encode(model.tokenizer(), prompt, args.control)?;
    Ok((model, tokens))
}

fn encode(tokenizer: &Tokenizer, prompt: &str, control: bool) -> Result<Vec<u32>, Failure> {
    let text = tokenizer.encode(prompt, control)?;
    if text.is_empty() {
        return Err(Failure::Run(format!("the prompt {prompt:?} has no tokens in this model's vocabulary")));
    }
    Ok(begun(tokenizer, text))
}

/// The tokens of a text as a model reads them: after the token that begins a text, if the model expects one and it is
/// not there yet.
pub fn begun(tokenizer: &Tokenizer, text: Vec<u32>) -> Vec<u32> {
    let begin = tokenizer.bos().filter(|bos| tokenizer.adds_bos() && text.first() != Some(bos));
    begin.into_iter().chain(text).collect()
}
