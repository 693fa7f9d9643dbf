//! A scene as SVG.

use super::scene::{Anchor, Family, Font, Line, Rect, Scene, Shape, Text};
use std::fmt::{self, Display, Formatter, Write};

const SANS: &str = "Inter, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif";
const MONO: &str = "'JetBrains Mono', ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace";

/// The text of an SVG file.
pub fn write(scene: &Scene) -> String {
    let mut text = String::new();
    document(scene, &mut text).expect("a String takes all text");
    text
}

fn document(scene: &Scene, out: &mut String) -> fmt::Result {
    let (width, height) = (Number(scene.width), Number(scene.height));
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" xml:space="preserve">"#
    )?;
    writeln!(out, "<title>{}</title>", Escaped(&scene.title))?;
    writeln!(out, "<desc>{}</desc>", Escaped(&scene.description))?;
    writeln!(
        out,
        "<style>.klero-sans {{ font-family: {SANS} }} .klero-mono {{ font-family: {MONO}; font-variant-ligatures: none }}</style>"
    )?;
    clips(scene, out)?;
    for shape in &scene.shapes {
        match shape {
            Shape::Rect(shape) => rect(shape, out),
            Shape::Line(shape) => line(shape, out),
            Shape::Triangle([a, b, c], colour) => writeln!(
                out,
                r#"<path d="M{} {} L{} {} L{} {} Z" fill="{colour}"/>"#,
                Number(a.0),
                Number(a.1),
                Number(b.0),
                Number(b.1),
                Number(c.0),
                Number(c.1)
            ),
            Shape::Text(shape) => words(shape, out),
        }?;
    }
    writeln!(out, "</svg>")
}

/// The areas that texts may not leave.
fn clips(scene: &Scene, out: &mut String) -> fmt::Result {
    let mut ends: Vec<f64> = vec![];
    for shape in &scene.shapes {
        if let Shape::Text(Text { until: Some(x), .. }) = shape
            && !ends.contains(x)
        {
            ends.push(*x);
        }
    }
    for x in ends {
        let (x, height) = (Number(x), Number(scene.height));
        writeln!(out, r#"<clipPath id="klero-until-{x}"><rect width="{x}" height="{height}"/></clipPath>"#)?;
    }
    Ok(())
}

fn rect(rect: &Rect, out: &mut String) -> fmt::Result {
    let Rect { fill, .. } = rect;
    let [x, y, width, height, radius] = [rect.x, rect.y, rect.width, rect.height, rect.radius].map(Number);
    write!(out, r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}""#)?;
    if rect.radius > 0.0 {
        write!(out, r#" rx="{radius}""#)?;
    }
    if let Some(edge) = rect.edge {
        write!(out, r#" stroke="{edge}""#)?;
    }
    writeln!(out, "/>")
}

fn line(line: &Line, out: &mut String) -> fmt::Result {
    let [x1, y1, x2, y2, width] = [line.from.0, line.from.1, line.to.0, line.to.1, line.width].map(Number);
    let dashes = if line.dashed { r#" stroke-dasharray="4 3""# } else { "" };
    let colour = line.colour;
    writeln!(out, r#"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="{width}"{dashes}/>"#)
}

fn words(text: &Text, out: &mut String) -> fmt::Result {
    let Font { family, bold, size } = text.font;
    let class = match family {
        Family::Sans => "klero-sans",
        Family::Mono => "klero-mono",
    };
    let (x, y, size, colour) = (Number(text.x), Number(text.y), Number(size), text.colour);
    write!(out, r#"<text x="{x}" y="{y}" class="{class}" font-size="{size}" fill="{colour}""#)?;
    if bold {
        write!(out, r#" font-weight="{}""#, if family == Family::Sans { 600 } else { 700 })?;
    }
    match text.anchor {
        Anchor::Start => {}
        Anchor::Middle => write!(out, r#" text-anchor="middle""#)?,
        Anchor::End => write!(out, r#" text-anchor="end""#)?,
    }
    if let Some(x) = text.until {
        write!(out, r#" clip-path="url(#klero-until-{})""#, Number(x))?;
    }
    writeln!(out, ">{}</text>", Escaped(&text.text))
}

/// A length, to a hundredth of a pixel.
struct Number(f64);

impl Display for Number {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // Adding 0 makes a plain 0 of −0.
        write!(f, "{}", (self.0 * 100.0).round() / 100.0 + 0.0)
    }
}

/// Text as XML holds it.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            other => f.write_char(other),
        })
    }
}
