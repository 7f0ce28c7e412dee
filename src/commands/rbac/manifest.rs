// SPDX-License-Identifier: Apache-2.0
//! Roles and their bindings for `kubectl apply`: YAML with a comment for each rule, or one JSON `List`.
//!
//! All input values are Kubernetes names, without characters that have a meaning in double-quoted YAML. The quotes keep a
//! namespace named `true` or `123` a string.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::decide::permissions::{self, HarvesterRole, Rule};
use crate::facts::names::{Namespace, ServiceAccount};
use crate::facts::permissions::INSTANCES;

/// The label of all objects of the agent.
const LABEL: (&str, &str) = ("app.kubernetes.io/name", "harvester-node-agent");

const API: &str = "rbac.authorization.k8s.io";

/// The roles that Harvester has for its cloud provider and its CSI driver (`generate_addon_csi.sh`).
const CLOUD_PROVIDER: &str = "harvesterhci.io:cloudprovider";
const CSI_DRIVER: &str = "harvesterhci.io:csi-driver";

/// The objects in addition to the roles of the agent.
#[derive(Debug, Clone, Default)]
pub struct Extras {
    /// Whether the service account and a Secret with its token are created.
    pub account: bool,
    /// The namespace of the VMs, in which the account also gets the roles of the cloud provider and the CSI driver.
    pub addons: Option<Namespace>,
}

/// Returns one document for each object, with comments.
pub fn yaml(account: &ServiceAccount, roles: &[HarvesterRole], extras: &Extras) -> String {
    let revoke = match extras.account || extras.addons.is_some() {
        true => {
            "Do not delete these objects while a node uses them:\n\
             # kubectl delete -f FILE also deletes the token, and the roles of the cloud provider and the CSI driver."
        }
        false => "Revoke: kubectl delete -f FILE.",
    };
    let mut text = format!(
        "# All permissions that harvester-node-agent needs on Harvester, for service account {account}.\n\
         # Apply on Harvester as an administrator: kubectl apply -f FILE. {}\n\
         # List all objects of this kind, including those for other service accounts:\n\
         #   kubectl get role,rolebinding,clusterrole,clusterrolebinding -A -l {}={}\n\
         # A ConfigMap in harvester-public (source configmap) needs no rule: all users are allowed to read that namespace.\n",
        revoke, LABEL.0, LABEL.1
    );
    if extras.account {
        text.push_str(
            "# Create a kubeconfig with its token: harvester-node-agent kubeconfig --help\n",
        );
    }
    for (comment, object) in extra_objects(account, extras) {
        let _ = writeln!(text, "---\n# {comment}\n{object:#}");
    }
    for role in roles {
        let kinds = Kinds::of(role);
        let _ = match &role.namespace {
            Some(namespace) => writeln!(text, "---\n# Only in namespace {namespace}."),
            None => writeln!(
                text,
                "---\n# Cluster-wide, because hosts are not in a namespace. Omit it with --no-hosts."
            ),
        };
        head(&mut text, kinds.role, account, role);
        text.push_str("rules:\n");
        for rule in &role.rules {
            write_rule(&mut text, rule);
        }
        text.push_str("---\n");
        head(&mut text, kinds.binding, account, role);
        let _ = write!(
            text,
            "roleRef:\n  apiGroup: {API}\n  kind: {}\n  name: \"{}\"\n\
             subjects:\n- kind: ServiceAccount\n  namespace: \"{}\"\n  name: \"{}\"\n",
            kinds.role,
            permissions::name(account),
            account.namespace,
            account.name
        );
    }
    text
}

/// Returns the additional objects, each with a comment.
fn extra_objects(account: &ServiceAccount, extras: &Extras) -> Vec<(&'static str, Value)> {
    let (namespace, name) = (account.namespace.as_str(), account.name.as_str());
    let labels = json!({LABEL.0: LABEL.1});
    let mut objects = Vec::new();
    if extras.account {
        objects.push((
            "The service account.",
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": name, "namespace": namespace, "labels": labels},
            }),
        ));
        objects.push((
            "Its token, which does not expire. Harvester adds the data.",
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
                "metadata": {
                    "name": format!("{name}-token"), "namespace": namespace, "labels": labels,
                    "annotations": {"kubernetes.io/service-account.name": name},
                },
            }),
        ));
    }
    let Some(vms) = &extras.addons else {
        return objects;
    };
    let binding = |kind: &str, role: &str, mut metadata: Value| {
        if let Some(fields) = metadata.as_object_mut() {
            let short = role.rsplit(':').next().unwrap_or(role);
            let name = format!("{}:{short}", permissions::name(account));
            fields.insert("name".to_owned(), json!(name));
        }
        json!({
            "apiVersion": format!("{API}/v1"), "kind": kind, "metadata": metadata,
            "roleRef": {"apiGroup": API, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
        })
    };
    let within = json!({"namespace": vms.as_str(), "labels": labels});
    objects.push((
        "The role of the Harvester cloud provider, which uses the same kubeconfig.",
        binding("RoleBinding", CLOUD_PROVIDER, within),
    ));
    objects.push((
        "The role of the Harvester CSI driver, which uses the same kubeconfig.",
        binding("ClusterRoleBinding", CSI_DRIVER, json!({"labels": labels})),
    ));
    objects
}

/// Returns the same objects as one `List`.
pub fn json(account: &ServiceAccount, roles: &[HarvesterRole], extras: &Extras) -> Value {
    let extra = extra_objects(account, extras).into_iter();
    let extra = extra.map(|(_, object)| object);
    let items: Vec<Value> = roles
        .iter()
        .flat_map(|role| {
            let kinds = Kinds::of(role);
            let rules: Vec<Value> = role.rules.iter().map(rule_value).collect();
            [
                json!({
                    "apiVersion": format!("{API}/v1"), "kind": kinds.role, "metadata": metadata(account, role),
                    "rules": rules,
                }),
                json!({
                    "apiVersion": format!("{API}/v1"), "kind": kinds.binding, "metadata": metadata(account, role),
                    "roleRef": {"apiGroup": API, "kind": kinds.role, "name": permissions::name(account)},
                    "subjects": [{
                        "kind": "ServiceAccount",
                        "namespace": account.namespace.as_str(),
                        "name": account.name.as_str(),
                    }],
                }),
            ]
        })
        .collect();
    let items: Vec<Value> = extra.chain(items).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

struct Kinds {
    role: &'static str,
    binding: &'static str,
}

impl Kinds {
    fn of(role: &HarvesterRole) -> Self {
        let (role, binding) = match role.namespace {
            Some(_) => ("Role", "RoleBinding"),
            None => ("ClusterRole", "ClusterRoleBinding"),
        };
        Self { role, binding }
    }
}

fn head(text: &mut String, kind: &str, account: &ServiceAccount, role: &HarvesterRole) {
    let name = permissions::name(account);
    let _ = write!(
        text,
        "apiVersion: {API}/v1\nkind: {kind}\nmetadata:\n  name: \"{name}\"\n"
    );
    if let Some(namespace) = &role.namespace {
        let _ = writeln!(text, "  namespace: \"{namespace}\"");
    }
    let _ = writeln!(text, "  labels:\n    {}: {}", LABEL.0, LABEL.1);
}

fn write_rule(text: &mut String, rule: &Rule) {
    if rule.resource == INSTANCES && !rule.names.is_empty() {
        text.push_str(
            "# Only these VMs. A rule with resourceNames does not allow list, so the agent cannot search for its VM: each node must\n\
             # have the name of its VM, or [harvester] vm in its configuration.\n",
        );
    }
    for useful in &rule.requests {
        let _ = write!(
            text,
            "# {}: {}\n#   without it, {}\n",
            useful.verb, useful.purpose, useful.without
        );
    }
    let _ = write!(
        text,
        "- apiGroups: [\"{}\"]\n  resources: [\"{}\"]\n  verbs: [{}]\n",
        rule.group,
        rule.resource,
        verbs(rule)
            .map(|verb| format!("\"{verb}\""))
            .collect::<Vec<_>>()
            .join(", ")
    );
    if !rule.names.is_empty() {
        text.push_str("  resourceNames:\n");
        for name in &rule.names {
            let _ = writeln!(text, "  - \"{name}\"");
        }
    }
}

fn rule_value(rule: &Rule) -> Value {
    let mut value = json!({
        "apiGroups": [rule.group],
        "resources": [rule.resource],
        "verbs": verbs(rule).collect::<Vec<_>>(),
    });
    if let (Some(fields), false) = (value.as_object_mut(), rule.names.is_empty()) {
        fields.insert("resourceNames".to_owned(), json!(rule.names));
    }
    value
}

fn verbs(rule: &Rule) -> impl Iterator<Item = &'static str> {
    rule.requests.iter().map(|useful| useful.verb)
}

fn metadata(account: &ServiceAccount, role: &HarvesterRole) -> Value {
    let mut metadata = json!({"name": permissions::name(account), "labels": {LABEL.0: LABEL.1}});
    if let (Some(fields), Some(namespace)) = (metadata.as_object_mut(), &role.namespace) {
        fields.insert("namespace".to_owned(), json!(namespace));
    }
    metadata
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::Deserialize;

    use super::*;
    use crate::config::{ConfigMapName, WatchMode};
    use crate::decide::permissions::{WantedRule, roles};
    use crate::facts::names::VmName;
    use crate::facts::placement::Source;

    fn wanted(account: &str, namespace: &str) -> WantedRule {
        WantedRule {
            account: ServiceAccount::parse(account).unwrap(),
            namespace: Namespace::parse(namespace).unwrap(),
            vms: BTreeSet::new(),
            sources: BTreeSet::from(Source::ALL),
            mode: WatchMode::Watch,
            configmap: ConfigMapName::TOPOLOGY,
        }
    }

    fn documents(text: &str) -> Vec<Value> {
        yaml_serde::Deserializer::from_str(text)
            .map(|document| Value::deserialize(document).unwrap())
            .collect()
    }

    #[test]
    fn yaml_and_json_are_the_same_objects_also_with_names_that_yaml_takes_for_numbers() {
        let mut odd = wanted("123:1e3", "true");
        odd.vms = BTreeSet::from(["null", "0x1", "1.5"].map(|name| VmName::parse(name).unwrap()));
        odd.configmap = ConfigMapName::parse("no/off").unwrap();
        for wanted in [wanted("default:gc8", "default"), odd] {
            let roles = roles(&wanted);
            let all = Extras {
                account: true,
                addons: Some(wanted.namespace.clone()),
            };
            for (extras, more) in [(Extras::default(), 0), (all, 4)] {
                let list = json(&wanted.account, &roles, &extras);
                let text = yaml(&wanted.account, &roles, &extras);
                assert_eq!(json!(documents(&text)), list["items"], "{text}");
                let count = list["items"].as_array().unwrap().len();
                assert_eq!(count, 2 * roles.len() + more);
            }
        }
    }

    #[test]
    fn objects_of_two_accounts_never_have_one_name() {
        // If joined by dashes, both would be `a-b-c`.
        let names = ["a-b:c", "a:b-c"]
            .map(|account| permissions::name(&ServiceAccount::parse(account).unwrap()));
        assert_ne!(names[0], names[1]);
    }

    #[test]
    fn every_object_has_the_label_and_every_rule_says_why() {
        let wanted = wanted("default:gc8", "default");
        let roles = roles(&wanted);
        let text = yaml(&wanted.account, &roles, &Extras::default());
        let objects = documents(&text);
        assert_eq!(objects.len(), 4);
        for object in &objects {
            assert_eq!(object["metadata"]["labels"][LABEL.0], LABEL.1);
        }
        for useful in roles
            .iter()
            .flat_map(|role| &role.rules)
            .flat_map(|rule| &rule.requests)
        {
            assert!(
                text.contains(useful.purpose) && text.contains(useful.without),
                "{text}"
            );
        }
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
    }
}
