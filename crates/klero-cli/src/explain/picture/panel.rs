//! The right half of a picture: how the lot fell.

use super::scale::Scale;
use super::scene::{Anchor, Colour, Font, Line, Scene, Text, colours};
use klero::ExplainedToken;

/// Font of numbers in a row.
pub const NUMBERS: Font = Font::mono(12.0);
/// Font of the heads of columns.
pub const HEADS: Font = Font::sans(12.0).bold();

const TICKS: Font = Font::mono(10.0);

/// What differs between the ways to draw.
pub trait Panel {
    /// Where each column of numbers ends, and what stands above it.
    fn columns(&self) -> Vec<(f64, &'static str)>;

    /// Paints what lies behind the rows, from `top` to `bottom`; the axis above them.
    fn behind(&self, scene: &mut Scene, top: f64, bottom: f64);

    /// Paints a kept token's part in the draw at the height `y`.
    fn row(&self, scene: &mut Scene, token: &ExplainedToken, drawn: bool, y: f64);

    /// Why it is a fair way to draw, in a sentence.
    fn idea(&self) -> &'static str;

    /// What its marks mean.
    fn legend(&self) -> Vec<(Mark, &'static str)>;
}

/// A mark that the legend explains.
#[derive(Clone, Copy)]
pub enum Mark {
    /// A bar of one colour.
    Bar(Colour),
    /// An empty bar.
    Hollow(Colour),
    /// The end of a bar.
    End(Colour),
    /// A dashed line across the rows.
    Across(Colour),
}

/// An axis with the value that decides the draw: ticks above the rows and thin lines down from them; the value a dashed
/// line, named above the ticks.
pub fn axis(scene: &mut Scene, scale: &Scale, (top, bottom): (f64, f64), value: f64, name: String) {
    let deciding = scale.at(value);
    for (value, text) in ticks(scale) {
        let x = scale.at(value);
        scene.add(Line::new((x, top), (x, bottom), 1.0, colours::RULE));
        // The dashed line would strike it through.
        if (x - deciding).abs() > room(&text) / 2.0 {
            let text = Text::new(x, top - 13.0, TICKS, text);
            scene.add(text.anchored(Anchor::Middle).coloured(colours::MUTED));
        }
    }
    scene.add(Line::new((deciding, top - 24.0), (deciding, bottom), 1.5, colours::VERMILION).dashed());
    let half = name.len() as f64 * HEADS.advance() / 2.0;
    let (x, anchor) = match deciding {
        x if x - half < scale.left() => (scale.left(), Anchor::Start),
        x if x + half > scale.right() => (scale.right(), Anchor::End),
        x => (x, Anchor::Middle),
    };
    scene.add(Text::new(x, top - 29.0, HEADS, name).anchored(anchor).coloured(colours::VERMILION));
}

/// As many ticks as have room.
fn ticks(scale: &Scale) -> Vec<(f64, String)> {
    let fits = |ticks: &Vec<(f64, String)>| {
        let widest = ticks.iter().map(|(_, text)| room(text)).fold(0.0, f64::max);
        ticks.len() as f64 * widest <= scale.right() - scale.left()
    };
    (2..=6).rev().map(|most| scale.ticks(most)).find(fits).unwrap_or_default()
}

/// The width of a tick's text with some space.
fn room(text: &str) -> f64 {
    text.len() as f64 * TICKS.advance() + 10.0
}

/// The numbers of a row, each ending where its column does.
pub fn numbers(scene: &mut Scene, columns: &[(f64, &str)], texts: &[String], drawn: bool, y: f64) {
    let font = if drawn { NUMBERS.bold() } else { NUMBERS };
    for ((x, _), text) in columns.iter().zip(texts) {
        scene.add(Text::new(*x, y + 4.0, font, text.as_str()).anchored(Anchor::End));
    }
}
