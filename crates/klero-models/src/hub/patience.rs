//! How often something is tried that may work a moment later.

use super::HubError;
use std::thread;
use std::time::Duration;

/// The longest wait that a server may ask for.
const LONGEST: Duration = Duration::from_secs(60);

/// Tries that are left, and the wait before the next one, which doubles.
#[derive(Clone)]
pub struct Patience {
    pub left: u32,
    pub pause: Duration,
}

impl Patience {
    /// Waits before another try, as long as the server asks for if it does, after telling of it.
    ///
    /// # Errors
    /// The error itself, if another try would not help, none is left, or the server asks to wait too long.
    pub fn wait(&mut self, error: HubError, tell: impl FnOnce(&str)) -> Result<(), HubError> {
        let asked = if let HubError::Status { wait, .. } = &error { *wait } else { None };
        let pause = asked.unwrap_or(self.pause);
        if self.left == 0 || !error.is_passing() || pause > LONGEST {
            return Err(error);
        }
        tell(&format!("{error}; trying again in {pause:?}"));
        thread::sleep(pause);
        self.left -= 1;
        self.pause *= 2;
        Ok(())
    }
}
