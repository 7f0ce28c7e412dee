// SPDX-License-Identifier: Apache-2.0
use std::io::{Read as _, Write as _};
use std::time::Instant;

use harvester_lab::downward_metrics::{Behaviour, DownwardMetrics, PACE, document};
use harvester_lab::guest::GuestTree;
use harvester_lab::world::SOON;

use nix::sys::epoll::EpollFlags;

use super::*;
use crate::sys::epoll::EdgeTriggered;
use crate::testing::{NO_ANSWER, NOT_SERVED, TIMEOUTS};
use crate::wire::virtio::port::{self, READ_MAX};

fn guest() -> (tempfile::TempDir, GuestTree, Root) {
    let dir = tempfile::tempdir().unwrap();
    let tree = GuestTree::new(dir.path());
    let root = Root::new(dir.path());
    (dir, tree, root)
}

fn wall() -> i64 {
    time::UtcDateTime::now().unix_timestamp()
}

/// Provides a port without delays.
fn offer(tree: &GuestTree, behaviour: Behaviour) -> DownwardMetrics {
    DownwardMetrics::offer_paced(tree, behaviour, Duration::ZERO)
}

/// Returns the metrics, or the error; none if there is no port.
async fn asked_within(
    root: &Root,
    wall: i64,
    timeouts: ReadTimeouts,
) -> Result<HostMetrics, Option<String>> {
    match ask(root, wall, timeouts).await {
        Fact::Known(metrics) => Ok(metrics),
        Fact::Absent => Err(None),
        Fact::Failed(why) => Err(Some(why.text)),
    }
}

async fn asked(root: &Root) -> Result<HostMetrics, Option<String>> {
    asked_within(root, wall(), TIMEOUTS).await
}

#[tokio::test]
async fn the_host_names_itself_and_the_port_is_free_again_for_others() {
    let (_dir, tree, root) = guest();
    let device = DownwardMetrics::offer(&tree, Behaviour::serve("hv-a"));
    let (begun, before) = (Instant::now(), wall());
    let found = asked(&root).await.unwrap();
    assert_eq!(found.host.as_str(), "hv-a");
    assert!((before..=wall()).contains(&found.time.unwrap()));
    device.set_host("hv-b");
    // The host accepts the second request one second later, and the agent waits for it.
    let found = asked(&root).await.unwrap();
    assert_eq!(found.host.as_str(), "hv-b");
    assert!(Instant::now() >= begun + PACE);
    assert_eq!(
        device.requests(),
        2,
        "an answer that can be believed needs one request"
    );
}

#[tokio::test]
async fn an_answer_may_come_late_and_in_pieces_of_any_size() {
    let (_dir, tree, root) = guest();
    let device = offer(&tree, Behaviour::serve("hv-a"));
    let host = "hv-a".to_owned();
    let delay = Duration::from_millis(100);
    device.behave(Behaviour::Slow {
        host: host.clone(),
        delay,
    });
    assert_eq!(asked(&root).await.unwrap().host.as_str(), "hv-a");
    for piece in [1, 7, 4096] {
        device.behave(Behaviour::Split {
            host: host.clone(),
            piece,
        });
        assert_eq!(asked(&root).await.unwrap().host.as_str(), "hv-a", "{piece}");
    }
    // Longer than the maximum of one read from the kernel's driver.
    let padding = format!("<!-- {} -->", " ".repeat(10_000));
    let long = format!("{}{padding}\n\n", document("hv-long", wall()));
    device.behave(Behaviour::Say(long.into_bytes()));
    assert_eq!(asked(&root).await.unwrap().host.as_str(), "hv-long");
    assert_eq!(device.requests(), 5);
}

#[tokio::test]
async fn an_answer_that_an_earlier_asker_left_is_not_believed() {
    let (_dir, tree, root) = guest();
    let (host, old_host) = ("hv-new".to_owned(), "hv-old".to_owned());
    let device = offer(
        &tree,
        Behaviour::Stale {
            host,
            old_host,
            age: 3600,
        },
    );
    let patient = ReadTimeouts {
        again: SOON,
        ..TIMEOUTS
    };
    let found = asked_within(&root, wall(), patient).await.unwrap();
    assert_eq!(found.host.as_str(), "hv-new");
    assert_eq!(device.requests(), 1, "our own answer stood behind it");
}

#[tokio::test]
async fn what_lies_in_the_port_before_the_request_is_thrown_away_even_a_half() {
    let (_dir, tree, root) = guest();
    for left in [
        format!("x{}\n\n", document("hv-old", wall())),
        // The part of a response that its reader did not read, whose end arrives only now.
        document("hv-old", wall()).split_off(700),
    ] {
        let device = offer(&tree, Behaviour::Say(left.clone().into_bytes()));
        let reader = root.open_device(port::find(&root, PORT).unwrap()).unwrap();
        (&reader).write_all(REQUEST).unwrap();
        device.asked(1).await;
        // Another reader closes the port after it has read one byte of its response.
        let reader = EdgeTriggered::of(reader, EpollFlags::EPOLLIN).unwrap();
        while (&reader.file).read(&mut [0]).ok() != Some(1) {
            reader.next().await.unwrap();
        }
        drop(reader);
        let end = if left.ends_with("\n\n") { "" } else { "\n\n" };
        let own = format!("{end}{}\n\n", document("hv-new", wall()));
        device.behave(Behaviour::Say(own.into_bytes()));
        let found = asked(&root).await.unwrap();
        assert_eq!(found.host.as_str(), "hv-new", "{left}");
        assert_eq!(device.requests(), 2);
    }
}

#[tokio::test]
async fn a_clock_that_differs_for_good_is_said_with_the_difference() {
    let (_dir, tree, root) = guest();
    let (host, clock) = ("hv-a".to_owned(), -3600);
    let device = offer(&tree, Behaviour::Serve { host, clock });
    let now = wall();
    let line = asked_within(&root, now, TIMEOUTS).await.unwrap_err();
    let line = line.unwrap();
    // The host's clock may have gone on since the request.
    let is_said = (now - 3600..=wall() - 3600)
        .any(|time| line.contains(&format!("it is {} s older", now - time)));
    assert!(is_said, "{line}");
    assert_eq!(device.requests(), 1);
}

#[tokio::test]
async fn a_document_may_be_two_seconds_old_and_no_more() {
    let judged = |time: i64| judge(document("hv-a", time).as_bytes(), 1000);
    for (time, believed) in [(997, false), (998, true), (1000, true), (5000, true)] {
        assert_eq!(judged(time).is_ok(), believed, "{time}");
    }
    let timeless = document("hv-a", 1).replace("<name>Time</name>", "<name>Other</name>");
    assert_eq!(judge(timeless.as_bytes(), 1000).unwrap().time, None);
    judge(document("hv-a", i64::MAX).as_bytes(), i64::MIN).unwrap();
}

#[tokio::test]
async fn everything_that_is_no_answer_is_refused_in_one_line_that_names_the_port() {
    let say = |bytes: &[u8]| Behaviour::Say(bytes.to_vec());
    let host = || "hv-a\u{1b}[31m".to_owned();
    let serve = Behaviour::Serve {
        host: host(),
        clock: 0,
    };
    let slow = Behaviour::Slow {
        host: "a".to_owned(),
        delay: SOON,
    };
    let silent = "no response from the host";
    for (behaviour, timeouts, part) in [
        (Behaviour::Unserved, NOT_SERVED, "nothing on the host reads"),
        (Behaviour::Never, NO_ANSWER, silent),
        (Behaviour::Invalid, TIMEOUTS, "INVALID REQUEST"),
        (Behaviour::Empty, TIMEOUTS, "no metrics at the moment"),
        (Behaviour::Endless, TIMEOUTS, "65536 bytes"),
        (Behaviour::EntityBomb, TIMEOUTS, "document type"),
        (Behaviour::Dtd, TIMEOUTS, "document type"),
        (serve, TIMEOUTS, "u{1b}"),
        (slow, NO_ANSWER, silent),
        (say(b"\xff\xfe\n\n"), TIMEOUTS, "UTF-8"),
        (say(b"<metrics>\x1b[2J\n\n"), TIMEOUTS, "not XML"),
        (say(b"no end"), NO_ANSWER, silent),
    ] {
        let (_dir, tree, root) = guest();
        let device = offer(&tree, behaviour.clone());
        let line = asked_within(&root, wall(), timeouts).await.unwrap_err();
        let line = line.unwrap();
        assert!(
            line.contains(part) && line.contains(PORT),
            "{behaviour:?}: {line}"
        );
        assert!(
            line.len() < 400 && !line.chars().any(char::is_control),
            "{line:?}"
        );
        let requests = usize::from(!matches!(behaviour, Behaviour::Unserved));
        device.asked(requests).await;
        assert_eq!(device.requests(), requests, "{behaviour:?}");
    }
}

#[tokio::test]
async fn a_host_that_comes_while_we_wait_is_asked() {
    let (_dir, tree, root) = guest();
    let device = offer(&tree, Behaviour::Unserved);
    let (found, ()) = tokio::join!(asked(&root), async {
        device.behave(Behaviour::serve("hv-a"));
    });
    assert_eq!(found.unwrap().host.as_str(), "hv-a");
}

#[tokio::test]
async fn a_host_that_goes_away_is_not_waited_for() {
    let (_dir, tree, root) = guest();
    let device = offer(&tree, Behaviour::Never);
    let (found, ()) = tokio::join!(asked(&root), async {
        device.asked(1).await;
        drop(device);
    });
    let line = found.unwrap_err().unwrap();
    assert!(
        line.contains(PORT) && (line.contains("closed") || line.contains("does not provide")),
        "{line}"
    );
    assert_eq!(asked(&root).await, Err(None));
}

#[test]
fn a_port_that_another_program_holds_is_said_as_such() {
    let line = Unavailable::from(PortError::Busy).text;
    assert!(
        line.contains(PORT) && line.contains("another program"),
        "{line}"
    );
}

/// Returns the messages that these bytes complete.
fn taken(answer: &mut MetricsAnswer, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut bytes = bytes.iter().copied();
    std::iter::from_fn(|| answer.take(&mut bytes).unwrap()).collect()
}

#[test]
fn messages_are_cut_alike_wherever_reads_split_them() {
    let first = document("hv-a", 1);
    let second = document("hv-b", 2);
    let stream = format!("{first}\n\n{second}\n\n").into_bytes();
    let cut_at = |sizes: &mut dyn Iterator<Item = usize>| {
        let mut answer = MetricsAnswer::default();
        let (mut rest, mut messages) = (stream.as_slice(), Vec::new());
        while !rest.is_empty() {
            let size = sizes.next().unwrap_or(rest.len()).min(rest.len());
            messages.extend(taken(&mut answer, &rest[..size]));
            rest = &rest[size..];
        }
        messages
    };
    let whole = [first.into_bytes(), second.into_bytes()];
    for at in 0..=stream.len() {
        assert_eq!(cut_at(&mut std::iter::once(at)), whole, "split at {at}");
    }
    for size in [1, 2, 3, 512, READ_MAX] {
        assert_eq!(
            cut_at(&mut std::iter::repeat(size)),
            whole,
            "pieces of {size}"
        );
    }
}

#[test]
fn no_more_is_kept_than_any_answer_has_not_even_in_many_messages() {
    for piece in [&b"xxxxxxxx"[..], b"xxxxxx\n\n", b"\n\n\n\n\n\n\n\n"] {
        let mut answer = MetricsAnswer::default();
        let mut bytes = piece.iter().copied().cycle();
        let mut messages = 0;
        while let Ok(Some(_)) = answer.take(&mut bytes) {
            messages += 1;
        }
        assert_eq!(messages, if piece == b"xxxxxx\n\n" { 8192 } else { 0 });
        assert_eq!(answer.received, ANSWER_MAX + 1);
        assert!(answer.message.len() <= ANSWER_MAX);
    }
}

#[test]
fn an_error_of_the_kernel_names_the_port_once() {
    let error = PortError::from(std::io::Error::from_raw_os_error(
        nix::errno::Errno::ENOSPC as i32,
    ));
    let text = "port `org.github.vhostmd.1`: No space left on device (os error 28)";
    assert_eq!(Unavailable::from(error).text, text);
}
