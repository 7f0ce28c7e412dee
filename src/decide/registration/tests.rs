// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::catalog::Code;
use crate::config::OnChange;
use crate::decide::fixtures::World;
use crate::decide::{Action, Plan, Write};
use crate::facts::distribution::{Distribution, DistributionKind, StaticLabel};
use crate::facts::topology::ZONE_BETA;
use crate::facts::{Fact, UnavailableKind};

const HOST: &str = "topology.harvesterhci.io/host";

fn wanted(zone: &str, host: &str) -> Labels {
    [(REGION, "eu-1"), (ZONE, zone), (HOST, host)]
        .map(|(key, value)| (key.to_owned(), LabelValue::parse(value).unwrap()))
        .into()
}

fn file(kind: LabelFileKind, content: LabelFileContent) -> LabelFile {
    LabelFile {
        kind,
        content,
        hidden_by: None,
    }
}

fn ours(kind: LabelFileKind, labels: &Labels) -> LabelFile {
    file(kind, LabelFileContent::Ours(text(kind, labels)))
}

/// Creates a world that registers its Node with labels, with one file of ours that contains rack-a.
fn world() -> World {
    let mut world = World::new();
    world.settings.registration.node_labels = true;
    world.observation.label_files = vec![ours(LabelFileKind::Rke2, &wanted("rack-a", "hv-a"))];
    world.settle();
    world
}

/// Returns the changes of files in a plan.
fn edits(plan: &Plan) -> Vec<FileChange> {
    let edits = plan.actions.iter().filter_map(|action| match action {
        Action::EditLabelFile(change) => Some(change.clone()),
        _ => None,
    });
    edits.collect()
}

/// Returns the changes of files that a world plans.
fn world_edits(world: &World) -> Vec<FileChange> {
    edits(&world.plan())
}

/// Returns the new text of the file, if it changes.
fn changed(world: &World) -> Option<Option<String>> {
    let changes = world_edits(world);
    changes.into_iter().next().map(|change| match change.edit {
        Edit::Write(text) => Some(text),
        Edit::Remove => None,
        Edit::Reload => panic!("nothing but a reload"),
    })
}

fn to(zone: &str, host: &str) -> Option<Option<String>> {
    Some(Some(text(LabelFileKind::Rke2, &wanted(zone, host))))
}

fn codes(world: &World) -> Vec<Code> {
    let findings = world.plan().findings;
    findings.iter().map(|finding| finding.code).collect()
}

#[test]
fn a_node_that_is_not_there_yet_gets_what_the_host_says() {
    for kubelet in [UnavailableKind::Missing, UnavailableKind::Credential] {
        let mut world = world();
        world.observation.kubelet = Fact::failed(kubelet, "none");
        world.observation.node = Fact::failed(UnavailableKind::NotAsked, "none");
        let labels = world.plan().registration.labels;
        let expected = (kubelet == UnavailableKind::Missing).then(|| wanted("rack-a", "hv-a"));
        assert_eq!(labels, expected, "{kubelet:?}");
    }
    let mut world = world();
    world.observation.node = Fact::Absent;
    world.migrate("hv-b", "eu-1", "rack-b");
    assert_eq!(changed(&world), to("rack-b", "hv-b"));
}

#[test]
fn the_file_changes_in_the_same_plan_as_the_node_and_then_rests() {
    let mut world = world();
    assert_eq!(changed(&world), None);
    world.migrate("hv-b", "eu-1", "rack-b");
    let plan = world.plan();
    let [Action::EditLabelFile(_), Action::PatchNode(_)] = plan.actions.as_slice() else {
        panic!("{:?}", plan.actions)
    };
    assert_eq!(changed(&world), to("rack-b", "hv-b"));
    world.apply(&plan);
    assert_eq!(changed(&world), None);
}

#[test]
fn a_held_node_is_held_by_its_file_too() {
    let mut world = world();
    world.settings.topology.on_change = OnChange::Hold;
    world.migrate("hv-b", "eu-1", "rack-b");
    // The host label follows the VM: volumes do not depend on it.
    assert_eq!(changed(&world), to("rack-a", "hv-b"));
}

#[test]
fn what_is_not_known_changes_no_file() {
    let mut unread = world();
    unread.migrate("hv-b", "eu-1", "rack-b");
    unread.observation.node = Fact::failed(UnavailableKind::Unreachable, "timeout");
    assert_eq!(changed(&unread), None);
    let mut lost = world();
    lost.observation.candidates = Fact::failed(UnavailableKind::Unreachable, "timeout");
    lost.memory = crate::decide::Memory::default();
    assert_eq!(changed(&lost), None);
}

#[test]
fn switched_off_only_our_own_file_goes() {
    let off: [fn(&mut World); 2] = [
        |world| world.settings.registration.node_labels = false,
        |world| world.settings.topology.on_change = OnChange::Report,
    ];
    for switch in off {
        let mut world = world();
        let other = file(
            LabelFileKind::K3s,
            LabelFileContent::Foreign("other".to_owned()),
        );
        world.observation.label_files.push(other);
        switch(&mut world);
        let changes = world_edits(&world);
        let kinds: Vec<_> = changes.iter().map(|change| change.kind).collect();
        assert_eq!(
            (kinds, changed(&world)),
            (vec![LabelFileKind::Rke2], Some(None))
        );
    }
}

#[test]
fn the_daemon_makes_no_file_and_touches_none_of_others() {
    let mut world = world();
    world.migrate("hv-b", "eu-1", "rack-b");
    world.observation.label_files = Vec::new();
    assert_eq!(changed(&world), None);
    let other = file(
        LabelFileKind::Rke2,
        LabelFileContent::Foreign("other".to_owned()),
    );
    world.observation.label_files = vec![other.clone()];
    assert_eq!(changed(&world), None);
    assert!(codes(&world).contains(&Code::LabelFileNotManaged));
    let labels = wanted("rack-b", "hv-b");
    assert_eq!(
        first_files(&[LabelFileKind::Rke2], &[other], &labels, false),
        []
    );
}

#[test]
fn the_first_files_are_written_where_there_are_none_or_old_ones() {
    let (old, new) = (wanted("rack-a", "hv-a"), wanted("rack-b", "hv-b"));
    let kinds = [LabelFileKind::K3s, LabelFileKind::Kubelet];
    let present = [
        ours(LabelFileKind::K3s, &old),
        ours(LabelFileKind::Kubelet, &new),
    ];
    let written = first_files(&kinds, &present, &new, false);
    let written: Vec<_> = written.iter().map(|change| change.kind).collect();
    assert_eq!(written, [LabelFileKind::K3s]);
    assert_eq!(first_files(&kinds, &[], &new, false).len(), 2);
    let hidden = first_files(&kinds, &present, &new, true);
    assert_eq!(hidden.len(), 2);
    assert_eq!(
        hidden[1].edit,
        Edit::Write(text(LabelFileKind::Kubelet, &Labels::new()))
    );
}

#[test]
fn while_another_file_sets_the_arguments_our_drop_in_says_nothing() {
    let mut world = world();
    let labels = wanted("rack-a", "hv-a");
    let mut kubelet = ours(LabelFileKind::Kubelet, &labels);
    world.observation.label_files = vec![kubelet.clone()];
    assert_eq!(world_edits(&world), []);
    kubelet.hidden_by = Some("/usr/lib/systemd/system/kubelet.service".into());
    world.observation.label_files = vec![kubelet.clone()];
    let empty = text(LabelFileKind::Kubelet, &Labels::new());
    let changes = world_edits(&world);
    assert_eq!(changes[0].edit, Edit::Write(empty.clone()));
    kubelet.content = LabelFileContent::Ours(empty);
    world.observation.label_files = vec![kubelet.clone()];
    assert_eq!(world_edits(&world), []);
    kubelet.hidden_by = None;
    world.observation.label_files = vec![kubelet];
    let changes = world_edits(&world);
    let expected = Edit::Write(text(LabelFileKind::Kubelet, &labels));
    assert_eq!(changes[0].edit, expected);
}

#[test]
fn the_texts_are_what_the_distributions_read() {
    let labels = wanted("rack-a", "hv-a");
    let pairs = "topology.harvesterhci.io/host=hv-a|topology.kubernetes.io/region=eu-1|topology.kubernetes.io/zone=rack-a";
    let yaml = text(LabelFileKind::Rke2, &labels);
    assert!(yaml.starts_with(MARK));
    let value: serde_json::Value = yaml_serde::from_str(&yaml).unwrap();
    let list: Vec<&str> = pairs.split('|').collect();
    assert_eq!(value, serde_json::json!({ "node-label+": list }));
    let unit = text(LabelFileKind::Kubelet, &labels);
    let arguments = pairs.replace('|', ",");
    let last = format!("[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--node-labels={arguments}\"\n");
    assert!(unit.starts_with(MARK) && unit.ends_with(&last), "{unit}");
    for kind in LabelFileKind::ALL {
        let empty = text(kind, &Labels::new());
        assert!(empty.lines().all(|line| line.starts_with('#')), "{empty}");
    }
}

#[test]
fn older_twins_are_not_registered() {
    let mut world = world();
    let node = world.node();
    node.labels
        .insert(ZONE_BETA.to_owned(), "rack-a".to_owned());
    let labels = world.plan().registration.labels.unwrap();
    assert!(!labels.contains_key(ZONE_BETA));
}

#[test]
fn a_file_that_has_no_effect_or_cannot_be_written_is_reported() {
    let mut world = world();
    world.memory.unwritten_file = Some("read-only".to_owned());
    assert!(
        !codes(&world).contains(&Code::LabelFileNotWritten),
        "all is as it should be"
    );
    world.migrate("hv-b", "eu-1", "rack-b");
    assert!(codes(&world).contains(&Code::LabelFileNotWritten));
    let mut kubelet = ours(LabelFileKind::Kubelet, &wanted("rack-a", "hv-a"));
    kubelet.hidden_by = Some("/etc/default/kubelet".into());
    world.observation.label_files = vec![kubelet];
    let findings = world.plan().findings;
    let hidden = |finding: &&Finding| finding.code == Code::LabelFileWithoutEffect;
    let finding = findings.iter().find(hidden).unwrap();
    assert!(finding.remedy().contains("sed -i"), "{}", finding.remedy());
}

#[test]
fn our_own_file_is_no_static_label_and_any_other_is() {
    let label = |origin: &Path| StaticLabel {
        key: ZONE.to_owned(),
        value: "rack-a".to_owned(),
        origin: origin.to_owned(),
    };
    let mut world = world();
    world.settings.topology.on_change = OnChange::Hold;
    world.migrate("hv-b", "eu-1", "rack-b");
    let path = LabelFileKind::Rke2.path();
    for (origin, is_ours) in [
        (path, true),
        (Path::new("/etc/rancher/rke2/config.yaml"), false),
    ] {
        let mut rke2 = Distribution::new(DistributionKind::Rke2);
        rke2.node_labels = vec![label(origin)];
        world.observation.distributions = vec![rke2];
        assert_eq!(codes(&world).contains(&Code::StaticNodeLabel), !is_ours);
    }
    // Without our mark, the file is treated like any other.
    let other = file(
        LabelFileKind::Rke2,
        LabelFileContent::Foreign("other".to_owned()),
    );
    world.observation.label_files = vec![other];
    let mut rke2 = Distribution::new(DistributionKind::Rke2);
    rke2.node_labels = vec![label(path)];
    world.observation.distributions = vec![rke2];
    assert!(codes(&world).contains(&Code::StaticNodeLabel));
}

/// Creates a world with the state of the kubelet's unit in systemd; its drop-in is up to date.
fn known_to_systemd(needs_reload: bool, is_listed: bool) -> World {
    let mut world = world();
    world.observation.label_files = vec![ours(LabelFileKind::Kubelet, &wanted("rack-a", "hv-a"))];
    world.observation.drop_in = Some(DropIn {
        needs_reload,
        is_listed,
    });
    world
}

fn reload() -> Vec<FileChange> {
    vec![FileChange {
        kind: LabelFileKind::Kubelet,
        edit: Edit::Reload,
    }]
}

#[test]
fn a_missed_reload_of_systemd_is_repeated() {
    for is_listed in [false, true] {
        let world = known_to_systemd(true, is_listed);
        assert_eq!(world_edits(&world), reload());
    }
    assert_eq!(world_edits(&known_to_systemd(false, true)), []);
    // A removed file of ours is known to systemd as long as it is listed. Files of other writers are ignored.
    for (is_listed, expected) in [(true, reload()), (false, Vec::new())] {
        let mut world = known_to_systemd(true, is_listed);
        world.observation.label_files = Vec::new();
        assert_eq!(world_edits(&world), expected);
    }
}

#[test]
fn the_node_is_written_before_systemd_reloads_the_drop_in() {
    for needs_reload in [false, true] {
        let mut world = known_to_systemd(needs_reload, true);
        world.migrate("hv-b", "eu-1", "rack-b");
        let plan = world.plan();
        let [
            Action::EditLabelFile(edit),
            Action::PatchNode(_),
            Action::EditLabelFile(last),
        ] = plan.actions.as_slice()
        else {
            panic!("{:?}", plan.actions)
        };
        let expected = text(LabelFileKind::Kubelet, &wanted("rack-b", "hv-b"));
        assert_eq!(edit.edit, Edit::Write(expected));
        assert!(last.is_reload());
    }
}

#[test]
fn a_reload_that_changes_nothing_is_not_repeated_at_once_and_its_failure_stays_known() {
    let mut world = known_to_systemd(true, true);
    world.memory = world.plan().memory;
    world.memory.unwritten_file = Some("no answer on the system bus".to_owned());
    world.uptime += RELOAD_PAUSE / 2;
    let plan = world.plan();
    assert_eq!(edits(&plan), []);
    assert!(plan.memory.unwritten_file.is_some());
    world.uptime += RELOAD_PAUSE;
    assert_eq!(world_edits(&world), reload());
    world.observation.drop_in = None;
    assert_eq!(world.plan().memory.unwritten_file, None);
}

/// A round ends with the patch of the Node, so systemd reloads in the next one.
#[test]
fn each_of_two_migrations_within_the_pause_is_loaded_by_systemd() {
    let mut world = known_to_systemd(false, true);
    for (host, zone) in [("hv-b", "rack-b"), ("hv-a", "rack-a")] {
        world.migrate(host, "eu-1", zone);
        let plan = world.plan();
        assert_eq!(plan.actions[1].write(), Write::Node);
        world.apply(&plan);
        for (needs_reload, expected) in [(true, reload()), (false, Vec::new())] {
            world.observation.drop_in = Some(DropIn {
                needs_reload,
                is_listed: true,
            });
            let plan = world.plan();
            assert_eq!(edits(&plan), expected, "{host}");
            world.apply(&plan);
        }
        world.uptime += RELOAD_PAUSE / 10;
    }
}
