// SPDX-License-Identifier: Apache-2.0
//! Who a client is and what it may do: a table of tokens, client certificates, RBAC (from a table that tests set and from
//! the RBAC objects in the store), and the Node authorizer.

use std::collections::BTreeMap;

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

    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// The node's name, for a kubelet.
    pub(crate) fn node_name(&self) -> Option<&str> {
        self.name
            .strip_prefix("system:node:")
            .filter(|_| self.is_in("system:nodes"))
    }
}

/// One RBAC rule; `*` stands for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// API groups; the core group is empty.
    pub api_groups: Vec<String>,
    /// Plural names, `resource/subresource` for subresources.
    pub resources: Vec<String>,
    /// Verbs.
    pub verbs: Vec<String>,
    /// Object names; empty for all.
    pub resource_names: Vec<String>,
}

impl Rule {
    /// A rule about all objects of the resources.
    #[must_use]
    pub fn new(api_group: &str, resources: &[&str], verbs: &[&str]) -> Self {
        let own = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
        Self {
            api_groups: vec![api_group.to_owned()],
            resources: own(resources),
            verbs: own(verbs),
            resource_names: Vec::new(),
        }
    }

    /// The same rule about one object only.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.resource_names.push(name.to_owned());
        self
    }

    fn of_object(rule: &Value) -> Self {
        let list = |field: &str| {
            let items = rule[field].as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            api_groups: list("apiGroups"),
            resources: list("resources"),
            verbs: list("verbs"),
            resource_names: list("resourceNames"),
        }
    }

    fn allows(&self, attributes: &Attributes) -> bool {
        let has =
            |list: &[String], wanted: &str| list.iter().any(|own| own == "*" || own == wanted);
        has(&self.api_groups, &attributes.group)
            && has(&self.resources, &attributes.resource())
            && has(&self.verbs, &attributes.verb)
            && (self.resource_names.is_empty() || self.resource_names.contains(&attributes.name))
    }
}

/// Whom a grant is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A user by name.
    User(String),
    /// A group by name.
    Group(String),
}

impl Subject {
    fn is(&self, user: &User) -> bool {
        match self {
            Self::User(name) => *name == user.name,
            Self::Group(name) => user.is_in(name),
        }
    }
}

/// A role together with its binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The only namespace in which it holds; absent for the whole cluster.
    pub namespace: Option<String>,
    /// Who gets it.
    pub subjects: Vec<Subject>,
    /// What it allows.
    pub rules: Vec<Rule>,
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
    pub(crate) fn resource(&self) -> String {
        if self.subresource.is_empty() {
            self.plural.clone()
        } else {
            format!("{}/{}", self.plural, self.subresource)
        }
    }

    /// The text of a 403, as kube-apiserver writes it.
    pub(crate) fn describe_refusal(&self, user: &User, reason: &str) -> String {
        let qualified = super::resource::qualify(&self.plural, &self.group);
        let named = if self.name.is_empty() {
            String::new()
        } else {
            format!(" {:?}", self.name)
        };
        let place = if self.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", self.namespace)
        };
        let mut text = format!(
            "{qualified}{named} is forbidden: User {:?} cannot {} resource {:?} in API group {:?} {place}",
            user.name,
            self.verb,
            self.resource(),
            self.group,
        );
        if !reason.is_empty() {
            text.push_str(": ");
            text.push_str(reason);
        }
        text
    }
}

/// The tables of one server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    pub tokens: BTreeMap<String, User>,
    pub grants: Vec<Grant>,
    /// Whether kubelets may read only their own Node, and write events of both groups: newer versions.
    pub node_reads_restricted: bool,
}

impl Access {
    /// Allowed, or the reason that the authorizers give (often empty).
    pub(crate) fn authorize(
        &self,
        store: &Store,
        user: &User,
        attributes: &Attributes,
    ) -> Result<(), String> {
        if user.is_in("system:masters") || allowed_to_everyone(user, attributes) {
            return Ok(());
        }
        let mut reason = String::new();
        if let Some(node) = user.node_name() {
            match self.authorize_node(store, node, attributes) {
                Ok(()) => return Ok(()),
                Err(why) => reason = why,
            }
        }
        let granted = self.grants.iter().any(|grant| {
            grant
                .namespace
                .as_ref()
                .is_none_or(|namespace| *namespace == attributes.namespace)
                && grant.subjects.iter().any(|subject| subject.is(user))
                && grant.rules.iter().any(|rule| rule.allows(attributes))
        });
        if granted || bound_by_objects(store, user, attributes) {
            Ok(())
        } else {
            Err(reason)
        }
    }

    fn authorize_node(&self, store: &Store, node: &str, wanted: &Attributes) -> Result<(), String> {
        let verb = wanted.verb.as_str();
        let reads = matches!(verb, "get" | "list" | "watch");
        let core = wanted.group.is_empty();
        let allowed = match (core, wanted.resource().as_str()) {
            (true, "nodes") if reads => {
                if !self.node_reads_restricted || wanted.name == node {
                    true
                } else if wanted.name.is_empty() {
                    return Err(format!(
                        "node '{node}' cannot read all nodes, only its own Node object"
                    ));
                } else {
                    return Err(format!(
                        "node '{node}' cannot read '{}', only its own Node object",
                        wanted.name
                    ));
                }
            }
            // Which Node is the admission plugin's question.
            (true, "nodes") => matches!(verb, "create" | "update" | "patch"),
            (true, "nodes/status") => matches!(verb, "update" | "patch"),
            (true, "events") => matches!(verb, "create" | "update" | "patch"),
            (true, "services") => reads,
            (true, "pods") if verb == "get" => {
                let key = Key {
                    group: String::new(),
                    plural: "pods".to_owned(),
                    namespace: wanted.namespace.clone(),
                    name: wanted.name.clone(),
                };
                let pod = store.get(&key);
                if pod.is_none_or(|pod| pod["spec"]["nodeName"] != node) {
                    return Err(no_relationship(node));
                }
                true
            }
            (true, "pods") if reads => {
                if self.node_reads_restricted && wanted.pod_node.as_deref() != Some(node) {
                    let why = "can only list/watch pods with spec.nodeName field selector";
                    return Err(why.to_owned());
                }
                true
            }
            (true, "configmaps" | "secrets" | "persistentvolumeclaims") if reads => {
                if wanted.name.is_empty() {
                    return Err("No Object name found".to_owned());
                }
                return Err(no_relationship(node));
            }
            (false, "events") => {
                self.node_reads_restricted
                    && wanted.group == "events.k8s.io"
                    && matches!(verb, "create" | "update" | "patch")
            }
            (false, "leases") => {
                wanted.group == "coordination.k8s.io"
                    && wanted.namespace == "kube-node-lease"
                    && (wanted.name == node || verb == "create")
                    && matches!(verb, "get" | "create" | "update" | "patch" | "delete")
            }
            _ => false,
        };
        if allowed { Ok(()) } else { Err(String::new()) }
    }
}

fn no_relationship(node: &str) -> String {
    format!("no relationship found between node '{node}' and this object")
}

/// What `system:basic-user` grants.
fn allowed_to_everyone(user: &User, attributes: &Attributes) -> bool {
    user.is_in("system:authenticated")
        && attributes.group == "authorization.k8s.io"
        && attributes.plural == "selfsubjectaccessreviews"
        && attributes.verb == "create"
}

/// Whether a path outside of resources may be read: `system:public-info-viewer` and `system:discovery`.
pub(crate) fn may_read_path(user: &User, path: &str) -> bool {
    let public = matches!(
        path,
        "/version" | "/version/" | "/healthz" | "/livez" | "/readyz"
    );
    let discovery = ["/api", "/apis", "/openapi"]
        .iter()
        .any(|root| path == *root || path.starts_with(&format!("{root}/")));
    public
        || user.is_in("system:masters")
        || (user.is_in("system:authenticated") && (discovery || path.starts_with("/readyz/")))
}

fn bound_by_objects(store: &Store, user: &User, attributes: &Attributes) -> bool {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let applies = |namespace: &str, plural: &str| {
        let scope = Some(namespace).filter(|_| plural == "rolebindings");
        let (_, bindings) = store.list(GROUP, plural, scope);
        bindings.iter().any(|(_, binding)| {
            let bound = binding["subjects"].as_array().into_iter().flatten();
            if !bound.map(subject_of).any(|subject| subject.is(user)) {
                return false;
            }
            let reference = &binding["roleRef"];
            let (plural, namespace) = if reference["kind"] == "ClusterRole" {
                ("clusterroles", "")
            } else {
                ("roles", namespace)
            };
            let role = store.get(&Key {
                group: GROUP.to_owned(),
                plural: plural.to_owned(),
                namespace: namespace.to_owned(),
                name: reference["name"].as_str().unwrap_or_default().to_owned(),
            });
            role.is_some_and(|role| {
                let rules = role["rules"].as_array().into_iter().flatten();
                rules
                    .map(Rule::of_object)
                    .any(|rule| rule.allows(attributes))
            })
        })
    };
    applies("", "clusterrolebindings")
        || (!attributes.namespace.is_empty() && applies(&attributes.namespace, "rolebindings"))
}

fn subject_of(subject: &Value) -> Subject {
    let text = |field: &str| subject[field].as_str().unwrap_or_default().to_owned();
    match subject["kind"].as_str() {
        Some("Group") => Subject::Group(text("name")),
        Some("ServiceAccount") => {
            Subject::User(User::service_account(&text("namespace"), &text("name")).name)
        }
        _ => Subject::User(text("name")),
    }
}
