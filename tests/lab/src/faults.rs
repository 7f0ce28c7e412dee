// SPDX-License-Identifier: Apache-2.0
//! Faults on the wire of one lab server, switchable while it runs.
//!
//! Faults of single answers are rules: [`Faults::inject`] takes a [`Matcher`] (which requests, how often) and a [`Fault`].
//! Faults of connections and of the port are methods of [`crate::server::Server`]: `refuse_connections`, `stay_silent`,
//! `half_open`, `drop_connections`, `serve_again`, `present`.
//!
//! To add a fault: a variant here, and its arm in `server/handler.rs` (answers) or `server/watch.rs` (open watches).

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;

/// What goes wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// The request is read and never answered.
    NeverAnswer,
    /// The answer begins only after this time, and is right otherwise.
    DelayHeaders(Duration),
    /// The answer has this header more, and is right otherwise.
    Header(String, String),
    /// The answer, head and body, comes one byte per interval.
    Trickle(Duration),
    /// Another answer than the right one; the request has no effect.
    Answer(Answer),
    /// A body that never ends.
    EndlessBody,
    /// A head that never ends.
    EndlessHeader,
    /// The right `Content-Length`, half of the body, then the connection closes.
    TruncatedBody,
    /// The next event of the watch is cut in the middle of its line, then the connection closes.
    WatchCutLine,
    /// Before the next event of the watch comes a line that is this text.
    WatchGarbage(String),
    /// Before the next event of the watch comes a `MODIFIED` with this object, which the watch did not ask for.
    WatchWrongObject(Value),
    /// Instead of the next event of the watch comes an `ERROR` with 410, and the stream ends.
    WatchGone,
    /// Instead of the next event of the watch the connection closes.
    WatchAbort,
}

impl Fault {
    /// A whole answer with a JSON, HTML or plain-text body.
    #[must_use]
    pub fn answer(status: u16, content_type: &str, body: &str) -> Self {
        Self::Answer(Answer {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: body.to_owned(),
        })
    }

    /// The HTML page of a proxy, for 500, 502, 503, 504.
    #[must_use]
    pub fn html(status: u16) -> Self {
        let body = format!(
            "<html>\r\n<head><title>{status} Error</title></head>\r\n<body>\r\n<center><h1>{status} Error</h1></center>\r\n\x1b[31m</body>\r\n</html>\r\n"
        );
        Self::answer(status, "text/html", &body)
    }

    /// 401, as for an unknown token.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::failure(&crate::server::Failure::unauthorized())
    }

    /// 403 with this message.
    #[must_use]
    pub fn forbidden(message: &str) -> Self {
        let details = serde_json::json!({});
        Self::failure(&crate::server::Failure::new(
            403,
            "Forbidden",
            message,
            details,
        ))
    }

    /// 410 as the status of the answer. For 410 inside a watch see [`Fault::WatchGone`].
    #[must_use]
    pub fn gone() -> Self {
        Self::failure(&crate::server::Failure::too_old(1, 2))
    }

    /// A metav1.Status.
    #[must_use]
    pub fn failure(failure: &crate::server::Failure) -> Self {
        Self::answer(failure.code, "application/json", &failure.body.to_string())
    }

    fn concerns_open_watches(&self) -> bool {
        matches!(
            self,
            Self::WatchCutLine
                | Self::WatchGarbage(_)
                | Self::WatchWrongObject(_)
                | Self::WatchGone
                | Self::WatchAbort
        )
    }
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: String,
}

/// What a rule sees of a request, or of a watch that is about to send an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen<'a> {
    /// HTTP method.
    pub method: &'a str,
    /// Path as sent.
    pub path: &'a str,
    /// Query as sent.
    pub query: &'a str,
    /// User-Agent header.
    pub user_agent: &'a str,
    /// Kubernetes verb.
    pub verb: &'a str,
}

/// Which requests a fault meets, and how many of them.
pub struct Matcher {
    times: Option<usize>,
    conditions: Vec<Condition>,
}

type Condition = Box<dyn Fn(&Seen<'_>) -> bool + Send + Sync>;

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher")
            .field("times", &self.times)
            .field("conditions", &self.conditions.len())
            .finish()
    }
}

impl Matcher {
    /// Every request, without end.
    #[must_use]
    pub fn any() -> Self {
        Self {
            times: None,
            conditions: Vec::new(),
        }
    }

    /// Requests whose path contains this text.
    #[must_use]
    pub fn path(part: &str) -> Self {
        let part = part.to_owned();
        Self::any().when(move |seen| seen.path.contains(&part))
    }

    /// Only requests of this Kubernetes verb.
    #[must_use]
    pub fn verb(self, verb: &str) -> Self {
        let verb = verb.to_owned();
        self.when(move |seen| seen.verb == verb)
    }

    /// Only requests of clients whose User-Agent begins so.
    #[must_use]
    pub fn user_agent(self, prefix: &str) -> Self {
        let prefix = prefix.to_owned();
        self.when(move |seen| seen.user_agent.starts_with(&prefix))
    }

    /// Only requests for which this holds.
    #[must_use]
    pub fn when(mut self, condition: impl Fn(&Seen<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.conditions.push(Box::new(condition));
        self
    }

    /// Only the first of them.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.times = Some(1);
        self
    }
}

/// A rule that was injected.
#[derive(Debug, Clone)]
pub struct Injected {
    hits: Arc<AtomicUsize>,
}

impl Injected {
    /// How many requests (or watch events) it has met.
    #[must_use]
    pub fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }
}

/// The rules of one server. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    rules: Arc<Mutex<Vec<Rule>>>,
}

#[derive(Debug)]
struct Rule {
    matcher: Matcher,
    fault: Fault,
    hits: Arc<AtomicUsize>,
}

impl Faults {
    /// Adds a rule. Of several rules that meet a request all delays are added up, and of the rest the oldest counts.
    pub fn inject(&self, matcher: Matcher, fault: Fault) -> Injected {
        let hits = Arc::default();
        self.lock().push(Rule {
            matcher,
            fault,
            hits: Arc::clone(&hits),
        });
        Injected { hits }
    }

    /// Takes all rules away.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// The faults that meet a request: delays, then at most one other.
    pub(crate) fn of_request(&self, seen: &Seen<'_>) -> Vec<Fault> {
        let mut met = Vec::new();
        self.take(seen, |fault| {
            let delay = matches!(fault, Fault::DelayHeaders(_));
            let wanted = !fault.concerns_open_watches()
                && (delay
                    || !met
                        .iter()
                        .any(|other| !matches!(other, Fault::DelayHeaders(_))));
            if wanted {
                met.push(fault.clone());
            }
            wanted
        });
        met.sort_by_key(|fault| !matches!(fault, Fault::DelayHeaders(_)));
        met
    }

    /// The fault that meets the next event of an open watch.
    pub(crate) fn of_watch_event(&self, seen: &Seen<'_>) -> Option<Fault> {
        let mut met = None;
        self.take(seen, |fault| {
            let wanted = met.is_none() && fault.concerns_open_watches();
            if wanted {
                met = Some(fault.clone());
            }
            wanted
        });
        met
    }

    fn take(&self, seen: &Seen<'_>, mut wanted: impl FnMut(&Fault) -> bool) {
        for rule in self.lock().iter_mut() {
            let open = rule.matcher.times != Some(0);
            let matches = open && rule.matcher.conditions.iter().all(|holds| holds(seen));
            if matches && wanted(&rule.fault) {
                rule.hits.fetch_add(1, Ordering::SeqCst);
                if let Some(times) = rule.matcher.times.as_mut() {
                    *times -= 1;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().expect("no holder of the rules panics")
    }
}

/// Which certificate a server shows to new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerCertificate {
    /// The right one.
    Right,
    /// Of an authority of the same name that clients do not trust.
    OtherAuthority,
    /// For `other.example` only.
    OtherName,
    /// Ended a day ago.
    Expired,
    /// Begins in a day.
    NotYetValid,
}
