// SPDX-License-Identifier: Apache-2.0
//! Which roles on Harvester allow what the agent asks there, and nothing else.

use std::collections::BTreeSet;

use crate::config::{ConfigMapName, WatchMode};
use crate::facts::names::{Namespace, ServiceAccount, VmName};
use crate::facts::permissions::{INSTANCES, PermissionPlace, PermissionUse, USEFUL};
use crate::facts::placement::Source;

/// What is to be allowed, and to whom.
#[derive(Debug, Clone)]
pub struct WantedRule {
    /// Who gets it.
    pub account: ServiceAccount,
    /// The namespace of the VMs.
    pub namespace: Namespace,
    /// The only VMs that may be read; empty for all of the namespace.
    pub vms: BTreeSet<VmName>,
    /// The sources of region and zone that may be asked.
    pub sources: BTreeSet<Source>,
    /// Whether watches are kept.
    pub mode: WatchMode,
    /// What the source `configmap` reads.
    pub configmap: ConfigMapName,
}

/// A role that is bound to the account, by a binding of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HarvesterRole {
    /// The namespace in which it holds; `None` for the whole cluster.
    pub namespace: Option<String>,
    /// What it allows.
    pub rules: Vec<Rule>,
}

/// Requests about one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Plural.
    pub resource: &'static str,
    /// The requests, which differ in their verbs.
    pub requests: Vec<&'static PermissionUse>,
    /// The only objects; empty for all.
    pub names: Vec<String>,
}

/// The name of the roles and bindings of an account. A namespace has no colon, so no two accounts share one, and what is made
/// for one guest cluster never replaces what was made for another.
pub fn name(account: &ServiceAccount) -> String {
    format!("harvester-node-agent:{account}")
}

/// The roles: one for each namespace, the one for the whole cluster last.
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
            // A list is of all instances, and a rule with names does not allow that.
            ("list", INSTANCES) => wanted.vms.is_empty(),
            // Harvester lets everybody read that namespace.
            (_, "configmaps") => wanted.configmap.namespace != ConfigMapName::TOPOLOGY.namespace,
            _ => true,
        }
}

impl HarvesterRole {
    fn add(&mut self, wanted: &WantedRule, useful: &'static PermissionUse) {
        let names = match useful.resource {
            INSTANCES => wanted.vms.iter().map(ToString::to_string).collect(),
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

    /// `NAMESPACE: VERB,VERB RESOURCE NAME,NAME` for each rule.
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
            ["default: get,list,watch virtualmachineinstances"]
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
            lines(&wanted)[2..],
            ["ops: get configmaps hosts", "*: get nodes"]
        );
        wanted.configmap = ConfigMapName::parse("default/hosts").unwrap();
        assert_eq!(roles(&wanted).len(), 2, "one role for each namespace");
    }
}
