//! How the vocabulary spells the bytes of its tokens.

use std::collections::HashMap;

/// One of two spellings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Each byte is a printable character of a fixed alphabet.
    Bytes,
    /// Text, with spaces written as ▁, and `<0x0A>` for the byte 10 where a token is a single byte.
    Pieces,
}

impl Spelling {
    /// The bytes of some tokens; a text that is not spelled so stands for itself.
    pub(super) fn reader(self) -> impl Fn(&str) -> Vec<u8> {
        let alphabet = alphabet();
        move |text| match self {
            Self::Bytes => {
                let bytes = text.chars().map(|c| alphabet.get(&c).copied()).collect::<Option<_>>();
                bytes.unwrap_or_else(|| text.as_bytes().to_vec())
            }
            Self::Pieces => match single_byte(text) {
                Some(byte) => vec![byte],
                None => text.replace('▁', " ").into_bytes(),
            },
        }
    }
}

fn single_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let plain = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    plain.then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The byte that each character of the byte-level alphabet stands for: printable Latin-1 characters for themselves, the
/// other bytes in ascending order as the characters from U+0100 on.
fn alphabet() -> HashMap<char, u8> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let others = (0..=255).filter(|byte| !printable(*byte));
    let itself = (0..=255).filter(|byte| printable(*byte)).map(|byte| (char::from(byte), byte));
    itself.chain(('\u{100}'..).zip(others)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_read() {
        let (bytes, pieces) = (Spelling::Bytes.reader(), Spelling::Pieces.reader());
        assert_eq!(bytes("Ġa"), b" a");
        assert_eq!(bytes("Ã©"), "é".as_bytes());
        assert_eq!(bytes("日"), "日".as_bytes());
        assert_eq!(pieces("▁a▁b"), b" a b");
        assert_eq!((pieces("<0x0A>"), pieces("<0xe9>")), (vec![10], vec![0xE9]));
        for text in ["<0x>", "<0x0AB>", "<0xZZ>", "<0x+1>", "0x0A"] {
            assert_eq!(pieces(text), text.as_bytes());
        }
    }
}
