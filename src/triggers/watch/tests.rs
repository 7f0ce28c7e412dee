// SPDX-License-Identifier: Apache-2.0
//! Tests of the keeper of a watch on a paused clock, against a scripted server.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde::Deserialize;

use super::*;
use crate::catalog::{Code, Finding, Group};
use crate::decide::schedule::Random;
use crate::triggers::Inbox;
use crate::triggers::feed::Feed;
use crate::wire::backoff::Backoff;
use crate::wire::kubeapi::ObjectPath;

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Thing {
    name: String,
    value: u32,
}

impl Watched for Thing {
    type Snapshot = u32;

    const METADATA_ONLY: bool = false;

    fn snapshot(&self) -> u32 {
        self.value
    }
}

/// The output of a stream: each item after a delay. After the last step it is silent indefinitely.
type Steps = Vec<(Duration, Result<WatchEvent<Thing>, Error>)>;

/// A server: the results of the watches that are opened, and the received requests. After the script it refuses with 503.
#[derive(Clone)]
struct Model(Arc<Inner>);

struct Inner {
    script: Mutex<VecDeque<Result<Steps, Error>>>,
    asked: Mutex<Vec<(Instant, String)>>,
    /// Whether each request asked for bookmarks.
    bookmarks: Mutex<Vec<bool>>,
    /// The silence that each request allows.
    limits: Mutex<Vec<Option<Duration>>>,
    open: AtomicUsize,
    most: AtomicUsize,
    least: AtomicUsize,
    /// The number of the request, counted from one, that is never answered.
    hung: AtomicUsize,
    backoff: Backoff,
}

struct Stream {
    steps: VecDeque<(Instant, Result<WatchEvent<Thing>, Error>)>,
    model: Arc<Inner>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        let left = self.model.open.fetch_sub(1, Ordering::SeqCst) - 1;
        self.model.least.fetch_min(left, Ordering::SeqCst);
    }
}

/// The stream of things only.
struct Things(Stream);

impl<T: Watched> EventStream<T> for Things {
    async fn next(&mut self) -> Result<WatchEvent<T>, Error> {
        let Some((due, _)) = self.0.steps.front() else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(*due).await;
        let (_, event) = self.0.steps.pop_front().unwrap();
        let cast = |thing: Thing| -> T {
            let any: Box<dyn std::any::Any> = Box::new(thing);
            *any.downcast::<T>().unwrap()
        };
        event.map(|event| match event {
            WatchEvent::Changed {
                object,
                resource_version,
            } => WatchEvent::Changed {
                object: cast(object),
                resource_version,
            },
            WatchEvent::Deleted { resource_version } => WatchEvent::Deleted { resource_version },
            WatchEvent::Bookmark { resource_version } => WatchEvent::Bookmark { resource_version },
            WatchEvent::Foreign { what } => WatchEvent::Foreign { what },
            WatchEvent::Ended => WatchEvent::Ended,
        })
    }
}

impl OpenWatch for Model {
    type Stream<T: Watched> = Things;

    async fn open<T: Watched>(&self, request: &WatchRequest) -> Result<Things, Error> {
        let version = request.resource_version.clone().unwrap_or_default();
        self.0.asked.lock().unwrap().push((Instant::now(), version));
        self.0.bookmarks.lock().unwrap().push(request.bookmarks);
        let limit = request.silence_limit;
        self.0.limits.lock().unwrap().push(limit);
        if self.0.asked.lock().unwrap().len() == self.0.hung.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let sent = Instant::now();
        let next = self.0.script.lock().unwrap().pop_front();
        match next.unwrap_or_else(|| Err(retry(503))) {
            Ok(steps) => {
                self.0.backoff.succeeded();
                let open = self.0.open.fetch_add(1, Ordering::SeqCst) + 1;
                self.0.most.fetch_max(open, Ordering::SeqCst);
                let at = |(after, event): (Duration, _)| (Instant::now() + after, event);
                Ok(Things(Stream {
                    steps: steps.into_iter().map(at).collect(),
                    model: Arc::clone(&self.0),
                }))
            }
            Err(error) => {
                if error.is_failure_of_api() {
                    self.0.backoff.failed(sent, error.retry_after);
                }
                Err(error)
            }
        }
    }

    fn backoff(&self) -> &Backoff {
        &self.0.backoff
    }

    fn server(&self) -> &str {
        "https://model"
    }
}

/// A running keeper, and its output.
struct Kept {
    model: Model,
    feed: Feed<Thing>,
    inbox: Inbox,
    health: SignalBoard,
    pulse: Pulse,
    started: Instant,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn random() -> Random {
    Random::from_bits(u64::MAX / 2)
}

fn keep(script: Vec<Result<Steps, Error>>) -> Kept {
    let model = Model(Arc::new(Inner {
        script: Mutex::new(script.into()),
        asked: Mutex::default(),
        bookmarks: Mutex::default(),
        limits: Mutex::default(),
        open: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        least: AtomicUsize::new(usize::MAX),
        hung: AtomicUsize::new(0),
        backoff: Backoff::new(random),
    }));
    let feed = Feed::default();
    let (sender, inbox) = Inbox::new(random);
    let health = SignalBoard::default();
    let target = Target {
        client: model.clone(),
        generation: 1,
        path: ObjectPath::all("/api/v1", "things", None).named("ours"),
        feed: feed.clone(),
        delay: Duration::from_secs(60),
    };
    let pulse = Pulse::default();
    let keeper = Keeper::new(
        target,
        Trigger::Vmi,
        sender,
        health.clone(),
        pulse.clone(),
        7,
    );
    Kept {
        model,
        feed,
        inbox,
        health,
        pulse,
        started: Instant::now(),
        task: tokio::spawn(keeper.keep()),
    }
}

impl Kept {
    /// Returns the time in seconds since the start at which each watch was opened, and its version.
    async fn after(&self, seconds: u64) -> Vec<(u64, String)> {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let asked = self.model.0.asked.lock().unwrap();
        let since = |at: &Instant| at.duration_since(self.started).as_secs();
        asked
            .iter()
            .map(|(at, version)| (since(at), version.clone()))
            .collect()
    }

    fn reasons(&mut self) -> usize {
        std::iter::from_fn(|| self.inbox.try_recv()).count()
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn thing(value: u32, version: &str) -> Result<WatchEvent<Thing>, Error> {
    Ok(WatchEvent::Changed {
        object: Thing {
            name: "ours".to_owned(),
            value,
        },
        resource_version: version.to_owned(),
    })
}

fn bookmark(version: &str) -> Result<WatchEvent<Thing>, Error> {
    Ok(WatchEvent::Bookmark {
        resource_version: version.to_owned(),
    })
}

fn error(kind: Kind) -> Error {
    Error::new(kind, format!("{kind:?}"))
}

fn retry(status: u16) -> Error {
    let kind = match status {
        429 | 503 => Kind::Overloaded,
        _ => Kind::Failed,
    };
    let mut error = error(kind);
    error.retry_after = Some(SECOND);
    error
}

fn gone() -> Error {
    error(Kind::Gone)
}

fn silent() -> Error {
    error(Kind::Silent)
}

fn cut() -> Error {
    error(Kind::Interrupted)
}

/// Returns a stream that begins with the object at version 5 and continues with `then`.
fn beginning(then: Result<WatchEvent<Thing>, Error>) -> Result<Steps, Error> {
    Ok(vec![(Duration::ZERO, thing(1, "5")), (SECOND * 10, then)])
}

#[tokio::test(start_paused = true)]
async fn after_any_end_the_next_watch_waits_goes_on_where_it_stood_and_gives_no_reason_to_read() {
    for end in [Ok(WatchEvent::Ended), Err(cut())] {
        let what = format!("{end:?}");
        let mut kept = keep(vec![beginning(end), Ok(Vec::new())]);
        assert_eq!(kept.after(9).await, [(0, "0".to_owned())], "{what}");
        assert_eq!(kept.reasons(), 1, "the object itself");
        assert!(kept.feed.take().delivered.is_some());
        let asked = kept.after(120).await;
        let [_, (second, version)] = asked.as_slice() else {
            panic!("{what}: {asked:?}");
        };
        assert!((15..=70).contains(second), "{what}: {asked:?}");
        assert_eq!(version, "5", "{what}");
        assert_eq!(kept.reasons(), 0, "{what}");
        let waiting = kept.feed.take();
        assert!(waiting.delivered.is_none() && waiting.reach.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_cannot_be_gone_on_from_is_dropped() {
    let long = "9".repeat(MAXIMUM_VERSION + 1);
    type Row = (&'static str, Result<WatchEvent<Thing>, Error>, &'static str);
    let table: Vec<Row> = vec![
        ("too old", Err(gone()), "0"),
        ("silence without a bookmark", Err(silent()), "0"),
        ("not reached yet", Err(retry(504)), "0"),
        ("an oversized bookmark", bookmark(&long), "0"),
        ("no version at all", bookmark(""), "0"),
        ("a history that went back", bookmark("3"), "0"),
        ("an overload", Err(retry(429)), "5"),
        ("a server that is not ready", Err(retry(503)), "5"),
        ("a cut", Err(cut()), "5"),
    ];
    for (what, event, expected) in table {
        let steps = vec![
            (Duration::ZERO, thing(1, "5")),
            (SECOND * 10, event),
            (SECOND * 20, Ok(WatchEvent::Ended)),
        ];
        let kept = keep(vec![Ok(steps), Ok(Vec::new())]);
        let asked = kept.after(200).await;
        assert_eq!(asked[1].1, expected, "{what}: {asked:?}");
        assert!(asked[1].0 >= 15, "{what}: {asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_refused_when_the_watch_is_opened_is_dropped() {
    let rejected = error(Kind::Refused);
    for (error, expected) in [
        (gone(), "0"),
        (rejected, "0"),
        (retry(504), "0"),
        (retry(429), "5"),
    ] {
        let what = error.to_string();
        let script = vec![beginning(Ok(WatchEvent::Ended)), Err(error), Ok(Vec::new())];
        let kept = keep(script);
        let asked = kept.after(300).await;
        assert_eq!(asked.len(), 3, "{what}: {asked:?}");
        assert_eq!(
            (asked[1].1.as_str(), asked[2].1.as_str()),
            ("5", expected),
            "{what}"
        );
        let waited = asked[2].0 - asked[1].0;
        assert!(waited >= 5, "{what}: {asked:?}");
        // The first delay has spread the fleet: a second one of that kind would be too long.
        assert!(expected == "5" || waited <= 10, "{what}: {asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_day_has_no_gap_and_few_watches() {
    let mut kept = keep((0..100).map(|_| Ok(Vec::new())).collect());
    tokio::task::yield_now().await;
    let asked = kept.after(86_400).await;
    assert!((25..=33).contains(&asked.len()), "{}", asked.len());
    assert_eq!(kept.model.0.most.load(Ordering::SeqCst), 2);
    assert_eq!(kept.model.0.least.load(Ordering::SeqCst), 1, "a gap");
    // A server that is silent from the beginning has no such object: reported once, at the start.
    assert!(kept.reasons() <= 1);
}

/// Waits until this many watches were opened. Returns when, and at which version.
async fn opened(kept: &Kept, count: usize) -> Vec<(u64, String)> {
    loop {
        let asked = kept.after(1).await;
        if asked.len() >= count {
            return asked;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_silence_that_is_allowed_depends_on_how_a_watch_begins() {
    for (end, next) in [(cut(), 75), (silent(), 180)] {
        let kept = keep(vec![beginning(Err(end)), Ok(Vec::new())]);
        opened(&kept, 2).await;
        let limits = kept.model.0.limits.lock().unwrap().clone();
        assert_eq!(limits, [Some(SECOND * 90), Some(SECOND * next)]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_watch_that_was_just_renewed_is_the_end_of_a_long_one() {
    let ends_after = |after: u64| Ok(vec![(SECOND * after as u32, Ok(WatchEvent::Ended))]);
    let script = vec![
        beginning(Ok(WatchEvent::Ended)),
        Ok(Vec::new()),
        ends_after(240),
        Ok(Vec::new()),
    ];
    let kept = keep(script);
    let asked = opened(&kept, 4).await;
    let phase = Phase::of(7, Purpose::VmiWatch);
    let delay = |ends| schedule::watch_delay(SECOND * 60, ends, phase, random()).as_secs();
    assert_ne!(delay(1), delay(2));
    let waited = asked[3].0 - asked[2].0 - 240;
    assert!(
        (delay(1)..=delay(1) + 1).contains(&waited),
        "{waited}: {asked:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hint_while_a_renewal_opens_opens_a_new_watch_immediately() {
    let kept = keep(vec![
        beginning(Ok(WatchEvent::Ended)),
        Ok(Vec::new()),
        Ok(Vec::new()),
    ]);
    kept.model.0.hung.store(3, Ordering::SeqCst);
    opened(&kept, 3).await;
    kept.pulse.verify(Instant::now());
    let asked = kept.after(1).await;
    assert_eq!(asked.len(), 4, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_begins_with_a_bookmark_has_no_object() {
    let begins_without = vec![(Duration::ZERO, bookmark("5"))];
    let mut kept = keep(vec![Ok(begins_without)]);
    kept.after(10).await;
    assert_eq!(kept.reasons(), 1);
    assert!(matches!(
        kept.feed.take().delivered,
        Some(Delivered::Unknown)
    ));
    let begins_with = vec![
        (Duration::ZERO, thing(1, "5")),
        (Duration::ZERO, bookmark("5")),
    ];
    let mut kept = keep(vec![Ok(begins_with)]);
    kept.after(10).await;
    assert_eq!(kept.reasons(), 1);
    assert!(matches!(
        kept.feed.take().delivered,
        Some(Delivered::Object { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_cannot_be_opened_leaves_the_old_watch_in_place() {
    let news = vec![
        (Duration::ZERO, thing(1, "5")),
        (SECOND * 3590, thing(2, "8")),
    ];
    let mut kept = keep(vec![Ok(news), Err(retry(503))]);
    kept.after(3585).await;
    kept.reasons();
    kept.feed.take();
    kept.after(10).await;
    assert_eq!(kept.reasons(), 1);
    let Some(Delivered::Object { object, version }) = kept.feed.take().delivered else {
        panic!("nothing was delivered");
    };
    assert_eq!((object.value, version.as_str()), (2, "8"));
}

fn foreign(name: &str) -> Result<WatchEvent<Thing>, Error> {
    let what = name.to_owned();
    Ok(WatchEvent::Foreign { what })
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_not_requested_is_no_finding_after_five_minutes_without_another() {
    let bookmarks = (1..10).map(|minute| (SECOND * 60 * minute, bookmark("9")));
    let objects = [(SECOND, foreign("x1")), (SECOND * 50, foreign("x2"))];
    let kept = keep(vec![Ok(objects.into_iter().chain(bookmarks).collect())]);
    let opened = kept.after(345).await.len();
    assert_eq!(kept.health.findings().len(), 1);
    assert_eq!(kept.after(20).await.len(), opened, "the same stream");
    assert_eq!(kept.health.findings(), []);
}

#[tokio::test(start_paused = true)]
async fn objects_that_were_not_requested_are_one_finding_for_each_stream() {
    let first = vec![
        (SECOND, foreign("x1")),
        (SECOND * 2, foreign("x2")),
        (SECOND * 3, foreign("x3")),
        (SECOND * 4, Ok(WatchEvent::Ended)),
    ];
    let kept = keep(vec![Ok(first), Ok(vec![(SECOND, foreign("x4"))])]);
    for (seconds, seen) in [(3, "x1"), (297, "x4")] {
        kept.after(seconds).await;
        let findings = kept.health.findings().into_iter();
        let found: Vec<_> = findings.map(|one| (one.code, one.seen)).collect();
        assert_eq!(found, [(Code::UnexpectedObject, seen.to_owned())]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_that_is_away_is_tried_by_the_keeper_alone_and_its_return_is_reported() {
    let refused = || Err(error(Kind::Unreachable));
    let script = vec![
        beginning(Ok(WatchEvent::Ended)),
        refused(),
        refused(),
        refused(),
        Ok(Vec::new()),
    ];
    let mut kept = keep(script);
    kept.after(9).await;
    kept.reasons();
    kept.feed.take();
    while kept.model.0.asked.lock().unwrap().len() < 4 {
        tokio::time::sleep(SECOND).await;
    }
    assert!(kept.reasons() >= 1);
    let waiting = kept.feed.take();
    assert!(matches!(waiting.reach, Some(Reach::Away(_))), "{waiting:?}");
    assert!(waiting.delivered.is_none(), "nobody has to read");
    let before = kept.after(0).await.len();
    let asked = kept.after(120).await;
    assert_eq!(asked.len(), before + 1);
    assert_eq!(asked[before].1, "5");
    assert!(matches!(kept.feed.take().reach, Some(Reach::Reached)));
    assert!(
        kept.health.findings().is_empty(),
        "{:?}",
        kept.health.findings()
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_reads_delays_the_watch() {
    let kept = keep(vec![beginning(Ok(WatchEvent::Ended)), Ok(Vec::new())]);
    kept.after(11).await;
    kept.model
        .0
        .backoff
        .failed(Instant::now(), Some(SECOND * 100));
    let asked = kept.after(99).await;
    assert_eq!(asked.len(), 1, "{asked:?}");
    let asked = kept.after(20).await;
    assert_eq!(asked.len(), 2, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn an_open_that_is_deferred_says_nothing_of_the_api_and_comes_as_soon_as_it_may() {
    let deferred = || Err(retry(429).deferral(SECOND * 3));
    let mut kept = keep(vec![deferred(), deferred(), Ok(Vec::new())]);
    kept.after(1).await;
    // The remaining backoff may increase in the meantime.
    let backoff = &kept.model.0.backoff;
    backoff.failed(Instant::now(), Some(SECOND * 5));
    assert_eq!(kept.after(4).await, [(0, "0".to_owned())]);
    assert_eq!(kept.reasons(), 0);
    let waiting = kept.feed.take();
    assert!(waiting.delivered.is_none() && waiting.reach.is_none());
    assert!(kept.health.findings().is_empty());
    let asked = kept.after(15).await;
    let [_, (second, _), (third, _)] = asked.as_slice() else {
        panic!("{asked:?}");
    };
    assert!((6..=12).contains(second), "{asked:?}");
    assert!((3..=4).contains(&(third - second)), "{asked:?}");
    assert!(kept.feed.take().reach.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_alone_does_not_work_is_complained_about_and_the_api_is_read() {
    let slow = || Err(error(Kind::TimedOut));
    let mut kept = keep(vec![slow(), slow(), slow(), slow()]);
    kept.after(1).await;
    assert_eq!(kept.reasons(), 1);
    assert!(matches!(
        kept.feed.take().delivered,
        Some(Delivered::Unknown)
    ));
    kept.after(600).await;
    assert_eq!(kept.health.findings().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_limits_only_watches_is_away_once_and_not_again_after_each_read() {
    let script = std::iter::repeat_with(|| Err(retry(429))).take(10);
    let mut kept = keep(script.chain([Ok(Vec::new())]).collect());
    kept.after(1).await;
    assert!(matches!(kept.feed.take().reach, Some(Reach::Away(_))));
    assert_eq!(kept.reasons(), 1);
    while kept.model.0.asked.lock().unwrap().len() < 10 {
        tokio::time::sleep(SECOND).await;
        let waiting = kept.feed.take();
        assert!(waiting.reach.is_none() && waiting.delivered.is_none());
    }
    assert_eq!(kept.reasons(), 0);
    assert_eq!(kept.health.findings().len(), 1, "the watch is unavailable");
    kept.after(100).await;
    assert!(matches!(kept.feed.take().reach, Some(Reach::Reached)));
    assert!(kept.health.findings().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_watch_is_opened_rarely_after_a_few_attempts() {
    let forbidden = || Err(error(Kind::Forbidden));
    let kept = keep(std::iter::repeat_with(forbidden).take(100).collect());
    let asked = kept.after(24 * 60 * 60).await;
    let (first, rest) = asked.split_at(4);
    assert!(first[3].0 < 5 * 60, "{first:?}");
    assert!((70..=144).contains(&rest.len()), "{}", rest.len());
    assert_eq!(kept.health.findings().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_storage_without_watch_progress_is_named_and_watched_without_bookmarks_until_it_has_it() {
    let refused = || Ok(vec![(Duration::ZERO, Err(error(Kind::NoWatchProgress)))]);
    let away = Err(error(Kind::Unreachable));
    let lives = |event| Ok(vec![(Duration::ZERO, thing(1, "5")), (SECOND * 10, event)]);
    let mut kept = keep(vec![
        refused(),
        lives(Ok(WatchEvent::Ended)),
        away,
        refused(),
        lives(Ok(WatchEvent::Ended)),
        lives(Err(cut())),
    ]);
    let asked = kept.after(11).await;
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[1].0 >= 5, "{asked:?}");
    let issue = Finding::new(
        Code::WatchProgressMissing,
        "the storage of https://model has no watch progress (RequestWatchProgress)",
    )
    .about(Group::HarvesterApi);
    assert_eq!(kept.health.findings(), std::slice::from_ref(&issue));
    assert_eq!(kept.reasons(), 1, "it causes no read");
    // After the server was away, bookmarks are requested again, and the finding stays until they are available.
    while kept.model.0.asked.lock().unwrap().len() < 5 {
        tokio::time::sleep(SECOND).await;
        assert_eq!(kept.health.findings(), std::slice::from_ref(&issue));
    }
    let bookmarks = kept.model.0.bookmarks.lock().unwrap().clone();
    assert_eq!(bookmarks, [true, false, false, true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_storage_that_has_watch_progress_again_is_asked_for_bookmarks_after_it_was_away() {
    let refused = Err(error(Kind::NoWatchProgress));
    let away = Err(error(Kind::Unreachable));
    let kept = keep(vec![
        Ok(vec![(Duration::ZERO, refused)]),
        beginning(Ok(WatchEvent::Ended)),
        away,
        Ok(vec![(Duration::ZERO, thing(2, "6"))]),
    ]);
    kept.after(9).await;
    assert_eq!(kept.health.findings().len(), 1);
    while kept.model.0.asked.lock().unwrap().len() < 4 {
        tokio::time::sleep(SECOND).await;
    }
    tokio::time::sleep(SECOND).await;
    assert!(kept.health.findings().is_empty());
    let bookmarks = kept.model.0.bookmarks.lock().unwrap().clone();
    assert_eq!(bookmarks, [true, false, false, true]);
    let asked = kept.after(0).await;
    assert_eq!(asked[2].1, "5");
    assert_eq!(asked[3].1, "0", "a stream from the beginning proves it");
}
