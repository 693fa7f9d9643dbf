//! Tokens and numbers as a person reads them.

use unicode_width::UnicodeWidthStr;

/// Bytes as a quoted string: whole characters as they are, or escaped where they would not show; other bytes as \xNN.
pub fn quote(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        let quoted = format!("{:?}", chunk.valid());
        text.push_str(&quoted[1..quoted.len() - 1]);
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text.push('"');
    text
}

/// As [`quote`], but in at most `width` columns.
pub fn quote_short(bytes: &[u8], width: usize) -> String {
    shorten(&quote(bytes), width)
}

/// A text in at most `width` columns, of which a wide character takes two; what is left out in the middle shows as an
/// ellipsis.
pub fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let tail = width / 3;
    let head = fitting(text.chars(), width - 1 - tail);
    let tail = fitting(text.chars().rev(), tail);
    head.chars().chain(['…']).chain(tail.chars().rev()).collect()
}

/// A text with spaces behind it that fill `width` columns.
pub fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// As many of the characters as fit into `width` columns.
fn fitting(characters: impl Iterator<Item = char>, width: usize) -> String {
    let mut text = String::new();
    for character in characters {
        text.push(character);
        if text.width() > width {
            text.pop();
            break;
        }
    }
    text
}

/// A number in at most `width` columns: with three decimals if they fit, else fewer, else as a power of ten.
pub fn number(value: f64, width: usize) -> String {
    let fits = |text: &String| text.len() <= width;
    (0..=3).rev().map(|decimals| format!("{value:.decimals$}")).find(fits).unwrap_or_else(|| format!("{value:.1e}"))
}

/// `value` beside `bound`, with so many decimals that it is seen on its own side of it.
pub fn beside(value: f64, bound: f64) -> String {
    let text = |decimals: usize| format!("{value:.decimals$}");
    let seen = |text: &String| {
        text.parse::<f64>().ok().and_then(|shown| shown.partial_cmp(&bound)) == value.partial_cmp(&bound)
    };
    [3, 6, 9, 12].into_iter().map(text).find(seen).unwrap_or_else(|| value.to_string())
}

/// A probability as a percentage in at most nine columns.
pub fn percent(probability: f64) -> String {
    let percent = probability * 100.0;
    match percent {
        0.0 => "0 %".to_owned(),
        percent if percent < 0.0001 => format!("{percent:.0e} %"),
        percent if percent < 0.01 => format!("{percent:.4} %"),
        percent => format!("{percent:.2} %"),
    }
}

/// A count, its digits in threes.
pub fn count(n: usize) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_quoted_so_that_nothing_in_them_acts_on_the_terminal() {
        assert_eq!(quote(b" Paris"), "\" Paris\"");
        assert_eq!(quote("it's \"né\"\n\x1b[31m".as_bytes()), "\"it's \\\"né\\\"\\n\\u{1b}[31m\"");
        assert_eq!(quote(b"a\xF0\x9Fb"), "\"a\\xf0\\x9fb\"");
        assert_eq!(quote_short(b"abcdefghijklmnop", 9), "\"abcd…op\"");
        assert_eq!(quote_short(b"abc", 9), "\"abc\"");
        assert_eq!(quote_short("首都は東京です".as_bytes(), 12), "\"首都は…す\"");
        assert_eq!(padded("\"首都は…す\"", 14), "\"首都は…す\"   ");
        assert_eq!(quote_short("首都は東京".as_bytes(), 12), "\"首都は東京\"");
    }

    #[test]
    fn numbers_fit_their_columns() {
        let numbers = [(1.5, "1.500"), (-123.45678, "-123.457"), (1234567.89, "1234567.9"), (-3.4e38, "-3.4e38")];
        for (value, expected) in numbers {
            assert_eq!(number(value, 9), expected);
        }
        assert_eq!([0.0, 3e-9, 9.6e-5, 0.0123, 1.0].map(percent), ["0 %", "3e-7 %", "0.0096 %", "1.23 %", "100.00 %"]);
        assert_eq!([0, 999, 1000, 49152, 1048576].map(count), ["0", "999", "1 000", "49 152", "1 048 576"]);
    }

    #[test]
    fn a_number_is_seen_on_its_side_of_a_bound() {
        assert_eq!(beside(0.9621, 0.95), "0.962");
        assert_eq!(beside(0.950_000_4, 0.95), "0.950000400");
        assert_eq!(beside(0.049_999_9, 0.05), "0.049999900");
    }
}
