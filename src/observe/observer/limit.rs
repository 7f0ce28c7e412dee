// SPDX-License-Identifier: Apache-2.0
//! How long an observation may take.

use std::time::Duration;

use tokio::time::timeout;

use crate::facts::{Fact, UnavailableKind};

/// No reading takes longer. The watchdog is fed between rounds, and a round has two or three of them one after the other at
/// most: a slow API must not look like a dead agent.
const READ_LIMIT: Duration = Duration::from_secs(20);

/// The result, or `None` when it did not come in time.
pub(super) async fn limited<T>(work: impl Future<Output = T>) -> Option<T> {
    timeout(READ_LIMIT, work).await.ok()
}

/// The same for a reading that is only a suspicion.
pub(super) async fn briefly<T>(work: impl Future<Output = T>) -> Option<T> {
    timeout(READ_LIMIT / 4, work).await.ok()
}

/// The reason, for people.
pub(super) fn too_slow_text(whom: &str) -> String {
    format!("{whom} did not respond within {} s", READ_LIMIT.as_secs())
}

/// A fact that did not come in time.
pub(super) fn too_slow<T>(whom: &str) -> Fact<T> {
    Fact::failed(UnavailableKind::Unreachable, too_slow_text(whom))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[tokio::test(start_paused = true)]
    async fn what_never_comes_is_given_up_and_what_comes_is_not() {
        let began = tokio::time::Instant::now();
        assert_eq!(limited(pending::<()>()).await, None);
        assert_eq!(began.elapsed(), READ_LIMIT);
        assert_eq!(briefly(pending::<()>()).await, None);
        assert!(began.elapsed() < READ_LIMIT * 2);
        assert_eq!(limited(ready(1)).await, Some(1));
    }
}
