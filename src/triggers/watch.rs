// SPDX-License-Identifier: Apache-2.0
//! A watch of one object that is always re-established. It delivers changes of the object and sends reasons to reconcile.
//!
//! The machine's phase and the randomness are parameters, so that a whole fleet of keepers can run against a model of a server on a
//! paused clock.

mod objects;
mod resume;
mod target;

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use resume::Resume;
use target::next;
pub use target::{Pulse, Target, Watched};

use super::feed::{Delivered, api_of};
use super::inbox::Sender;
use super::watch_cuts::{Interruptions, LIFE_LEAST};
use crate::agent::Trigger;
use crate::agent::source_board::SourceBoard;
use crate::catalog::{Api, Code, Finding, Group};
use crate::decide::schedule::{self, Phase, Purpose};
use crate::sys::escape::chain;
use crate::wire::kubeapi::{Error, Kind, STREAM_TIME, Watch, WatchEvent};

/// The time in which a server sends the object, if it exists. It does so with the head of its response.
const BEGINNING: Duration = Duration::from_secs(1);

/// The number of consecutive failures after which a watch is reported as unavailable. A restart of the server causes fewer.
const COMPLAIN_AFTER: u32 = 4;

/// The end of a stream that lived this long is not related to the end of the stream before it, and an object that was not requested is
/// no longer reported after this time.
const LONG: Duration = Duration::from_secs(5 * 60);

/// The time limit for opening the next stream while the previous one is still open.
const HANDOVER: Duration = Duration::from_secs(10);

/// Keeps a watch open until it is dropped.
///
/// A stream is replaced by the next one before its time limit. After any other end, and after a failure to open one, the next is
/// opened after a delay that spreads a fleet; it resumes at the last version, and no other request is necessary.
#[derive(Debug)]
pub struct Keeper<T: Watched> {
    target: Target<T>,
    trigger: Trigger,
    sender: Sender,
    board: SourceBoard,
    pub(super) pulse: Pulse,
    phase: Phase,
    /// The last delivered snapshot.
    last: Option<T::Snapshot>,
    resume: Resume,
    /// The number of ends and failures in quick succession.
    ends: u32,
    /// The number of consecutive failures to open a stream.
    failures: u32,
    /// The number of consecutive streams that ended as soon as they were open.
    short: u32,
    /// Whether the API was last reported as away.
    is_away: bool,
    /// The time at which this stream last sent an object that was not requested.
    foreign: Option<Instant>,
    interruptions: Interruptions,
    /// Whether the storage of the server was last found to have no watch progress.
    lacks_progress: bool,
}

/// The end of a stream.
enum WatchEnd<S> {
    /// The next stream is already open.
    Replaced(S),
    /// The stream was left because it may be broken.
    Left,
    /// The server ended it normally, or it failed.
    Ended(Option<Error>),
}

impl<T: Watched> Keeper<T> {
    /// Creates a watch that is not open yet. `machine` is the machine's number, see [`Phase::of`].
    pub fn new(
        target: Target<T>,
        trigger: Trigger,
        sender: Sender,
        board: SourceBoard,
        machine: u64,
    ) -> Self {
        let purpose = match trigger {
            Trigger::Node => Purpose::NodeWatch,
            _ => Purpose::VmiWatch,
        };
        Self {
            target,
            trigger,
            sender,
            board,
            pulse: Pulse::default(),
            phase: Phase::of(machine, purpose),
            last: None,
            resume: Resume::default(),
            ends: 0,
            failures: 0,
            short: 0,
            is_away: false,
            foreign: None,
            interruptions: Interruptions::default(),
            lacks_progress: false,
        }
    }

    /// Watches until dropped.
    pub async fn keep(mut self) {
        // The next stream, and the time since which one has followed another without a gap.
        let mut replacement = None;
        loop {
            let goes_on = self.resume.version.is_some();
            let (stream, opened) = match replacement.take() {
                Some(replacement) => replacement,
                None => match self.open().await {
                    Ok(stream) => (stream, Instant::now()),
                    // No request was sent, so the state of the API is unknown: another request failed.
                    Err(error) if error.is_deferred => {
                        self.board.set(self.trigger.as_str(), false, chain(&error));
                        self.rest(error.retry_after.unwrap_or_default()).await;
                        continue;
                    }
                    Err(error) => {
                        self.refused(&error);
                        if is_forbidden(&error) && self.failures >= COMPLAIN_AFTER {
                            // A new credential replaces this keeper.
                            let delay = schedule::forbidden_watch_delay(self.sender.random());
                            self.rest(delay).await;
                        } else {
                            self.pause(goes_on && error.is_of_version()).await;
                        }
                        continue;
                    }
                },
            };
            self.opened(opened);
            match self.follow(stream, opened).await {
                WatchEnd::Replaced(stream) => replacement = Some((stream, opened)),
                WatchEnd::Left => {}
                WatchEnd::Ended(Some(error))
                    if error.kind == Kind::NoWatchProgress && !self.resume.without_bookmarks =>
                {
                    self.board.set(self.trigger.as_str(), false, chain(&error));
                    self.resume.without_bookmarks = true;
                    self.lacks_progress = true;
                    // The delay before the first stream has already spread the fleet.
                    self.pause(true).await;
                }
                WatchEnd::Ended(error) => {
                    self.ended(opened, error.as_ref());
                    let is_short = opened.elapsed() < LIFE_LEAST;
                    let is_refused = error.is_some_and(|error| {
                        is_short && error.is_of_version() || error.kind == Kind::Silent
                    });
                    let is_dropped = goes_on && self.resume.version.is_none();
                    self.pause(is_dropped && is_refused).await;
                }
            }
        }
    }

    async fn open(&self) -> Result<Watch<T>, Error> {
        let request = self.resume.request(&self.target.path, T::METADATA_ONLY);
        // Boxed only until it is open: the task lives as long as the process.
        Box::pin(self.target.client.watch(&request)).await
    }

    /// Waits until the next stream is due. `is_spread`: its version was refused immediately, or answered by silence, so the previous
    /// delay has already spread the fleet.
    async fn pause(&mut self, is_spread: bool) {
        self.ends = self.ends.saturating_add(1);
        let delay = match is_spread {
            true => schedule::version_delay(self.target.delay, self.sender.random()),
            false => self.delay(self.ends),
        };
        self.rest(delay).await;
    }

    /// Waits, then until the backoff of the API ends, and until a read that it deferred was sent. Other requests may fail in the meantime.
    async fn rest(&self, delay: Duration) {
        sleep(delay).await;
        while let Some(left) = self.target.client.backoff().left_for_watch() {
            sleep(left).await;
        }
    }

    fn delay(&self, ends: u32) -> Duration {
        schedule::watch_delay(self.target.delay, ends, self.phase, self.sender.random())
    }

    /// Records a failure to open a stream.
    fn refused(&mut self, error: &Error) {
        self.failures = self.failures.saturating_add(1);
        self.board.set(self.trigger.as_str(), false, chain(error));
        if error.is_of_version() {
            self.resume.version = None;
        }
        // Limits of the server for watches alone do not apply to reads: those that succeeded in the meantime count.
        let is_limited = self.is_away && error.kind == Kind::Overloaded;
        if error.is_of_whole_api() && !is_limited {
            self.is_away = true;
            self.resume.with_bookmarks();
            let left = self.target.client.backoff().left();
            let why = error.deferral(left.unwrap_or_default());
            self.target.feed.reach(Err(why));
            self.sender.send(self.trigger);
        } else if self.failures == 1 {
            // Only the watch may be broken.
            self.unknown();
        }
        // A watch that is interrupted can be opened, and has its own finding.
        let is_cut = self.interruptions.is_known;
        if is_forbidden(error) || self.failures >= COMPLAIN_AFTER && !is_cut {
            self.report_unavailable(chain(error));
        }
    }

    /// Has the object read: it is gone or its state is unknown.
    fn unknown(&self) {
        self.target.feed.deliver(Delivered::Unknown);
        self.sender.send(self.trigger);
    }

    /// Records an open stream.
    fn opened(&mut self, opened: Instant) {
        self.pulse.beat();
        self.foreign = None;
        let (name, server) = (self.target.path.name(), self.target.client.server());
        let detail = format!("watch of {name} at {server}");
        self.board.set(self.trigger.as_str(), true, detail);
        self.failures = 0;
        if self.short < COMPLAIN_AFTER {
            self.alive(opened);
        }
        if std::mem::take(&mut self.is_away) {
            self.target.feed.reach(Ok(()));
            self.sender.send(self.trigger);
        }
    }

    /// Withdraws the finding unless the watch is interrupted repeatedly, or has sent an object that was not requested.
    fn alive(&mut self, opened: Instant) {
        let is_whole = self.interruptions.alive(opened, Instant::now());
        if is_whole && self.foreign.is_none() {
            self.board.report(self.trigger.as_str(), self.shortcoming());
        }
    }

    /// Returns the limitation of a watch that works.
    fn shortcoming(&self) -> Option<Finding> {
        let what = || {
            let server = self.target.client.server();
            format!("the storage of {server} has no watch progress (RequestWatchProgress)")
        };
        self.lacks_progress
            .then(|| self.finding(Code::WatchProgressMissing, what()))
    }

    /// Follows a stream until it ends.
    async fn follow(&mut self, mut stream: Watch<T>, opened: Instant) -> WatchEnd<Watch<T>> {
        let mut is_silent = true;
        let is_whole = self.resume.version.is_none();
        let mut beginning = is_whole.then_some(BEGINNING);
        let pulse = self.pulse.clone();
        let renewal = schedule::renewal(STREAM_TIME, self.phase, self.sender.random());
        let mut renewal = std::pin::pin!(sleep(renewal));
        // When a stream is no short one. Later than the call of `gone`, which another branch would cancel.
        let mut established = std::pin::pin!(sleep(BEGINNING + LIFE_LEAST));
        // One for the whole stream: it misses no notification, whatever is awaited in the meantime.
        let mut redial = std::pin::pin!(pulse.redial.notified());
        loop {
            let event = tokio::select! {
                biased;
                // A watch that is left in the middle of an event is not used again.
                () = &mut redial => return WatchEnd::Left,
                event = next(&mut stream, &mut beginning, || self.unknown()) => event,
                () = &mut established, if self.short >= COMPLAIN_AFTER => {
                    self.short = 0;
                    self.alive(opened);
                    continue;
                }
                () = &mut renewal => {
                    let opened = tokio::select! {
                        biased;
                        () = &mut redial => return WatchEnd::Left,
                        opened = timeout(HANDOVER, self.open()) => opened,
                    };
                    if let Ok(Ok(stream)) = opened {
                        return WatchEnd::Replaced(stream);
                    }
                    // The stream is still open. If it ends in the meantime, that is a normal end.
                    renewal.as_mut().reset(Instant::now() + self.delay(1));
                    continue;
                }
            };
            if event.is_ok() {
                self.pulse.beat();
                let has_progress = is_whole
                    && !self.resume.without_bookmarks
                    && std::mem::take(&mut self.lacks_progress);
                // Not at once: a stream that mixes both must not cause a round for each of its events.
                let is_old = |last: &mut Instant| last.elapsed() >= LONG;
                let is_over = !matches!(event, Ok(WatchEvent::Foreign { .. }))
                    && self.foreign.take_if(is_old).is_some();
                if is_over || has_progress || self.interruptions.is_known {
                    self.alive(opened);
                }
            }
            match event {
                Ok(event) => {
                    is_silent &= !matches!(event, WatchEvent::Bookmark { .. });
                    if self.take(event) {
                        return WatchEnd::Ended(None);
                    }
                }
                Err(error) => {
                    if is_silent && error.kind == Kind::Silent {
                        self.resume.after_silence();
                    }
                    return WatchEnd::Ended(Some(error));
                }
            }
        }
    }

    /// Handles an event. Reports whether it is the last.
    fn take(&mut self, event: WatchEvent<T>) -> bool {
        match event {
            // The first of a stream is enough: one that has many must not cause a round for each.
            WatchEvent::Foreign { what } => {
                if self.foreign.replace(Instant::now()).is_none() {
                    let finding = self.finding(Code::UnexpectedObject, what);
                    self.board.report(self.trigger.as_str(), Some(finding));
                }
            }
            WatchEvent::Changed {
                object,
                resource_version,
            } => {
                self.resume.at(resource_version.clone());
                let snapshot = Some(object.snapshot());
                if snapshot != self.last {
                    self.last = snapshot;
                    self.target.feed.deliver(Delivered::Object {
                        object,
                        version: resource_version,
                    });
                    self.sender.send(self.trigger);
                }
            }
            WatchEvent::Deleted { resource_version } => {
                self.resume.at(resource_version);
                self.last = None;
                self.unknown();
            }
            WatchEvent::Bookmark { resource_version } => {
                return !self.resume.at_bookmark(resource_version);
            }
            WatchEvent::Ended => return true,
        }
        false
    }

    /// Records the end of a stream.
    fn ended(&mut self, opened: Instant, error: Option<&Error>) {
        let now = Instant::now();
        if now.duration_since(opened) >= LONG {
            self.ends = 0;
        }
        let (name, server) = (self.target.path.name(), self.target.client.server());
        let is_cut = error.is_none_or(|error| error.kind == Kind::Interrupted);
        if is_cut && self.interruptions.cut(opened, now) {
            let what = format!(
                "the watch of {name} at {server} was closed 4 times within 10 minutes, each time after it was established"
            );
            let finding = self.finding(Code::WatchInterrupted, what);
            self.board.report(self.trigger.as_str(), Some(finding));
        }
        let closed = || format!("the watch of {name} was closed by {server}");
        let detail = error.map_or_else(closed, |error| chain(error));
        self.short = match now.duration_since(opened) < LIFE_LEAST {
            true => self.short.saturating_add(1),
            false => 0,
        };
        if self.short >= COMPLAIN_AFTER {
            self.report_unavailable(detail.clone());
        }
        self.board.set(self.trigger.as_str(), false, detail);
        if error.is_some_and(Error::is_of_version) {
            self.resume.version = None;
        }
    }

    fn report_unavailable(&self, what: String) {
        let finding = self.finding(Code::WatchUnavailable, what);
        let finding = match api_of(self.trigger) {
            Api::Harvester => finding,
            // Our roles do not control what a kubelet may watch.
            Api::Guest => finding
                .with_remedy("Check the journal of the API server: it may be overloaded, or a proxy in front of it closes connections.")
                .with_commands(vec!["harvester-node-agent status -v".to_owned()]),
        };
        self.board.report(self.trigger.as_str(), Some(finding));
    }

    fn finding(&self, code: Code, what: String) -> Finding {
        Finding::new(code, what).about(Group::of_api(api_of(self.trigger)))
    }
}

fn is_forbidden(error: &Error) -> bool {
    matches!(error.kind, Kind::Forbidden | Kind::OtherNode)
}

#[cfg(test)]
mod tests;
