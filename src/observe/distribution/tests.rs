// SPDX-License-Identifier: Apache-2.0
use super::*;

const RKE2: &str = "/etc/rancher/rke2/config.yaml";

const RANCHER: &str = "/etc/rancher/rke2/config.yaml.d/50-rancher.yaml";

fn read(files: &[(&str, &str)]) -> (Vec<Distribution>, Vec<DistributionProblem>) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    for (path, text) in files {
        let real = root.join(path);
        std::fs::create_dir_all(real.parent().unwrap()).unwrap();
        std::fs::write(real, text).unwrap();
    }
    read_distribution(&root)
}

fn one(files: &[(&str, &str)]) -> Distribution {
    let (mut distributions, problems) = read(files);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(distributions.len(), 1, "{distributions:?}");
    distributions.pop().unwrap()
}

fn labels(distribution: &Distribution) -> Vec<(&str, &str, &str)> {
    distribution
        .node_labels
        .iter()
        .map(|label| {
            let file = label.origin.file_name().unwrap().to_str().unwrap();
            (label.key.as_str(), label.value.as_str(), file)
        })
        .collect()
}

#[test]
fn nothing_is_found_on_an_empty_machine() {
    let (distributions, problems) = read(&[("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\n")]);
    assert!(distributions.is_empty() && problems.is_empty());
}

#[test]
fn ranchers_json_drop_in_is_read() {
    let rancher = r#"{"agent-token":"CANARY","cloud-provider-config":"/data/rke2/etc/config-files/cloud-provider-config",
        "cloud-provider-name":"harvester","data-dir":"/data/rke2","node-label":["rke.cattle.io/machine=1","a=b"],"node-name":"pool1-abcde","token":"CANARY"}"#;
    let found = one(&[(RANCHER, rancher)]);
    assert_eq!(found.kind, DistributionKind::Rke2);
    assert_eq!(found.data_dir, Path::new("/data/rke2"));
    assert_eq!(found.configured_node_name(), Some("pool1-abcde"));
    assert_eq!(found.cloud_provider_name.as_deref(), Some("harvester"));
    let config = found.cloud_provider_config.clone().unwrap();
    assert_eq!(config.origin, Path::new(RANCHER));
    assert_eq!(
        config.value,
        Path::new("/data/rke2/etc/config-files/cloud-provider-config")
    );
    let origin = "50-rancher.yaml";
    assert_eq!(
        labels(&found),
        [("rke.cattle.io/machine", "1", origin), ("a", "b", origin)]
    );
    assert!(!format!("{found:?}").contains("CANARY"));
}

#[test]
fn later_files_replace_and_a_plus_adds() {
    let base = "node-label: a=1,b=2\nnode-name: old\nwith-node-id: true\n";
    let found = one(&[
        (RKE2, base),
        (
            "/etc/rancher/rke2/config.yaml.d/10-a.yml",
            "node-label+: [c=3, a=9]\n",
        ),
        (
            "/etc/rancher/rke2/config.yaml.d/20-b.yaml",
            "node-name: 12345\n",
        ),
        (
            "/etc/rancher/rke2/config.yaml.d/30-c.yaml.bak",
            "node-name: not-this\n",
        ),
    ]);
    assert_eq!(
        labels(&found),
        [
            ("b", "2", "config.yaml"),
            ("c", "3", "10-a.yml"),
            ("a", "9", "10-a.yml")
        ]
    );
    assert_eq!(found.configured_node_name(), Some("12345"));
    assert!(found.with_node_id);
    let replaced = one(&[
        (RKE2, base),
        (
            "/etc/rancher/rke2/config.yaml.d/10-a.yaml",
            "node-label: z=1\n",
        ),
    ]);
    assert_eq!(labels(&replaced), [("z", "1", "10-a.yaml")]);
}

#[test]
fn what_is_handed_to_the_kubelet_counts_more_than_the_distributions_own_settings() {
    let zone = "topology.kubernetes.io/zone";
    let own = format!("node-name: a\nnode-label:\n- {zone}=x\n- a=b\n");
    let handed = format!(
        "kubelet-arg:\n- max-pods=200\n- node-labels={zone}=y,c=d\nkubelet-arg+: [\"--hostname-override=b\"]\n"
    );
    let found = one(&[(RKE2, &own), (RANCHER, &handed)]);
    assert_eq!(found.configured_node_name(), Some("b"));
    assert_eq!(
        labels(&found),
        [
            ("a", "b", "config.yaml"),
            ("c", "d", "50-rancher.yaml"),
            (zone, "y", "50-rancher.yaml"),
        ]
    );
}

#[test]
fn ten_thousands_of_labels_are_read() {
    // With quadratic time, this would take minutes.
    let many: Vec<String> = (0..100_000).map(|number| format!("l{number}=x")).collect();
    let config = format!("node-label: \"{}\"\n", many.join(","));
    assert_eq!(one(&[(RKE2, &config)]).node_labels.len(), 100_000);
}

#[test]
fn the_environment_counts_less_than_the_configuration() {
    let agent = (
        "/etc/systemd/system/k3s-agent.service.env",
        "K3S_TOKEN='CANARY'\nK3S_DATA_DIR=\"/srv/k3s\"\nK3S_NODE_NAME=from-env\n",
    );
    let found = one(&[agent]);
    assert_eq!(found.kind, DistributionKind::K3s);
    assert_eq!(found.data_dir, Path::new("/srv/k3s"));
    assert_eq!(found.node_name.as_ref().unwrap().origin, Path::new(agent.0));
    let config = ("/etc/rancher/k3s/config.yaml", "node-name: from-config\n");
    let found = one(&[agent, config]);
    assert_eq!(found.configured_node_name(), Some("from-config"));
    assert_eq!(found.data_dir, Path::new("/srv/k3s"));
    for path in RKE2_ENVIRONMENT {
        let found = one(&[(path, "RKE2_DATA_DIR=/data")]);
        assert_eq!(found.kind, DistributionKind::Rke2);
        assert_eq!(found.data_dir, Path::new("/data"));
    }
    let moved = one(&[
        ("/etc/default/rke2-agent", "RKE2_CONFIG_FILE=/opt/rke2.yaml"),
        ("/opt/rke2.yaml.d/1.yaml", "node-name: moved"),
    ]);
    assert_eq!(moved.configured_node_name(), Some("moved"));
}

#[test]
fn kubelet_flags_are_read() {
    let found = one(&[
        (
            KUBEADM_FLAGS,
            "KUBELET_KUBEADM_ARGS=\"--hostname-override=a --node-labels=x=1,y=2\"\n",
        ),
        (
            "/etc/default/kubelet",
            "KUBELET_EXTRA_ARGS=--node-labels y=3 --hostname-override b\n",
        ),
    ]);
    assert_eq!(found.kind, DistributionKind::Kubeadm);
    assert_eq!(found.configured_node_name(), Some("b"));
    assert_eq!(
        labels(&found),
        [("x", "1", "kubeadm-flags.env"), ("y", "3", "kubelet")]
    );
    let by_hand = one(&[(
        "/etc/default/kubelet",
        "KUBELET_EXTRA_ARGS=--hostname-override=c\n",
    )]);
    assert_eq!(by_hand.kind, DistributionKind::Unknown);
}

#[test]
fn a_file_that_sets_labels_is_watched() {
    let watched: Vec<PathBuf> = watched().collect();
    for (path, text) in [
        (RKE2, "node-label: a=b"),
        (RANCHER, "node-label: a=b"),
        ("/etc/rancher/k3s/config.yaml", "node-label: a=b"),
        (KUBEADM_FLAGS, "KUBELET_KUBEADM_ARGS=--node-labels=a=b"),
        (
            "/etc/default/kubelet",
            "KUBELET_EXTRA_ARGS=--node-labels=a=b",
        ),
        (
            "/etc/sysconfig/kubelet",
            "KUBELET_EXTRA_ARGS=--node-labels=a=b",
        ),
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
fn several_distributions_are_all_named() {
    let (distributions, _) = read(&[
        (RKE2, ""),
        ("/etc/rancher/k3s/config.yaml", "{}"),
        (KUBEADM_KUBECONFIG, ""),
        (RKE1_KUBECONFIG, ""),
    ]);
    let kinds: Vec<_> = distributions.iter().map(|one| one.kind).collect();
    assert_eq!(
        kinds,
        [
            DistributionKind::Rke2,
            DistributionKind::K3s,
            DistributionKind::Kubeadm,
            DistributionKind::Rke1
        ]
    );
    assert_eq!(distributions[1].data_dir, Path::new("/var/lib/rancher/k3s"));
}

#[test]
fn a_broken_file_is_named_and_the_others_still_count() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    let folder = "/etc/rancher/rke2/config.yaml.d";
    std::fs::create_dir_all(root.join(folder)).unwrap();
    for (name, text) in [
        ("10.yaml", "token: [CANARY"),
        ("20.yaml", "- CANARY"),
        ("30.yaml", "node-name: {a: CANARY}\ndata-dir: /data"),
        ("40.yaml", "node-label: [a=b, [CANARY]]"),
        ("60.yaml", "node-name: good"),
        ("70.yaml", "data-dir: relative"),
    ] {
        std::fs::write(root.join(folder).join(name), text).unwrap();
    }
    std::fs::create_dir(root.join(folder).join("50.yaml")).unwrap();
    std::fs::write(root.join(folder).join("65.yaml"), [0xff, 0xfe, 0x00]).unwrap();
    let (distributions, problems) = read_distribution(&root);
    assert_eq!(distributions[0].configured_node_name(), Some("good"));
    assert_eq!(problems.len(), 6, "{problems:?}");
    for (problem, name) in problems.iter().zip([
        "10.yaml", "20.yaml", "30.yaml", "40.yaml", "50.yaml", "65.yaml",
    ]) {
        let cause = std::error::Error::source(problem).map(ToString::to_string);
        let said = format!("{problem} {problem:?} {cause:?}");
        assert!(said.contains(name), "{name}: {said}");
        assert!(!said.contains("CANARY"), "{said}");
    }
}

#[test]
fn each_setting_of_each_file_is_passed_on_and_no_secret_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    let environment = "/etc/default/rke2-server";
    let kubelet = "/etc/default/kubelet";
    for (path, text) in [
        (
            environment,
            "RKE2_TOKEN=CANARY\nRKE2_NODE_NAME=a\nOTHER=x\n",
        ),
        (
            RKE2,
            "token: 1234\nagent-token+: CANARY\nnode-label: [a=b, c=d]\nx: {y: z}\n",
        ),
        (RANCHER, r#"{"token":"CANARY"}"#),
        (
            kubelet,
            "KUBELET_EXTRA_ARGS='--hostname-override=b --v 2'\n",
        ),
    ] {
        let real = root.join(path);
        std::fs::create_dir_all(real.parent().unwrap()).unwrap();
        std::fs::write(real, text).unwrap();
    }
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

#[test]
fn the_labels_of_the_agents_own_file_are_not_a_setting_of_the_distribution() {
    let path = "/etc/rancher/rke2/config.yaml.d/90-harvester-node-agent.yaml";
    let text = "node-label+:\n- \"a=1\"\n";
    let ours = format!("{MARK} ([registration] node_labels).\n{text}");
    assert_eq!(labels(&one(&[(RKE2, "{}"), (path, &ours)])), []);
    // Without the first line, the file is that of an administrator.
    let found = one(&[(RKE2, "{}"), (path, text)]);
    let expected = ("a", "1", "90-harvester-node-agent.yaml");
    assert_eq!(labels(&found), [expected]);
    // So is a copy of it.
    let other = "/etc/rancher/rke2/config.yaml.d/91-copy.yaml";
    let found = one(&[(RKE2, "{}"), (other, &ours)]);
    assert_eq!(labels(&found), [("a", "1", "91-copy.yaml")]);
}
