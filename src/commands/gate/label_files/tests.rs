// SPDX-License-Identifier: Apache-2.0

use harvester_lab::expected::cases_are_expected;

use super::*;
use crate::access::testing::{tree, write as put};
use crate::config::tests::write_files;
use crate::facts::topology::{LabelValue, REGION, ZONE};

fn labels(zone: &str) -> Labels {
    let pairs = [(REGION, "eu-1"), (ZONE, zone)];
    let pairs = pairs.map(|(key, value)| (key.to_owned(), LabelValue::parse(value).unwrap()));
    pairs.into()
}

fn read(root: &Root, kind: LabelFileKind) -> Option<String> {
    std::fs::read_to_string(root.join(kind.path())).ok()
}

/// The file has trees, and zones for which labels are written one after the other, or `none`. `unwanted` follows where the configuration
/// wants none. Below is what is printed, and in the end our files.
#[test]
fn each_tree_has_the_expected_files() {
    cases_are_expected("src/commands/gate/label_files/cases.txt", |case| {
        let ((_dir, root), mut text) = (tree(), String::new());
        for line in write_files(&root, case) {
            let (zone, word) = line.split_once(' ').unwrap_or((line, ""));
            assert!(["", "unwanted"].contains(&word), "{case}");
            let labels = match zone {
                "none" => Err("why".to_owned()),
                zone => Ok(labels(zone)),
            };
            let answer = write(&root, word.is_empty(), labels);
            assert_eq!(answer.exit, Exit::Ok);
            text += &(answer.text + &answer.stderr);
        }
        for kind in LabelFileKind::ALL {
            let Some(content) = read(&root, kind) else {
                continue;
            };
            text += &format!("{}\n", kind.path().display());
            text.extend(content.lines().map(|line| format!("| {line}\n")));
        }
        text
    });
}

#[test]
fn what_is_in_the_file_of_the_kubelet_is_ours_alone() {
    let (_dir, root) = tree();
    put(&root, "/usr/lib/systemd/system/kubelet.service", "");
    let kubelet = LabelFileKind::Kubelet;
    let theirs = "KUBELET_EXTRA_ARGS=--authorization-mode=AlwaysAllow\n".to_owned();
    for present in [theirs, "#".repeat(17 << 10)] {
        for labels in [Ok(labels("rack-a")), Err("why".to_owned())] {
            put(&root, kubelet.path(), &present);
            let _ = write(&root, true, labels.clone());
            let expected = labels.ok().and_then(|labels| super::text(kubelet, &labels));
            assert_eq!(read(&root, kubelet), expected);
        }
    }
}
