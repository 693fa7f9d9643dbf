//! Language models up to their hidden states.
//!
//! A language model is a body, which turns tokens into hidden states, and a head, which turns hidden states into logits
//! over the vocabulary. Klero's fused head does its work on hidden states, so this crate holds the body and stops there:
//! a [`Model`] read from a GGUF file or a folder of safetensors files gives the hidden state at every position, its LM head
//! as a [`klero::Weights`], and the [`Tokenizer`] and [`ChatTemplate`] that come with it.
//!
//! The one promise beyond correctness: the hidden state at a position has the same bits for any chunking of the prompt,
//! any other sequences in the batch and any number of threads. Without it no text could be reproduced, however exact
//! the draw.
//!
//! With the feature `hub`, the module `hub` finds and fetches models by their Hugging Face id.
//!
//! Architectures: Llama (which includes SmolLM2), Qwen 2 and 3, Gemma 3. A model that asks for anything else is refused with
//! an error that names it.

mod attention;
mod chat;
mod config;
mod decoder;
mod default_model;
mod environment;
mod error;
mod files;
#[cfg(feature = "hub")]
pub mod hub;
mod math;
mod model;
mod pass;
mod rope;
mod sequence;
mod text;
mod tokenizer;

pub use chat::{ChatTemplate, Message};
pub use config::{Architecture, Attention, Config, Pairing, RopeScaling};
pub use default_model::default_model;
pub use error::ModelError;
pub use model::Model;
pub use sequence::Sequence;
pub use text::TextStream;
pub use tokenizer::Tokenizer;
