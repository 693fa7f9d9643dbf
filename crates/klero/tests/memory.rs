//! The fused head never holds a row of logits: its extra memory stays below 5 % of `rows · V` numbers.

use klero::{Draft, Draw, FilterOrder, FusedHead, Row, SamplingParams, Weights};
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const ROWS: usize = 64;
const VOCABULARY: usize = 151_936;
const WIDTH: usize = 8;

/// The bytes a draw took at most, as a share of those of `[ROWS, VOCABULARY]` logits; and the ids kept on average.
fn share(head: &FusedHead, hidden: &[f32], params: &SamplingParams, draft: Option<Draft>) -> (f64, usize) {
    let sampling = params.check().unwrap();
    let rows: Vec<Row> = (0..ROWS as u64).map(|t| Row { draft, ..Row::new(sampling, t) }).collect();
    HEAP.reset_peak_usage();
    let before = HEAP.current_usage();
    let outcomes = head.draw(hidden, &rows).unwrap();
    let peak = HEAP.peak_usage() - before;
    let kept = outcomes.iter().map(|outcome| outcome.as_ref().unwrap().kept).sum::<usize>() / ROWS;
    (peak as f64 / (ROWS * VOCABULARY * 4) as f64, kept)
}

#[test]
fn a_draw_takes_a_small_part_of_the_memory_of_its_logits() {
    let wave = |i: usize, step: f32| (i as f32 * step).sin();
    // A few hundred ids far above the others, for some hidden states so far that few are kept.
    let size = |id: usize| if id % 500 == 7 { 12.0 } else { 1.0 };
    let data: Vec<f32> = (0..VOCABULARY * WIDTH).map(|i| size(i / WIDTH) * wave(i, 0.7)).collect();
    let weights = Weights::f32(VOCABULARY, WIDTH, data).unwrap();
    let hidden: Vec<f32> = (0..ROWS * WIDTH).map(|i| wave(i, 1.3)).collect();
    let head = FusedHead::new(&weights).unwrap();
    let uniform = vec![-(VOCABULARY as f32).ln(); VOCABULARY];

    let plain = SamplingParams { seed: Some(1), ..Default::default() };
    let both = SamplingParams { top_k: 50, top_p: 0.95, ..plain.clone() };
    let cases = [
        ("no filter", plain.clone(), None),
        ("inverse CDF", SamplingParams { draw: Draw::InverseCdf, ..plain.clone() }, None),
        ("20 logprobs", SamplingParams { top_logprobs: 20, ..plain.clone() }, None),
        ("top-k and top-p", both.clone(), None),
        ("the other order", SamplingParams { filter_order: FilterOrder::MinPFirst, min_p: 0.05, ..both.clone() }, None),
        ("top-p", SamplingParams { top_p: 0.95, ..plain.clone() }, None),
        ("top-p, inverse CDF", SamplingParams { top_p: 0.95, draw: Draw::InverseCdf, ..plain.clone() }, None),
        ("a draft", both.clone(), Some(Draft::new(3, &uniform))),
        ("a draft without filters", plain.clone(), Some(Draft::new(3, &uniform))),
        ("flat rows under top-p", SamplingParams { top_p: 0.5, temperature: 50.0, ..plain }, None),
    ];
    rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap().install(|| {
        for (name, params, draft) in cases {
            let (share, kept) = share(&head, &hidden, &params, draft);
            println!("{name}: {kept} kept, {:.2} % of the logits' memory", 100.0 * share);
            assert!(share < 0.05, "{name} takes {share:.3} of the logits' memory");
        }
    });
}
