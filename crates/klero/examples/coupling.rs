//! How often does a small change of the logits change the token? Both draws, the same seeds, on the same rows.
//!
//! `cargo run --release -p klero --example coupling`

use klero::hash::splitmix64;
use klero::{Draw, Error, Logits, Row, SamplingParams};

const VOCABULARY: usize = 151_936;
const DRAWS: u64 = 4000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut normal = Normal { state: 7 };
    let row: Vec<f32> = (0..VOCABULARY).map(|_| 3.0 * normal.next()).collect();
    println!("{VOCABULARY} normal logits (σ = 3), {DRAWS} positions, one seed");
    for sigma in [1e-3, 0.05] {
        for draw in [Draw::InverseCdf, Draw::Gumbel] {
            let params = SamplingParams { seed: Some(3), draw, ..Default::default() };
            let mut changed = 0;
            for position in 0..DRAWS {
                let noisy: Vec<f32> = row.iter().map(|l| l + sigma * normal.next()).collect();
                let asked = Row::new(params.check()?, position);
                changed += u64::from(token(&row, &asked)? != token(&noisy, &asked)?);
            }
            let share = 100.0 * changed as f64 / DRAWS as f64;
            println!("noise {sigma:>5} on the logits: {draw:?} changes {share:.2} % of the tokens");
        }
    }
    Ok(())
}

fn token(logits: &[f32], asked: &Row) -> Result<u32, Error> {
    let outcomes = Logits::new(logits, 1, VOCABULARY)?.draw(&[*asked])?;
    Ok(outcomes[0].as_ref().expect("the logits are finite").token)
}

/// Standard normal numbers by Box and Muller.
struct Normal {
    state: u64,
}

impl Normal {
    fn next(&mut self) -> f32 {
        let (radius, angle) = (self.uniform(), self.uniform());
        (-2.0 * radius.ln()).sqrt() * (std::f32::consts::TAU * angle).cos()
    }

    fn uniform(&mut self) -> f32 {
        self.state = self.state.wrapping_add(1);
        ((splitmix64(self.state) >> 40) as f32 + 0.5) / 16_777_216.0
    }
}
