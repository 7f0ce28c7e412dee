// SPDX-License-Identifier: Apache-2.0
//! Has the Harvester credential the permissions to follow the VM? If the search is permitted, it can hide that `get` or `watch` is
//! not.

use crate::catalog::{Code, Finding};
use crate::commands::doctor::case::{Case, Checked};
use crate::commands::doctor::reads::Reads;
use crate::commands::rbac::permissions::{INSTANCES, Permission};
use crate::facts::Fact;

/// Judges the access reviews.
pub(super) async fn check(reads: &Reads<'_>, checked: &mut Checked) {
    let permissions = reads.permissions.known();
    let permissions = permissions.map(Vec::as_slice).unwrap_or_default();
    let findings = judge(&reads.case, permissions);
    checked.findings.extend(findings);
}

/// Returns the missing permissions that nothing replaces. A request that was forbidden in the round has its own finding.
fn judge(case: &Case<'_>, permissions: &[Permission]) -> Vec<Finding> {
    if case.observation.candidates.known().is_none() {
        return Vec::new();
    }
    let missing = permissions.iter().filter_map(|permission| {
        let useful = permission.useful;
        if permission.allowed != Fact::Known(false) || useful.resource != INSTANCES {
            return None;
        }
        let code = match useful.verb {
            "get" => Code::HarvesterForbidden,
            "watch" => Code::WatchUnavailable,
            _ => return None,
        };
        let seen = format!(
            "the credential cannot {} {}.{}: {}",
            useful.verb, useful.resource, useful.group, useful.without
        );
        Some(Finding::new(code, seen))
    });
    missing.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::testing::Bench;
    use crate::commands::rbac::permissions::USEFUL;
    use crate::facts::UnavailableKind;

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
        let mut bench = Bench::new();
        for (verb, expected) in [
            ("get", vec![Code::HarvesterForbidden]),
            ("watch", vec![Code::WatchUnavailable]),
            ("list", vec![]),
            ("delete", vec![]),
        ] {
            let codes = bench.codes(|case| judge(case, &without(verb)));
            assert_eq!(codes, expected, "{verb}");
        }
        // What the round was refused is not said twice.
        bench.world.observation.candidates = Fact::failed(UnavailableKind::Forbidden, "403");
        assert_eq!(bench.codes(|case| judge(case, &without("get"))), []);
    }
}
