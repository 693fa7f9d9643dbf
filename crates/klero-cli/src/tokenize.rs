//! `klero tokenize`: a text as the tokens of a model, and tokens as text.

use crate::cli::TokenizeArgs;
use crate::failure::{Failure, tell};
use crate::words::{count, quote};
use crate::{input, prompt};
use klero_models::{ModelError, Tokenizer};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

/// Prints tokens or text, and how many tokens there were.
pub fn run(args: &TokenizeArgs) -> Result<ExitCode, Failure> {
    let text = if args.decode.is_some() { String::new() } else { read(args)? };
    let tokenizer = Tokenizer::load(&prompt::model_path(args.source.model.as_ref())?)?;
    let (out, number) = match &args.decode {
        Some(ids) => (decode(&tokenizer, ids, args)?, ids.len()),
        None => {
            let ids = tokenizer.encode(&text, args.source.control)?;
            let ids = if args.no_bos { ids } else { tokenizer.begin(ids) };
            (encoded(&tokenizer, &ids, args), ids.len())
        }
    };
    let mut stdout = io::stdout().lock();
    stdout.write_all(&out)?;
    stdout.flush()?;
    tell(format_args!("{} {}", count(number), if number == 1 { "token" } else { "tokens" }));
    Ok(ExitCode::SUCCESS)
}

/// The text to cut.
fn read(args: &TokenizeArgs) -> Result<String, Failure> {
    if let Some(text) = &args.prompt {
        return Ok(text.clone());
    }
    if args.file.is_none() && io::stdin().is_terminal() {
        let message = "there is no text: give --prompt, --file (- for the terminal), or the standard input";
        return Err(Failure::Usage(message.to_owned()));
    }
    let path = args.file.as_deref().unwrap_or(Path::new("-"));
    String::from_utf8(input::read(path)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let byte = error.as_bytes()[at];
        Failure::Run(format!("{} is not a text: byte {at}, {byte:#04x}, is not UTF-8", path.display()))
    })
}

/// Some bytes that are a text as a rule.
#[derive(Serialize)]
struct Text<'t> {
    /// None if they are not UTF-8.
    text: Option<&'t str>,
    /// The bytes, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<&'t [u8]>,
}

impl<'t> Text<'t> {
    fn new(bytes: &'t [u8]) -> Self {
        let text = std::str::from_utf8(bytes).ok();
        Self { text, bytes: text.is_none().then_some(bytes) }
    }
}

/// One token of a text.
#[derive(Serialize)]
struct Piece<'t> {
    position: usize,
    id: u32,
    #[serde(flatten)]
    text: Text<'t>,
    control: bool,
}

fn encoded(tokenizer: &Tokenizer, ids: &[u32], args: &TokenizeArgs) -> Vec<u8> {
    let piece = |(position, id): (usize, &u32)| {
        let (text, control) = (Text::new(tokenizer.bytes(*id, true)), tokenizer.is_control(*id));
        Piece { position, id: *id, text, control }
    };
    let pieces = ids.iter().enumerate().map(piece);
    if args.json {
        let tokens: Vec<Piece> = pieces.collect();
        return json(&serde_json::json!({ "count": tokens.len(), "tokens": tokens }));
    }
    if args.ids {
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        return (ids.join(" ") + "\n").into();
    }
    let width = |most: usize| most.to_string().len();
    let widths = (width(ids.len().saturating_sub(1)), width(ids.iter().max().map_or(0, |id| *id as usize)));
    pieces.map(|piece| line(&piece, tokenizer.bytes(piece.id, true), widths)).collect::<String>().into()
}

/// Position, id, quoted text; then the bytes of a token that is not text by itself, and whether it is control.
fn line(piece: &Piece, bytes: &[u8], (position, id): (usize, usize)) -> String {
    let mut line = format!("{:>position$}  {:>id$}  {}", piece.position, piece.id, quote(bytes));
    if piece.text.text.is_none() {
        let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        line += &format!("  bytes {}", bytes.join(" "));
    }
    line + if piece.control { "  control\n" } else { "\n" }
}

/// The bytes of some tokens; on a line of their own, but for JSON, which says exactly what they are.
fn decode(tokenizer: &Tokenizer, ids: &[u32], args: &TokenizeArgs) -> Result<Vec<u8>, Failure> {
    let vocabulary = tokenizer.vocabulary();
    if let Some(token) = ids.iter().copied().find(|id| *id as usize >= vocabulary) {
        return Err(ModelError::Token { token, vocabulary }.into());
    }
    let mut bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.bytes(*id, args.source.control)).copied().collect();
    if args.json {
        return Ok(json(&Text::new(&bytes)));
    }
    bytes.push(b'\n');
    Ok(bytes)
}

/// A value as one line of JSON.
fn json(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("texts and numbers can be written");
    line.push(b'\n');
    line
}
