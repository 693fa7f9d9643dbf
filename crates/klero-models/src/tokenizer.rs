//! Text to token ids and back, from a GGUF file's own vocabulary.
//!
//! Byte-level BPE: the text is cut into words, each byte of a word becomes one printable character of a fixed
//! alphabet of 256, and neighbours are merged by rank until no merge applies. The words of `smollm` files are cut at
//! every single digit, then by GPT-2's rule. A byte whose character the vocabulary lacks is left out, as in the
//! reference implementations.
//!
//! Decoding needs none of this: a token is a fixed string of bytes, and a text is the bytes of its tokens one after
//! the other. A character may be spread over several tokens, so text comes out of a [`TextStream`].

use crate::ModelError;
use crate::gguf::Gguf;
use crate::text::TextStream;
use candle_core::quantized::gguf_file::Value;
use std::collections::HashMap;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::{byte_level::ByteLevel, digits::Digits};
use tokenizers::{AddedToken, AddedVocabulary, NormalizerWrapper, OffsetType, PreTokenizer};
use tokenizers::{Model as _, PreTokenizedString};

/// Control tokens that end a text or a turn, by the names they have in the wild.
const ENDS: [&str; 6] = ["<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "</s>", "<end_of_turn>"];

/// A model's tokenizer.
pub struct Tokenizer {
    bpe: BPE,
    /// Finds tokens that are written out in the text: with the control tokens, and without.
    with_control: AddedVocabulary,
    without_control: AddedVocabulary,
    tokens: Vec<Token>,
    ends: Vec<u32>,
    bos: Option<u32>,
    adds_bos: bool,
    chat_template: Option<String>,
}

struct Token {
    bytes: Box<[u8]>,
    control: bool,
}

impl Tokenizer {
    pub(crate) fn read(gguf: &Gguf) -> Result<Self, ModelError> {
        supported(gguf, "tokenizer.ggml.model", "the tokenizer", "gpt2")?;
        supported(gguf, "tokenizer.ggml.pre", "the pre-tokenizer", "smollm")?;
        let vocabulary = Vocabulary::read(gguf)?;
        let bpe = vocabulary.bpe(gguf)?;
        let id = |key: &str| -> Result<Option<u32>, ModelError> {
            let id = gguf.count(key)?.filter(|id| *id < vocabulary.texts.len());
            Ok(id.map(|id| id as u32))
        };
        let named = ENDS.iter().filter_map(|name| vocabulary.ids.get(name).copied());
        let mut ends: Vec<u32> = named.filter(|id| vocabulary.kinds[*id as usize] == Kind::Control).collect();
        ends.extend(id("tokenizer.ggml.eos_token_id")?);
        ends.extend(id("tokenizer.ggml.eot_token_id")?);
        ends.sort_unstable();
        ends.dedup();
        Ok(Self {
            with_control: vocabulary.written_out(&bpe, true)?,
            without_control: vocabulary.written_out(&bpe, false)?,
            tokens: vocabulary.tokens(),
            ends,
            bos: id("tokenizer.ggml.bos_token_id")?,
            adds_bos: gguf.flag("tokenizer.ggml.add_bos_token")?,
            chat_template: gguf.text("tokenizer.chat_template")?.map(str::to_owned),
            bpe,
        })
    }

    /// The ids of a text. With `control`, control tokens written out in it (`<|im_start|>`) become their ids; without,
    /// they are text like any other, which is what untrusted text needs. No token is put in front: see
    /// [`Tokenizer::adds_bos`].
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`] if the text cannot be cut; no text is known for which this happens.
    pub fn encode(&self, text: &str, control: bool) -> Result<Vec<u32>, ModelError> {
        let added = if control { &self.with_control } else { &self.without_control };
        let cut = || -> tokenizers::Result<_> {
            let mut words: PreTokenizedString = added.extract_and_normalize(None::<&NormalizerWrapper>, text);
            Digits::new(true).pre_tokenize(&mut words)?;
            ByteLevel::new(false, false, true).pre_tokenize(&mut words)?;
            words.tokenize(|word| self.bpe.tokenize(word.get()))?;
            words.into_encoding(None, 0, OffsetType::None)
        };
        Ok(cut().map_err(|error| ModelError::Tokenizer(error.to_string()))?.get_ids().to_vec())
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

    /// Whether the model expects [`Tokenizer::bos`] in front of every prompt.
    pub fn adds_bos(&self) -> bool {
        self.adds_bos
    }

    /// The file's chat template (Jinja), if it has one.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }
}

/// Refuses a metadata text other than the one that is built.
fn supported(gguf: &Gguf, key: &str, what: &'static str, name: &'static str) -> Result<(), ModelError> {
    let found = gguf.text(key)?.ok_or_else(|| ModelError::MissingKey(key.to_owned()))?;
    if found == name {
        return Ok(());
    }
    Err(ModelError::Unsupported { what, found: found.to_owned(), supported: name })
}

/// What a token is, as far as it matters here.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Normal,
    /// Found in any text where it is written out.
    UserDefined,
    /// Steers the model; found only where control tokens are asked for.
    Control,
}

/// The vocabulary as the file has it.
struct Vocabulary<'f> {
    texts: Vec<&'f str>,
    kinds: Vec<Kind>,
    ids: HashMap<&'f str, u32>,
}

impl<'f> Vocabulary<'f> {
    fn read(gguf: &'f Gguf) -> Result<Self, ModelError> {
        let texts = strings(gguf, "tokenizer.ggml.tokens")?;
        let kinds: Vec<Kind> = match gguf.list("tokenizer.ggml.token_type")? {
            None => vec![Kind::Normal; texts.len()],
            Some(kinds) => kinds.iter().map(kind).collect(),
        };
        if kinds.len() != texts.len() {
            return Err(ModelError::Tokenizer(format!("{} tokens, but {} token types", texts.len(), kinds.len())));
        }
        let ids: HashMap<_, _> = texts.iter().zip(0..).map(|(text, id)| (*text, id)).collect();
        if ids.len() != texts.len() {
            return Err(ModelError::Tokenizer("two tokens have the same text".to_owned()));
        }
        Ok(Self { texts, kinds, ids })
    }

    fn bpe(&self, gguf: &Gguf) -> Result<BPE, ModelError> {
        let merge = |merge: &str| {
            // Checked here because the builder trusts that a merge makes a token.
            let (left, right) = merge.split_once(' ')?;
            let known = [left, right, &[left, right].concat()].iter().all(|text| self.ids.contains_key(text));
            known.then(|| (left.to_owned(), right.to_owned()))
        };
        let merges = strings(gguf, "tokenizer.ggml.merges")?
            .into_iter()
            .map(|text| {
                merge(text).ok_or_else(|| ModelError::Tokenizer(format!("merge `{text}` does not join two tokens")))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let ids: Vocab = self.ids.iter().map(|(text, id)| ((*text).to_owned(), *id)).collect();
        // No cache: it would be one more thing that a process keeps between calls.
        let builder = BPE::builder().vocab_and_merges(ids, merges).cache_capacity(0);
        builder.build().map_err(|error| ModelError::Tokenizer(error.to_string()))
    }

    /// The tokens that are looked for in a text before it is cut into words.
    fn written_out(&self, bpe: &BPE, control: bool) -> Result<AddedVocabulary, ModelError> {
        let wanted = |kind: &Kind| *kind == Kind::UserDefined || control && *kind == Kind::Control;
        let tokens = self.texts.iter().zip(&self.kinds).filter(|(_, kind)| wanted(kind));
        let tokens = tokens.map(|(text, _)| AddedToken::from(*text, true));
        let mut added = AddedVocabulary::new();
        let result = added.add_special_tokens(tokens, bpe, None::<&NormalizerWrapper>);
        result.map_err(|error| ModelError::Tokenizer(error.to_string()))?;
        Ok(added)
    }

    fn tokens(&self) -> Vec<Token> {
        let bytes = alphabet();
        let token = |(text, kind): (&&str, &Kind)| {
            let spelled = text.chars().map(|c| bytes.get(&c).copied()).collect::<Option<Vec<u8>>>();
            let bytes = match kind {
                Kind::Normal => spelled.unwrap_or_else(|| text.as_bytes().to_vec()),
                _ => text.as_bytes().to_vec(),
            };
            Token { bytes: bytes.into(), control: *kind == Kind::Control }
        };
        self.texts.iter().zip(&self.kinds).map(token).collect()
    }
}

fn kind(value: &Value) -> Kind {
    match value {
        Value::I32(3) | Value::U32(3) => Kind::Control,
        Value::I32(4) | Value::U32(4) => Kind::UserDefined,
        _ => Kind::Normal,
    }
}

fn strings<'f>(gguf: &'f Gguf, key: &str) -> Result<Vec<&'f str>, ModelError> {
    let list = gguf.list(key)?.ok_or_else(|| ModelError::MissingKey(key.to_owned()))?;
    let text = |value: &'f Value| match value {
        Value::String(text) => Ok(text.as_str()),
        _ => Err(ModelError::Tokenizer(format!("`{key}` holds something other than texts"))),
    };
    list.iter().map(text).collect()
}

/// The byte that each character of the byte-level alphabet stands for: printable Latin-1 characters for themselves, the
/// other bytes in ascending order as the characters from U+0100 on.
fn alphabet() -> HashMap<char, u8> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let others = (0..=255).filter(|byte| !printable(*byte));
    let itself = (0..=255).filter(|byte| printable(*byte)).map(|byte| (char::from(byte), byte));
    itself.chain(('\u{100}'..).zip(others)).collect()
}
