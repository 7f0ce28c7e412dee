// SPDX-License-Identifier: Apache-2.0
//! Tests of the channel on real file descriptors: a socket pair for data, a FIFO for hang-ups.

use super::*;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use harvester_lab::world::SOON;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use crate::triggers::Inbox;
use crate::triggers::testing::{output, probed};
use crate::wire::virtio::port::READ_MAX;

struct Talk {
    _dir: tempfile::TempDir,
    host: UnixStream,
    guest: Conversation<'static>,
    reasons: Inbox,
}

/// Starts the communication on a file, and returns the inbox of its reasons. What it borrows is never freed.
fn conversation(dir: &Path, file: File) -> (Conversation<'static>, Inbox) {
    let root = Box::leak(Box::new(Root::new(dir)));
    let (out, reasons) = output(&OperatorChannel(root.clone()));
    let port = Port::new(file).unwrap();
    let guest = Conversation::new(root, Box::leak(Box::new(out)), port);
    (guest, reasons)
}

/// Returns the state of the event source.
fn state(out: &Output) -> String {
    let sources = out.board.sources();
    sources["port"].detail.clone()
}

impl Talk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (host, guest) = UnixStream::pair().unwrap();
        host.set_nonblocking(true).unwrap();
        guest.set_nonblocking(true).unwrap();
        let file = File::from(OwnedFd::from(guest));
        let (guest, reasons) = conversation(dir.path(), file);
        Self {
            host,
            guest,
            reasons,
            _dir: dir,
        }
    }

    /// Runs the guest until it is stuck.
    fn work(&mut self) {
        while self.guest.step().unwrap() {}
    }

    /// Returns the reasons that were sent.
    fn fired(&mut self) -> Vec<Trigger> {
        std::iter::from_fn(|| self.reasons.try_recv().map(|(trigger, _)| trigger)).collect()
    }

    fn write_file(&self, path: &str, text: &str) {
        let path = self.guest.root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Returns all data that the guest has written.
    fn replies(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut buffer = [0; 65536];
        loop {
            match self.host.read(&mut buffer) {
                Ok(count) => all.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return all,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Returns the replies to these bytes, sent in chunks of a page.
    fn ask(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut replies = Vec::new();
        for piece in bytes.chunks(READ_MAX) {
            self.host.write_all(piece).unwrap();
            self.work();
            replies.extend(self.replies());
        }
        replies
    }

    fn ask_one(&mut self, command: &str) -> Value {
        let request = format!("{}\n", json!({"execute": command}));
        serde_json::from_slice(&self.ask(request.as_bytes())).unwrap()
    }
}

#[tokio::test]
async fn each_command_has_its_answer() {
    let mut talk = Talk::new();
    assert_eq!(talk.ask_one("guest-ping"), json!({"return": {}}));
    let info = talk.ask_one("guest-info");
    assert_eq!(info["return"]["version"], env!("CARGO_PKG_VERSION"));
    let commands = info["return"]["supported_commands"].as_array().unwrap();
    assert_eq!(commands.len(), Command::ALL.len());
    assert_eq!(talk.fired(), []);
    assert_eq!(state(talk.guest.out), format!("{NAME}: host connected"));
}

#[tokio::test]
async fn the_status_is_the_last_one_and_its_absence_is_an_error() {
    let mut talk = Talk::new();
    let refused = talk.ask_one("node-agent-status");
    assert_eq!(refused["error"]["class"], "GenericError");
    assert!(
        refused["error"]["desc"]
            .as_str()
            .unwrap()
            .contains("does not exist"),
        "{refused}"
    );
    talk.write_file(status_file::STATUS_FILE, "{\"trigger\": \"link\"}");
    assert_eq!(
        talk.ask_one("node-agent-status"),
        json!({"return": {"trigger": "link"}})
    );
    talk.write_file(status_file::STATUS_FILE, &"[".repeat(2 << 20));
    let refused = talk.ask_one("node-agent-status");
    assert!(refused["error"]["desc"].is_string(), "{refused}");
}

#[tokio::test]
async fn a_look_is_asked_for_once_and_confirmed() {
    let mut talk = Talk::new();
    assert_eq!(talk.ask_one("node-agent-resync"), json!({"return": {}}));
    assert_eq!(talk.fired(), [Trigger::Operator]);
    talk.ask(b"{\"execute\":\"node-agent-resync\",\"arguments\":{\"x\":1}}\n");
    assert_eq!(talk.fired(), []);
}

#[tokio::test]
async fn what_a_host_that_went_away_left_behind_is_done_and_not_answered() {
    let mut talk = Talk::new();
    talk.ask_one("guest-ping");
    talk.host
        .write_all(b"{\"execute\":\"node-agent-resync\"}\n")
        .unwrap();
    talk.guest.is_away = true;
    // It reads, executes the request, and drops the reply at the next step.
    assert!(talk.guest.step().unwrap());
    assert!(talk.guest.step().unwrap());
    assert_eq!(talk.fired(), [Trigger::Operator]);
    assert!(!talk.guest.output.is_empty());
    let _ = talk.guest.step().unwrap();
    assert!(talk.guest.output.is_empty());
    assert_eq!(talk.replies(), b"");
}

/// The kernel accepts the data immediately, and notifies of the connection later, in a work queue (`control_work_handler`).
#[tokio::test]
async fn what_a_host_says_while_it_comes_is_answered() {
    let mut talk = Talk::new();
    talk.guest.is_away = true;
    let reply = talk.ask(b"{\"execute\":\"guest-ping\"}\n");
    assert_eq!(reply, b"{\"return\":{}}\n");
}

#[tokio::test]
async fn hostile_input_costs_one_complaint_and_the_next_request_is_answered() {
    let ping = b"{\"execute\":\"guest-ping\",\"id\":5}\n";
    for hostile in [
        vec![b'x'; 1 << 20],
        b"{\"a\":".repeat(100_000),
        b"[".repeat(100_000),
        vec![0; 1 << 20],
        b"{\"execute\":\"\xf0\x28\x8c\x28\"}".to_vec(),
        b"\xc3".repeat(10_000),
        [b"{\"execute\":\"", &b"y".repeat(1 << 20)[..]].concat(),
    ] {
        let mut talk = Talk::new();
        let replies = [talk.ask(&hostile), talk.ask(b"\n")].concat();
        let text = String::from_utf8(replies).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let reply: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(reply["error"]["class"], "GenericError");
        assert_eq!(talk.ask(ping), b"{\"return\":{},\"id\":5}\n");
    }
}

#[tokio::test]
async fn ten_thousand_commands_without_a_reader_take_a_bounded_room_and_are_all_answered() {
    const COMMANDS: usize = 10_000;
    let mut talk = Talk::new();
    let all = b"{\"execute\":\"guest-ping\"}\n".repeat(COMMANDS);
    let mut rest = &all[..];
    let mut most = 0;
    // Nothing is read: until neither side can continue.
    loop {
        let written = match talk.host.write(rest) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        };
        rest = &rest[written..];
        talk.work();
        let kept = format!("{:?}", talk.guest.input).len()
            + talk.guest.received.len()
            + talk.guest.output.len();
        most = most.max(kept);
        if written == 0 {
            break;
        }
    }
    assert!(!rest.is_empty(), "the kernel took all of it");
    assert!(!talk.guest.output.is_empty(), "no reply waits for room");
    let mut replies = 0;
    loop {
        let read = talk.replies();
        replies += read.iter().filter(|byte| **byte == b'\n').count();
        if let Ok(count) = talk.host.write(rest) {
            rest = &rest[count..];
        }
        talk.work();
        if read.is_empty() && rest.is_empty() {
            break;
        }
    }
    replies += talk.replies().iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(replies, COMMANDS);
    assert!(most <= 2 * READ_MAX, "{most} bytes were kept");
}

#[tokio::test]
async fn a_hang_up_in_the_middle_of_a_command_and_the_return_cost_four_wake_ups_at_most() {
    const TIMES: u64 = 100;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
    let file = File::from(open(&path, flags, Mode::empty()).unwrap());
    let (mut guest, mut reasons) = conversation(dir.path(), file);
    let out = guest.out;
    // A separate task, which sleeps until the host causes an event.
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let wake_ups = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&wake_ups);
    let task = tokio::spawn(async move {
        let mut serving = Box::pin(async {
            tokio::select! {
                ended = guest.serve() => panic!("{ended:?}"),
                _ = &mut stopped => guest,
            }
        });
        std::future::poll_fn(|context| {
            counted.fetch_add(1, Ordering::Relaxed);
            serving.as_mut().poll(context)
        })
        .await
    });
    let scene = async {
        for _ in 0..TIMES {
            let mut host = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            host.write_all(b"{\"execute\":\"guest-").unwrap();
            while state(out) != format!("{NAME}: host connected") {
                tokio::task::yield_now().await;
            }
            drop(host);
            assert_eq!(reasons.recv().await.0, Trigger::Port);
        }
    };
    tokio::time::timeout(SOON, scene).await.unwrap();
    // A persistent hang-up causes no wake-up, in far more turns than it would need.
    for _ in 0..100 * TIMES {
        tokio::task::yield_now().await;
    }
    assert_eq!(reasons.try_recv(), None);
    stop.send(()).unwrap();
    let guest = task.await.unwrap();
    assert!(format!("{:?}", guest.input) == format!("{:?}", Input::default()));
    assert!(!guest.is_attached);
    let wake_ups = wake_ups.load(Ordering::Relaxed);
    println!("{TIMES} hang-ups and returns of a FIFO: {wake_ups} wake-ups");
    assert!((TIMES..=4 * TIMES).contains(&wake_ups), "{wake_ups}");
}

#[tokio::test]
async fn a_host_that_asks_without_end_does_not_keep_the_thread() {
    let mut talk = Talk::new();
    talk.host
        .write_all(&b"{\"execute\":\"guest-ping\"}\n".repeat(150))
        .unwrap();
    let mut turns = 0;
    let mut replies = 0;
    while replies < 150 {
        {
            // Poll it once.
            let mut serving = std::pin::pin!(talk.guest.serve());
            std::future::poll_fn(|context| {
                assert!(serving.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
        }
        turns += 1;
        replies += talk.replies().iter().filter(|byte| **byte == b'\n').count();
    }
    assert!(turns >= 150, "{turns} turns for 150 requests");
}

#[tokio::test]
async fn a_port_that_another_process_holds_is_tried_again_and_one_that_is_not_there_is_awaited() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    let mut port = OperatorChannel(root.clone());
    let (out, _reasons) = output(&port);
    let absent = port.follow(&out).await;
    let link = Path::new(port::BY_NAME).join(NAME);
    let no_port = detail("the host does not provide the port");
    assert_eq!(absent, Lost::Absent(no_port, Some(link.clone())));
    // A file is no device, which is as unusable as a port that is not permitted.
    std::fs::create_dir_all(root.join(port::BY_NAME)).unwrap();
    std::fs::write(root.join(&link), "").unwrap();
    let unusable = port.follow(&out).await;
    assert!(matches!(unusable, Lost::Failed(_)), "{unusable:?}");
}

#[tokio::test]
async fn a_probe_reports_whether_the_host_offers_the_port() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    let mut port = OperatorChannel(root.clone());
    assert!(!probed(&mut port).await.is_active);
    // As the kernel reports it, without udev.
    let class = root.join("/sys/class/virtio-ports/vport1p1");
    std::fs::create_dir_all(&class).unwrap();
    std::fs::write(class.join("name"), format!("{NAME}\n")).unwrap();
    let state = probed(&mut port).await;
    assert_eq!(state.detail, format!("{NAME}: provided"));
    assert!(state.is_active);
}

/// Returns the replies to these bytes, where each command is answered with its name.
fn replies(bytes: &[u8]) -> Vec<String> {
    let mut input = Input::default();
    let lines = bytes.iter().filter_map(|byte| input.push(*byte));
    let replies = lines.map(|line| reply(&line, |command| Ok(json!(command))));
    replies
        .map(|reply| String::from_utf8(reply).unwrap())
        .collect()
}

#[test]
fn a_line_is_a_request_and_a_blank_line_is_nothing() {
    let text = b"{\"execute\":\"guest-ping\"}\r\n\n \t\n {\"id\":[1],\"execute\":\"node-agent-status\"} \n{\"execute\"";
    let expected = [
        "{\"return\":\"guest-ping\"}\n",
        "{\"return\":\"node-agent-status\",\"id\":[1]}\n",
    ];
    assert_eq!(replies(text), expected);
}

#[test]
fn a_line_that_is_no_request_is_answered_with_what_is_wrong() {
    let large = "x".repeat(REQUEST_MAX);
    let deep = "[".repeat(10_000);
    for (line, problem) in [
        ("garbage", "expected value"),
        ("nul", "not a request"),
        ("[]", "invalid length 0"),
        ("5", "invalid type: integer"),
        ("{}", "missing field `execute`"),
        ("{\"a\":1e999}", "unknown field `a`"),
        ("{\"execute\":5}", "expected a string"),
        (
            "{\"execute\":\"guest-ping\",\"arguments\":{}}",
            "unknown field `arguments`",
        ),
        (
            "{\"execute\":\"guest-exec\"}",
            "unknown variant `guest-exec`, expected one of `guest-info`",
        ),
        (
            "{\"execute\":\"guest-ping\"}{\"execute\":\"guest-ping\"}",
            "trailing characters",
        ),
        (large.as_str(), "expected value"),
        (&format!("{large}x"), "the line has more than 65536 bytes"),
        (
            &format!("{{\"execute\":\"guest-ping\",\"id\":{deep}}}"),
            "expected value",
        ),
    ] {
        let replies = replies(format!("{line}\n{{\"execute\":\"guest-ping\"}}\n").as_bytes());
        assert_eq!(replies.len(), 2);
        let reply: Value = serde_json::from_str(&replies[0]).unwrap();
        let said = reply["error"]["desc"].as_str().unwrap();
        assert!(
            said.contains(problem) && said.len() < 300,
            "{line:.80}: {said}"
        );
        assert_eq!(reply["error"]["class"], "GenericError");
        assert_eq!(replies[1], "{\"return\":\"guest-ping\"}\n");
    }
}

#[test]
fn a_hostile_name_comes_back_harmless() {
    let name = format!("\\u0000\\u001b[31m\\u202e{}", "x".repeat(10_000));
    let said = replies(format!("{{\"execute\":\"{name}\"}}\n").as_bytes()).concat();
    assert!(said.contains("\\\\x00\\\\x1b[31m\\\\u{202e}xxx"), "{said}");
    assert!(said.len() < 400, "{}", said.len());
}

#[test]
fn a_megabyte_without_an_end_takes_no_more_memory() {
    let mut input = Input::default();
    for byte in b"{\"a\":\"".iter().chain(&[b'x'; 1 << 20]) {
        assert!(input.push(*byte).is_none());
        assert!(input.0.capacity() <= 2 * REQUEST_MAX);
    }
    assert_eq!(
        input.push(b'\n').map(|line| line.len()),
        Some(REQUEST_MAX + 1)
    );
}

#[test]
fn an_id_is_repeated_as_it_is_in_an_error_too() {
    let deep = format!("{}1e999{}", "[".repeat(1000), "]".repeat(1000));
    for id in ["7", "\"\\ud800\"", &deep] {
        let said =
            replies(format!("{{\"execute\":\"guest-exec\",\"id\":{id}}}\n").as_bytes()).concat();
        assert!(said.starts_with("{\"error\":{"), "{said}");
        assert!(said.ends_with(&format!("}},\"id\":{id}}}\n")), "{said}");
    }
}
