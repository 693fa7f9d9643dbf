//! The command line of `klero doctor`.

use clap::Args;

#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
