//! The edges of the temperature, and numbers that are none.

use crate::common::Kind;
use crate::{DRAWS, assert_fits, batch, row, seeded, solo, tokens_of};
use half::f16;
use klero::{Edits, LogitBias, Logits, Row, SamplingParams};

type Field = fn(&mut SamplingParams) -> &mut f64;

/// Case 33: every float field, given as a number and as text.
#[test]
fn no_field_takes_what_is_not_a_number_in_its_range() {
    let fields: [(&str, bool, Field); 6] = [
        ("temperature", false, |params| &mut params.temperature),
        ("top_p", false, |params| &mut params.top_p),
        ("min_p", false, |params| &mut params.min_p),
        ("repetition_penalty", false, |params| &mut params.repetition_penalty),
        ("frequency_penalty", true, |params| &mut params.frequency_penalty),
        ("presence_penalty", true, |params| &mut params.presence_penalty),
    ];
    for (name, may_be_negative, field) in fields {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
            let mut params = SamplingParams::default();
            *field(&mut params) = value;
            match params.check() {
                Ok(_) => assert!(may_be_negative && value == -1.0, "{name} took {value}"),
                Err(error) => assert_eq!((error.field, error.value), (name, value.to_string())),
            }
        }
        for text in ["\"NaN\"", "\"1\"", "NaN", "Infinity", "-Infinity", "1e999", "null", "[1]", "true"] {
            let read = serde_json::from_str::<SamplingParams>(&format!(r#"{{"{name}": {text}}}"#));
            assert!(read.is_err(), "{name} took {text}");
        }
    }
}

/// Case 34: a temperature below everything, also where a bias of −100 stands for a ban of f16 logits.
#[test]
fn the_coldest_temperatures_overflow_nowhere() {
    let mut logits: Vec<f16> = Kind::Flat.logits(1, 200, 100.0).into_iter().map(f16::from_f32).collect();
    (logits[7], logits[90], logits[91]) = (f16::from_f32(-100.0), f16::from_f32(100.0), f16::from_f32(99.0));
    let bias = LogitBias::new([(90, -100.0)]).unwrap();
    let edits = Edits { bias: Some(&bias), ..Default::default() };
    let subnormal = f64::from(f32::from_bits(1));
    for draw in DRAWS {
        for temperature in [2.9e-4, 1e-5, 1e-12, 1e-38, subnormal, f64::MIN_POSITIVE, 5e-324] {
            let params = SamplingParams { temperature, draw, top_logprobs: 5, ..seeded(2) };
            let plain = row(&params, 0);
            let logits = Logits::new(&logits, 1, 200).unwrap();
            for (row, token) in [(plain, 90), (plain.with_edits(edits), 91)] {
                let found = logits.draw(&[row]).unwrap().remove(0).unwrap();
                assert_eq!((found.token, found.logprob), (token, 0.0), "T = {temperature:e}");
                assert!(found.top.iter().all(|listed| listed.logprob.is_finite()));
            }
        }
    }
}

/// Case 36: temperature comes first, so heat is felt by every filter behind it.
#[test]
fn a_million_degrees_are_uniform_and_top_k_1_is_still_the_argmax() {
    let mut logits = Kind::Flat.logits(3, 100, 20.0);
    logits[42] = 11.0;
    for draw in DRAWS {
        let hot = SamplingParams { temperature: 1e6, draw, ..seeded(4) };
        let rows: Vec<Row> = (0..20_000).map(|t| row(&hot, t)).collect();
        let mut counts = [0; 100];
        for token in tokens_of(&batch(&logits.repeat(rows.len()), rows.len()), &rows) {
            counts[token as usize] += 1;
        }
        assert_fits(&counts, &[1.0; 100], &format!("{draw:?}"));
        let found = solo(&logits, SamplingParams { top_k: 1, ..hot });
        assert_eq!((found.token, found.kept, found.logprob), (42, 1, 0.0));
    }
}
