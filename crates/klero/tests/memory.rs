//! The fused head never holds a row of logits: its extra memory stays far below `rows · V` numbers.

use klero::{FusedHead, Row, SamplingParams, Weights};
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const ROWS: usize = 64;
const VOCABULARY: usize = 151_936;
const WIDTH: usize = 8;

/// The bytes a draw took at most, as a share of those of `[ROWS, VOCABULARY]` logits.
fn share(head: &FusedHead, hidden: &[f32], params: &SamplingParams) -> f64 {
    let sampling = params.check().unwrap();
    let rows: Vec<Row> = (0..ROWS as u64).map(|position| Row::new(sampling, position)).collect();
    HEAP.reset_peak_usage();
    let before = HEAP.current_usage();
    let outcomes = head.draw(hidden, &rows).unwrap();
    assert!(outcomes.iter().all(Result::is_ok));
    (HEAP.peak_usage() - before) as f64 / (ROWS * VOCABULARY * 4) as f64
}

#[test]
fn a_draw_takes_a_small_part_of_the_memory_of_its_logits() {
    let wave = |i: usize, step: f32| (i as f32 * step).sin();
    let data: Vec<f32> = (0..VOCABULARY * WIDTH).map(|i| 3.0 * wave(i, 0.7)).collect();
    let weights = Weights::f32(VOCABULARY, WIDTH, data).unwrap();
    let hidden: Vec<f32> = (0..ROWS * WIDTH).map(|i| wave(i, 1.3)).collect();
    let head = FusedHead::new(&weights).unwrap();
    rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap().install(|| {
        let plain = SamplingParams { seed: Some(1), ..Default::default() };
        let top_k = SamplingParams { top_k: 50, top_p: 0.95, ..plain.clone() };
        let top_p = SamplingParams { top_p: 0.05, ..plain.clone() };
        // Written out, the logits alone would be a share of 1.
        for params in [plain, top_k, top_p] {
            let share = share(&head, &hidden, &params);
            assert!(share < 0.05, "{params:?} takes {share:.3} of the logits' memory");
        }
    });
}
