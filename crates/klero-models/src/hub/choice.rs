//! Which files of a repository are the model.

use super::{HubError, ModelId};

/// The files that an id means.
#[derive(Debug, PartialEq, Eq)]
pub enum Choice {
    /// One GGUF file.
    File(String),
    /// A folder's worth of files in the layout of Hugging Face's transformers.
    Snapshot(Vec<String>),
}

/// The map from tensors to the files that hold them.
pub const INDEX: &str = "model.safetensors.index.json";
const WEIGHTS: &str = "model.safetensors";
const NEEDED: [&str; 2] = ["config.json", "tokenizer.json"];
const WELCOME: [&str; 4] =
    ["tokenizer_config.json", "generation_config.json", "special_tokens_map.json", "chat_template.jinja"];

/// What is taken of several GGUF files if the id does not say: the usual trade of size for quality, then the safest.
const PREFERRED: [&str; 2] = ["Q4_K_M", "Q8_0"];

/// Chooses among the names of a repository's files.
///
/// Without a file in the id: the only GGUF file, else safetensors, else the preferred one of several GGUF files.
pub fn choose(id: &ModelId, names: &[String]) -> Result<Choice, HubError> {
    let repository = || id.repository().to_owned();
    let files: Vec<&String> = names.iter().filter(|name| is_gguf(name)).collect();
    if let Some(file) = id.file() {
        return named(id, file, &files).map(Choice::File);
    }
    let models: Vec<&String> = files.into_iter().filter(|name| !is_projector(name)).collect();
    match (&models[..], snapshot(names)) {
        ([model], _) => Ok(Choice::File((*model).clone())),
        (_, Some(files)) => Ok(Choice::Snapshot(files)),
        ([], None) => Err(HubError::NoModel { repository: repository() }),
        (several, None) => {
            let preferred = PREFERRED.iter().find_map(|part| match &containing(part, several)[..] {
                [model] => Some(Choice::File((*model).clone())),
                _ => None,
            });
            preferred.ok_or_else(|| HubError::Several { repository: repository(), files: owned(several) })
        }
    }
}

/// The file of this name, or the only one whose name contains it.
fn named(id: &ModelId, file: &str, files: &[&String]) -> Result<String, HubError> {
    if files.iter().any(|name| *name == file) {
        return Ok(file.to_owned());
    }
    let repository = id.repository().to_owned();
    match &containing(file, files)[..] {
        [model] => Ok((*model).clone()),
        [] => Err(HubError::NoFile { repository, file: file.to_owned(), there: owned(files) }),
        several => Err(HubError::Several { repository, files: owned(several) }),
    }
}

/// The files of a model in safetensors, if they are there; what the index names comes on top.
fn snapshot(names: &[String]) -> Option<Vec<String>> {
    let is_there = |name: &&str| names.iter().any(|other| other == name);
    let weights = [WEIGHTS, INDEX].into_iter().find(is_there)?;
    if !NEEDED.iter().all(is_there) {
        return None;
    }
    let welcome = WELCOME.into_iter().filter(is_there);
    Some(NEEDED.into_iter().chain(welcome).chain([weights]).map(str::to_owned).collect())
}

fn containing<'a>(part: &str, files: &[&'a String]) -> Vec<&'a String> {
    let part = part.to_ascii_lowercase();
    files.iter().copied().filter(|name| name.to_ascii_lowercase().contains(&part)).collect()
}

fn is_gguf(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with(".gguf")
}

/// Whether a GGUF file holds the part of a model that turns pictures into embeddings, by its customary name.
fn is_projector(name: &str) -> bool {
    name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase().starts_with("mmproj")
}

fn owned(names: &[&String]) -> Vec<String> {
    names.iter().map(|name| (*name).clone()).collect()
}
