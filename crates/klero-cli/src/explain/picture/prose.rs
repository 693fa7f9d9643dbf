//! Prose in lines.

/// As few lines of at most `width` characters as it takes, of about the same length.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let lines = broken(text, width);
    let balanced = (1..width).map(|width| broken(text, width));
    balanced.into_iter().find(|balanced| balanced.len() == lines.len()).unwrap_or(lines)
}

/// Lines of at most `width` characters, broken between words. A number stays with the word before it.
fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for words in unbreakable(text) {
        let line = lines.last_mut().expect("there is a line");
        match line.chars().count() + 1 + words.chars().count() {
            _ if line.is_empty() => line.push_str(&words),
            length if length <= width => {
                line.push(' ');
                line.push_str(&words);
            }
            _ => lines.push(words),
        }
    }
    lines
}

/// Words with the numbers behind them.
fn unbreakable(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = vec![];
    for word in text.split(' ') {
        match pieces.last_mut() {
            Some(piece) if word.starts_with(|first: char| first.is_ascii_digit() || "-+%".contains(first)) => {
                piece.push(' ');
                piece.push_str(word);
            }
            _ => pieces.push(word.to_owned()),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_balanced_and_numbers_whole() {
        assert_eq!(wrap("one two three four", 40), ["one two three four"]);
        assert_eq!(wrap("one two three four", 16), ["one two", "three four"]);
        assert_eq!(wrap("kept are 49 152 of them", 13), ["kept", "are 49 152", "of them"]);
        assert_eq!(wrap("holds (logprob -0.47) 5.00 % more", 22), ["holds", "(logprob -0.47) 5.00 %", "more"]);
        assert_eq!(wrap("", 5), [""]);
        assert_eq!(wrap("unbreakable", 5), ["unbreakable"]);
    }
}
