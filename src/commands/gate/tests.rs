// SPDX-License-Identifier: Apache-2.0

use serde_json::{Value, json};

use super::*;
use crate::facts::topology::LabelValue;
use crate::sys::lock::{self, Instance, LOCK_FILE};

const BOUND: Duration = Duration::from_secs(120);

/// The status of a daemon: the verdict about the hostname `name`, with the VM unless it is unknown.
fn status(name: &str, verdict: Verdict) -> Value {
    let vm = json!({"name": "pool1-abcde"});
    let vm = (verdict != Verdict::Unknown).then_some(vm);
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

fn says(verdict: Verdict) -> Value {
    status("localhost", verdict)
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

fn wait_text(seen: &Seen) -> String {
    match decide(None, seen) {
        Decision::Hold(why, _) => why,
        open @ Decision::Open(_) => panic!("{open:?}"),
    }
}

#[test]
fn a_delay_ends_with_its_bound_or_when_no_daemon_has_run_for_a_while() {
    let [waited, bound] = [20, 120].map(Duration::from_secs);
    for (seen, seconds) in [
        (Seen::default(), 100),
        (missing(5), 10),
        (missing(15), 0),
        (missing(60), 0),
    ] {
        let left = left(&seen, waited, bound);
        assert_eq!(left, Duration::from_secs(seconds), "{seen:?}");
    }
    assert_eq!(left(&missing(0), bound, bound), Duration::ZERO);
}

/// Returns what it says when it opens, at the latest.
fn opening(seen: &Seen) -> String {
    match decide(None, seen) {
        Decision::Open(text) => text,
        Decision::Hold(_, late) => late,
    }
}

/// Returns whether it opens after some seconds, and then whether that is worrying.
fn opens(present: Option<&Present>, seen: &Seen, seconds: u64) -> Option<bool> {
    let is_over = left(seen, Duration::from_secs(seconds), BOUND).is_zero();
    match decide(present, seen) {
        Decision::Open(_) => Some(false),
        Decision::Hold(..) => is_over.then_some(true),
    }
}

/// The same where no kubelet has registered yet.
fn at(seen: &Seen, seconds: u64) -> Option<bool> {
    opens(None, seen, seconds)
}

const FINE: Option<bool> = Some(false);
const TIME_UP: Option<bool> = Some(true);

#[test]
fn each_verdict_opens_at_once_or_holds_to_the_bound() {
    for (verdict, may_register) in [
        (Verdict::Match, true),
        (Verdict::MatchExceptCaseOrDomain, true),
        (Verdict::PlatformHostname, true),
        (Verdict::RancherTruncated, true),
        (Verdict::NodeIdSuffix, true),
        (Verdict::ConfiguredOverride, true),
        (Verdict::Unknown, false),
        (Verdict::Fqdn, false),
        (Verdict::Differs, false),
        (Verdict::Shared, false),
        (Verdict::AnotherVm, false),
    ] {
        assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.as_str());
        let seen = seen(&says(verdict));
        let at_once = may_register.then_some(false);
        assert_eq!(at(&seen, 0), at_once, "{verdict:?}");
        assert_eq!(at(&seen, 119), at_once, "{verdict:?}");
        let last = at_once.or(TIME_UP);
        assert_eq!(at(&seen, 120), last, "{verdict:?}");
    }
}

#[test]
fn who_waits_learns_what_is_wrong_why_it_matters_and_what_to_type() {
    let text = wait_text(&seen(&says(Verdict::Differs)));
    for part in [
        "hostname `localhost` does not match VM `pool1-abcde`",
        "the name of a registered Node cannot change",
        "no providerID",
        "hostnamectl set-hostname pool1-abcde",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let mut configured = says(Verdict::AnotherVm);
    configured["identity"]["names"][0]["type"] = json!("node-name");
    let text = wait_text(&seen(&configured));
    assert!(!text.contains("hostnamectl"), "{text}");
}

#[test]
fn a_name_of_cloud_init_is_not_called_the_name_of_a_vm() {
    for verdict in [Verdict::Differs, Verdict::Unknown] {
        let mut given = says(verdict);
        given["identity"]["vm"] = Value::Null;
        given["identity"]["expectedName"] = json!("web");
        let text = wait_text(&seen(&given));
        assert!(
            text.contains("VM") && text.contains("not identified"),
            "{text}"
        );
        assert!(!text.contains("VM `"), "{text}");
    }
}

#[test]
fn a_name_with_a_domain_waits_for_the_short_one_and_a_template_is_kept() {
    let text = |has_template| {
        let status = status("pool1-abcde.example.org", Verdict::Fqdn);
        wait_text(&Seen {
            has_template,
            ..seen(&status)
        })
    };
    assert!(text(false).contains("hostnamectl set-hostname pool1-abcde, and"));
    assert!(text(false).contains("prefer_fqdn_over_hostname: false"));
    let late = opening(&seen(&says(Verdict::Shared)));
    // The Node may be that of another VM.
    assert!(!late.contains("delete"), "{late}");
    assert!(!text(true).contains("hostnamectl"), "{}", text(true));
}

#[test]
fn a_name_that_is_not_the_vms_is_not_said_to_match() {
    for verdict in [Verdict::ConfiguredOverride, Verdict::PlatformHostname] {
        let text = opening(&seen(&says(verdict)));
        assert!(!text.contains("matches"), "{text}");
    }
}

#[test]
fn the_credential_of_another_machine_holds_the_kubelet_within_the_bound() {
    let present = |copied: Option<&str>| Present {
        path: "/kubelet.kubeconfig".to_owned(),
        node: Some("a".to_owned()),
        copied: copied.map(str::to_owned),
    };
    let says = |verdict| {
        let mut status = status("a", verdict);
        status["identity"]["names"][0]["type"] = json!("node-name");
        seen(&status)
    };
    let at = |present, seen: &Seen, seconds| opens(Some(present), seen, seconds);
    let (usual, copied) = (present(None), present(Some("another product_uuid")));
    let gone = missing(15);
    for seen in [
        Seen::default(),
        gone.clone(),
        says(Verdict::Unknown),
        says(Verdict::Differs),
    ] {
        assert_eq!(at(&usual, &seen, 0), FINE, "{seen:?}");
    }
    for present in [&usual, &copied] {
        assert_eq!(at(present, &says(Verdict::Match), 0), FINE);
        assert_eq!(at(present, &says(Verdict::AnotherVm), 119), None);
        assert_eq!(at(present, &says(Verdict::AnotherVm), 120), TIME_UP);
    }
    for seen in [
        Seen::default(),
        says(Verdict::Unknown),
        says(Verdict::Differs),
    ] {
        assert_eq!(
            (at(&copied, &seen, 119), at(&copied, &seen, 120)),
            (None, TIME_UP)
        );
    }
    assert_eq!(at(&copied, &gone, 20), TIME_UP);
    let unknown = says(Verdict::Unknown);
    let Decision::Hold(text, _) = decide(Some(&copied), &unknown) else {
        panic!("it opened");
    };
    for part in [
        "/kubelet.kubeconfig",
        "Node `a`",
        "another product_uuid",
        "explain node-of-another-vm",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn a_name_that_cannot_become_known_delays_nothing() {
    let mut unknown = says(Verdict::Unknown);
    unknown["registration"] = json!({});
    let hopeless = |status: &Value| Seen {
        may_learn: false,
        ..seen(status)
    };
    assert_eq!(at(&hopeless(&unknown), 0), FINE);
    // A name that differs from the platform's is wrong, with or without a credential.
    let wrong = hopeless(&says(Verdict::Differs));
    assert_eq!(at(&wrong, 0), None);
}

#[test]
fn labels_that_are_wanted_are_waited_for_within_the_bound() {
    let with = |verdict, registration| {
        let mut status = says(verdict);
        status["registration"] = registration;
        seen(&status)
    };
    let unknown = with(Verdict::Match, json!({}));
    assert_eq!((at(&unknown, 119), at(&unknown, 120)), (None, TIME_UP));
    let late = opening(&unknown);
    assert!(late.contains("still unknown"), "{late}");
    let why = known_labels(unknown.status.unwrap(), None).unwrap_err();
    assert!(why.contains("still unknown"), "{why}");
    // A label that Kubernetes does not accept would prevent the start of the kubelet: a status with one is not read.
    let mut invalid = says(Verdict::Match);
    invalid["registration"] = json!({"labels": {ZONE: "a b"}});
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
            let seen = with(verdict, status.clone());
            let known = known_labels(seen.status.unwrap(), host);
            assert_eq!(known, Ok::<Labels, _>(labels(host)), "{verdict:?}");
        }
    }
    let seen = with(Verdict::AnotherVm, status);
    let why = known_labels(seen.status.unwrap(), None).unwrap_err();
    assert!(why.ends_with("explain name-of-another-vm"), "{why}");
}

#[test]
fn without_a_daemon_it_opens_when_systemd_has_given_up_on_it() {
    let missing = |since, waited| at(&missing(since), waited);
    assert_eq!(missing(14, 60), None);
    assert_eq!(missing(15, 60), TIME_UP);
    assert_eq!(missing(1, 120), TIME_UP);
    let silent = |waited| at(&Seen::default(), waited);
    assert_eq!((silent(119), silent(120)), (None, TIME_UP));
}

fn publish(root: &Root, process: &Instance) {
    let mut status = status("vm-1", Verdict::Match);
    status["agent"]["pid"] = json!(process.pid);
    status["agent"]["startTicks"] = json!(process.start_ticks);
    status["agent"]["bootID"] = json!(process.boot_id);
    let content = status_file::content(&status);
    let path = root.join(&content.path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content.text.unwrap()).unwrap();
}

#[test]
fn a_copied_disk_is_known_at_every_boot_until_the_node_is_that_of_this_vm() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
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
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
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
