// SPDX-License-Identifier: Apache-2.0
//! Tests of the journal against real datagram sockets.

use super::writer::drain;
use super::*;
use crate::report::message_id::RECORDS_LOST;
use crate::report::sink::{JOURNAL_SOCKET, StderrStyle};
use crate::testing::{Role, own_mounts, run};
use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

type Fields = BTreeMap<String, String>;

/// Puts a journald that nobody reads from in place of the machine's, for this process only.
fn listen() -> UnixDatagram {
    run(&["mount", "-t", "tmpfs", "none", "/run"]);
    std::fs::create_dir_all("/run/systemd/journal").unwrap();
    let socket = UnixDatagram::bind(JOURNAL_SOCKET).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    socket
}

/// The next record.
fn receive(socket: &UnixDatagram) -> Fields {
    try_receive(socket).unwrap()
}

/// The next record, if it comes in the time that the socket waits.
fn try_receive(socket: &UnixDatagram) -> Option<Fields> {
    let mut buffer = vec![0; 65536];
    let length = socket.recv(&mut buffer).ok()?;
    let text = std::str::from_utf8(&buffer[..length]).unwrap();
    assert!(text.ends_with('\n'), "{text:?}");
    let mut fields = Fields::new();
    for line in text.lines() {
        let (name, value) = line.split_once('=').unwrap();
        let earlier = fields.insert(name.to_owned(), value.to_owned());
        assert_eq!(earlier, None, "{name} twice");
    }
    Some(fields)
}

fn has_writer(journal: &Journal) -> bool {
    journal.0.lock().unwrap().writer.is_some()
}

/// A thread was needed, and has written all.
fn is_idle(journal: &Journal) -> bool {
    let outlet = journal.0.lock().unwrap();
    outlet.writer.as_ref().is_some_and(Writer::is_idle)
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
        impact: Some("none".into()),
        fix: Some("nothing to do".into()),
    }
}

#[test]
fn a_record_arrives_with_exactly_its_fields() {
    if !own_mounts("report::journal::tests::a_record_arrives_with_exactly_its_fields").is_child() {
        return;
    }
    let socket = listen();
    let journal = Journal::new(Sink::Journal);
    let fields = |pairs: &[(&str, &str)]| -> Fields {
        let own = ("SYSLOG_IDENTIFIER", "harvester-node-agent");
        pairs
            .iter()
            .chain([&own])
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    };

    journal.send(full_record());
    assert_eq!(
        receive(&socket),
        fields(&[
            ("PRIORITY", "5"),
            ("MESSAGE", "moved\\nto \\x1b[31mhv-b"),
            ("MESSAGE_ID", "0123456789abcdef0123456789abcdef"),
            ("HNA_FINDING", "moved"),
            ("HNA_VM", "default/worker-1"),
            ("HNA_HOST", "hv-b"),
            ("HNA_PREVIOUS_HOST", "hv-a"),
            ("HNA_ZONE", "zone-b"),
            ("HNA_TRIGGER", "link"),
            ("HNA_LATENCY_MS", "42"),
            ("HNA_IMPACT", "none"),
            ("HNA_FIX", "nothing to do"),
        ])
    );

    for (priority, number) in [
        (Priority::Error, "3"),
        (Priority::Warning, "4"),
        (Priority::Notice, "5"),
        (Priority::Info, "6"),
        (Priority::Debug, "7"),
    ] {
        journal.send(Record {
            zone: Some(String::new()),
            ..Record::new(priority, "bare")
        });
        assert_eq!(
            receive(&socket),
            fields(&[("PRIORITY", number), ("MESSAGE", "bare")])
        );
    }
    assert!(journal.close(Duration::from_secs(5)));
}

#[test]
fn a_long_message_is_shortened_and_kept_whole_in_a_field() {
    let text = format!("several VMs match this node: {}", "default/vm ".repeat(20));
    let record = Record::new(Priority::Error, text.clone());
    let native = String::from_utf8(record.to_native()).unwrap();
    let field = |name: &str| native.lines().find_map(|line| line.strip_prefix(name));
    let message = field("MESSAGE=").unwrap();
    assert_eq!(message.chars().count(), MESSAGE_LIMIT);
    assert!(message.ends_with('…'), "{message}");
    assert_eq!(field("HNA_DETAIL="), Some(text.as_str()));
    let lines = record.to_text(StderrStyle::Plain);
    assert_eq!(lines, format!("error: {message}\n    detail: {text}\n"));
    let short = Record::new(Priority::Error, "x".repeat(MESSAGE_LIMIT));
    assert!(
        !String::from_utf8(short.to_native())
            .unwrap()
            .contains("HNA_DETAIL")
    );
}

#[test]
fn a_journal_that_nobody_reads_never_blocks_the_sender_and_the_loss_is_told() {
    if !own_mounts("report::journal::tests::a_journal_that_nobody_reads_never_blocks_the_sender_and_the_loss_is_told").is_child() {
        return;
    }
    let socket = listen();
    let journal = Journal::new(Sink::Journal);
    // More than the queue and any socket's queue (`max_dgram_qlen`) hold.
    let sent = 5000;
    let started = Instant::now();
    for _ in 0..sent {
        journal.send(Record::new(Priority::Info, "one of many"));
    }
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );

    // The journal comes back. The queue may have overflowed more than once, each time with a record of its own; what was
    // lost last is told after the next record that fits. Nothing is missing from the count.
    let told = |fields: &Fields| -> u64 {
        assert_eq!(fields["MESSAGE_ID"], RECORDS_LOST);
        let message = &fields["MESSAGE"];
        message.split(' ').next().unwrap().parse().unwrap()
    };
    let (mut received, mut lost) = (0, 0);
    let mut has_asked = false;
    socket
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while received + lost < sent {
        assert!(Instant::now() < deadline, "{received} and {lost}");
        let Some(fields) = try_receive(&socket) else {
            // Whatever waited is read: the rest was lost, and the next record tells it.
            if !has_asked && is_idle(&journal) {
                has_asked = true;
                journal.send(Record::new(Priority::Info, "back again"));
            }
            continue;
        };
        match fields["MESSAGE"].as_str() {
            "one of many" => received += 1,
            "back again" => assert!(has_asked),
            _ => lost += told(&fields),
        }
    }
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    assert_eq!(received + lost, sent);
    assert!(lost > 0 && has_asked);
    journal.send(Record::new(Priority::Info, "once more"));
    while receive(&socket)["MESSAGE"] != "once more" {}

    // Stuck again at the end: closing waits for the time given and no longer.
    for _ in 0..sent {
        journal.send(Record::new(Priority::Info, "one of many"));
    }
    let started = Instant::now();
    assert!(!journal.close(Duration::from_millis(100)));
    let waited = started.elapsed();
    assert!(
        waited >= Duration::from_millis(100) && waited < Duration::from_millis(500),
        "{waited:?}"
    );
}

#[test]
fn closing_writes_what_is_queued_and_tells_of_the_last_loss() {
    let (queue, records) = sync_channel(2);
    let lost = AtomicU64::new(7);
    for text in ["one", "two"] {
        queue
            .send(Queued {
                record: Record::new(Priority::Info, text),
                lost_before: 0,
            })
            .unwrap();
    }
    drop(queue);
    let written = std::cell::RefCell::new(Vec::new());
    let unwritten = AtomicUsize::new(2);
    drain(&records, &lost, &unwritten, |record| {
        written.borrow_mut().push(record.clone());
    });
    let expected = [
        Record::new(Priority::Info, "one"),
        Record::new(Priority::Info, "two"),
        Record::lost(7),
    ];
    assert_eq!(written.into_inner(), expected);
    assert_eq!(unwritten.into_inner(), 0);
}

#[test]
fn a_journal_that_keeps_up_costs_no_thread_and_a_replaced_socket_is_found() {
    let test = "report::journal::tests::a_journal_that_keeps_up_costs_no_thread_and_a_replaced_socket_is_found";
    if !own_mounts(test).is_child() {
        return;
    }
    let socket = listen();
    let journal = Journal::new(Sink::Journal);
    journal.send(Record::new(Priority::Info, "one"));
    assert_eq!(receive(&socket)["MESSAGE"], "one");
    drop(socket);
    std::fs::remove_file(JOURNAL_SOCKET).unwrap();
    let socket = UnixDatagram::bind(JOURNAL_SOCKET).unwrap();
    journal.send(Record::new(Priority::Info, "two"));
    assert_eq!(receive(&socket)["MESSAGE"], "two");
    assert!(!has_writer(&journal));
}

#[test]
fn records_do_not_overtake_those_that_wait() {
    if !own_mounts("report::journal::tests::records_do_not_overtake_those_that_wait").is_child() {
        return;
    }
    let socket = listen();
    let journal = Journal::new(Sink::Journal);
    let mut sent = 0;
    let mut send = |journal: &Journal| {
        journal.send(Record::new(Priority::Info, sent.to_string()));
        sent += 1;
    };
    while !has_writer(&journal) {
        send(&journal);
    }
    for expected in 0..200 {
        send(&journal);
        assert_eq!(receive(&socket)["MESSAGE"], expected.to_string());
    }
}

#[test]
fn text_is_one_line_and_an_indented_fix() {
    let plain = "notice: moved\\nto \\x1b[31mhv-b [moved]\n    fix: nothing to do\n";
    assert_eq!(full_record().to_text(StderrStyle::Plain), plain);
    assert_eq!(full_record().to_text(StderrStyle::Coloured), plain);
    let prefixed = "<5>notice: moved\\nto \\x1b[31mhv-b [moved]\n<5>    fix: nothing to do\n";
    assert_eq!(full_record().to_text(StderrStyle::Prefixed), prefixed);
    let bare = Record::new(Priority::Error, "broken");
    assert_eq!(
        bare.to_text(StderrStyle::Coloured),
        "\x1b[1;31merror\x1b[0m: broken\n"
    );
    assert_eq!(bare.to_text(StderrStyle::Prefixed), "<3>error: broken\n");
}

#[test]
fn without_a_journal_the_records_go_to_stderr_with_priorities() {
    let test = "report::journal::tests::without_a_journal_the_records_go_to_stderr_with_priorities";
    match own_mounts(test) {
        Role::Child => {
            run(&["mount", "-t", "tmpfs", "none", "/run"]);
            let journal = Journal::new(Sink::Journal);
            journal.send(full_record());
            assert!(journal.close(Duration::from_secs(5)));
        }
        Role::Parent(output) => {
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{errors}");
            let warning = "<4>warning: failed to connect to the journal";
            let record = "<5>notice: moved\\nto \\x1b[31mhv-b [moved]\n<5>    fix: nothing to do\n";
            assert!(
                errors.contains(warning) && errors.contains(record),
                "{errors}"
            );
        }
        Role::Skipped => {}
    }
}

#[test]
fn only_records_reach_the_journal_and_they_reach_nothing_else() {
    let test = "report::journal::tests::only_records_reach_the_journal_and_they_reach_nothing_else";
    match own_mounts(test) {
        Role::Child => {
            let socket = listen();
            crate::logging::init(tracing::level_filters::LevelFilter::TRACE);
            let journal = Journal::new(Sink::Journal);
            journal.send(Record::new(Priority::Error, "a record"));
            assert_eq!(receive(&socket)["MESSAGE"], "a record");
            tracing::error!("an event of our own");
            tracing::error!(target: "hyper", "an event of a library");
            journal.send(Record::new(Priority::Error, "another record"));
            assert_eq!(receive(&socket)["MESSAGE"], "another record");
            assert!(journal.close(Duration::from_secs(5)));
        }
        Role::Parent(output) => {
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{errors}");
            assert!(errors.contains("an event of our own"), "{errors}");
            assert!(
                !errors.contains("record") && !errors.contains("library"),
                "{errors}"
            );
        }
        Role::Skipped => {}
    }
}
