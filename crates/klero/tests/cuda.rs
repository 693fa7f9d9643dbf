//! The card against the CPU: from equal logits, equal tokens and equal bits; and a row's result alone, whatever is beside it.
//!
//! `./test gpu` runs these; without a card they say so and pass.

use cudarc::driver::{CudaSlice, DevicePtr, sys};
use half::{bf16, f16};
use klero::cuda::{CudaError, Device, Drawn, Head, Inputs, Outputs, Want};
use klero::hash::splitmix64;
use klero::{Edits, LogitBias, Logits, Row, RowError, SamplingParams, Weights};
use std::collections::BTreeSet;

/// The card, or None with a printed reason.
fn device() -> Option<Device> {
    match Device::new(0) {
        Ok(device) => Some(device),
        Err(error @ (CudaError::NoDriver | CudaError::NoNvrtc(_))) => {
            assert!(std::env::var_os("KLERO_GPU").is_none(), "a card is expected: {error}");
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A stream of numbers that depend on nothing but where it begins.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        splitmix64(self.0)
    }

    fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Nearly normal: twelve uniform numbers.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }
}

fn row(temperature: f64, seed: u64, position: u64) -> Row<'static> {
    let sampling = SamplingParams { temperature, seed: Some(seed), ..Default::default() }.check().unwrap();
    Row::new(sampling, position)
}

/// Compares what the card drew with what the CPU draws from `logits`, to the bit.
fn agree(drawn: &[Result<Drawn, RowError>], logits: &[f32], rows: &[Row], what: &str) {
    let cpu = Logits::new(logits, rows.len(), logits.len() / rows.len()).unwrap().draw(rows).unwrap();
    for (r, (card, cpu)) in drawn.iter().zip(&cpu).enumerate() {
        match (card, cpu) {
            (Ok(card), Ok(cpu)) => {
                assert_eq!(card.token, cpu.token, "{what}, row {r}: {card:?}, {cpu:?}");
                assert_eq!(
                    card.log_normalizer.to_bits(),
                    cpu.log_normalizer.to_bits(),
                    "{what}, row {r}: {card:?}, {cpu:?}"
                );
                assert_eq!(card.logprob.to_bits(), cpu.logprob.to_bits(), "{what}, row {r}: {card:?}, {cpu:?}");
                assert_eq!(card.seed, cpu.seed);
            }
            (Err(card), Err(cpu)) => assert_eq!(card, cpu, "{what}, row {r}"),
            (card, cpu) => panic!("{what}, row {r}: {card:?} on the card, {cpu:?} on the CPU"),
        }
    }
}

/// A row of logits of a kind: normal, tied, sparse, tiny, huge, or with a fault.
fn kind_of_row(kind: usize, vocabulary: usize, random: &mut Random) -> Vec<f32> {
    let mut logits: Vec<f32> = (0..vocabulary).map(|_| random.normal() * 3.0).collect();
    let any = |random: &mut Random| random.bits() as usize % vocabulary;
    match kind % 12 {
        0 => logits.iter_mut().for_each(|l| *l = l.round()),
        1 => logits.iter_mut().for_each(|l| *l = 0.0),
        2 => logits.iter_mut().for_each(|l| *l = if *l > 0.0 { 0.0 } else { -0.0 }),
        3 => logits.iter_mut().for_each(|l| *l = if *l > 3.0 { *l } else { f32::NEG_INFINITY }),
        4 => logits.iter_mut().for_each(|l| *l *= 1e-40),
        5 => logits.iter_mut().for_each(|l| *l *= 1e6),
        6 => logits[any(random)] = f32::NAN,
        7 => logits[any(random)] = f32::INFINITY,
        8 => logits.iter_mut().for_each(|l| *l = f32::NEG_INFINITY),
        9 => {
            let at = any(random);
            logits[at] = 60.0;
        }
        _ => {}
    }
    logits
}

#[test]
fn from_equal_logits_the_card_draws_what_the_cpu_draws() {
    let Some(device) = device() else { return };
    let mut random = Random(1);
    for vocabulary in [1, 2, 15, 16, 17, 63, 64, 65, 1000, 4097, 50_257, 151_936] {
        let count = if vocabulary > 10_000 { 48 } else { 240 };
        let logits: Vec<f32> = (0..count).flat_map(|r| kind_of_row(r, vocabulary, &mut random)).collect();
        let temperatures = [0.0, 1e-6, 0.3, 1.0, 0.8, 1.7, 30.0];
        let rows: Vec<Row> =
            (0..count).map(|r| row(temperatures[r / 12 % 7], random.bits(), random.bits() % 100_000)).collect();
        agree(&device.draw_logits(&logits, &rows).unwrap(), &logits, &rows, &format!("{vocabulary} ids"));
    }
}

#[test]
fn ten_million_draws_have_no_difference() {
    let Some(device) = device() else { return };
    let (vocabulary, count) = (131, 50_000);
    let mut random = Random(2);
    let mut differences = 0;
    for round in 0..200 {
        let logits: Vec<f32> = (0..count * vocabulary).map(|_| random.bits() as u16 as f32 / 9000.0).collect();
        let rows: Vec<Row> = (0..count).map(|r| row([1.0, 0.6, 0.0, 1.4][r % 4], random.bits(), round)).collect();
        let card = device.draw_logits(&logits, &rows).unwrap();
        let cpu = Logits::new(&logits, count, vocabulary).unwrap().batch().tokens(&rows).unwrap();
        differences +=
            card.iter().zip(&cpu).filter(|(card, cpu)| card.as_ref().unwrap().token != *cpu.as_ref().unwrap()).count();
    }
    assert_eq!(differences, 0);
}

fn weights(height: usize, width: usize, half: bool, random: &mut Random) -> Weights<'static> {
    let values: Vec<f32> = (0..height * width).map(|_| random.normal() * 0.2).collect();
    if half {
        Weights::f16(height, width, values.iter().map(|v| f16::from_f32(*v)).collect::<Vec<_>>()).unwrap()
    } else {
        Weights::bf16(height, width, values.iter().map(|v| bf16::from_f32(*v)).collect::<Vec<_>>()).unwrap()
    }
}

fn hidden(rows: usize, width: usize, random: &mut Random) -> Vec<f32> {
    (0..rows * width).map(|_| bf16::from_f32(random.normal()).to_f32()).collect()
}

const TEMPERATURES: [f64; 6] = [1.0, 0.7, 0.0, 1.3, 1e-4, 3.0];

#[test]
fn the_fused_head_draws_from_its_own_logits() {
    let Some(device) = device() else { return };
    let mut random = Random(3);
    for (height, width, half) in [
        (1, 8, false),
        (63, 8, true),
        (64, 64, false),
        (1000, 72, false),
        (4099, 136, true),
        (20_032, 256, false),
        (50_257, 64, false),
    ] {
        let weights = weights(height, width, half, &mut random);
        for portable in [false, true] {
            let head = || Head::new(&device, &weights).unwrap();
            let head = if portable { head().portable() } else { head() };
            for count in [1, 7, 16, 40, 64, 100, 128, 200, 256, 300, 1024] {
                if count > 128 && height > 5000 {
                    continue;
                }
                let hidden = hidden(count, width, &mut random);
                let rows: Vec<Row> = (0..count).map(|r| row(TEMPERATURES[r % 6], random.bits(), r as u64)).collect();
                let logits = head.logits(&hidden).unwrap();
                right(&weights, &hidden, &logits, &mut random);
                let what = format!("{height} ids of {width}, {count} rows, portable {portable}");
                agree(&head.draw(&hidden, &rows).unwrap(), &logits, &rows, &what);
            }
        }
    }
}

/// Some logits against sums in f64.
fn right(weights: &Weights, hidden: &[f32], logits: &[f32], random: &mut Random) {
    let (height, width) = (weights.rows(), weights.cols());
    let mut w = vec![0.0; width];
    for _ in 0..200 {
        let (id, row) = (random.bits() as usize % height, random.bits() as usize % (hidden.len() / width));
        weights.row(id, &mut w).unwrap();
        let terms = || w.iter().zip(&hidden[row * width..]).map(|(w, h)| f64::from(*w) * f64::from(*h));
        let (sum, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
        let found = f64::from(logits[row * height + id]);
        assert!((found - sum).abs() <= 2e-6 * size + 1e-30, "logit {id} of row {row} is {found}, must be near {sum}");
    }
}

#[test]
fn edits_are_those_of_the_cpu() {
    let Some(device) = device() else { return };
    let mut random = Random(4);
    for (height, count) in [(1000, 5), (4099, 40), (8192, 100), (8192, 256)] {
        let weights = weights(height, 64, false, &mut random);
        let head = Head::new(&device, &weights).unwrap();
        let hidden = hidden(count, 64, &mut random);
        let logits = head.logits(&hidden).unwrap();
        let masks: Vec<Vec<u32>> =
            (0..count).map(|_| (0..height.div_ceil(32)).map(|_| random.bits() as u32).collect()).collect();
        let none = vec![0u32; height.div_ceil(32)];
        let banned: BTreeSet<u32> = (0..height as u32).step_by(3).collect();
        let bias = LogitBias::new((0..50u32).map(|i| (i * 19 % height as u32, f64::from(i % 7) - 3.0))).unwrap();
        let over = LogitBias::new([(7u32, 3e38)]).unwrap();
        let sampling =
            |top_k, t| SamplingParams { temperature: t, top_k, seed: Some(9), ..Default::default() }.check().unwrap();
        let rows: Vec<Row> = (0..count)
            .map(|r| {
                let edits = match r % 6 {
                    0 => Edits { allowed: Some(&masks[r]), ..Default::default() },
                    1 => Edits { banned: Some(&banned), bias: Some(&bias), ..Default::default() },
                    2 => Edits { bias: Some(&bias), allowed: Some(&masks[r]), ..Default::default() },
                    3 if r % 4 == 3 => Edits { allowed: Some(&none), ..Default::default() },
                    4 if r % 4 == 0 => Edits { bias: Some(&over), ..Default::default() },
                    _ => Edits::default(),
                };
                Row::new(sampling(if r % 5 == 4 { 1 } else { -1 }, if r % 4 == 0 { 1e-3 } else { 0.9 }), r as u64)
                    .with_edits(edits)
            })
            .collect();
        agree(&head.draw(&hidden, &rows).unwrap(), &logits, &rows, &format!("{height} ids, {count} rows, edited"));
    }
}

#[test]
fn a_row_is_alone() {
    let Some(device) = device() else { return };
    let mut random = Random(5);
    let (height, width) = (10_000, 136);
    let weights = weights(height, width, false, &mut random);
    for portable in [false, true] {
        let head = || Head::new(&device, &weights).unwrap();
        let head = if portable { head().portable() } else { head() };
        row_is_alone(&head, width, &mut random);
    }
    let head = || Head::new(&device, &weights).unwrap();
    let hidden = hidden(256, width, &mut random);
    let rows: Vec<Row> = (0..256).map(|r| row(TEMPERATURES[r % 6], random.bits(), r as u64)).collect();
    let alone = head_draw(&head(), &hidden, &rows);
    for tile in [64, 128, 192] {
        for count in [5, 50, 100, 256] {
            let head = head().with_tile(tile).unwrap();
            same(
                &head_draw(&head, &hidden[..count * width], &rows[..count]),
                &alone[..count],
                &format!("tiles of {tile}"),
            );
        }
    }
}

fn row_is_alone(head: &Head, width: usize, random: &mut Random) {
    let hidden = hidden(600, width, random);
    let rows: Vec<Row> = (0..600).map(|r| row(TEMPERATURES[r % 6], random.bits(), r as u64)).collect();
    let alone: Vec<Drawn> = (0..600).map(|r| head_draw(head, &hidden[r * width..][..width], &rows[r..=r])[0]).collect();
    for count in [2, 3, 8, 16, 17, 64, 65, 128, 129, 256, 257, 600] {
        let drawn = head_draw(head, &hidden[..count * width], &rows[..count]);
        same(&drawn, &alone[..count], &format!("{count} rows"));
        let from = 600 - count;
        let drawn = head_draw(head, &hidden[from * width..], &rows[from..]);
        same(&drawn, &alone[from..], &format!("the last {count} rows"));
    }
    let backwards: Vec<f32> = hidden.chunks(width).rev().flatten().copied().collect();
    let mut drawn = head_draw(head, &backwards, &rows.iter().rev().copied().collect::<Vec<_>>());
    drawn.reverse();
    same(&drawn, &alone, "backwards");
}

fn head_draw(head: &Head, hidden: &[f32], rows: &[Row]) -> Vec<Drawn> {
    head.draw(hidden, rows).unwrap().into_iter().map(Result::unwrap).collect()
}

fn same(found: &[Drawn], expected: &[Drawn], what: &str) {
    for (r, (found, expected)) in found.iter().zip(expected).enumerate() {
        let bits = |d: &Drawn| (d.token, d.score.to_bits(), d.logprob.to_bits(), d.log_normalizer.to_bits(), d.seed);
        assert_eq!(bits(found), bits(expected), "{what}, row {r}");
    }
}

#[test]
fn bad_rows_are_told_and_the_others_untouched() {
    let Some(device) = device() else { return };
    let mut random = Random(6);
    let (height, width, count) = (5000, 64, 70);
    let weights = weights(height, width, false, &mut random);
    let head = Head::new(&device, &weights).unwrap();
    let mut hidden = hidden(count, width, &mut random);
    let rows: Vec<Row> = (0..count).map(|r| row(1.0, r as u64, 3)).collect();
    let before = head.draw(&hidden, &rows).unwrap();
    hidden[5 * width] = f32::NAN;
    hidden[33 * width + 7] = f32::INFINITY;
    hidden[64 * width..65 * width].fill(3e38);
    let after = head.draw(&hidden, &rows).unwrap();
    let logits = head.logits(&hidden).unwrap();
    agree(&after, &logits, &rows, "bad rows");
    for r in 0..count {
        if [5, 33, 64].contains(&r) {
            assert!(after[r].is_err(), "row {r}: {:?}", after[r]);
        } else {
            assert_eq!(after[r], before[r]);
        }
    }
    assert_eq!(head.draw(&hidden, &rows).unwrap(), after, "the next call begins anew");
}

#[test]
fn samples_are_rows_with_the_samples_seeds() {
    let Some(device) = device() else { return };
    let mut random = Random(7);
    let weights = weights(3000, 64, false, &mut random);
    let head = Head::new(&device, &weights).unwrap();
    for count in [1, 20, 100, 256, 300] {
        let hidden = hidden(count, 64, &mut random);
        let rows: Vec<Row> = (0..count).map(|r| row(1.0, r as u64 + 5, 8)).collect();
        for samples in [2, 5, 8] {
            let many = head.draw_samples(&hidden, &rows, samples).unwrap();
            for j in 0..samples {
                let single: Vec<Row> =
                    rows.iter().map(|row| Row { sampling: row.sampling.sample(j as u64), ..*row }).collect();
                let found: Vec<Drawn> = many.iter().map(|row| row[j].unwrap()).collect();
                same(&found, &head_draw(&head, &hidden, &single), &format!("sample {j} of {samples}"));
            }
        }
    }
}

/// Rows on the card, for calls with addresses.
struct OnCard {
    hidden: CudaSlice<u16>,
    temperature: CudaSlice<f32>,
    seed: CudaSlice<u64>,
    position: CudaSlice<u64>,
    token: CudaSlice<u32>,
    status: CudaSlice<u32>,
    logprob: CudaSlice<f64>,
    log_normalizer: CudaSlice<f64>,
    racer: CudaSlice<u64>,
    score: CudaSlice<f64>,
    stream: std::sync::Arc<cudarc::driver::CudaStream>,
    width: usize,
}

impl OnCard {
    fn new(hidden: &[f32], rows: &[Row], temperature: f32) -> Self {
        let context = cudarc::driver::CudaContext::new(0).unwrap();
        // SAFETY: all of this is on one stream.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().unwrap();
        let up = |n: usize| stream.alloc_zeros::<u64>(n).unwrap();
        let words: Vec<u16> = hidden.iter().map(|v| bf16::from_f32(*v).to_bits()).collect();
        let made = Self {
            hidden: stream.clone_htod(&words).unwrap(),
            temperature: stream.clone_htod(&vec![temperature; rows.len()]).unwrap(),
            seed: stream.clone_htod(&rows.iter().map(|r| r.sampling.seed()).collect::<Vec<_>>()).unwrap(),
            position: stream.clone_htod(&rows.iter().map(|r| r.position).collect::<Vec<_>>()).unwrap(),
            token: stream.alloc_zeros(rows.len()).unwrap(),
            status: stream.alloc_zeros(rows.len()).unwrap(),
            logprob: stream.alloc_zeros(rows.len()).unwrap(),
            log_normalizer: stream.alloc_zeros(rows.len()).unwrap(),
            racer: up(rows.len()),
            score: stream.alloc_zeros(rows.len()).unwrap(),
            width: hidden.len() / rows.len(),
            stream,
        };
        made.stream.synchronize().unwrap();
        made
    }

    fn inputs(&self) -> Inputs {
        Inputs {
            hidden: self.hidden.device_ptr(&self.stream).0,
            hidden_stride: self.width,
            rows: self.token.len(),
            samples: 1,
            temperature: self.temperature.device_ptr(&self.stream).0,
            seed: self.seed.device_ptr(&self.stream).0,
            position: self.position.device_ptr(&self.stream).0,
            ..Inputs::default()
        }
    }

    fn outputs(&self) -> Outputs {
        Outputs {
            token: self.token.device_ptr(&self.stream).0,
            status: self.status.device_ptr(&self.stream).0,
            logprob: self.logprob.device_ptr(&self.stream).0,
            log_normalizer: self.log_normalizer.device_ptr(&self.stream).0,
            racer: self.racer.device_ptr(&self.stream).0,
            score: self.score.device_ptr(&self.stream).0,
            ..Outputs::default()
        }
    }

    fn drawn(&self, rows: &[Row]) -> Vec<Drawn> {
        let (token, score) =
            (self.stream.clone_dtoh(&self.token).unwrap(), self.stream.clone_dtoh(&self.score).unwrap());
        let logprob = self.stream.clone_dtoh(&self.logprob).unwrap();
        let log_normalizer = self.stream.clone_dtoh(&self.log_normalizer).unwrap();
        let status = self.stream.clone_dtoh(&self.status).unwrap();
        self.stream.synchronize().unwrap();
        assert!(status.iter().all(|s| *s == 0), "{status:?}");
        let one = |r: usize| Drawn {
            token: token[r],
            score: score[r],
            logprob: logprob[r],
            log_normalizer: log_normalizer[r],
            seed: rows[r].sampling.seed(),
        };
        (0..rows.len()).map(one).collect()
    }
}

#[test]
fn shards_are_merged_to_the_bits_of_the_whole() {
    let Some(device) = device() else { return };
    let mut random = Random(8);
    let (height, width) = (9000, 64);
    let values: Vec<bf16> = (0..height * width).map(|_| bf16::from_f32(random.normal() * 0.2)).collect();
    let whole = Weights::bf16(height, width, values.clone()).unwrap();
    for count in [1, 30, 100, 256] {
        let hidden = hidden(count, width, &mut random);
        let rows: Vec<Row> = (0..count).map(|r| row(1.0, random.bits(), r as u64)).collect();
        let expected = head_draw(&Head::new(&device, &whole).unwrap(), &hidden, &rows);
        for cuts in [
            &[0, 9000][..],
            &[0, 64, 9000],
            &[0, 1280, 5120, 5184, 9000],
            &[0, 64, 128, 3200, 3264, 6400, 7040, 8960, 9000],
        ] {
            let parts: Vec<Weights> = cuts
                .windows(2)
                .map(|c| Weights::bf16(c[1] - c[0], width, values[c[0] * width..c[1] * width].to_vec()).unwrap())
                .collect();
            let heads: Vec<Head> = parts
                .iter()
                .zip(cuts)
                .map(|(part, first)| Head::new(&device, part).unwrap().with_shard(*first, height).unwrap())
                .collect();
            let card = OnCard::new(&hidden, &rows, 1.0);
            let workspace = heads[0].workspace(count, 1, Want { logprobs: true, shards: heads.len() }).unwrap();
            let stream = card.stream.cu_stream() as u64;
            // SAFETY: all memory lives until the results are read.
            unsafe {
                for (slot, head) in heads.iter().enumerate() {
                    head.race(stream, &card.inputs(), &workspace, 0, slot).unwrap();
                }
                heads[0].finish(stream, &card.inputs(), &workspace, &card.outputs()).unwrap();
            }
            same(&card.drawn(&rows), &expected, &format!("{} shards, {count} rows", cuts.len() - 1));
        }
    }
}

#[test]
fn a_graph_replays_with_new_seeds_and_positions() {
    let Some(device) = device() else { return };
    let mut random = Random(9);
    let (height, width) = (9000, 64);
    let weights = weights(height, width, false, &mut random);
    let head = Head::new(&device, &weights).unwrap();
    for count in [1, 50, 256, 300] {
        let hidden = hidden(count, width, &mut random);
        let mut rows: Vec<Row> = (0..count).map(|r| row(1.0, random.bits(), r as u64)).collect();
        let mut card = OnCard::new(&hidden, &rows, 1.0);
        let workspace = head.workspace(count, 1, Want { logprobs: true, shards: 1 }).unwrap();
        let (inputs, outputs, stream) = (card.inputs(), card.outputs(), card.stream.clone());
        // SAFETY: all memory lives until the last replay has been waited for.
        let enqueue = || unsafe { head.enqueue(stream.cu_stream() as u64, &inputs, &workspace, &outputs).unwrap() };
        enqueue(); // compiles outside the capture
        stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
        enqueue();
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.end_capture(flags).unwrap().expect("something was captured");
        for replay in 0..5 {
            rows = rows.iter().map(|r| row(1.0, random.bits(), r.position + 1)).collect();
            stream.memcpy_htod(&rows.iter().map(|r| r.sampling.seed()).collect::<Vec<_>>(), &mut card.seed).unwrap();
            stream.memcpy_htod(&rows.iter().map(|r| r.position).collect::<Vec<_>>(), &mut card.position).unwrap();
            graph.launch().unwrap();
            same(&card.drawn(&rows), &head_draw(&head, &hidden, &rows), &format!("replay {replay}, {count} rows"));
        }
    }
}

#[test]
fn wrong_arguments_are_told() {
    let Some(device) = device() else { return };
    let mut random = Random(10);
    let odd = Weights::bf16(4, 6, vec![bf16::ONE; 24]).unwrap();
    assert!(Head::new(&device, &odd).err().unwrap().to_string().contains("6 columns"));
    assert!(Head::new(&device, &Weights::f32(4, 8, vec![0.0; 32]).unwrap()).is_err());
    let weights = weights(100, 8, false, &mut random);
    let head = Head::new(&device, &weights).unwrap();
    assert!(head.draw(&[0.0; 7], &[row(1.0, 1, 1)]).is_err());
    let sampling = SamplingParams { top_p: 0.5, ..Default::default() }.check().unwrap();
    let error = head.draw(&[0.0; 8], &[Row::new(sampling, 0)]).unwrap_err();
    assert_eq!(error.to_string(), "row 0: top_p is not drawn on a card");
    assert!(Head::new(&device, &weights).unwrap().with_shard(63, 200).is_err());
    assert!(Device::new(99).err().unwrap().to_string().contains("CUDA_ERROR_INVALID_DEVICE"));
    // SAFETY: refused before anything is read.
    let error = unsafe { Head::borrowed(&device, 8, false, 100, 8) }.err().unwrap();
    assert_eq!(error.to_string(), "weights is at address 0x8, must be a multiple of 16");
    assert_eq!(head.draw(&[], &[]).unwrap(), []);
}
