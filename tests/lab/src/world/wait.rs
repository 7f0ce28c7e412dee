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
    found(timeout, what, || {
        let holds = condition();
        async { holds.await.then_some(()) }
    })
    .await;
}

/// Waits until `look` finds something, which it answers.
///
/// # Panics
/// With `what`, when it does not within `timeout`.
pub async fn found<T, F, R>(timeout: Duration, what: &str, mut look: F) -> T
where
    F: FnMut() -> R,
    R: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {timeout:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until `missing` answers `None`.
///
/// # Panics
/// With what is missing, when that is still something after `timeout`.
pub async fn nothing_is_missing<F, R>(timeout: Duration, mut missing: F)
where
    F: FnMut() -> R,
    R: Future<Output = Option<String>>,
{
    let deadline = Instant::now() + timeout;
    while let Some(missing) = missing().await {
        assert!(
            Instant::now() < deadline,
            "not within {timeout:?}: {missing}"
        );
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
    let end = Instant::now() + duration;
    while Instant::now() < end {
        assert!(condition().await, "broken: {what}");
        tokio::time::sleep(POLL).await;
    }
}
