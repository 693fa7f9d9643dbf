//! The default model's tokenizer beyond the golden ids.

mod support;

use klero_models::Tokenizer;
use support::model;

fn tokenizer() -> &'static Tokenizer {
    model().tokenizer()
}

fn id(text: &str) -> u32 {
    let ids = tokenizer().encode(text, true).unwrap();
    assert_eq!(ids.len(), 1, "{text} is one token");
    ids[0]
}

#[test]
fn control_tokens_are_parsed_only_on_demand() {
    let text = "<|im_start|>user\nHi<|im_end|>\n";
    let parsed = tokenizer().encode(text, true).unwrap();
    assert_eq!((parsed[0], parsed[parsed.len() - 2]), (1, 2));
    assert_eq!(tokenizer().decode(&parsed, true), text);
    assert_eq!(tokenizer().decode(&parsed, false), "user\nHi\n");
    let literal = tokenizer().encode(text, false).unwrap();
    assert!(literal.iter().all(|token| *token > 2));
    assert_eq!(tokenizer().decode(&literal, false), text);
}

#[test]
fn ends_and_template_come_from_the_file() {
    assert_eq!(tokenizer().ends(), [id("<|endoftext|>"), id("<|im_end|>")]);
    assert_eq!((tokenizer().bos(), tokenizer().adds_bos()), (Some(id("<|im_start|>")), false));
    assert!(tokenizer().chat_template().unwrap().contains("add_generation_prompt"));
    assert_eq!(tokenizer().vocabulary(), model().config().vocabulary);
}

#[test]
fn digits_stand_alone_and_spaces_stay() {
    let pieces = |text: &str| -> Vec<String> {
        let tokens = tokenizer().encode(text, false).unwrap();
        tokens.iter().map(|token| tokenizer().decode(&[*token], false)).collect()
    };
    assert_eq!(pieces("in 2048"), ["in", " ", "2", "0", "4", "8"]);
    assert_eq!(pieces("don't"), ["don", "'t"]);
    assert_eq!(pieces(""), [""; 0]);
}

#[test]
fn any_text_comes_back() {
    for text in [
        "  two  spaces ",
        "naïve café — “quotes”",
        "漢字かな交じり文",
        "👩‍👩‍👧 🏳️‍🌈",
        "\r\n\ttab\u{a0}",
        "a\u{301}",
        "٣٤ Ⅷ ½",
    ] {
        let tokens = tokenizer().encode(text, false).unwrap();
        assert_eq!(tokenizer().decode(&tokens, false), text);
        let mut stream = tokenizer().stream(false);
        let mut streamed = String::new();
        for token in tokens {
            let piece = stream.push(token);
            assert!(!piece.contains('\u{FFFD}'), "half a character of {text}");
            streamed.push_str(&piece);
        }
        assert_eq!(streamed + &stream.finish(), text);
    }
}

#[test]
fn a_text_cut_inside_a_character_ends_with_one_replacement() {
    let tokens = tokenizer().encode("ok 👩", false).unwrap();
    let cut = &tokens[..tokens.len() - 1];
    let mut stream = tokenizer().stream(false);
    let text: String = cut.iter().map(|token| stream.push(*token)).collect();
    assert!(text.starts_with("ok") && !text.contains('\u{FFFD}'));
    assert_eq!(stream.finish(), "\u{FFFD}");
    assert_eq!(stream.finish(), "", "the stream is empty after its end");
    assert!(tokenizer().decode(cut, false).ends_with('\u{FFFD}'));
}

#[test]
fn unknown_ids_give_no_text() {
    assert_eq!(tokenizer().decode(&[u32::MAX, 49_152], true), "");
}

#[test]
fn a_tokenizer_comes_without_the_weights() {
    let alone = Tokenizer::load(&klero_models::default_model().unwrap()).unwrap();
    let text = "<|im_start|>user\nnaïve 漢字 2048<|im_end|>\n";
    for control in [false, true] {
        assert_eq!(alone.encode(text, control).unwrap(), tokenizer().encode(text, control).unwrap());
    }
    assert_eq!((alone.ends(), alone.vocabulary()), (tokenizer().ends(), tokenizer().vocabulary()));
    let ids = alone.encode(text, true).unwrap();
    let control: Vec<u32> = ids.into_iter().filter(|id| alone.is_control(*id)).collect();
    assert_eq!(control, [id("<|im_start|>"), id("<|im_end|>")]);
    assert!(!alone.is_control(u32::MAX) && !alone.is_control(alone.vocabulary() as u32));
}
