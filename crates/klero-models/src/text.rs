//! Text that comes in tokens.

use crate::Tokenizer;

/// Decodes tokens one by one and yields only whole characters.
///
/// Bytes of a character whose end is still to come are held back. Bytes that can never become a character give one
/// U+FFFD for each maximal part of one, exactly as `String::from_utf8_lossy` gives for the whole text.
pub struct TextStream<'t> {
    tokenizer: &'t Tokenizer,
    control: bool,
    held: Vec<u8>,
}

impl<'t> TextStream<'t> {
    pub(crate) fn new(tokenizer: &'t Tokenizer, control: bool) -> Self {
        Self { tokenizer, control, held: Vec::new() }
    }

    /// Adds a token and returns the text that is certain now, which may be empty.
    pub fn push(&mut self, token: u32) -> String {
        self.held.extend_from_slice(self.tokenizer.bytes(token, self.control));
        complete(&mut self.held)
    }

    /// Ends the text: a character that was begun and not finished becomes U+FFFD. The stream is empty afterwards.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

/// Takes out of `bytes` all text that later bytes cannot change.
fn complete(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut taken = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        taken += chunk.valid().len();
        let broken = chunk.invalid();
        let at_end = taken + broken.len() == bytes.len();
        if broken.is_empty() || at_end && may_go_on(broken) {
            break;
        }
        text.push(char::REPLACEMENT_CHARACTER);
        taken += broken.len();
    }
    bytes.drain(..taken);
    text
}

/// Whether bytes are the beginning of a character.
fn may_go_on(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `bytes` in pieces of `step` and checks that every piece of text is a prefix of the truth.
    fn check(bytes: &[u8], step: usize) {
        let truth = String::from_utf8_lossy(bytes);
        let (mut held, mut text) = (Vec::new(), String::new());
        for piece in bytes.chunks(step) {
            held.extend_from_slice(piece);
            text.push_str(&complete(&mut held));
            assert!(truth.starts_with(&text) && held.len() < 4, "{text:?} of {truth:?}");
        }
        text.push_str(&String::from_utf8_lossy(&held));
        assert_eq!(text, truth);
    }

    #[test]
    fn any_cut_gives_the_same_text() {
        let texts: [&[u8]; 8] = [
            "aé€😀z".as_bytes(),
            b"",
            b"\xF0\x9F\x98",
            b"a\xFFb\xC3",
            b"\xE2\x82a\xE2\x82\xAC",
            b"\xF0\x9F\xF0\x9F\x98\x80",
            b"\x80\x80\xC0\xAF\xED\xA0\x80",
            "\u{10FFFF}\u{7FF}".as_bytes(),
        ];
        for text in texts {
            for step in 1..=5 {
                check(text, step);
            }
        }
    }

    #[test]
    fn random_bytes_too() {
        let mut state = 1u64;
        for length in 0..400 {
            let byte = |_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                [0x41, 0x80, 0xBF, 0xC3, 0xE2, 0xF0, 0x9F, 0xED, 0xFF][(state >> 40) as usize % 9]
            };
            let bytes: Vec<u8> = (0..length % 40).map(byte).collect();
            check(&bytes, 1 + length % 4);
        }
    }
}
