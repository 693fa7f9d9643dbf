//! The machine, and the programs compared.

use crate::peer::Peer;
use std::fs;
use std::process::Command;

/// A heading with the date, and what the figures below depend on.
pub fn describe(what: &str, peers: &[Peer]) -> String {
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().ok();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    };
    let field = |file: &str, key: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let used: Vec<&str> = klero::instruction_sets().to_vec();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut text = format!(
        "# {}: Klero on {what} beside its peers\n\n\
         {}, {cores} cores, {} of memory; Klero's kernels use {}. {}. Commit {}. Load when it began: {}.\n",
        run("date", &["+%F"]),
        field("/proc/cpuinfo", "model name"),
        field("/proc/meminfo", "MemTotal"),
        used.join(", "),
        run("rustc", &["--version"]),
        run("git", &["rev-parse", "--short", "HEAD"]),
        load.split(' ').next().unwrap_or_default(),
    );
    for Peer { name, version, .. } in peers {
        text += &format!("Peer {name}: {version}.\n");
    }
    text + "\nIn brackets: how many times the floor Klero takes, and how many times Klero's a peer's time is.\n"
}
