// SPDX-License-Identifier: Apache-2.0
//! Which kinds the server knows, and what a request's path and query ask for.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// What a kind's `status` subresource does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusSubresource {
    /// There is none; one update changes everything.
    None,
    /// The main resource cannot change the status, and the subresource cannot change the spec.
    Separate,
    /// The main resource changes everything, and the subresource changes the status alone.
    Open,
}

/// One resource type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Name in paths.
    pub plural: String,
    /// Name in objects.
    pub kind: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Its `status` subresource.
    pub status: StatusSubresource,
    /// Whether a CustomResourceDefinition defines it: no strategic merge, `generation`, `resourceVersion` needed by PUT.
    pub custom: bool,
}

impl Kind {
    /// A kind that kube-apiserver itself has.
    #[must_use]
    pub fn built_in(group: &str, version: &str, plural: &str, kind: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            namespaced: true,
            status: StatusSubresource::None,
            custom: false,
        }
    }

    /// A kind that a CustomResourceDefinition defines.
    #[must_use]
    pub fn custom(group: &str, version: &str, plural: &str, kind: &str) -> Self {
        Self {
            custom: true,
            ..Self::built_in(group, version, plural, kind)
        }
    }

    /// The same kind outside of namespaces.
    #[must_use]
    pub fn cluster_scoped(self) -> Self {
        Self {
            namespaced: false,
            ..self
        }
    }

    /// The same kind with a status subresource.
    #[must_use]
    pub fn with_status(self, status: StatusSubresource) -> Self {
        Self { status, ..self }
    }

    /// The kinds that a CustomResourceDefinition object defines, one per version.
    #[must_use]
    pub fn of_definition(definition: &Value) -> Vec<Self> {
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let versions = spec["versions"].as_array().cloned().unwrap_or_default();
        versions
            .iter()
            .map(|version| Self {
                group: text(&spec["group"]),
                version: text(&version["name"]),
                plural: text(&spec["names"]["plural"]),
                kind: text(&spec["names"]["kind"]),
                namespaced: spec["scope"] == "Namespaced",
                status: if version["subresources"]["status"].is_object() {
                    StatusSubresource::Separate
                } else {
                    StatusSubresource::None
                },
                custom: true,
            })
            .collect()
    }

    /// Whether `metadata.generation` is kept.
    pub(crate) fn counts_generations(&self) -> bool {
        self.custom || self.plural == "customresourcedefinitions"
    }

    /// `v1` or `group/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `nodes` or `virtualmachines.kubevirt.io`, as error texts name it.
    #[must_use]
    pub fn qualified_plural(&self) -> String {
        qualify(&self.plural, &self.group)
    }

    /// The group under which objects are stored: both groups of events are one set of objects.
    pub(crate) fn storage_group(&self) -> &str {
        if self.is_new_event() { "" } else { &self.group }
    }

    fn is_new_event(&self) -> bool {
        self.group == "events.k8s.io"
    }

    /// A stored object as this kind's version shows it.
    pub(crate) fn present(&self, stored: &Value) -> Value {
        let mut object = stored.clone();
        if self.is_new_event() {
            rename(&mut object, &EVENT_FIELDS, Direction::ToNew);
        }
        object["apiVersion"] = json!(self.api_version());
        object["kind"] = json!(self.kind);
        object
    }

    /// An object of a request as it is stored.
    pub(crate) fn absorb(&self, mut object: Value) -> Value {
        if self.is_new_event() {
            rename(&mut object, &EVENT_FIELDS, Direction::ToCore);
            object["apiVersion"] = json!("v1");
        }
        object
    }
}

/// `resource` or `resource.group`.
pub(crate) fn qualify(plural: &str, group: &str) -> String {
    if group.is_empty() {
        plural.to_owned()
    } else {
        format!("{plural}.{group}")
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

#[derive(Clone, Copy)]
enum Direction {
    ToNew,
    ToCore,
}

fn rename(object: &mut Value, fields: &[(&str, &str)], direction: Direction) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    for (core, new) in fields {
        let (from, to) = match direction {
            Direction::ToNew => (core, new),
            Direction::ToCore => (new, core),
        };
        if let Some(value) = map.remove(*from) {
            map.insert((*to).to_owned(), value);
        }
    }
}

/// The kinds that every cluster has, as far as this project meets them.
#[must_use]
pub fn built_in_kinds() -> Vec<Kind> {
    use StatusSubresource::Separate;
    const RBAC: &str = "rbac.authorization.k8s.io";
    vec![
        Kind::built_in("", "v1", "nodes", "Node")
            .cluster_scoped()
            .with_status(Separate),
        Kind::built_in("", "v1", "namespaces", "Namespace")
            .cluster_scoped()
            .with_status(Separate),
        Kind::built_in("", "v1", "pods", "Pod").with_status(Separate),
        Kind::built_in("", "v1", "configmaps", "ConfigMap"),
        Kind::built_in("", "v1", "secrets", "Secret"),
        Kind::built_in("", "v1", "serviceaccounts", "ServiceAccount"),
        Kind::built_in("", "v1", "services", "Service").with_status(Separate),
        Kind::built_in("", "v1", "persistentvolumes", "PersistentVolume")
            .cluster_scoped()
            .with_status(Separate),
        Kind::built_in("", "v1", "events", "Event"),
        Kind::built_in("events.k8s.io", "v1", "events", "Event"),
        Kind::built_in("coordination.k8s.io", "v1", "leases", "Lease"),
        Kind::built_in(RBAC, "v1", "roles", "Role"),
        Kind::built_in(RBAC, "v1", "rolebindings", "RoleBinding"),
        Kind::built_in(RBAC, "v1", "clusterroles", "ClusterRole").cluster_scoped(),
        Kind::built_in(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding").cluster_scoped(),
        Kind::built_in(
            "apiextensions.k8s.io",
            "v1",
            "customresourcedefinitions",
            "CustomResourceDefinition",
        )
        .cluster_scoped()
        .with_status(Separate),
    ]
}

/// The kinds that a Harvester adds, as far as this project meets them.
#[must_use]
pub fn harvester_kinds() -> Vec<Kind> {
    use StatusSubresource::Open;
    let migrations = "virtualmachineinstancemigrations";
    vec![
        Kind::custom("kubevirt.io", "v1", "virtualmachines", "VirtualMachine").with_status(Open),
        Kind::custom(
            "kubevirt.io",
            "v1",
            "virtualmachineinstances",
            "VirtualMachineInstance",
        )
        .with_status(Open),
        Kind::custom(
            "kubevirt.io",
            "v1",
            migrations,
            "VirtualMachineInstanceMigration",
        )
        .with_status(Open),
        Kind::custom("kubevirt.io", "v1", "kubevirts", "KubeVirt").with_status(Open),
        Kind::custom("harvesterhci.io", "v1beta1", "settings", "Setting").cluster_scoped(),
    ]
}

/// What a path names: a resource, or something else (`/version`, discovery).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Resource(ResourcePath),
    Other,
}

/// The parts of a resource path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub group: String,
    pub version: String,
    pub namespace: Option<String>,
    pub plural: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

/// Takes a path apart as kube-apiserver's request info resolver does.
pub(crate) fn parse_path(path: &str) -> Target {
    let decoded: Vec<String> = path
        .split('/')
        .filter(|part| !part.is_empty())
        .map(|part| decode(part, Plus::Literal))
        .collect();
    let parts: Vec<&str> = decoded.iter().map(String::as_str).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Target::Other,
    };
    let own = |text: &str| Some(text.to_owned());
    let (namespace, plural, rest) = match rest {
        [] => return Target::Other,
        // The namespace object itself: kube-apiserver authorizes it inside that namespace.
        ["namespaces", name] | ["namespaces", name, "status" | "finalize"] => {
            (own(name), "namespaces", &rest[1..])
        }
        ["namespaces", namespace, plural, rest @ ..] => (own(namespace), *plural, rest),
        [plural, rest @ ..] => (None, *plural, rest),
    };
    let (name, subresource) = match rest {
        [] => (None, None),
        [name] => (own(name), None),
        [name, subresource @ ..] => (own(name), own(&subresource.join("/"))),
    };
    Target::Resource(ResourcePath {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace,
        plural: plural.to_owned(),
        name,
        subresource,
    })
}

/// Query parameters in order; a name may repeat.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        Self(
            text.split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(name, Plus::Space), decode(value, Plus::Space))
                })
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_set(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1"))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Plus {
    Literal,
    Space,
}

fn decode(text: &str, plus: Plus) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits: Vec<u8> = rest.by_ref().take(2).collect();
                let hex = std::str::from_utf8(&digits).unwrap_or_default();
                bytes.push(u8::from_str_radix(hex, 16).unwrap_or(b'?'));
            }
            b'+' if plus == Plus::Space => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The path of an object, for example `/api/v1/nodes/a`.
pub(crate) fn object_path(kind: &Kind, namespace: &str, name: &str) -> String {
    let mut path = if kind.group.is_empty() {
        format!("/api/{}", kind.version)
    } else {
        format!("/apis/{}/{}", kind.group, kind.version)
    };
    if !namespace.is_empty() {
        write!(path, "/namespaces/{namespace}").expect("a string takes text");
    }
    write!(path, "/{}/{name}", kind.plural).expect("a string takes text");
    path
}

/// The object map at `object[field]`, made when it is missing or no map.
pub(crate) fn map_mut<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    let value = &mut object[field];
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("just made a map")
}
