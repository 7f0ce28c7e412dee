// SPDX-License-Identifier: Apache-2.0
//! Tests against a real dbus-daemon, with a fake of systemd.

use std::time::Duration;

use harvester_lab::bus::{Bus as Daemon, Hostnamed, Systemd, Unit};
use harvester_lab::guest::GuestTree;
use harvester_lab::world::{SOON, eventually};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::super::Inbox;
use super::super::source::keep;
use super::super::testing::{output, probed};
use super::*;
use crate::agent::source_board::SourceBoard;
use crate::sys::root::Root;
use crate::wire::dbus::{DEADLINE, Peer};

struct Followed {
    tree: GuestTree,
    bus: Bus,
    board: SourceBoard,
    reasons: Inbox,
    task: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Followed {
    /// Follows the bus of an empty root, which has no bus yet.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tree = GuestTree::new(dir.path());
        let root = Root::new(dir.path());
        let bus = Bus::new(&root, None);
        let mut source = Units(bus.clone());
        let (out, reasons) = output(&source);
        let board = out.board.clone();
        let task = tokio::spawn(async move { keep(&mut source, &root, &out).await });
        Self {
            tree,
            bus,
            board,
            reasons,
            task,
            _dir: dir,
        }
    }

    async fn next(&mut self) -> Trigger {
        let reason = timeout(SOON, self.reasons.recv()).await;
        reason.expect("a reason comes").0
    }

    /// Waits until systemd's signals are received. Reports whether that sent a reason, and discards earlier ones.
    async fn heard(&mut self) -> bool {
        self.is(true, MANAGER.name).await;
        let mut last = None;
        while let Some((reason, _)) = self.reasons.try_recv() {
            last = Some(reason);
        }
        last == Some(Trigger::Units)
    }

    async fn is(&self, is_active: bool, detail: &str) {
        let stands = async || {
            let sources = self.board.sources();
            let state = sources.get("units");
            state.is_some_and(|state| state.is_active == is_active && state.detail.contains(detail))
        };
        eventually(SOON, &format!("{is_active}: {detail}"), stands).await;
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn systemd(daemon: &Daemon) -> Systemd {
    Systemd::start(
        daemon,
        &[(UNITS[0], Unit::running()), (DEVICE_UNIT, Unit::plugged())],
    )
    .await
}

#[tokio::test]
async fn each_signal_of_the_guest_agents_units_is_a_reason_and_no_other_is() {
    let mut followed = Followed::new();
    followed.is(false, "does not exist").await;
    assert_eq!(followed.board.findings(), [], "no machine needs a bus");
    let daemon = Daemon::start(&followed.tree).await;
    followed.is(false, "is not on the system bus").await;
    assert_eq!(followed.board.findings().len(), 1);
    let systemd = systemd(&daemon).await;
    assert_eq!(followed.next().await, Trigger::Units, "once it is heard");
    followed.is(true, "org.freedesktop.systemd1").await;
    assert_eq!(followed.board.findings(), []);

    systemd.set("cron.service", Unit::stopped()).await;
    systemd.unit_new("session-1.scope").await;
    systemd.reloading(true).await;
    let woken = timeout(Duration::from_millis(200), followed.reasons.recv()).await;
    assert!(woken.is_err(), "none of these is for us: {woken:?}");

    systemd.set(UNITS[0], Unit::stopped()).await;
    assert_eq!(followed.next().await, Trigger::Units);
    systemd.set(DEVICE_UNIT, Unit::stopped()).await;
    assert_eq!(followed.next().await, Trigger::Units);
    systemd.unit_new(UNITS[2]).await;
    assert_eq!(followed.next().await, Trigger::Units);
    systemd.unit_files_changed().await;
    assert_eq!(followed.next().await, Trigger::Units);
    systemd.reloading(false).await;
    assert_eq!(followed.next().await, Trigger::Units);
}

#[tokio::test]
async fn signals_of_other_senders_are_ignored_broadcast_and_unicast() {
    let mut followed = Followed::new();
    let daemon = Daemon::start(&followed.tree).await;
    let systemd = systemd(&daemon).await;
    assert!(followed.heard().await);
    let impostor = daemon.connect().await;
    let lie = async |to: Option<&str>| {
        let (path, interface) = (MANAGER.path, MANAGER.interface);
        let sent = impostor.emit_signal(to, path, interface, "UnitFilesChanged", &());
        sent.await.unwrap();
    };
    lie(None).await;
    // Unique names are numbered: ours is among the first.
    for number in 0..10 {
        lie(Some(&format!(":1.{number}"))).await;
    }
    let woken = timeout(Duration::from_millis(200), followed.reasons.recv()).await;
    assert!(woken.is_err(), "a lie is heard: {woken:?}");
    systemd.unit_files_changed().await;
    assert_eq!(followed.next().await, Trigger::Units, "the truth is heard");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_signals_while_the_rules_are_set_stops_no_call() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&GuestTree::new(dir.path())).await;
    let _systemd = systemd(&daemon).await;
    let bus = Bus::new(&Root::new(dir.path()), None);
    let ours = bus.connection().await.unwrap();
    let ours = ours.unique_name().unwrap();
    let _flood = Hostnamed::flood(&daemon, ours).await;
    for _ in 0..10 {
        let subscribed = timeout(SOON, subscribe(&bus)).await;
        subscribed.expect("a call hangs").unwrap();
    }
}

#[tokio::test]
async fn a_bus_that_is_killed_and_restarted_is_heard_again_and_systemd_asked_again() {
    let mut followed = Followed::new();
    let mut daemon = Daemon::start(&followed.tree).await;
    let before = systemd(&daemon).await;
    assert!(followed.heard().await);
    daemon.kill().await;
    followed.is(false, "").await;
    assert!(!followed.board.findings().is_empty());
    drop(before);
    daemon.restart().await;
    let systemd = systemd(&daemon).await;
    assert!(followed.heard().await, "for what changed meanwhile");
    assert!(systemd.is_subscribed());
    assert_eq!(followed.board.findings(), []);
    systemd.set(UNITS[0], Unit::stopped()).await;
    assert_eq!(followed.next().await, Trigger::Units);
}

#[tokio::test]
async fn a_systemd_that_begins_anew_is_asked_again() {
    let mut followed = Followed::new();
    let daemon = Daemon::start(&followed.tree).await;
    let before = systemd(&daemon).await;
    assert!(followed.heard().await);
    before.leave().await;
    followed.is(false, "is not on the system bus").await;
    let _after = systemd(&daemon).await;
    assert!(followed.heard().await);
}

#[tokio::test]
async fn a_hung_bus_is_said_after_the_deadline_and_used_once_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&GuestTree::new(dir.path())).await;
    let _systemd = systemd(&daemon).await;
    daemon.hang();
    let mut units = Units(Bus::new(&Root::new(dir.path()), None));
    tokio::time::pause();
    let began = Instant::now();
    let state = probed(&mut units).await;
    assert!((DEADLINE..DEADLINE * 2).contains(&(Instant::now() - began)));
    tokio::time::resume();
    assert!(!state.is_active);
    assert!(state.detail.contains("no response"), "{state:?}");
    daemon.go_on();
    let state = probed(&mut units).await;
    assert!(state.is_active, "{state:?}");
}

#[tokio::test]
async fn a_bus_that_stops_after_the_subscription_is_one_finding_until_it_goes_on() {
    let mut followed = Followed::new();
    let daemon = Daemon::start(&followed.tree).await;
    let _systemd = systemd(&daemon).await;
    assert!(followed.heard().await);
    followed.bus.text(DRIVER, "GetId", &[]).await.unwrap();
    while timeout(Duration::ZERO, followed.board.changed())
        .await
        .is_ok()
    {}
    daemon.hang();
    tokio::time::pause();
    // Nobody has called the bus, so nobody knows.
    let changed = timeout(DEADLINE, followed.board.changed()).await;
    assert!(changed.is_err() && followed.board.findings().is_empty());
    followed.bus.text(DRIVER, "GetId", &[]).await.unwrap_err();
    followed.is(false, "no response on the system bus").await;
    followed.board.changed().await;
    // In the middle of an attempt.
    let changed = timeout(DEADLINE * 9 / 2, followed.board.changed()).await;
    assert!(changed.is_err(), "it is reported again");
    assert_eq!(followed.board.findings().len(), 1);
    tokio::time::resume();
    daemon.go_on();
    assert!(followed.heard().await, "for what changed meanwhile");
    assert_eq!(followed.board.findings(), []);
}

#[tokio::test]
async fn a_service_that_does_not_answer_on_a_bus_that_works_is_no_finding() {
    let mut followed = Followed::new();
    let daemon = Daemon::start(&followed.tree).await;
    let systemd = systemd(&daemon).await;
    assert!(followed.heard().await);
    let mute = daemon.connect().await;
    let name = mute.unique_name().unwrap().as_str();
    let (path, interface) = ("/", "com.example");
    let mute = Peer {
        name,
        path,
        interface,
    };
    let unchanged = async || {
        timeout(Duration::ZERO, followed.board.changed())
            .await
            .is_err()
    };
    while !unchanged().await {}
    for _ in 0..3 {
        tokio::time::pause();
        followed.bus.call(mute, "Call", &[]).await.unwrap_err();
        tokio::time::resume();
        systemd.set(UNITS[0], Unit::stopped()).await;
        assert_eq!(
            timeout(SOON, followed.reasons.recv()).await.unwrap().0,
            Trigger::Units
        );
        assert!(unchanged().await && followed.board.findings().is_empty());
        systemd.set(UNITS[0], Unit::running()).await;
        assert_eq!(
            timeout(SOON, followed.reasons.recv()).await.unwrap().0,
            Trigger::Units
        );
    }
}

#[tokio::test]
async fn a_bus_that_closes_each_connection_is_left_alone_for_longer_each_time() {
    let followed = Followed::new();
    followed.tree.write("/run/dbus/.keep", "");
    let listener = tokio::net::UnixListener::bind(followed.tree.path(SOCKET)).unwrap();
    let (first, _) = timeout(SOON, listener.accept()).await.unwrap().unwrap();
    let earliest = Instant::now() + Duration::from_secs(1);
    drop(first);
    followed.is(false, "failed to connect").await;
    assert_eq!(followed.board.findings().len(), 1);
    drop(timeout(SOON, listener.accept()).await.unwrap().unwrap());
    assert!(Instant::now() >= earliest, "connected again at once");
}
