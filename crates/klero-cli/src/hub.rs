//! Models by their Hugging Face id, and bars that show how they come.

use crate::failure::{Failure, tell};
use crate::words::shorten;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use klero_models::hub::{Hub, HubError, ModelId, Progress};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

/// The id that is meant, if nothing lies at this path and it looks like one.
pub fn id(model: &Path) -> Result<Option<ModelId>, Failure> {
    let Some(text) = model.to_str().filter(|_| !model.exists()) else { return Ok(None) };
    // What could be either and ends like a file is a file that is missing.
    let is_file = text.ends_with(".gguf") && !text.contains(':');
    match ModelId::parse(text) {
        Ok(id) if !is_file => Ok(Some(id)),
        Err(error) if text.contains(['@', ':']) => Err(error.into()),
        _ => Ok(None),
    }
}

/// The file or folder of a model, which is fetched if the cache does not have it.
pub fn fetch(id: &ModelId) -> Result<PathBuf, Failure> {
    Ok(Hub::from_env().fetch(id, &mut Bars(ProgressBar::hidden()))?)
}

/// A bar for each file while it comes, and a line afterwards; lines alone where the standard error is no terminal.
struct Bars(ProgressBar);

const BAR: &str = "{msg}  {wide_bar}  {bytes} of {total_bytes}  {bytes_per_sec}  {eta} ";

/// Columns for the name of a file.
const NAME: usize = 40;

impl Progress for Bars {
    fn note(&mut self, note: &str) {
        self.0.suspend(|| tell(format_args!("note: {note}")));
    }

    fn start(&mut self, file: &str, size: u64, there: u64) {
        if !io::stderr().is_terminal() {
            let rest = if there > 0 { format!(", {} of it there", HumanBytes(there)) } else { String::new() };
            tell(format_args!("fetching {file} ({}{rest})", HumanBytes(size)));
            return;
        }
        self.0.finish_and_clear();
        let style = ProgressStyle::with_template(BAR).expect("the template is sound");
        let bar = ProgressBar::with_draw_target(Some(size), ProgressDrawTarget::hidden())
            .with_style(style.progress_chars("█▉▊▋▌▍▎▏ "))
            .with_message(shorten(file, NAME))
            .with_position(there);
        // What was there before came in no time, and must not count for the speed.
        bar.tick();
        bar.reset_eta();
        bar.set_draw_target(ProgressDrawTarget::stderr());
        self.0 = bar;
    }

    fn advance(&mut self, bytes: u64) {
        self.0.inc(bytes);
    }

    fn finish(&mut self) {
        let (Some(size), false) = (self.0.length(), self.0.is_hidden()) else { return };
        self.0.finish_and_clear();
        tell(format_args!("fetched {} ({})", self.0.message(), HumanBytes(size)));
    }
}

impl From<HubError> for Failure {
    fn from(error: HubError) -> Self {
        match error {
            HubError::Id { .. } => Self::Usage(error.to_string()),
            HubError::Broken { .. } => Self::Run(format!("{error}; the same command goes on from there")),
            _ => Self::Run(error.to_string()),
        }
    }
}
