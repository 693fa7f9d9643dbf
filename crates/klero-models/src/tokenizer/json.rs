//! The tokenizer in a folder: `tokenizer.json` is the pipeline; the special tokens and the chat template stand in the files
//! beside it.

use super::spelling::Spelling;
use super::{Specials, Token, Tokenizer, wrong};
use crate::ModelError;
use crate::files::{Json, bytes};
use serde_json::Value;
use std::path::Path;
use tokenizers::DecoderWrapper;

/// Ids that a vocabulary may have, so that one absurd id does not ask for memory.
const MAX_ID: u32 = 1 << 24;

impl Tokenizer {
    /// Reads the tokenizer of a folder, whose `config.json` was read before.
    pub(crate) fn from_folder(folder: &Path, config: &Json) -> Result<Self, ModelError> {
        let path = folder.join("tokenizer.json");
        let damaged = |error| ModelError::Format(format!("{}: {error}", path.display()));
        // By way of a value, as the pipeline's own reader takes for granted that the text is JSON to its end.
        let json: Value = serde_json::from_slice(&bytes(&path)?).map_err(damaged)?;
        let pipeline: tokenizers::Tokenizer = serde_json::from_value(json).map_err(damaged)?;
        let tokens = tokens(&pipeline, spelling(&pipeline)?)?;
        let specials = specials(folder, config, &pipeline)?;
        Ok(Self::new(pipeline, tokens, specials))
    }
}

/// How the vocabulary spells bytes, which the decoder says.
fn spelling(pipeline: &tokenizers::Tokenizer) -> Result<Spelling, ModelError> {
    let one = |decoder: &DecoderWrapper| match decoder {
        DecoderWrapper::ByteLevel(_) => Some(Spelling::Bytes),
        DecoderWrapper::Metaspace(_) | DecoderWrapper::Replace(_) | DecoderWrapper::ByteFallback(_) => {
            Some(Spelling::Pieces)
        }
        _ => None,
    };
    let found = match pipeline.get_decoder() {
        Some(DecoderWrapper::Sequence(sequence)) => sequence.get_decoders().iter().find_map(one),
        Some(decoder) => one(decoder),
        None => None,
    };
    found.ok_or_else(|| ModelError::Tokenizer("its decoder is neither byte-level nor of pieces".to_owned()))
}

fn tokens(pipeline: &tokenizers::Tokenizer, spelling: Spelling) -> Result<Vec<Token>, ModelError> {
    let vocab = pipeline.get_vocab(true);
    let largest = vocab.values().max().copied().unwrap_or(0);
    if largest > MAX_ID {
        return Err(ModelError::Tokenizer(format!("token id {largest}, must be at most {MAX_ID}")));
    }
    let spelled = spelling.reader();
    let added = pipeline.get_added_tokens_decoder();
    let mut tokens = vec![Token::default(); largest as usize + 1];
    for (text, id) in vocab {
        tokens[id as usize] = match added.get(&id) {
            Some(token) => Token { bytes: token.content.as_bytes().into(), control: token.special },
            None => Token { bytes: spelled(&text).into(), control: false },
        };
    }
    Ok(tokens)
}

fn specials(folder: &Path, config: &Json, pipeline: &tokenizers::Tokenizer) -> Result<Specials, ModelError> {
    let own = Json::read_if_there(&folder.join("tokenizer_config.json"))?;
    let generation = Json::read_if_there(&folder.join("generation_config.json"))?;
    let token = |key| named(own.value(key)).and_then(|text| pipeline.token_to_id(text));
    let bos = token("bos_token").or_else(|| ids(config.value("bos_token_id")).first().copied());
    let begins = || -> Result<bool, ModelError> {
        let nothing = pipeline.encode("", true).map_err(wrong)?;
        Ok(bos.is_some() && nothing.get_ids().first().copied() == bos)
    };
    let listed = [config, &generation].into_iter().flat_map(|json| ids(json.value("eos_token_id")));
    Ok(Specials {
        bos,
        adds_bos: own.flag("add_bos_token")?.map_or_else(begins, Ok)?,
        eos: token("eos_token"),
        ends: listed.collect(),
        chat_template: chat_template(folder, &own)?,
    })
}

/// A token that is written as a text, or as an object with its `content`.
fn named(value: Option<&Value>) -> Option<&str> {
    let value = value?;
    value.as_str().or_else(|| value.get("content")?.as_str())
}

/// An id, or a list of them.
fn ids(value: Option<&Value>) -> Vec<u32> {
    let Some(value) = value else { return vec![] };
    let one = |value: &Value| u32::try_from(value.as_u64()?).ok();
    value.as_array().map_or_else(|| one(value).into_iter().collect(), |all| all.iter().filter_map(one).collect())
}

/// The template in a file of its own, or in the tokenizer's configuration, where it may be the one called `default` among
/// several.
fn chat_template(folder: &Path, own: &Json) -> Result<Option<String>, ModelError> {
    let path = folder.join("chat_template.jinja");
    if path.exists() {
        let text = String::from_utf8(bytes(&path)?);
        return text.map(Some).map_err(|_| ModelError::Format(format!("{}: no UTF-8", path.display())));
    }
    let default = |entry: &&Value| entry.get("name").and_then(Value::as_str) == Some("default");
    let text = own.value("chat_template").and_then(|value| match value.as_array() {
        Some(several) => several.iter().find(default)?.get("template")?.as_str(),
        None => value.as_str(),
    });
    Ok(text.map(str::to_owned))
}
