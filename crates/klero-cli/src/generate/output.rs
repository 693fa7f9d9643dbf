//! Where texts go.

use super::writing::{Ended, Label};
use klero::Outcome;
use std::io;

/// A token that was drawn.
pub struct Token<'t> {
    pub outcome: &'t Outcome,
    /// The text that became certain with it.
    pub certain: &'t str,
    /// The text that became certain to lie before any stop string.
    pub text: &'t str,
}

/// The standard output in one of its forms. Tokens of several texts come as they are drawn, so they alternate.
pub trait Output {
    /// Begins, before anything is drawn.
    fn begin(&mut self) -> io::Result<()>;

    /// A token of a text.
    fn token(&mut self, label: &Label, token: &Token) -> io::Result<()>;

    /// The end of a text.
    fn end(&mut self, ended: &Ended) -> io::Result<()>;

    /// Nothing more comes, be it before the texts have ended.
    fn close(&mut self) -> io::Result<()>;
}
