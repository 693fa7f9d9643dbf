//! A scene in pixels, the same on every machine: no font but those carried is looked at.

use super::scene::{Family, Scene};
use super::svg;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};
use skrifa::{FontRef, MetadataProvider};
use std::sync::Arc;

/// Pixels for each unit of the scene.
const SCALE: f32 = 2.0;
/// The most rows of pixels: what viewers show, in a quarter of a gigabyte.
const TALLEST: f64 = 32_768.0;

/// The fonts carried: one for prose, of few characters, and one for tokens.
const SANS: [&[u8]; 2] =
    [include_bytes!("../../../assets/Inter-Regular.otf"), include_bytes!("../../../assets/Inter-SemiBold.otf")];
const MONO: [&[u8]; 2] = [
    include_bytes!("../../../assets/JetBrainsMono-Regular.ttf"),
    include_bytes!("../../../assets/JetBrainsMono-Bold.ttf"),
];

/// Whether a family has a character. Its weights have the same ones.
pub fn has(family: Family, character: char) -> bool {
    let [font, _] = match family {
        Family::Sans => SANS,
        Family::Mono => MONO,
    };
    FontRef::new(font).is_ok_and(|font| font.charmap().map(character).is_some())
}

/// The bytes of a PNG file.
///
/// # Errors
/// A text, for a scene that is too tall.
pub fn rasterise(scene: &Scene) -> Result<Vec<u8>, String> {
    let tall = (scene.height * f64::from(SCALE)).ceil();
    if tall > TALLEST {
        return Err(format!(
            "it would be {tall} pixels tall, must be at most {TALLEST}: use a smaller --shown, or --svg"
        ));
    }
    let mut fonts = fontdb::Database::new();
    for font in SANS.into_iter().chain(MONO) {
        fonts.load_font_source(fontdb::Source::Binary(Arc::new(font)));
    }
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    let tree = Tree::from_str(&svg::write(scene), &options).map_err(|error| error.to_string())?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or("it has no size")?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or("it has no pixels")?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| error.to_string())
}
