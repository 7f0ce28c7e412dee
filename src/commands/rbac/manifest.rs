// SPDX-License-Identifier: Apache-2.0
//! The objects for `kubectl apply`: roles and their bindings, as YAML with comments or as one JSON `List`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::commands::answer::with;
use crate::commands::rbac::permissions::{
    INSTANCES, PermissionPlace, PermissionUse, USEFUL, VIRTUAL_MACHINES,
};
use crate::config::Settings;
use crate::facts::names::{ConfigMapName, Namespace, ServiceAccount, VmName};

/// The label of all objects of the agent.
const LABEL: (&str, &str) = ("app.kubernetes.io/name", "harvester-node-agent");

const API: &str = "rbac.authorization.k8s.io";

const API_VERSION: &str = "rbac.authorization.k8s.io/v1";

/// What to grant, and the account that gets it.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The service account.
    pub account: ServiceAccount,
    /// The namespace of the VMs.
    pub namespace: Namespace,
    /// The VMs that may be read; empty for all VMs in the namespace.
    pub vms: BTreeSet<VmName>,
    /// The settings, which determine the sources of region and zone.
    pub settings: Settings,
    /// Whether the service account and a Secret with its token are created.
    pub create_account: bool,
    /// Whether the account also gets the roles of the cloud provider and the CSI driver.
    pub addons: bool,
}

/// An object, and the comments above it in YAML.
pub type Document = (Vec<String>, Value);

/// Returns the objects: the account, the roles of other components, one role for each namespace, and the one for the whole cluster.
/// Each role is followed by its binding.
pub fn objects(wanted: &Wanted) -> Vec<Document> {
    let name = wanted.name();
    let configmap = &wanted.settings.topology.configmap;
    let mut objects = wanted.extras();
    let mut roles: BTreeMap<(bool, Option<&str>), Vec<&PermissionUse>> = BTreeMap::new();
    for useful in USEFUL.iter().filter(|useful| wanted.needs(useful)) {
        let namespace = match useful.place {
            PermissionPlace::Vm => Some(wanted.namespace.as_str()),
            PermissionPlace::ConfigMap => Some(configmap.namespace()),
            PermissionPlace::Cluster => None,
        };
        let role = roles.entry((namespace.is_none(), namespace)).or_default();
        role.push(useful);
    }
    for ((_, namespace), requests) in roles {
        let (kind, binding, place) = match namespace {
            Some(name) => ("Role", "RoleBinding", format!("Only in namespace {name}.")),
            None => (
                "ClusterRole",
                "ClusterRoleBinding",
                "Cluster-wide, because hosts are not in a namespace. Not needed without the source host-node.".to_owned(),
            ),
        };
        let mut comments = vec![place];
        let rules = requests.chunk_by(|one, next| one.resource == next.resource);
        let rules = rules.map(|requests| wanted.rule(requests, &mut comments));
        let role = json!({
            "apiVersion": API_VERSION, "kind": kind, "metadata": metadata(&name, namespace),
            "rules": rules.collect::<Vec<_>>(),
        });
        objects.push((comments, role));
        let binding = wanted.binding(binding, &name, namespace, (kind, &name));
        objects.push((Vec::new(), binding));
    }
    objects
}

impl Wanted {
    /// Returns the name of the roles and bindings. A namespace contains no colon, so the name is unique per account, and the roles
    /// for one guest cluster never replace those for another.
    fn name(&self) -> String {
        format!("harvester-node-agent:{}", self.account)
    }

    fn needs(&self, useful: &PermissionUse) -> bool {
        let topology = &self.settings.topology;
        let is_asked = |source| topology.sources.contains(&source);
        useful.source.is_none_or(is_asked)
            && match (useful.verb, useful.resource) {
                // A list contains all instances. A rule with resource names does not allow it.
                ("list", INSTANCES) => self.vms.is_empty(),
                // In Harvester, all users may read that namespace.
                (_, "configmaps") => {
                    topology.configmap.namespace() != ConfigMapName::topology().namespace()
                }
                _ => true,
            }
    }

    /// Returns the rule for requests that differ only in their verbs, and adds a comment for each.
    fn rule(&self, requests: &[&PermissionUse], comments: &mut Vec<String>) -> Value {
        let first = requests.first();
        let (group, resource) = first.map_or(("", ""), |first| (first.group, first.resource));
        let verbs: Vec<&str> = requests.iter().map(|useful| useful.verb).collect();
        let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        let names: Vec<String> = match resource {
            INSTANCES | VIRTUAL_MACHINES => self.vms.iter().map(ToString::to_string).collect(),
            "configmaps" => vec![self.settings.topology.configmap.name().to_owned()],
            _ => Vec::new(),
        };
        for useful in requests {
            comments.push(format!("{} {resource}: {}", useful.verb, useful.purpose));
            comments.push(format!("  without it, {}", useful.without));
        }
        if resource == INSTANCES && !names.is_empty() {
            let text = "Only these VMs. A rule with resourceNames does not allow list, so the agent cannot search for its VM:\n\
                        # each node must have the name of its VM, or [harvester] vm in its configuration.";
            comments.push(text.to_owned());
        }
        match names.as_slice() {
            [] => rule,
            names => with(rule, "resourceNames", json!(names)),
        }
    }

    /// Binds a role to the account.
    fn binding(
        &self,
        kind: &str,
        name: &str,
        namespace: Option<&str>,
        (role_kind, role): (&str, &str),
    ) -> Value {
        json!({
            "apiVersion": API_VERSION, "kind": kind, "metadata": metadata(name, namespace),
            "roleRef": {"apiGroup": API, "kind": role_kind, "name": role},
            "subjects": [{
                "kind": "ServiceAccount",
                "namespace": self.account.namespace.as_str(),
                "name": self.account.name.as_str(),
            }],
        })
    }

    fn extras(&self) -> Vec<Document> {
        let mut objects = Vec::new();
        let mut add = |comment: &str, object| objects.push((vec![comment.to_owned()], object));
        if self.create_account {
            let name = self.account.name.as_str();
            let own = Some(self.account.namespace.as_str());
            add(
                "The service account.",
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name, own)}),
            );
            let of_account = json!({"kubernetes.io/service-account.name": name});
            let metadata = metadata(&format!("{name}-token"), own);
            add(
                "Its token, which does not expire. Harvester adds the data. For a kubeconfig: harvester-node-agent kubeconfig --help",
                json!({
                    "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
                    "metadata": with(metadata, "annotations", of_account),
                }),
            );
        }
        if self.addons {
            // The roles that Harvester has for them (`generate_addon_csi.sh`).
            let vms = Some(self.namespace.as_str());
            for (component, kind, role, namespace) in [
                ("cloud provider", "RoleBinding", "cloudprovider", vms),
                ("CSI driver", "ClusterRoleBinding", "csi-driver", None),
            ] {
                let name = format!("{}:{role}", self.name());
                let role = format!("harvesterhci.io:{role}");
                let binding = self.binding(kind, &name, namespace, ("ClusterRole", &role));
                let comment = format!(
                    "The role of the Harvester {component}, which uses the same kubeconfig."
                );
                add(&comment, binding);
            }
        }
        objects
    }
}

/// Returns the metadata of an object.
fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let metadata = json!({"name": name, "labels": {LABEL.0: LABEL.1}});
    match namespace {
        Some(namespace) => with(metadata, "namespace", json!(namespace)),
        None => metadata,
    }
}

/// Returns one document for each object, with comments.
pub fn yaml(wanted: &Wanted, objects: &[Document]) -> String {
    let deleted = match (wanted.create_account, wanted.addons) {
        (true, true) => "the token, and the roles of the cloud provider and the CSI driver",
        (true, false) => "the token",
        (false, true) => "the roles of the cloud provider and the CSI driver",
        (false, false) => "",
    };
    let revoke = match deleted {
        "" => "Revoke: kubectl delete -f FILE.".to_owned(),
        _ => format!(
            "Do not delete these objects while a node uses them:\n\
             # kubectl delete -f FILE also deletes {deleted}."
        ),
    };
    let mut text = format!(
        "# All permissions that harvester-node-agent needs on Harvester, for service account {}.\n\
         # Apply on Harvester as an administrator: kubectl apply -f FILE. {revoke}\n\
         # List all objects of this kind, including those for other service accounts:\n\
         #   kubectl get role,rolebinding,clusterrole,clusterrolebinding -A -l {}={}\n\
         # A ConfigMap in harvester-public (source configmap) needs no rule: all users are allowed to read that namespace.\n",
        wanted.account, LABEL.0, LABEL.1
    );
    for (comments, object) in objects {
        text.push_str("---\n");
        text.extend(comments.iter().map(|comment| format!("# {comment}\n")));
        text.push_str(&block(object, 0));
    }
    text
}

/// Returns a value in the block style of YAML. All strings are in double quotes, as in JSON, so that a namespace named `true` or
/// `123` stays a string; no collection is empty, and every key is plain text.
fn block(value: &Value, indent: usize) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| {
                let below = match value {
                    Value::Object(_) => format!("\n{}", block(value, indent + 2)),
                    Value::Array(_) => format!("\n{}", block(value, indent)),
                    scalar => format!(" {scalar}\n"),
                };
                format!("{:indent$}{key}:{below}", "")
            });
            fields.collect()
        }
        Value::Array(items) => {
            let items = items.iter().map(|item| block(item, indent + 2));
            let items = items.map(|item| format!("{:indent$}- {}", "", item.trim_start()));
            items.collect()
        }
        scalar => format!("{:indent$}{scalar}\n", ""),
    }
}

/// Returns the same objects as one `List`.
pub fn list(objects: Vec<Document>) -> Value {
    let items: Vec<Value> = objects.into_iter().map(|(_, object)| object).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    fn wanted(account: &str, namespace: &str) -> Wanted {
        Wanted {
            account: ServiceAccount::parse(account).unwrap(),
            namespace: Namespace::parse(namespace).unwrap(),
            vms: BTreeSet::new(),
            settings: Settings::default(),
            create_account: false,
            addons: false,
        }
    }

    fn documents(text: &str) -> Value {
        let documents = yaml_serde::Deserializer::from_str(text);
        let documents = documents.map(|document| Value::deserialize(document).unwrap());
        documents.collect()
    }

    #[test]
    fn yaml_has_the_same_objects_also_with_names_that_yaml_takes_for_numbers() {
        let mut odd = wanted("123:1e3", "true");
        let names = ["null", "0x1", "1.5"].map(|name| VmName::parse(name).unwrap());
        odd.vms = names.into();
        odd.settings.topology.configmap = ConfigMapName::parse("no/off").unwrap();
        for mut wanted in [wanted("default:gc8", "default"), odd] {
            for count in [0, 4] {
                let objects = objects(&wanted);
                let text = yaml(&wanted, &objects);
                let is_role = |(_, object): &&(_, Value)| object["rules"].is_array();
                let roles = objects.iter().filter(is_role);
                assert_eq!(objects.len(), 2 * roles.count() + count);
                assert_eq!(documents(&text), list(objects)["items"], "{text}");
                (wanted.create_account, wanted.addons) = (true, true);
            }
        }
    }

    #[test]
    fn objects_of_two_accounts_never_have_one_name() {
        // If joined by dashes, both would be `a-b-c`.
        let names = ["a-b:c", "a:b-c"].map(|account| wanted(account, "x").name());
        assert_ne!(names[0], names[1]);
    }
}
