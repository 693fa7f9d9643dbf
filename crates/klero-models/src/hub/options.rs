//! Where the hub is, where the cache is, and who asks.

use super::patience::Patience;
use crate::environment::{cache_folder, variable};
use std::env;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// What a [`Hub`](super::Hub) needs to know. [`Options::from_env`] reads the variables that all of Hugging Face's tools do.
#[derive(Clone)]
pub struct Options {
    /// The hub's address.
    pub endpoint: String,
    /// The folder of everything fetched.
    pub cache: PathBuf,
    /// Tells the hub who asks; only ever sent to the endpoint.
    pub token: Option<String>,
    /// Whether nothing may be fetched.
    pub offline: bool,
    /// How often to try again, where nothing came, what may work a moment later.
    pub retries: u32,
    /// The wait before the second try; it doubles with every further one.
    pub pause: Duration,
}

impl Options {
    /// As the environment says:
    ///
    /// - the endpoint is `HF_ENDPOINT`, else `https://huggingface.co`
    /// - the cache is `HF_HUB_CACHE` (once called `HUGGINGFACE_HUB_CACHE`), else `hub` in `HF_HOME`, which is else
    ///   `huggingface` in the user's cache folder
    /// - the token is `HF_TOKEN`, else the text of the file `HF_TOKEN_PATH`, else of `token` in `HF_HOME`
    /// - offline if `HF_HUB_OFFLINE` is `1`, `on`, `yes` or `true`
    pub fn from_env() -> Self {
        let home = variable("HF_HOME").unwrap_or_else(|| cache_folder().join("huggingface"));
        let token_file = variable("HF_TOKEN_PATH").unwrap_or_else(|| home.join("token"));
        Self {
            endpoint: text("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned()),
            cache: ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"]
                .into_iter()
                .find_map(variable)
                .unwrap_or_else(|| home.join("hub")),
            token: text("HF_TOKEN").or_else(|| trimmed(&fs::read_to_string(token_file).ok()?)),
            offline: text("HF_HUB_OFFLINE").is_some_and(|value| is_yes(&value)),
            retries: 4,
            pause: Duration::from_secs(1),
        }
    }

    pub(super) fn patience(&self) -> Patience {
        Patience { left: self.retries, pause: self.pause }
    }
}

fn text(name: &str) -> Option<String> {
    trimmed(&env::var(name).ok()?)
}

fn trimmed(text: &str) -> Option<String> {
    Some(text.trim()).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn is_yes(value: &str) -> bool {
    ["1", "on", "yes", "true"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}
