// SPDX-License-Identifier: Apache-2.0
//! Tests of the keeper of a watch on a paused clock, against a scripted server.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use super::*;
use crate::catalog::{Code, Finding, Group};
use crate::decide::schedule::Random;
use crate::triggers::Inbox;
use crate::triggers::feed::Feed;
use crate::wire::backoff::Backoff;
use crate::wire::kubeapi::testing::{
    Answering, Asked, Failed, Text, Wire, credential, response, simulate,
};
use crate::wire::kubeapi::{Client, ObjectPath, Tally, Timeouts, WatchRequest};

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Thing {
    value: u32,
}

impl Watched for Thing {
    type Snapshot = u32;

    const METADATA_ONLY: bool = false;

    fn snapshot(&self) -> u32 {
        self.value
    }
}

/// A part of a stream.
#[derive(Debug, Clone)]
enum Part {
    /// An event.
    Event(&'static str, Value),
    /// Nothing more, not even bookmarks.
    Silence,
    /// The end, in the middle of an event.
    Cut,
    /// The end.
    End,
}

/// The parts of a stream, each with its time since the stream was opened. After the last one, it has bookmarks only.
type Steps = Vec<(Duration, Part)>;

/// What the server does when a watch is opened.
enum Answer {
    Stream(Steps),
    Status(u16),
    Failure(Failed),
}

use Answer::{Failure, Status, Stream};

/// A server: its answers, and the received requests. After the script it answers with 503.
#[derive(Clone)]
struct Model(Arc<Inner>);

struct Inner {
    script: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<(Instant, String)>>,
    /// Whether each request asked for bookmarks.
    bookmarks: Mutex<Vec<bool>>,
    /// How long each stream was open that is over, in seconds.
    closed: Mutex<Vec<u64>>,
    open: AtomicUsize,
    most: AtomicUsize,
    least: AtomicUsize,
    /// The number of the request, counted from one, that is never answered.
    hung: AtomicUsize,
}

impl Wire for Model {
    fn answer<'a>(&'a self, asked: Asked<'a>, _: Timeouts) -> Answering<'a> {
        let value = |key: &str| {
            let mut query = asked.query.iter();
            let (_, value) = query.find(|(name, _)| *name == key)?;
            Some(value.clone())
        };
        let version = value("resourceVersion").unwrap_or_default();
        let bookmarks = value("allowWatchBookmarks").is_some();
        Box::pin(async move {
            let now = (Instant::now(), version.clone());
            self.0.asked.lock().unwrap().push(now);
            self.0.bookmarks.lock().unwrap().push(bookmarks);
            if self.0.asked.lock().unwrap().len() == self.0.hung.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            let answer = self.0.script.lock().unwrap().pop_front();
            match answer.unwrap_or(Status(503)) {
                Stream(steps) => {
                    let (sender, text) = Text::new();
                    tokio::spawn(self.clone().serve(steps, version, bookmarks, sender));
                    Ok(response(200, reqwest::Body::wrap(text)))
                }
                Status(code) => Ok(response(code, status(code, "no").to_string().into())),
                Failure(failed) => Err(failed),
            }
        })
    }
}

impl Model {
    /// Serves a stream until it ends or the client closes it.
    async fn serve(
        self,
        steps: Steps,
        version: String,
        bookmarks: bool,
        sender: UnboundedSender<String>,
    ) {
        let began = Instant::now();
        let open = self.0.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most.fetch_max(open, Ordering::SeqCst);
        tokio::select! {
            () = sender.closed() => {}
            () = write(steps, version, bookmarks, &sender) => {}
        }
        let left = self.0.open.fetch_sub(1, Ordering::SeqCst) - 1;
        self.0.least.fetch_min(left, Ordering::SeqCst);
        let time = (Instant::now() - began).as_secs();
        self.0.closed.lock().unwrap().push(time);
    }
}

/// Writes a stream to its end. A bookmark follows each minute without another event.
async fn write(
    steps: Steps,
    mut version: String,
    bookmarks: bool,
    sender: &UnboundedSender<String>,
) {
    let send = |kind: &str, object: &Value| {
        let event = json!({"type": kind, "object": object});
        sender.send(format!("{event}\n")).unwrap_or_default();
    };
    let began = Instant::now();
    let never = (SECOND * 1_000_000_000, Part::Silence);
    for (after, part) in steps.into_iter().chain([never]) {
        while began + after > Instant::now() + SECOND * 60 {
            tokio::time::sleep(SECOND * 60).await;
            if bookmarks {
                send("BOOKMARK", &object("ours", 0, &version));
            }
        }
        tokio::time::sleep_until(began + after).await;
        match part {
            Part::Event(kind, object) => {
                send(kind, &object);
                let sent = object["metadata"]["resourceVersion"].as_str();
                version = sent.map_or(version, str::to_owned);
            }
            Part::Silence => std::future::pending().await,
            Part::Cut => return sender.send("{".to_owned()).unwrap_or_default(),
            Part::End => return,
        }
    }
}

fn object(name: &str, value: u32, version: &str) -> Value {
    let metadata = json!({"name": name, "resourceVersion": version});
    json!({"kind": "Thing", "metadata": metadata, "value": value})
}

fn status(code: u16, message: &str) -> Value {
    let details = json!({"retryAfterSeconds": 1});
    json!({"kind": "Status", "code": code, "message": message, "details": details})
}

/// A running keeper, and its output.
struct Kept {
    model: Model,
    client: Client,
    backoff: Backoff,
    feed: Feed<Thing>,
    inbox: Inbox,
    board: SourceBoard,
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

fn ours() -> ObjectPath {
    ObjectPath::all("/api/v1", "things", Some("Thing")).named("ours")
}

fn keep(script: Vec<Answer>) -> Kept {
    let model = Model(Arc::new(Inner {
        script: Mutex::new(script.into()),
        asked: Mutex::default(),
        bookmarks: Mutex::default(),
        closed: Mutex::default(),
        open: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        least: AtomicUsize::new(usize::MAX),
        hung: AtomicUsize::new(0),
    }));
    simulate(model.clone());
    let backoff = Backoff::new(random);
    let client = Client::counting(
        &credential("https://model"),
        Timeouts::default(),
        Tally::default(),
        backoff.clone(),
    )
    .unwrap();
    let feed = Feed::default();
    let (sender, inbox) = Inbox::new(random);
    let board = SourceBoard::default();
    let target = Target {
        client: client.clone(),
        generation: 1,
        path: ours(),
        feed: feed.clone(),
        delay: Duration::from_secs(60),
    };
    let keeper = Keeper::new(target, Trigger::Vmi, sender, board.clone(), 7);
    let pulse = keeper.pulse.clone();
    Kept {
        model,
        client,
        backoff,
        feed,
        inbox,
        board,
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

fn thing(value: u32, version: &str) -> Part {
    Part::Event("MODIFIED", object("ours", value, version))
}

fn foreign(name: &str) -> Part {
    Part::Event("MODIFIED", object(name, 0, "1"))
}

fn bookmark(version: &str) -> Part {
    Part::Event("BOOKMARK", object("ours", 0, version))
}

fn error(code: u16) -> Part {
    Part::Event("ERROR", status(code, "no"))
}

/// Returns a stream that begins with the object at version 5 and continues with `then` after ten seconds.
fn beginning(then: Part) -> Answer {
    Stream(vec![(Duration::ZERO, thing(1, "5")), (SECOND * 10, then)])
}

/// Returns a stream that ends immediately, because the storage of the server has no watch progress.
fn without_progress() -> Answer {
    let refused = status(500, "the storage feature RequestWatchProgress is disabled");
    Stream(vec![(Duration::ZERO, Part::Event("ERROR", refused))])
}

/// Returns a stream that has only bookmarks.
fn quiet() -> Answer {
    Stream(Vec::new())
}

#[tokio::test(start_paused = true)]
async fn after_any_end_the_next_watch_waits_goes_on_where_it_stood_and_gives_no_reason_to_read() {
    for end in [Part::End, Part::Cut] {
        let what = format!("{end:?}");
        let mut kept = keep(vec![beginning(end), quiet()]);
        assert_eq!(kept.after(9).await, [(0, "0".to_owned())], "{what}");
        assert_eq!(kept.reasons(), 1, "the object itself");
        assert!(kept.feed.take().0.is_some());
        let asked = kept.after(120).await;
        let [_, (second, version)] = asked.as_slice() else {
            panic!("{what}: {asked:?}");
        };
        assert!((15..=70).contains(second), "{what}: {asked:?}");
        assert_eq!(version, "5", "{what}");
        assert_eq!(kept.reasons(), 0, "{what}");
        let waiting = kept.feed.take();
        assert!(waiting.0.is_none() && waiting.1.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_cannot_be_gone_on_from_is_dropped() {
    let long = "9".repeat(129);
    let table = [
        ("too old", error(410), "0"),
        ("silence without a bookmark", Part::Silence, "0"),
        ("not reached yet", error(504), "0"),
        ("an oversized bookmark", bookmark(&long), "0"),
        ("no version at all", bookmark(""), "0"),
        ("a history that went back", bookmark("3"), "0"),
        ("an overload", error(429), "5"),
        ("a server that is not ready", error(503), "5"),
        ("a cut", Part::Cut, "5"),
    ];
    for (what, part, expected) in table {
        let steps = vec![
            (Duration::ZERO, thing(1, "5")),
            (SECOND * 10, part),
            (SECOND * 20, Part::End),
        ];
        let kept = keep(vec![Stream(steps), quiet()]);
        let asked = kept.after(200).await;
        assert_eq!(asked[1].1, expected, "{what}: {asked:?}");
        assert!(asked[1].0 >= 15, "{what}: {asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_refused_when_the_watch_is_opened_is_dropped() {
    for (what, expected) in [(410, "0"), (400, "0"), (504, "0"), (429, "5")] {
        let kept = keep(vec![beginning(Part::End), Status(what), quiet()]);
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
    let mut kept = keep((0..100).map(|_| quiet()).collect());
    tokio::task::yield_now().await;
    let asked = kept.after(86_400).await;
    assert!((25..=33).contains(&asked.len()), "{}", asked.len());
    assert_eq!(kept.model.0.most.load(Ordering::SeqCst), 2);
    assert_eq!(kept.model.0.least.load(Ordering::SeqCst), 1, "a gap");
    // A server that sends no object at the beginning has none: reported once, at the start.
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
    for (end, times) in [(Part::Cut, [10, 75]), (Part::Silence, [90, 180])] {
        let silent = Stream(vec![(Duration::ZERO, Part::Silence)]);
        let kept = keep(vec![beginning(end), silent]);
        opened(&kept, 3).await;
        assert_eq!(*kept.model.0.closed.lock().unwrap(), times);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_watch_that_was_just_renewed_is_the_end_of_a_long_one() {
    let script = vec![
        beginning(Part::End),
        quiet(),
        Stream(vec![(SECOND * 240, Part::End)]),
        quiet(),
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
    let kept = keep(vec![beginning(Part::End), quiet(), quiet()]);
    kept.model.0.hung.store(3, Ordering::SeqCst);
    opened(&kept, 3).await;
    kept.pulse.verify(Instant::now());
    let asked = kept.after(1).await;
    assert_eq!(asked.len(), 4, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_begins_with_a_bookmark_has_no_object() {
    let begins_without = vec![(Duration::ZERO, bookmark("5"))];
    let mut kept = keep(vec![Stream(begins_without)]);
    kept.after(10).await;
    assert_eq!(kept.reasons(), 1);
    assert!(matches!(kept.feed.take().0, Some(Delivered::Unknown)));
    let begins_with = vec![
        (Duration::ZERO, thing(1, "5")),
        (Duration::ZERO, bookmark("5")),
    ];
    let mut kept = keep(vec![Stream(begins_with)]);
    kept.after(10).await;
    assert_eq!(kept.reasons(), 1);
    assert!(matches!(kept.feed.take().0, Some(Delivered::Object { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_cannot_be_opened_leaves_the_old_watch_in_place() {
    let news = vec![
        (Duration::ZERO, thing(1, "5")),
        (SECOND * 3590, thing(2, "8")),
    ];
    let mut kept = keep(vec![Stream(news), Status(503)]);
    kept.after(3585).await;
    kept.reasons();
    kept.feed.take();
    kept.after(10).await;
    assert_eq!(kept.reasons(), 1);
    let Some(Delivered::Object { object, version }) = kept.feed.take().0 else {
        panic!("nothing was delivered");
    };
    assert_eq!((object.value, version.as_str()), (2, "8"));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_not_requested_is_no_finding_after_five_minutes_without_another() {
    let bookmarks = (1..10).map(|minute| (SECOND * 60 * minute, bookmark("9")));
    let objects = [(SECOND, foreign("x1")), (SECOND * 50, foreign("x2"))];
    let kept = keep(vec![Stream(objects.into_iter().chain(bookmarks).collect())]);
    let opened = kept.after(345).await.len();
    assert_eq!(kept.board.findings().len(), 1);
    assert_eq!(kept.after(20).await.len(), opened, "the same stream");
    assert_eq!(kept.board.findings(), []);
}

#[tokio::test(start_paused = true)]
async fn objects_that_were_not_requested_are_one_finding_for_each_stream() {
    let first = vec![
        (SECOND, foreign("x1")),
        (SECOND * 2, foreign("x2")),
        (SECOND * 3, foreign("x3")),
        (SECOND * 4, Part::End),
    ];
    let kept = keep(vec![Stream(first), Stream(vec![(SECOND, foreign("x4"))])]);
    for (seconds, seen) in [(3, "x1"), (297, "x4")] {
        kept.after(seconds).await;
        let findings = kept.board.findings().into_iter();
        let found: Vec<_> = findings.map(|one| (one.code, one.seen)).collect();
        let seen = format!("Thing `{seen}` in the watch of Thing `ours`");
        assert_eq!(found, [(Code::UnexpectedObject, seen)]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_that_is_away_is_tried_by_the_keeper_alone_and_its_return_is_reported() {
    let refused = || Failure(Failed::Refused);
    let script = vec![
        beginning(Part::End),
        refused(),
        refused(),
        refused(),
        quiet(),
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
    assert!(matches!(waiting.1, Some(Err(_))), "{waiting:?}");
    assert!(waiting.0.is_none(), "nobody has to read");
    let before = kept.after(0).await.len();
    let asked = kept.after(120).await;
    assert_eq!(asked.len(), before + 1);
    assert_eq!(asked[before].1, "5");
    assert!(matches!(kept.feed.take().1, Some(Ok(()))));
    assert!(
        kept.board.findings().is_empty(),
        "{:?}",
        kept.board.findings()
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_reads_delays_the_watch() {
    let kept = keep(vec![beginning(Part::End), quiet()]);
    kept.after(11).await;
    kept.backoff.failed(Instant::now(), Some(SECOND * 100));
    let asked = kept.after(99).await;
    assert_eq!(asked.len(), 1, "{asked:?}");
    let asked = kept.after(20).await;
    assert_eq!(asked.len(), 2, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn an_open_that_is_deferred_says_nothing_of_the_api_and_comes_as_soon_as_it_may() {
    let mut kept = keep(vec![quiet()]);
    kept.backoff.failed(Instant::now(), Some(SECOND * 3));
    assert_eq!(kept.after(1).await, []);
    // The remaining backoff may increase in the meantime.
    kept.backoff.failed(Instant::now(), Some(SECOND * 5));
    let due = 1 + kept.backoff.left().unwrap().as_secs();
    assert_eq!(kept.after(4).await, []);
    assert_eq!(kept.reasons(), 0);
    let waiting = kept.feed.take();
    assert!(waiting.0.is_none() && waiting.1.is_none());
    assert!(kept.board.findings().is_empty());
    let asked = kept.after(15).await;
    let [(second, _)] = asked.as_slice() else {
        panic!("{asked:?}");
    };
    assert!((due..=due + 1).contains(second), "{asked:?}");
    assert!((6..=12).contains(second), "{asked:?}");
    assert!(kept.feed.take().1.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_open_that_waits_for_other_watches_to_close_says_nothing_of_the_api_either() {
    let mut kept = keep(vec![beginning(Part::End), quiet(), quiet(), quiet()]);
    kept.after(11).await;
    kept.reasons();
    kept.feed.take();
    let request = WatchRequest::new(&ours());
    let client = kept.client.clone();
    let open = async || client.watch::<Thing>(&request).await.unwrap();
    // All that the client allows.
    let others = (open().await, open().await);
    // No request has failed.
    assert_eq!(kept.after(600).await.len(), 3);
    assert_eq!(kept.backoff.left(), None);
    assert_eq!(kept.reasons(), 0);
    let waiting = kept.feed.take();
    assert!(waiting.0.is_none() && waiting.1.is_none());
    assert!(kept.board.findings().is_empty());
    assert!(!kept.board.sources()["vmi"].is_active);
    drop(others);
    // It tries again soon, and goes on where it was.
    let asked = kept.after(11).await;
    assert_eq!(asked[3..].len(), 1, "{asked:?}");
    assert_eq!(asked[3].1, "5");
    assert_eq!(kept.reasons(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_alone_does_not_work_is_complained_about_and_the_api_is_read() {
    let slow = || Failure(Failed::Headers);
    let mut kept = keep(vec![slow(), slow(), slow(), slow()]);
    kept.after(1).await;
    let why = &kept.board.sources()["vmi"].detail;
    assert!(why.ends_with("headers timed out after 10s"), "{why}");
    assert_eq!(kept.reasons(), 1);
    assert!(matches!(kept.feed.take().0, Some(Delivered::Unknown)));
    kept.after(600).await;
    assert_eq!(kept.board.findings().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_after_several_that_ended_at_once_takes_the_finding_back() {
    let ends = || Stream(vec![(Duration::ZERO, Part::End)]);
    let kept = keep(vec![
        ends(),
        ends(),
        ends(),
        ends(),
        Stream(vec![(SECOND, Part::Silence)]),
    ]);
    while kept.board.findings().is_empty() {
        tokio::time::sleep(SECOND).await;
    }
    opened(&kept, 5).await;
    kept.after(3).await;
    assert!(kept.board.findings().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_limits_only_watches_is_away_once_and_not_again_after_each_read() {
    let script = std::iter::repeat_with(|| Status(429)).take(10);
    let mut kept = keep(script.chain([quiet()]).collect());
    kept.after(1).await;
    assert!(matches!(kept.feed.take().1, Some(Err(_))));
    assert_eq!(kept.reasons(), 1);
    while kept.model.0.asked.lock().unwrap().len() < 10 {
        tokio::time::sleep(SECOND).await;
        let waiting = kept.feed.take();
        assert!(waiting.1.is_none() && waiting.0.is_none());
    }
    assert_eq!(kept.reasons(), 0);
    assert_eq!(kept.board.findings().len(), 1, "the watch is unavailable");
    kept.after(100).await;
    assert!(matches!(kept.feed.take().1, Some(Ok(()))));
    assert!(kept.board.findings().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_watch_is_opened_rarely_after_a_few_attempts() {
    let forbidden = || Status(403);
    let kept = keep(std::iter::repeat_with(forbidden).take(100).collect());
    let asked = kept.after(24 * 60 * 60).await;
    let (first, rest) = asked.split_at(4);
    assert!(first[3].0 < 5 * 60, "{first:?}");
    assert!((70..=144).contains(&rest.len()), "{}", rest.len());
    assert_eq!(kept.board.findings().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_storage_without_watch_progress_is_named_and_watched_without_bookmarks_until_it_has_it() {
    let away = Failure(Failed::Refused);
    let mut kept = keep(vec![
        without_progress(),
        beginning(Part::End),
        away,
        without_progress(),
        beginning(Part::End),
        beginning(Part::Cut),
    ]);
    let asked = kept.after(11).await;
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[1].0 >= 5, "{asked:?}");
    let issue = Finding::new(
        Code::WatchProgressMissing,
        "the storage of https://model has no watch progress (RequestWatchProgress)",
    )
    .about(Group::HarvesterApi);
    assert_eq!(kept.board.findings(), std::slice::from_ref(&issue));
    assert_eq!(kept.reasons(), 1, "it causes no read");
    // After the server was away, bookmarks are requested again, and the finding stays until they are available.
    while kept.model.0.asked.lock().unwrap().len() < 5 {
        tokio::time::sleep(SECOND).await;
        assert_eq!(kept.board.findings(), std::slice::from_ref(&issue));
    }
    let bookmarks = kept.model.0.bookmarks.lock().unwrap().clone();
    assert_eq!(bookmarks, [true, false, false, true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_storage_that_has_watch_progress_again_is_asked_for_bookmarks_after_it_was_away() {
    let kept = keep(vec![
        without_progress(),
        beginning(Part::End),
        Failure(Failed::Refused),
        Stream(vec![(Duration::ZERO, thing(2, "6"))]),
    ]);
    kept.after(9).await;
    assert_eq!(kept.board.findings().len(), 1);
    while kept.model.0.asked.lock().unwrap().len() < 4 {
        tokio::time::sleep(SECOND).await;
    }
    tokio::time::sleep(SECOND).await;
    assert!(kept.board.findings().is_empty());
    let bookmarks = kept.model.0.bookmarks.lock().unwrap().clone();
    assert_eq!(bookmarks, [true, false, false, true]);
    let asked = kept.after(0).await;
    assert_eq!(asked[2].1, "5");
    assert_eq!(asked[3].1, "0", "a stream from the beginning proves it");
}
