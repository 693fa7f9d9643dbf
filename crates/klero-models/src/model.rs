//! A model as its users see it: tokens in, hidden states out, and the matrix that turns those into logits.

use crate::decoder::Decoder;
use crate::gguf::Gguf;
use crate::pass::{self, Batch};
use crate::{Config, ModelError, Sequence, Tokenizer};
use klero::Weights;
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
    /// Loads a GGUF file.
    ///
    /// # Errors
    /// Any [`ModelError`] about files: unreadable, damaged, unsupported, or contradicting itself.
    pub fn load(path: &Path) -> Result<Self, ModelError> {
        let gguf = Gguf::open(path)?;
        let config = Config::read(&gguf)?;
        let unknown = |tensor: &&str| ![EMBEDDING, HEAD].contains(tensor) && !Decoder::reads(tensor, &config);
        if let Some(tensor) = gguf.tensors().find(unknown) {
            let supported = "the plain layers of the architecture";
            return Err(ModelError::Unsupported { what: "the tensor", found: tensor.to_owned(), supported });
        }
        let tokenizer = Tokenizer::read(&gguf)?;
        if tokenizer.vocabulary() > config.vocabulary {
            let (tokens, rows) = (tokenizer.vocabulary(), config.vocabulary);
            return Err(ModelError::Tokenizer(format!("{tokens} tokens, but the embedding has {rows} rows")));
        }
        let matrix = |name| gguf.matrix(&[(name, config.vocabulary)], config.dim);
        Ok(Self {
            embedding: matrix(EMBEDDING)?,
            head: gguf.has(HEAD).then(|| matrix(HEAD)).transpose()?,
            decoder: Decoder::load(&gguf, &config)?,
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
