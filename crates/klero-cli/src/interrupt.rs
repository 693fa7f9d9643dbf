//! Ctrl-C.

use crate::failure::Failure;
use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code of a program that Ctrl-C ended: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

/// Set by Ctrl-C.
static INTERRUPT: AtomicBool = AtomicBool::new(false);

/// Lets the first Ctrl-C end what is being written and a second one the program.
pub fn listen() -> Result<(), Failure> {
    let interrupt = || {
        if INTERRUPT.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
    };
    ctrlc::set_handler(interrupt).map_err(|error| Failure::Run(format!("cannot listen for Ctrl-C: {error}")))
}

/// Forgets that Ctrl-C was pressed: what comes now can be ended by another.
pub fn forget() {
    INTERRUPT.store(false, Ordering::Relaxed);
}

/// Whether Ctrl-C was pressed.
pub fn interrupted() -> bool {
    INTERRUPT.load(Ordering::Relaxed)
}
