//! Tells the command what it is built for.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["TARGET", "PROFILE", "OPT_LEVEL"] {
        let value = env::var(name).expect("Cargo sets it for build scripts");
        println!("cargo::rustc-env=KLERO_{name}={value}");
    }
}
