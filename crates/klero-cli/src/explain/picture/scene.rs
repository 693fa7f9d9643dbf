//! A picture as shapes, in the order in which they are painted.

/// A colour as SVG writes it.
pub type Colour = &'static str;

/// The colours. Those that tell things apart are Okabe and Ito's, which look different to colour-blind people too; and each
/// differs in lightness from its neighbours.
pub mod colours {
    use super::Colour;

    pub const PAPER: Colour = "#ffffff";
    pub const EDGE: Colour = "#d0d7de";
    pub const RULE: Colour = "#e4e8ec";
    pub const INK: Colour = "#1f2328";
    pub const MUTED: Colour = "#59636e";
    pub const GHOST: Colour = "#c4cbd2";
    pub const BLUE: Colour = "#0072b2";
    pub const PALE: Colour = "#a5cde6";
    pub const ORANGE: Colour = "#e69f00";
    pub const VERMILION: Colour = "#c24e00";
    pub const BAND: Colour = "#fff1de";
}

/// What is painted, and what is said to those who cannot see it.
pub struct Scene {
    pub width: f64,
    pub height: f64,
    pub title: String,
    pub description: String,
    pub shapes: Vec<Shape>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Rect(Rect),
    Line(Line),
    /// A filled triangle.
    Triangle([(f64, f64); 3], Colour),
    Text(Text),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rect {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
    pub radius: f64,
    pub fill: Colour,
    pub edge: Option<Colour>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub from: (f64, f64),
    pub to: (f64, f64),
    pub width: f64,
    pub colour: Colour,
    pub dashed: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    pub x: f64,
    /// Of the line it stands on.
    pub y: f64,
    pub anchor: Anchor,
    pub font: Font,
    pub colour: Colour,
    pub text: String,
    /// Nothing of it shows to the right of this.
    pub until: Option<f64>,
}

/// Which point of a text stands at its x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Font {
    pub family: Family,
    pub bold: bool,
    pub size: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// For prose.
    Sans,
    /// For tokens and numbers: all characters are equally wide.
    Mono,
}

impl Font {
    pub const fn sans(size: f64) -> Self {
        Self { family: Family::Sans, bold: false, size }
    }

    pub const fn mono(size: f64) -> Self {
        Self { family: Family::Mono, bold: false, size }
    }

    pub const fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    /// Room for a column of text. Whoever shows an SVG may have other fonts: in prose this is the mean of a wide one.
    pub fn advance(self) -> f64 {
        match self.family {
            Family::Sans => self.size * 0.56,
            Family::Mono => self.size * 0.6,
        }
    }
}

impl Text {
    /// A text that begins at `x`, in ink.
    pub fn new(x: f64, y: f64, font: Font, text: impl Into<String>) -> Self {
        Self { x, y, anchor: Anchor::Start, font, colour: colours::INK, text: text.into(), until: None }
    }

    pub fn anchored(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }

    pub fn coloured(self, colour: Colour) -> Self {
        Self { colour, ..self }
    }

    pub fn until(self, x: f64) -> Self {
        Self { until: Some(x), ..self }
    }
}

impl Rect {
    /// A bar around the height `y`, from `from` to `to` whichever is left.
    pub fn bar(from: f64, to: f64, y: f64, height: f64, fill: Colour) -> Self {
        let (x, width) = (from.min(to), (to - from).abs());
        Self { x, y: y - height / 2.0, width, height, radius: 0.0, fill, edge: None }
    }

    pub fn rounded(self, radius: f64) -> Self {
        Self { radius, ..self }
    }

    pub fn edged(self, colour: Colour) -> Self {
        Self { edge: Some(colour), ..self }
    }
}

impl Line {
    pub fn new(from: (f64, f64), to: (f64, f64), width: f64, colour: Colour) -> Self {
        Self { from, to, width, colour, dashed: false }
    }

    pub fn dashed(self) -> Self {
        Self { dashed: true, ..self }
    }
}

impl From<Rect> for Shape {
    fn from(rect: Rect) -> Self {
        Self::Rect(rect)
    }
}

impl From<Line> for Shape {
    fn from(line: Line) -> Self {
        Self::Line(line)
    }
}

impl From<Text> for Shape {
    fn from(text: Text) -> Self {
        Self::Text(text)
    }
}

impl Scene {
    /// Paints over what is there.
    pub fn add(&mut self, shape: impl Into<Shape>) {
        self.shapes.push(shape.into());
    }
}
