// SPDX-License-Identifier: Apache-2.0
//! Which kinds the server knows, and what a request's path and query ask for.

use serde_json::{Map, Value, json};

/// One resource type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    /// Name in paths.
    pub plural: &'static str,
    /// Name in objects.
    pub kind: &'static str,
    pub namespaced: bool,
    /// Whether the main resource leaves the status to a subresource.
    pub has_status: bool,
}

const fn kind(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
) -> Kind {
    Kind {
        group,
        version,
        plural,
        kind,
        namespaced: true,
        has_status: false,
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const EVENTS: &str = "events.k8s.io";

/// The kinds that every cluster has, as far as this project meets them.
const BUILT_IN: [Kind; 10] = [
    kind("", "v1", "nodes", "Node")
        .cluster_scoped()
        .with_status(),
    kind("", "v1", "namespaces", "Namespace").cluster_scoped(),
    kind("", "v1", "pods", "Pod").with_status(),
    kind("", "v1", "configmaps", "ConfigMap"),
    kind("", "v1", "events", "Event"),
    kind(EVENTS, "v1", "events", "Event"),
    kind(RBAC, "v1", "roles", "Role"),
    kind(RBAC, "v1", "rolebindings", "RoleBinding"),
    kind(RBAC, "v1", "clusterroles", "ClusterRole").cluster_scoped(),
    kind(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding").cluster_scoped(),
];

/// The kinds that a Harvester adds, as far as this project meets them. One update changes metadata, spec and status.
const OF_HARVESTER: [Kind; 3] = [
    kind("kubevirt.io", "v1", "virtualmachines", "VirtualMachine"),
    kind(
        "kubevirt.io",
        "v1",
        "virtualmachineinstances",
        "VirtualMachineInstance",
    ),
    kind("harvesterhci.io", "v1beta1", "settings", "Setting").cluster_scoped(),
];

impl Kind {
    const fn cluster_scoped(self) -> Self {
        Self {
            namespaced: false,
            ..self
        }
    }

    const fn with_status(self) -> Self {
        Self {
            has_status: true,
            ..self
        }
    }

    /// The kinds of a server.
    pub(crate) fn all(is_harvester: bool) -> impl Iterator<Item = Self> {
        let more = OF_HARVESTER.into_iter().filter(move |_| is_harvester);
        BUILT_IN.into_iter().chain(more)
    }

    /// Whether a CustomResourceDefinition defines it.
    pub(crate) fn is_custom(&self) -> bool {
        OF_HARVESTER.contains(self)
    }

    /// `v1` or `group/v1`.
    pub(crate) fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The group under which objects are stored: both groups of events are one set of objects.
    pub(crate) fn storage_group(&self) -> &'static str {
        match self.group {
            EVENTS => "",
            group => group,
        }
    }

    /// A stored object as this kind's version shows it.
    pub(crate) fn present(&self, stored: &Value) -> Value {
        let mut object = stored.clone();
        if self.group == EVENTS {
            rename(&mut object, EVENT_FIELDS);
        }
        object["apiVersion"] = json!(self.api_version());
        object["kind"] = json!(self.kind);
        object
    }

    /// An object of a request as it is stored.
    pub(crate) fn absorb(&self, mut object: Value) -> Value {
        if self.group == EVENTS {
            rename(&mut object, EVENT_FIELDS.map(|(core, new)| (new, core)));
        }
        object
    }
}

/// `resource` or `resource.group`.
pub(crate) fn qualify(plural: &str, group: &str) -> String {
    match group {
        "" => plural.to_owned(),
        group => format!("{plural}.{group}"),
    }
}

/// Core name and `events.k8s.io` name of the same field.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

fn rename(object: &mut Value, fields: [(&str, &str); 7]) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    for (from, to) in fields {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

/// The parts of a resource path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub group: String,
    pub version: String,
    pub namespace: Option<String>,
    pub plural: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

/// Takes a path apart as kube-apiserver's request info resolver does. None for what is no resource, such as `/version`.
pub(crate) fn parse_path(path: &str) -> Option<ResourcePath> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let own = |text: &str| Some(text.to_owned());
    let (namespace, plural, rest) = match rest {
        [] => return None,
        // The namespace object itself: kube-apiserver authorizes it inside that namespace.
        ["namespaces", name] => (own(name), "namespaces", &rest[1..]),
        ["namespaces", namespace, plural, rest @ ..] => (own(namespace), *plural, rest),
        [plural, rest @ ..] => (None, *plural, rest),
    };
    let (name, subresource) = match rest {
        [] => (None, None),
        [name] => (own(name), None),
        [name, subresource @ ..] => (own(name), own(&subresource.join("/"))),
    };
    Some(ResourcePath {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace,
        plural: plural.to_owned(),
        name,
        subresource,
    })
}

/// Query parameters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        // The rules of forms are those of queries.
        let url = reqwest::Url::parse(&format!("query:?{text}"));
        let url = url.expect("hyper takes no other query");
        Self(url.query_pairs().into_owned().collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_set(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1"))
    }

    /// What a selector of fields or labels demands: `key=value`, several with commas.
    pub(crate) fn selector(&self, name: &str) -> Vec<(&str, &str)> {
        let terms = self.get(name).unwrap_or_default().split(',');
        terms.filter_map(|term| term.split_once('=')).collect()
    }

    /// Whether an object has the fields and labels that are selected.
    pub(crate) fn selects(&self, object: &Value) -> bool {
        let has_field = |(path, wanted): (&str, &str)| {
            let value = path.split('.').fold(object, |value, part| &value[part]);
            value.as_str().unwrap_or_default() == wanted
        };
        let labels = &object["metadata"]["labels"];
        self.selector("fieldSelector").into_iter().all(has_field)
            && self
                .selector("labelSelector")
                .into_iter()
                .all(|(key, wanted)| labels[key] == wanted)
    }
}

/// The object map at `object[field]`, made when it is missing or no map.
pub(crate) fn map_mut<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    let value = &mut object[field];
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("just made a map")
}
