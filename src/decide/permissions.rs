// SPDX-License-Identifier: Apache-2.0
//! The minimal roles on Harvester that allow the requests of the agent.

use std::collections::BTreeSet;

use crate::config::{ConfigMapName, WatchMode};
use crate::facts::names::{Namespace, ServiceAccount, VmName};
use crate::facts::permissions::{
    INSTANCES, PermissionPlace, PermissionUse, USEFUL, VIRTUAL_MACHINES,
};
use crate::facts::placement::Source;

/// The permissions to grant, and the account that gets them.
#[derive(Debug, Clone)]
pub struct WantedRule {
    /// The service account.
    pub account: ServiceAccount,
    /// The namespace of the VMs.
    pub namespace: Namespace,
    /// The VMs that may be read; empty for all VMs in the namespace.
    pub vms: BTreeSet<VmName>,
    /// The sources of region and zone that are enabled.
    pub sources: BTreeSet<Source>,
    /// The mode, which determines whether watches are used.
    pub mode: WatchMode,
    /// The ConfigMap of the source `configmap`.
    pub configmap: ConfigMapName,
}

/// A role that is bound to the account by a binding of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HarvesterRole {
    /// The namespace of the role; `None` for a cluster role.
    pub namespace: Option<String>,
    /// The rules of the role.
    pub rules: Vec<Rule>,
}

/// The allowed requests for one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The plural name of the resource.
    pub resource: &'static str,
    /// The requests, which differ in their verbs.
    pub requests: Vec<&'static PermissionUse>,
    /// The allowed object names; empty for all.
    pub names: Vec<String>,
}

/// Returns the name of the roles and bindings of an account. A namespace contains no colon, so the name is unique per account, and
/// the roles for one guest cluster never replace those for another.
pub fn name(account: &ServiceAccount) -> String {
    format!("harvester-node-agent:{account}")
}

/// Returns the roles: one for each namespace, then the one for the whole cluster.
pub fn roles(wanted: &WantedRule) -> Vec<HarvesterRole> {
    let mut roles: Vec<HarvesterRole> = Vec::new();
    for useful in USEFUL.iter().filter(|useful| is_wanted(wanted, useful)) {
        let namespace = match useful.place {
            PermissionPlace::Vm => Some(wanted.namespace.to_string()),
            PermissionPlace::ConfigMap => Some(wanted.configmap.namespace.as_str().to_owned()),
            PermissionPlace::Cluster => None,
        };
        match roles.iter_mut().find(|role| role.namespace == namespace) {
            Some(role) => role.add(wanted, useful),
            None => {
                let mut role = HarvesterRole {
                    namespace,
                    rules: Vec::new(),
                };
                role.add(wanted, useful);
                roles.push(role);
            }
        }
    }
    roles.sort_by_key(|role| role.namespace.is_none());
    roles
}

fn is_wanted(wanted: &WantedRule, useful: &PermissionUse) -> bool {
    let is_asked = useful
        .source
        .is_none_or(|source| wanted.sources.contains(&source));
    is_asked
        && match (useful.verb, useful.resource) {
            ("watch", _) => wanted.mode == WatchMode::Watch,
            // A list contains all instances. A rule with resource names does not allow it.
            ("list", INSTANCES) => wanted.vms.is_empty(),
            // In Harvester, all users may read that namespace.
            (_, "configmaps") => wanted.configmap.namespace != ConfigMapName::TOPOLOGY.namespace,
            _ => true,
        }
}

impl HarvesterRole {
    fn add(&mut self, wanted: &WantedRule, useful: &'static PermissionUse) {
        let names = match useful.resource {
            INSTANCES | VIRTUAL_MACHINES => wanted.vms.iter().map(ToString::to_string).collect(),
            "configmaps" => vec![wanted.configmap.name.as_str().to_owned()],
            _ => Vec::new(),
        };
        let same = |rule: &&mut Rule| rule.resource == useful.resource;
        match self.rules.iter_mut().find(same) {
            Some(rule) => rule.requests.push(useful),
            None => self.rules.push(Rule {
                group: useful.group,
                resource: useful.resource,
                requests: vec![useful],
                names,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> WantedRule {
        WantedRule {
            account: ServiceAccount::parse("default:gc8").unwrap(),
            namespace: Namespace::parse("default").unwrap(),
            vms: BTreeSet::new(),
            sources: BTreeSet::from(Source::ALL),
            mode: WatchMode::Watch,
            configmap: ConfigMapName::TOPOLOGY,
        }
    }

    /// Formats each rule as `NAMESPACE: VERB,VERB RESOURCE NAME,NAME`.
    fn lines(wanted: &WantedRule) -> Vec<String> {
        let line = |role: &HarvesterRole, rule: &Rule| {
            let verbs: Vec<&str> = rule.requests.iter().map(|useful| useful.verb).collect();
            let namespace = role.namespace.as_deref().unwrap_or("*");
            let text = format!("{namespace}: {} {}", verbs.join(","), rule.resource);
            format!("{text} {}", rule.names.join(","))
                .trim_end()
                .to_owned()
        };
        roles(wanted)
            .iter()
            .flat_map(|role| role.rules.iter().map(move |rule| line(role, rule)))
            .collect()
    }

    #[test]
    fn by_default_the_vms_and_pods_of_the_namespace_and_the_hosts_of_the_cluster_may_be_read() {
        assert_eq!(
            lines(&wanted()),
            [
                "default: get,list,watch virtualmachineinstances",
                "default: get virtualmachines",
                "default: list pods",
                "*: get nodes"
            ]
        );
    }

    #[test]
    fn a_source_that_is_not_asked_needs_no_rule() {
        let mut wanted = wanted();
        wanted.sources = BTreeSet::from([Source::VmiAnnotations, Source::HostsTable]);
        assert_eq!(
            lines(&wanted),
            [
                "default: get,list,watch virtualmachineinstances",
                "default: get virtualmachines"
            ]
        );
    }

    #[test]
    fn without_watches_no_watch_is_allowed() {
        let mut wanted = wanted();
        wanted.mode = WatchMode::Signals;
        assert_eq!(
            lines(&wanted)[0],
            "default: get,list virtualmachineinstances"
        );
    }

    #[test]
    fn a_rule_about_single_vms_has_no_list_which_could_not_be_used() {
        let mut wanted = wanted();
        wanted.vms = BTreeSet::from(["b", "a"].map(|name| VmName::parse(name).unwrap()));
        assert_eq!(
            lines(&wanted)[0],
            "default: get,watch virtualmachineinstances a,b"
        );
    }

    #[test]
    fn a_configmap_elsewhere_needs_a_rule_of_its_own() {
        let mut wanted = wanted();
        wanted.configmap = ConfigMapName::parse("ops/hosts").unwrap();
        assert_eq!(
            lines(&wanted)[3..],
            ["ops: get configmaps hosts", "*: get nodes"]
        );
        wanted.configmap = ConfigMapName::parse("default/hosts").unwrap();
        assert_eq!(roles(&wanted).len(), 2, "one role for each namespace");
    }
}
