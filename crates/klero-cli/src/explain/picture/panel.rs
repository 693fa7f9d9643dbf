//! The right half of a picture: how the lot fell.

use super::scale::Scale;
use super::scene::{Anchor, Colour, Font, Line, Scene, Text, colours};
use klero::ExplainedToken;

/// Font of numbers in a row.
pub const NUMBERS: Font = Font::mono(12.0);
/// Font of the heads of columns.
pub const HEADS: Font = Font::sans(12.0).bold();

/// What differs between the ways to draw.
pub trait Panel {
    /// Where each column of numbers ends, and what stands above it.
    fn columns(&self) -> Vec<(f64, &'static str)>;

    /// Paints what lies behind the rows, from `top` to `bottom`; the axis above them.
    fn behind(&self, scene: &mut Scene, top: f64, bottom: f64);

    /// Paints a kept token's part in the draw at the height `y`.
    fn row(&self, scene: &mut Scene, token: &ExplainedToken, drawn: bool, y: f64);

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

/// The axis of a panel: ticks above the rows, a thin line down from each.
pub fn axis(scene: &mut Scene, scale: &Scale, top: f64, bottom: f64) {
    for (value, text) in scale.ticks(4) {
        let x = scale.at(value);
        scene.add(Line::new((x, top), (x, bottom), 1.0, colours::RULE));
        let text = Text::new(x, top - 6.0, Font::mono(10.0), text);
        scene.add(text.anchored(Anchor::Middle).coloured(colours::MUTED));
    }
}

/// The line that decides the draw, with its name above the axis.
pub fn deciding(scene: &mut Scene, scale: &Scale, value: f64, name: String, (top, bottom): (f64, f64)) {
    let x = scale.at(value);
    scene.add(Line::new((x, top - 20.0), (x, bottom), 1.5, colours::VERMILION).dashed());
    let half = name.chars().count() as f64 * HEADS.advance() / 2.0;
    let (x, anchor) = match x {
        x if x - half < scale.left() => (scale.left(), Anchor::Start),
        x if x + half > scale.right() => (scale.right(), Anchor::End),
        x => (x, Anchor::Middle),
    };
    scene.add(Text::new(x, top - 24.0, HEADS, name).anchored(anchor).coloured(colours::VERMILION));
}

/// The numbers of a row, each ending where its column does.
pub fn numbers(scene: &mut Scene, columns: &[(f64, &str)], texts: &[String], drawn: bool, y: f64) {
    let font = if drawn { NUMBERS.bold() } else { NUMBERS };
    for ((x, _), text) in columns.iter().zip(texts) {
        scene.add(Text::new(*x, y + 4.0, font, text.as_str()).anchored(Anchor::End));
    }
}
