// SPDX-License-Identifier: Apache-2.0
//! Tests of announcements: real messages, a fake source of kernel messages, and the real kernel in a network namespace.

use super::*;
use crate::testing::{own_namespaces, run};
use crate::triggers::Inbox;
use crate::triggers::testing::{output, probed};
use crate::wire::netlink::filter::only;
use crate::wire::netlink::message::{NOTIFY_PEERS, RTM_NEWLINK};
use crate::wire::netlink::socket::{KERNEL, LINKS};
use crate::wire::netlink::tests::{FEATURES, VIRTIO, bare, with};
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket, SocketAddr};
use socket2::{SockFilter, SockRef};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{advance, timeout};

/// The event source with its output, and the number of reasons that arrived.
struct Listening {
    link: Link,
    out: Output,
    inbox: Inbox,
    reasons: usize,
}

fn link() -> Link {
    Link::new(Root::new("/"))
}

fn listening() -> Listening {
    let (link, reasons) = (link(), 0);
    let (out, inbox) = output(&link);
    Listening {
        link,
        out,
        inbox,
        reasons,
    }
}

impl Listening {
    /// Handles a message. Its reason is received at once, so that the inbox joins none.
    fn take(&mut self, received: Received, buffer: &[u8]) {
        self.link.take(received, buffer, &self.out);
        self.reasons += std::iter::from_fn(|| self.inbox.try_recv()).count();
    }

    /// Returns the number of reasons since the last call.
    fn reported(&mut self) -> usize {
        std::mem::take(&mut self.reasons)
    }
}

fn event(message: &[u8], event: u32) -> Vec<u8> {
    with(message, 44, &event.to_ne_bytes())
}

/// Creates the message of a link without a device, with this name, bus and event.
fn made_up(name: &str, bus: Option<&str>, number: Option<u32>) -> Vec<u8> {
    let mut message = with(&bare(RTM_NEWLINK), 3, format!("{name}\0").as_bytes());
    if let Some(bus) = bus {
        message = with(&message, 57, format!("{bus}\0").as_bytes());
    }
    number.map_or(message.clone(), |number| event(&message, number))
}

// ---- judge ----

#[test]
fn only_the_kernel_and_only_a_virtio_nic_announces() {
    let announced = event(VIRTIO, NOTIFY_PEERS);
    let vlan = with(&announced, 18, &[9, 0, 1, 0, b'v', b'l', b'a', b'n', 0]);
    let old = made_up("eth0", None, Some(NOTIFY_PEERS));
    let removed = event(&bare(17), NOTIFY_PEERS);
    let pci = made_up("eth0", Some("pci"), Some(NOTIFY_PEERS));
    for (datagram, sysfs, expected) in [
        (&announced[..], None, Some("eth0")),
        (b"nonsense", None, None),
        (b"", None, None),
        (VIRTIO, None, None),
        (FEATURES, None, None),
        (&event(VIRTIO, 5), None, None),
        (&event(VIRTIO, 0), None, None),
        (&removed, None, None),
        (&vlan, None, None),
        // A kernel before 5.14 does not send the bus; it is read from sysfs.
        (&old, Some("virtio"), Some("eth0")),
        (&old, Some("pci"), None),
        (&old, None, None),
        (&pci, Some("virtio"), None),
    ] {
        let nic = judge(datagram, |_| sysfs.map(str::to_owned));
        assert_eq!(nic.as_deref(), expected, "{datagram:?}");
    }
    // What a process sends is not parsed, whatever it is.
    let mut listening = listening();
    for datagram in [&announced[..], b"nonsense"] {
        let (length, sender) = (datagram.len(), 4711);
        listening.take(Received::Datagram { length, sender }, datagram);
    }
    assert_eq!(listening.reported(), 0);
}

#[test]
fn the_announcement_state_of_each_virtio_nic_is_reported() {
    let nic = |name: &str, announce| Nic {
        name: name.to_owned(),
        address: None,
        driver: None,
        announce,
    };
    let missing = Announce::NotNegotiated(vec!["GUEST_ANNOUNCE", "CTRL_VQ"]);
    let two = vec![nic("eth0", missing), nic("\u{1b}[31m", Announce::Unknown)];
    let of_two = "eth0: GUEST_ANNOUNCE, CTRL_VQ not negotiated, \\u{1b}[31m: cannot read features";
    let eth0 = |announce| vec![nic("eth0", announce)];
    for (nics, is_active, detail) in [
        (vec![], false, "no virtio NIC"),
        (eth0(Announce::NotVirtio), false, "no virtio NIC"),
        (
            eth0(Announce::Negotiated),
            true,
            "eth0 sends announcements (virtio_net)",
        ),
        (two, false, of_two),
    ] {
        let detail = format!("rtnetlink; {detail}");
        assert_eq!(describe(&nics), SourceState { is_active, detail });
    }
}

// ---- the loop, with a fake source ----

/// The output of a source before its end: a message of the kernel or an overrun.
enum Next {
    Message(Vec<u8>),
    Overrun,
}

/// A source of messages: the kernel, or a fake one.
trait MessageSource {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Received>;
}

/// What wakes a listener.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    messages: u64,
    overruns: u64,
}

/// Handles the messages of a source until it fails.
fn follow(listening: &mut Listening, source: &impl MessageSource) -> Tally {
    let mut buffer = vec![0; MESSAGE_MAX];
    let mut tally = Tally::default();
    while let Ok(received) = source.receive(&mut buffer) {
        match received {
            Received::Datagram { .. } => tally.messages += 1,
            Received::Overrun => tally.overruns += 1,
        }
        listening.take(received, &buffer);
    }
    tally
}

struct Played(Mutex<VecDeque<Next>>);

impl Played {
    fn new(next: impl IntoIterator<Item = Next>) -> Self {
        Self(Mutex::new(next.into_iter().collect()))
    }
}

impl MessageSource for Played {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let sender = KERNEL;
        match self.0.lock().unwrap().pop_front() {
            None => Err(io::Error::from_raw_os_error(19)),
            Some(Next::Overrun) => Ok(Received::Overrun),
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
    let mut listening = listening();
    let nics = ["eth0", "eth1", "eth2"];
    let storm = || {
        // Each announcement is followed by another event (IFLA_EVENT_IGMP_RESEND).
        let events = nics.map(|nic| [NOTIFY_PEERS, 5].map(|number| (nic, number)));
        let all = events.into_iter().flatten().cycle().take(30);
        let message = |(nic, number)| made_up(nic, Some("virtio"), Some(number));
        Played::new(all.map(message).map(Next::Message))
    };
    for _ in 1..=2 {
        assert_eq!(follow(&mut listening, &storm()).messages, 30);
        assert_eq!(listening.reported(), 1);
        advance(Duration::from_secs(2)).await;
    }
}

#[test]
fn a_message_that_does_not_fit_and_an_overrun_are_reasons_to_look() {
    for next in [Next::Message(vec![0; MESSAGE_MAX + 1]), Next::Overrun] {
        let mut listening = listening();
        follow(&mut listening, &Played::new([next]));
        assert_eq!(listening.reported(), 1);
    }
}

// ---- the real kernel ----

/// A filter that keeps every message completely (`BPF_RET`).
const EVERYTHING: [SockFilter; 1] = [SockFilter::new(0x06, 0, 0, u32::MAX)];

const OPTIONS: [&str; 2] = ["--map-root-user", "--net"];

/// A socket that ends when it is silent and the work that causes its messages is done.
struct Until<'a>(&'a Socket, &'a (dyn Fn() -> bool + Sync));

impl MessageSource for Until<'_> {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            let done = (self.1)();
            match receive(self.0, buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !done => {}
                received => return received,
            }
        }
    }
}

fn open(filter: &[SockFilter], receive_buffer: usize) -> Socket {
    let socket = subscribe(filter, receive_buffer).unwrap();
    socket.set_non_blocking(false).unwrap();
    let limit = Some(Duration::from_millis(50));
    SockRef::from(&socket).set_read_timeout(limit).unwrap();
    socket
}

/// Listens until no more messages can arrive: the kernel queues them before the call that causes them returns.
fn drain(listening: &mut Listening, socket: &Socket) -> Tally {
    follow(listening, &Until(socket, &|| true))
}

/// Creates a veth pair, brings it up and deletes it, `times` times.
fn churn(times: usize) {
    let mut ip = Command::new("ip");
    let ip = ip.args(["-batch", "-"]).stdin(Stdio::piped());
    let mut ip = ip.spawn().unwrap();
    let cycle = "link add v0 type veth peer name v1\nlink set v0 up\nlink set v1 up\nlink del v0\n";
    let mut input = ip.stdin.take().unwrap();
    input.write_all(cycle.repeat(times).as_bytes()).unwrap();
    drop(input);
    assert!(ip.wait().unwrap().success());
}

/// Sends a message to all listeners for links, as root may.
fn forge(message: &[u8]) {
    let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
    socket.bind_auto().unwrap();
    let everybody = SocketAddr::new(KERNEL, LINKS);
    let sent = socket.send_to(message, &everybody, 0).unwrap();
    assert_eq!(sent, message.len());
}

#[test]
fn interfaces_that_come_and_go_cause_no_wake_up() {
    if !own_namespaces(&OPTIONS).is_child() {
        return;
    }
    let mut filtered = listening();
    let mut unfiltered = listening();
    let ours = open(&ANNOUNCEMENTS, RECEIVE_BUFFER);
    let plain = open(&EVERYTHING, RECEIVE_BUFFER);
    let is_done = AtomicBool::new(false);
    let done = || is_done.load(Ordering::Relaxed);
    let (with_filter, without) = std::thread::scope(|threads| {
        threads.spawn(|| {
            churn(50);
            is_done.store(true, Ordering::Relaxed);
        });
        let with_filter = threads.spawn(|| follow(&mut filtered, &Until(&ours, &done)));
        let without = follow(&mut unfiltered, &Until(&plain, &done));
        (with_filter.join().unwrap(), without)
    });
    println!(
        "50 veth pairs made, set up and removed: {} messages that wake with the filter; without it {} messages, {} overruns",
        with_filter.messages, without.messages, without.overruns
    );
    assert_eq!(with_filter, Tally::default());
    assert!(without.messages > 0, "{without:?}");
    assert_eq!(filtered.reported(), 0);
    // The socket works: announcements pass the filter.
    forge(&event(VIRTIO, NOTIFY_PEERS));
    assert_eq!(drain(&mut filtered, &ours).messages, 1);
}

#[test]
fn an_announcement_that_root_makes_up_is_refused() {
    if !own_namespaces(&OPTIONS).is_child() {
        return;
    }
    let mut listening = listening();
    let socket = open(&ANNOUNCEMENTS, RECEIVE_BUFFER);
    forge(&event(VIRTIO, NOTIFY_PEERS));
    forge(&made_up("eth0", Some("virtio"), Some(NOTIFY_PEERS)));
    // The filter drops these, regardless of their sender.
    forge(VIRTIO);
    forge(&event(VIRTIO, 5));
    forge(&event(&bare(17), NOTIFY_PEERS));
    forge(&made_up("x", None, None));
    assert_eq!(drain(&mut listening, &socket).messages, 2);
    assert_eq!(listening.reported(), 0);
}

#[test]
fn other_events_of_the_kernel_are_no_reason() {
    if !own_namespaces(&OPTIONS).is_child() {
        return;
    }
    let mut filtered = listening();
    let mut unfiltered = listening();
    let ours = open(&ANNOUNCEMENTS, RECEIVE_BUFFER);
    let plain = open(&EVERYTHING, RECEIVE_BUFFER);
    let add = "ip link add v0 type veth peer name v1";
    run(&add.split(' ').collect::<Vec<_>>());
    run(&["ip", "link", "set", "v0", "mtu", "1400"]);
    let tally = drain(&mut unfiltered, &plain);
    assert!(tally.messages >= 3, "{tally:?}");
    // IFLA_EVENT_FEATURES, from the kernel itself. A filter for it passes it, so the one for announcements was effective.
    let mut features = listening();
    let theirs = open(&only(2), RECEIVE_BUFFER);
    run(&["ethtool", "-K", "v0", "tso", "off", "gso", "off"]);
    assert!(drain(&mut unfiltered, &plain).messages > 0);
    assert_eq!(drain(&mut features, &theirs).messages, 1);
    assert_eq!(drain(&mut filtered, &ours), Tally::default());
    for source in [&mut filtered, &mut unfiltered, &mut features] {
        assert_eq!(source.reported(), 0);
    }
}

#[test]
fn messages_that_the_kernel_dropped_are_a_reason_to_look_and_the_socket_lives_on() {
    if !own_namespaces(&OPTIONS).is_child() {
        return;
    }
    let mut listening = listening();
    // A buffer for one or two messages, which are not read in the meantime.
    let socket = open(&EVERYTHING, 0);
    churn(20);
    assert_eq!(drain(&mut listening, &socket).overruns, 1);
    assert_eq!(listening.reported(), 1);
    forge(VIRTIO);
    assert_eq!(drain(&mut listening, &socket).messages, 1);
}

#[tokio::test]
async fn announcements_that_may_have_been_missed_are_made_up_for() {
    if own_namespaces(&OPTIONS).is_child() {
        let mut link = link();
        let (out, mut reasons) = output(&link);
        let first = timeout(Duration::from_millis(200), link.follow(&out)).await;
        assert!(first.is_err(), "it listens");
        assert_eq!(reasons.try_recv(), None);
        let second = link.follow(&out);
        tokio::select! {
            lost = second => panic!("{lost:?}"),
            (trigger, _) = reasons.recv() => assert_eq!(trigger, Trigger::Link),
        }
    }
}

#[tokio::test]
async fn the_probe_opens_a_socket_and_says_what_the_listener_would() {
    if own_namespaces(&OPTIONS).is_child() {
        let state = probed(&mut link()).await;
        assert!(!state.is_active);
        assert_eq!(state.detail, "rtnetlink; no virtio NIC");
    }
}
