//! A scene in pixels, the same on every machine: no font but those carried is looked at.

use super::scene::Scene;
use super::svg;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};
use skrifa::{FontRef, MetadataProvider, charmap::Charmap};
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

pub struct Fonts {
    characters: Charmap<'static>,
    database: fontdb::Database,
}

impl Fonts {
    pub fn new() -> Self {
        let mut database = fontdb::Database::new();
        for font in SANS.into_iter().chain(MONO) {
            database.load_font_source(fontdb::Source::Binary(Arc::new(font)));
        }
        Self { characters: FontRef::new(MONO[0]).expect("a font").charmap(), database }
    }

    /// Whether tokens can be written with a character.
    pub fn have(&self, character: char) -> bool {
        self.characters.map(character).is_some()
    }
}

/// The bytes of a PNG file.
///
/// # Errors
/// A text, for a scene that is too tall.
pub fn rasterise(scene: &Scene, fonts: Fonts) -> Result<Vec<u8>, String> {
    let tall = (scene.height * f64::from(SCALE)).ceil();
    if tall > TALLEST {
        return Err(format!(
            "it would be {tall} pixels tall, must be at most {TALLEST}: use a smaller --shown, or --svg"
        ));
    }
    let options = Options { fontdb: Arc::new(fonts.database), ..Options::default() };
    let tree = Tree::from_str(&svg::write(scene), &options).map_err(|error| error.to_string())?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or("it has no size")?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or("it has no pixels")?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| error.to_string())
}
