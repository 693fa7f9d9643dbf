//! Pictures of tokens and numbers that are hard to lay out.

use super::layout::Layout;
use super::scene::{Anchor, Scene, Shape, Text};
use super::svg;
use crate::explain::page::Page;
use klero::{Draw, FilterOrder, Logits, Row, SamplingParams};
use unicode_width::UnicodeWidthStr;

/// Texts as tokenizers have them, and worse.
const TEXTS: [&[u8]; 16] = [
    b" Paris",
    b"",
    b"\0",
    b"\x1b[31m\r\n\t\x7f",
    b"\xf0\x9f",
    b"<b>&amp;</b>\"']]>",
    "日本の首都は東京です、とても大きい".as_bytes(),
    "שלום".as_bytes(),
    "\u{202e}مرحبا\u{2066}".as_bytes(),
    "👩‍💻🇫🇷🎉".as_bytes(),
    "e\u{301}\u{301}\u{301}".as_bytes(),
    "\u{fdfd}\u{fdfd}".as_bytes(),
    b"                                ",
    b"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8",
    "\u{ffff}\u{feff}\u{e000}\u{10ffff}".as_bytes(),
    b"incomprehensibilities_and_more()",
];

/// Does something with the page of a draw from `values`, whose tokens have texts if `named`.
fn with_page<R>(values: &[f32], params: &SamplingParams, named: bool, shown: usize, work: impl Fn(&Page) -> R) -> R {
    let row = Row::new(params.check().unwrap(), 7);
    let explanation = Logits::new(values, 1, values.len()).unwrap().explain(0, &row, shown).unwrap().unwrap();
    let text = |token: u32| named.then(|| TEXTS[token as usize % TEXTS.len()]);
    let source =
        "a \u{1b}[1m<file> & \u{202e}\"東京\", after a name that is much too long to be a title of anything at all";
    work(&Page { source, params, edits: None, explanation: &explanation, text: &text })
}

/// The scenes of all kinds of draws from all kinds of logits.
fn for_each_page(work: impl Fn(&Page)) {
    let flat: Vec<f32> = (0..300).map(|i| (i * 7919 % 301) as f32 / 300.0).collect();
    let steep: Vec<f32> = (0..16).map(|i| -(i as f32)).collect();
    let rows = [&flat[..], &steep, &[3e38, -3e38, 1e38], &[-1e-30, 1e-30, f32::NEG_INFINITY], &[5.0]];
    for (i, values) in rows.into_iter().enumerate() {
        for (top_p, top_k, min_p, temperature) in
            [(1.0, -1, 0.0, 1.0), (0.123_456_789, 1, 0.987_654_321, 0.7), (0.9, 3, 0.01, 1e-3), (1.0, -1, 0.0, 0.0)]
        {
            for (draw, filter_order, named) in [
                (Draw::Gumbel, FilterOrder::TopPFirst, true),
                (Draw::Gumbel, FilterOrder::MinPFirst, false),
                (Draw::InverseCdf, FilterOrder::MinPFirst, true),
                (Draw::InverseCdf, FilterOrder::TopPFirst, false),
            ] {
                if i == 2 && temperature < 1.0 {
                    continue;
                }
                let params = SamplingParams {
                    temperature,
                    top_p,
                    top_k,
                    min_p,
                    draw,
                    filter_order,
                    ..SamplingParams::default()
                };
                for seed in 0..3 {
                    with_page(values, &SamplingParams { seed: Some(seed), ..params.clone() }, named, 16, &work);
                }
            }
        }
    }
}

fn texts(scene: &Scene) -> Vec<&Text> {
    let mut texts = vec![];
    for shape in &scene.shapes {
        if let Shape::Text(text) = shape {
            texts.push(text);
        }
    }
    texts
}

/// From where to where a text reaches, as far as that is known without a font.
fn reach(text: &Text) -> (f64, f64) {
    let width = text.text.width() as f64 * text.font.advance();
    let left = text.x
        - match text.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => width / 2.0,
            Anchor::End => width,
        };
    (left, text.until.unwrap_or(f64::INFINITY).min(left + width))
}

#[test]
fn no_text_covers_another_or_leaves_the_picture() {
    for_each_page(|page| {
        let scene = Layout::new(page, &|_| true).draw();
        let texts = texts(&scene);
        for (i, text) in texts.iter().enumerate() {
            let (left, right) = reach(text);
            assert!(left >= 16.0 && right <= scene.width - 16.0, "{text:?}");
            assert!(text.y - text.font.size >= 16.0 && text.y <= scene.height - 16.0, "{text:?}");
            for other in &texts[..i] {
                let apart = (text.y - other.y).abs() >= text.font.size.min(other.font.size);
                let (from, to) = reach(other);
                assert!(apart || right <= from || to <= left, "{text:?} {other:?}");
            }
        }
    });
}

#[test]
fn every_shape_lies_in_the_picture() {
    for_each_page(|page| {
        let scene = Layout::new(page, &|_| true).draw();
        let inside = |x: f64, y: f64| (0.0..=scene.width).contains(&x) && (0.0..=scene.height).contains(&y);
        for shape in &scene.shapes {
            assert!(
                match shape {
                    Shape::Rect(rect) => inside(rect.x, rect.y) && inside(rect.x + rect.width, rect.y + rect.height),
                    Shape::Line(line) => inside(line.from.0, line.from.1) && inside(line.to.0, line.to.1),
                    Shape::Triangle(points, _) => points.iter().all(|(x, y)| inside(*x, *y)),
                    Shape::Text(text) => inside(text.x, text.y),
                },
                "{shape:?}"
            );
        }
    });
}

#[test]
fn any_text_makes_sound_xml_and_comes_back_out_of_it() {
    for_each_page(|page| {
        let scene = Layout::new(page, &|_| true).draw();
        let written = svg::write(&scene);
        let document = roxmltree::Document::parse(&written).unwrap_or_else(|error| panic!("{error}: {written}"));
        let read: Vec<&str> =
            document.descendants().filter(|node| node.has_tag_name("text")).filter_map(|node| node.text()).collect();
        assert_eq!(read, texts(&scene).iter().map(|text| text.text.as_str()).collect::<Vec<_>>());
    });
}

#[test]
fn tokens_are_shown_as_they_are_or_by_their_numbers() {
    let values: Vec<f32> = (0..16).map(|i| -(i as f32) / 100.0).collect();
    let params = SamplingParams { seed: Some(1), ..SamplingParams::default() };
    let tokens = |shows: fn(char) -> bool| {
        with_page(&values, &params, true, 16, |page| {
            let scene = Layout::new(page, &shows).draw();
            let token = |text: &&Text| text.until.is_some() && text.x == 98.0;
            texts(&scene).into_iter().filter(token).map(|text| text.text.clone()).collect::<Vec<_>>()
        })
    };
    assert_eq!(
        tokens(|_| true),
        [
            "\" Paris\"",
            "\"\"",
            "\"\\0\"",
            "\"\\u{1b}[31m…u{7f}\"",
            "\"\\xf0\\x9f\"",
            "\"<b>&amp;</…\"']]>\"",
            "\"日本の首都…きい\"",
            "\"שלום\"",
            "\"\\u{202e}مر…2066}\"",
            "\"👩\\u{200d}💻🇫🇷🎉\"",
            "\"e\\u{301}\\u…{301}\"",
            "\"﷽﷽\"",
            "\"          …     \"",
            "\"\\xff\\xfe\\x…9\\xf8\"",
            "\"\\u{ffff}\\u…ffff}\"",
            "\"incomprehe…ore()\"",
        ]
    );
    let ascii = tokens(|character| character.is_ascii());
    assert!(ascii.iter().all(|text| text.chars().all(|c| c.is_ascii() || c == '…')), "{ascii:?}");
}

#[cfg(feature = "png")]
#[test]
fn the_fonts_carried_have_every_character_of_a_png() {
    use super::png::has;
    use super::scene::Family;
    for_each_page(|page| {
        let scene = Layout::new(page, &|character| has(Family::Mono, character)).draw();
        for text in texts(&scene) {
            assert!(text.text.chars().all(|character| has(text.font.family, character)), "{text:?}");
        }
    });
}

#[cfg(feature = "png")]
#[test]
fn a_picture_that_is_too_tall_for_pixels_is_refused() {
    let values: Vec<f32> = (0..600).map(|i| i as f32 / 600.0).collect();
    let params = SamplingParams { seed: Some(1), ..SamplingParams::default() };
    let refused = with_page(&values, &params, true, 600, super::png).unwrap_err();
    assert!(refused.contains("pixels tall, must be at most 32768") && refused.contains("--shown"), "{refused}");
    assert!(with_page(&values, &params, true, 500, super::svg).ends_with("</svg>\n"));
}
