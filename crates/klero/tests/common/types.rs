//! Weights of every type, made of bytes as a file holds them.

use super::Rng;
use half::{bf16, f16};
use klero::{BlockQ4_0, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8_0, Error, Weights};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    F32,
    Bf16,
    F16,
    Q8_0,
    Q4_0,
    Q4K,
    Q5K,
    Q6K,
}

impl Type {
    pub const FLOAT: [Self; 3] = [Self::F32, Self::Bf16, Self::F16];
    pub const QUANTIZED: [Self; 5] = [Self::Q8_0, Self::Q4_0, Self::Q4K, Self::Q5K, Self::Q6K];
    pub const ALL: [Self; 8] =
        [Self::F32, Self::Bf16, Self::F16, Self::Q8_0, Self::Q4_0, Self::Q4K, Self::Q5K, Self::Q6K];

    /// Elements and bytes of a block.
    pub fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::Bf16 | Self::F16 => (1, 2),
            Self::Q8_0 => (32, 34),
            Self::Q4_0 => (32, 18),
            Self::Q4K => (256, 144),
            Self::Q5K => (256, 176),
            Self::Q6K => (256, 210),
        }
    }

    pub fn quantized(self) -> bool {
        self.block().0 > 1
    }

    /// Where a block's f16 scales stand, and how large each is where weights are about 1.
    pub fn scales(self) -> &'static [(usize, f32)] {
        match self {
            Self::F32 | Self::Bf16 | Self::F16 => &[],
            Self::Q8_0 => &[(0, 1.0 / 64.0)],
            Self::Q4_0 => &[(0, 1.0 / 4.0)],
            Self::Q4K => &[(0, 1.0 / 256.0), (2, 1.0 / 32.0)],
            Self::Q5K => &[(0, 1.0 / 512.0), (2, 1.0 / 32.0)],
            Self::Q6K => &[(208, 1.0 / 1024.0)],
        }
    }

    /// Random weights of about `scale`: blocks are random bits but for their scales.
    pub fn random(self, rng: &mut Rng, elements: usize, scale: f32) -> Vec<u8> {
        let float = |rng: &mut Rng| rng.normal() as f32 * scale;
        match self {
            Self::F32 => (0..elements).flat_map(|_| float(rng).to_le_bytes()).collect(),
            Self::Bf16 => (0..elements).flat_map(|_| bf16::from_f32(float(rng)).to_le_bytes()).collect(),
            Self::F16 => (0..elements).flat_map(|_| f16::from_f32(float(rng)).to_le_bytes()).collect(),
            _ => {
                let (unit, size) = self.block();
                let mut bytes: Vec<u8> = (0..elements / unit * size).map(|_| rng.bits() as u8).collect();
                for block in bytes.chunks_exact_mut(size) {
                    for (at, usual) in self.scales() {
                        let d = f16::from_f32(rng.normal() as f32 * usual * scale);
                        block[*at..at + 2].copy_from_slice(&d.to_le_bytes());
                    }
                }
                bytes
            }
        }
    }

    pub fn weights(self, rows: usize, cols: usize, bytes: &[u8]) -> Result<Weights<'static>, Error> {
        let halves = || bytes.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
        match self {
            Self::F32 => {
                let read = |word: &[u8]| f32::from_le_bytes(word.try_into().unwrap());
                Weights::f32(rows, cols, bytes.chunks_exact(4).map(read).collect::<Vec<_>>())
            }
            Self::Bf16 => Weights::bf16(rows, cols, halves().map(bf16::from_le_bytes).collect::<Vec<_>>()),
            Self::F16 => Weights::f16(rows, cols, halves().map(f16::from_le_bytes).collect::<Vec<_>>()),
            Self::Q8_0 => Weights::q8_0(rows, cols, BlockQ8_0::from_bytes(bytes)?),
            Self::Q4_0 => Weights::q4_0(rows, cols, BlockQ4_0::from_bytes(bytes)?),
            Self::Q4K => Weights::q4_k(rows, cols, BlockQ4K::from_bytes(bytes)?),
            Self::Q5K => Weights::q5_k(rows, cols, BlockQ5K::from_bytes(bytes)?),
            Self::Q6K => Weights::q6_k(rows, cols, BlockQ6K::from_bytes(bytes)?),
        }
    }
}
