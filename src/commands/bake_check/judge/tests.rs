// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::commands::bake_check::facts::{ImageTextFile, Pinned, Trace, UnitFile, Unreadable};
use crate::facts::distribution::{Form, Matter, Unshareable};
use crate::facts::guest_agent::Family;

fn service(name: &str) -> Service {
    Service {
        has_program: true,
        unit: Some(UnitFile {
            name: name.to_owned(),
            is_masked: false,
            enablement: Enablement::Enabled,
        }),
    }
}

fn clean() -> Image {
    Image {
        traces: Vec::new(),
        machine_ids: Vec::new(),
        hostname: None,
        default_hostnames: vec![String::new(), "debian".to_owned()],
        unshareable: Vec::new(),
        guest_agent: service("qemu-guest-agent.service"),
        agent: service("harvester-node-agent.service"),
        pinned: Vec::new(),
        configuration_faults: Vec::new(),
        unreadable: Vec::new(),
        family: Family::Debian,
    }
}

fn file(path: &str, text: &str) -> ImageTextFile {
    ImageTextFile {
        place: path.into(),
        text: text.to_owned(),
    }
}

/// Returns the commands for a mounted tree.
fn remedies(image: &Image) -> Vec<String> {
    let faults = judge(image, &ImageTree::new("/mnt"));
    faults.into_iter().map(|fault| fault.remedy).collect()
}

#[test]
fn names_that_any_machine_may_have_pass() {
    for (name, passes) in [
        ("", true),
        ("localhost", true),
        ("localhost.localdomain", true),
        ("debian", true),
        ("ubuntu", false),
        ("worker-1", false),
        ("# managed by puppet\nlocalhost", true),
        ("# managed by puppet\nworker-1", false),
        ("# worker-1", true),
        ("node-????-????", true),
        ("web-$", true),
    ] {
        let hostname = Some(file("/etc/hostname", name));
        let image = Image {
            hostname,
            ..clean()
        };
        assert_eq!(remedies(&image).is_empty(), passes, "{name}");
    }
}

#[test]
fn a_machine_id_is_anything_but_nothing_and_uninitialized() {
    for (text, passes) in [
        ("", true),
        ("uninitialized", true),
        ("7d1a", false),
        ("x", false),
    ] {
        let machine_ids = vec![file("/etc/machine-id", text)];
        let image = Image {
            machine_ids,
            ..clean()
        };
        assert_eq!(remedies(&image).is_empty(), passes, "{text}");
    }
}

/// dbus-daemon rejects an empty ID; systemd initializes an empty machine-id, and an empty hostname is none.
#[test]
fn only_the_machine_id_of_dbus_is_removed_and_not_emptied() {
    for (path, command) in [
        ("/etc/machine-id", "truncate "),
        ("/var/lib/dbus/machine-id", "rm "),
    ] {
        let image = Image {
            machine_ids: vec![file(path, "7d1a")],
            ..clean()
        };
        let remedies = remedies(&image);
        assert!(remedies[0].starts_with(command), "{remedies:?}");
    }
    let image = Image {
        hostname: Some(file("/etc/hostname", "build-vm")),
        ..clean()
    };
    assert!(remedies(&image)[0].starts_with("truncate "));
}

#[test]
fn a_service_has_one_fault_at_most_and_that_is_the_first_in_its_way() {
    for (has_program, has_unit, is_masked, enablement, code) in [
        (true, true, false, Enablement::Enabled, None),
        (true, true, false, Enablement::Static, None),
        (
            true,
            true,
            false,
            Enablement::Disabled,
            Some(FaultCode::AgentNotEnabled),
        ),
        (
            true,
            true,
            true,
            Enablement::Disabled,
            Some(FaultCode::AgentMasked),
        ),
        (
            true,
            false,
            false,
            Enablement::Enabled,
            Some(FaultCode::AgentMissing),
        ),
        (
            false,
            true,
            true,
            Enablement::Disabled,
            Some(FaultCode::AgentMissing),
        ),
    ] {
        let name = "harvester-node-agent.service".to_owned();
        let unit = UnitFile {
            name,
            is_masked,
            enablement,
        };
        let unit = has_unit.then_some(unit);
        let agent = Service { has_program, unit };
        let faults = judge(&Image { agent, ..clean() }, &ImageTree::new("/"));
        let codes: Vec<FaultCode> = faults.iter().map(|fault| fault.code).collect();
        assert_eq!(codes, Vec::from_iter(code));
    }
}

#[test]
fn commands_apply_to_the_tree_from_outside_and_to_the_machine_from_inside() {
    let image = Image {
        traces: vec![
            Trace {
                code: FaultCode::Logs,
                place: "/var/log/pods".into(),
            },
            Trace {
                code: FaultCode::Logs,
                place: "/var/log/a b".into(),
            },
        ],
        pinned: vec![Pinned {
            key: "harvester.vm".to_owned(),
            path: "/etc/x.toml".into(),
            line: 3,
        }],
        unshareable: vec![(
            "/etc/rancher/k3s/config.yaml".into(),
            Unshareable {
                matter: Matter::Secret,
                key: "token".to_owned(),
                origin: "/etc/rancher/k3s/config.yaml".into(),
                form: Form::Other,
            },
        )],
        agent: Service {
            has_program: true,
            unit: None,
        },
        unreadable: [true, false]
            .map(|is_denied| Unreadable {
                line: "not read".to_owned(),
                path: "/etc/x.yaml".into(),
                is_denied,
            })
            .into(),
        ..clean()
    };
    assert_eq!(
        remedies(&image),
        [
            "dpkg --root=/mnt -i harvester-node-agent_*.deb",
            "sed -i '3s/^/#/' /mnt/etc/x.toml",
            "rm -rf /mnt/var/log/pods '/mnt/var/log/a b'",
            "rm -rf /mnt/etc/rancher/k3s/config.yaml",
            "sudo harvester-node-agent --root /mnt bake-check",
            "rm -rf /mnt/etc/x.yaml  # or correct it",
        ]
    );
    let live = judge(&image, &ImageTree::new("/"));
    let live: Vec<&str> = live.iter().map(|fault| fault.remedy.as_str()).collect();
    assert_eq!(
        live,
        [
            "apt-get install -y ./harvester-node-agent_*.deb",
            "sed -i '3s/^/#/' /etc/x.toml",
            "rm -rf /var/log/pods '/var/log/a b'",
            "rm -rf /etc/rancher/k3s/config.yaml",
            "sudo harvester-node-agent bake-check",
            "rm -rf /etc/x.yaml  # or correct it",
        ]
    );
}

#[test]
fn no_more_than_a_few_of_many_things_are_named_and_all_are_removed() {
    let path = |number: usize| format!("/var/log/journal/{number}").as_str().into();
    let traces = (0..20).map(|number| Trace {
        code: FaultCode::Logs,
        place: path(number),
    });
    let image = Image {
        traces: traces.collect(),
        ..clean()
    };
    let faults = judge(&image, &ImageTree::new("/mnt"));
    assert_eq!(faults.len(), 1);
    assert!(
        faults[0].seen.ends_with("/var/log/journal/7 and 12 more"),
        "{}",
        faults[0].seen
    );
    assert!(faults[0].remedy.ends_with("/mnt/var/log/journal/19"));
}
