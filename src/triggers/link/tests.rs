// SPDX-License-Identifier: Apache-2.0
//! Tests of announcements: real messages, a source that plays the kernel, and the real kernel in a network namespace.

use super::*;
use crate::netlink::filter::only;
use crate::netlink::message::{NOTIFY_PEERS, RTM_NEWLINK};
use crate::netlink::socket::{KERNEL, LINKS};
use crate::netlink::tests::{FEATURES, VIRTIO, bare, with};
use crate::testing::{own_namespaces, run};
use crate::triggers::testing::sender;
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket, SocketAddr};
use socket2::SockFilter;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(60);

type Reasons = crate::triggers::Inbox;

fn listening() -> (Listening, Reasons) {
    let (sender, reasons) = sender();
    (
        Listening::new(Root::new("/"), sender, Health::default()),
        reasons,
    )
}

fn detail(health: &Health) -> (bool, String) {
    let signal = health.signals()[SIGNAL].clone();
    (signal.live, signal.detail)
}

fn event(message: &[u8], event: u32) -> Vec<u8> {
    with(message, 44, &event.to_ne_bytes())
}

/// What a link without a device says, with this name, bus and event.
fn made_up(name: &str, bus: Option<&str>, number: Option<u32>) -> Vec<u8> {
    let mut message = with(&bare(RTM_NEWLINK), 3, format!("{name}\0").as_bytes());
    if let Some(bus) = bus {
        message = with(&message, 57, format!("{bus}\0").as_bytes());
    }
    number.map_or(message.clone(), |number| event(&message, number))
}

// ---- judging ----

#[test]
fn only_the_kernel_and_only_a_virtio_nic_announces() {
    let announced = event(VIRTIO, NOTIFY_PEERS);
    let vlan = with(&announced, 18, &[9, 0, 1, 0, b'v', b'l', b'a', b'n', 0]);
    let old = made_up("eth0", None, Some(NOTIFY_PEERS));
    let removed = event(&bare(17), NOTIFY_PEERS);
    for (datagram, sender, sysfs, expected) in [
        (&announced[..], KERNEL, None, "Ok: eth0"),
        (
            &announced,
            4711,
            None,
            "it comes from port id 4711 and not from the kernel",
        ),
        // What a process says is not even read.
        (
            b"nonsense",
            4711,
            None,
            "it comes from port id 4711 and not from the kernel",
        ),
        (b"nonsense", KERNEL, None, "it cannot be understood"),
        (b"", KERNEL, None, "it is no announcement"),
        (VIRTIO, KERNEL, None, "it is no announcement"),
        (FEATURES, KERNEL, None, "it is no announcement"),
        (&event(VIRTIO, 5), KERNEL, None, "it is no announcement"),
        (&event(VIRTIO, 0), KERNEL, None, "it is no announcement"),
        (&removed, KERNEL, None, "it is no announcement"),
        (
            &vlan,
            KERNEL,
            None,
            "it comes from a device of kind \"vlan\"",
        ),
        // A kernel before 5.14 says no bus, and sysfs does.
        (&old, KERNEL, Some("virtio"), "Ok: eth0"),
        (
            &old,
            KERNEL,
            Some("pci"),
            "it does not come from a virtio NIC",
        ),
        (&old, KERNEL, None, "it does not come from a virtio NIC"),
        (
            &made_up("eth0", Some("pci"), Some(NOTIFY_PEERS)),
            KERNEL,
            Some("virtio"),
            "it does not come from a virtio NIC",
        ),
    ] {
        let said = match judge(datagram, sender, |_| sysfs.map(str::to_owned)) {
            Ok(announce) => format!("Ok: {}", announce.nic),
            Err(refused) => refused.to_string(),
        };
        assert_eq!(said, expected);
    }
}

#[test]
fn how_the_signal_stands_is_said_of_each_virtio_nic() {
    let nic = |name: &str, announce| Nic {
        name: name.to_owned(),
        address: None,
        driver: None,
        announce,
    };
    for (nics, live, detail) in [
        (vec![], false, "rtnetlink; no virtio NIC"),
        (
            vec![nic("eth0", Announce::NotVirtio)],
            false,
            "rtnetlink; no virtio NIC",
        ),
        (
            vec![nic("eth0", Announce::Negotiated)],
            true,
            "rtnetlink; eth0 announces (virtio_net)",
        ),
        (
            vec![
                nic(
                    "eth0",
                    Announce::NotNegotiated(vec!["GUEST_ANNOUNCE", "CTRL_VQ"]),
                ),
                nic("\u{1b}[31m", Announce::Unknown),
            ],
            false,
            "rtnetlink; eth0: GUEST_ANNOUNCE, CTRL_VQ not negotiated, \\u{1b}[31m: features cannot be read",
        ),
    ] {
        let expected = Signal {
            live,
            detail: detail.to_owned(),
        };
        assert_eq!(describe(&nics), expected);
    }
}

// ---- the loop, with a source that plays the kernel ----

/// What a source gives next: a message of the kernel, an overrun, or its end.
enum Next {
    Message(Vec<u8>),
    Overrun,
    End,
}

struct Played(Mutex<VecDeque<Next>>);

impl Played {
    fn new(next: impl IntoIterator<Item = Next>) -> Self {
        Self(Mutex::new(next.into_iter().collect()))
    }
}

impl Source for Played {
    async fn ready(&self) -> io::Result<()> {
        if self.0.lock().unwrap().is_empty() {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let sender = KERNEL;
        match self.0.lock().unwrap().pop_front() {
            None => Ok(Received::Nothing),
            Some(Next::Overrun) => Ok(Received::Overrun),
            Some(Next::End) => Err(io::Error::from_raw_os_error(19)),
            Some(Next::Message(bytes)) => {
                let length = bytes.len();
                let fits = length.min(buffer.len());
                buffer[..fits].copy_from_slice(&bytes[..fits]);
                Ok(Received::Datagram { length, sender })
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn five_announcements_of_each_of_three_nics_are_one_reason_and_the_next_move_is_another() {
    let (mut listening, mut reasons) = listening();
    let nics = ["eth0", "eth1", "eth2"];
    let storm = || {
        // Each announcement is followed by an event of its own (IFLA_EVENT_IGMP_RESEND).
        let events = nics.map(|nic| [NOTIFY_PEERS, 5].map(|number| (nic, number)));
        let all = events.into_iter().flatten().cycle().take(30);
        Played::new(
            all.map(|(nic, number)| Next::Message(made_up(nic, Some("virtio"), Some(number)))),
        )
    };
    for moves in 1..=2 {
        let storm = storm();
        let quiet = timeout(Duration::from_secs(2), listening.follow(&storm));
        quiet.await.unwrap_err();
        assert_eq!(reasons.try_recv().unwrap().0, Trigger::Link);
        reasons.try_recv().unwrap_err();
        assert_eq!(listening.tally.announced, 15 * moves);
        assert_eq!(listening.tally.told, moves);
        assert_eq!(listening.tally.wakes, moves);
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_dies_is_opened_again_with_growing_waits_and_what_it_missed_is_made_up_for() {
    let (sender, mut reasons) = sender();
    let health = Health::default();
    let mut listening = Listening::new(Root::new("/"), sender, health.clone());
    let start = Instant::now();
    let opened = Mutex::new(Vec::new());
    let open = || {
        let mut opened = opened.lock().unwrap();
        opened.push((start.elapsed().as_secs(), health.remarks().len()));
        match opened.len() {
            1 | 2 => Err(NetlinkError::Forbidden),
            3 => Ok(Played::new([Next::End])),
            _ => Ok(Played::new([])),
        }
    };
    let quiet = timeout(Duration::from_secs(3600), listening.keep(open));
    quiet.await.unwrap_err();
    // Waits of 1, 2 and 4 s; the complaint stands while nobody listens, and is taken back.
    assert_eq!(*opened.lock().unwrap(), [(0, 0), (1, 1), (3, 1), (7, 1)]);
    assert_eq!(health.remarks(), []);
    // When it was opened after it had been deaf, and when it was opened again: the second says nothing more.
    assert_eq!(listening.tally.told, 2);
    assert_eq!(reasons.try_recv().unwrap().0, Trigger::Link);
    reasons.try_recv().unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_dead_source_is_said() {
    let (sender, _reasons) = sender();
    let health = Health::default();
    let mut listening = Listening::new(Root::new("/"), sender, health.clone());
    let open = || Err::<Played, _>(NetlinkError::Forbidden);
    timeout(SOON, listening.keep(open)).await.unwrap_err();
    let (live, said) = detail(&health);
    assert!(!live && said.contains("AF_NETLINK"), "{said}");
    assert!(
        matches!(&health.remarks()[..], [Remark::SignalUnavailable { what }] if what.starts_with(&said))
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_fit_and_an_overrun_are_reasons_to_look() {
    for next in [Next::Message(vec![0; MESSAGE_MAX + 1]), Next::Overrun] {
        let (mut listening, mut reasons) = listening();
        let source = Played::new([next]);
        timeout(SOON, listening.follow(&source)).await.unwrap_err();
        assert_eq!(reasons.try_recv().unwrap().0, Trigger::Link);
        assert_eq!((listening.tally.overruns, listening.tally.told), (1, 1));
    }
}

// ---- the real kernel ----

/// A filter that keeps all there is of every message (`BPF_RET`).
const EVERYTHING: [SockFilter; 1] = [SockFilter::new(0x06, 0, 0, u32::MAX)];

const OPTIONS: [&str; 2] = ["--map-root-user", "--net"];

/// Runs `work` on another thread while `listening` listens.
async fn meanwhile<T: Send + 'static>(
    listening: &mut Listening,
    socket: &LinkSocket,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    tokio::select! {
        error = listening.follow(socket) => panic!("{error}"),
        result = tokio::task::spawn_blocking(work) => result.unwrap(),
    }
}

/// Listens until nothing more can be there.
async fn drain(listening: &mut Listening, socket: &LinkSocket) {
    // What the kernel tells is in the socket when the call that caused it returns.
    let _ = timeout(Duration::from_millis(50), listening.follow(socket)).await;
}

/// Makes a veth pair, sets it up and removes it, so many times.
fn churn(times: usize) {
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let cycle = "link add v0 type veth peer name v1\nlink set v0 up\nlink set v1 up\nlink del v0\n";
    let mut input = ip.stdin.take().unwrap();
    input.write_all(cycle.repeat(times).as_bytes()).unwrap();
    drop(input);
    assert!(ip.wait().unwrap().success());
}

/// Sends a message to all who listen to links, as root may.
fn forge(message: &[u8]) {
    let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
    socket.bind_auto().unwrap();
    let everybody = SocketAddr::new(KERNEL, LINKS);
    assert_eq!(
        socket.send_to(message, &everybody, 0).unwrap(),
        message.len()
    );
}

#[tokio::test]
async fn interfaces_that_come_and_go_wake_nobody() {
    let test = "triggers::link::tests::interfaces_that_come_and_go_wake_nobody";
    if !own_namespaces(test, &OPTIONS).is_child() {
        return;
    }
    let (mut filtered, mut reasons) = listening();
    let (mut unfiltered, _) = listening();
    let ours = LinkSocket::open(&ANNOUNCEMENTS, RECEIVE_BUFFER).unwrap();
    let plain = LinkSocket::open(&EVERYTHING, RECEIVE_BUFFER).unwrap();
    tokio::select! {
        error = filtered.follow(&ours) => panic!("{error}"),
        () = meanwhile(&mut unfiltered, &plain, || churn(300)) => {}
    }
    drain(&mut filtered, &ours).await;
    println!(
        "300 veth pairs made, set up and removed: {} wake-ups with the filter; without it {} wake-ups, {} messages, {} overruns",
        filtered.tally.wakes,
        unfiltered.tally.wakes,
        unfiltered.tally.refused,
        unfiltered.tally.overruns
    );
    assert_eq!(filtered.tally, Tally::default());
    assert!(unfiltered.tally.wakes > 300, "{:?}", unfiltered.tally);
    reasons.try_recv().unwrap_err();
    // The socket is not deaf: what it is for goes through.
    forge(&event(VIRTIO, NOTIFY_PEERS));
    drain(&mut filtered, &ours).await;
    assert_eq!(filtered.tally.wakes, 1);
}

#[tokio::test]
async fn an_announcement_that_root_makes_up_is_refused_and_counted() {
    let test = "triggers::link::tests::an_announcement_that_root_makes_up_is_refused_and_counted";
    if !own_namespaces(test, &OPTIONS).is_child() {
        return;
    }
    let (mut listening, mut reasons) = listening();
    let socket = LinkSocket::open(&ANNOUNCEMENTS, RECEIVE_BUFFER).unwrap();
    listening.signal = standing(&listening.root);
    for message in [
        event(VIRTIO, NOTIFY_PEERS),
        made_up("eth0", Some("virtio"), Some(NOTIFY_PEERS)),
    ] {
        forge(&message);
    }
    // The filter keeps these out, whoever sends them.
    for message in [
        VIRTIO.to_vec(),
        event(VIRTIO, 5),
        event(&bare(17), NOTIFY_PEERS),
        made_up("x", None, None),
    ] {
        forge(&message);
    }
    drain(&mut listening, &socket).await;
    let tally = Tally {
        wakes: 1,
        refused: 2,
        forged: 2,
        ..Tally::default()
    };
    assert_eq!(listening.tally, tally);
    reasons.try_recv().unwrap_err();
    let said = (
        false,
        "rtnetlink; no virtio NIC; 2 forged refused".to_owned(),
    );
    assert_eq!(detail(&listening.health), said);
}

#[tokio::test]
async fn other_events_of_the_kernel_are_no_reason() {
    let test = "triggers::link::tests::other_events_of_the_kernel_are_no_reason";
    if !own_namespaces(test, &OPTIONS).is_child() {
        return;
    }
    let (mut filtered, mut reasons) = listening();
    let (mut unfiltered, mut others) = listening();
    let ours = LinkSocket::open(&ANNOUNCEMENTS, RECEIVE_BUFFER).unwrap();
    let plain = LinkSocket::open(&EVERYTHING, RECEIVE_BUFFER).unwrap();
    run(&[
        "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1",
    ]);
    run(&["ip", "link", "set", "v0", "mtu", "1400"]);
    drain(&mut unfiltered, &plain).await;
    let before = unfiltered.tally.refused;
    assert!(before >= 3, "{:?}", unfiltered.tally);
    // IFLA_EVENT_FEATURES, from the kernel itself. A filter for it keeps it, so the one for announcements was asked.
    let (mut features, mut none) = listening();
    let theirs = LinkSocket::open(&only(2), RECEIVE_BUFFER).unwrap();
    run(&["ethtool", "-K", "v0", "tso", "off", "gso", "off"]);
    drain(&mut unfiltered, &plain).await;
    assert!(unfiltered.tally.refused > before, "{:?}", unfiltered.tally);
    drain(&mut features, &theirs).await;
    assert_eq!((features.tally.wakes, features.tally.refused), (1, 1));
    drain(&mut filtered, &ours).await;
    assert_eq!(filtered.tally, Tally::default());
    for reasons in [&mut reasons, &mut others, &mut none] {
        reasons.try_recv().unwrap_err();
    }
}

#[tokio::test]
async fn messages_that_the_kernel_dropped_are_a_reason_to_look_and_the_socket_lives_on() {
    let test = "triggers::link::tests::messages_that_the_kernel_dropped_are_a_reason_to_look_and_the_socket_lives_on";
    if !own_namespaces(test, &OPTIONS).is_child() {
        return;
    }
    let (mut listening, mut reasons) = listening();
    // No room for more than a message or two, and nobody takes them meanwhile.
    let socket = LinkSocket::open(&EVERYTHING, 0).unwrap();
    churn(20);
    drain(&mut listening, &socket).await;
    assert_eq!((listening.tally.overruns, listening.tally.told), (1, 1));
    assert_eq!(reasons.try_recv().unwrap().0, Trigger::Link);
    let before = listening.tally.refused;
    forge(VIRTIO);
    drain(&mut listening, &socket).await;
    assert_eq!(listening.tally.refused, before + 1);
}

#[test]
fn the_probe_opens_a_socket_and_says_what_the_listener_would() {
    let test = "triggers::link::tests::the_probe_opens_a_socket_and_says_what_the_listener_would";
    if own_namespaces(test, &OPTIONS).is_child() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let signal = runtime.block_on(async { probe(&Root::new("/")) });
        assert_eq!(
            (signal.live, signal.detail.as_str()),
            (false, "rtnetlink; no virtio NIC")
        );
    }
}
