// SPDX-License-Identifier: Apache-2.0
//! Tests of the journal against real datagram sockets.

use super::writer::{QUEUE_LENGTH, drain};
use super::*;
use crate::decide::fixtures::planned_event;
use crate::decide::scheduled_events::ScheduledEvent;
use crate::report::message_id::RECORDS_LOST;
use crate::report::sink::JOURNAL_SOCKET;
use crate::testing::{Role, own_mounts, run};
use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use harvester_lab::world::SOON;

type Fields = BTreeMap<String, String>;

/// The fields of every entry that contain its source location.
const ORIGIN: [&str; 3] = ["CODE_FILE", "CODE_LINE", "TARGET"];

const PRIORITIES: [Priority; 5] = [
    Priority::Error,
    Priority::Warning,
    Priority::Notice,
    Priority::Info,
    Priority::Debug,
];

/// Replaces the machine's journald with a socket that is not read, for this process only.
fn listen() -> UnixDatagram {
    run(&["mount", "-t", "tmpfs", "none", "/run"]);
    std::fs::create_dir_all("/run/systemd/journal").unwrap();
    bind()
}

fn bind() -> UnixDatagram {
    let socket = UnixDatagram::bind(JOURNAL_SOCKET).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket
}

/// Returns a journal and the socket that has its entries, in the process that runs only this test.
fn own_journal() -> Option<(UnixDatagram, Journal)> {
    own_mounts().is_child().then(|| {
        let socket = listen();
        let journal = open(&socket);
        (socket, journal)
    })
}

/// Creates a journal, and reads the empty datagram with which the library tests the socket.
fn open(socket: &UnixDatagram) -> Journal {
    let journal = Journal::new(Sink::Journal, LogLevel::Debug);
    assert_eq!(socket.recv(&mut [0]).unwrap(), 0);
    journal
}

/// Returns the next entry: lines `NAME=value`, or `NAME`, the length in eight bytes, and the value (systemd.io, "Native Journal
/// Protocol").
fn receive(socket: &UnixDatagram) -> Fields {
    let mut buffer = vec![0; 65536];
    let length = socket.recv(&mut buffer).unwrap();
    let mut rest = &buffer[..length];
    let mut fields = Fields::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap();
        let line = std::str::from_utf8(&rest[..end]).unwrap();
        rest = &rest[end + 1..];
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let (length, after) = rest.split_first_chunk().unwrap();
                let length = usize::try_from(u64::from_le_bytes(*length)).unwrap();
                let value = std::str::from_utf8(&after[..length]).unwrap();
                assert_eq!(after[length], b'\n');
                rest = &after[length + 1..];
                (line, value.to_owned())
            }
        };
        let earlier = fields.insert(name.to_owned(), value);
        assert_eq!(earlier, None, "{name} twice");
    }
    fields
}

fn full_record() -> Record {
    Record {
        priority: Priority::Notice,
        message: "moved\nto \x1b[31mhv-b".into(),
        message_id: Some("0123456789abcdef0123456789abcdef"),
        finding: Some("moved".into()),
        vm: Some("default/worker-1".into()),
        host: Some("hv-b".into()),
        previous_host: Some("hv-a".into()),
        zone: Some("zone-b".into()),
        trigger: Some("link".into()),
        latency_ms: Some(42),
        interruption_ms: Some(89),
        event: Some(ScheduledEvent {
            host: Some("hv-a".into()),
            target_host: Some("hv-b".into()),
            deadline: Some("2026-11-24T10:02:00Z".into()),
            ..planned_event()
        }),
        impact: Some("none".into()),
        fix: Some("nothing to do".into()),
    }
}

#[test]
fn a_record_arrives_with_exactly_its_fields() {
    let Some((socket, journal)) = own_journal() else {
        return;
    };
    let mut text = String::new();
    let mut send = |record| {
        journal.send(record);
        let mut fields = receive(&socket);
        for name in ORIGIN {
            assert!(fields.remove(name).is_some(), "{name}");
        }
        let fields = fields.iter();
        text.extend(fields.map(|(name, value)| format!("{name}={value}\n")));
        text.push('\n');
    };
    send(full_record());
    for priority in PRIORITIES {
        send(Record {
            zone: Some(String::new()),
            ..Record::new(priority, "bare")
        });
    }
    let file = "src/report/journal/expected.txt";
    harvester_lab::expected::is_expected(file, &text, str::to_owned);
    assert!(journal.close(SOON));
}

#[test]
fn a_long_message_is_shortened_and_kept_whole_in_a_field() {
    let whole = format!("several VMs match this node: {}", "default/vm ".repeat(20));
    let record = Record::new(Priority::Error, whole.clone());
    let message = record.short_message();
    assert_eq!(message.chars().count(), MESSAGE_LIMIT);
    assert!(message.ends_with('…'), "{message}");
    let lines = record.text(false);
    assert_eq!(lines, format!("error: {message}\n    detail: {whole}\n"));
    let short = Record::new(Priority::Error, "x".repeat(MESSAGE_LIMIT));
    assert!(!short.text(false).contains("detail"));
}

#[test]
fn a_journal_without_a_reader_never_blocks_the_sender_and_the_loss_is_reported() {
    let Some((socket, journal)) = own_journal() else {
        return;
    };
    // More than our queue and any socket's queue (`max_dgram_qlen`) hold. A sender that blocked would never return: nothing reads.
    let sent = 5000;
    for _ in 0..sent {
        journal.send(Record::new(Priority::Info, "one of many"));
    }

    // The journal is read again. The lost entries are reported without another entry, and the counts are complete.
    let (mut received, mut lost) = (0, 0);
    while received + lost < sent {
        let fields = receive(&socket);
        match fields["MESSAGE"].as_str() {
            "one of many" => received += 1,
            message => {
                assert_eq!(fields["MESSAGE_ID"], RECORDS_LOST);
                let count = message.split_once(" journal entries were dropped");
                lost += count.unwrap().0.parse::<usize>().unwrap();
            }
        }
    }
    let counts = format!("{received} and {lost}");
    assert!(received >= QUEUE_LENGTH && lost > 0, "{counts}");
    journal.send(Record::new(Priority::Info, "once more"));
    assert_eq!(receive(&socket)["MESSAGE"], "once more");

    // Blocked again at the end: closing waits for the time limit, and not for a reader.
    for _ in 0..sent {
        journal.send(Record::new(Priority::Info, "one of many"));
    }
    let limit = Duration::from_millis(100);
    let earliest = Instant::now() + limit;
    assert!(!journal.close(limit));
    assert!(Instant::now() >= earliest);
}

#[test]
fn closing_writes_what_is_queued_and_reports_the_last_loss() {
    let (queue, records) = sync_channel(3);
    let [one, two] = ["one", "two"].map(|text| Record::new(Priority::Info, text));
    for queued in [Some(&one), Some(&two), None] {
        queue.send(queued.cloned().map(Box::new)).unwrap();
    }
    drop(queue);
    let mut written = Vec::new();
    let write = |record: &Record| written.push(record.clone());
    drain(&records, &AtomicU64::new(7), write);
    assert_eq!(written, [one, two, Record::lost(7)]);
}

#[test]
fn a_loss_is_reported_as_soon_as_the_queue_is_empty() {
    let (queue, records) = sync_channel(2);
    let lost = AtomicU64::new(3);
    let before = Record::new(Priority::Info, "before");
    queue.send(Some(Box::new(before.clone()))).unwrap();
    let (reported, written) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let write = move |record: &Record| reported.send(record.clone()).unwrap();
        let lost = &lost;
        scope.spawn(move || drain(&records, lost, write));
        assert_eq!(written.recv_timeout(SOON).unwrap(), before);
        assert_eq!(written.recv_timeout(SOON).unwrap(), Record::lost(3));
        // Lost when the queue was full, and counted after it was empty again.
        lost.store(2, std::sync::atomic::Ordering::Relaxed);
        queue.send(None).unwrap();
        assert_eq!(written.recv_timeout(SOON).unwrap(), Record::lost(2));
        drop(queue);
    });
}

#[test]
fn entries_below_the_level_are_not_written_and_the_level_can_be_changed() {
    let Some((socket, journal)) = own_journal() else {
        return;
    };
    use LogLevel::{Debug, Error, Info, Warn};
    for (level, count) in [(Error, 1), (Warn, 2), (Info, 4), (Debug, 5)] {
        journal.set_level(level);
        for priority in PRIORITIES {
            journal.send(Record::new(priority, "sent"));
        }
        // The level of an entry is checked when it is sent.
        journal.set_level(Error);
        journal.send(Record::new(Priority::Error, "the end"));
        for priority in &["3", "4", "5", "6", "7"][..count] {
            assert_eq!(receive(&socket)["PRIORITY"], *priority, "{level:?}");
        }
        assert_eq!(receive(&socket)["MESSAGE"], "the end");
    }
}

#[test]
fn a_replaced_socket_is_found() {
    let Some((socket, journal)) = own_journal() else {
        return;
    };
    journal.send(Record::new(Priority::Info, "one"));
    assert_eq!(receive(&socket)["MESSAGE"], "one");
    drop(socket);
    std::fs::remove_file(JOURNAL_SOCKET).unwrap();
    let socket = bind();
    journal.send(Record::new(Priority::Info, "two"));
    assert_eq!(receive(&socket)["MESSAGE"], "two");
}

/// What `full_record` is with a priority for systemd.
const PREFIXED: &str = "<5>notice: moved\\nto \\x1b[31mhv-b [moved]\n<5>    fix: nothing to do\n";

#[test]
fn text_is_one_line_and_an_indented_fix() {
    assert_eq!(full_record().text(true), PREFIXED);
    assert_eq!(full_record().text(false), PREFIXED.replace("<5>", ""));
    let bare = Record::new(Priority::Error, "broken");
    assert_eq!(bare.text(true), "<3>error: broken\n");
}

#[test]
fn without_a_journal_the_records_go_to_stderr_with_priorities() {
    match own_mounts() {
        Role::Child => {
            run(&["mount", "-t", "tmpfs", "none", "/run"]);
            let journal = Journal::new(Sink::Journal, LogLevel::Info);
            journal.send(full_record());
            assert!(journal.close(SOON));
        }
        Role::Parent(output) => {
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{errors}");
            let warning = "<4>warning: failed to connect to the journal";
            assert!(errors.contains(warning), "{errors}");
            assert!(errors.contains(PREFIXED), "{errors}");
        }
        Role::Skipped => {}
    }
}

#[test]
fn debug_events_of_our_own_reach_the_journal_and_those_of_libraries_nothing() {
    match own_mounts() {
        Role::Child => {
            let socket = listen();
            let journal = open(&socket);
            crate::report::logging::debug_to_journal(&journal, LogLevel::Info);
            tracing::debug!("an event below the level");
            crate::report::logging::debug_to_journal(&journal, LogLevel::Debug);
            tracing::debug!(target: "hyper", "an event of a library");
            tracing::debug!(nic = 2, "an event of our own");
            let fields = receive(&socket);
            let is_own = fields["MESSAGE"].ends_with(": an event of our own nic=2");
            assert!(is_own, "{fields:?}");
            assert_eq!(fields["PRIORITY"], "7");
            journal.send(Record::new(Priority::Error, "an entry"));
            assert_eq!(receive(&socket)["MESSAGE"], "an entry");
            assert!(journal.close(SOON));
        }
        Role::Parent(output) => {
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{errors}");
            assert!(!errors.contains("event"), "{errors}");
        }
        Role::Skipped => {}
    }
}
