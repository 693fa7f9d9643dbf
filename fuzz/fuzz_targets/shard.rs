//! A message between shards, damaged in any way, is refused; one that is whole is not.

#![no_main]

use klero::{Draft, Draw, Logits, Row, SamplingParams, Shard, ShardStep};
use libfuzzer_sys::fuzz_target;

const VOCABULARY: usize = 64 * 5;

fn begin<'a>(logits: &'a [f32], first: usize, rows: &[Row<'a>]) -> ShardStep<'a> {
    let batch = Logits::new(logits, 1, logits.len()).expect("one row").batch();
    batch.shard(Shard { first, vocabulary: VOCABULARY }, rows).expect("a shard that fits")
}

fuzz_target!(|bytes: &[u8]| {
    let [kind, damage @ ..] = bytes else { return };
    let params = SamplingParams {
        seed: Some(1),
        top_p: if kind & 1 == 1 { 0.9 } else { 1.0 },
        top_k: if kind & 2 == 2 { 20 } else { -1 },
        draw: if kind & 4 == 4 { Draw::InverseCdf } else { Draw::Gumbel },
        kept_ids: kind & 8 == 8,
        confidence: kind & 16 == 16,
        raw_logprobs: kind & 32 == 32,
        ..Default::default()
    };
    let draft = (kind & 64 == 64).then_some(Draft::one_hot(3));
    let rows = [Row { draft, ..Row::new(params.check().expect("in range"), 5) }];
    let logits: Vec<f32> = (0..VOCABULARY).map(|i| ((i * 7919 % 1013) as f32) / 200.0).collect();
    let (low, high) = logits.split_at(128);
    let (mut one, mut other) = (begin(low, 0, &rows), begin(high, 128, &rows));
    // Pairs of a place and a value, spread over the rounds.
    for round in damage.chunks(12) {
        let (Some(own), Some(message)) = (one.message(), other.message()) else { return };
        let (own, sound) = (own.to_vec(), message.to_vec());
        let mut damaged = sound.clone();
        for change in round.chunks_exact(3) {
            let place = (usize::from(change[0]) | usize::from(change[1]) << 8) % damaged.len();
            damaged[place] = change[2];
        }
        let whole = damaged == sound;
        match one.merge(&[own.clone(), damaged]) {
            Ok(next) if whole => one = next,
            Err(_) if !whole => return,
            _ => panic!("a damaged message was taken, or a whole one refused"),
        }
        other = other.merge(&[own, sound]).expect("whole messages");
    }
});
