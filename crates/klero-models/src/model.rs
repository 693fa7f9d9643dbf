//! A model as its users see it: tokens in, hidden states out, and the matrix that turns those into logits.

use crate::decoder::Decoder;
use crate::files::{Folder, Gguf, Json, Tensors};
use crate::pass::{self, Batch};
use crate::{Config, ModelError, Sequence, Tokenizer};
use klero::Weights;
use std::collections::HashSet;
use std::path::Path;

/// A language model up to its last hidden state, with its tokenizer and its LM head.
///
/// The head is not applied here: `head().matmul(hidden)` gives the logits, and Klero's fused head draws from them
/// without storing them. Where a file ties the head to the embedding, one matrix serves as both.
///
/// ```no_run
/// let model = klero_models::Model::load(&klero_models::default_model()?)?;
/// let prompt = model.tokenizer().encode("The capital of France is", false)?;
/// let mut sequence = model.new_sequence();
/// let hidden = model.forward(&mut [(&mut sequence, &prompt)])?;
/// assert_eq!(hidden.len(), prompt.len() * model.config().dim);
/// # Ok::<(), klero_models::ModelError>(())
/// ```
pub struct Model {
    config: Config,
    tokenizer: Tokenizer,
    embedding: Weights<'static>,
    /// Only where the file does not tie it to the embedding.
    head: Option<Weights<'static>>,
    decoder: Decoder,
}

const EMBEDDING: &str = "token_embd.weight";
const HEAD: &str = "output.weight";

impl Model {
    /// Loads a GGUF file, or a folder with `config.json`, `tokenizer.json` and safetensors files.
    ///
    /// # Errors
    /// Any [`ModelError`] about files: unreadable, damaged, unsupported, or contradicting itself.
    pub fn load(path: &Path) -> Result<Self, ModelError> {
        if !path.is_dir() {
            let gguf = Gguf::open(path)?;
            return Self::new(Config::from_gguf(&gguf)?, Tokenizer::from_gguf(&gguf)?, &gguf, None);
        }
        let json = Json::read(&path.join("config.json"))?;
        let config = Config::from_json(&json)?;
        let tensors = Folder::open(path, config.architecture)?;
        Self::new(config, Tokenizer::from_folder(path, &json)?, &tensors, json.flag("tie_word_embeddings")?)
    }

    /// `tied` says whether the embedding serves as the head; where nothing is said, it does if there is no other.
    fn new(
        config: Config,
        tokenizer: Tokenizer,
        tensors: &dyn Tensors,
        tied: Option<bool>,
    ) -> Result<Self, ModelError> {
        let known: HashSet<_> =
            [EMBEDDING, HEAD].map(str::to_owned).into_iter().chain(Decoder::reads(&config)).collect();
        let known: HashSet<_> = known.iter().map(|name| tensors.own_name(name)).collect();
        if let Some(tensor) = tensors.names().into_iter().find(|name| !known.contains(*name)) {
            let supported = format!("the plain layers of {}", config.architecture);
            return Err(ModelError::Unsupported { what: "the tensor", found: tensor.to_owned(), supported });
        }
        if tokenizer.vocabulary() > config.vocabulary {
            let (tokens, rows) = (tokenizer.vocabulary(), config.vocabulary);
            return Err(ModelError::Tokenizer(format!("{tokens} tokens, but the embedding has {rows} rows")));
        }
        let matrix = |name| tensors.matrix(&[(name, config.vocabulary)], config.dim);
        let tied = tied.unwrap_or_else(|| !tensors.has(HEAD));
        Ok(Self {
            embedding: matrix(EMBEDDING)?,
            head: (!tied).then(|| matrix(HEAD)).transpose()?,
            decoder: Decoder::load(tensors, &config)?,
            tokenizer,
            config,
        })
    }

    /// The model's shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The LM head `[vocabulary, dim]`.
    pub fn head(&self) -> &Weights<'static> {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// An empty sequence.
    pub fn new_sequence(&self) -> Sequence {
        Sequence::new(&self.config)
    }

    /// Feeds each sequence its new tokens and returns the hidden states, after the last norm, at every fed position:
    /// row-major `[tokens in all, dim]`, sequence after sequence.
    ///
    /// The bits of a hidden state depend on the tokens of its sequence up to its position, and on nothing else. Runs on
    /// the current rayon pool.
    ///
    /// # Errors
    /// [`ModelError::Token`], [`ModelError::ContextFull`] or [`ModelError::ForeignSequence`]; then no sequence changed.
    pub fn forward(&self, batch: &mut Batch) -> Result<Vec<f32>, ModelError> {
        for (sequence, tokens) in batch.iter() {
            sequence.check(&self.config, tokens.len())?;
            let vocabulary = self.config.vocabulary;
            if let Some(token) = tokens.iter().copied().find(|token| *token as usize >= vocabulary) {
                return Err(ModelError::Token { token, vocabulary });
            }
        }
        // Entering the pool once spares every parallel step below the way in and out.
        rayon::scope(|_| pass::run(&self.config, &self.embedding, &self.decoder, batch))
    }
}
