// SPDX-License-Identifier: Apache-2.0
//! A standing watch of one object. It says that something changed, never what: the loop reads afresh.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Sender;
use super::health::Health;
use crate::agent::Trigger;
use crate::decide::interruptions::Interruptions;
use crate::decide::schedule;
use crate::escape::chain;
use crate::facts::who::{Api, Remark};
use crate::kubeapi::{
    Class, Client, Error, Timeouts, Watch, WatchEvent, WatchRequest, silence_limit,
};

/// A stream that ends sooner than this was no success.
const SHORT: Duration = Duration::from_secs(1);

/// In which a server begins with the object, where there is one. It does so with the head of its answer.
const BEGINNING: Duration = Duration::from_secs(1);

/// Failures in a row after which a watch that cannot be kept open is complained about. Fewer are a restart of the server.
const COMPLAIN_AFTER: u32 = 4;

/// What is watched.
#[derive(Debug, Clone)]
pub struct Target {
    /// The client; a new one after each change of the credential.
    pub client: Client,
    /// Counts the credential's changes, so that a watch on an old client is replaced.
    pub generation: u64,
    /// The path of the collection.
    pub path: String,
    /// The name of the object.
    pub name: String,
}

impl Target {
    /// Whether a watch of `other` serves this target as well.
    pub fn is_same(&self, other: &Self) -> bool {
        self.generation == other.generation && self.path == other.path && self.name == other.name
    }
}

/// An object as a watch delivers it.
pub trait Watched: DeserializeOwned + Send + 'static {
    /// The part of it whose change is a reason to look.
    type Glimpse: PartialEq + Send;

    /// Its name.
    fn name(&self) -> &str;

    /// The part of it whose change is a reason to look.
    fn glimpse(self) -> Self::Glimpse;
}

/// Whether a watch is known to be alive. A connection may not survive a move, and TCP notices that a minute later.
#[derive(Debug, Clone)]
pub struct Pulse {
    heard: Arc<Mutex<Instant>>,
    redial: Arc<Notify>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            heard: Arc::new(Mutex::new(Instant::now())),
            redial: Arc::default(),
        }
    }
}

impl Pulse {
    /// Begins the watch anew, from where it stands, unless the server has said something since `since`.
    pub fn prove(&self, since: Instant) {
        if *self.heard.lock().unwrap_or_else(PoisonError::into_inner) < since {
            // Only to one that listens: one that is between two connections begins anew anyway.
            self.redial.notify_waiters();
        }
    }

    fn beat(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

/// Watches until dropped.
pub async fn keep_watching<T: Watched>(
    target: Target,
    trigger: Trigger,
    sender: Sender,
    health: Health,
    pulse: Pulse,
) {
    let signal = trigger.as_str();
    let mut last: Option<T::Glimpse> = None;
    let mut version = String::new();
    let mut silent: u32 = 0;
    let mut failures: u32 = 0;
    let mut interruptions = Interruptions::default();
    let started = Instant::now();
    loop {
        let mut redialled = false;
        let mut has_begun = false;
        let opened = Instant::now();
        let began = opened.duration_since(started);
        let request = WatchRequest {
            name: Some(target.name.clone()),
            // "0": begin with the object as the server's cache has it, or with silence. It closes the gap to the read before.
            resource_version: Some(if version.is_empty() {
                "0".to_owned()
            } else {
                version.clone()
            }),
            metadata_only: trigger == Trigger::Node,
            silence_limit: Some(silence_limit(Timeouts::default().watch_silence, silent)),
            ..WatchRequest::new(target.path.clone())
        };
        // On the heap only until it is open: the task lives as long as the process.
        let ended = match Box::pin(target.client.watch::<T>(&request)).await {
            Ok(mut watch) => {
                pulse.beat();
                health.set(
                    signal,
                    true,
                    format!("watch of {} at {}", target.name, target.client.server()),
                );
                has_begun = true;
                if interruptions.alive(began, started.elapsed()) {
                    health.remark(signal, None);
                }
                if failures > 0 {
                    // What happened while nobody watched, and the report that says so, are made up for.
                    sender.send(trigger);
                }
                let mut silence = version.is_empty().then_some(BEGINNING);
                let ended = loop {
                    let event = tokio::select! {
                        biased;
                        // A watch that is left in the middle of an event is not used any more.
                        () = pulse.redial.notified() => {
                            redialled = true;
                            break None;
                        }
                        event = next(&mut watch, &mut silence, || sender.send(trigger)) => event,
                    };
                    if event.is_ok() {
                        pulse.beat();
                        if interruptions.count() > 0
                            && interruptions.alive(began, started.elapsed())
                        {
                            health.remark(signal, None);
                        }
                    }
                    match event {
                        Ok(WatchEvent::Foreign { what }) => {
                            health.remark(signal, Some(Remark::UnexpectedObject { what }));
                        }
                        Ok(WatchEvent::Changed {
                            object,
                            resource_version,
                        }) => {
                            version = resource_version;
                            let glimpse = Some(object.glimpse());
                            if glimpse != last {
                                last = glimpse;
                                sender.send(trigger);
                            }
                        }
                        Ok(WatchEvent::Deleted {
                            resource_version, ..
                        }) => {
                            version = resource_version;
                            last = None;
                            sender.send(trigger);
                        }
                        Ok(WatchEvent::Bookmark { resource_version }) => version = resource_version,
                        Ok(WatchEvent::Ended) => break None,
                        Err(error) => break Some(error),
                    }
                };
                silent = match ended {
                    Some(Error::Silent { .. }) if watch.bookmarks_seen() == 0 => {
                        silent.saturating_add(1)
                    }
                    _ if watch.bookmarks_seen() > 0 => 0,
                    _ => silent,
                };
                ended
            }
            Err(error) => Some(error),
        };
        let is_cut = match &ended {
            None => !redialled,
            Some(error) => matches!(error, Error::Interrupted { .. }),
        };
        if has_begun && is_cut && interruptions.cut(began, started.elapsed()) {
            let what = format!(
                "the watch of {} at {} has ended 4 times within 5 minutes, each time after it had begun well",
                target.name,
                target.client.server()
            );
            let api = api_of(trigger);
            health.remark(signal, Some(Remark::WatchInterrupted { api, what }));
        }
        if redialled || ended.is_none() && opened.elapsed() >= SHORT {
            failures = 0;
            // Whoever ends each watch at once must not be asked for the next one at once.
            if !redialled && interruptions.count() > 0 {
                let wait = schedule::retry(interruptions.count(), None, sender.random());
                tokio::time::sleep(wait).await;
                sender.send(trigger);
            }
            continue;
        }
        // A stream that lived long enough proves that the ones before it are of the past.
        failures = if opened.elapsed() > Duration::from_secs(60) {
            1
        } else {
            failures.saturating_add(1)
        };
        let mut asked = None;
        if let Some(error) = &ended {
            health.set(signal, false, chain(error));
            asked = error.retry_after();
            match error.class() {
                Class::Gone => version.clear(),
                Class::Forbidden => complain(&health, trigger, error),
                // What is cut off can be kept open by the server, and has its complaint.
                _ if is_cut && interruptions.count() > 0 => {}
                _ if failures >= COMPLAIN_AFTER => complain(&health, trigger, error),
                _ => {}
            }
        }
        // The wait comes first: when a server restarts, its watchers must not all ask at once.
        tokio::time::sleep(schedule::retry(failures, asked, sender.random())).await;
        if ended.is_some() && failures == 1 {
            sender.send(trigger);
        }
    }
}

/// The next event. Where none comes within `silence`, the watch has begun without its object, which has gone since it was
/// read: `gone` is called once. Not to be left in the middle of an event.
async fn next<T: Watched>(
    watch: &mut Watch<T>,
    silence: &mut Option<Duration>,
    gone: impl FnOnce(),
) -> Result<WatchEvent<T>, Error> {
    let event = watch.next();
    let Some(silence) = silence.take() else {
        return event.await;
    };
    let mut event = std::pin::pin!(event);
    if let Ok(event) = tokio::time::timeout(silence, &mut event).await {
        return event;
    }
    gone();
    event.await
}

fn api_of(trigger: Trigger) -> Api {
    match trigger {
        Trigger::Node => Api::Guest,
        _ => Api::Harvester,
    }
}

fn complain(health: &Health, trigger: Trigger, error: &Error) {
    let api = api_of(trigger);
    let what = chain(error);
    health.remark(
        trigger.as_str(),
        Some(Remark::WatchUnavailable { api, what }),
    );
}
