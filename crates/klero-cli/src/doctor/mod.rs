//! `klero doctor`: what Klero finds on a machine, and whether it draws there as it should.
//!
//! Every part looks for itself and is written in two ways: as JSON, by its fields, and as a section of a page.

mod cuda;
mod machine;
mod models;
mod page;
mod self_test;
mod speed;

use crate::cli::DoctorArgs;
use crate::failure::Failure;
use page::Section;
use self_test::Check;
use serde::Serialize;
use std::io::Write;
use std::num::NonZeroU16;
use std::process::ExitCode;

/// Looks, tests and prints. `threads` is what the command line asks for.
pub fn run(args: &DoctorArgs, threads: Option<NonZeroU16>) -> Result<ExitCode, Failure> {
    let report = Report::new(threads);
    let text = match args.json {
        true => serde_json::to_string(&report).expect("texts and numbers can be written") + "\n",
        false => report.page(),
    };
    anstream::stdout().lock().write_all(text.as_bytes())?;
    Ok(report.exit_code())
}

/// All that is found.
#[derive(Serialize)]
struct Report {
    build: Build,
    system: machine::System,
    threads: machine::Threads,
    memory: machine::Memory,
    cuda: cuda::Cuda,
    models: models::Models,
    self_test: Vec<Check>,
    speed: speed::Speed,
    ok: bool,
}

impl Report {
    fn new(threads: Option<NonZeroU16>) -> Self {
        let sysinfo = machine::look();
        let memory = machine::Memory::new(&sysinfo);
        let report = Self {
            build: Build::THIS,
            system: machine::System::new(&sysinfo),
            threads: machine::Threads::new(&sysinfo, threads),
            cuda: cuda::Cuda::probe(),
            speed: speed::Speed::measure(memory.free()),
            memory,
            models: models::Models::find(),
            self_test: self_test::run(),
            ok: false,
        };
        report.judged()
    }

    /// The same with the verdict on what it holds.
    fn judged(self) -> Self {
        Self { ok: !self.models.damaged() && self.self_test.iter().all(Check::ok), ..self }
    }

    fn page(&self) -> String {
        let sections = [
            self.system.section(),
            self.threads.section(),
            self.memory.section(),
            self.cuda.section(),
            self.models.section(),
            self_test::section(&self.self_test),
            self.speed.section(),
        ];
        let sections: Vec<String> = sections.iter().map(Section::to_string).collect();
        let verdict = if self.ok { "All is well." } else { "Something is wrong: see above." };
        format!("{}\n\n{}\n{verdict}\n", self.build, sections.join("\n"))
    }

    fn exit_code(&self) -> ExitCode {
        if self.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// This build of the command.
#[derive(Serialize)]
struct Build {
    version: &'static str,
    target: &'static str,
    profile: &'static str,
    opt_level: &'static str,
}

impl Build {
    const THIS: Self = Self {
        version: env!("CARGO_PKG_VERSION"),
        target: env!("KLERO_TARGET"),
        profile: env!("KLERO_PROFILE"),
        opt_level: env!("KLERO_OPT_LEVEL"),
    };
}

impl std::fmt::Display for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { version, target, profile, opt_level } = self;
        write!(f, "klero {version}, {profile} build for {target} (opt-level {opt_level})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_self_test_is_told_and_ends_with_1() {
        let sound = Report::new(None);
        assert_eq!((sound.ok, sound.exit_code()), (true, ExitCode::SUCCESS), "{}", sound.page());
        assert!(sound.page().ends_with("\nAll is well.\n"));

        let failed = Check::of("draws", || Err("token 5, must be 7".to_owned()));
        let report = Report { self_test: vec![failed], ..sound }.judged();
        assert_eq!(report.exit_code(), ExitCode::FAILURE);
        let page = report.page();
        assert!(page.contains("failed: token 5, must be 7") && page.ends_with("\nSomething is wrong: see above.\n"));
    }
}
