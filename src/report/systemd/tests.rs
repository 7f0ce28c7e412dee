// SPDX-License-Identifier: Apache-2.0
//! Tests of the notifier against real datagram sockets.

use super::*;
use std::io::ErrorKind;

fn listen() -> (tempfile::TempDir, UnixDatagram, Notifier) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_nonblocking(true).unwrap();
    (dir, socket, notifier(path.as_os_str()))
}

fn notifier(socket: &OsStr) -> Notifier {
    let environment = NotifyEnvironment {
        notify_socket: Some(socket.to_owned()),
        ..NotifyEnvironment::default()
    };
    Notifier::new(&environment, 1)
}

fn receive(socket: &UnixDatagram) -> Option<String> {
    let mut buffer = [0; 8192];
    match socket.recv(&mut buffer) {
        Ok(length) => Some(String::from_utf8(buffer[..length].to_vec()).unwrap()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            None
        }
    }
}

/// Holds that these messages were sent, and no other.
fn are_sent(socket: &UnixDatagram, messages: &[&str]) {
    let sent: Vec<String> = std::iter::from_fn(|| receive(socket)).collect();
    assert_eq!(sent, messages);
}

#[test]
fn each_call_is_one_message_and_a_status_is_sent_on_change_only() {
    let (_dir, socket, mut notifier) = listen();
    notifier.ready("starting");
    are_sent(&socket, &["READY=1\nSTATUS=starting\n"]);
    for status in ["starting", "on hv-a", "on hv-a"] {
        notifier.status(status);
    }
    notifier.watchdog();
    are_sent(&socket, &["STATUS=on hv-a\n", "WATCHDOG=1\n"]);
    notifier.reloading();
    let reloading = receive(&socket).unwrap();
    let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
    assert!(since.unwrap().trim_end().parse::<u64>().unwrap() > 0);
    notifier.stopping();
    are_sent(&socket, &["STOPPING=1\n"]);
}

#[test]
fn foreign_text_in_a_status_cannot_become_another_assignment() {
    let (_dir, socket, mut notifier) = listen();
    notifier.status("host\nSTOPPING=1\nMAINPID=1");
    are_sent(&socket, &["STATUS=host\\nSTOPPING=1\\nMAINPID=1\n"]);
    notifier.ready(&"ö".repeat(100_000));
    assert!(receive(&socket).unwrap().len() < 4096);
}

#[test]
fn a_manager_that_does_not_read_never_blocks_and_gets_the_important_part_later() {
    let (_dir, socket, mut notifier) = listen();
    // A call that blocked would never return: nothing reads.
    for number in 0..5000 {
        notifier.status(&number.to_string());
    }
    notifier.ready("ready");
    notifier.reloading();
    notifier.ready("ready again");
    notifier.watchdog();
    while let Some(message) = receive(&socket) {
        assert!(message.starts_with("STATUS="), "{message}");
    }
    notifier.watchdog();
    assert_eq!(receive(&socket).unwrap(), "READY=1\nSTATUS=ready\n");
    assert!(receive(&socket).unwrap().starts_with("RELOADING=1\n"));
    are_sent(&socket, &["READY=1\nSTATUS=ready again\n", "WATCHDOG=1\n"]);
}

#[test]
fn a_status_that_did_not_get_through_is_sent_again() {
    let (_dir, socket, mut notifier) = listen();
    let mut number = 0;
    while notifier.send(&[NotifyState::Watchdog]) {
        number += 1;
        assert!(number < 100_000);
    }
    notifier.status("on hv-b");
    while receive(&socket).is_some_and(|message| message == "WATCHDOG=1\n") {}
    notifier.status("on hv-b");
    are_sent(&socket, &["STATUS=on hv-b\n"]);
}

#[test]
fn an_abstract_address_is_understood() {
    let name = format!("harvester-node-agent-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    notifier(OsStr::new(&format!("@{name}"))).stopping();
    socket.set_nonblocking(true).unwrap();
    are_sent(&socket, &["STOPPING=1\n"]);
}

#[test]
fn no_socket_a_dead_one_and_an_unknown_kind_are_all_silent() {
    let long = "/".repeat(300);
    let none = Notifier::new(&NotifyEnvironment::default(), 1);
    let others = ["/nowhere/at/all", "vsock:2:1", "", "@", &long];
    let others = others.map(|socket| notifier(socket.as_ref()));
    for mut notifier in others.into_iter().chain([none]) {
        for _ in 0..100 {
            notifier.ready("ready");
            notifier.status("status");
            notifier.watchdog();
        }
        assert!(notifier.owed.len() <= OWED_LIMIT);
    }
}

#[test]
fn the_watchdog_is_fed_twice_in_its_time_if_it_is_ours() {
    for (usec, pid, interval) in [
        (Some("60000000"), Some("77"), Some(Duration::from_secs(30))),
        (Some("60000000"), None, Some(Duration::from_secs(30))),
        (Some("60000000"), Some("78"), None),
        (Some("60000000"), Some("rubbish"), None),
        (Some("0"), None, None),
        (Some("-1"), None, None),
        (None, Some("77"), None),
    ] {
        let environment = NotifyEnvironment {
            watchdog_usec: usec.map(str::to_owned),
            watchdog_pid: pid.map(str::to_owned),
            ..NotifyEnvironment::default()
        };
        let found = Notifier::new(&environment, 77).watchdog_interval();
        assert_eq!(found, interval, "{environment:?}");
    }
}
