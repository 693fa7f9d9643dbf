//! Characters that stand in for the first characters of control tokens.
//!
//! Messages are strangers' text, the template is not, and once both are one text nobody can tell them apart. So in the
//! messages every character with which some control token begins (`<` in most vocabularies) is replaced by a
//! private-use character that occurs nowhere in the conversation. One character stands for one, so that nothing a
//! template does with a text comes out differently, except where it looks for that very character.
//!
//! Some templates do look: for `</think>`, say, to leave out what a model thought. Texts that a template or the
//! vocabulary knows by name are therefore left as they are, if no control token could begin inside them.

use super::tags::{self, Part};
use super::{ChatTemplate, Message};
use crate::{ModelError, Tokenizer};
use std::collections::{BTreeSet, HashSet};

pub(super) struct Disguise {
    /// Each first character with its stand-in.
    pairs: Vec<(char, char)>,
    /// What is left as it is.
    known: BTreeSet<String>,
}

/// The planes in which characters mean nothing.
const PRIVATE: [std::ops::RangeInclusive<char>; 2] = ['\u{F0000}'..='\u{FFFFD}', '\u{100000}'..='\u{10FFFD}'];

impl Disguise {
    /// The disguise of these messages.
    pub(super) fn new(
        tokenizer: &Tokenizer,
        template: &ChatTemplate,
        messages: &[Message],
    ) -> Result<Self, ModelError> {
        let controls: Vec<&str> = tokenizer.control_texts().collect();
        let firsts: BTreeSet<char> = controls.iter().filter_map(|control| control.chars().next()).collect();
        let written = messages.iter().flat_map(|message| [&message.role, &message.content]);
        let taken: HashSet<char> = written.flat_map(|text| text.chars()).chain(template.text().chars()).collect();
        let free = PRIVATE.into_iter().flatten().filter(|c| !taken.contains(c));
        let pairs: Vec<(char, char)> = firsts.iter().copied().zip(free).collect();
        if pairs.len() < firsts.len() {
            return Err(ModelError::ChatTemplate("the messages hold every private-use character there is".to_owned()));
        }
        let quoted = tags::parts(template.text()).into_iter().filter_map(|part| match part {
            Part::Text(text) => Some(text),
            _ => None,
        });
        let harmless = |text: &String| {
            let begins =
                |rest: &str| controls.iter().any(|control| control.starts_with(rest) || rest.starts_with(control));
            let mut places = text.char_indices().filter(|(_, c)| firsts.contains(c)).peekable();
            places.peek().is_some_and(|(at, _)| *at == 0) && !places.any(|(at, _)| begins(&text[at..]))
        };
        let known = quoted.chain(tokenizer.known_texts()).filter(harmless).collect();
        Ok(Self { pairs, known })
    }

    /// The text as the template may see it.
    pub(super) fn put_on(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let stand_in = self.pairs.iter().find(|(first, _)| *first == c).map(|(_, stand_in)| *stand_in);
            let known = self.known.iter().filter(|known| rest.starts_with(known.as_str())).map(String::len).max();
            let (taken, put) = match (stand_in, known) {
                (Some(_), Some(length)) => (length, None),
                (stand_in, _) => (c.len_utf8(), stand_in),
            };
            match put {
                Some(stand_in) => out.push(stand_in),
                None => out.push_str(&rest[..taken]),
            }
            rest = &rest[taken..];
        }
        out
    }

    /// The character that one stands for, or itself.
    pub(super) fn take_off(&self, c: char) -> char {
        self.pairs.iter().find(|(_, stand_in)| *stand_in == c).map_or(c, |(first, _)| *first)
    }
}
