// SPDX-License-Identifier: Apache-2.0
//! Tests of the journal against real datagram sockets.

use super::*;
use crate::report::sink::JOURNAL_SOCKET;
use crate::testing::{Role, own_mounts, own_process, run};
use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
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

/// The next record, past the empty datagram that the library sends to see whether anybody listens.
fn receive(socket: &UnixDatagram) -> Fields {
    let mut buffer = vec![0; 65536];
    loop {
        let length = socket.recv(&mut buffer).unwrap();
        if length > 0 {
            return parse(&buffer[..length]);
        }
    }
}

/// The native protocol: `NAME=value\n`, or `NAME\n`, the length in 64 bits, little endian, the value and `\n`.
fn parse(mut bytes: &[u8]) -> Fields {
    let mut fields = Fields::new();
    while !bytes.is_empty() {
        let end = bytes.iter().position(|&byte| byte == b'\n').unwrap();
        let line = std::str::from_utf8(&bytes[..end]).unwrap();
        bytes = &bytes[end + 1..];
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
                let value = String::from_utf8(bytes[8..8 + length].to_vec()).unwrap();
                assert_eq!(bytes[8 + length], b'\n');
                bytes = &bytes[8 + length + 1..];
                (line, value)
            }
        };
        assert_eq!(fields.insert(name.to_owned(), value), None, "{name} twice");
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
        host_old: Some("hv-a".into()),
        zone: Some("zone-b".into()),
        trigger: Some("link".into()),
        latency_ms: Some(42),
        remedy: Some("nothing to do".into()),
    }
}

#[test]
fn a_record_arrives_with_exactly_its_fields() {
    if !own_mounts("report::journal::tests::a_record_arrives_with_exactly_its_fields").is_child() {
        return;
    }
    let socket = listen();
    let (journal, trouble) = Journal::start(Sink::Journal);
    assert_eq!(trouble, None);
    // What tracing-journald adds to every record; line numbers may change.
    let own = |mut fields: Fields| {
        assert_eq!(
            fields.remove("TARGET").unwrap(),
            "harvester_node_agent::report::journal"
        );
        assert!(fields.remove("CODE_FILE").is_some() && fields.remove("CODE_LINE").is_some());
        assert_eq!(
            fields.remove("SYSLOG_IDENTIFIER").unwrap(),
            "harvester-node-agent"
        );
        fields
    };
    let fields = |pairs: &[(&str, &str)]| -> Fields {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    };

    journal.send(full_record());
    assert_eq!(
        own(receive(&socket)),
        fields(&[
            ("PRIORITY", "5"),
            ("MESSAGE", "moved\\nto \\x1b[31mhv-b"),
            ("MESSAGE_ID", "0123456789abcdef0123456789abcdef"),
            ("HNA_FINDING", "moved"),
            ("HNA_VM", "default/worker-1"),
            ("HNA_HOST", "hv-b"),
            ("HNA_HOST_OLD", "hv-a"),
            ("HNA_ZONE", "zone-b"),
            ("HNA_TRIGGER", "link"),
            ("HNA_LATENCY_MS", "42"),
            ("HNA_REMEDY", "nothing to do"),
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
            own(receive(&socket)),
            fields(&[("PRIORITY", number), ("MESSAGE", "bare")])
        );
    }
    assert_eq!(journal.lost(), 0);
    assert!(journal.close(Duration::from_secs(5)));
}

#[test]
fn a_journal_that_nobody_reads_never_blocks_the_sender_and_the_loss_is_told() {
    if !own_mounts("report::journal::tests::a_journal_that_nobody_reads_never_blocks_the_sender_and_the_loss_is_told").is_child() {
        return;
    }
    let socket = listen();
    let (journal, _) = Journal::start(Sink::Journal);
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
    let lost = journal.lost();
    assert!(lost > 0);

    // The journal comes back. The queue may have overflowed more than once, each time with a record of its own; what was
    // lost last is told after the next record that fits. Nothing is missing from the count.
    let told = |fields: &Fields| -> u64 {
        assert_eq!(fields["MESSAGE_ID"], RECORDS_LOST);
        let message = &fields["MESSAGE"];
        message.split(' ').next().unwrap().parse().unwrap()
    };
    let (mut received, mut told_before) = (0, 0);
    while received < sent - lost {
        let fields = receive(&socket);
        if fields["MESSAGE"] == "one of many" {
            received += 1;
        } else {
            told_before += told(&fields);
        }
    }
    journal.send(Record::new(Priority::Info, "back again"));
    let mut fields = receive(&socket);
    if fields.contains_key("MESSAGE_ID") {
        told_before += told(&fields);
        fields = receive(&socket);
    }
    assert_eq!(fields["MESSAGE"], "back again");
    let told_last = told(&receive(&socket));
    assert!(told_last > 0);
    assert_eq!(told_before + told_last, lost);
    journal.send(Record::new(Priority::Info, "once more"));
    assert_eq!(receive(&socket)["MESSAGE"], "once more");

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
    drain(&records, &lost, |record| {
        written.borrow_mut().push(record.clone());
    });
    let expected = [
        Record::new(Priority::Info, "one"),
        Record::new(Priority::Info, "two"),
        Record::lost(7),
    ];
    assert_eq!(written.into_inner(), expected);
}

#[test]
fn an_idle_journal_sleeps() {
    if !own_process("report::journal::tests::an_idle_journal_sleeps").is_child() {
        return;
    }
    let (journal, _) = Journal::start(Sink::Stderr(StderrStyle::Plain));
    let switches = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let writer = threads
            .map(|thread| thread.unwrap().path())
            .find(|path| std::fs::read_to_string(path.join("comm")).unwrap() == "journal-writer\n")
            .expect("no thread is called journal-writer");
        let status = std::fs::read_to_string(writer.join("status")).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("voluntary_ctxt_switches"))
            .unwrap();
        line.split_whitespace()
            .last()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    // A channel's timeout instead of a sleep; nobody ever sends.
    let (_sender, never) = sync_channel::<()>(0);
    let wait = |millis| {
        never
            .recv_timeout(Duration::from_millis(millis))
            .unwrap_err()
    };
    wait(100);
    let before = switches();
    wait(500);
    assert_eq!(switches(), before);
    journal.send(Record::new(Priority::Info, "hello"));
    wait(100);
    assert!(switches() > before);
    assert!(journal.close(Duration::from_secs(5)));
}

#[test]
fn text_for_people_is_one_line_and_an_indented_remedy() {
    let plain = "notice: moved\\nto \\x1b[31mhv-b [moved]\n    fix: nothing to do\n";
    assert_eq!(render(StderrStyle::Plain, &full_record()), plain);
    assert_eq!(render(StderrStyle::Coloured, &full_record()), plain);
    let prefixed = "<5>notice: moved\\nto \\x1b[31mhv-b [moved]\n<5>    fix: nothing to do\n";
    assert_eq!(render(StderrStyle::Prefixed, &full_record()), prefixed);
    let bare = Record::new(Priority::Error, "broken");
    assert_eq!(
        render(StderrStyle::Coloured, &bare),
        "\x1b[1;31merror\x1b[0m: broken\n"
    );
    assert_eq!(render(StderrStyle::Prefixed, &bare), "<3>error: broken\n");
}

#[test]
fn without_a_journal_the_records_go_to_stderr_with_priorities() {
    let test = "report::journal::tests::without_a_journal_the_records_go_to_stderr_with_priorities";
    match own_mounts(test) {
        Role::Child => {
            run(&["mount", "-t", "tmpfs", "none", "/run"]);
            let (journal, _) = Journal::start(Sink::Journal);
            journal.send(full_record());
            assert!(journal.close(Duration::from_secs(5)));
        }
        Role::Parent(output) => {
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{errors}");
            let warning = "<4>warning: failed to reach the journal";
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
            let (journal, _) = Journal::start(Sink::Journal);
            journal.send(Record::new(Priority::Error, "a record"));
            assert_eq!(receive(&socket)["MESSAGE"], "a record");
            tracing::error!("an event of our own");
            tracing::error!(target: "hyper", "an event of a library");
            // The writer's subscriber is made for its thread, so what a library there logs is seen by nobody.
            let (enabled, filtered) = (filter(), "hyper");
            assert!(!enabled.would_enable(filtered, &Level::ERROR));
            assert!(!enabled.would_enable("harvester_node_agent::agent", &Level::ERROR));
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
