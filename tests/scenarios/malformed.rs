// SPDX-License-Identifier: Apache-2.0
//! Answers that are not quite JSON or not quite an object, answers without end, writes that are refused for a while, and hostnames of
//! any bytes.

use harvester_lab::faults::{Fault, Matcher, Seen};
use harvester_lab::harvester::VmSpec;
use harvester_lab::process::{Agent, Signal};
use harvester_lab::server::Failure;
use harvester_lab::world::{AGENT, VM_NAME, World, WorldOptions, eventually};
use serde_json::{Value, json};

use crate::hostile::{MOST, labels_stay, stays_small};
use crate::{
    HOST, SOON, TOPOLOGY, ZONE, condition_becomes, lab, label_becomes, node_patches, serve,
};

const VMIS: &str = "virtualmachineinstances";

/// Each of them in the place of what the server would have said: named, and nothing changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_and_texts_that_json_does_not_have_are_refused() {
    let world = World::lab(WorldOptions::default()).await;
    let agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let vmi = world.harvester.vmi(&world.vm).await.unwrap();
    let with = |pointer: &str, text: &str| {
        let mut vmi = vmi.clone();
        *vmi.pointer_mut(pointer).unwrap() = json!("HERE");
        vmi.to_string().replace("\"HERE\"", text)
    };
    for (what, body) in [
        ("not a number", with("/status/nodeName", "NaN")),
        ("infinity", with("/metadata/uid", "-Infinity")),
        ("a huge number", with("/status/nodeName", "1e999999")),
        (
            "many digits",
            with("/status/nodeName", &"9".repeat(100_000)),
        ),
        (
            "half a character",
            with("/status/nodeName", r#""hv-\ud800""#),
        ),
        (
            "a control character",
            with("/status/nodeName", "\"hv-\u{0}\""),
        ),
        ("NUL in a name", with("/status/nodeName", r#""hv-\u0000b""#)),
        (
            "NUL in another name",
            with("/metadata/name", r#""a\u0000b""#),
        ),
        (
            "a name that leads elsewhere",
            with("/status/nodeName", r#""../../hv-b""#),
        ),
    ] {
        let matcher = Matcher::path(VMIS)
            .user_agent(AGENT)
            .when(|seen| seen.verb != "watch");
        let server = lab(&world.harvester_api);
        let injected = server
            .faults()
            .inject(matcher, Fault::answer(200, "application/json", &body));
        agent.signal(Signal::SIGHUP);
        let is_named = || async { injected.hits() > 0 && !world.findings().is_empty() };
        eventually(SOON, what, is_named).await;
        println!("{what}: {:?}", world.findings());
        labels_stay(&world, what).await;
        server.faults().clear();
        agent.signal(Signal::SIGHUP);
        world.findings_become(&[]).await;
    }
}

async fn answers_without_end() -> (World, Agent) {
    let world = World::lab(WorldOptions::default()).await;
    let agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    for fault in [Fault::EndlessBody, Fault::EndlessHeader] {
        let server = lab(&world.harvester_api);
        let matcher = Matcher::path(VMIS).user_agent(AGENT);
        let injected = server.faults().inject(matcher, fault);
        server.drop_watches();
        for hits in [1, 3, 5] {
            agent.signal(Signal::SIGHUP);
            eventually(SOON, "a request", || async { injected.hits() >= hits }).await;
        }
        world.findings_become(&["harvester-bad-response"]).await;
        labels_stay(&world, "without end").await;
        server.faults().clear();
        agent.signal(Signal::SIGHUP);
        world.finding_ends("harvester-bad-response").await;
    }
    (world, agent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_without_end_is_refused() {
    let (_world, _agent) = answers_without_end().await;
}

mod slow {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_answer_without_end_takes_little_memory() {
        let (_world, agent) = answers_without_end().await;
        stays_small(&agent, MOST);
    }

    /// It is named, no other VM is taken for it, and no label changes.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_vm_that_is_gone_is_named_and_no_other_one_is_taken_for_it() {
        let world = World::lab(WorldOptions::default()).await;
        // No watch is open until the VM is found again.
        let poll = "[timing]\npoll_interval = \"60s\"\n";
        world.guest.agent_config("10-poll.toml", poll);
        let _agent = serve(&world).await;
        condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
        for name in [
            format!("{VM_NAME}a"),
            VM_NAME.trim_end_matches('9').to_owned(),
        ] {
            let alike = VmSpec::named(&name);
            world.harvester.create_vm(alike, "hv-c").await.unwrap();
        }
        let patches = node_patches(&world).await;
        world.harvester.stop_vm(&world.vm).await.unwrap();
        let is_named = || async { world.findings() == ["vm-moved-away"] };
        eventually(SOON * 3, "the finding", is_named).await;
        labels_stay(&world, "gone").await;
        assert_eq!(node_patches(&world).await, patches);

        world.harvester.start_vm(&world.vm, "hv-c").await.unwrap();
        let is_followed = || async { world.node_label(HOST).await.as_deref() == Some("hv-c") };
        eventually(SOON * 3, "the labels of its new host", is_followed).await;
        world.findings_become(&[]).await;
    }
}

/// What API servers say to a write that met another one, and to one that they do not take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_conflicts_or_is_invalid_is_decided_anew() {
    for (code, reason) in [(409, "Conflict"), (422, "Invalid")] {
        let world = World::lab(WorldOptions::default()).await;
        let server = lab(&world.guest_api);
        let failure = Failure::new(
            code,
            reason,
            &format!("the write is refused: {reason}"),
            Value::Null,
        );
        let matcher = Matcher::any().verb("patch").user_agent(AGENT);
        let injected = server.faults().inject(matcher, Fault::failure(&failure));
        let mut agent = serve(&world).await;
        world.findings_become(&["node-write-failed"]).await;
        eventually(SOON, "two attempts", || async { injected.hits() >= 2 }).await;
        // The host changes meanwhile: what is then written is about the new one.
        world.migrate("hv-b").await;
        let tried = injected.hits();
        let is_tried = async || injected.hits() > tried;
        eventually(SOON, "one more attempt", is_tried).await;
        server.faults().clear();
        label_becomes(&world, ZONE, "rack-b").await;
        world.findings_become(&[]).await;
        let zones = world.recorder.combinations(&[ZONE, HOST]);
        let stale = |pair: &Vec<Option<String>>| pair[1].as_deref() == Some("hv-a");
        assert!(!zones.iter().any(stale), "{reason}: {zones:?}");
        assert!(agent.exited().is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_response_is_lost_is_reported_as_written() {
    let world = World::lab(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let matcher = Matcher::any().verb("patch").user_agent(AGENT).once();
    let faults = lab(&world.guest_api).faults();
    let injected = faults.inject(matcher, Fault::TruncatedBody);
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    for event in ["HostChanged", "LiveMigrationDone"] {
        let is_sent = async || {
            let events = world.events().await;
            events.iter().any(|sent| sent["reason"] == event)
        };
        eventually(SOON, event, is_sent).await;
    }
    let is_timed = |status: &Value| status["lastMigration"]["durationSeconds"].is_number();
    world.status_becomes("the duration", is_timed, &[]).await;
    world.findings_become(&[]).await;
    assert_eq!(injected.hits(), 1);
}

/// The conditions of a Node are the last write of a round, which was reported before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_that_are_refused_once_leave_no_finding() {
    let world = World::lab(WorldOptions::default()).await;
    let status = |seen: &Seen<'_>| seen.path.ends_with("/status");
    let matcher = Matcher::any().verb("patch").user_agent(AGENT).when(status);
    let faults = lab(&world.guest_api).faults();
    let injected = faults.inject(matcher.once(), Fault::html(500));
    let _agent = serve(&world).await;
    world.findings_become(&["node-write-failed"]).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    world.findings_become(&[]).await;
    assert_eq!(injected.hits(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostname_of_any_bytes_is_shown_escaped_and_moves_no_label() {
    let world = World::lab(WorldOptions::default()).await;
    let agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let is_told = async |name: &[u8], differs: bool| {
        world.guest.write("/proc/sys/kernel/hostname", name);
        agent.signal(Signal::SIGHUP);
        let shown = String::from_utf8_lossy(name).into_owned();
        let is_found = || async {
            let findings = world.findings();
            findings.iter().any(|code| code == "hostname-differs") == differs
        };
        eventually(SOON, &format!("{differs} for {shown:?}"), is_found).await;
        shown
    };
    let long = "a".repeat(64);
    for (name, differs) in [
        (&b"\xff\xfe"[..], true),
        (long.as_bytes(), true),
        (b"a\nWATCHDOG=trigger", true),
        (b"\x1b[31mred\x1b[0m", true),
        ("e\u{202e}vil\u{9b}1m".as_bytes(), true),
        (b"localhost", true),
        // There is nothing to compare.
        (b"", false),
        (VM_NAME.to_uppercase().as_bytes(), false),
        (format!("{VM_NAME}.example.org").as_bytes(), true),
    ] {
        // So that no finding is that of the previous name.
        let before = if differs { VM_NAME } else { "other" };
        is_told(before.as_bytes(), !differs).await;
        let shown = is_told(name, differs).await;
        let mut texts = vec![
            world
                .guest
                .read("/run/harvester-node-agent/status.json")
                .unwrap(),
        ];
        for command in [
            &["status"][..],
            &["status", "-o", "json"],
            &["whoami"],
            &["doctor"],
        ] {
            let output = crate::agent(&world, command).await;
            texts.push(output.stdout + &output.stderr);
        }
        let is_hidden =
            |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
        for text in &texts {
            assert!(!text.contains(is_hidden), "{shown:?}: {text:?}");
        }
        labels_stay(&world, &shown).await;
    }
    let lines = agent.lines();
    let is_raw = |c: char| c.is_control() || c == '\u{202e}';
    assert!(
        !lines.iter().any(|line| line.text.contains(is_raw)),
        "{}",
        agent.transcript()
    );
    let statuses = agent.notifications();
    assert!(!statuses.iter().any(|one| {
        one.fields
            .get("WATCHDOG")
            .is_some_and(|word| word == "trigger")
    }));
}
