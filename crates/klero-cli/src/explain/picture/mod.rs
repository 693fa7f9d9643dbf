//! The picture of a draw: one row a token, for a README or a talk.
//!
//! It says what the page says, by lengths: how probable each token is, where the filters cut, and how the lot fell. The
//! way is page, then a scene of plain shapes, then SVG; a PNG is that SVG in pixels, with fonts that the command carries.

mod layout;
mod line;
mod panel;
#[cfg(feature = "png")]
mod png;
mod prose;
mod race;
mod scale;
mod scene;
mod svg;

use super::page::Page;
use layout::Layout;

/// The picture as SVG. Its characters are those of the tokens, for whoever shows it has more fonts than this command.
pub fn svg(page: &Page) -> String {
    svg::write(&Layout::new(page, &|_| true).draw())
}

/// The picture as PNG. Characters that the fonts carried do not have are written as their numbers.
///
/// # Errors
/// A text, for a picture that is too tall.
#[cfg(feature = "png")]
pub fn png(page: &Page) -> Result<Vec<u8>, String> {
    let shows = |character| png::has(scene::Family::Mono, character);
    png::rasterise(&Layout::new(page, &shows).draw())
}

/// The picture as PNG, which this build cannot make.
///
/// # Errors
/// Always.
#[cfg(not(feature = "png"))]
pub fn png(_: &Page) -> Result<Vec<u8>, String> {
    Err("this klero was built without it: build klero-cli with the feature `png`, or use --svg".to_owned())
}

#[cfg(test)]
mod tests;
