//! A model and the tokens of prompts.

use crate::cli::{PromptArgs, PromptsArgs};
use crate::failure::Failure;
#[cfg(feature = "hub")]
use crate::hub;
use klero_models::{Model, Tokenizer};
use std::io;
use std::path::{Path, PathBuf};

/// The file or folder of the model asked for: at the path named, in the cache for the id named, or the default.
pub fn model_path(model: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    let Some(path) = model else { return Ok(klero_models::default_model()?) };
    #[cfg(feature = "hub")]
    if let Some(id) = hub::id(path)? {
        return hub::fetch(&id);
    }
    Ok(path.clone())
}

/// What that model is called: its id, or the name of its file or folder.
pub fn model_name(model: Option<&PathBuf>) -> Result<String, Failure> {
    #[cfg(feature = "hub")]
    if let Some(id) = model.map(|path| hub::id(path)).transpose()?.flatten() {
        return Ok(id.to_string());
    }
    Ok(file_name(&model_path(model)?))
}

/// The last name of a path.
pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Loads the model and cuts the prompt into tokens.
pub fn load(args: &PromptArgs, prompt: &str) -> Result<(Model, Vec<u32>), Failure> {
    refuse_empty(prompt, "give some text with --prompt")?;
    let model = load_model(args)?;
    let tokens = encode(model.tokenizer(), prompt, args.control)?;
    Ok((model, tokens))
}

/// Loads the model.
pub fn load_model(args: &PromptArgs) -> Result<Model, Failure> {
    Ok(Model::load(&model_path(args.model.as_ref())?)?)
}

/// The prompts asked for, none of them empty.
pub fn texts(args: &PromptsArgs) -> Result<Vec<String>, Failure> {
    let mut texts = args.prompt.clone();
    texts.iter().try_for_each(|text| refuse_empty(text, "give some text with --prompt"))?;
    for file in &args.prompt_file {
        let name = file.display();
        let text = read(file).map_err(|error| Failure::Run(format!("cannot read {name}: {error}")))?;
        refuse_empty(&text, &format!("there is no text in {name}"))?;
        texts.push(text);
    }
    Ok(texts)
}

fn refuse_empty(prompt: &str, why: &str) -> Result<(), Failure> {
    if prompt.is_empty() { Err(Failure::Usage(format!("the prompt is empty: {why}"))) } else { Ok(()) }
}

/// The text of a file, or of the standard input.
fn read(file: &Path) -> io::Result<String> {
    match file.to_str() {
        Some("-") => io::read_to_string(io::stdin()),
        _ => std::fs::read_to_string(file),
    }
}

/// The tokens of a prompt, with the one that the model expects in front.
pub fn encode(tokenizer: &Tokenizer, prompt: &str, control: bool) -> Result<Vec<u32>, Failure> {
    let text = tokenizer.encode(prompt, control)?;
    if text.is_empty() {
        return Err(Failure::Run(format!("the prompt {prompt:?} has no tokens in this model's vocabulary")));
    }
    Ok(tokenizer.begin(text))
}
