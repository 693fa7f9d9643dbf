//! A vocabulary in shards: whatever the cut, every shard arrives at the bits of the whole.

mod common;

use common::recipes::{Recipe, recipes, runner};
use common::{Case, Kind, Rng, bits};
use klero::{Batch, Draw, Error, FusedHead, Logits, Outcome, Row, RowError, SamplingParams, Shard, ShardStep, Weights};
use proptest::prelude::*;
use std::cell::Cell;
use std::ops::Range;

type Rows<T> = Vec<Result<T, RowError>>;

/// Cuts `vocabulary` ids into at most `count` uneven shards at multiples of 64.
fn cut(vocabulary: usize, count: usize, rng: &mut Rng) -> Vec<Range<usize>> {
    let blocks = vocabulary.div_ceil(64);
    let mut ends: Vec<usize> = (1..count).map(|_| (rng.below(blocks + 1) * 64).min(vocabulary)).collect();
    ends.push(vocabulary);
    ends.sort_unstable();
    ends.dedup();
    let starts = [0].into_iter().chain(ends.clone());
    starts.zip(ends).map(|(start, end)| start..end).filter(|ids| !ids.is_empty()).collect()
}

/// Carries messages between shards until all are done. Returns what each found, and the bytes of each round.
fn carry<T>(mut steps: Vec<ShardStep<T>>) -> (Vec<Rows<T>>, Vec<usize>) {
    let mut rounds = Vec::new();
    loop {
        let mut messages: Vec<Vec<u8>> = steps.iter().filter_map(|step| step.message().map(<[u8]>::to_vec)).collect();
        if messages.is_empty() {
            let outcomes = steps.into_iter().map(|step| match step {
                ShardStep::Done(outcomes) => outcomes,
                ShardStep::Exchange(draw) => panic!("{draw:?} has no message"),
            });
            return (outcomes.collect(), rounds);
        }
        assert_eq!(messages.len(), steps.len(), "shards wait alike");
        rounds.push(messages.iter().map(Vec::len).sum());
        messages.rotate_left(rounds.len() % steps.len());
        steps = steps.into_iter().map(|step| step.merge(&messages).unwrap()).collect();
    }
}

/// The logits of each shard.
fn parts(cases: &[Case], shards: &[Range<usize>]) -> Vec<(Range<usize>, Vec<f32>)> {
    let part = |ids: &Range<usize>| cases.iter().flat_map(|case| case.logits[ids.clone()].to_vec()).collect();
    shards.iter().map(|ids| (ids.clone(), part(ids))).collect()
}

/// Begins a draw of cases of one vocabulary over one shard.
fn batch<'a>(cases: &'a [Case], (ids, part): &'a (Range<usize>, Vec<f32>)) -> (Batch<'a>, Shard) {
    let logits = Logits::new(part, cases.len(), ids.len()).unwrap().with_tile(64 * (1 + ids.start % 7));
    let shard = Shard { first: ids.start, vocabulary: cases[0].logits.len() };
    (logits.batch().with_policy(cases[0].edits.policy()), shard)
}

/// Draws cases of one vocabulary over shards.
fn sharded(cases: &[Case], shards: &[Range<usize>]) -> (Vec<Rows<Outcome>>, Vec<usize>) {
    let (parts, rows): (Vec<_>, Vec<Row>) = (parts(cases, shards), cases.iter().map(Case::row).collect());
    let mut steps = Vec::new();
    for part in &parts {
        let (batch, shard) = batch(cases, part);
        steps.push(batch.shard(shard, &rows).unwrap());
    }
    carry(steps)
}

/// The same for the tokens alone.
fn sharded_tokens(cases: &[Case], shards: &[Range<usize>]) -> (Vec<Rows<u32>>, Vec<usize>) {
    let (parts, rows): (Vec<_>, Vec<Row>) = (parts(cases, shards), cases.iter().map(Case::row).collect());
    let mut steps = Vec::new();
    for part in &parts {
        let (batch, shard) = batch(cases, part);
        steps.push(batch.shard_tokens(shard, &rows).unwrap());
    }
    carry(steps)
}

#[test]
fn every_cut_gives_the_bits_of_the_whole() {
    let (sound, several) = (Cell::new(0), Cell::new(0));
    let cuts = (prop::collection::vec(recipes(2), 1..5), 1usize..3000, 1usize..9, any::<u64>());
    runner(1200, 21)
        .run(&cuts, |(recipes, vocab, count, seed)| {
            let rng = &mut Rng::new(seed);
            let force_top_k = [0, 0, 5, 900][rng.below(4)];
            let case = |recipe: Recipe| Recipe { vocab, ..recipe }.case().under(force_top_k);
            let cases: Vec<Case> = recipes.into_iter().map(case).collect();
            let shards = cut(vocab, count, rng);
            let (found, _) = sharded(&cases, &shards);
            let (tokens, _) = sharded_tokens(&cases, &shards);
            prop_assert_eq!((found.len(), tokens.len()), (shards.len(), shards.len()));
            for (i, case) in cases.iter().enumerate() {
                let whole = bits(&case.solo());
                for outcomes in &found {
                    let part = outcomes[i].clone().map_err(|error| error.with_row(0));
                    prop_assert_eq!(&bits(&part), &whole, "row {} of {:?}", i, &shards);
                }
                for tokens in &tokens {
                    let token = found[0][i].as_ref().map(|outcome| outcome.token);
                    prop_assert_eq!(tokens[i].as_ref().ok().copied(), token.ok(), "bare row {} of {:?}", i, &shards);
                }
                sound.set(sound.get() + usize::from(whole.is_ok()));
            }
            several.set(several.get() + usize::from(shards.len() > 1));
            Ok(())
        })
        .unwrap();
    assert!(sound.get() > 2000 && several.get() > 700, "{} rows, {} cuts", sound.get(), several.get());
}

/// Rows whose kept ids no list holds: the search for the cut goes over shards as well.
#[test]
fn flat_rows_are_searched_over_shards() {
    let mut rng = Rng::new(4);
    for (i, kind) in [Kind::Flat, Kind::Equal, Kind::Real, Kind::Ternary, Kind::Ascending].into_iter().enumerate() {
        let vocab = 9000 + 777 * i;
        let cases: Vec<Case> = [(0.9, -1, 0.0), (0.6, 3000, 0.0), (1.0, 2000, 0.0), (1.0, -1, 0.2), (0.999, -1, 1e-3)]
            .into_iter()
            .flat_map(|(top_p, top_k, min_p)| {
                [Draw::Gumbel, Draw::InverseCdf].map(|draw| SamplingParams {
                    top_p,
                    top_k,
                    min_p,
                    draw,
                    seed: Some(i as u64),
                    ..Default::default()
                })
            })
            .map(|params| Case::new(kind.logits(7, vocab, 2.0), SamplingParams { kept_ids: true, ..params }))
            .collect();
        for count in [2, 3, 8] {
            let shards = cut(vocab, count, &mut rng);
            for outcomes in sharded(&cases, &shards).0 {
                for (case, outcome) in cases.iter().zip(&outcomes) {
                    assert_eq!(bits(outcome), bits(&case.solo()), "{:?} {kind:?} {shards:?}", case.params);
                }
            }
        }
    }
}

/// What goes over the wire: a constant for a bare token, the pairs of blocks for logprobs, a list for filters.
#[test]
fn messages_are_as_small_as_the_rows_allow() {
    let vocab = 64 * 300;
    let logits = Kind::Real.logits(3, vocab, 8.0);
    let shards = [0..64 * 100, 64 * 100..64 * 300];
    let run = |params: SamplingParams, bare| {
        let cases = [Case::new(logits.clone(), SamplingParams { seed: Some(5), ..params })];
        let rounds = if bare { sharded_tokens(&cases, &shards).1 } else { sharded(&cases, &shards).1 };
        (rounds.len(), rounds.iter().sum::<usize>())
    };
    let plain = SamplingParams::default;
    let (rounds, bytes) = run(plain(), true);
    assert!(rounds == 1 && bytes < 300, "a bare token: {rounds} rounds, {bytes} bytes");
    let (rounds, bytes) = run(SamplingParams { temperature: 0.0, ..plain() }, true);
    assert!(rounds == 1 && bytes < 300, "a bare greedy token: {rounds} rounds, {bytes} bytes");
    let (rounds, bytes) = run(plain(), false);
    assert!(rounds <= 2 && bytes < 300 * 8 + 600, "with its logprob: {rounds} rounds, {bytes} bytes");
    let (rounds, bytes) = run(SamplingParams { top_k: 20, ..plain() }, true);
    assert!(rounds == 1 && bytes < 2 * 20 * 8 + 300, "top-k alone: {rounds} rounds, {bytes} bytes");
    let (rounds, bytes) = run(SamplingParams { top_p: 0.9, top_k: 50, ..plain() }, false);
    assert!(rounds == 1 && bytes < 300 * 8 + 2 * 50 * 8 + 300, "top-p, top-k: {rounds} rounds, {bytes} bytes");
}

#[test]
fn a_fused_head_is_sharded_by_its_rows() {
    let (vocab, cols) = (64 * 5 + 17, 24);
    let mut rng = Rng::new(9);
    let data: Vec<f32> = (0..vocab * cols).map(|_| rng.normal() as f32).collect();
    let hidden: Vec<f32> = (0..3 * cols).map(|_| rng.normal() as f32).collect();
    let whole = Weights::f32(vocab, cols, &data[..]).unwrap();
    let params = SamplingParams { top_p: 0.8, seed: Some(2), top_logprobs: 4, ..Default::default() };
    let rows: Vec<Row> = (0..3).map(|t| Row::new(params.check().unwrap(), t)).collect();
    let expected = FusedHead::new(&whole).unwrap().draw(&hidden, &rows).unwrap();
    let shards = cut(vocab, 4, &mut rng);
    let parts: Vec<Weights> = shards
        .iter()
        .map(|ids| Weights::f32(ids.len(), cols, &data[ids.start * cols..ids.end * cols]).unwrap())
        .collect();
    let mut steps = Vec::new();
    for (ids, weights) in shards.iter().zip(&parts) {
        let batch = FusedHead::new(weights).unwrap().batch(&hidden).unwrap();
        steps.push(batch.shard(Shard { first: ids.start, vocabulary: vocab }, &rows).unwrap());
    }
    for found in carry(steps).0 {
        assert_eq!(found, expected);
    }
}

#[test]
fn shards_that_do_not_fit_are_refused() {
    let values = vec![0.5; 256];
    let sampling = SamplingParams { seed: Some(1), ..Default::default() }.check().unwrap();
    let rows = [Row::new(sampling, 0)];
    let begin = |ids: Range<usize>, vocabulary| {
        Logits::new(&values[ids.clone()], 1, ids.len())
            .unwrap()
            .batch()
            .shard(Shard { first: ids.start, vocabulary }, &rows)
    };
    for (ids, vocabulary) in [(32..64, 256), (0..100, 256), (0..128, 100), (64..128, 2 << 20)] {
        assert!(begin(ids.clone(), vocabulary).is_err(), "{ids:?} of {vocabulary}");
    }
    let refused = |step: ShardStep, messages: &[Vec<u8>]| match step.merge(messages) {
        Err(Error::Shards(text)) => text,
        other => panic!("{other:?}"),
    };
    let low = || begin(0..128, 256).unwrap();
    let message = |step: ShardStep| step.message().unwrap().to_vec();
    let (own, other) = (message(low()), message(begin(128..256, 256).unwrap()));
    assert!(refused(low(), &[]).contains("do not make up"));
    assert!(refused(low(), std::slice::from_ref(&own)).contains("do not make up"));
    assert!(refused(low(), &[own.clone(), own.clone(), other.clone()]).contains("do not make up"));
    assert!(refused(low(), &[own.clone(), message(begin(128..192, 192).unwrap())]).contains("another"));
    assert!(refused(low(), &[own.clone(), b"hello".to_vec()]).contains("too short"));
    assert!(refused(low(), &[own.clone(), vec![7; 400]]).contains("version"));
    let elsewhere = Row { position: 1, ..rows[0] };
    let moved = Logits::new(&values[128..], 1, 128).unwrap().batch();
    let moved = message(moved.shard(Shard { first: 128, vocabulary: 256 }, &[elsewhere]).unwrap());
    assert!(refused(low(), &[own.clone(), moved]).contains("other parameters, seeds or positions"));
    let both = [message(begin(0..64, 256).unwrap()), message(begin(64..256, 256).unwrap())];
    assert!(refused(low(), &both).contains("own message is missing"));
    // Cut short, or with any byte changed.
    for length in 0..other.len() {
        refused(low(), &[own.clone(), other[..length].to_vec()]);
    }
    let mut rng = Rng::new(3);
    for _ in 0..20_000 {
        let mut damaged = other.clone();
        for _ in 0..1 + rng.below(3) {
            let place = rng.below(damaged.len());
            damaged[place] = rng.bits() as u8;
        }
        if damaged != other {
            refused(low(), &[own.clone(), damaged]);
        }
    }
}

#[test]
fn finish_runs_to_the_end_and_passes_on_what_all_gather_fails_with() {
    let values: Vec<f32> = (0..192).map(|i| (i % 17) as f32).collect();
    let sampling = SamplingParams { seed: Some(1), top_p: 0.5, ..Default::default() }.check().unwrap();
    let rows = [Row::new(sampling, 3)];
    let batch = || Logits::new(&values, 1, 192).unwrap().batch();
    let alone = batch().shard(Shard { first: 0, vocabulary: 192 }, &rows).unwrap();
    let outcomes = alone.finish(|own| Ok::<_, Error>(vec![own.to_vec()])).unwrap();
    assert_eq!(outcomes, batch().draw(&rows).unwrap());
    let alone = batch().shard(Shard { first: 0, vocabulary: 192 }, &rows).unwrap();
    let lost = alone.finish(|_| Err(Error::Shards("the line is cut".to_owned())));
    assert_eq!(lost, Err(Error::Shards("the line is cut".to_owned())));
}
