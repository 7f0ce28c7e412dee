// SPDX-License-Identifier: Apache-2.0

use super::super::testing::{DAY, NOW, Room};
use super::*;
use crate::commands::bake_check::unit::UnitFile;
use crate::facts::Fact;
use crate::facts::guest_agent::Enablement;

#[test]
fn what_is_older_than_the_machine_came_with_the_image() {
    for (written, is_inherited) in [
        (-30 * DAY, true),
        (-2 * 3600, true),
        (-60, false),
        (60, false),
    ] {
        let mut room = Room::new();
        room.examination.node.created = Fact::Known(NOW + 120);
        room.examination.image.began = Fact::Known(NOW);
        room.examination.image.belongings = Fact::Known(vec![Belonging {
            path: "/etc/machine-id".into(),
            written: NOW + written,
        }]);
        let expected: &[Code] = if is_inherited {
            &[Code::IdentityFromImage]
        } else {
            &[]
        };
        assert_eq!(room.codes(findings), expected, "{written}");
        // Without cloud-init, the age of the machine is unknown.
        room.examination.image.began = Fact::Absent;
        assert_eq!(room.codes(findings), []);
    }
}

#[test]
fn a_node_that_is_older_than_the_first_boot_is_not_accused() {
    let mut room = Room::new();
    room.examination.image.began = Fact::Known(NOW);
    room.examination.image.belongings = Fact::Known(vec![Belonging {
        path: "/etc/machine-id".into(),
        written: NOW - 30 * DAY,
    }]);
    let destroys = |finding: &Finding| {
        let fix = finding.remedy();
        fix.contains("drain") || fix.contains("recreate")
    };
    // After `cloud-init clean` and a reboot.
    room.examination.node.created = Fact::Known(NOW - 29 * DAY);
    assert_eq!(room.codes(findings), []);
    // It is unknown when the Node registered.
    room.examination.node.created = Fact::Absent;
    let found = room.ask(findings);
    assert!(!destroys(&found[0]), "{}", found[0].remedy());
    assert!(found[0].commands()[0].text.starts_with("sha256sum "));
    room.examination.node.created = Fact::Known(NOW + 120);
    let found = room.ask(findings);
    assert!(destroys(&found[0]), "{}", found[0].remedy());
    assert!(found[0].fix()[0].starts_with("Compare "), "first the proof");
}

#[test]
fn a_unit_that_the_next_boot_does_not_start_is_reported() {
    for (enablement, is_masked, is_reported) in [
        (Enablement::Enabled, false, false),
        (Enablement::Static, false, false),
        (Enablement::Disabled, false, true),
        (Enablement::Enabled, true, true),
    ] {
        let mut room = Room::new();
        room.examination.image.unit = Fact::Known(UnitFile {
            name: "harvester-node-agent.service".to_owned(),
            is_masked,
            enablement,
        });
        let expected: &[Code] = if is_reported {
            &[Code::AgentNotEnabled]
        } else {
            &[]
        };
        assert_eq!(room.codes(findings), expected, "{enablement:?} {is_masked}");
    }
}
