// SPDX-License-Identifier: Apache-2.0
//! Checks the permissions to follow the VM. If the search is permitted, it can hide that `get` or `watch` is not.

use super::Case;
use crate::catalog::{Code, CommandPlace, Finding};
use crate::commands::doctor::facts::pods::PodOrigin;
use crate::commands::rbac::permissions::{INSTANCES, Permission};
use crate::config::WatchMode;
use crate::facts::Fact;
use crate::facts::names::ServiceAccount;

/// Returns the missing permissions that nothing replaces. A request that was forbidden in the round has its own finding.
pub fn findings(case: &Case<'_>) -> Vec<Finding> {
    if case.observation.candidates.known().is_none() {
        return Vec::new();
    }
    let permissions = case.examination.permissions.iter();
    permissions
        .filter_map(|permission| finding(case, permission))
        .chain(csi_driver(case))
        .collect()
}

/// Returns a finding if the CSI driver on this Node uses the same credential, but the credential does not have its role.
fn csi_driver(case: &Case<'_>) -> Option<Finding> {
    let driver = case.examination.pods.csi_driver.known()?;
    let (PodOrigin::Pod(pod), Fact::Known(false)) =
        (&driver.origin, &case.examination.credentials.csi_role)
    else {
        return None;
    };
    let text = format!(
        "pod {pod} runs here, but the credential cannot get storageclasses.storage.k8s.io on Harvester"
    );
    let finding = Finding::new(Code::CsiDriverForbidden, text);
    let harvester = case.observation.harvester.known();
    let user = harvester.and_then(|harvester| harvester.account.as_deref());
    let Some(account) = user.and_then(ServiceAccount::of_user) else {
        return Some(finding);
    };
    let command = format!(
        "kubectl create clusterrolebinding {}-{} --clusterrole=harvesterhci.io:csi-driver --serviceaccount={account}",
        account.namespace, account.name
    );
    Some(finding.and_command(CommandPlace::Harvester, command))
}

fn finding(case: &Case<'_>, permission: &Permission) -> Option<Finding> {
    let useful = permission.useful;
    if permission.allowed != Fact::Known(false) || useful.resource != INSTANCES {
        return None;
    }
    let code = match useful.verb {
        "get" => Code::HarvesterForbidden,
        "watch" if case.settings.mode == WatchMode::Watch => Code::WatchUnavailable,
        _ => return None,
    };
    let seen = format!(
        "the credential cannot {} {}.{}: {}",
        useful.verb, useful.resource, useful.group, useful.without
    );
    Some(Finding::new(code, seen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::judge::fixtures::{codes, component, unseen};
    use crate::commands::rbac::permissions::USEFUL;
    use crate::decide::fixtures::World;
    use crate::facts::{Unavailable, UnavailableKind};

    /// Returns all permissions except one verb on the VM.
    fn without(verb: &str) -> Vec<Permission> {
        let all = USEFUL.iter();
        all.map(|useful| Permission {
            useful,
            allowed: Fact::Known(useful.resource != INSTANCES || useful.verb != verb),
        })
        .collect()
    }

    #[test]
    fn a_right_that_nothing_makes_up_for_is_missed() {
        let mut world = World::new();
        let mut examination = unseen();
        for (verb, expected) in [
            ("get", vec![Code::HarvesterForbidden]),
            ("watch", vec![Code::WatchUnavailable]),
            ("list", vec![]),
            ("delete", vec![]),
        ] {
            examination.permissions = without(verb);
            assert_eq!(codes(&world, &examination, findings), expected, "{verb}");
        }
        examination.permissions = without("watch");
        world.settings.mode = WatchMode::Signals;
        assert_eq!(codes(&world, &examination, findings), []);
    }

    #[test]
    fn a_csi_driver_that_runs_here_needs_its_role_and_one_that_does_not_needs_none() {
        let world = World::new();
        let mut examination = unseen();
        examination.pods.csi_driver = component("v0.2.4");
        assert_eq!(codes(&world, &examination, findings), [], "not known");
        examination.credentials.csi_role = Fact::Known(true);
        assert_eq!(codes(&world, &examination, findings), []);
        examination.credentials.csi_role = Fact::Known(false);
        assert_eq!(
            codes(&world, &examination, findings),
            [Code::CsiDriverForbidden]
        );
        examination.pods.csi_driver = Fact::Absent;
        assert_eq!(codes(&world, &examination, findings), []);
    }

    #[test]
    fn what_the_round_was_refused_is_not_said_twice() {
        let mut world = World::new();
        world.observation.candidates =
            Fact::Failed(Unavailable::new(UnavailableKind::Forbidden, "403"));
        let mut examination = unseen();
        examination.permissions = without("get");
        assert_eq!(codes(&world, &examination, findings), []);
    }
}
