// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::access::testing::{tree, write as put};
use crate::facts::topology::{LabelValue, REGION, ZONE};

fn labels(zone: &str) -> Labels {
    let pairs = [(REGION, "eu-1"), (ZONE, zone)];
    let pairs = pairs.map(|(key, value)| (key.to_owned(), LabelValue::parse(value).unwrap()));
    pairs.into()
}

/// A tree with RKE2 and a kubelet.
fn installed_tree() -> (tempfile::TempDir, Root) {
    let (dir, root) = tree();
    put(&root, "/usr/local/bin/rke2", "");
    put(&root, "/usr/lib/systemd/system/kubelet.service", "");
    (dir, root)
}

fn read(root: &Root, kind: LabelFileKind) -> Option<String> {
    std::fs::read_to_string(root.join(kind.path())).ok()
}

#[test]
fn the_texts_are_what_the_distributions_read() {
    let labels = labels("rack-a");
    let pairs = [
        "topology.kubernetes.io/region=eu-1",
        "topology.kubernetes.io/zone=rack-a",
    ];
    let yaml = text(LabelFileKind::Rke2, &labels).unwrap();
    assert_eq!(text(LabelFileKind::K3s, &labels).as_ref(), Some(&yaml));
    let value: serde_json::Value = yaml_serde::from_str(&yaml).unwrap();
    assert_eq!(value, serde_json::json!({ "node-label+": pairs }));
    let environment = text(LabelFileKind::Kubelet, &labels).unwrap();
    let arguments = format!("--node-labels={}", pairs.join(","));
    let variables = crate::observe::environment_file::variables(&environment);
    assert_eq!(variables, [("KUBELET_EXTRA_ARGS".to_owned(), arguments)]);
    assert!(yaml.starts_with(MARK) && environment.starts_with(MARK));
    for kind in LabelFileKind::ALL {
        assert_eq!(text(kind, &Labels::new()), None);
    }
}

#[test]
fn files_are_written_where_they_differ_and_removed_without_labels() {
    let (_dir, root) = installed_tree();
    let kinds = [LabelFileKind::Rke2, LabelFileKind::Kubelet];
    let shown = kinds.map(|kind| kind.path().display().to_string());
    for zone in ["rack-a", "rack-b"] {
        let labels = labels(zone);
        let told = shown
            .each_ref()
            .map(|path| format!("labels written to {path}\n"));
        for text in [told.concat(), String::new()] {
            let answer = write(&root, true, Ok(labels.clone()));
            assert_eq!((answer.text, answer.stderr), (text, String::new()));
        }
        for kind in kinds {
            assert_eq!(read(&root, kind), text(kind, &labels));
        }
    }
    let none = || Err("why".to_owned());
    let gone = write(&root, true, none());
    let told = shown.map(|path| format!("{path} removed\n"));
    assert_eq!(gone.text, told.concat());
    assert!(gone.stderr.ends_with("has: why\n"), "{gone:?}");
    assert!(kinds.iter().all(|kind| read(&root, *kind).is_none()));
    // Not wanted, and nothing to remove.
    let silent = write(&root, false, none());
    assert_eq!((silent.text, silent.stderr), Default::default());
    assert!(!root.exists("/etc/rancher/k3s"));
}

#[test]
fn a_file_of_another_writer_stays_and_the_others_are_written() {
    let (_dir, root) = installed_tree();
    let theirs = "node-label: []\n";
    put(&root, LabelFileKind::Rke2.path(), theirs);
    for labels in [Ok(labels("rack-a")), Err("why".to_owned())] {
        let answer = write(&root, true, labels);
        assert!(answer.stderr.contains("was not changed"), "{answer:?}");
        assert_eq!(answer.text.lines().count(), 1, "{answer:?}");
        assert_eq!(read(&root, LabelFileKind::Rke2).as_deref(), Some(theirs));
    }
    let answer = write(&root, false, Ok(labels("rack-a")));
    assert_eq!(answer.stderr, "");
    assert_eq!(read(&root, LabelFileKind::Kubelet), None);
}

#[test]
fn what_is_in_the_file_of_the_kubelet_is_ours_alone() {
    let (_dir, root) = installed_tree();
    let theirs = "KUBELET_EXTRA_ARGS=--authorization-mode=AlwaysAllow\n".to_owned();
    let large = "#".repeat(17 << 10);
    for present in [theirs, large] {
        for labels in [Ok(labels("rack-a")), Err("why".to_owned())] {
            put(&root, LabelFileKind::Kubelet.path(), &present);
            let _ = write(&root, true, labels.clone());
            let expected = labels
                .ok()
                .and_then(|labels| text(LabelFileKind::Kubelet, &labels));
            assert_eq!(read(&root, LabelFileKind::Kubelet), expected);
        }
    }
}

#[test]
fn while_another_file_sets_the_arguments_ours_has_none() {
    let (_dir, root) = installed_tree();
    let labels = labels("rack-a");
    let answer = || write(&root, true, Ok(labels.clone()));
    assert_eq!(answer().stderr, "");
    let other = "/usr/lib/systemd/system/kubelet.service.d/10-other.conf";
    put(
        &root,
        other,
        "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--v=2\n",
    );
    let hidden = answer();
    assert!(hidden.stderr.starts_with(other), "{hidden:?}");
    assert!(!hidden.stderr.contains("sed"), "{hidden:?}");
    assert_eq!(read(&root, LabelFileKind::Kubelet), None);
    put(&root, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\n");
    let empty = answer().stderr;
    assert!(
        empty.contains("/etc/default/kubelet sets KUBELET_EXTRA_ARGS"),
        "{empty}"
    );
    assert!(
        empty.contains("if the line `KUBELET_EXTRA_ARGS=` in it is empty"),
        "{empty}"
    );
    put(&root, "/etc/default/kubelet", "");
    put(&root, other, "");
    assert_eq!(answer().stderr, "");
    assert!(read(&root, LabelFileKind::Kubelet).is_some());
}

#[test]
fn what_cannot_be_written_is_one_line() {
    let (_dir, root) = tree();
    put(&root, "/usr/local/bin/rke2", "");
    // A file in place of the directory.
    put(&root, "/etc/rancher/rke2", "");
    let answer = write(&root, true, Ok(labels("rack-a")));
    assert_eq!((answer.text.as_str(), answer.exit), ("", Exit::Ok));
    assert_eq!(answer.stderr.lines().count(), 1, "{answer:?}");
    let (_dir, root) = tree();
    let answer = write(&root, true, Ok(labels("rack-a")));
    assert!(answer.stderr.starts_with("none of RKE2"), "{answer:?}");
}
