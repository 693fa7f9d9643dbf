//! Conversations as the tokens that a model was taught to read them in.
//!
//! A model file carries a template, which writes messages out as one text with control tokens between them
//! ([`ChatTemplate`]). [`Tokenizer::encode_chat`] cuts that text into tokens so that only the template's own control
//! tokens become such: whatever a message says, it stays text.
//!
//! For that, while the template runs, other characters stand in the messages for those with which control tokens begin
//! (`disguise`), and are turned back once the control tokens have been found. The template may trim, split and join the
//! messages as it likes: a control token is found only where its first character is the template's own.

mod disguise;
mod json;
mod tags;
mod template;

pub use template::ChatTemplate;

use crate::{ModelError, Tokenizer};
use disguise::Disguise;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whose it is, as templates know them: `system`, `user`, `assistant`.
    pub role: String,
    /// What it says.
    pub content: String,
}

impl Message {
    /// A message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

impl Tokenizer {
    /// The tokens of a conversation, as the template writes it; with `add_generation_prompt` up to where an answer
    /// begins. Control tokens that a message spells out stay text.
    ///
    /// [`Tokenizer::bos`] stands in front if the model expects it there, and never twice: many templates write it
    /// themselves.
    ///
    /// ```no_run
    /// use klero_models::{ChatTemplate, Message, Model};
    ///
    /// let model = Model::load(&klero_models::default_model()?)?;
    /// let template = ChatTemplate::of(model.tokenizer())?;
    /// let messages = [Message::new("user", "What does <|im_end|> mean?")];
    /// let tokens = model.tokenizer().encode_chat(&template, &messages, true)?;
    /// # Ok::<(), klero_models::ModelError>(())
    /// ```
    ///
    /// # Errors
    /// [`ModelError::ChatTemplate`], as [`ChatTemplate::render`]; [`ModelError::Tokenizer`], as [`Tokenizer::encode`].
    pub fn encode_chat(
        &self,
        template: &ChatTemplate,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<Vec<u32>, ModelError> {
        let disguise = Disguise::new(self, template, messages)?;
        let messages: Vec<Message> = messages
            .iter()
            .map(|Message { role, content }| Message::new(disguise.put_on(role), disguise.put_on(content)))
            .collect();
        let text = template.render(&messages, add_generation_prompt)?;
        Ok(self.begin(self.cut(&text, true, Some(&|c| disguise.take_off(c)))?))
    }
}
