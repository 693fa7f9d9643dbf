//! The tokenizer in a GGUF file's metadata.
//!
//! Two kinds. `gpt2`: byte-level BPE with a list of merges; `tokenizer.ggml.pre` names how texts are cut into words. `llama`:
//! SentencePiece's BPE, which has no list of merges but a score for every token: neighbours are merged into the token with the
//! highest score. Every way to cut a token into two others is a merge then, ranked by the token's score, which makes it the
//! same algorithm.

use super::spelling::Spelling;
use super::{Specials, Token, Tokenizer, wrong};
use crate::ModelError;
use crate::files::Gguf;
use candle_core::quantized::gguf_file::Value;
use rayon::prelude::*;
use std::collections::HashMap;
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::{NFC, Prepend, Replace, Sequence as Normalizers};
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::{byte_level::ByteLevel, digits::Digits, sequence::Sequence};
use tokenizers::{AddedToken, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

/// Words of Qwen's models, and of Llama 3 with digits in threes.
const QWEN_WORDS: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

impl Tokenizer {
    pub(crate) fn from_gguf(gguf: &Gguf) -> Result<Self, ModelError> {
        let vocabulary = Vocabulary::read(gguf)?;
        let (mut pipeline, spelling) = match text(gguf, "tokenizer.ggml.model")? {
            "gpt2" => (vocabulary.byte_level(gguf)?, Spelling::Bytes),
            "llama" => (vocabulary.sentence_piece(gguf)?, Spelling::Pieces),
            other => return Err(unsupported("the tokenizer", other, "gpt2, llama")),
        };
        pipeline.add_tokens(vocabulary.written_out()).map_err(wrong)?;
        let id = |key: &str| -> Result<Option<u32>, ModelError> {
            Ok(gguf.count(key)?.and_then(|id| u32::try_from(id).ok()))
        };
        let specials = Specials {
            bos: id("tokenizer.ggml.bos_token_id")?,
            adds_bos: gguf.flag("tokenizer.ggml.add_bos_token")?.unwrap_or(spelling == Spelling::Pieces),
            eos: id("tokenizer.ggml.eos_token_id")?,
            ends: id("tokenizer.ggml.eot_token_id")?.into_iter().collect(),
            chat_template: gguf.text("tokenizer.chat_template")?.map(str::to_owned),
        };
        Ok(Self::new(pipeline, vocabulary.tokens(spelling), specials))
    }
}

fn text<'f>(gguf: &'f Gguf, key: &str) -> Result<&'f str, ModelError> {
    gguf.text(key)?.ok_or_else(|| ModelError::MissingKey(key.to_owned()))
}

fn unsupported(what: &'static str, found: &str, supported: &str) -> ModelError {
    ModelError::Unsupported { what, found: found.to_owned(), supported: supported.to_owned() }
}

/// What a token is, as far as it matters here.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Normal,
    /// A byte of a character that the vocabulary lacks.
    Byte,
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

    fn byte_level(&self, gguf: &Gguf) -> Result<tokenizers::Tokenizer, ModelError> {
        let name = text(gguf, "tokenizer.ggml.pre")?;
        let words = words(name)?;
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
            .collect::<Result<_, _>>()?;
        // Llama 3 takes a word that is a token for that token, whatever the merges say.
        let whole_words = name.starts_with("llama");
        let bpe = BPE::builder().vocab_and_merges(self.vocab(), merges).cache_capacity(0).ignore_merges(whole_words);
        let mut pipeline = tokenizers::Tokenizer::new(bpe.build().map_err(wrong)?);
        pipeline.with_pre_tokenizer(Some(words));
        if name == "qwen2" {
            pipeline.with_normalizer(Some(NFC)).map_err(wrong)?;
        }
        Ok(pipeline)
    }

    fn sentence_piece(&self, gguf: &Gguf) -> Result<tokenizers::Tokenizer, ModelError> {
        let scores = gguf.list("tokenizer.ggml.scores")?;
        let scores = scores.ok_or_else(|| ModelError::MissingKey("tokenizer.ggml.scores".to_owned()))?;
        let scores: Option<Vec<f32>> = scores.iter().map(|score| score.to_f32().ok()).collect();
        let scores = scores.filter(|scores| scores.len() == self.texts.len());
        let scores = scores.ok_or_else(|| ModelError::Tokenizer("there is not one score for each token".to_owned()))?;
        let unknown = gguf.count("tokenizer.ggml.unknown_token_id")?.and_then(|id| self.texts.get(id));
        let bpe = BPE::builder().vocab_and_merges(self.vocab(), self.merges(&scores)).cache_capacity(0);
        let bpe = bpe.byte_fallback(true).fuse_unk(true).unk_token(unknown.unwrap_or(&"<unk>").to_string());
        let mut pipeline = tokenizers::Tokenizer::new(bpe.build().map_err(wrong)?);
        let spaces = Replace::new(" ", "▁").map_err(wrong)?.into();
        let front = gguf.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        let normalizers: Vec<NormalizerWrapper> =
            if front { vec![Prepend::new("▁".to_owned()).into(), spaces] } else { vec![spaces] };
        pipeline.with_normalizer(Some(Normalizers::new(normalizers))).map_err(wrong)?;
        Ok(pipeline)
    }

    /// Every way to make a token out of two others, the token with the highest score first.
    fn merges(&self, scores: &[f32]) -> Merges {
        let mut ranked: Vec<u32> = (0..self.texts.len() as u32).collect();
        ranked.retain(|id| self.kinds[*id as usize] == Kind::Normal);
        ranked.sort_by(|a, b| scores[*b as usize].total_cmp(&scores[*a as usize]));
        let part = |text: &str| self.ids.get(text).is_some_and(|id| self.kinds[*id as usize] == Kind::Normal);
        let cuts = |id: &u32| {
            let text = self.texts[*id as usize];
            let cuts = text.char_indices().skip(1).map(move |(at, _)| text.split_at(at));
            cuts.filter(|(left, right)| part(left) && part(right)).map(|(l, r)| (l.to_owned(), r.to_owned())).collect()
        };
        ranked.par_iter().map(cuts).collect::<Vec<Vec<_>>>().into_iter().flatten().collect()
    }

    fn vocab(&self) -> Vocab {
        self.ids.iter().map(|(text, id)| ((*text).to_owned(), *id)).collect()
    }

    /// The tokens that are looked for in a text before it is cut into words.
    fn written_out(&self) -> impl Iterator<Item = AddedToken> {
        let tokens = self.texts.iter().zip(&self.kinds);
        let tokens = tokens.filter(|(_, kind)| matches!(kind, Kind::UserDefined | Kind::Control));
        tokens.map(|(text, kind)| AddedToken::from(*text, *kind == Kind::Control).normalized(false))
    }

    fn tokens(&self, spelling: Spelling) -> Vec<Token> {
        let spelled = spelling.reader();
        let token = |(text, kind): (&&str, &Kind)| {
            let bytes = match kind {
                Kind::Normal | Kind::Byte => spelled(text),
                _ => text.as_bytes().to_vec(),
            };
            Token { bytes: bytes.into(), control: *kind == Kind::Control }
        };
        self.texts.iter().zip(&self.kinds).map(token).collect()
    }
}

/// How a text is cut into words, by the name of the rule.
fn words(name: &str) -> Result<PreTokenizerWrapper, ModelError> {
    let bytes = |with_gpt2_words| PreTokenizerWrapper::from(ByteLevel::new(false, false, with_gpt2_words));
    let split = |pattern: &str| {
        let pattern = SplitPattern::Regex(pattern.to_owned());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(wrong)?;
        Ok(Sequence::new(vec![split.into(), bytes(false)]).into())
    };
    match name {
        "gpt-2" => Ok(bytes(true)),
        "smollm" => Ok(Sequence::new(vec![Digits::new(true).into(), bytes(true)]).into()),
        "qwen2" => split(QWEN_WORDS),
        "llama-bpe" | "llama3" => split(LLAMA_WORDS),
        other => Err(unsupported("the pre-tokenizer", other, "gpt-2, smollm, qwen2, llama-bpe")),
    }
}

fn kind(value: &Value) -> Kind {
    match value {
        Value::I32(2 | 3) | Value::U32(2 | 3) => Kind::Control,
        Value::I32(4) | Value::U32(4) => Kind::UserDefined,
        Value::I32(6) | Value::U32(6) => Kind::Byte,
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
