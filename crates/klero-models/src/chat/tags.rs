//! A glance at the text of a template: its tags, and the words and strings in them. What they mean is for the engine.

use std::ops::Range;

/// A part of a tag.
#[derive(Debug, PartialEq)]
pub(super) enum Part {
    /// A name, a keyword or a number.
    Word(String),
    /// A quoted string, without its quotes.
    Text(String),
    /// Any other character but blanks; a line feed ends each tag.
    Sign(char),
}

/// Where the insides of `{{ … }}` and `{% … %}` are, but for what `{% raw %}` makes text.
pub(super) fn tags(template: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(open) = template[at..].find('{').map(|i| at + i) {
        let close = match template.as_bytes().get(open + 1) {
            Some(b'{') => "}}",
            Some(b'%') => "%}",
            Some(b'#') => "#}",
            _ => {
                at = open + 1;
                continue;
            }
        };
        let start = open + 2;
        let inside = &template[start..];
        let end =
            start + if close == "#}" { inside.find(close) } else { tag_length(inside, close) }.unwrap_or(inside.len());
        at = template.len().min(end + 2);
        if close != "#}" {
            found.push(start..end);
        }
        if close == "%}" && bare(&template[start..end]) == "raw" {
            at = end_of_raw(template, at);
        }
    }
    found
}

/// The inside of a tag without its marks for blanks.
pub(super) fn bare(tag: &str) -> &str {
    tag.trim_matches(['-', '+']).trim()
}

/// Where the tag begins that ends a raw text from `start` on.
fn end_of_raw(template: &str, start: usize) -> usize {
    let tags = template[start..].match_indices("{%").map(|(i, _)| start + i);
    let ends = |at: &usize| template[at + 2..].trim_start_matches(['-', '+']).trim_start().starts_with("endraw");
    tags.into_iter().find(ends).unwrap_or(template.len())
}

/// Bytes before the end of a tag: before `close` outside of strings and brackets.
fn tag_length(inside: &str, close: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut chars = inside.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '}' | '%' if depth == 0 && inside[at..].starts_with(close) => return Some(at),
            '\'' | '"' => _ = string(&mut chars.by_ref().map(|(_, c)| c), c),
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// The parts of all tags, one after the other.
pub(super) fn parts(template: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    for tag in tags(template) {
        let mut chars = template[tag].chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\'' | '"' => parts.push(Part::Text(string(&mut chars, c))),
                c if is_word(c) => {
                    let mut word = String::from(c);
                    while let Some(c) = chars.next_if(|c| is_word(*c)) {
                        word.push(c);
                    }
                    parts.push(Part::Word(word));
                }
                c if c.is_whitespace() => {}
                c => parts.push(Part::Sign(c)),
            }
        }
        parts.push(Part::Sign('\n'));
    }
    parts
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Takes a string up to its closing quote.
fn string(chars: &mut dyn Iterator<Item = char>, quote: char) -> String {
    let mut text = String::new();
    while let Some(c) = chars.next().filter(|c| *c != quote) {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => text.push('\n'),
            ('\\', Some('t')) => text.push('\t'),
            ('\\', Some(escaped)) => text.push(escaped),
            (c, _) => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_words_and_signs_are_told_apart_inside_of_tags_alone() {
        let template = "don't {# '{{ no }}' #}{%- if x['a}}'] == \"b\\\"\\n\" %}{ {% raw %}{{ '{% raw %}{%- endraw %}{{ {'k': {}} ~ y }}'z'{{ 'open";
        let word = |text: &str| Part::Word(text.to_owned());
        let text = |text: &str| Part::Text(text.to_owned());
        let expected = [
            Part::Sign('-'),
            word("if"),
            word("x"),
            Part::Sign('['),
            text("a}}"),
            Part::Sign(']'),
            Part::Sign('='),
            Part::Sign('='),
            text("b\"\n"),
            Part::Sign('\n'),
            word("raw"),
            Part::Sign('\n'),
            Part::Sign('-'),
            word("endraw"),
            Part::Sign('\n'),
            Part::Sign('{'),
            text("k"),
            Part::Sign(':'),
            Part::Sign('{'),
            Part::Sign('}'),
            Part::Sign('}'),
            Part::Sign('~'),
            word("y"),
            Part::Sign('\n'),
            text("open"),
            Part::Sign('\n'),
        ];
        assert_eq!(parts(template), expected);
    }

    #[test]
    fn a_template_may_end_anywhere() {
        let template = "a{{ 'é\\' }}{% x %}{# c #}{";
        for (end, _) in template.char_indices() {
            for tag in tags(&template[..end]) {
                assert!(tag.end <= end);
            }
        }
    }
}
