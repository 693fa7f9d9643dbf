//! What can be drawn from a batch beside one token a row: tokens alone, samples, whole drafts, prompt logprobs; and from
//! logits in half precision.

mod common;

use common::recipes::{Recipe, recipes, runner};
use common::{Case, Kind, Rng, bits, log_softmax, on_threads};
use half::{bf16, f16};
use klero::{
    Confidence, Draft, Draw, Edits, Error, FusedHead, History, Logits, Outcome, Policy, Proposal, Row, RowError,
    SamplingParams, Speculation, Weights,
};
use klero_oracle::hash::sample_seed;
use proptest::prelude::*;

fn params(seed: u64) -> SamplingParams {
    SamplingParams { seed: Some(seed), ..Default::default() }
}

#[test]
fn tokens_alone_are_those_of_the_outcomes() {
    runner(1500, 31)
        .run(&recipes(3000), |recipe| {
            let case = recipe.case();
            let logits = Logits::new(&case.logits, 1, case.logits.len()).unwrap();
            let bare = logits.batch().with_policy(case.edits.policy()).tokens(&[case.row()]).unwrap().remove(0);
            let whole = case.solo();
            prop_assert_eq!(bare.map_err(|e| e.to_string()), whole.map(|o| o.token).map_err(|e| e.to_string()));
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_proposal_is_the_token_of_the_row_and_the_distribution_it_was_drawn_from() {
    runner(700, 36)
        .run(&recipes(3000), |recipe| {
            let case = recipe.case();
            let logits = Logits::new(&case.logits, 1, case.logits.len()).unwrap();
            let batch = logits.batch().with_policy(case.edits.policy());
            let ids: Vec<u32> = (0..case.row().vocabulary.unwrap_or(case.logits.len()) as u32).collect();
            let row = Row { draft: None, ..case.row() }.with_ids(&ids);
            let told = batch.draw(&[row]).unwrap().remove(0);
            match (batch.propose(&[row]).unwrap().remove(0), told) {
                (Ok(proposed), Ok(told)) => {
                    prop_assert_eq!(proposed.token, told.token);
                    prop_assert_eq!(proposed.logprobs.len(), told.asked.len());
                    for (found, asked) in proposed.logprobs.iter().zip(&told.asked) {
                        let close = (f64::from(*found) - asked.logprob).abs() <= 1e-5 * asked.logprob.abs().max(1.0);
                        prop_assert!(close || f64::from(*found) == asked.logprob, "{} for {:?}", found, asked);
                    }
                }
                (proposed, told) => {
                    prop_assert_eq!(proposed.map_err(|e| e.to_string()).err(), told.map_err(|e| e.to_string()).err())
                }
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_sample_is_the_draw_of_its_own_seed() {
    runner(300, 32)
        .run(&(prop::collection::vec(recipes(2), 1..4), 1usize..900, 0usize..6), |(recipes, vocab, n)| {
            let cases: Vec<Case> =
                recipes.into_iter().map(|recipe| Recipe { vocab, ..recipe }.case().under(0)).collect();
            let rows: Vec<Row> = cases.iter().map(Case::row).collect();
            let data: Vec<f32> = cases.iter().flat_map(|case| case.logits.clone()).collect();
            let batch = Logits::new(&data, rows.len(), vocab).unwrap().batch();
            let samples = batch.samples(&rows, n).unwrap();
            prop_assert_eq!(samples.len(), rows.len());
            for (case, samples) in cases.iter().zip(&samples) {
                prop_assert_eq!(samples.len(), n);
                for (j, sample) in samples.iter().enumerate() {
                    let seed = case.params.seed.map(|seed| sample_seed(seed, j as u64));
                    let alone = Case { params: SamplingParams { seed, ..case.params.clone() }, ..case.clone() };
                    let sample = sample.clone().map_err(|error| error.with_row(0));
                    prop_assert_eq!(bits(&sample), bits(&alone.solo()));
                }
            }
            Ok(())
        })
        .unwrap();
}

/// Samples of one seed must not be those of a neighbouring seed, as with seeds that are counted up.
#[test]
fn samples_of_neighbouring_seeds_are_apart() {
    let flat = vec![0.0; 100_000];
    let batch = Logits::new(&flat, 1, flat.len()).unwrap().batch();
    let tokens = |seed| -> Vec<u32> {
        let row = Row::new(params(seed).check().unwrap(), 5);
        batch.samples(&[row], 4).unwrap().remove(0).into_iter().map(|sample| sample.unwrap().token).collect()
    };
    let (seven, eight) = (tokens(7), tokens(8));
    let mut all = [&seven[..], &eight[..]].concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 8, "{seven:?} {eight:?}");
}

/// k drafts and k + 1 rows of logits, of which each row has its own.
struct Drafted {
    logits: Vec<Vec<f32>>,
    tokens: Vec<u32>,
    logprobs: Vec<Vec<f32>>,
}

impl Drafted {
    fn new(seed: u64, k: usize, vocab: usize) -> Self {
        let mut rng = Rng::new(seed);
        let logits: Vec<Vec<f32>> = (0..=k as u64).map(|j| Kind::Real.logits(seed * 100 + j, vocab, 6.0)).collect();
        let near = |row: &Vec<f32>| log_softmax(&row.iter().map(|l| l + 0.4 * rng.normal() as f32).collect::<Vec<_>>());
        let logprobs: Vec<Vec<f32>> = logits[..k].iter().map(near).collect();
        // The draft draws from its own distribution with the stream of drafts.
        let draw = |(j, row): (usize, &Vec<f32>)| {
            let row_params =
                Row::new(params(seed).check().unwrap(), 40 + j as u64).with_stream(klero::hash::Stream::Draft);
            common::draw_here(row, row_params).token
        };
        let tokens = logprobs.iter().enumerate().map(draw).collect();
        Self { logits, tokens, logprobs }
    }

    fn verify(&self, row: Row, proposal: impl Fn(usize) -> u8) -> klero::Speculated {
        let of = |j: usize| match proposal(j) {
            0 => Proposal::Distribution { logprobs: &self.logprobs[j], delta: Draft::DELTA },
            1 => Proposal::OneHot { delta: 0.0 },
            _ => Proposal::Coupled,
        };
        let data = self.logits.concat();
        let batch = Logits::new(&data, self.logits.len(), self.logits[0].len()).unwrap().batch();
        batch.verify(&[Speculation::new(row, &self.tokens, of)]).unwrap().remove(0).unwrap()
    }
}

#[test]
fn a_whole_draft_is_its_rows_one_after_the_other() {
    let mut lengths = [0; 8];
    for seed in 0..300 {
        let (k, vocab) = (seed as usize % 8, 50 + seed as usize);
        let drafted = Drafted::new(seed, k, vocab);
        let mut history = History::of_prompt([1, 2, 3]);
        history.write(4);
        let penalised = SamplingParams { repetition_penalty: 1.2, frequency_penalty: 0.3, ..params(seed) };
        let edits = Edits { history: Some(&history), ..Default::default() };
        let row = Row::new(penalised.check().unwrap(), 40).with_edits(edits);
        let found = drafted.verify(row, |j| (j % 3) as u8);

        // The same by hand: a row at a time, each counting the accepted tokens as written.
        let mut expected: Vec<Outcome> = Vec::new();
        for j in 0..=k {
            let draft = drafted.tokens.get(j).map(|token| match j % 3 {
                0 => Draft::new(i64::from(*token), &drafted.logprobs[j]),
                1 => Draft::one_hot(i64::from(*token)).with_delta(0.0),
                _ => Draft::coupled(i64::from(*token)),
            });
            let edits = Edits { history: Some(&history), ..Default::default() };
            let row = Row { draft, ..Row::new(penalised.check().unwrap(), 40 + j as u64).with_edits(edits) };
            let outcome = Logits::new(&drafted.logits[j], 1, vocab).unwrap().draw(&[row]).unwrap().remove(0).unwrap();
            let accepted = outcome.verification.is_some_and(|verification| verification.accepted);
            history.write(outcome.token);
            expected.push(outcome);
            if !accepted {
                break;
            }
        }
        assert_eq!(found.outcomes, expected);
        assert_eq!((found.accepted, found.token), (expected.len() - 1, expected.last().unwrap().token));
        lengths[found.accepted] += 1;
    }
    assert!(lengths[..3].iter().all(|count| *count > 20) && lengths[3..].iter().sum::<u32>() > 10, "{lengths:?}");
}

/// The text does not depend on whether, how far, or what was drafted.
#[test]
fn coupled_drafts_leave_the_text_as_it_is() {
    let vocab = 300;
    // A "model" whose logits depend on the text so far.
    let logits = |text: &[u32]| {
        let seed = text.iter().fold(17, |seed: u64, token| seed.wrapping_mul(31).wrapping_add(u64::from(*token)));
        Kind::Real.logits(seed, vocab, 5.0)
    };
    for draw in [Draw::Gumbel, Draw::InverseCdf] {
        let sampling = SamplingParams { draw, top_p: 0.9, temperature: 0.8, ..params(3) }.check().unwrap();
        let next = |text: &[u32]| common::draw_here(&logits(text), Row::new(sampling, text.len() as u64)).token;
        let mut plain: Vec<u32> = vec![5, 6];
        while plain.len() < 60 {
            plain.push(next(&plain));
        }
        for k in 0..8 {
            let (mut text, mut rng, mut accepted) = (vec![5, 6], Rng::new(k as u64), 0);
            while text.len() < 60 {
                // A draft that is right three times out of four.
                let mut ahead = text.clone();
                for _ in 0..k {
                    ahead.push(if rng.below(4) == 0 { rng.below(vocab) as u32 } else { next(&ahead) });
                }
                let rows: Vec<f32> = (text.len()..=ahead.len()).flat_map(|end| logits(&ahead[..end])).collect();
                let row = Row::new(sampling, text.len() as u64);
                let draft = Speculation::new(row, &ahead[text.len()..], |_| Proposal::Coupled);
                let batch = Logits::new(&rows, k + 1, vocab).unwrap().batch();
                let verified = batch.verify(&[draft]).unwrap().remove(0).unwrap();
                text.extend(verified.outcomes.iter().map(|outcome| outcome.token));
                accepted += verified.accepted;
            }
            assert_eq!(text[..60], plain[..], "{draw:?} with {k} drafted");
            assert_eq!(accepted > 0, k > 0);
        }
    }
}

#[test]
fn a_fault_behind_the_first_rejection_does_not_matter() {
    let sampling = SamplingParams { temperature: 0.0, ..params(1) }.check().unwrap();
    let verify = |values: &[f32], tokens: &[u32]| {
        let draft = Speculation::new(Row::new(sampling, 9), tokens, |_| Proposal::Coupled);
        Logits::new(values, 3, 2).unwrap().batch().verify(&[draft]).unwrap().remove(0)
    };
    let values = [9.0, 0.0, f32::NAN, 0.0, 0.0, 0.0];
    let rejected = verify(&values, &[1, 0]).unwrap();
    assert_eq!((rejected.accepted, rejected.token), (0, 0));
    assert!(matches!(verify(&values, &[0, 0]), Err(RowError::Nan { row: 1, id: 0, .. })));
    let empty = Speculation { rows: vec![] };
    let refused = Logits::<f32>::new(&[], 0, 2).unwrap().batch().verify(&[empty]).unwrap_err();
    assert!(matches!(refused, Error::Shape(text) if text.contains("draft 0 has no rows")));
}

#[test]
fn prompt_logprobs_are_those_of_the_next_tokens() {
    let (n, vocab, cols) = (150, 777, 16);
    let mut rng = Rng::new(8);
    let data: Vec<f32> = (0..vocab * cols).map(|_| rng.normal() as f32).collect();
    let hidden: Vec<f32> = (0..n * cols).map(|_| 0.2 * rng.normal() as f32).collect();
    let tokens: Vec<u32> = (0..n).map(|_| rng.below(vocab) as u32).collect();
    let weights = Weights::f32(vocab, cols, data).unwrap();
    let head = FusedHead::new(&weights).unwrap();
    let logits = head.logits(&hidden).unwrap();
    let asked = SamplingParams { top_logprobs: 3, raw_logprobs: true, temperature: 0.7, top_p: 0.9, ..params(1) };
    let row = Row::new(asked.check().unwrap(), 0);
    let found = head.batch(&hidden).unwrap().prompt_logprobs(&tokens, &row).unwrap();
    assert_eq!(found.len(), n - 1);
    let mut removed = 0;
    for (i, found) in found.iter().enumerate() {
        let found = found.as_ref().unwrap();
        let truth = Case::new(logits[i * vocab..][..vocab].to_vec(), asked.clone()).oracle().unwrap();
        let next = tokens[i + 1] as usize;
        assert_eq!(found.token.token as usize, next);
        assert!((found.token.logprob.exp() - truth.probabilities[next]).abs() < 1e-6);
        removed += usize::from(found.token.logprob == f64::NEG_INFINITY);
        let raw = f64::from(log_softmax(&logits[i * vocab..][..vocab])[next]);
        assert!((found.token.raw_logprob.unwrap() - raw).abs() < 1e-5);
        let best: Vec<usize> = found.top.iter().map(|top| top.token as usize).collect();
        assert_eq!(best, truth.kept_ids[..3.min(truth.kept)]);
    }
    assert!(removed > 10 && removed < n - 1, "{removed} tokens of the prompt were removed by top-p");
    let beyond = head.batch(&hidden[..2 * cols]).unwrap().prompt_logprobs(&[0, vocab as u32], &row).unwrap();
    assert!(matches!(beyond[0], Err(RowError::Id { row: 0, field: "ids", .. })), "{beyond:?}");
    assert!(head.batch(&hidden).unwrap().prompt_logprobs(&tokens[1..], &row).is_err());
}

/// Logits in half precision are the numbers they widen to.
#[test]
fn half_precision_logits_are_widened_exactly() {
    for seed in 0..40 {
        let (rows, vocab, gap) = (3, 1 + 97 * seed as usize, seed as usize % 5);
        let stride = vocab + gap;
        let values = Kind::ALL[seed as usize % 8].logits(seed, rows * stride, 9.0);
        let sampling =
            SamplingParams { top_p: 0.9, top_logprobs: 5, raw_logprobs: true, ..params(seed) }.check().unwrap();
        let asked: Vec<Row> = (0..rows as u64).map(|t| Row::new(sampling, t)).collect();
        let outcomes = |wide: &[f32]| {
            Logits::with_stride(wide, rows, vocab, stride)
                .unwrap()
                .draw(&asked)
                .unwrap()
                .iter()
                .map(bits)
                .collect::<Vec<_>>()
        };
        let brain: Vec<bf16> = values.iter().map(|l| bf16::from_f32(*l)).collect();
        let halves: Vec<f16> = values.iter().map(|l| f16::from_f32(*l)).collect();
        let found = Logits::with_stride(&brain, rows, vocab, stride).unwrap().draw(&asked).unwrap();
        assert_eq!(
            found.iter().map(bits).collect::<Vec<_>>(),
            outcomes(&brain.iter().map(|l| l.to_f32()).collect::<Vec<_>>())
        );
        let found = Logits::with_stride(&halves, rows, vocab, stride).unwrap().draw(&asked).unwrap();
        assert_eq!(
            found.iter().map(bits).collect::<Vec<_>>(),
            outcomes(&halves.iter().map(|l| l.to_f32()).collect::<Vec<_>>())
        );
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let values = [0.0; 100];
    let batch = Logits::new(&values, 1, 100).unwrap().batch();
    let row = Row::new(params(1).check().unwrap(), 0);
    let refused = |row: Row| batch.draw(&[row]).unwrap().remove(0).unwrap_err();
    let bias = klero::LogitBias::new([(3, 1.0), (100, 1.0)]).unwrap();
    let error = refused(row.with_edits(Edits { bias: Some(&bias), ..Default::default() }));
    assert_eq!(error.to_string(), "row 0: logit_bias holds id 100, must be below 100, the row's vocabulary");
    assert_eq!(error.status(), "invalid");
    let banned = [u32::MAX].into();
    let error = refused(row.with_edits(Edits { banned: Some(&banned), ..Default::default() }));
    assert!(error.to_string().contains("banned holds id 4294967295"), "{error}");
    let error = refused(row.with_ids(&[5, 100]));
    assert!(error.to_string().contains("ids holds id 100"), "{error}");
    let error = refused(row.with_edits(Edits { allowed: Some(&[u32::MAX; 3]), ..Default::default() }));
    assert!(error.to_string().contains("allowed has 3 words of 32 bits, must be at least 4"), "{error}");
    let blacklist = [100].into();
    let policy = Policy { blacklist: Some(&blacklist), force_top_k: None };
    let error = Logits::new(&values, 1, 100).unwrap().batch().with_policy(policy).draw(&[row]).unwrap_err();
    assert!(error.to_string().contains("the blacklist holds id 100"), "{error}");
}

/// A mask that leaves nothing gives the status `empty`, never a token.
#[test]
fn a_mask_without_a_bit_leaves_no_token() {
    let values = [1.0; 70];
    let row = Row::new(params(1).check().unwrap(), 0);
    let none = row.with_edits(Edits { allowed: Some(&[0; 3]), ..Default::default() });
    let one = row.with_edits(Edits { allowed: Some(&[0, 0, 1 << 4]), ..Default::default() });
    let doubled = [values, values, values].concat();
    let found = Logits::new(&doubled, 3, 70).unwrap().draw(&[none, one, row]).unwrap();
    assert_eq!(found[0].as_ref().unwrap_err().status(), "empty");
    assert_eq!(found[1].as_ref().unwrap().token, 68);
    assert_eq!(found[2], Logits::new(&values, 1, 70).unwrap().draw(&[row]).unwrap()[0]);
}

#[test]
fn confidence_of_known_distributions() {
    let sure = |values: &[f32], params: SamplingParams| -> (u32, Confidence) {
        let params = SamplingParams { confidence: true, ..params };
        let row = Row::new(params.check().unwrap(), 0);
        let outcome = Logits::new(values, 1, values.len()).unwrap().draw(&[row]).unwrap().remove(0).unwrap();
        (outcome.token, outcome.confidence.unwrap())
    };
    let (_, even) = sure(&[2.0; 4096], params(1));
    assert!((even.entropy - 4096f64.ln()).abs() < 1e-9 && even.largest == 1.0 / 4096.0 && even.smaller == 0.0);
    let (_, greedy) = sure(&[1.0, 2.0, 3.0], SamplingParams { temperature: 0.0, ..params(1) });
    assert_eq!(greedy, Confidence { entropy: 0.0, largest: 1.0, smaller: 0.0 });
    let values = [0.5f64, 0.25, 0.25].map(|p| p.ln() as f32);
    for seed in 0..20 {
        let (token, found) = sure(&values, params(seed));
        assert!((found.entropy - 1.5 * 2f64.ln()).abs() < 1e-6 && (found.largest - 0.5).abs() < 1e-6);
        assert!((found.smaller - if token == 0 { 0.5 } else { 0.0 }).abs() < 1e-6);
    }
}

/// The logits of a batch are computed once however many samples are drawn; the results are those of any thread count.
#[test]
fn samples_do_not_depend_on_threads() {
    let weights = Weights::f32(500, 8, (0..4000).map(|i| (i as f32 * 0.37).sin()).collect::<Vec<_>>()).unwrap();
    let hidden: Vec<f32> = (0..16).map(|i| i as f32 * 0.3).collect();
    let rows = [1, 2].map(|t| Row::new(SamplingParams { top_p: 0.7, ..params(4) }.check().unwrap(), t));
    let draw = |threads| {
        on_threads(threads, || FusedHead::new(&weights).unwrap().batch(&hidden).unwrap().samples(&rows, 5).unwrap())
    };
    assert_eq!(draw(1), draw(3));
}
