// SPDX-License-Identifier: Apache-2.0
//! Sees when a connection is being opened, so that the time for connecting and the time for the answer's head are two.
//!
//! Without it a request on an open connection that died would wait for the sum of both.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

/// What is known of the connections of one client.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    in_progress: u32,
    last_change: Option<Instant>,
}

/// Shared by the connector, which writes, and the requests, which read.
#[derive(Debug, Clone, Default)]
pub(super) struct Connecting(Arc<Mutex<State>>);

impl Connecting {
    /// Until when a request that began at `start` may wait for the head of its answer, as known now.
    pub(super) fn headers_deadline(
        &self,
        start: Instant,
        connect: Duration,
        headers: Duration,
    ) -> Instant {
        headers_deadline(*self.state(), start, connect, headers)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, apply: impl FnOnce(u32) -> u32) {
        let mut state = self.state();
        state.in_progress = apply(state.in_progress);
        state.last_change = Some(Instant::now());
    }
}

fn headers_deadline(state: State, start: Instant, connect: Duration, headers: Duration) -> Instant {
    let since = state.last_change.map_or(start, |change| change.max(start));
    if state.in_progress > 0 {
        since + connect + headers
    } else {
        since + headers
    }
}

impl<S> Layer<S> for Connecting {
    type Service = Watched<S>;

    fn layer(&self, connector: S) -> Watched<S> {
        Watched {
            connector,
            connecting: self.clone(),
        }
    }
}

/// A connector that tells when it is at work.
#[derive(Debug, Clone)]
pub(super) struct Watched<S> {
    connector: S,
    connecting: Connecting,
}

impl<S, R> Service<R> for Watched<S>
where
    S: Service<R>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let attempt = Attempt::begin(&self.connecting);
        let connected = self.connector.call(request);
        Box::pin(async move {
            let result = connected.await;
            drop(attempt);
            result
        })
    }
}

/// Ends with the attempt, also when it is given up.
struct Attempt(Connecting);

impl Attempt {
    fn begin(connecting: &Connecting) -> Self {
        connecting.change(|in_progress| in_progress.saturating_add(1));
        Self(connecting.clone())
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.0.change(|in_progress| in_progress.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECT: Duration = Duration::from_secs(3);
    const HEADERS: Duration = Duration::from_secs(10);

    #[test]
    fn the_time_for_the_head_begins_when_the_connection_stands() {
        let start = Instant::now();
        let later = start + Duration::from_secs(2);
        let deadline = |in_progress, last_change| {
            headers_deadline(
                State {
                    in_progress,
                    last_change,
                },
                start,
                CONNECT,
                HEADERS,
            )
        };
        assert_eq!(deadline(0, None), start + HEADERS);
        assert_eq!(deadline(0, Some(later)), later + HEADERS);
        assert_eq!(deadline(1, Some(later)), later + CONNECT + HEADERS);
        assert_eq!(deadline(0, Some(start)), start + HEADERS);
    }

    #[test]
    fn a_connection_from_before_the_request_gives_it_no_more_time() {
        let before = Instant::now();
        let start = before + Duration::from_secs(60);
        let state = State {
            in_progress: 0,
            last_change: Some(before),
        };
        assert_eq!(
            headers_deadline(state, start, CONNECT, HEADERS),
            start + HEADERS
        );
    }

    #[test]
    fn an_attempt_that_is_given_up_is_no_longer_in_progress() {
        let connecting = Connecting::default();
        let attempt = Attempt::begin(&connecting);
        assert_eq!(connecting.state().in_progress, 1);
        drop(attempt);
        assert_eq!(connecting.state().in_progress, 0);
    }
}
