//! The decoder against the formulas of a Llama, written down plainly in f64.

mod support;

use klero_models::Model;
use support::tiny::{DIM, LAYERS, TempFile, Tiny, WIDE};

const HEADS: usize = 2;
const KV_HEADS: usize = 1;
const HEAD_DIM: usize = DIM / HEADS;

/// The weights of a tiny model.
struct Naive(Tiny);

impl Naive {
    fn values(&self, name: &str) -> Vec<f64> {
        let tensor = self.0.tensors.iter().find(|tensor| tensor.name == name).unwrap();
        tensor.values().into_iter().map(f64::from).collect()
    }

    fn times(&self, layer: usize, part: &str, x: &[f64]) -> Vec<f64> {
        let matrix = self.values(&format!("blk.{layer}.{part}.weight"));
        matrix.chunks_exact(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        self.values(name).iter().zip(x).map(|(w, x)| w * x / (mean + f64::from(1e-5f32)).sqrt()).collect()
    }

    /// The hidden states of all positions.
    fn hidden(&self, tokens: &[u32]) -> Vec<Vec<f64>> {
        let embedding = self.values("token_embd.weight");
        let mut xs: Vec<Vec<f64>> = tokens.iter().map(|t| embedding[*t as usize * DIM..][..DIM].to_vec()).collect();
        for layer in 0..LAYERS {
            let normed: Vec<_> = xs.iter().map(|x| self.norm(&format!("blk.{layer}.attn_norm.weight"), x)).collect();
            for (x, attended) in xs.iter_mut().zip(self.attention(layer, &normed)) {
                add(x, &self.times(layer, "attn_output", &attended));
                let h = self.norm(&format!("blk.{layer}.ffn_norm.weight"), x);
                let (gate, up) = (self.times(layer, "ffn_gate", &h), self.times(layer, "ffn_up", &h));
                let gated: Vec<f64> = (0..WIDE).map(|i| gate[i] / (1.0 + (-gate[i]).exp()) * up[i]).collect();
                add(x, &self.times(layer, "ffn_down", &gated));
            }
        }
        xs.iter().map(|x| self.norm("output_norm.weight", x)).collect()
    }

    fn attention(&self, layer: usize, normed: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let turned = |part| normed.iter().enumerate().map(move |(t, x)| turn(&self.times(layer, part, x), t));
        let (queries, keys): (Vec<_>, Vec<_>) = (turned("attn_q").collect(), turned("attn_k").collect());
        let values: Vec<_> = normed.iter().map(|x| self.times(layer, "attn_v", x)).collect();
        let output = |t: usize, i: usize| {
            let (head, element) = (i / HEAD_DIM, i % HEAD_DIM);
            let kv = head / (HEADS / KV_HEADS) * HEAD_DIM;
            let score = |u: usize| -> f64 {
                let product = |d: usize| queries[t][head * HEAD_DIM + d] * keys[u][kv + d];
                ((0..HEAD_DIM).map(product).sum::<f64>() / (HEAD_DIM as f64).sqrt()).exp()
            };
            let total: f64 = (0..=t).map(score).sum();
            (0..=t).map(|u| score(u) / total * values[u][kv + element]).sum()
        };
        (0..normed.len()).map(|t| (0..DIM).map(|i| output(t, i)).collect()).collect()
    }
}

/// Turns each pair of each head by position · 10000^(−pair / pairs).
fn turn(heads: &[f64], position: usize) -> Vec<f64> {
    let mut turned = heads.to_vec();
    for head in turned.chunks_exact_mut(HEAD_DIM) {
        for pair in 0..HEAD_DIM / 2 {
            let angle = position as f64 * 10_000f64.powf(-2.0 * pair as f64 / HEAD_DIM as f64);
            let (x, y) = (head[2 * pair], head[2 * pair + 1]);
            head[2 * pair] = x * angle.cos() - y * angle.sin();
            head[2 * pair + 1] = x * angle.sin() + y * angle.cos();
        }
    }
    turned
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

#[test]
fn hidden_states_are_those_of_the_formulas() {
    let tokens = [7, 100, 3, 250, 250, 0, 31, 9, 200, 77];
    let naive = Naive(Tiny::llama());
    let model = Model::load(&TempFile::new("naive", &naive.0.bytes()).0).unwrap();
    let hidden = model.forward(&mut [(&mut model.new_sequence(), &tokens)]).unwrap();
    let truth = naive.hidden(&tokens).concat();
    assert_eq!(hidden.len(), truth.len());
    for (i, (found, truth)) in hidden.iter().zip(&truth).enumerate() {
        assert!((f64::from(*found) - truth).abs() < 1e-4, "position {} element {}: {found} {truth}", i / DIM, i % DIM);
    }
}
