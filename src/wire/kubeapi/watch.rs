// SPDX-License-Identifier: Apache-2.0
//! A watch: a long response with one event per line, which must not be silent for longer than a limit.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Response;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use crate::sys::timer::Alarm;

use super::error::{Error, Kind, Target};
use super::http::{Call, Transport};
use super::lines::{Lines, MAXIMUM_LINE};
use super::object::ObjectPath;
use super::types::{EventFrame, EventObject, JSON, METADATA};

/// The silence after which a stream is replaced, even if the server sends no bookmarks.
pub const LONGEST_SILENCE: Duration = Duration::from_secs(30 * 60);
/// The time for which the server is asked to keep a stream open. API servers choose 30 to 60 minutes by default, and proxies allow
/// for that; an hour needs the fewest new streams, and a stale stream that was not noticed is replaced within it.
pub const STREAM_TIME: Duration = Duration::from_secs(3600);
/// The time after the silence limit to read what has already arrived: when a paused guest resumes, its timers expire at the same
/// time as its sockets become readable.
const LAST_CHANCE: Duration = Duration::from_millis(250);

/// The time that one event costs; a live migration has about thirty events.
const EVENT_PERIOD: Duration = Duration::from_millis(10);
/// The length of an event's text for each additional millisecond: 2 MB a second.
const BYTES_A_MILLISECOND: usize = 2000;
/// The amount that may be read without a pause: two hundred events, or 4 MB.
const BURST: Duration = Duration::from_secs(2);

/// The time after which a stream that sends more than is read is ended: its events are late, and a new stream begins with the
/// current state of the object.
const LONGEST_FLOOD: Duration = Duration::from_secs(10);

/// The objects to watch, and the resource version to start from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchRequest {
    /// The one object to watch, or all objects of a collection.
    pub path: ObjectPath,
    /// The version to continue from. "0": the stream begins with the existing objects, as the server's cache has them.
    pub resource_version: String,
    /// Whether only the metadata is requested.
    pub metadata_only: bool,
    /// The silence limit of this stream until its first bookmark.
    pub silence_limit: Duration,
    /// Whether bookmarks are requested.
    pub bookmarks: bool,
}

#[cfg(test)]
impl WatchRequest {
    /// Creates a request to watch from the existing objects, with whole objects and the longest time.
    pub(crate) fn new(path: &ObjectPath) -> Self {
        Self {
            path: path.clone(),
            resource_version: "0".to_owned(),
            metadata_only: false,
            silence_limit: LONGEST_SILENCE,
            bookmarks: true,
        }
    }
}

/// An open watch. Its events are those of one stream: when the stream is over, the caller opens another one.
pub struct Watch<T> {
    transport: Arc<Transport>,
    target: Target,
    expected: ObjectPath,
    accept: &'static str,
    /// The response, and the permit to hold a watch, which is released at the end of the stream. None once the stream is over.
    live: Option<(Response, OwnedSemaphorePermit)>,
    lines: Lines,
    /// The time until which an event must arrive; moved by each one.
    silent_at: Instant,
    /// Waits until then.
    silence: Alarm,
    /// Whether the silence limit has passed, until an event shows that the stream works.
    is_last_chance: bool,
    limit: Duration,
    pace: WatchPace,
    /// The time until which nothing is read: further data waits in the server.
    paused_until: Option<Instant>,
    objects: PhantomData<fn() -> T>,
}

/// An event of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent<T> {
    /// The object is new or changed, or existed when the watch began.
    Changed {
        /// The new state of the object.
        object: T,
        /// The version from which another watch can continue.
        resource_version: String,
    },
    /// The object was deleted, or the selector no longer matches it.
    Deleted {
        /// The version from which another watch can continue.
        resource_version: String,
    },
    /// An object that was not requested. It is not read.
    Foreign {
        /// The requested and the received object, escaped.
        what: String,
    },
    /// No change up to this version.
    Bookmark {
        /// The version from which another watch can continue.
        resource_version: String,
    },
    /// The server ended the stream normally, or the stream was already over.
    Ended,
}

/// Limits the rate at which a stream is read, so that a server that sends without end costs a few percent of one processor. TCP
/// flow control delays the rest. Measured: without it such a server costs a whole processor, with 60,000 events a second; with it a
/// debug build used 7 percent. `CPUQuota=` of the unit is no replacement: it would delay everything else, too.
#[derive(Debug)]
struct WatchPace {
    /// The time at which the cost of all data read so far is paid.
    paid_at: Instant,
    /// The time since which there was always unpaid cost.
    busy_since: Instant,
}

impl WatchPace {
    fn new(now: Instant) -> Self {
        Self {
            paid_at: now,
            busy_since: now,
        }
    }

    /// Reports whether more than a burst was sent for too long.
    fn is_flooded(&self, now: Instant) -> bool {
        self.paid_at > now + BURST && now - self.busy_since > LONGEST_FLOOD
    }

    /// Adds the cost of one event of `bytes` bytes at `now`. Returns the time until which the next event waits.
    fn take(&mut self, bytes: usize, now: Instant) -> Option<Instant> {
        let of_bytes = u32::try_from(bytes / BYTES_A_MILLISECOND).unwrap_or(u32::MAX);
        let cost = EVENT_PERIOD + Duration::from_millis(1).saturating_mul(of_bytes);
        if self.paid_at <= now {
            self.busy_since = now;
        }
        self.paid_at = self.paid_at.max(now) + cost;
        Some(self.paid_at - BURST).filter(|until| *until > now)
    }
}

pub(super) async fn open<T>(
    transport: &Arc<Transport>,
    request: &WatchRequest,
) -> Result<Watch<T>, Error> {
    let mut collection = request.path.clone();
    let name = collection.name.take();
    let selector = name.map(|name| format!("metadata.name={name}"));
    let accept = match request.metadata_only {
        true => METADATA,
        false => JSON,
    };
    let call = Call::read("watch", &collection, accept)
        .with("watch", Some(true))
        .with("allowWatchBookmarks", request.bookmarks.then_some(true))
        .with("timeoutSeconds", Some(STREAM_TIME.as_secs()))
        .with("fieldSelector", selector)
        .with("resourceVersion", Some(&request.resource_version));
    let target = transport.target(call.verb, &collection);
    let turn = transport.watch_turn(&target).await?;
    let response = transport.send(&call, &target).await?;
    let limit = request.silence_limit;
    Ok(Watch {
        transport: Arc::clone(transport),
        target,
        expected: request.path.clone(),
        accept,
        live: Some((response, turn)),
        lines: Lines::default(),
        silent_at: Instant::now() + limit,
        silence: Alarm::create(),
        is_last_chance: false,
        limit,
        pace: WatchPace::new(Instant::now()),
        paused_until: None,
        objects: PhantomData,
    })
}

impl<T> Watch<T> {
    fn heard(&mut self) {
        self.is_last_chance = false;
        self.silent_at = Instant::now() + self.limit;
    }
}

impl<T: DeserializeOwned> Watch<T> {
    /// Returns the next event. After an error and after [`WatchEvent::Ended`] the stream is over, and every further call returns
    /// `Ended` at once.
    ///
    /// May be dropped at any time without losing an event.
    pub async fn next(&mut self) -> Result<WatchEvent<T>, Error> {
        let result = self.next_in_stream().await;
        if matches!(result, Err(_) | Ok(WatchEvent::Ended)) {
            // After an error, no further data of the stream can be trusted.
            self.live = None;
            self.lines = Lines::default();
        }
        result
    }

    async fn next_in_stream(&mut self) -> Result<WatchEvent<T>, Error> {
        loop {
            if let Some(until) = self.paused_until {
                sleep_until(until).await;
                self.paused_until = None;
                // Nothing was read during the pause.
                self.heard();
            }
            let target = &self.target;
            let too_long = |_| target.too_large("bytes in one watch event", MAXIMUM_LINE);
            if let Some(line) = self.lines.next_line().map_err(too_long)? {
                self.heard();
                self.paused_until = self.pace.take(line.len(), Instant::now());
                if self.pace.is_flooded(Instant::now()) {
                    let problem = "the watch sends events faster than they are processed";
                    return Err(self.target.error(Kind::Refused, problem));
                }
                let event = self.event(&line)?;
                if matches!(event, WatchEvent::Bookmark { .. }) {
                    // This server sends bookmarks, so the usual silence limit applies again.
                    self.limit = self.limit.min(self.transport.timeouts.watch_silence);
                    self.heard();
                }
                return Ok(event);
            }
            let Some((response, _)) = &mut self.live else {
                return Ok(WatchEvent::Ended);
            };
            // May be dropped at any point: a chunk that was received is processed without another wait.
            let piece = tokio::select! {
                biased;
                piece = response.chunk() => piece,
                () = self.silence.until(self.silent_at) => {
                    if self.is_last_chance {
                        let problem = format!("no data received for {:?}", self.limit);
                        return Err(self.target.error(Kind::Silent, problem));
                    }
                    self.is_last_chance = true;
                    self.silent_at = Instant::now() + LAST_CHANCE;
                    continue;
                }
            };
            match piece {
                Ok(Some(piece)) => self.lines.push(&piece),
                Ok(None) if self.lines.is_empty() => return Ok(WatchEvent::Ended),
                Ok(None) => {
                    let problem = "connection interrupted";
                    return Err(self.target.error(Kind::Interrupted, problem));
                }
                Err(source) => return Err(self.transport.failure(source, &self.target)),
            }
        }
    }

    fn event(&self, line: &[u8]) -> Result<WatchEvent<T>, Error> {
        let frame: EventFrame<'_> = self.transport.parse(line, &self.target)?;
        // As bytes, as everywhere: parsing the same types from text too would duplicate the parser's code.
        let bytes = frame.object.get().as_bytes();
        let unreadable = |error| self.transport.unreadable(bytes, &error, &self.target);
        let compare = || self.expected.compare(bytes, self.accept);
        let foreign = match frame.kind.as_str() {
            "ADDED" | "MODIFIED" | "DELETED" => compare().map_err(unreadable)?,
            "BOOKMARK" => None,
            "ERROR" => return Err(self.transport.event_error(bytes, &self.target)),
            other => {
                let other = self.transport.describe(other);
                let problem = format!("the watch sent an event of unknown type `{other}`");
                return Err(self.target.error(Kind::Refused, problem));
            }
        };
        if let Some(found) = foreign {
            let found = self.transport.describe(&found);
            let what = format!("{found} in the watch of {}", self.expected.what());
            return Ok(WatchEvent::Foreign { what });
        }
        let event: EventObject = serde_json::from_slice(bytes).map_err(unreadable)?;
        let resource_version = event.metadata.resource_version;
        Ok(match frame.kind.as_str() {
            "BOOKMARK" => WatchEvent::Bookmark { resource_version },
            "DELETED" => WatchEvent::Deleted { resource_version },
            _ => WatchEvent::Changed {
                object: serde_json::from_slice(bytes).map_err(unreadable)?,
                resource_version,
            },
        })
    }
}

impl<T> fmt::Debug for Watch<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Watch({:?})", self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_read_at_once_and_a_flood_at_an_even_pace() {
        let mut now = Instant::now();
        let began = now;
        let mut pace = WatchPace::new(now);
        for event in 0..1500 {
            let until = pace.take(300, now);
            assert!(event >= 200 || until.is_none(), "{event}");
            assert!(event < 1210 || pace.is_flooded(now), "{event}");
            assert!(event > 1190 || !pace.is_flooded(now), "{event}");
            now = until.unwrap_or(now);
        }
        assert_eq!(now - began, EVENT_PERIOD * 1500 - BURST);
        // An idle period allows one burst, and no more.
        now += Duration::from_secs(3600);
        assert_eq!(pace.take(300, now), None);
        let large = pace.take(8_000_000, now).unwrap();
        assert!(large - now >= Duration::from_secs(2), "{:?}", large - now);
    }
}
