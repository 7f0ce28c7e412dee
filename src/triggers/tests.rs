// SPDX-License-Identifier: Apache-2.0

use super::files::Files;
use super::*;
use crate::catalog::{Code, Finding};
use crate::testing::{own_namespaces, simulate_system};

const DELAY: Duration = Duration::from_secs(7);

fn listener_of(root: &Root, board: &SourceBoard) -> Listener {
    let random = || Random::from_bits(0);
    let chance = Chance { random, machine: 1 };
    let (bus, board) = (Bus::new(root, None), board.clone());
    Listener::new(root, &bus, Instant::now(), None, board, chance).unwrap()
}

/// Creates a listener on a simulated machine. Both APIs work if `files_delay` is not zero.
fn listener(files_delay: Duration) -> Listener {
    simulate_system();
    let mut listener = listener_of(&Root::new("/nonexistent"), &SourceBoard::default());
    listener.subscribe(Targets {
        files_delay,
        ..Targets::default()
    });
    listener
}

/// Returns a round that is planned after a time.
fn planned(milliseconds: u64, scope: Scope) -> Next {
    Next {
        after: Duration::from_millis(milliseconds),
        trigger: Trigger::Timer,
        scope,
    }
}

#[tokio::test(start_paused = true)]
async fn files_that_are_known_later_are_watched_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    let (paths, files) = tokio::sync::watch::channel(BTreeSet::new());
    let mut source = Files::new(&root, &files);
    let (out, mut inbox) = testing::output(&source);
    let board = out.board.clone();
    let task = tokio::spawn(async move { keep(&mut source, &root, &out).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(board.sources().is_empty() && inbox.try_recv().is_none());
    for count in 1..3 {
        paths.send_replace((0..count).map(|n| PathBuf::from(format!("/{n}"))).collect());
        tokio::time::sleep(Duration::from_secs(1)).await;
        let detail = &board.sources()["files"].detail;
        assert_eq!(*detail, format!("inotify for {count} paths"));
        assert_eq!(inbox.try_recv().unwrap().0, Trigger::Files);
    }
    task.abort();
}

/// Returns the scope of the next round, and the time until it began.
async fn next(listener: &mut Listener) -> (Scope, Duration) {
    let before = Instant::now();
    let next = planned(600_000, Scope::KNOWN);
    match listener.wait(next, &mut || {}).await {
        Wake::Reconcile(reasons) => (reasons.scope, Instant::now() - before),
        Wake::Reload => panic!("there was no SIGHUP"),
    }
}

/// Returns the number of reconciles in a minute for a trigger that is sent twice a second.
async fn reconciles_in_a_minute(trigger: Trigger, source: &dyn Source) -> usize {
    let mut listener = listener(DELAY);
    let out = output_of(source, &listener.sender(), &SourceBoard::default());
    let sending = tokio::spawn(async move {
        for _ in 0..120 {
            out.fire(trigger);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let mut count = 0;
    while !sending.is_finished() {
        let (scope, _) = next(&mut listener).await;
        count += usize::from(scope == trigger.scope());
    }
    count
}

#[tokio::test(start_paused = true)]
async fn what_others_can_send_at_will_causes_few_reconciles() {
    use Trigger::{Clock, Link, Operator, Port};
    for trigger in [Operator, Port, Link, Clock] {
        let count = reconciles_in_a_minute(trigger, &clock::Clock).await;
        assert!((20..=27).contains(&count), "{trigger:?}: {count}");
    }
    let hostname = hostname::Hostname(Root::new("/nonexistent"));
    let count = reconciles_in_a_minute(Trigger::Vmi, &hostname).await;
    assert!(count > 100, "{count}");
}

#[tokio::test]
async fn each_source_has_one_name_and_those_that_others_can_cause_at_will_have_a_pace() {
    let root = Root::new("/nonexistent");
    let files = tokio::sync::watch::channel(BTreeSet::new());
    let sources = sources(&root, &Bus::new(&root, None), &files.1);
    let names: BTreeSet<_> = sources.iter().map(|source| source.about().0).collect();
    assert_eq!(names.len(), sources.len());
    let paced = sources.iter().filter(|source| source.is_paced());
    let paced: BTreeSet<_> = paced.map(|source| source.about().0).collect();
    assert_eq!(paced, ["clock", "link", "port"].into());
}

#[tokio::test(start_paused = true)]
async fn a_reason_that_waits_for_its_pace_keeps_its_time_and_delays_no_other() {
    let (sender, mut inbox) = testing::sender();
    let paced = sender.clone().paced(true);
    for _ in 0..20 {
        paced.send(Trigger::Link);
        inbox.recv().await;
    }
    let sent = Instant::now();
    paced.send(Trigger::Link);
    sender.send(Trigger::Vmi);
    assert_eq!(inbox.recv().await, (Trigger::Vmi, sent));
    assert_eq!(inbox.recv().await, (Trigger::Link, sent));
    assert_eq!((Instant::now() - sent).as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn new_credentials_are_read_after_the_delay_of_this_machine_while_both_apis_work() {
    let mut listener = listener(DELAY);
    listener.sender().send(Trigger::Files);
    assert_eq!(next(&mut listener).await, (Scope::NONE, Duration::ZERO));
    tokio::time::advance(Duration::from_secs(2)).await;
    // A second change does not delay it.
    listener.sender().send(Trigger::Files);
    assert_eq!(next(&mut listener).await, (Scope::NONE, Duration::ZERO));
    let (scope, waited) = next(&mut listener).await;
    assert_eq!(scope, Scope::FILES);
    let early = DELAY - Duration::from_secs(3);
    assert!(waited > early && waited <= DELAY, "{waited:?}");
    let (scope, waited) = next(&mut listener).await;
    assert_eq!((scope, waited.as_secs()), (Scope::KNOWN, 600));
}

#[tokio::test(start_paused = true)]
async fn new_credentials_are_read_immediately_while_an_api_does_not_answer() {
    let mut listener = listener(Duration::ZERO);
    listener.sender().send(Trigger::Files);
    assert_eq!(next(&mut listener).await, (Scope::FILES, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn an_api_that_stops_answering_ends_the_delay() {
    let mut listener = listener(DELAY);
    listener.sender().send(Trigger::Files);
    assert_eq!(next(&mut listener).await.0, Scope::NONE);
    listener.subscribe(Targets::default());
    assert_eq!(next(&mut listener).await, (Scope::FILES, Duration::ZERO));
}

/// A window of fast polls plans rounds by itself. A reason that such a round takes along must not delay the one after the window.
#[tokio::test(start_paused = true)]
async fn reasons_that_planned_rounds_take_along_delay_no_later_round_by_more_than_one_period() {
    let mut listener = listener(DELAY);
    let sender = listener.sender();
    for _ in 0..60 {
        sender.send(Trigger::Vmi);
        let next = planned(50, Scope::KNOWN);
        listener.wait(next, &mut || {}).await;
    }
    sender.send(Trigger::Vmi);
    let (scope, waited) = next(&mut listener).await;
    assert_eq!(scope, Trigger::Vmi.scope());
    assert!(waited <= Duration::from_millis(500), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_storm_beside_planned_rounds_causes_few_more_than_these() {
    let mut listener = listener(DELAY);
    let sender = listener.sender();
    let storm = tokio::spawn(async move {
        for _ in 0..1000 {
            sender.send(Trigger::Vmi);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let mut rounds = 0;
    while !storm.is_finished() {
        let next = planned(1000, Scope::KNOWN);
        listener.wait(next, &mut || {}).await;
        rounds += 1;
    }
    // In ten seconds: the burst, two a second, and one a second that is planned.
    assert!((30..=52).contains(&rounds), "{rounds}");
}

/// Runs a listener on the kernel of this machine, whose inotify limit `limit` is zero. An event source causes few of twenty rounds.
async fn rounds_by_event_sources(limit: &str) {
    std::fs::write(format!("/proc/sys/user/{limit}"), "0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    let board = SourceBoard::default();
    let (mut listener, mut count) = (listener_of(&root, &board), 0);
    for _ in 0..20 {
        listener.subscribe(Targets {
            files: ["/etc/hostname".into()].into(),
            ..Targets::default()
        });
        let wake = listener.wait(planned(100, Scope::NONE), &mut || {}).await;
        let is_source = |reasons: &Reasons| reasons.trigger == Trigger::EventSource;
        count += usize::from(matches!(wake, Wake::Reconcile(reasons) if is_source(&reasons)));
    }
    let is_reported = |finding: &Finding| {
        finding.code == Code::EventSourceUnavailable && finding.seen.contains("inotify")
    };
    let findings = board.findings();
    assert!(findings.iter().any(is_reported), "{findings:?}");
    assert!(!board.sources()["files"].is_active);
    assert!(count <= 4, "{count} of 20 rounds");
}

#[tokio::test]
async fn a_kernel_without_an_inotify_instance_is_reported_and_causes_no_rounds() {
    if own_namespaces(&["--map-root-user"]).is_child() {
        rounds_by_event_sources("max_inotify_instances").await;
    }
}

#[tokio::test]
async fn a_kernel_that_refuses_a_watch_is_reported_and_causes_no_rounds() {
    if own_namespaces(&["--map-root-user"]).is_child() {
        rounds_by_event_sources("max_inotify_watches").await;
    }
}

#[tokio::test(start_paused = true)]
async fn files_are_watched_again_once_the_kernel_allows_it() {
    if own_namespaces(&["--map-root-user"]).is_child() {
        for limit in ["max_inotify_instances", "max_inotify_watches"] {
            let allow = |number: &str| std::fs::write(format!("/proc/sys/user/{limit}"), number);
            allow("0").unwrap();
            let (sender, mut inbox) = testing::sender();
            let board = SourceBoard::default();
            let files = BTreeSet::from([PathBuf::from("/etc/hostname")]);
            let dir = tempfile::tempdir().unwrap();
            let root = Root::new(dir.path());
            let (_paths, files) = tokio::sync::watch::channel(files);
            let mut source = Files::new(&root, &files);
            let out = Output::new(&source, sender, board.clone());
            let task = tokio::spawn(async move { keep(&mut source, &root, &out).await });
            board.changed().await;
            let more = tokio::time::timeout(Duration::from_secs(600), board.changed()).await;
            assert!(more.is_err(), "{limit}: reported again");
            assert!(!board.sources()["files"].is_active, "{limit}");
            assert_eq!(inbox.try_recv(), None, "{limit}: nothing changed");
            allow("1000").unwrap();
            board.changed().await;
            assert_eq!(board.findings(), [], "{limit}");
            assert!(board.sources()["files"].is_active, "{limit}");
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(inbox.try_recv().unwrap().0, Trigger::Files, "{limit}");
            task.abort();
        }
    }
}
