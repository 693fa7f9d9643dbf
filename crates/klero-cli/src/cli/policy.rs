//! What holds for every row, on the command line.

use crate::edits::parse_id;
use clap::Args;
use klero::{ParamError, Policy};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;

/// What an engine sets for all rows; see [`Policy`].
#[derive(Args, Debug)]
pub struct PolicyArgs {
    /// In every row, keep only the N largest logits after the mask; 0 is off.
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true, allow_negative_numbers = true)]
    force_top_k: usize,

    /// Ids that may never be drawn.
    #[arg(long, value_name = "ID[,ID...]", value_parser = parse_ids, allow_hyphen_values = true)]
    blacklist: Option<BTreeSet<u32>>,
}

impl PolicyArgs {
    /// The same as the library takes it.
    pub fn policy(&self) -> Policy<'_> {
        Policy { blacklist: self.blacklist.as_ref(), force_top_k: NonZeroUsize::new(self.force_top_k) }
    }
}

fn parse_ids(text: &str) -> Result<BTreeSet<u32>, ParamError> {
    text.split(',').map(parse_id).collect()
}
