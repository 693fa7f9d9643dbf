//! GGUF files of a few kilobytes, sound or not, made in memory.

use std::fs;
use std::path::PathBuf;

/// A file under construction.
#[derive(Clone)]
pub struct Tiny {
    pub metadata: Vec<(String, Value)>,
    pub tensors: Vec<Tensor>,
}

#[derive(Clone)]
pub enum Value {
    U32(u32),
    F32(f32),
    Text(String),
    Texts(Vec<String>),
    I32s(Vec<i32>),
    /// A type, and any bytes at all.
    Raw(u32, Vec<u8>),
}

#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    /// Rows first.
    pub shape: Vec<u64>,
    pub kind: u32,
    pub data: Vec<u8>,
}

pub const LAYERS: usize = 2;
pub const DIM: usize = 32;
pub const WIDE: usize = 64;
pub const CONTEXT: u32 = 12;

impl Tiny {
    /// A sound Llama with two layers, two heads, f32 weights and a vocabulary of single bytes and two control tokens.
    pub fn llama() -> Self {
        Self::sized(DIM, WIDE)
    }

    /// The same with hidden states of `dim` numbers and feed-forward layers of `wide`.
    pub fn sized(dim: usize, wide: usize) -> Self {
        let number = |key: &str, value| (format!("llama.{key}"), Value::U32(value));
        let text = |key: &str, value: &str| (key.to_owned(), Value::Text(value.to_owned()));
        let tokens = vocabulary();
        let mut kinds = vec![1; tokens.len()];
        kinds[256..].fill(3);
        let mut tiny = Self {
            metadata: vec![
                text("general.architecture", "llama"),
                number("block_count", LAYERS as u32),
                number("context_length", CONTEXT),
                number("embedding_length", dim as u32),
                number("feed_forward_length", wide as u32),
                number("attention.head_count", 2),
                number("attention.head_count_kv", 1),
                ("llama.attention.layer_norm_rms_epsilon".to_owned(), Value::F32(1e-5)),
                text("tokenizer.ggml.model", "gpt2"),
                text("tokenizer.ggml.pre", "smollm"),
                ("tokenizer.ggml.tokens".to_owned(), Value::Texts(tokens.clone())),
                ("tokenizer.ggml.token_type".to_owned(), Value::I32s(kinds)),
                ("tokenizer.ggml.merges".to_owned(), Value::Texts(vec![])),
                ("tokenizer.ggml.eos_token_id".to_owned(), Value::U32(256)),
            ],
            tensors: vec![],
        };
        tiny.f32("token_embd.weight", &[tokens.len(), dim]);
        tiny.f32("output_norm.weight", &[dim]);
        for layer in 0..LAYERS {
            for (part, shape) in [
                ("attn_norm", &[dim][..]),
                ("attn_q", &[dim, dim]),
                ("attn_k", &[dim / 2, dim]),
                ("attn_v", &[dim / 2, dim]),
                ("attn_output", &[dim, dim]),
                ("ffn_norm", &[dim]),
                ("ffn_gate", &[wide, dim]),
                ("ffn_up", &[wide, dim]),
                ("ffn_down", &[dim, wide]),
            ] {
                tiny.f32(&format!("blk.{layer}.{part}.weight"), shape);
            }
        }
        tiny
    }

    /// Adds a tensor of small waves.
    pub fn f32(&mut self, name: &str, shape: &[usize]) {
        let seed = self.tensors.len() as f32 + 1.0;
        let elements: usize = shape.iter().product();
        let data = (0..elements).flat_map(|i| ((i as f32 * 0.37 * seed).sin() * 0.5).to_le_bytes()).collect();
        let shape = shape.iter().map(|n| *n as u64).collect();
        self.tensors.push(Tensor { name: name.to_owned(), shape, kind: 0, data });
    }

    /// Replaces, or adds, a metadata value.
    pub fn set(&mut self, key: &str, value: Value) {
        self.metadata.retain(|(name, _)| name != key);
        self.metadata.push((key.to_owned(), value));
    }

    pub fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap()
    }

    /// The file's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(3u32.to_le_bytes());
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            put_text(&mut file, key);
            value.put(&mut file);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            put_text(&mut file, &tensor.name);
            file.extend((tensor.shape.len() as u32).to_le_bytes());
            tensor.shape.iter().rev().for_each(|n| file.extend(n.to_le_bytes()));
            file.extend(tensor.kind.to_le_bytes());
            file.extend((offset as u64).to_le_bytes());
            offset += tensor.data.len().next_multiple_of(32);
        }
        for tensor in &self.tensors {
            file.resize(file.len().next_multiple_of(32), 0);
            file.extend(&tensor.data);
        }
        file
    }
}

impl Tensor {
    /// The values of an f32 tensor.
    pub fn values(&self) -> Vec<f32> {
        self.data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }
}

impl Value {
    fn put(&self, file: &mut Vec<u8>) {
        let kind = |kind: u32| kind.to_le_bytes();
        let array = |element: u32, count: usize| [&kind(9)[..], &kind(element), &(count as u64).to_le_bytes()].concat();
        match self {
            Self::U32(value) => file.extend([kind(4), value.to_le_bytes()].concat()),
            Self::F32(value) => file.extend([kind(6), value.to_le_bytes()].concat()),
            Self::Text(text) => {
                file.extend(kind(8));
                put_text(file, text);
            }
            Self::Texts(texts) => {
                file.extend(array(8, texts.len()));
                texts.iter().for_each(|text| put_text(file, text));
            }
            Self::I32s(values) => {
                file.extend(array(5, values.len()));
                values.iter().for_each(|value| file.extend(value.to_le_bytes()));
            }
            Self::Raw(raw, bytes) => {
                file.extend(kind(*raw));
                file.extend(bytes);
            }
        }
    }
}

fn put_text(file: &mut Vec<u8>, text: &str) {
    file.extend((text.len() as u64).to_le_bytes());
    file.extend(text.as_bytes());
}

/// One token for each byte, in the byte-level alphabet, then an end and a begin token.
fn vocabulary() -> Vec<String> {
    let printable = |b: u32| (0x21..=0x7E).contains(&b) || (0xA1..=0xAC).contains(&b) || b >= 0xAE;
    let mut next = 0x100;
    let mut tokens: Vec<String> = Vec::new();
    for byte in 0..=0xFF {
        let spelled = if printable(byte) { byte } else { next };
        next += u32::from(!printable(byte));
        tokens.push(char::from_u32(spelled).unwrap().into());
    }
    tokens.extend(["<|im_end|>", "<|im_start|>"].map(str::to_owned));
    tokens
}

/// A folder that is removed when it goes out of scope.
pub struct TempFolder(pub PathBuf);

impl TempFolder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("klero-models-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file that is removed when it goes out of scope.
pub struct TempFile(pub PathBuf);

impl TempFile {
    pub fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("klero-models-{}-{name}.gguf", std::process::id()));
        fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
