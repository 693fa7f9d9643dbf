//! What the test programs share: the command, and files to give it.

#![allow(dead_code, reason = "each test program uses a part of it")]

use half::{bf16, f16};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a run of the command left behind.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The command, with colours off whatever the environment says.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_klero"));
    command.args(args).env_remove("CLICOLOR_FORCE");
    command
}

/// Runs the command.
pub fn klero(args: &[&str]) -> Ran {
    klero_reading(args, b"")
}

/// Runs the command with something to read on its standard input.
pub fn klero_reading(args: &[&str], stdin: &[u8]) -> Ran {
    run(command(args), stdin)
}

/// Runs a command that was made ready.
pub fn run(mut command: Command, stdin: &[u8]) -> Ran {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = pipes.expect("the command starts");
    // A command that refuses its arguments reads nothing.
    let _ = child.stdin.take().expect("a pipe").write_all(stdin);
    let output = child.wait_with_output().expect("the command ends");
    let text = |bytes| String::from_utf8(bytes).expect("the command writes UTF-8");
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A folder that is removed with its files.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("klero-cli-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    /// The path that a file of this name has in the folder.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        fs::write(&path, bytes).expect("a file for the test");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A tensor for a file.
pub struct Tensor {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Tensor {
    pub fn f32(name: &str, shape: &[usize], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { name: name.to_owned(), dtype: Dtype::F32, shape: shape.to_vec(), bytes }
    }

    pub fn f16(name: &str, shape: &[usize], values: &[f16]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { name: name.to_owned(), dtype: Dtype::F16, shape: shape.to_vec(), bytes }
    }

    pub fn bf16(name: &str, shape: &[usize], values: &[bf16]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { name: name.to_owned(), dtype: Dtype::BF16, shape: shape.to_vec(), bytes }
    }

    pub fn words(name: &str, dtype: Dtype, shape: &[usize], words: &[u32]) -> Self {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Self { name: name.to_owned(), dtype, shape: shape.to_vec(), bytes }
    }
}

/// The bytes of a file with these tensors.
pub fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let views = tensors.iter().map(|tensor| {
        let view =
            TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).expect("the shape fits the bytes");
        (tensor.name.as_str(), view)
    });
    safetensors::serialize(views, None).expect("tensors are written")
}

/// Numbers that look random and are the same everywhere, in −2..2.
pub fn noise(count: usize, seed: u64) -> Vec<f32> {
    let hash = |i: u64| klero::hash::splitmix64(seed ^ klero::hash::splitmix64(i));
    (0..count as u64).map(|i| (hash(i) >> 40) as f32 * (4.0 / 16_777_216.0) - 2.0).collect()
}

/// The replies of `klero draw`.
pub fn replies(ran: &Ran) -> Vec<Value> {
    ran.stdout.lines().map(|line| serde_json::from_str(line).expect("every reply is JSON")).collect()
}

/// Runs requests over tensors, with more flags.
pub fn draw(name: &str, tensors: &[Tensor], requests: &[Value], flags: &[&str]) -> Ran {
    let lines: Vec<String> = requests.iter().map(Value::to_string).collect();
    draw_lines(name, tensors, lines.join("\n").as_bytes(), flags)
}

/// The same of lines that need not be JSON.
pub fn draw_lines(name: &str, tensors: &[Tensor], lines: &[u8], flags: &[&str]) -> Ran {
    let folder = Folder::new(name);
    let file = folder.write("t.safetensors", &safetensors(tensors));
    klero_reading(&[&["draw", "--tensors", &file, "--requests", "-"], flags].concat(), lines)
}

/// The same reply but for its number.
pub fn bare(mut reply: Value) -> Value {
    reply["row"] = json!(0);
    reply
}
