// SPDX-License-Identifier: Apache-2.0
//! Who a client is and what it may do: the RBAC objects in the store, and the Node authorizer.

use serde_json::Value;

use super::store::{Key, Store};

/// An authenticated user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// For example `system:serviceaccount:default:gc8`.
    pub name: String,
    /// Groups; `system:authenticated` is added by the server.
    pub groups: Vec<String>,
}

impl User {
    /// A user of some groups.
    #[must_use]
    pub fn new(name: &str, groups: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
        }
    }

    /// A service account with the groups that each has.
    #[must_use]
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::new(
            &format!("system:serviceaccount:{namespace}:{name}"),
            &[
                "system:serviceaccounts",
                &format!("system:serviceaccounts:{namespace}"),
            ],
        )
    }

    pub(crate) fn anonymous() -> Self {
        Self::new("system:anonymous", &["system:unauthenticated"])
    }

    pub(crate) fn authenticated(mut self) -> Self {
        self.groups.push("system:authenticated".to_owned());
        self
    }

    fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// The node's name, for a kubelet.
    fn node_name(&self) -> Option<&str> {
        self.name
            .strip_prefix("system:node:")
            .filter(|_| self.is_in("system:nodes"))
    }

    /// Whether a subject of a binding is this user.
    fn is(&self, subject: &Value) -> bool {
        let text = |field: &str| subject[field].as_str().unwrap_or_default();
        match text("kind") {
            "Group" => self.is_in(text("name")),
            "ServiceAccount" => {
                self.name == Self::service_account(text("namespace"), text("name")).name
            }
            _ => self.name == text("name"),
        }
    }
}

/// What someone wants to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub verb: String,
    pub group: String,
    pub plural: String,
    pub subresource: String,
    pub namespace: String,
    /// The object's name; for list and watch what the field selector `metadata.name` demands.
    pub name: String,
    /// What the field selector `spec.nodeName` demands.
    pub pod_node: Option<String>,
}

impl Attributes {
    fn resource(&self) -> String {
        match self.subresource.as_str() {
            "" => self.plural.clone(),
            subresource => format!("{}/{subresource}", self.plural),
        }
    }

    /// The text of a 403, as kube-apiserver writes it.
    pub(crate) fn describe_refusal(&self, user: &User, reason: &str) -> String {
        let qualified = super::resource::qualify(&self.plural, &self.group);
        let named = match self.name.as_str() {
            "" => String::new(),
            name => format!(" {name:?}"),
        };
        let place = match self.namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let reason = match reason {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        format!(
            "{qualified}{named} is forbidden: User {:?} cannot {} resource {:?} in API group {:?} {place}{reason}",
            user.name,
            self.verb,
            self.resource(),
            self.group,
        )
    }

    /// Whether a rule of a role allows this.
    fn is_allowed_by(&self, rule: &Value) -> bool {
        let list = |field: &str| rule[field].as_array().map_or(&[][..], Vec::as_slice);
        let has = |field: &str, wanted: &str| {
            let mut list = list(field).iter();
            list.any(|own| own == "*" || own == wanted)
        };
        has("apiGroups", &self.group)
            && has("resources", &self.resource())
            && has("verbs", &self.verb)
            && (list("resourceNames").is_empty() || has("resourceNames", &self.name))
    }
}

/// Allowed, or the reason that the authorizers give (often empty).
pub(crate) fn authorize(store: &Store, user: &User, attributes: &Attributes) -> Result<(), String> {
    if user.is_in("system:masters") || is_allowed_to_everyone(user, attributes) {
        return Ok(());
    }
    let of_node = match user.node_name() {
        Some(node) => authorize_node(node, attributes),
        None => Err(String::new()),
    };
    of_node.or_else(|reason| match is_bound(store, user, attributes) {
        true => Ok(()),
        false => Err(reason),
    })
}

fn authorize_node(node: &str, wanted: &Attributes) -> Result<(), String> {
    let verb = wanted.verb.as_str();
    let reads = matches!(verb, "get" | "list" | "watch");
    let writes = matches!(verb, "create" | "update" | "patch");
    let allowed = match (wanted.group.as_str(), wanted.resource().as_str()) {
        ("", "nodes") if reads && wanted.name.is_empty() => {
            return Err(format!(
                "node '{node}' cannot read all nodes, only its own Node object"
            ));
        }
        ("", "nodes") if reads && wanted.name != node => {
            return Err(format!(
                "node '{node}' cannot read '{}', only its own Node object",
                wanted.name
            ));
        }
        ("", "nodes") => reads || writes,
        ("", "nodes/status") | ("" | "events.k8s.io", "events") => writes,
        ("", "pods") if verb != "get" && reads => {
            if wanted.pod_node.as_deref() != Some(node) {
                let why = "can only list/watch pods with spec.nodeName field selector";
                return Err(why.to_owned());
            }
            true
        }
        _ => false,
    };
    if allowed { Ok(()) } else { Err(String::new()) }
}

/// What `system:basic-user` grants.
fn is_allowed_to_everyone(user: &User, attributes: &Attributes) -> bool {
    user.is_in("system:authenticated")
        && attributes.group == "authorization.k8s.io"
        && attributes.plural == "selfsubjectaccessreviews"
        && attributes.verb == "create"
}

fn is_bound(store: &Store, user: &User, attributes: &Attributes) -> bool {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let namespace = attributes.namespace.as_str();
    let (_, of_cluster) = store.list(GROUP, "clusterrolebindings", None);
    let (_, of_namespace) = store.list(GROUP, "rolebindings", Some(namespace));
    let role = |binding: &Value| {
        let role = &binding["roleRef"];
        let (plural, namespace) = match role["kind"] == "ClusterRole" {
            true => ("clusterroles", ""),
            false => ("roles", namespace),
        };
        store.get(&Key {
            group: GROUP,
            plural,
            namespace: namespace.to_owned(),
            name: role["name"].as_str().unwrap_or_default().to_owned(),
        })
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    of_cluster.iter().chain(&of_namespace).any(|binding| {
        let mut subjects = list(&binding["subjects"]).into_iter();
        subjects.any(|subject| user.is(&subject))
            && role(binding).is_some_and(|role| {
                let mut rules = list(&role["rules"]).into_iter();
                rules.any(|rule| attributes.is_allowed_by(&rule))
            })
    })
}
