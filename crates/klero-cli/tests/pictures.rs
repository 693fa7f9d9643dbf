//! `klero explain --svg` and `--png` on tensors.
//!
//! The pictures expected lie in `tests/pictures`, to be looked at. After a change of how they look,
//! `KLERO_UPDATE_PICTURES=1 cargo test --test pictures` writes them anew.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use support::{Folder, Ran, Tensor, klero, safetensors};

/// Logits whose softmax is (0.5, 0.3, 0.15, 0.05) and one id that can never be drawn; and a longer row.
fn tensors(folder: &Folder) -> String {
    let row = [0.3f32, 0.05, 0.0, 0.5, 0.15].map(f32::ln);
    let long: Vec<f32> = (0..40u32).map(|id| (id * 17 % 41) as f32 / 10.0).collect();
    folder.write("t.safetensors", &safetensors(&[Tensor::f32("row-17", &[5], &row), Tensor::f32("long", &[40], &long)]))
}

/// Where a picture goes, and what the command says.
fn explain(folder: &Folder, picture: &str, name: &str, args: &[&str]) -> (PathBuf, Ran) {
    let file = tensors(folder);
    let to = Path::new(&file).with_file_name(name);
    let fixed = ["explain", "--tensors", &file, "--seed", "42", "--position", "7", picture, to.to_str().unwrap()];
    let ran = klero(&[&fixed[..], args].concat());
    (to, ran)
}

#[test]
fn pictures_are_as_expected() {
    for (name, args) in [
        ("race", &["--logits", "row-17", "--top-p", "0.9", "--top-k", "2"][..]),
        ("line", &["--logits", "row-17", "--draw", "inverse_cdf", "--min-p", "0.2"]),
        (
            "min-p-first",
            &[
                "--logits",
                "long",
                "--min-p",
                "0.3",
                "--top-k",
                "9",
                "--top-p",
                "0.7",
                "--filter-order",
                "min_p_first",
                "--shown",
                "16",
            ],
        ),
        ("greedy", &["--logits", "row-17", "--temperature", "0", "--logit-bias", "1=2.5", "--ban", "2"]),
        ("far", &["--logits", "long", "--temperature", "50", "--shown", "4"]),
    ] {
        let folder = Folder::new(&format!("picture-{name}"));
        let (file, ran) = explain(&folder, "--svg", "draw.svg", args);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        assert!(ran.stdout.contains("\nDrawn: token "), "the page is printed too: {}", ran.stdout);
        let svg = fs::read_to_string(file).unwrap();
        let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pictures").join(format!("{name}.svg"));
        if std::env::var_os("KLERO_UPDATE_PICTURES").is_some() {
            fs::write(&expected, &svg).unwrap();
        }
        assert!(svg == fs::read_to_string(&expected).unwrap(), "not as {}:\n{svg}", expected.display());
    }
}

#[test]
fn the_standard_output_takes_a_picture_in_place_of_the_page() {
    let folder = Folder::new("picture-stdout");
    let file = tensors(&folder);
    let args = ["explain", "--tensors", &file, "--logits", "row-17", "--seed", "42", "--svg"];
    let ran = klero(&[&args[..], &["-"]].concat());
    let document = roxmltree::Document::parse(&ran.stdout).unwrap();
    assert_eq!((ran.code, document.root_element().tag_name().name()), (Some(0), "svg"));
    let both = klero(&[&args[..], &["-", "--png", "-"]].concat());
    assert_eq!((both.code, both.stdout.as_str()), (Some(2), ""));
    assert!(both.stderr.contains("--svg and --png are both -"), "{both:?}");
}

#[test]
fn a_file_is_replaced_as_a_whole_and_nothing_else_is_left_behind() {
    let folder = Folder::new("picture-replaced");
    let old = folder.write("draw.svg", b"an older and by far longer picture".repeat(4000).as_slice());
    let (file, ran) = explain(&folder, "--svg", "draw.svg", &["--logits", "row-17"]);
    assert_eq!((ran.code, Path::new(&old)), (Some(0), file.as_path()));
    assert!(roxmltree::Document::parse(&fs::read_to_string(&file).unwrap()).is_ok());
    let mut names: Vec<_> =
        fs::read_dir(file.parent().unwrap()).unwrap().map(|file| file.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["draw.svg", "t.safetensors"]);
}

#[cfg(unix)]
#[test]
fn a_link_stays_a_link_and_a_device_a_device() {
    let folder = Folder::new("picture-link");
    let real = folder.write("real.svg", b"");
    let link = Path::new(&real).with_file_name("draw.svg");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let (_, ran) = explain(&folder, "--svg", "draw.svg", &["--logits", "row-17"]);
    assert_eq!(ran.code, Some(0));
    assert!(link.is_symlink() && fs::read_to_string(&real).unwrap().ends_with("</svg>\n"));
    let null = klero(&["explain", "--tensors", &tensors(&folder), "--logits", "row-17", "--svg", "/dev/null"]);
    assert_eq!((null.code, null.stderr.as_str()), (Some(0), ""));
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let folder = Folder::new("picture-refused");
    for name in ["missing/draw.svg", ".", "t.safetensors/draw.svg"] {
        let (file, ran) = explain(&folder, "--svg", name, &["--logits", "row-17"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{name}");
        assert!(ran.stderr.starts_with(&format!("error: cannot write {}: ", file.display())), "{}", ran.stderr);
    }
}

#[cfg(feature = "png")]
mod png {
    use super::*;
    use resvg::tiny_skia::Pixmap;

    #[test]
    fn a_png_is_the_svg_at_twice_its_size_and_the_same_every_time() {
        let bytes = |name: &str| {
            let folder = Folder::new(name);
            let (file, ran) = explain(&folder, "--png", "draw.png", &["--logits", "row-17", "--top-k", "2"]);
            assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
            assert!(ran.stdout.contains("\nDrawn: token "));
            fs::read(file).unwrap()
        };
        let first = bytes("png-first");
        assert!(first == bytes("png-second"));

        let folder = Folder::new("png-svg");
        let (file, _) = explain(&folder, "--svg", "draw.svg", &["--logits", "row-17", "--top-k", "2"]);
        let svg = fs::read_to_string(file).unwrap();
        let root = roxmltree::Document::parse(&svg).unwrap();
        let size = |name| 2 * root.root_element().attribute(name).unwrap().parse::<u32>().unwrap();
        let pixels = Pixmap::decode_png(&first).unwrap();
        assert_eq!((pixels.width(), pixels.height()), (size("width"), size("height")));
        // Letters have soft edges, so text shows as many greys; and the marks have their colours.
        let colours: std::collections::HashSet<_> =
            pixels.pixels().iter().map(|pixel| (pixel.red(), pixel.blue())).collect();
        assert!(
            colours.len() > 100 && colours.contains(&(0xc2, 0x00)) && colours.contains(&(0xe6, 0x00)),
            "{}",
            colours.len()
        );
    }
}

#[cfg(not(feature = "png"))]
#[test]
fn without_the_feature_a_png_is_refused() {
    let folder = Folder::new("png-refused");
    let (file, ran) = explain(&folder, "--png", "draw.png", &["--logits", "row-17"]);
    assert_eq!((ran.code, ran.stdout.as_str(), file.exists()), (Some(2), "", false));
    assert!(ran.stderr.contains("build klero-cli with the feature `png`"), "{}", ran.stderr);
}
