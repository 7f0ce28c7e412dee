// SPDX-License-Identifier: Apache-2.0

use serde_json::{Value, json};

use super::*;
use crate::access::testing::{tree, write as put};
use crate::facts::topology::LabelValue;
use crate::sys::lock::{self, Instance, LOCK_FILE};

/// The status of a daemon: the verdict about the hostname `name`, with the VM unless it is unknown.
fn status(name: &str, verdict: Verdict) -> Value {
    let vm = json!({"name": "pool1-abcde"});
    let is_unknown = [Verdict::Unknown, Verdict::Ambiguous, Verdict::NotFound].contains(&verdict);
    let vm = (!is_unknown).then_some(vm);
    json!({
        "apiVersion": crate::report::status::API_VERSION, "kind": "Status",
        "lastUpdateTime": "2026-11-21T10:00:00Z", "trigger": "timer",
        "agent": {"version": "1", "pid": 1, "startTime": "2026-11-21T10:00:00Z"},
        "identity": {
            "state": verdict, "impact": "", "evidence": [], "vm": vm,
            "names": [{"type": "hostname", "name": name, "state": verdict}],
        },
        "labels": {"state": "pending", "owned": {}, "skippedLabels": []},
        "credentials": {"harvester": {"kubeconfig": "/etc/kubernetes/cloud-config"}, "kubelet": {}},
        "eventSources": [], "findings": [],
    })
}

fn seen(status: &Value) -> Seen {
    Seen {
        status: Some(Status::from_json(status).unwrap()),
        may_learn: true,
        ..Seen::default()
    }
}

fn missing(seconds: u64) -> Seen {
    Seen {
        alone: Some(Duration::from_secs(seconds)),
        ..Seen::default()
    }
}

#[test]
fn a_delay_ends_with_its_bound_or_when_no_daemon_has_run_for_a_while() {
    let bound = Duration::from_secs(120);
    for (seen, waited, seconds) in [
        (Seen::default(), 20, 100),
        (Seen::default(), 120, 0),
        (missing(5), 20, 10),
        (missing(14), 60, 1),
        (missing(15), 60, 0),
        (missing(60), 60, 0),
        (missing(0), 119, 1),
        (missing(0), 120, 0),
    ] {
        let left = left(&seen, Duration::from_secs(waited), bound);
        assert_eq!(left, Duration::from_secs(seconds), "{seen:?} {waited}");
    }
}

/// What it does, with its text while it delays the kubelet, and with that at the end of a delay.
fn decision(present: Option<&Present>, seen: &Seen) -> String {
    match decide(present, seen) {
        Decision::Open(text) => format!("  opens: {text}\n"),
        Decision::Hold(why, late) => format!("  delays: {why}\n  at the end: {late}\n"),
    }
}

/// The decisions as a whole are in `expected.txt`: a delay is only for what can change, names what is wrong and what to type, and
/// never advises to rename a Node that may be that of another VM, or to replace a template.
#[test]
fn each_state_of_a_node_has_its_decision() {
    let mut text = String::new();
    let mut add = |case: &str, present: Option<&Present>, seen: &Seen| {
        text += &format!("{case}\n{}", decision(present, seen));
    };
    let says = |verdict| status("localhost", verdict);
    let changed = |verdict, field: &str, value: Value| {
        let mut status = says(verdict);
        *status.pointer_mut(field).unwrap() = value;
        status
    };
    let wanted = |verdict| {
        let mut status = says(verdict);
        status["registration"] = json!({});
        seen(&status)
    };
    let hopeless = |seen: Seen| Seen {
        may_learn: false,
        ..seen
    };
    add("no daemon", None, &missing(15));
    add("no status yet", None, &Seen::default());
    for verdict in Verdict::ALL {
        add(verdict.as_str(), None, &seen(&says(*verdict)));
    }
    for verdict in [Verdict::Differs, Verdict::Unknown] {
        let mut given = says(verdict);
        given["identity"]["vm"] = Value::Null;
        given["identity"]["expectedName"] = json!("web");
        let case = format!("{}, a name from cloud-init and no VM", verdict.as_str());
        add(&case, None, &seen(&given));
    }
    let template = Seen {
        has_template: true,
        ..seen(&says(Verdict::Fqdn))
    };
    add("fqdn, /etc/hostname is a template", None, &template);
    let kind = "/identity/names/0/type";
    let configured = changed(Verdict::AnotherVm, kind, json!("node-name"));
    add("name-of-another-vm, configured", None, &seen(&configured));
    let no_credential = hopeless(wanted(Verdict::Unknown));
    add("vm-unknown, no credential", None, &no_credential);
    // A name that differs from the platform's is wrong, with or without a credential.
    let differs = hopeless(seen(&says(Verdict::Differs)));
    add("differs, no credential", None, &differs);
    let hostile = json!("x; curl http://x | sh");
    let hostile = changed(Verdict::Differs, "/identity/vm/name", hostile);
    add("differs, the VM has no valid name", None, &seen(&hostile));
    for verdict in [Verdict::Match, Verdict::Differs] {
        let case = format!("{}, labels are wanted", verdict.as_str());
        add(&case, None, &wanted(verdict));
    }
    for (what, copied) in [
        ("registered", None),
        ("registered, a copied disk", Some("another product_uuid")),
    ] {
        let present = Present {
            path: "/kubelet.kubeconfig".to_owned(),
            node: Some("a".to_owned()),
            copied: copied.map(str::to_owned),
        };
        let mut add =
            |case: &str, seen: &Seen| add(&format!("{what}, {case}"), Some(&present), seen);
        add("no daemon", &missing(15));
        add("no status yet", &Seen::default());
        for verdict in [
            Verdict::Unknown,
            Verdict::Differs,
            Verdict::Match,
            Verdict::AnotherVm,
        ] {
            let named = changed(verdict, kind, json!("node-name"));
            add(verdict.as_str(), &seen(&named));
        }
    }
    let file = "src/commands/gate/expected.txt";
    harvester_lab::expected::is_expected(file, &text, str::to_owned);
}

#[test]
fn only_labels_of_ours_are_passed_on_and_none_to_the_node_of_another_vm() {
    let with = |verdict, registration| {
        let mut status = status("localhost", verdict);
        status["registration"] = registration;
        status
    };
    let known = |status: &Value, host| known_labels(Status::from_json(status).unwrap(), host);
    let why = known(&with(Verdict::Match, json!({})), None).unwrap_err();
    assert!(why.contains("still unknown"), "{why}");
    // A label that Kubernetes does not accept would prevent the start of the kubelet: a status with one is not read.
    let invalid = with(Verdict::Match, json!({"labels": {ZONE: "a b"}}));
    Status::from_json(&invalid).unwrap_err();
    // Keys are not those of a status, but ours: others could be more lines, or more arguments of the kubelet.
    let host = "example.com/host";
    let status =
        json!({"labels": {ZONE: "a", host: "a", "b": "a", "b\"\nserver: c": "a", "b --v=9": "a"}});
    let labels = |host| {
        let keys = [Some(ZONE), host].into_iter().flatten();
        let value = LabelValue::parse("a").unwrap();
        keys.map(|key| (key.to_owned(), value.clone())).collect()
    };
    for host in [None, Some(host)] {
        for verdict in [Verdict::Match, Verdict::Differs] {
            let known = known(&with(verdict, status.clone()), host);
            assert_eq!(known, Ok::<Labels, _>(labels(host)), "{verdict:?}");
        }
    }
    let why = known(&with(Verdict::AnotherVm, status), None).unwrap_err();
    assert!(why.ends_with("explain name-of-another-vm"), "{why}");
}

fn publish(root: &Root, process: &Instance) {
    let mut status = status("vm-1", Verdict::Match);
    status["agent"]["pid"] = json!(process.pid);
    status["agent"]["startTicks"] = json!(process.start_ticks);
    status["agent"]["bootID"] = json!(process.boot_id);
    let content = status_file::content(&status);
    put(root, &content.path, &content.text.unwrap());
}

#[test]
fn a_copied_disk_is_known_at_every_boot_until_the_node_is_that_of_this_vm() {
    let (_dir, root) = tree();
    let write = |path: &str, text: &str| put(&root, path, text);
    let save = |state: &state::State| {
        let content = state.content();
        write(content.path.to_str().unwrap(), &content.text.unwrap());
    };
    let uuid = |last| format!("0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4{last}");
    let boot = |last| {
        write("/sys/class/dmi/id/product_uuid", &uuid(last));
        let ours = MachineId::of(&observe::machine::read_machine(&root));
        state::load(&root, &ours).0
    };
    save(&boot("a"));
    assert_eq!(copied(&root), None);
    let mut state = boot("b");
    assert!(copied(&root).unwrap().contains(&uuid("a")));
    // The daemon replaces the state of the other VM.
    save(&state);
    assert_eq!(boot("b").copied_from, state.copied_from);
    assert!(copied(&root).unwrap().contains(&uuid("a")));
    state.copied_from = None;
    save(&state);
    assert_eq!(copied(&root), None);
    let own = Instance::own().unwrap();
    publish(&root, &own);
    assert_eq!(copied(&root), None);
    let mut status = status_file::read(&root).unwrap();
    status["identity"]["copiedFrom"] = json!(uuid("a"));
    write(status_file::STATUS_FILE, &status.to_string());
    assert!(copied(&root).unwrap().contains(&uuid("a")));
}

#[test]
fn a_status_counts_if_the_lock_has_no_process_id() {
    let (_dir, root) = tree();
    let own = Instance::own().unwrap();
    publish(&root, &own);
    let says = || {
        let seen = see(&root, &Settings::default(), &mut None);
        seen.status.is_some()
    };
    assert!(says(), "the process in the status runs");
    let _lock = lock::acquire(&root).unwrap();
    assert!(says());
    // As on a full disk.
    std::fs::write(root.join(LOCK_FILE), "").unwrap();
    assert!(says());
    let ended = Instance {
        start_ticks: own.start_ticks + 1,
        ..own
    };
    publish(&root, &ended);
    assert!(!says(), "a status of an earlier process");
}

#[tokio::test]
async fn text_of_others_cannot_control_the_terminal() {
    let (_dir, root) = tree();
    let present = Present {
        path: "/x\u{1b}]0;title\u{7}\nline".to_owned(),
        node: None,
        copied: Some("\u{202e}".to_owned()),
    };
    let settings = Settings::default();
    let answer = wait(&root, &settings, Some(&present), Duration::ZERO).await;
    let line = answer.stderr.trim_end_matches('\n');
    let is_plain = |character: char| !character.is_control() && character != '\u{202e}';
    assert!(!line.is_empty() && line.chars().all(is_plain), "{line:?}");
}

#[test]
fn the_command_for_an_invalid_configuration_reads_the_same_file() {
    let (_dir, process) = Process::configured("a.toml", "a = 1\n");
    let command = "run: harvester-node-agent --config=/a.toml config check";
    for answer in [run(&process, Duration::ZERO), write_labels(&process)] {
        assert!(answer.stderr.contains(command), "{}", answer.stderr);
    }
}
