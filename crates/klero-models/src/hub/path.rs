//! Names that come from elsewhere and become paths or URLs.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Whether a name with `/` between its parts stays inside the folder that it is joined to, on any system.
pub fn is_inside(name: &str) -> bool {
    let part = |part: &str| !["", ".", ".."].contains(&part);
    let safe = |c: char| !c.is_control() && !['\\', ':'].contains(&c);
    name.split('/').all(part) && name.chars().all(safe)
}

/// Whether a name is one part of such a path.
pub fn is_name(name: &str) -> bool {
    is_inside(name) && !name.contains('/')
}

/// Whether this is a commit in full.
pub fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

const PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// One part of a URL's path.
pub fn url_part(text: &str) -> String {
    utf8_percent_encode(text, PART).to_string()
}

/// A URL's path.
pub fn url_path(text: &str) -> String {
    text.split('/').map(url_part).collect::<Vec<_>>().join("/")
}
