// SPDX-License-Identifier: Apache-2.0
//! Time limits of reads and writes.

use std::time::Duration;

use tokio::time::timeout;

use crate::facts::{Fact, UnavailableKind};

/// The time limit of a read or write. A round has several in sequence, and the watchdog is notified between them: a slow API must not
/// look like a hanging agent.
pub(crate) const READ_LIMIT: Duration = Duration::from_secs(20);

/// Returns the result, or `None` after the time limit.
pub(crate) async fn limited<T>(work: impl Future<Output = T>) -> Option<T> {
    timeout(READ_LIMIT, work).await.ok()
}

/// Returns the fact, or that the server was too slow.
pub(crate) async fn in_time<T>(whom: &str, read: impl Future<Output = Fact<T>>) -> Fact<T> {
    limited(read).await.unwrap_or_else(|| too_slow(whom))
}

/// Returns the result, or `None` after a shorter limit: for a read that only checks a suspicion.
pub(crate) async fn briefly<T>(work: impl Future<Output = T>) -> Option<T> {
    timeout(READ_LIMIT / 4, work).await.ok()
}

/// Returns the reason for users.
pub(crate) fn too_slow_text(whom: &str) -> String {
    format!("{whom} did not respond within {} s", READ_LIMIT.as_secs())
}

/// Returns a fact that timed out.
pub(crate) fn too_slow<T>(whom: &str) -> Fact<T> {
    Fact::failed(UnavailableKind::Unreachable, too_slow_text(whom))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn what_never_comes_is_given_up_and_what_comes_is_not() {
        let began = Instant::now();
        assert_eq!(limited(pending::<()>()).await, None);
        assert_eq!(Instant::now() - began, READ_LIMIT);
        assert_eq!(briefly(pending::<()>()).await, None);
        assert!(Instant::now() - began < READ_LIMIT * 2);
        assert_eq!(limited(ready(1)).await, Some(1));
    }
}
