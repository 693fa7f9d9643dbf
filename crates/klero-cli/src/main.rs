//! The command `klero`.
fn main() {}
