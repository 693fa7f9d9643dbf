//! Properties of a draw over random rows: it stands alone, it follows the law's integers to the bit, it agrees with the
//! slow truth, and the fused head is only a faster way to the same.

mod common;

use common::recipes::{Recipe, recipes, runner, vocabularies};
use common::types::Type;
use common::{Case, DraftCase, Kind, NEG, Rng, bits, log_softmax, naive, on_threads};
use klero::hash::Stream;
use klero::{Draft, Draw, FilterOrder, FusedHead, Logits, Outcome, Row, RowError, SamplingParams, Weights};
use proptest::prelude::*;
use std::cell::Cell;

/// Rows that give no token, each for a reason of its own.
fn bad_rows() -> Vec<Case> {
    let params = SamplingParams { seed: Some(1), top_p: 0.9, ..Default::default() };
    let with = |id: usize, l: f32| {
        let mut logits = vec![0.5; 200];
        logits[id] = l;
        Case::new(logits, params.clone())
    };
    let mut bad_draft = with(0, 1.0);
    bad_draft.draft = Some(DraftCase::new(3, vec![f32::NAN; 200], 0.0));
    let mut odd_draft = with(0, 1.0);
    odd_draft.draft = Some(DraftCase::new(200, vec![NEG; 200], 0.0));
    vec![
        with(70, f32::NAN),
        with(199, f32::INFINITY),
        Case::new(vec![NEG; 77], params.clone()),
        Case::new(vec![], params.clone()),
        bad_draft,
        odd_draft,
    ]
}

/// Draws `cases` as one batch of width `width`; what lies beyond a row's own ids is the worst padding there is.
fn batch(cases: &[&Case], width: usize, stride: usize, tile: usize) -> Vec<Result<Outcome, RowError>> {
    let garbage = [f32::NAN, f32::INFINITY, 3e38, NEG, 1e30];
    let mut data: Vec<f32> = (0..cases.len() * stride).map(|i| garbage[i % garbage.len()]).collect();
    for (case, row) in cases.iter().zip(data.chunks_mut(stride)) {
        row[..case.logits.len()].copy_from_slice(&case.logits);
    }
    let rows: Vec<Row> = cases.iter().map(|case| case.row()).collect();
    let logits = Logits::with_stride(&data, cases.len(), width, stride).unwrap();
    logits.with_tile(tile).batch().with_policy(cases[0].edits.policy()).draw(&rows).unwrap()
}

#[test]
fn a_row_is_alone_in_any_batch() {
    let tiles = prop::sample::select(vec![1usize, 64, 128, 1000, 4096, usize::MAX]);
    let batches = (prop::collection::vec(recipes(1500), 1..9), any::<u64>(), tiles, 0usize..200, 0usize..70);
    runner(250, 1)
        .run(&batches, |(recipes, shuffle, tile, padding, gap)| {
            let mut cases: Vec<Case> = recipes.iter().map(Recipe::case).collect();
            let mut rng = Rng::new(shuffle);
            let bad = bad_rows();
            cases.extend((0..3).map(|_| bad[rng.below(bad.len())].clone()));
            // The policy is the batch's; the blacklist is a row's own elsewhere.
            let force_top_k = [0, 0, 3, 700][rng.below(4)];
            cases = cases.into_iter().map(|case| case.under(force_top_k)).collect();
            let solo: Vec<_> = cases.iter().map(|case| bits(&case.solo())).collect();

            let mut order: Vec<usize> = (0..cases.len()).collect();
            rng.shuffle(&mut order);
            let shuffled: Vec<&Case> = order.iter().map(|i| &cases[*i]).collect();
            let width = cases.iter().map(|case| case.logits.len()).max().unwrap() + padding;
            let cut = rng.below(cases.len() + 1);
            for threads in 1..=3 {
                let (whole, split) = on_threads(threads, || {
                    let draw = |cases: &[&Case]| batch(cases, width, width + gap, tile);
                    let (front, back) = shuffled.split_at(cut);
                    let parts = [front, back].into_iter().filter(|part| !part.is_empty()).map(draw);
                    (draw(&shuffled), parts.collect::<Vec<_>>().concat())
                });
                for (place, &i) in order.iter().enumerate() {
                    prop_assert_eq!(&bits(&whole[place]), &solo[i], "row {} with {} threads", i, threads);
                    prop_assert_eq!(&bits(&split[place]), &solo[i], "row {} split at {}", i, cut);
                    if let Err(error) = &whole[place] {
                        let named = format!("row {place}:");
                        prop_assert!(error.to_string().starts_with(&named), "{error} in place {place}");
                    }
                }
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn every_draw_is_the_laws_to_the_bit() {
    let (drawn, verified) = (Cell::new(0), Cell::new(0));
    runner(4000, 2)
        .run(&recipes(3000), |recipe| {
            let case = recipe.case();
            let Ok(found) = case.solo() else { return Ok(()) };
            let truth = naive::draw(&case);
            prop_assert_eq!((found.token, found.kept), (truth.token, truth.kept.len()));
            prop_assert_eq!(found.logprob.to_bits(), truth.logprob.to_bits());
            prop_assert_eq!(found.log_normalizer.to_bits(), truth.log_normalizer.to_bits());
            let listed: Vec<u32> = found.top.iter().map(|listed| listed.token).collect();
            prop_assert_eq!(&listed[..], &truth.kept[..recipe.params.top_logprobs.min(truth.kept.len())]);
            prop_assert_eq!(found.verification.map(|v| v.accepted), truth.accepted);
            let mut kept = truth.kept.clone();
            kept.sort_unstable();
            prop_assert_eq!(found.kept_ids, recipe.params.kept_ids.then_some(kept));
            prop_assert_eq!(found.confidence, recipe.params.confidence.then_some(truth.confidence));
            if let Some(verification) = found.verification {
                // e^(−δ) is std's here, the library's there; all else is the same arithmetic.
                prop_assert!((verification.accept_probability - truth.accept_probability).abs() < 1e-12);
                verified.set(verified.get() + 1);
            }
            drawn.set(drawn.get() + 1);
            Ok(())
        })
        .unwrap();
    assert!(drawn.get() > 3500 && verified.get() > 1500, "{} drawn, {} verified", drawn.get(), verified.get());
}

#[test]
fn draws_agree_with_the_oracle_beyond_its_margin() {
    let (total, comparable) = (Cell::new(0u32), Cell::new(0u32));
    let worst = Cell::new([0f64; 7]);
    runner(4000, 3)
        .run(&recipes(5000), |recipe| {
            let case = recipe.case();
            let (found, truth) = match (case.solo(), case.oracle()) {
                (Ok(found), Ok(truth)) => (found, truth),
                (found, truth) => {
                    prop_assert_eq!(found.err().map(|e| e.status()), truth.err().map(|s| word(&s)));
                    return Ok(());
                }
            };
            total.set(total.get() + 1);
            if truth.margin <= 2e-6 {
                return Ok(());
            }
            comparable.set(comparable.get() + 1);
            prop_assert_eq!((found.token as usize, found.kept), (truth.token, truth.kept));
            let verified = found.verification.zip(truth.verification);
            prop_assert_eq!(verified.map(|(f, _)| f.accepted), truth.verification.map(|t| t.accepted));
            for asked in &found.asked {
                let p = truth.probabilities[asked.token as usize];
                prop_assert!((asked.logprob.exp() - p).abs() < 1e-6, "{asked:?}: {p}");
                prop_assert_eq!(asked.logprob > f64::NEG_INFINITY, truth.kept_ids.contains(&(asked.token as usize)));
            }
            let sure = found.confidence;
            let distances = [
                (found.logprob, truth.logprob),
                (found.log_normalizer, truth.log_normalizer),
                (found.raw_logprob.unwrap_or(truth.raw_logprob), truth.raw_logprob),
                verified.map_or((1.0, 1.0), |(f, t)| (f.accept_probability, t.accept_probability)),
                sure.map_or((0.0, 0.0), |sure| (sure.entropy, truth.entropy)),
                sure.map_or((0.0, 0.0), |sure| (sure.largest, truth.largest_probability)),
                sure.map_or((0.0, 0.0), |sure| (sure.smaller, truth.smaller_probability)),
            ]
            .map(|(found, truth)| (found - truth).abs());
            let mut most = worst.get();
            for (most, distance) in most.iter_mut().zip(distances) {
                prop_assert!(distance < 1e-6, "{distances:?}");
                *most = most.max(distance);
            }
            worst.set(most);
            Ok(())
        })
        .unwrap();
    println!("{} of {} comparable, worst {:?}", comparable.get(), total.get(), worst.get());
    assert!(comparable.get() * 10 > total.get() * 9, "{} of {} comparable", comparable.get(), total.get());
}

fn word(status: &klero_oracle::Status) -> &'static str {
    match status {
        klero_oracle::Status::Nan(_) => "nan",
        klero_oracle::Status::Infinite(_) => "infinite",
        klero_oracle::Status::Empty => "empty",
    }
}

#[test]
fn the_kept_prefix_obeys_every_filter_and_could_not_be_longer() {
    runner(1500, 4)
        .run(&recipes(2500), |recipe| {
            let params = SamplingParams { temperature: recipe.params.temperature.max(1e-5), ..recipe.params.clone() };
            let params = SamplingParams { filter_order: FilterOrder::TopPFirst, ..params };
            let case = Recipe { params: params.clone(), ..recipe }.case();
            let Ok(found) = case.solo() else { return Ok(()) };
            let masses = naive::Masses::new(&naive::staged(&case), params.temperature);
            let order = masses.order();
            let (kept, removed) = order.split_at(found.kept);
            let mass = |ids: &[u32]| ids.iter().map(|id| masses.weight_of(*id)).sum::<u64>();
            let over = |mass| (params.top_p as f32) < 1.0 && masses.exceeds(mass, params.top_p);
            let small = |id: u32| klero::math::exp(masses.x_of(id) - masses.max) < params.min_p as f32;
            let most = usize::try_from(params.top_k).unwrap_or(usize::MAX);

            let (last, before) = kept.split_last().expect("the first id is always kept");
            prop_assert!(kept.len() == 1 || !over(mass(before)), "the mass before the last id is too great");
            prop_assert!(kept.len() == 1 || !small(*last), "the last id is too small");
            prop_assert!(kept.len() <= most, "too many ids");
            if let Some(next) = removed.first() {
                prop_assert!(over(mass(kept)) || kept.len() == most || small(*next), "the next id should have stayed");
            }
            prop_assert!(kept.contains(&found.token), "the token is not among the kept ids");
            Ok(())
        })
        .unwrap();
}

#[test]
fn the_list_of_the_best_is_sorted_complete_and_sums_to_one() {
    let complete = Cell::new(0);
    runner(1500, 5)
        .run(&recipes(1200), |recipe| {
            let case = recipe.case();
            let Ok(found) = case.solo() else { return Ok(()) };
            let naive_x = naive::Masses::new(&naive::staged(&case), recipe.params.temperature).x;
            prop_assert!(found.logprob <= 0.0 && found.logprob.is_finite());
            prop_assert_eq!(found.top.len(), recipe.params.top_logprobs.min(found.kept));
            // Different x may have equal logprobs once rounded; the order is still that of x, then of ids.
            let x = |token: u32| naive_x[token as usize];
            for pair in found.top.windows(2) {
                let tokens = (pair[0].token, pair[1].token);
                let ahead = x(tokens.0) > x(tokens.1) || (x(tokens.0) == x(tokens.1) && tokens.0 < tokens.1);
                prop_assert!(ahead && pair[0].logprob >= pair[1].logprob, "{:?}", pair);
            }
            let sum: f64 = found.top.iter().map(|listed| listed.logprob.exp()).sum();
            prop_assert!(sum <= 1.0 + 1e-6, "{sum}");
            if found.top.len() == found.kept {
                prop_assert!((sum - 1.0).abs() < 1e-6, "{sum} of {} kept", found.kept);
                complete.set(complete.get() + 1);
            }
            let own = found.top.iter().find(|listed| listed.token == found.token);
            prop_assert!(found.top.len() < found.kept || own.is_some(), "the token is not on the list of all kept");
            if let Some(own) = own {
                prop_assert_eq!((own.logprob, own.raw_logprob), (found.logprob, found.raw_logprob));
            }
            for listed in &found.top {
                prop_assert_eq!(listed.raw_logprob.is_some(), recipe.params.raw_logprobs);
            }
            Ok(())
        })
        .unwrap();
    assert!(complete.get() > 300, "{} complete lists", complete.get());
}

#[test]
fn a_filter_that_keeps_the_winner_keeps_the_token() {
    let coupled = Cell::new(0);
    runner(2000, 6)
        .run(&recipes(1000), |recipe| {
            let filtered = SamplingParams { draw: Draw::Gumbel, ..recipe.params.clone() };
            let free = SamplingParams { top_p: 1.0, top_k: -1, min_p: 0.0, ..filtered.clone() };
            let case = |params| Recipe { params, draft: None, ..recipe.clone() }.case();
            let (free, cut) = (case(free), case(filtered));
            let (Ok(won), Ok(found)) = (free.solo(), cut.solo()) else { return Ok(()) };
            let kept = naive::draw(&cut).kept;
            if kept.contains(&won.token) {
                prop_assert_eq!(found.token, won.token);
                coupled.set(coupled.get() + usize::from(kept.len() < won.kept));
            }
            Ok(())
        })
        .unwrap();
    assert!(coupled.get() > 500, "{} rows where a filter cut and kept the winner", coupled.get());
}

#[test]
fn removed_ids_in_between_do_not_move_an_inverse_cdf() {
    runner(500, 7)
        .run(&(recipes(400), 1usize..200), |(recipe, gap)| {
            let params = SamplingParams { draw: Draw::InverseCdf, top_k: 20, ..recipe.params.clone() };
            let dense = Recipe { params, draft: None, edits: None, kind: Kind::Flat, ..recipe }.case();
            let mut sparse = dense.clone();
            sparse.logits =
                dense.logits.iter().flat_map(|l| [*l].into_iter().chain([NEG; 200].into_iter().take(gap))).collect();
            let (Ok(near), Ok(far)) = (dense.solo(), sparse.solo()) else { return Ok(()) };
            if near.kept == far.kept && near.kept < dense.logits.len() {
                prop_assert_eq!(near.token as usize * (gap + 1), far.token as usize);
            }
            Ok(())
        })
        .unwrap();
}

/// A head of any weight type and hidden states for it.
#[derive(Clone, Debug)]
struct HeadRecipe {
    vocab: usize,
    kind: Type,
    blocks: usize,
    odd: usize,
    data_seed: u64,
    scale: f32,
}

impl HeadRecipe {
    fn cols(&self) -> usize {
        if self.kind.quantized() { self.kind.block().0 * self.blocks } else { self.odd }
    }

    fn weights(&self) -> Weights<'static> {
        let bytes = self.kind.random(&mut Rng::new(self.data_seed), self.vocab * self.cols(), self.scale);
        self.kind.weights(self.vocab, self.cols(), &bytes).unwrap()
    }

    fn hidden(&self, rows: usize) -> Vec<f32> {
        let mut rng = Rng::new(!self.data_seed);
        (0..rows * self.cols()).map(|_| rng.normal() as f32).collect()
    }
}

fn heads() -> impl Strategy<Value = HeadRecipe> {
    let vocab = prop_oneof![3 => vocabularies(700), 1 => 2000usize..5000];
    let scale = prop::sample::select(vec![0.01f32, 0.3, 2.0]);
    let kind = prop::sample::select(Type::ALL.to_vec());
    (vocab, kind, 1usize..4, 1usize..70, any::<u64>(), scale).prop_map(
        |(vocab, kind, blocks, odd, data_seed, scale)| HeadRecipe { vocab, kind, blocks, odd, data_seed, scale },
    )
}

#[test]
fn the_fused_head_draws_what_its_logits_draw() {
    let tiles = prop::sample::select(vec![1usize, 64, 128, 1000, usize::MAX]);
    let calls = (heads(), prop::collection::vec(recipes(1), 1..7), tiles, 1usize..4);
    runner(300, 8)
        .run(&calls, |(head, recipes, tile, threads)| {
            let weights = head.weights();
            let hidden = head.hidden(recipes.len());
            let logits = FusedHead::new(&weights).unwrap().logits(&hidden).unwrap();
            // The rows are as random as elsewhere, but their logits are the head's; some see a part of the vocabulary only.
            let cases: Vec<Case> = recipes
                .iter()
                .zip(logits.chunks(head.vocab))
                .map(|(recipe, logits)| {
                    let valid = match recipe.data_seed % 3 {
                        0 => 1 + recipe.data_seed as usize % head.vocab,
                        _ => head.vocab,
                    };
                    let draft = recipe.draft.as_ref().map(|draft| draft.case(recipe, &logits[..valid]));
                    let case = Recipe { vocab: valid, ..recipe.clone() }.case();
                    Case { logits: logits[..valid].to_vec(), draft, ..case }.under(head.data_seed as usize % 3 * 40)
                })
                .collect();
            let rows: Vec<Row> = cases.iter().map(Case::row).collect();
            let policy = cases[0].edits.policy();
            let fused = FusedHead::new(&weights).unwrap().with_tile(tile).with_policy(policy);
            let (together, ready) = on_threads(threads, || {
                let ready = Logits::new(&logits, rows.len(), head.vocab).unwrap().batch().with_policy(policy);
                (fused.draw(&hidden, &rows).unwrap(), ready.draw(&rows).unwrap())
            });
            for (i, case) in cases.iter().enumerate() {
                let alone = fused.draw(&hidden[i * head.cols()..][..head.cols()], &rows[i..=i]).unwrap();
                let expected = bits(&case.solo());
                prop_assert_eq!(&bits(&together[i]), &expected, "fused row {}", i);
                prop_assert_eq!(&bits(&alone[0]), &expected, "fused row {} alone", i);
                prop_assert_eq!(&bits(&ready[i]), &expected, "ready row {}", i);
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn the_heads_logits_are_dot_products() {
    runner(100, 9)
        .run(&heads(), |head| {
            let (weights, hidden, cols) = (head.weights(), head.hidden(2), head.cols());
            let logits = FusedHead::new(&weights).unwrap().logits(&hidden).unwrap();
            let mut row = vec![0.0; cols];
            for id in 0..head.vocab {
                weights.row(id, &mut row).unwrap();
                for (h, l) in hidden.chunks(cols).zip(logits.chunks(head.vocab)) {
                    let terms: Vec<f64> = row.iter().zip(h).map(|(w, h)| f64::from(*w) * f64::from(*h)).collect();
                    let (sum, size) = (terms.iter().sum::<f64>(), terms.iter().map(|t| t.abs()).sum::<f64>());
                    // Quantised hidden states are off by up to half a step of 1/127 of the greatest of 32.
                    let most = h.iter().fold(0.0f32, |most, h| most.max(h.abs()));
                    let step = row.iter().map(|w| f64::from(w.abs() * most)).sum::<f64>() / 254.0;
                    // A weight that is a small difference, d · s · q − dmin · m, is rounded at the size of the two.
                    let coarse = step * 1e-3;
                    let bound = size * 1e-6 + if head.kind.quantized() { step + coarse } else { 0.0 };
                    let distance = (f64::from(l[id]) - sum).abs();
                    prop_assert!(distance <= bound + 1e-30, "id {id}: {} for {sum}", l[id]);
                }
            }
            Ok(())
        })
        .unwrap();
}

/// Rows whose cut lies below the list of the best, wherever it may be: in a crowd of ties, between two, beside zero.
#[test]
fn cuts_below_the_list_are_the_laws_to_the_bit() {
    let deep = Cell::new(0);
    let kinds =
        prop::sample::select(vec![Kind::Flat, Kind::Ternary, Kind::Real, Kind::Equal, Kind::Zeros, Kind::Ascending]);
    let filters = (
        prop_oneof![1 => Just(1.0), 2 => 0.3f64..1.0, 1 => Just(0.5), 1 => Just(0.999_999_9)],
        prop_oneof![1 => Just(-1i64), 2 => 1000i64..20_000],
        prop_oneof![2 => Just(0.0), 1 => 0.0f64..0.99],
    );
    let rows = (recipes(1), kinds, 1025usize..20_000, filters, prop_oneof![Just(1e-6f32), 0.01f32..4.0]);
    runner(500, 11)
        .run(&rows, |(recipe, kind, vocab, (top_p, top_k, min_p), scale)| {
            let params = SamplingParams { top_p, top_k, min_p, ..recipe.params.clone() };
            let case = Recipe { kind, vocab, scale, params, ..recipe }.case();
            let Ok(found) = case.solo() else { return Ok(()) };
            let truth = naive::draw(&case);
            prop_assert_eq!((found.token, found.kept), (truth.token, truth.kept.len()));
            prop_assert_eq!(found.logprob.to_bits(), truth.logprob.to_bits());
            prop_assert_eq!(found.verification.map(|v| v.accepted), truth.accepted);
            deep.set(deep.get() + usize::from((1025..vocab).contains(&found.kept)));
            Ok(())
        })
        .unwrap();
    assert!(deep.get() > 200, "{} rows were cut below the list", deep.get());
}

#[test]
fn a_mass_equal_to_top_p_stays_also_deep_down() {
    for power in [11, 12, 16, 18] {
        let vocab = 1usize << power;
        for (top_p, kept) in [(0.5, vocab / 2 + 1), (0.75, vocab / 4 * 3 + 1), (0.5f32.next_down().into(), vocab / 2)] {
            let params = SamplingParams { top_p, seed: Some(1), ..Default::default() };
            assert_eq!(Case::new(vec![-0.25; vocab], params).solo().unwrap().kept, kept, "top_p {top_p} of {vocab}");
        }
    }
}

/// Rows whose kept ids are many more than any list holds: equal logits, or so nearly that no id stands out.
fn deep_rows() -> Vec<Case> {
    let vocab = 262_145;
    let mut rng = Rng::new(5);
    let steps: Vec<f32> = (0..vocab).map(|_| rng.below(4) as f32 * 1e-3).collect();
    let noisy: Vec<f32> = (0..vocab).map(|_| rng.unit() as f32 * 0.01).collect();
    let rising: Vec<f32> = (0..vocab).map(|id| id as f32 * 1e-6).collect();
    let holed: Vec<f32> = (0..vocab).map(|id| if id % 3 == 1 { NEG } else { 1.25 }).collect();
    let mut cases = Vec::new();
    for (i, logits) in [vec![1.25f32; vocab], steps, noisy, rising, holed].into_iter().enumerate() {
        for draw in [Draw::Gumbel, Draw::InverseCdf] {
            let filters = [(0.9, -1, 0.0), (1.0, 100_000, 0.0), (0.7, 40_000, 0.5), (1.0, -1, 0.999), (1.0, -1, 0.0)];
            let (top_p, top_k, min_p) = filters[(i + usize::from(draw == Draw::Gumbel)) % filters.len()];
            let params = SamplingParams {
                top_p,
                top_k,
                min_p,
                draw,
                seed: Some(i as u64 + 77),
                top_logprobs: 1000,
                ..Default::default()
            };
            let fresh = Case::new(logits.clone(), params);
            let mut verified = fresh.clone();
            let tilted: Vec<f32> = (0..vocab).map(|id| (id % 7) as f32 * 0.3).collect();
            let token = [0, 262_144, -1, 131_072, 5][i];
            verified.draft = Some(DraftCase::new(token, log_softmax(&tilted), 5e-5));
            cases.extend([fresh, verified]);
        }
    }
    cases
}

#[test]
fn kept_sets_far_larger_than_any_list_follow_the_law() {
    let cases = deep_rows();
    let all: Vec<&Case> = cases.iter().collect();
    let together = batch(&all, 262_145, 262_150, 1024);
    for (i, (case, found)) in cases.iter().zip(&together).enumerate() {
        let (found, truth) = (found.as_ref().unwrap(), naive::draw(case));
        assert_eq!((found.token, found.kept), (truth.token, truth.kept.len()), "row {i}");
        assert_eq!(found.logprob.to_bits(), truth.logprob.to_bits(), "row {i}");
        assert_eq!(found.log_normalizer.to_bits(), truth.log_normalizer.to_bits(), "row {i}");
        assert_eq!(found.verification.map(|v| v.accepted), truth.accepted, "row {i}");
        assert!(found.top.iter().map(|listed| listed.token).eq(truth.kept[..1000].iter().copied()), "row {i}");
        if let Some(verification) = found.verification {
            assert!((verification.accept_probability - truth.accept_probability).abs() < 1e-12, "row {i}");
        }
        assert_eq!(bits(&Ok(found.clone())), bits(&case.solo()), "row {i} alone");
    }
    let deep = together.iter().filter(|found| found.as_ref().unwrap().kept > 35_000).count();
    assert!(deep > 15, "{deep} deep rows");
}

#[test]
fn both_zeros_are_one_value() {
    runner(300, 10)
        .run(&recipes(600), |recipe| {
            let case = Recipe { kind: Kind::Zeros, ..recipe }.case();
            let mut positive = case.clone();
            for l in &mut positive.logits {
                *l += 0.0;
            }
            prop_assert_eq!(bits(&positive.solo()), bits(&case.solo()));
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_draft_row_needs_only_the_valid_part_of_its_logprobs() {
    let case = Recipe {
        kind: Kind::Flat,
        vocab: 100,
        scale: 3.0,
        data_seed: 4,
        params: SamplingParams { seed: Some(3), ..Default::default() },
        position: 9,
        stream: Stream::Target,
        draft: None,
        edits: None,
    }
    .case();
    let exact = log_softmax(&case.logits);
    let longer: Vec<f32> = exact.iter().copied().chain([f32::NAN, f32::INFINITY]).collect();
    let draw = |logprobs: &[f32]| {
        let row = case.row().with_draft(Draft::new(17, logprobs));
        bits(&Logits::new(&case.logits, 1, 100).unwrap().draw(&[row]).unwrap()[0])
    };
    assert_eq!(draw(&exact), draw(&longer));
}
