//! The whole draw beside the oracle: wherever no decision is closer than the oracle's margin, both must agree on the token,
//! the kept ids and the acceptance.

#![no_main]

use klero::{Draft, Draw, Edits, FilterOrder, History, LogitBias, Logits, Policy, Row, SamplingParams};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;

/// Bytes, read one after the other; zeros once they end.
struct Bytes<'b>(&'b [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn unit(&mut self) -> f64 {
        f64::from(self.next()) / 256.0
    }

    fn ids(&mut self, vocabulary: usize) -> Vec<u32> {
        let count = self.next() % 8;
        (0..count).map(|_| u32::from(self.next()) % vocabulary as u32).collect()
    }
}

fn logit(byte: u8) -> f32 {
    match byte {
        255 => f32::NAN,
        254 => f32::INFINITY,
        250..=253 => f32::NEG_INFINITY,
        _ => (f32::from(byte) - 125.0) / 16.0,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = Bytes(bytes);
    let flags = bytes.next();
    let on = |bit: u8| flags >> bit & 1 == 1;
    let params = SamplingParams {
        temperature: [1.0, 0.0, 0.5, 3.0][usize::from(bytes.next() % 4)],
        top_p: if on(0) { (bytes.unit() + 1e-3).min(1.0) } else { 1.0 },
        top_k: if on(1) { 1 + i64::from(bytes.next()) } else { -1 },
        min_p: if on(2) { bytes.unit() } else { 0.0 },
        filter_order: if on(3) { FilterOrder::MinPFirst } else { FilterOrder::TopPFirst },
        repetition_penalty: 0.5 + 2.0 * bytes.unit(),
        frequency_penalty: bytes.unit() - 0.5,
        presence_penalty: bytes.unit() - 0.5,
        seed: Some(u64::from(bytes.next())),
        draw: if on(4) { Draw::InverseCdf } else { Draw::Gumbel },
        kept_ids: true,
        ..Default::default()
    };
    let vocabulary = 1 + 5 * usize::from(bytes.next());
    let (prompt, output, banned) = (bytes.ids(vocabulary), bytes.ids(vocabulary), bytes.ids(vocabulary));
    let bias = bytes.ids(vocabulary).into_iter().collect::<BTreeSet<u32>>();
    let bias: Vec<(u32, f32)> = bias.into_iter().map(|id| (id, 8.0 * bytes.unit() as f32 - 4.0)).collect();
    let force_top_k = if on(5) { usize::from(bytes.next()) } else { 0 };
    let token = i64::from(bytes.next()) % (vocabulary as i64 + 1) - 1;
    let logits: Vec<f32> = (0..vocabulary).map(|_| logit(bytes.next())).collect();
    let (guessed, coupled) = (on(6), on(7));

    let mut history = History::of_prompt(prompt.iter().copied());
    output.iter().for_each(|id| history.write(*id));
    let logit_bias = LogitBias::new(bias.iter().map(|(id, bias)| (*id, f64::from(*bias)))).expect("finite, each once");
    let banned_ids = banned.iter().copied().collect();
    let edits =
        Edits { history: Some(&history), bias: Some(&logit_bias), banned: Some(&banned_ids), ..Default::default() };
    let draft = match (guessed, coupled) {
        (false, _) => None,
        (true, false) => Some(Draft::one_hot(token).with_delta(0.0)),
        (true, true) => Some(Draft::coupled(token)),
    };
    let row = Row { draft, ..Row::new(params.check().expect("in range"), 3).with_edits(edits) };
    let policy = Policy { blacklist: None, force_top_k: force_top_k.try_into().ok() };
    let batch = Logits::new(&logits, 1, vocabulary).expect("one row").batch().with_policy(policy);
    let found = batch.draw(&[row]).expect("one row").remove(0);

    let oracle = klero_oracle::Params {
        temperature: params.temperature,
        top_p: params.top_p,
        top_k: params.top_k,
        min_p: params.min_p,
        min_p_first: params.filter_order == FilterOrder::MinPFirst,
        repetition_penalty: params.repetition_penalty,
        frequency_penalty: params.frequency_penalty,
        presence_penalty: params.presence_penalty,
        force_top_k,
        draw: if on(4) { klero_oracle::Draw::InverseCdf } else { klero_oracle::Draw::Gumbel },
        seed: params.seed.unwrap_or_default(),
        position: 3,
        mtp: false,
        delta: 0.0,
    };
    let edits = klero_oracle::Edits { prompt: &prompt, output: &output, bias: &bias, banned: &banned, allowed: None };
    let proposal = if coupled { klero_oracle::Proposal::Coupled } else { klero_oracle::Proposal::OneHot };
    let draft = guessed.then_some(klero_oracle::Draft { token, proposal });
    let truth = klero_oracle::draw_edited(&logits, vocabulary, &oracle, &edits, draft.as_ref());
    match (found, truth) {
        (Ok(found), Ok(truth)) => {
            if truth.margin > 2e-6 {
                let mut kept: Vec<u32> = truth.kept_ids.iter().map(|id| *id as u32).collect();
                kept.sort_unstable();
                assert_eq!(found.kept_ids, Some(kept));
                assert_eq!(found.token as usize, truth.token);
                assert_eq!(found.verification.map(|v| v.accepted), truth.verification.map(|v| v.accepted));
                assert!((found.logprob - truth.logprob).abs() < 1e-6);
            }
        }
        (found, truth) => {
            let status = truth.err().map(|status| match status {
                klero_oracle::Status::Nan(_) => "nan",
                klero_oracle::Status::Infinite(_) => "infinite",
                klero_oracle::Status::Empty => "empty",
            });
            assert_eq!(found.err().map(|error| error.status()), status);
        }
    }
});
