//! What a row without a token says, and that it says it to nobody else: NaN, infinities, overflow, emptiness, wrong
//! arguments, in every width and beside good rows, from ready logits and through the fused head.

mod common;

use common::types::Type;
use common::{Case, DraftCase, Kind, NEG, Rng, bits, draw_here, log_softmax, naive};
use half::{bf16, f16};
use klero::{
    BlockQ8_0, Draft, Draw, Error, FusedHead, Logits, MAX_VOCABULARY, Outcome, Row, RowError, SamplingParams, Weights,
};

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

/// Widths at the edges of sixteens and blocks, and of vocabularies as they are.
const WIDTHS: [usize; 10] = [1, 2, 3, 63, 64, 65, 1000, 4096, 40_001, 262_145];

fn params(temperature: f64) -> SamplingParams {
    SamplingParams { temperature, seed: Some(11), ..Default::default() }
}

fn solo(logits: &[f32], temperature: f64) -> Result<Outcome, RowError> {
    Case::new(logits.to_vec(), params(temperature)).solo()
}

/// The status in one word with the id to blame.
fn verdict(result: &Result<Outcome, RowError>) -> (&'static str, Option<usize>) {
    match result {
        Ok(_) => ("ok", None),
        Err(error) => match error {
            RowError::Nan { id, .. } | RowError::Infinite { id, .. } => (error.status(), Some(*id)),
            _ => (error.status(), None),
        },
    }
}

#[test]
fn short_rows_by_table() {
    type Verdict = (&'static str, Option<usize>);
    let (nan, infinite, empty, ok) =
        (|id| ("nan", Some(id)), |id| ("infinite", Some(id)), ("empty", None), ("ok", None));
    let table: &[(&[f32], f64, Verdict)] = &[
        (&[], 1.0, empty),
        (&[NEG], 1.0, empty),
        (&[NEG, NEG, NEG], 0.0, empty),
        (&[NAN], 1.0, nan(0)),
        (&[-NAN, 1.0], 1.0, nan(0)),
        (&[INF], 1.0, infinite(0)),
        (&[NEG, INF], 1.0, infinite(1)),
        (&[NEG, NAN], 1.0, nan(1)),
        (&[0.0, INF, NAN, NAN], 1.0, nan(2)),
        (&[INF, INF, NEG], 1.0, infinite(0)),
        // 1/T makes a finite logit infinite, in either direction.
        (&[1.0, 3e38], 0.5, infinite(1)),
        (&[1.0, -3e38], 0.5, infinite(1)),
        (&[-3e38, INF], 0.5, infinite(0)),
        (&[-3e38, NAN], 0.5, nan(1)),
        (&[3e38, NEG], 1e-5, infinite(0)),
        (&[4e33, 0.0], 0.0, infinite(0)),
        (&[-4e33, 0.0], 0.0, infinite(0)),
        (&[3e33, 0.0], 0.0, ok),
        (&[-3e33, 0.0], 1e-300, ok),
        // At their limits numbers are still numbers.
        (&[f32::MAX, f32::MIN], 1.0, ok),
        (&[f32::MIN], 1.0, ok),
        (&[f32::MIN, NEG], 1.0, ok),
        (&[f32::MIN_POSITIVE, f32::from_bits(1), -f32::from_bits(1), -0.0], 1.0, ok),
        (&[f32::MAX, f32::MIN, 0.0], f64::from(f32::MAX), ok),
        (&[f32::from_bits(1), 0.0], f64::from(f32::MAX), ok),
        (&[f32::from_bits(1), 0.0], 0.0, ok),
    ];
    for draw in [Draw::Gumbel, Draw::InverseCdf] {
        for raw_logprobs in [false, true] {
            for (logits, temperature, expected) in table {
                let params = SamplingParams { draw, raw_logprobs, top_logprobs: 2, ..params(*temperature) };
                let found = Case::new(logits.to_vec(), params).solo();
                assert_eq!(verdict(&found), *expected, "{logits:?} at T = {temperature}");
            }
        }
    }
}

#[test]
fn the_lowest_id_is_blamed_in_every_width_and_tile() {
    for width in WIDTHS {
        let places = [0, width / 3, width / 2, width - 1];
        for (value, word, temperature) in
            [(NAN, "nan", 1.0), (INF, "infinite", 1.0), (-3e38, "infinite", 0.5), (3e38, "infinite", 0.5)]
        {
            let mut logits = vec![0.25; width];
            // From the last to the first, so that each time a lower id is to blame than before.
            for place in places.into_iter().rev() {
                logits[place] = value;
                for tile in [64, 1000, usize::MAX] {
                    let drawn = Logits::new(&logits, 1, width).unwrap().with_tile(tile);
                    let found = drawn.draw(&[Row::new(params(temperature).check().unwrap(), 0)]).unwrap();
                    assert_eq!(verdict(&found[0]), (word, Some(place)), "V = {width}, tile {tile}");
                }
            }
        }
    }
}

#[test]
fn nan_comes_before_infinite_wherever_they_stand() {
    for width in [2, 64, 65, 1000, 40_001] {
        for (nan, infinite) in [(0, width - 1), (width - 1, 0), (width - 1, width - 2)] {
            let mut logits = vec![NEG; width];
            (logits[infinite], logits[nan]) = (INF, NAN);
            assert_eq!(verdict(&solo(&logits, 1.0)), ("nan", Some(nan)), "V = {width}");
        }
    }
}

#[test]
fn a_row_of_all_minus_infinity_but_one_gives_that_one() {
    for width in WIDTHS {
        assert_eq!(verdict(&solo(&vec![NEG; width], 1.0)).0, "empty");
        for place in [0, width / 2, width - 1] {
            let mut logits = vec![NEG; width];
            logits[place] = -1e30;
            for draw in [Draw::Gumbel, Draw::InverseCdf] {
                for top_k in [-1, 1, 50] {
                    let params = SamplingParams { draw, top_k, top_p: 0.9, top_logprobs: 5, ..params(1.0) };
                    let found = Case::new(logits.clone(), params).solo().unwrap();
                    assert_eq!((found.token as usize, found.kept, found.top.len()), (place, 1, 1));
                    assert_eq!((found.logprob, found.log_normalizer), (0.0, f64::from(-1e30f32)));
                }
            }
        }
    }
}

#[test]
fn padding_may_hold_anything() {
    for valid in [1usize, 2, 63, 64, 65, 1000] {
        let own = Kind::Real.logits(valid as u64, valid, 5.0);
        let expected = bits(&Case::new(own.clone(), params(0.7)).solo());
        for padding in [NAN, INF, f32::MAX, NEG, 1e30] {
            for extra in [1, 63, 64, 1000] {
                let logits = [own.clone(), vec![padding; extra]].concat();
                let row = Row::new(params(0.7).check().unwrap(), 0).with_vocabulary(valid);
                let found = Logits::new(&logits, 1, valid + extra).unwrap().draw(&[row]).unwrap();
                assert_eq!(bits(&found[0]), expected, "{valid} valid ids, {extra} of {padding}");
            }
        }
    }
}

#[test]
fn a_vocabulary_of_none_is_empty_and_one_too_wide_is_refused() {
    let logits = [1.0, 2.0, 3.0];
    let draw = |vocabulary| {
        let row = Row::new(params(1.0).check().unwrap(), 0).with_vocabulary(vocabulary);
        Logits::new(&logits, 1, 3).unwrap().draw(&[row]).unwrap().remove(0)
    };
    assert_eq!(verdict(&draw(0)).0, "empty");
    assert!(draw(3).is_ok());
    let error = draw(4).unwrap_err();
    assert_eq!(error, RowError::Vocabulary { row: 0, valid: 4, width: 3 });
    assert!(error.to_string().contains('4') && error.to_string().contains('3'), "{error}");
    assert!(draw(usize::MAX).is_err());
}

#[test]
fn no_rows_and_no_ids_are_no_fault_of_the_call() {
    assert!(Logits::<f32>::new(&[], 0, 0).unwrap().draw(&[]).unwrap().is_empty());
    assert!(Logits::<f32>::new(&[], 0, 100).unwrap().draw(&[]).unwrap().is_empty());
    assert!(Logits::<f32>::with_stride(&[], 0, 7, usize::MAX).unwrap().draw(&[]).unwrap().is_empty());
    let row = Row::new(params(1.0).check().unwrap(), 0);
    let none = Logits::<f32>::new(&[], 3, 0).unwrap().draw(&[row; 3]).unwrap();
    assert_eq!(none.iter().map(verdict).map(|(word, _)| word).collect::<Vec<_>>(), ["empty"; 3]);
    assert_eq!(none[2], Err(RowError::Empty { row: 2, input: klero::Input::Logit }));

    let weights = Weights::f32(0, 4, vec![]).unwrap();
    let head = FusedHead::new(&weights).unwrap();
    assert!(head.draw(&[], &[]).unwrap().is_empty());
    assert_eq!(verdict(&head.draw(&[0.0; 4], &[row]).unwrap()[0]).0, "empty");
    assert!(head.logits(&[0.0; 8]).unwrap().is_empty());
}

/// The text of an error of shape.
fn shape<T>(result: Result<T, Error>) -> String {
    match result {
        Err(error @ Error::Shape(_)) => error.to_string(),
        Err(other) => panic!("{other} is no error of shape"),
        Ok(_) => panic!("a wrong shape was taken"),
    }
}

#[test]
fn wrong_shapes_name_the_value_and_the_rule() {
    let data = [0.0; 20];
    let row = Row::new(params(1.0).check().unwrap(), 0);
    let has = |text: String, parts: &[&str]| {
        for part in parts {
            assert!(text.contains(part), "{text:?} does not say {part}");
        }
    };
    has(shape(Logits::new(&data, 3, 7)), &["3", "7", "20"]);
    has(shape(Logits::with_stride(&data, 2, 10, 9)), &["stride", "9", "10"]);
    has(shape(Logits::with_stride(&data, 2, 10, 11)), &["11", "20"]);
    has(shape(Logits::with_stride(&data, usize::MAX, 10, usize::MAX)), &["20"]);
    assert!(Logits::with_stride(&data, 2, 9, 11).is_ok(), "the last row needs no padding behind it");
    has(shape(Logits::new(&data, 2, 10).unwrap().draw(&[row])), &["1", "2"]);
    has(shape(Logits::new(&data, 2, 10).unwrap().draw(&[row; 3])), &["3", "2"]);

    let weights = Weights::f32(5, 4, vec![0.5; 20]).unwrap();
    let head = FusedHead::new(&weights).unwrap();
    has(shape(head.draw(&[0.0; 7], &[row; 2])), &["7", "4"]);
    has(shape(head.draw(&[0.0; 4], &[])), &["4"]);
    has(shape(head.logits(&[0.0; 7])), &["7", "4"]);
    has(shape(Weights::f32(5, 0, vec![])), &["cols", "0"]);
    has(shape(Weights::bf16(5, 4, vec![bf16::ZERO; 19])), &["5", "4", "19"]);
    has(shape(Weights::f16(5, 4, vec![f16::ZERO; 19])), &["5", "4", "19"]);
    for kind in Type::QUANTIZED {
        let (unit, size) = kind.block();
        has(shape(kind.weights(5, unit / 2, &[])), &[&(unit / 2).to_string(), &unit.to_string()]);
        has(shape(kind.weights(5, 0, &[])), &["cols is 0", &unit.to_string()]);
        has(shape(kind.weights(2, unit, &vec![0; size])), &["2", &unit.to_string(), "found 1"]);
        has(shape(kind.weights(1, unit, &vec![0; size + 1])), &["bytes", &(size + 1).to_string(), &size.to_string()]);
    }
}

#[test]
fn a_vocabulary_is_at_most_two_to_the_twentieth() {
    let logits = vec![0.5; MAX_VOCABULARY + 1];
    let error = Logits::new(&logits, 1, MAX_VOCABULARY + 1).unwrap_err();
    assert_eq!(error, Error::Vocabulary(MAX_VOCABULARY + 1));
    assert!(error.to_string().contains("1048577") && error.to_string().contains("1048576"), "{error}");
    let weights = Weights::f32(MAX_VOCABULARY + 1, 1, &logits[..]).unwrap();
    assert_eq!(FusedHead::new(&weights).unwrap_err(), Error::Vocabulary(MAX_VOCABULARY + 1));
}

/// The widest row at equal logits is the greatest total there is, 2^63.
#[test]
fn the_widest_row_is_drawn_to_the_bit() {
    let mut logits = vec![0.5; MAX_VOCABULARY];
    for draw in [Draw::Gumbel, Draw::InverseCdf] {
        for (top_p, drafted) in [(1.0, false), (0.5, false), (1.0 - 1e-7, true)] {
            let mut case = Case::new(logits.clone(), SamplingParams { draw, top_p, ..params(1.0) });
            case.draft = drafted.then(|| {
                let logprobs = (0..logits.len()).map(|id| if id < 1000 { -6.0 } else { NEG }).collect();
                DraftCase::new((MAX_VOCABULARY - 1) as i64, logprobs, 0.0)
            });
            let (found, truth) = (case.solo().unwrap(), naive::draw(&case));
            assert_eq!((found.token, found.kept), (truth.token, truth.kept.len()));
            assert_eq!(found.log_normalizer, truth.log_normalizer);
        }
        // The last id alone, with the greatest id a score can carry.
        logits[MAX_VOCABULARY - 1] = 80.0;
        let found = Case::new(logits.clone(), SamplingParams { draw, ..params(1.0) }).solo().unwrap();
        assert_eq!(found.token as usize, MAX_VOCABULARY - 1);
        logits[MAX_VOCABULARY - 1] = 0.5;
    }
}

fn drafted(draft: Draft) -> Result<Outcome, RowError> {
    let logits = Kind::Flat.logits(3, 100, 4.0);
    let row = Row::new(params(1.0).check().unwrap(), 5).with_draft(draft);
    Logits::new(&logits, 1, 100).unwrap().draw(&[row]).unwrap().remove(0)
}

#[test]
fn a_wrong_draft_is_refused_by_name() {
    let logprobs = vec![-5.0; 100];
    for (token, refused) in
        [(-2, true), (-1, false), (0, false), (99, false), (100, true), (i64::MIN, true), (i64::MAX, true)]
    {
        let found = drafted(Draft::new(token, &logprobs));
        assert_eq!(found.is_err(), refused, "token {token}");
        if let Err(error) = found {
            assert_eq!((error, error.status()), (RowError::DraftToken { row: 0, token, valid: 100 }, "invalid"));
            assert!(error.to_string().contains(&token.to_string()) && error.to_string().contains("100"), "{error}");
        }
    }
    for found in [0, 99] {
        let error = drafted(Draft::new(0, &logprobs[..found])).unwrap_err();
        assert_eq!(error, RowError::DraftLength { row: 0, found, valid: 100 });
        assert!(error.to_string().contains("100"), "{error}");
    }
    for delta in [f64::NAN, -1e-300, -1.0, f64::INFINITY, f64::NEG_INFINITY] {
        let error = drafted(Draft::new(0, &logprobs).with_delta(delta)).unwrap_err();
        assert!(matches!(error, RowError::DraftDelta { .. }) && error.to_string().contains("delta"), "{error}");
    }
    for delta in [0.0, -0.0, f64::MIN_POSITIVE, 699.9, 700.0, 710.0, 1e300] {
        assert!(drafted(Draft::new(0, &logprobs).with_delta(delta)).is_ok(), "{delta}");
    }
}

#[test]
fn a_bad_draft_row_is_judged_as_logits_are() {
    let judged = |changes: &[(usize, f32)]| {
        let mut logprobs = vec![-5.0; 100];
        for (id, d) in changes {
            logprobs[*id] = *d;
        }
        let found = drafted(Draft::new(7, &logprobs));
        if let Err(error) = &found {
            assert!(error.to_string().contains("draft logprob"), "{error}");
        }
        verdict(&found)
    };
    assert_eq!(judged(&[(40, NAN)]), ("nan", Some(40)));
    assert_eq!(judged(&[(99, NAN), (98, NAN), (3, INF)]), ("nan", Some(98)));
    assert_eq!(judged(&[(60, 0.5), (50, INF)]), ("infinite", Some(50)));
    assert_eq!(judged(&[(60, 0.001_1)]), ("infinite", Some(60)));
    assert_eq!(judged(&[(60, 0.001), (2, 9.9e-4)]), ("ok", None));
    assert_eq!(judged(&[(7, NEG), (60, NEG)]), ("ok", None));
    assert_eq!(verdict(&drafted(Draft::new(7, &[NEG; 100]))), ("ok", None));

    // The target is judged first, and padding of the draft not at all.
    let bad = vec![NAN; 100];
    let row = |valid| Row::new(params(1.0).check().unwrap(), 0).with_vocabulary(valid).with_draft(Draft::new(0, &bad));
    let logits = [vec![1.0; 99], vec![INF]].concat();
    let logits = Logits::new(&logits, 1, 100).unwrap();
    let input = klero::Input::Logit;
    assert_eq!(logits.draw(&[row(100)]).unwrap()[0], Err(RowError::Infinite { row: 0, input, id: 99 }));
    let mut tail = vec![-4.0; 50];
    tail.extend([NAN; 50]);
    let row = Row::new(params(1.0).check().unwrap(), 0).with_vocabulary(50).with_draft(Draft::new(0, &tail));
    assert!(logits.draw(&[row]).unwrap()[0].is_ok());
}

/// Good and bad rows of every kind in turn: the good ones do not notice.
#[test]
fn bad_rows_do_not_touch_their_neighbours() {
    const WIDTH: usize = 3000;
    let spoil: [fn(&mut [f32]); 6] = [
        |row| row[2999] = NAN,
        |row| row.fill(NAN),
        |row| row[0] = INF,
        |row| row.fill(NEG),
        |row| row[1500] = f32::MAX,
        |row| row.fill(f32::MIN),
    ];
    let sampling = |row: usize| {
        let filters = [(1.0, -1, 0.0), (0.8, -1, 0.0), (1.0, 2500, 0.0), (1.0, -1, 0.5)][row % 4];
        SamplingParams {
            top_p: filters.0,
            top_k: filters.1,
            min_p: filters.2,
            draw: [Draw::Gumbel, Draw::InverseCdf][row / 4 % 2],
            top_logprobs: 3,
            raw_logprobs: true,
            ..params(0.5)
        }
    };
    let good: Vec<Case> =
        (0..12).map(|row| Case::new(Kind::Flat.logits(row as u64, WIDTH, 2.0), sampling(row))).collect();
    let mut data = Vec::new();
    let mut rows = Vec::new();
    for (i, case) in good.iter().enumerate() {
        let mut bad = case.logits.clone();
        spoil[i % spoil.len()](&mut bad);
        data.extend(bad);
        data.extend(&case.logits);
        rows.extend([Row::new(sampling(i + 1).check().unwrap(), 3), case.row()]);
    }
    let found = Logits::new(&data, rows.len(), WIDTH).unwrap().draw(&rows).unwrap();
    for (i, case) in good.iter().enumerate() {
        let bad = found[2 * i].as_ref().unwrap_err();
        assert!(bad.to_string().starts_with(&format!("row {}:", 2 * i)), "{bad}");
        assert_eq!(bits(&found[2 * i + 1]), bits(&case.solo()), "row {}", 2 * i + 1);
    }
}

#[test]
fn the_extremes_of_f32_are_drawn_to_the_bit() {
    let tiny = f32::from_bits(1);
    let rows: [&[f32]; 9] = [
        &[f32::MAX, f32::MAX, f32::MIN, 0.0],
        &[f32::MIN, f32::MIN, NEG, f32::MIN],
        &[tiny, -tiny, 0.0, -0.0, f32::MIN_POSITIVE],
        &[1e30, 1.000_000_1e30, 9.999_999e29],
        &[-1e6, -1e6 + 0.0625, -1e6 - 0.0625, -1e6 + 0.125],
        &[1e6, 1e6 + 0.0625, 1e6 - 0.0625, 1e6 + 0.125],
        &[0.0, -87.4, -88.8, -103.9, -104.1, -200.0],
        &[-104.1, -103.9, -30.0, -29.9, -29.8, NEG],
        &[3.4e38, -3.4e38, 3.39e38],
    ];
    for logits in rows {
        for temperature in [0.0, 1e-45, 1e-5, 0.3, 1.0, 1e6, 1e30, f64::from(f32::MAX)] {
            for draw in [Draw::Gumbel, Draw::InverseCdf] {
                for (top_p, top_k, drafted) in [(1.0, -1, false), (0.6, -1, false), (1.0, 2, true), (1.0, -1, true)] {
                    let seeded = |seed| SamplingParams { top_p, top_k, draw, seed: Some(seed), ..params(temperature) };
                    for seed in 0..20 {
                        let mut case = Case::new(logits.to_vec(), seeded(seed));
                        let logprobs = log_softmax(&logits.iter().map(|l| l.clamp(-3.0, 3.0)).collect::<Vec<_>>());
                        case.draft = drafted.then_some(DraftCase::new(1, logprobs, 0.0));
                        let Ok(found) = case.solo() else {
                            let hot = logits
                                .iter()
                                .any(|l| l.is_finite() && (l / temperature.max(1e-5) as f32).is_infinite());
                            assert!(hot, "{logits:?} at T = {temperature}");
                            continue;
                        };
                        let truth = naive::draw(&case);
                        assert_eq!(
                            (found.token, found.kept, found.logprob, found.log_normalizer),
                            (truth.token, truth.kept.len(), truth.logprob, truth.log_normalizer),
                            "{case:?}"
                        );
                        assert!(found.logprob.is_finite() && found.logprob <= 0.0, "{case:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn hidden_states_that_are_not_finite_show_in_their_row_alone() {
    let (vocab, cols) = (300, 256);
    let good = Kind::Flat.logits(9, cols, 2.0);
    for kind in Type::ALL {
        let weights = kind.weights(vocab, cols, &kind.random(&mut Rng::new(8), vocab * cols, 0.5)).unwrap();
        let head = FusedHead::new(&weights).unwrap();
        let row = Row::new(params(1.0).check().unwrap(), 0);
        let alone = bits(&head.draw(&good, &[row]).unwrap()[0]);
        for value in [NAN, INF, NEG, f32::MAX] {
            for place in [0, 31, 32, 255] {
                let mut bad = good.clone();
                bad[place] = value;
                let hidden = [good.clone(), bad, good.clone()].concat();
                let found = head.draw(&hidden, &[row; 3]).unwrap();
                let logits = head.logits(&hidden).unwrap();
                let ready = Logits::new(&logits, 3, vocab).unwrap().draw(&[row; 3]).unwrap();
                assert_eq!((bits(&found[0]), bits(&found[2])), (alone.clone(), alone.clone()));
                assert_eq!(bits(&found[1]), bits(&ready[1]), "{value} in place {place}");
                if !value.is_finite() {
                    assert!(["nan", "infinite"].contains(&verdict(&found[1]).0), "{value}: {:?}", found[1]);
                }
            }
        }
    }
}

#[test]
fn weights_that_are_not_finite_show_at_their_id() {
    let mut blocks = BlockQ8_0::quantize(&[0.5; 5 * 32]).unwrap();
    blocks[3].d = f16::NAN;
    let quantized = Weights::q8_0(5, 32, blocks).unwrap();
    let mut data = vec![0.5; 5 * 32];
    data[3 * 32 + 4] = NAN;
    let full = Weights::f32(5, 32, data).unwrap();
    for weights in [quantized, full] {
        let row = Row::new(params(1.0).check().unwrap(), 0);
        let head = FusedHead::new(&weights).unwrap();
        assert_eq!(verdict(&head.draw(&[1.0; 32], &[row]).unwrap()[0]), ("nan", Some(3)));
        assert!(head.draw(&[1.0; 32], &[row.with_vocabulary(3)]).unwrap()[0].is_ok());
    }
}

#[test]
fn a_good_row_is_drawn_in_every_width() {
    for width in WIDTHS {
        for draw in [Draw::Gumbel, Draw::InverseCdf] {
            let params = SamplingParams { draw, top_p: 0.97, top_k: 40, ..params(0.8) };
            let case = Case::new(Kind::Real.logits(width as u64, width, 8.0), params);
            let (found, truth) = (case.solo().unwrap(), naive::draw(&case));
            assert_eq!((found.token, found.kept, found.logprob), (truth.token, truth.kept.len(), truth.logprob));
            assert_eq!(bits(&Ok(draw_here(&case.logits, case.row()))), bits(&Ok(found)), "V = {width} in one tile");
        }
    }
}
