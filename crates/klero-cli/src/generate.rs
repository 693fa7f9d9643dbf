//! `klero generate`: streams a text to the standard output and sums up on the standard error.

use crate::cli::GenerateArgs;
use crate::failure::{Failure, tell};
use crate::generation::{End, Generation, GenerationError, Timing};
use crate::prompt;
use crate::text::StopStrings;
use anstream::{AutoStream, ColorChoice};
use anstyle::Style;
use klero_models::Model;
use std::io::{self, Stdout, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The exit code of a program that Ctrl-C ended: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// Set by Ctrl-C.
static INTERRUPT: AtomicBool = AtomicBool::new(false);

/// Writes the text.
pub fn run(args: &GenerateArgs) -> Result<ExitCode, Failure> {
    let sampling = args.sampling.params().check()?;
    let (model, tokens) = prompt::load(&args.source, &args.prompt)?;
    let edits = args.sampling.edits(&tokens)?;
    let mut generation = Generation::new(&model, tokens, sampling, edits, args.max_tokens.get())?;
    listen()?;
    let mut page = Page::new();
    page.prompt(&args.prompt)?;
    let written = write(&mut page, &model, &mut generation, &args.stop);
    page.finish_line()?;
    let ending = written?;
    summarize(sampling.seed(), &ending.describe(&model), &generation.timing());
    Ok(if matches!(ending, Ending::Interrupted) { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// Lets the first Ctrl-C end the text and a second one the program.
fn listen() -> Result<(), Failure> {
    let interrupt = || {
        if INTERRUPT.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
    };
    ctrlc::set_handler(interrupt).map_err(|error| Failure::Run(format!("cannot listen for Ctrl-C: {error}")))
}

fn interrupted() -> bool {
    INTERRUPT.load(Ordering::Relaxed)
}

/// Why the text ends.
enum Ending {
    Itself(End),
    Stop,
    Interrupted,
}

impl Ending {
    fn describe(&self, model: &Model) -> String {
        match self {
            Self::Itself(End::Token) => "end of the text".to_owned(),
            Self::Itself(End::Length) => "as long as asked for (--max-tokens)".to_owned(),
            Self::Itself(End::Context) => {
                format!("the model's context of {} tokens is full", model.config().context)
            }
            Self::Stop => "stop string".to_owned(),
            Self::Interrupted => "interrupted".to_owned(),
        }
    }
}

/// Draws and prints until something ends the text. A last character of which only a part was drawn is left out.
fn write(page: &mut Page, model: &Model, generation: &mut Generation, stops: &[String]) -> Result<Ending, Failure> {
    let mut text = model.tokenizer().stream(false);
    let mut stops = StopStrings::new(stops);
    while !interrupted() && generation.read_ahead()? {}
    let ending = loop {
        if interrupted() {
            break Ending::Interrupted;
        }
        match generation.next() {
            Some(outcome) => page.text(&stops.push(&text.push(outcome?.token)))?,
            None => break Ending::Itself(generation.end().unwrap_or(End::Token)),
        }
        if stops.found() {
            break Ending::Stop;
        }
    };
    page.text(&stops.finish())?;
    Ok(ending)
}

/// The standard output: plain text, but for a dimmed prompt on a terminal.
struct Page {
    out: Stdout,
    dim: Style,
    line_open: bool,
}

impl Page {
    fn new() -> Self {
        let out = io::stdout();
        let dim = match AutoStream::choice(&out) {
            ColorChoice::Never => Style::new(),
            _ => Style::new().dimmed(),
        };
        Self { out, dim, line_open: false }
    }

    fn prompt(&mut self, prompt: &str) -> io::Result<()> {
        let dim = self.dim;
        write!(self.out, "{dim}")?;
        self.text(prompt)?;
        write!(self.out, "{dim:#}")?;
        self.out.flush()
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.line_open = !text.ends_with('\n');
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    fn finish_line(&mut self) -> io::Result<()> {
        if self.line_open { self.text("\n") } else { Ok(()) }
    }
}

/// Tells the seed, how the text ended, and how fast it came.
fn summarize(seed: u64, ending: &str, timing: &Timing) {
    let (tokens, head) = timing.head;
    let (_, body) = timing.body;
    tell("");
    tell(format_args!("seed    {seed}"));
    tell(format_args!("prompt  {:>5} tokens  {:>8} tokens/s", timing.prompt.0, speed(timing.prompt)));
    let (both, body, head) = (speed((tokens, body + head)), speed(timing.body), speed(timing.head));
    tell(format_args!("text    {tokens:>5} tokens  {both:>8} tokens/s  (body {body}, head {head})"));
    tell(format_args!("ended   {ending}"));
}

/// Tokens per second; a dash where there is nothing to measure.
fn speed((tokens, time): (usize, Duration)) -> String {
    let seconds = time.as_secs_f64();
    if tokens == 0 || seconds == 0.0 { "-".to_owned() } else { format!("{:.1}", tokens as f64 / seconds) }
}

impl From<GenerationError> for Failure {
    fn from(error: GenerationError) -> Self {
        Self::Run(error.to_string())
    }
}
