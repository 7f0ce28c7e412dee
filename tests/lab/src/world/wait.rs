// SPDX-License-Identifier: Apache-2.0
//! Waiting for what must come, and watching over what must stay.

use std::time::{Duration, Instant};

use super::POLL;

/// Waits until `condition` holds.
///
/// # Panics
/// With `what`, when it does not within `timeout`.
pub async fn eventually<F, R>(timeout: Duration, what: &str, mut condition: F)
where
    F: FnMut() -> R,
    R: Future<Output = bool>,
{
    let deadline = Instant::now() + timeout;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {timeout:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Checks that `condition` holds all the time for `duration`.
///
/// # Panics
/// With `what`, as soon as it does not.
pub async fn always<F, R>(duration: Duration, what: &str, mut condition: F)
where
    F: FnMut() -> R,
    R: Future<Output = bool>,
{
    let began = Instant::now();
    while began.elapsed() < duration {
        assert!(
            condition().await,
            "broken after {:?}: {what}",
            began.elapsed()
        );
        tokio::time::sleep(POLL).await;
    }
}
