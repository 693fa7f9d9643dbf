//! Worked cases of the law, small enough to check by hand.

use klero_oracle::golden::{Generator, Kind};
use klero_oracle::hash::sample_seed;
use klero_oracle::hash::{Case, noise, row_hash, splitmix64};
use klero_oracle::{Draft, Draw, Edits, Outcome, Params, Proposal, Status, draw, draw_edited};

const NEG: f32 = f32::NEG_INFINITY;

/// Logits whose softmax at temperature 1 is `probabilities`.
fn logits_of(probabilities: &[f64]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln() as f32).collect()
}

fn run(logits: &[f32], params: Params) -> Outcome {
    draw(logits, logits.len(), &params, None).expect("a good row")
}

fn kept(logits: &[f32], top_p: f64, top_k: i64, min_p: f64) -> Vec<usize> {
    run(logits, Params { top_p, top_k, min_p, ..Params::default() }).kept_ids
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

#[test]
fn top_p_cuts_the_whole_distribution_and_top_k_what_is_left() {
    assert_eq!(kept(&logits_of(&[0.5, 0.3, 0.2]), 0.55, 2, 0.0), [0, 1]);

    let logits = logits_of(&[0.1, 0.2, 0.3, 0.4]);
    let outcome = run(&logits, Params { top_p: 0.5, top_k: 2, ..Params::default() });
    assert_eq!(outcome.kept_ids, [3, 2]);
    assert_eq!(outcome.probabilities[..2], [0.0, 0.0]);
    assert!(close(outcome.probabilities[2], 3.0 / 7.0) && close(outcome.probabilities[3], 4.0 / 7.0));
}

#[test]
fn an_id_stays_where_the_mass_before_it_equals_top_p() {
    let outcome = run(&[1.0, 1.0, 1.0, 1.0], Params { top_p: 0.5, ..Params::default() });
    assert_eq!(outcome.kept_ids, [0, 1, 2]);
    assert_eq!(outcome.margin, 0.0);
}

#[test]
fn the_first_id_always_stays() {
    let outcome = run(&[0.0, 3.0, 1.0], Params { top_p: 1e-30, ..Params::default() });
    assert_eq!((outcome.kept_ids.as_slice(), outcome.token, outcome.logprob), ([1].as_slice(), 1, 0.0));
    assert!(outcome.margin > 0.5, "what can never be removed is no close decision: {}", outcome.margin);
}

#[test]
fn ties_go_by_lower_id() {
    assert_eq!(kept(&[5.0, 5.0, 5.0, 5.0, 1.0], 1.0, 2, 0.0), [0, 1]);
    assert_eq!(kept(&[-0.0, 0.0, -1.0], 1.0, 1, 0.0), [0]);
    assert_eq!(kept(&[0.0, -0.0, -1.0], 1.0, 1, 0.0), [0]);
    assert_eq!(kept(&[1.0, 7.0, 7.0], 0.4, -1, 0.0), [1]);
    assert_eq!(kept(&[1.0, 7.0, 7.0], 0.5, -1, 0.0), [1, 2]);
}

#[test]
fn min_p_is_relative_to_the_best() {
    assert_eq!(kept(&logits_of(&[0.05, 0.55, 0.10, 0.30]), 1.0, -1, 0.5), [1, 3]);
    assert_eq!(kept(&logits_of(&[0.05, 0.55, 0.10, 0.30]), 1.0, 1, 0.5), [1]);
}

#[test]
fn ids_at_minus_infinity_take_no_part() {
    let outcome = run(&[NEG, 0.0, NEG, 0.0], Params { top_k: 3, top_p: 0.9, ..Params::default() });
    assert_eq!((outcome.kept, outcome.kept_ids.as_slice()), (2, [1, 3].as_slice()));
    assert!(close(outcome.log_normalizer, 2f64.ln()));
}

#[test]
fn below_the_least_temperature_equal_best_logits_share_everything() {
    let params = Params { top_k: 1, top_p: 0.1, min_p: 0.9, ..Params::default() };
    let share = |temperature: f64| {
        let logits = [99.0, 100.0, 3.0, 100.0];
        let drawn = |seed| run(&logits, Params { temperature, seed, ..params }).token;
        (0..400).filter(|&seed| drawn(seed) == 3).count()
    };
    for temperature in [0.0, -0.0, 9.99e-6] {
        assert!((140..=260).contains(&share(temperature)), "T = {temperature}: {}", share(temperature));
    }
    assert_eq!(share(1e-5), 0, "at the least temperature itself top_k = 1 holds");

    let outcome = run(&[1.0, 1.0, 0.999], Params { temperature: 0.0, ..params });
    assert_eq!(outcome.kept, 3, "every filter is off");
    assert_eq!(outcome.probabilities[..2], [0.5, 0.5]);
}

#[test]
fn statuses_and_their_precedence() {
    let status = |logits: &[f32], valid, temperature| {
        let params = Params { temperature, ..Params::default() };
        draw(logits, valid, &params, None).map(|outcome| outcome.token)
    };
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    assert_eq!(status(&[0.0, inf, nan, nan], 4, 1.0), Err(Status::Nan(2)));
    assert_eq!(status(&[0.0, NEG, inf, inf], 4, 1.0), Err(Status::Infinite(2)));
    assert_eq!(status(&[0.0, 1e38], 2, 0.1), Err(Status::Infinite(1)), "overflow");
    assert_eq!(status(&[0.0, -1e38], 2, 0.1), Err(Status::Infinite(1)), "overflow below");
    assert_eq!(status(&[0.0, 3e38, nan], 3, 0.1), Err(Status::Nan(2)));
    assert_eq!(status(&[NEG, NEG], 2, 1.0), Err(Status::Empty));
    assert_eq!(status(&[], 0, 1.0), Err(Status::Empty));
    assert_eq!(status(&[1.0], 0, 1.0), Err(Status::Empty));
    assert_eq!(status(&[1.0, nan, inf, 1e38], 1, 0.1), Ok(0), "padding may hold anything");
    assert_eq!(status(&[1.0], 9, 1.0), Ok(0));
}

#[test]
fn a_bad_draft_is_refused_where_the_target_is_unmasked() {
    let status = |draft: [f32; 3]| {
        let draft = Draft::new(0, &draft);
        let edits = Edits { banned: &[2], ..Edits::default() };
        draw_edited(&[0.0; 3], 3, &Params::default(), &edits, Some(&draft)).map(|_| ()).unwrap_err()
    };
    assert_eq!(status([0.1, f32::NAN, 0.0]), Status::Nan(1));
    assert_eq!(status([0.0, f32::INFINITY, f32::NAN]), Status::Infinite(1));
    assert_eq!(status([0.002, f32::INFINITY, 0.0]), Status::Infinite(0));

    let elsewhere = Draft::new(2, &[NEG, NEG, 0.0]);
    let outcome = draw(&[0.0, 0.0, NEG], 3, &Params::default(), Some(&elsewhere)).unwrap();
    let verification = outcome.verification.unwrap();
    assert!(!verification.accepted && outcome.token < 2, "a draft of a masked token is only rejected");
    assert_eq!((verification.accept_probability, verification.draft_logprob), (0.0, 0.0));
}

#[test]
fn inverse_cdf_follows_the_uniform_number_in_vocabulary_order() {
    let logits = logits_of(&[0.1, 0.2, 0.3, 0.4]);
    for position in 0..200 {
        let outcome = run(&logits, Params { draw: Draw::InverseCdf, position, ..Params::default() });
        let running = [0.1, 0.3, 0.6, 1.0];
        assert_eq!(Some(outcome.token), running.iter().position(|&mass| mass > outcome.uniform));
    }
}

#[test]
fn gumbel_keeps_the_winner_when_a_filter_keeps_it() {
    let logits = Generator { kind: Kind::Flat, seed: 3, scale: 6.0 }.logits(100);
    for seed in 0..200 {
        let free = run(&logits, Params { seed, ..Params::default() });
        let cut = run(&logits, Params { seed, top_k: 30, ..Params::default() });
        if cut.kept_ids.contains(&free.token) {
            assert_eq!((cut.token, cut.noise), (free.token, free.noise));
        }
    }
}

#[test]
fn the_margin_of_a_gumbel_draw_is_its_lead() {
    let outcome = run(&[1.0, 0.5], Params { seed: 8, ..Params::default() });
    let score = |id: usize| [1.0, 0.5][id] + noise(outcome.row_hash, id).gumbel;
    let lead = (score(0) - score(1)).abs();
    assert_eq!(outcome.token, usize::from(score(1) > score(0)));
    assert!((outcome.margin - lead).abs() < 1e-8, "{} for {lead}", outcome.margin);
}

#[test]
fn the_draft_stream_is_another_seed() {
    let logits = [0.0; 50];
    let mtp = run(&logits, Params { seed: u64::MAX, mtp: true, ..Params::default() });
    let moved = run(&logits, Params { seed: 1_000_000_006, ..Params::default() });
    assert_eq!((mtp.row_hash, mtp.token), (moved.row_hash, moved.token));
}

#[test]
fn hashes_of_the_three_cases() {
    let g = 0x9E37_79B9_7F4A_7C15_u64;
    let q = |c: u64| (3 * 5 + c).wrapping_mul(g);
    let scattered = |c: u64| splitmix64(9u64.wrapping_add(q(c) ^ (q(c) << 13)));
    assert_eq!(row_hash(9, 5, Case::Draw), scattered(0));
    assert_eq!(row_hash(9, 5, Case::Residual), scattered(1));
    assert_eq!(row_hash(9, 5, Case::Accept), splitmix64(9 ^ q(2)));
}

#[test]
fn logprobs_of_the_processed_and_of_the_raw_distribution() {
    let logits = logits_of(&[0.1, 0.2, 0.3, 0.4]);
    let outcome = draw(&logits, 3, &Params { temperature: 2.0, top_k: 1, ..Params::default() }, None).unwrap();
    assert_eq!((outcome.token, outcome.logprob), (2, 0.0));
    assert!(close(outcome.raw_logprob, 0.5f64.ln()), "0.3 of the valid 0.6");
    let roots = [0.1f64, 0.2, 0.3].map(f64::sqrt);
    assert!(close(outcome.log_normalizer, roots.iter().sum::<f64>().ln()));
}

/// Target (0.5, 0.3, 0.2) against draft (0.2, 0.6, 0.2), δ = 0: R = (0.3, 0, 0).
#[test]
fn rejection_by_hand() {
    let logits = logits_of(&[0.5, 0.3, 0.2]);
    let draft = logits_of(&[0.2, 0.6, 0.2]);
    for (draw_by, seed) in [Draw::Gumbel, Draw::InverseCdf].into_iter().flat_map(|d| (0..100).map(move |s| (d, s))) {
        let params = Params { draw: draw_by, seed, delta: 0.0, ..Params::default() };
        let verify = |token| draw(&logits, 3, &params, Some(&Draft::new(token, &draft))).unwrap();
        let outcome = verify(1);
        let verification = outcome.verification.unwrap();
        assert!(close(verification.accept_probability, 0.7) && close(verification.draft_logprob, 0.6f64.ln()));
        assert_eq!(verification.accepted, verification.accept_uniform < 0.5);
        assert_eq!(outcome.token, usize::from(verification.accepted), "only id 0 has a residual");
        assert!(verify(0).verification.unwrap().accepted, "the target likes id 0 better than the draft did");

        let none = verify(-1);
        let verification = none.verification.unwrap();
        assert_eq!((none.token, verification.accepted), (0, false));
        assert_eq!(verification.draft_logprob, f64::NEG_INFINITY);
        assert!(!verify(7).verification.unwrap().accepted, "nor has the target an id 7");
    }
}

#[test]
fn without_any_residual_the_best_token_is_taken() {
    let draft = Draft::new(-1, &[0.0, 0.0, 0.0]);
    let params = Params { delta: 0.0, ..Params::default() };
    let outcome = draw(&[1.0, 2.0, 2.0], 3, &params, Some(&draft)).unwrap();
    assert_eq!((outcome.token, outcome.noise), (1, None));
    assert_eq!(outcome.verification.unwrap().accept_probability, 1.0);
}

/// Emitted tokens must have the target's distribution whatever the draft was: here over 20 000 seeds, with the
/// draft's token drawn from the draft. The bound is six standard deviations for each of four ids.
#[test]
fn verified_tokens_have_the_targets_distribution() {
    const ROWS: u64 = 20_000;
    let (target, proposal) = ([0.1, 0.2, 0.3, 0.4], [0.4, 0.1, 0.4, 0.1]);
    let (logits, draft) = (logits_of(&target), logits_of(&proposal));
    for draw_by in [Draw::Gumbel, Draw::InverseCdf] {
        let mut counts = [0u32; 4];
        for seed in 0..ROWS {
            let params = Params { draw: draw_by, seed, delta: 0.0, ..Params::default() };
            let drafted = run(&draft, Params { mtp: true, ..params }).token;
            let draft = Draft::new(drafted as i64, &draft);
            counts[draw(&logits, 4, &params, Some(&draft)).unwrap().token] += 1;
        }
        for (id, p) in target.into_iter().enumerate() {
            let deviation = f64::from(counts[id]) - ROWS as f64 * p;
            assert!(deviation.abs() < 6.0 * (ROWS as f64 * p * (1.0 - p)).sqrt(), "{draw_by:?} {counts:?}");
        }
    }
}

#[test]
fn parameters_are_rounded_once_and_the_clamp_looks_at_the_value_given() {
    let given = Params { temperature: 0.7, top_p: 0.1, min_p: 0.3, top_k: 9, ..Params::default() };
    let effective = given.effective();
    assert_eq!(
        [effective.temperature, effective.top_p, effective.min_p],
        [f64::from(0.7f32), f64::from(0.1f32), f64::from(0.3f32)]
    );
    let clamped = Params { temperature: f64::from(1e-5f32), ..given }.effective();
    assert_eq!((clamped.temperature, clamped.top_k), (f64::from(1e-5f32), -1), "1e-5 rounded to f32 lies below 1e-5");
    assert_eq!((clamped.top_p, clamped.min_p), (1.0, 0.0));
    assert_eq!(Params { temperature: 1e-5, ..given }.effective().top_k, 9);
}

#[test]
fn delta_is_what_a_perfect_draft_leaves() {
    let logits = logits_of(&[0.5, 0.5]);
    let outcome = draw(&logits, 2, &Params::default(), Some(&Draft::new(-1, &logits))).unwrap();
    let chance = outcome.verification.unwrap().accept_probability;
    assert!((chance - (-5e-5f64).exp()).abs() < 1e-7, "{chance}");
}

/// The promise of `margin`: an implementation that rounds otherwise decides alike wherever the margin is large enough.
///
/// Its rounding is played by another temperature, which moves every x by as much of itself and leaves their order
/// alone. The next f32 stands for honest rounding, against the margin that tests use; ten thousand times as much, and
/// as much more margin, finds plenty of close decisions of every kind.
#[test]
fn decisions_beyond_the_margin_do_not_flip() {
    let wobble = |step: f32, threshold: f64| {
        let (mut beyond, mut flips) = (0, 0);
        for row in 0..WOBBLE_ROWS {
            let truth = wobbly_draw(row, 1.0);
            let same = decided(&truth) == decided(&wobbly_draw(row, 1.0 + step));
            if truth.margin > threshold {
                assert!(same, "row {row}, margin {}", truth.margin);
                beyond += 1;
            }
            flips += u64::from(!same);
        }
        (beyond, flips)
    };
    let (beyond, _) = wobble(f32::EPSILON, 2e-6);
    assert!(beyond * 100 > WOBBLE_ROWS * 95, "only {beyond} rows can be compared at all");
    let (beyond, flips) = wobble(1e-3, 2e-2);
    assert!(beyond * 100 > WOBBLE_ROWS * 20 && flips > 50, "{beyond} beyond, {flips} flips");
}

const WOBBLE_ROWS: u64 = 40_000;

fn decided(outcome: &Outcome) -> (usize, usize, Option<bool>) {
    (outcome.token, outcome.kept, outcome.verification.map(|v| v.accepted))
}

/// A small row of any kind, with or without a draft that may or may not resemble it.
fn wobbly_draw(row: u64, temperature: f32) -> Outcome {
    let bits = splitmix64(row);
    let pick = |shift: u32, n: usize| (bits >> shift) as usize % n;
    let vocab = [2, 3, 17, 200][pick(0, 4)];
    let kind = [Kind::Flat, Kind::Peaked, Kind::Ternary][pick(4, 3)];
    let generated = |seed| Generator { kind, seed, scale: 8.0 }.logits(vocab);
    let logits = generated(row);
    let proposal = generated(row + pick(8, 2) as u64);
    let sum: f64 = proposal.iter().map(|&l| f64::from(l).exp()).sum();
    let logprobs: Vec<f32> = proposal.iter().map(|&l| (f64::from(l) - sum.ln()) as f32).collect();
    let draft = Draft::new(pick(12, vocab + 1) as i64 - 1, &logprobs);
    let draft = (pick(16, 3) > 0).then_some(draft);
    let params = Params {
        temperature: temperature.into(),
        top_p: [1.0, 1.0, 0.9, 0.5][pick(20, 4)],
        top_k: [-1, 5, 40][pick(24, 3)],
        min_p: [0.0, 0.0, 0.0, 0.1][pick(28, 4)],
        draw: [Draw::Gumbel, Draw::InverseCdf][pick(32, 2)],
        seed: row,
        ..Params::default()
    };
    draw(&logits, vocab, &params, draft.as_ref()).unwrap()
}

/// A row whose logits are edited.
fn edited(logits: &[f32], params: Params, edits: Edits) -> Result<Outcome, Status> {
    draw_edited(logits, logits.len(), &params, &edits, None)
}

#[test]
fn penalties_look_at_the_sign_and_count_what_was_written() {
    let params =
        Params { repetition_penalty: 2.0, frequency_penalty: 0.5, presence_penalty: 0.25, ..Params::default() };
    let edits = Edits { prompt: &[0, 1], output: &[1, 2, 2, 9], ..Edits::default() };
    let outcome = edited(&[1.0, -1.0, 1.0, 1.0], params, edits).unwrap();
    // 1 / 2; −1 · 2 − (0.5 + 0.25); 1 / 2 − (2 · 0.5 + 0.25); untouched.
    let expected = Params::default();
    let same = edited(&[0.5, -2.75, -0.75, 1.0], expected, Edits::default()).unwrap();
    assert_eq!(outcome.probabilities, same.probabilities);
}

#[test]
fn stages_follow_each_other() {
    // The penalty comes before the bias: (−1 · 2) + 3 = 1, not (−1 + 3) / 2.
    let params = Params { repetition_penalty: 2.0, ..Params::default() };
    let edits = Edits { prompt: &[0], bias: &[(0, 3.0)], ..Edits::default() };
    let outcome = edited(&[-1.0, 1.0], params, edits).unwrap();
    assert!(close(outcome.probabilities[0], 0.5));
    // A ban has the last word over a bias, and a mask over both.
    let edits = Edits { bias: &[(0, 50.0), (1, 40.0)], banned: &[0], allowed: Some(&[0b1101]), ..Edits::default() };
    assert_eq!(edited(&[0.0; 4], Params::default(), edits).unwrap().kept_ids, [2, 3]);
    // −∞ stays −∞ under a bias.
    let edits = Edits { bias: &[(0, 50.0)], ..Edits::default() };
    assert_eq!(edited(&[NEG, 0.0], Params::default(), edits).unwrap().kept_ids, [1]);
}

#[test]
fn force_top_k_counts_after_the_mask_and_before_temperature() {
    let params = Params { force_top_k: 2, ..Params::default() };
    let edits = Edits { banned: &[0], ..Edits::default() };
    let outcome = edited(&[9.0, 1.0, 3.0, 1.0], params, edits).unwrap();
    assert_eq!(outcome.kept_ids, [2, 1]);
    // What it removes is in no sum.
    assert!(close(outcome.log_normalizer, (3f64.exp() + 1f64.exp()).ln()));
    // Logits apart that are one x: the larger logit counts, whatever its id.
    let close_logits = [1.0, 1.0 + f32::EPSILON];
    let params = Params { force_top_k: 1, temperature: 3e38, ..Params::default() };
    assert_eq!(edited(&close_logits, params, Edits::default()).unwrap().kept_ids, [1]);
}

#[test]
fn only_unmasked_ids_are_judged() {
    let logits = [f32::NAN, f32::INFINITY, 0.0, 1e38];
    let banned = |banned: &'static [u32]| Edits { banned, ..Edits::default() };
    let status = |params, edits| {
        edited(&logits, params, edits).map(|outcome| outcome.kept).unwrap_or_else(|error| match error {
            Status::Nan(id) => 100 + id,
            Status::Infinite(id) => 200 + id,
            Status::Empty => 300,
        })
    };
    let plain = Params::default();
    assert_eq!(status(plain, banned(&[])), 100);
    assert_eq!(status(plain, banned(&[0])), 201);
    assert_eq!(status(plain, banned(&[0, 1])), 2);
    assert_eq!(status(plain, banned(&[0, 1, 2, 3])), 300);
    let biased = Edits { bias: &[(3, 3e38)], ..banned(&[0, 1]) };
    assert_eq!(status(plain, biased), 203);
    assert_eq!(status(Params { temperature: 0.1, ..plain }, banned(&[0, 1])), 203);
    // Ids that force_top_k removes are judged too.
    let edits = Edits { bias: &[(2, 1.0)], ..Edits::default() };
    let forced = Params { force_top_k: 1, ..plain };
    assert_eq!(edited(&[3.0, 1.0, f32::NAN], forced, edits).unwrap_err(), Status::Nan(2));
    // A masked id that holds no number is not in the raw distribution either.
    let outcome = edited(&[f32::NAN, 0.0, 0.0], plain, banned(&[0])).unwrap();
    assert!(close(outcome.raw_logprob, 0.5f64.ln()));
}

#[test]
fn the_other_order_cuts_to_k_first_and_leaves_equality_out() {
    let logits = logits_of(&[0.5, 0.3, 0.2]);
    let params = Params { top_k: 2, top_p: 0.55, ..Params::default() };
    assert_eq!(run(&logits, params).kept_ids, [0, 1]);
    assert_eq!(run(&logits, Params { min_p_first: true, ..params }).kept_ids, [0]);
    let even = Params { top_p: 0.5, min_p_first: true, ..Params::default() };
    assert_eq!(run(&[1.0; 4], even).kept_ids, [0, 1]);
    assert_eq!(run(&[1.0; 4], Params { top_p: 1e-30, ..even }).kept_ids, [0]);
    assert_eq!(run(&[1.0; 4], Params { top_p: 1.0, ..even }).kept_ids, [0, 1, 2, 3]);
}

#[test]
fn a_guess_is_accepted_at_the_targets_probability() {
    let logits = logits_of(&[0.5, 0.3, 0.2]);
    let guess = Draft { token: 1, proposal: Proposal::OneHot };
    let (mut accepted, mut replaced) = (0, [0, 0, 0]);
    for position in 0..4000 {
        let params = Params { position, delta: 0.0, ..Params::default() };
        let outcome = draw(&logits, 3, &params, Some(&guess)).unwrap();
        let verification = outcome.verification.unwrap();
        assert!(close(verification.accept_probability, 0.3));
        if verification.accepted {
            accepted += 1;
        } else {
            replaced[outcome.token] += 1;
        }
    }
    assert!((1080..1320).contains(&accepted), "{accepted} of 4000");
    assert_eq!(replaced[1], 0, "a guess is never replaced by itself");
    let nothing = Draft { token: -1, proposal: Proposal::OneHot };
    let outcome = draw(&logits, 3, &Params::default(), Some(&nothing)).unwrap();
    assert!(close(outcome.residual.unwrap()[0], 0.5));
}

#[test]
fn a_coupled_draft_changes_no_token() {
    let logits = logits_of(&[0.5, 0.3, 0.2]);
    for position in 0..50 {
        let params = Params { position, ..Params::default() };
        let plain = run(&logits, params).token;
        for token in -1..3 {
            let draft = Draft { token, proposal: Proposal::Coupled };
            let outcome = draw(&logits, 3, &params, Some(&draft)).unwrap();
            assert_eq!(outcome.token, plain);
            let verification = outcome.verification.unwrap();
            assert_eq!(verification.accepted, token == plain as i64);
            let p = if token < 0 { 0.0 } else { outcome.probabilities[token as usize] };
            assert_eq!(verification.accept_probability, p);
        }
    }
}

#[test]
fn how_sure_a_distribution_is() {
    let outcome = run(&logits_of(&[0.5, 0.25, 0.25]), Params { top_k: 1, ..Params::default() });
    assert_eq!((outcome.entropy, outcome.largest_probability, outcome.smaller_probability), (0.0, 1.0, 0.0));
    let outcome = run(&logits_of(&[0.5, 0.25, 0.25]), Params::default());
    assert!(close(outcome.entropy, 1.5 * 2f64.ln()) && close(outcome.largest_probability, 0.5));
    assert!(close(outcome.smaller_probability, if outcome.token == 0 { 0.5 } else { 0.0 }));
}

#[test]
fn samples_have_seeds_of_their_own() {
    assert_eq!(sample_seed(7, 0), 7);
    assert_eq!(sample_seed(7, 3), splitmix64(7 ^ splitmix64(3)));
}
