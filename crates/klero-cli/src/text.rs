//! Stop strings in a text that arrives in pieces.

/// Looks for stop strings and lets through only text that cannot be part of one.
///
/// What comes out depends on the text alone, never on how it was cut into pieces: the text ends before the stop string
/// that is complete first (of two that end together, before the longer one).
#[derive(Debug)]
pub struct StopStrings {
    stops: Vec<String>,
    /// Text that may be the beginning of a stop string.
    held: String,
    found: bool,
}

impl StopStrings {
    /// Looks for `stops`, none of which may be empty.
    pub fn new(stops: &[String]) -> Self {
        debug_assert!(stops.iter().all(|stop| !stop.is_empty()));
        Self { stops: stops.to_vec(), held: String::new(), found: false }
    }

    /// Adds text and returns what is certain to lie before any stop string. Nothing, once one was found.
    pub fn push(&mut self, text: &str) -> String {
        if self.found {
            return String::new();
        }
        self.held.push_str(text);
        let ends = self.stops.iter().filter_map(|stop| self.held.find(stop).map(|at| (at + stop.len(), at)));
        let certain = match ends.min() {
            Some((_, at)) => {
                self.found = true;
                at
            }
            None => self.held.len() - self.begun(),
        };
        let rest = self.held.split_off(certain);
        std::mem::replace(&mut self.held, rest)
    }

    /// Whether a stop string has appeared: the text is over.
    pub fn found(&self) -> bool {
        self.found
    }

    /// Ends the text: returns what was held back, unless it is a stop string.
    pub fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        if self.found { String::new() } else { held }
    }

    /// Length of the longest end of the held text that is the beginning of a stop string.
    fn begun(&self) -> usize {
        let begins = |stop: &String| {
            let lengths = stop.char_indices().map(|(length, _)| length).rev();
            lengths.into_iter().find(|length| self.held.ends_with(&stop[..*length])).unwrap_or(0)
        };
        self.stops.iter().map(begins).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cuts `text` into pieces of `size` characters and checks that what comes out grows into `expected`.
    fn check(stops: &[&str], text: &str, size: usize, expected: &str, found: bool) {
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut holder = StopStrings::new(&stops);
        let characters: Vec<char> = text.chars().collect();
        let mut out = String::new();
        for piece in characters.chunks(size) {
            out += &holder.push(&piece.iter().collect::<String>());
            assert!(expected.starts_with(&out), "{stops:?} {text:?} by {size}: {out:?}");
        }
        out += &holder.finish();
        assert_eq!((out.as_str(), holder.found()), (expected, found), "{stops:?} {text:?} by {size}");
    }

    #[test]
    fn text_before_a_stop_string_passes_however_it_is_cut() {
        let cases: [(&[&str], &str, &str, bool); 9] = [
            (&[], "all of it", "all of it", false),
            (&["END"], "one ENtwo EN", "one ENtwo EN", false),
            (&["END"], "one ENENDtwo", "one EN", true),
            (&["aab"], "aaaab", "aa", true),
            (&["\n\n"], "a\nb\n\nc", "a\nb", true),
            (&["abcd", "bc"], "abcd", "a", true),
            (&["cd", "bcd"], "abcde", "a", true),
            (&["né€"], "on n'est né€ pas né", "on n'est ", true),
            (&["x"], "x", "", true),
        ];
        for (stops, text, expected, found) in cases {
            for size in 1..=5 {
                check(stops, text, size, expected, found);
            }
        }
    }

    #[test]
    fn only_what_may_become_a_stop_string_is_held_back() {
        let mut holder = StopStrings::new(&["<end>".to_owned()]);
        assert_eq!(holder.push("a <e"), "a ");
        assert_eq!(holder.push("x <"), "<ex ");
        assert_eq!(holder.push("end>more"), "");
        assert!(holder.found());
        assert_eq!((holder.push("more"), holder.finish()), (String::new(), String::new()));
    }
}
