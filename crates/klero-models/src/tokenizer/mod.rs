//! Text to token ids and back, from a model's own vocabulary.
//!
//! Encoding is a pipeline. Tokens that are written out in the text (`<|im_start|>`, runs of spaces) are found first; the rest
//! is normalised, cut into words, and each word becomes its characters, neighbours of which are merged by rank until no merge
//! applies (BPE). A character is a byte in a fixed alphabet of 256, or a Unicode character that falls back to its bytes where
//! the vocabulary lacks it. The pipeline comes out of a GGUF file's metadata (`gguf.rs`) or a `tokenizer.json` (`json.rs`).
//!
//! Decoding needs none of this: a token is a fixed string of bytes, and a text is the bytes of its tokens one after
//! the other. A character may be spread over several tokens, so text comes out of a [`TextStream`].

mod gguf;
mod json;
mod spelling;

use crate::ModelError;
use crate::files::{Gguf, Json};
use crate::text::TextStream;
use std::path::Path;
use tokenizers::{AddedVocabulary, Model as _, OffsetType, PreTokenizer as _};

/// Control tokens that end a text or a turn, by the names they have in the wild.
const ENDS: [&str; 6] = ["<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "</s>", "<end_of_turn>"];

/// A model's tokenizer.
pub struct Tokenizer {
    /// Finds all tokens that are written out in a text.
    pipeline: tokenizers::Tokenizer,
    /// Finds those that are no control tokens.
    without_control: AddedVocabulary,
    tokens: Vec<Token>,
    ends: Vec<u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    adds_bos: bool,
    chat_template: Option<String>,
}

/// What a token stands for.
#[derive(Clone, Default)]
struct Token {
    bytes: Box<[u8]>,
    control: bool,
}

/// What a model's files say of its special tokens.
#[derive(Default)]
struct Specials {
    bos: Option<u32>,
    adds_bos: bool,
    eos: Option<u32>,
    /// Ids that end a text, beside `eos` and those of [`ENDS`].
    ends: Vec<u32>,
    chat_template: Option<String>,
}

impl Tokenizer {
    /// Loads the tokenizer of a GGUF file or of a folder, and nothing of its tensors.
    ///
    /// # Errors
    /// As [`Model::load`](crate::Model::load).
    ///
    /// ```no_run
    /// let tokenizer = klero_models::Tokenizer::load(&klero_models::default_model()?)?;
    /// let ids = tokenizer.encode("Once upon a time", false)?;
    /// assert_eq!(tokenizer.decode(&ids, false), "Once upon a time");
    /// # Ok::<(), klero_models::ModelError>(())
    /// ```
    pub fn load(path: &Path) -> Result<Self, ModelError> {
        if path.is_dir() {
            return Self::from_folder(path, &Json::read(&path.join("config.json"))?);
        }
        Self::from_gguf(&Gguf::open(path)?)
    }

    fn new(pipeline: tokenizers::Tokenizer, tokens: Vec<Token>, specials: Specials) -> Self {
        let mut without_control = pipeline.get_added_vocabulary().clone();
        without_control.set_encode_special_tokens(true);
        let named = ENDS.iter().filter_map(|name| pipeline.token_to_id(name));
        let control = |id: &u32| tokens.get(*id as usize).is_some_and(|token| token.control);
        let listed = specials.ends.into_iter().chain(specials.eos).filter(|id| (*id as usize) < tokens.len());
        let mut ends: Vec<u32> = named.filter(control).chain(listed).collect();
        ends.sort_unstable();
        ends.dedup();
        let known = |id: &u32| (*id as usize) < tokens.len();
        let (bos, eos) = (specials.bos.filter(known), specials.eos.filter(known));
        let (adds_bos, chat_template) = (specials.adds_bos, specials.chat_template);
        Self { pipeline, without_control, tokens, ends, bos, eos, adds_bos, chat_template }
    }

    /// The ids of a text. With `control`, control tokens written out in it (`<|im_start|>`) become their ids; without,
    /// they are text like any other, which is what untrusted text needs. No token is put in front: see
    /// [`Tokenizer::adds_bos`].
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`] if the text cannot be cut; no text is known for which this happens.
    pub fn encode(&self, text: &str, control: bool) -> Result<Vec<u32>, ModelError> {
        self.cut(text, control, None)
    }

    /// As [`Tokenizer::encode`], with each character turned into another once the tokens that are written out have been
    /// found.
    pub(crate) fn cut(
        &self,
        text: &str,
        control: bool,
        turn: Option<&dyn Fn(char) -> char>,
    ) -> Result<Vec<u32>, ModelError> {
        let added = if control { self.pipeline.get_added_vocabulary() } else { &self.without_control };
        let cut = || -> tokenizers::Result<_> {
            let mut words = added.extract_and_normalize(self.pipeline.get_normalizer(), text);
            if let Some(turn) = turn {
                words.normalize(|piece| {
                    piece.map(turn);
                    Ok(())
                })?;
            }
            if let Some(pre_tokenizer) = self.pipeline.get_pre_tokenizer() {
                pre_tokenizer.pre_tokenize(&mut words)?;
            }
            words.tokenize(|word| self.pipeline.get_model().tokenize(word.get()))?;
            words.into_encoding(None, 0, OffsetType::None)
        };
        Ok(cut().map_err(wrong)?.get_ids().to_vec())
    }

    /// The tokens of a text with [`Tokenizer::bos`] in front, if the model expects it there and it is not there already.
    pub fn begin(&self, tokens: Vec<u32>) -> Vec<u32> {
        let bos = self.bos.filter(|bos| self.adds_bos && tokens.first() != Some(bos));
        bos.into_iter().chain(tokens).collect()
    }

    /// The text of some tokens; control tokens are left out unless `control`. Bytes that are no UTF-8 become U+FFFD,
    /// and ids outside the vocabulary give nothing.
    pub fn decode(&self, tokens: &[u32], control: bool) -> String {
        let mut stream = self.stream(control);
        let mut text: String = tokens.iter().map(|token| stream.push(*token)).collect();
        text.push_str(&stream.finish());
        text
    }

    /// Decodes tokens one by one, never yielding half a character.
    pub fn stream(&self, control: bool) -> TextStream<'_> {
        TextStream::new(self, control)
    }

    /// The bytes that a token stands for; nothing for control tokens (unless `control`) and unknown ids.
    pub fn bytes(&self, token: u32, control: bool) -> &[u8] {
        match self.tokens.get(token as usize) {
            Some(token) if control || !token.control => &token.bytes,
            _ => &[],
        }
    }

    /// Whether a token steers the model, as `<|im_start|>` does, and is no text. False for unknown ids.
    pub fn is_control(&self, token: u32) -> bool {
        self.tokens.get(token as usize).is_some_and(|token| token.control)
    }

    /// Number of tokens. Ids of the model beyond it are padding, which must never be drawn.
    pub fn vocabulary(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens that end a text or a turn, in ascending order.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The token that begins a text, if there is one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a text, if there is one; [`Tokenizer::ends`] holds it too.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether the model expects [`Tokenizer::bos`] in front of every prompt.
    pub fn adds_bos(&self) -> bool {
        self.adds_bos
    }

    /// The texts of all control tokens.
    pub(crate) fn control_texts(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().filter(|token| token.control).filter_map(|token| std::str::from_utf8(&token.bytes).ok())
    }

    /// The texts of the other tokens that are found where they are written out.
    pub(crate) fn known_texts(&self) -> impl Iterator<Item = String> {
        let added = self.without_control.get_added_tokens_decoder().values();
        added.filter(|token| !token.special).map(|token| token.content.clone())
    }

    /// The file's chat template (Jinja), if it has one.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }
}

fn wrong(error: impl ToString) -> ModelError {
    ModelError::Tokenizer(error.to_string())
}
