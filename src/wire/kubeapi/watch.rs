// SPDX-License-Identifier: Apache-2.0
//! A watch: a long answer, one event per line, that is believed alive only while something is heard of it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, Response};
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::sys::document::json::{MAXIMUM_DEPTH, is_deeper_than};
use crate::sys::timer::Alarm;

use super::error::{Error, RequestTarget};
use super::expected::Expected;
use super::lines::{Lines, MAXIMUM_LINE};
use super::transport::{Accept, Call, Transport};
use super::types::{EventFrame, EventObject};

/// However few bookmarks come, a stream that is silent for so long is replaced.
pub const LONGEST_SILENCE: Duration = Duration::from_secs(30 * 60);
/// How long the server may keep a stream open. API servers choose 30 to 60 minutes themselves, and what stands between us and them is made
/// for that; an hour costs the fewest new streams, and a stream that went stale unnoticed is replaced within it.
const STREAM_TIME: Duration = Duration::from_secs(3600);
/// After the silence is over, what has arrived meanwhile gets this long to be seen: a guest that was paused wakes to its timers and its
/// sockets at once.
const LAST_CHANCE: Duration = Duration::from_millis(250);

/// The time that one event costs; a live migration is some thirty of them.
const EVENT_PERIOD: Duration = Duration::from_millis(10);
/// How much of an event's text the same time again pays for: 2 MB a second.
const BYTES_A_MILLISECOND: usize = 2000;
/// What may be read without a pause: two hundred events, or 4 MB.
const BURST: Duration = Duration::from_secs(2);

/// A stream that sends more than is read for so long is ended: what it has to say is late, and a new one begins with the
/// object as it is now.
const LONGEST_FLOOD: Duration = Duration::from_secs(10);

/// What to watch, and from where on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchRequest {
    /// The path of the collection.
    pub path: String,
    /// The one object that is watched; all when absent.
    pub name: Option<String>,
    /// The version to go on from. Without it the stream begins with what there is.
    pub resource_version: Option<String>,
    /// Whether the metadata is all that is wanted.
    pub metadata_only: bool,
    /// The silence that this stream is allowed until its first bookmark; [`silence_limit`] computes it. Absent: `Timeouts::watch_silence`.
    pub silence_limit: Option<Duration>,
    /// How long the server may keep the stream open.
    pub stream_time: Duration,
    /// Whether bookmarks are asked for.
    pub bookmarks: bool,
}

impl WatchRequest {
    /// A watch of a collection from what there is, of whole objects, with the usual times.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            name: None,
            resource_version: None,
            metadata_only: false,
            silence_limit: None,
            stream_time: STREAM_TIME,
            bookmarks: true,
        }
    }
}

/// An open watch. Its events are of one stream: when that is over, the caller opens another.
pub struct Watch<T> {
    transport: Arc<Transport>,
    target: Arc<RequestTarget>,
    expected: Expected,
    /// None once the stream is over.
    live: Option<Live>,
    lines: Lines,
    /// The one timer of the stream, re-armed by each event.
    ///
    /// None where the kernel gave no descriptor for it: then TCP alone finds a dead peer.
    silence: Option<Alarm>,
    /// Set when the silence is over, until an event shows that the stream lives after all.
    last_chance: Option<Instant>,
    limit: Duration,
    bookmarks: u64,
    pace: WatchPace,
    /// Until then nothing is read: what comes faster waits in the server.
    paused_until: Option<Instant>,
    objects: PhantomData<fn() -> T>,
}

struct Live {
    response: Response,
    /// The turn to hold a watch ends with the stream.
    _turn: OwnedSemaphorePermit,
}

/// What a watch tells.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent<T> {
    /// The object is there, new or changed, or was there when the watch began.
    Changed {
        /// The object as it is.
        object: T,
        /// From here on another watch can go on.
        resource_version: String,
    },
    /// The object is gone, or no longer chosen by the selector.
    Deleted {
        /// The object as it was.
        object: T,
        /// From here on another watch can go on.
        resource_version: String,
    },
    /// An object that was not asked for. It is not read.
    Foreign {
        /// What was asked for and what came, described.
        what: String,
    },
    /// Nothing happened up to this version.
    Bookmark {
        /// From here on another watch can go on.
        resource_version: String,
    },
    /// The server ended the stream in order, or it is long over.
    Ended,
}

/// Limits how much of a stream is read, so that a server that sends without end costs a few percent of one processor. TCP
/// holds up what is not read.
#[derive(Debug)]
struct WatchPace {
    /// When all that was read so far is paid for.
    paid_at: Instant,
    /// Since when there was always something that was not paid for.
    busy_since: Instant,
}

impl WatchPace {
    fn new(now: Instant) -> Self {
        Self {
            paid_at: now,
            busy_since: now,
        }
    }

    /// Whether more than a burst was sent for too long.
    fn is_flooded(&self, now: Instant) -> bool {
        self.paid_at > now + BURST && now - self.busy_since > LONGEST_FLOOD
    }

    /// Takes one event of so many bytes at `now`. Answers until when the next one waits.
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

/// The silence that the next stream is allowed, given how many streams in a row ended silent without ever having had a bookmark.
///
/// Some proxies and old servers send no bookmarks: there silence proves nothing, and a dead peer is found by TCP.
#[must_use]
pub fn silence_limit(usual: Duration, silent_streams_without_bookmark: u32) -> Duration {
    let factor = 2_u32.saturating_pow(silent_streams_without_bookmark);
    usual.saturating_mul(factor).min(LONGEST_SILENCE.max(usual))
}

pub(super) async fn open<T>(
    transport: &Arc<Transport>,
    request: &WatchRequest,
) -> Result<Watch<T>, Error> {
    let mut query = vec![("watch", "true".to_owned())];
    if request.bookmarks {
        query.push(("allowWatchBookmarks", "true".to_owned()));
    }
    query.push(("timeoutSeconds", request.stream_time.as_secs().to_string()));
    query.extend(request.name.as_deref().map(|name| {
        let name = escape_field_value(name);
        ("fieldSelector", format!("metadata.name={name}"))
    }));
    query.extend(
        request
            .resource_version
            .clone()
            .map(|version| ("resourceVersion", version)),
    );
    let call = Call {
        verb: "watch",
        method: Method::GET,
        path: &request.path,
        query,
        accept: if request.metadata_only {
            Accept::MetadataOnly
        } else {
            Accept::Object
        },
        body: None,
    };
    let target = transport.target(&call);
    let turn = transport.watch_turn(&target).await?;
    let response = transport.send(&call, &target).await?;
    let limit = request
        .silence_limit
        .unwrap_or(transport.timeouts.watch_silence);
    let silence = Alarm::new().ok();
    if let Some(silence) = &silence {
        silence.set(limit);
    }
    Ok(Watch {
        transport: Arc::clone(transport),
        target,
        expected: Expected::of(&request.path).named(request.name.as_deref()),
        live: Some(Live {
            response,
            _turn: turn,
        }),
        lines: Lines::default(),
        silence,
        last_chance: None,
        limit,
        bookmarks: 0,
        pace: WatchPace::new(Instant::now()),
        paused_until: None,
        objects: PhantomData,
    })
}

/// The end of the silence that is allowed.
async fn over(silence: Option<&Alarm>) {
    match silence {
        Some(alarm) => alarm.ring().await,
        None => std::future::pending().await,
    }
}

impl<T> Watch<T> {
    /// How many bookmarks this stream has had.
    #[must_use]
    pub fn bookmarks_seen(&self) -> u64 {
        self.bookmarks
    }

    fn heard(&mut self) {
        self.last_chance = None;
        if let Some(silence) = &self.silence {
            silence.set(self.limit);
        }
    }

    /// Ends the stream for good. After a fault in it nothing that follows can be believed.
    fn end(&mut self) {
        self.live = None;
        self.lines = Lines::default();
    }
}

impl<T: DeserializeOwned> Watch<T> {
    /// The next event. After an error and after [`WatchEvent::Ended`] the stream is over, and every further call answers `Ended` at once.
    ///
    /// May be dropped at any time without losing an event.
    pub async fn next(&mut self) -> Result<WatchEvent<T>, Error> {
        let result = self.next_in_stream().await;
        if matches!(result, Err(_) | Ok(WatchEvent::Ended)) {
            self.end();
        }
        result
    }

    async fn next_in_stream(&mut self) -> Result<WatchEvent<T>, Error> {
        loop {
            if let Some(until) = self.paused_until {
                sleep_until(until).await;
                self.paused_until = None;
                // No one listened meanwhile.
                self.heard();
            }
            if let Some(line) = self.lines.next_line().map_err(|_| self.line_too_long())? {
                self.heard();
                self.paused_until = self.pace.take(line.len(), Instant::now());
                if self.pace.is_flooded(Instant::now()) {
                    return Err(self.flooded());
                }
                let event = self.event(self.lines.line(line));
                self.lines.release();
                let event = event?;
                if matches!(event, WatchEvent::Bookmark { .. }) {
                    self.bookmarks = self.bookmarks.saturating_add(1);
                    // This server sends bookmarks, so silence means something again.
                    self.limit = self.limit.min(self.transport.timeouts.watch_silence);
                    self.heard();
                }
                return Ok(event);
            }
            let Some(live) = &mut self.live else {
                return Ok(WatchEvent::Ended);
            };
            // Each branch may be dropped at any point: a piece that was taken is handed on without another wait.
            let piece = match self.last_chance {
                None => tokio::select! {
                    biased;
                    piece = live.response.chunk() => piece,
                    () = over(self.silence.as_ref()) => {
                        self.last_chance = Some(Instant::now() + LAST_CHANCE);
                        continue;
                    }
                },
                Some(until) => timeout_at(until, live.response.chunk())
                    .await
                    .map_err(|_| {
                        let target = Arc::clone(&self.target);
                        Error::Silent {
                            target,
                            limit: self.limit,
                        }
                    })?,
            };
            match piece {
                Ok(Some(piece)) => self.lines.push(&piece),
                Ok(None) if self.lines.is_empty() => return Ok(WatchEvent::Ended),
                Ok(None) => {
                    let target = Arc::clone(&self.target);
                    return Err(Error::Interrupted {
                        target,
                        source: None,
                    });
                }
                Err(source) => return Err(self.transport.failure(source, &self.target)),
            }
        }
    }

    fn event(&self, line: &[u8]) -> Result<WatchEvent<T>, Error> {
        let unreadable = |error| self.transport.unreadable(&error, &self.target);
        if is_deeper_than(line, MAXIMUM_DEPTH) {
            let target = Arc::clone(&self.target);
            return Err(Error::TooDeep {
                target,
                limit: MAXIMUM_DEPTH,
            });
        }
        let frame: EventFrame<'_> = serde_json::from_slice(line).map_err(unreadable)?;
        let text = frame.object.get();
        // As bytes, as everywhere: each type is read in one way only, and its second way would be as much code again.
        let bytes = text.as_bytes();
        if frame.kind == "ERROR" {
            return Err(self.transport.event_error(text, &self.target));
        }
        let version = || -> Result<String, Error> {
            let object: EventObject = serde_json::from_slice(bytes).map_err(unreadable)?;
            Ok(object.metadata.resource_version)
        };
        let object = || -> Result<T, Error> { serde_json::from_slice(bytes).map_err(unreadable) };
        if matches!(frame.kind.as_str(), "ADDED" | "MODIFIED" | "DELETED")
            && let Err(found) = self.expected.compare(bytes).map_err(unreadable)?
        {
            let found = self.transport.describe(&found);
            let what = format!("{found} in the watch of {}", self.expected);
            return Ok(WatchEvent::Foreign { what });
        }
        match frame.kind.as_str() {
            "ADDED" | "MODIFIED" => Ok(WatchEvent::Changed {
                resource_version: version()?,
                object: object()?,
            }),
            "DELETED" => Ok(WatchEvent::Deleted {
                resource_version: version()?,
                object: object()?,
            }),
            "BOOKMARK" => Ok(WatchEvent::Bookmark {
                resource_version: version()?,
            }),
            other => {
                let problem = format!(
                    "the watch sent an event of unknown type `{}`",
                    self.transport.describe(other)
                );
                Err(Error::Protocol {
                    target: Arc::clone(&self.target),
                    problem,
                })
            }
        }
    }

    fn flooded(&self) -> Error {
        Error::Protocol {
            target: Arc::clone(&self.target),
            problem: "the watch sends events faster than they are processed".to_owned(),
        }
    }

    fn line_too_long(&self) -> Error {
        let target = Arc::clone(&self.target);
        Error::TooLarge {
            target,
            what: "bytes in one watch event",
            limit: MAXIMUM_LINE,
        }
    }
}

impl<T> fmt::Debug for Watch<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Watch")
            .field("target", &self.target)
            .field("limit", &self.limit)
            .field("bookmarks", &self.bookmarks)
            .field("over", &self.live.is_none())
            .finish_non_exhaustive()
    }
}

/// In a field selector a comma begins another requirement; a name must not be able to.
fn escape_field_value(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, '\\' | ',' | '=') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
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
        // A pause pays for the next burst, and for no more than one.
        now += Duration::from_secs(3600);
        assert_eq!(pace.take(300, now), None);
        let large = pace.take(8_000_000, now).unwrap();
        assert!(large - now >= Duration::from_secs(2), "{:?}", large - now);
    }

    #[test]
    fn silence_doubles_for_servers_without_bookmarks_up_to_half_an_hour() {
        let usual = Duration::from_secs(90);
        let seconds: Vec<u64> = (0..7).map(|n| silence_limit(usual, n).as_secs()).collect();
        assert_eq!(seconds, [90, 180, 360, 720, 1440, 1800, 1800]);
        assert_eq!(silence_limit(usual, u32::MAX), LONGEST_SILENCE);
        let long = Duration::from_secs(7200);
        assert_eq!(silence_limit(long, 3), long, "never shorter than asked for");
    }

    #[test]
    fn a_name_cannot_add_a_requirement_to_the_selector() {
        assert_eq!(escape_field_value("vm-1.x"), "vm-1.x");
        assert_eq!(
            escape_field_value("a,metadata.namespace=b\\"),
            "a\\,metadata.namespace\\=b\\\\"
        );
    }
}
