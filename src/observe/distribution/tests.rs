// SPDX-License-Identifier: Apache-2.0
use harvester_lab::expected::cases_are_expected;

use super::*;
use crate::access::testing::{tree, write};
use crate::config::tests::write_files;

const RKE2: &str = "/etc/rancher/rke2/config.yaml";

const RANCHER: &str = "/etc/rancher/rke2/config.yaml.d/50-rancher.yaml";

fn read(files: &[(&str, &str)]) -> (Vec<Distribution>, Vec<DistributionProblem>) {
    let (_dir, root) = tree();
    for (path, text) in files {
        write(&root, path, text);
    }
    read_distribution(&root)
}

fn one(files: &[(&str, &str)]) -> Distribution {
    let (mut distributions, problems) = read(files);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(distributions.len(), 1, "{distributions:?}");
    distributions.pop().unwrap()
}

/// The file has trees. Below are the distributions of each, with their settings and where these are from, and what cannot be read.
#[test]
fn of_each_tree_the_expected_settings_are_read() {
    cases_are_expected("src/observe/distribution/cases.txt", |case| {
        let (_dir, root) = tree();
        assert_eq!(write_files(&root, case), [""; 0]);
        let (found, problems) = read_distribution(&root);
        let said = format!("{found:?} {problems:?}");
        assert!(!said.contains("CANARY"), "{said}");
        let mut text = String::new();
        for one in found {
            text += &format!("{:?} in {}\n", one.kind, one.data_dir.display());
            let mut add = |what: &str, value: String, origin: &Path| {
                text += &format!("{what} {value} of {}\n", origin.display());
            };
            if let Some(name) = &one.node_name {
                let id = if one.with_node_id { "-ID" } else { "" };
                add("name", format!("{}{id}", name.value), &name.origin);
            }
            for label in &one.node_labels {
                let pair = format!("{}={}", label.key, label.value);
                add("label", pair, &label.origin);
            }
            if let Some(config) = &one.cloud_provider_config {
                let name = one.cloud_provider_name.as_deref().unwrap_or_default();
                let value = format!("{name} {}", config.value.display());
                add("cloud provider", value, &config.origin);
            }
        }
        text.extend(problems.iter().map(|problem| format!("{problem}\n")));
        text
    });
}

#[test]
fn the_environment_of_each_service_is_read() {
    for path in RKE2_ENVIRONMENT {
        let found = one(&[(path, "RKE2_DATA_DIR=/data")]);
        assert_eq!(found.kind, DistributionKind::Rke2);
        assert_eq!(found.data_dir, Path::new("/data"));
    }
}

#[test]
fn a_file_that_is_no_text_or_a_directory_is_named() {
    let (_dir, root) = tree();
    let folder = Path::new("/etc/rancher/rke2/config.yaml.d");
    std::fs::create_dir_all(root.join(folder.join("50.yaml"))).unwrap();
    write(&root, folder.join("60.yaml"), "node-name: good");
    std::fs::write(root.join(folder.join("65.yaml")), [0xff, 0xfe, 0x00]).unwrap();
    let (distributions, problems) = read_distribution(&root);
    assert_eq!(distributions[0].configured_node_name(), Some("good"));
    assert_eq!(problems.len(), 2, "{problems:?}");
    for (problem, name) in problems.iter().zip(["50.yaml", "65.yaml"]) {
        assert!(problem.to_string().contains(name), "{problem}");
    }
}

#[test]
fn ten_thousands_of_labels_are_read() {
    // With quadratic time, this would take minutes.
    let many: Vec<String> = (0..100_000).map(|number| format!("l{number}=x")).collect();
    let config = format!("node-label: \"{}\"\n", many.join(","));
    assert_eq!(one(&[(RKE2, &config)]).node_labels.len(), 100_000);
}

#[test]
fn a_file_that_sets_labels_is_watched() {
    let watched: Vec<PathBuf> = watched().collect();
    let flags = "KUBELET_EXTRA_ARGS=--node-labels=a=b";
    for (path, text) in [
        (RKE2, "node-label: a=b"),
        (RANCHER, "node-label: a=b"),
        ("/etc/rancher/k3s/config.yaml", "node-label: a=b"),
        (KUBEADM_FLAGS, "KUBELET_KUBEADM_ARGS=--node-labels=a=b"),
        ("/etc/default/kubelet", flags),
        ("/etc/sysconfig/kubelet", flags),
    ] {
        assert_eq!(one(&[(path, text)]).node_labels.len(), 1, "{path}");
        assert!(watched.contains(&PathBuf::from(path)), "{path}");
    }
    for distribution in ["rke2", "k3s"] {
        let drop_ins = PathBuf::from(format!("/etc/rancher/{distribution}/config.yaml.d"));
        let other = drop_ins.join("60-x.yaml");
        let found = one(&[(&other.to_string_lossy(), "node-name: vm-b")]);
        assert_eq!(found.configured_node_name(), Some("vm-b"));
        assert!(watched.contains(&drop_ins), "polled, {distribution}");
        assert!(watched.contains(&drop_ins.join("*")), "{distribution}");
    }
}

#[test]
fn each_setting_of_each_file_is_passed_on_and_no_secret_is_kept() {
    let (_dir, root) = tree();
    let (environment, kubelet) = ("/etc/default/rke2-server", "/etc/default/kubelet");
    let text = "RKE2_TOKEN=CANARY\nRKE2_NODE_NAME=a\nOTHER=x\n";
    write(&root, environment, text);
    let text = "token: 1234\nagent-token+: CANARY\nnode-label: [a=b, c=d]\nx: {y: z}\n";
    write(&root, RKE2, text);
    write(&root, RANCHER, r#"{"token":"CANARY"}"#);
    let text = "KUBELET_EXTRA_ARGS='--hostname-override=b --v 2'\n";
    write(&root, kubelet, text);
    let mut seen = Vec::new();
    let (found, _) = read_with(
        &root,
        Some(&mut |one: &Setting<'_>| {
            let values = one.values.join(" ");
            let path = one.path.display().to_string();
            seen.push([path, one.key.to_owned(), one.name.to_owned(), values]);
        }),
    );
    assert_eq!(
        seen,
        [
            [environment, "RKE2_TOKEN", "token", "CANARY"],
            [environment, "RKE2_NODE_NAME", "node-name", "a"],
            [RKE2, "token", "token", "1234"],
            [RKE2, "agent-token+", "agent-token", "CANARY"],
            [RKE2, "node-label", "node-label", "a=b c=d"],
            [RANCHER, "token", "token", "CANARY"],
            [kubelet, "--hostname-override", "hostname-override", "b"],
            [kubelet, "--v", "v", "2"],
        ]
    );
    assert_eq!(found, read_distribution(&root).0);
    assert!(!format!("{found:?}").contains("CANARY"));
}
