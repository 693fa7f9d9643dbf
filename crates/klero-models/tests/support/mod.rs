//! What several test programs share.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod tiny;
pub mod written;

use klero_models::Model;
use std::sync::OnceLock;

/// The default model, loaded once for each test program.
pub fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| {
        let load = || Model::load(&klero_models::default_model()?);
        load().unwrap_or_else(|error| panic!("these tests need the default model: {error}"))
    })
}

/// Gemma 3 270M, which `scripts/fetch-model gemma3` lays beside the default model.
pub fn gemma() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| {
        let load = || Model::load(&klero_models::default_model()?.with_file_name("gemma-3-270m.Q4_K_M.gguf"));
        load().unwrap_or_else(|error| panic!("these tests need `scripts/fetch-model gemma3`: {error}"))
    })
}

/// Runs `work` in a rayon pool of its own.
pub fn with_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

/// A small reproducible source of numbers below a bound.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}
