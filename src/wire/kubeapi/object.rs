// SPDX-License-Identifier: Apache-2.0
//! The path of an object, or of a collection of objects. It consists of literals of ours and of names that were parsed, so that no
//! name can lead to another resource.
//!
//! It also defines the kind, namespace, name and UID of the response. Any other object is rejected: a proxy or a cache that mixes up
//! responses must not lead to a Node with the labels of another one.

use std::fmt::{self, Display};

use super::types::{JSON, PARTIAL};
use crate::facts::names::{ConfigMapName, HostName, Namespace, NodeName, VmName};
use crate::sys::document::json::objects;

const CORE: &str = "/api/v1";
const KUBEVIRT: &str = "/apis/kubevirt.io/v1";

/// All Nodes.
pub const NODES: ObjectPath = ObjectPath::all(CORE, "nodes", Some("Node"));
/// All namespaces.
pub const NAMESPACES: ObjectPath = ObjectPath::all(CORE, "namespaces", Some("Namespace"));
/// The pods of all namespaces.
pub const PODS: ObjectPath = ObjectPath::all(CORE, "pods", Some("Pod"));
/// The virtual machines of all namespaces.
pub const VIRTUAL_MACHINES: ObjectPath =
    ObjectPath::all(KUBEVIRT, "virtualmachines", Some("VirtualMachine"));
/// The virtual machine instances of all namespaces.
pub const INSTANCES: ObjectPath = ObjectPath::all(
    KUBEVIRT,
    "virtualmachineinstances",
    Some("VirtualMachineInstance"),
);

/// A name that may be part of a path: parsed, or a literal of ours. No such name has a character that must be escaped in a URL.
pub trait ObjectName: Display {}

impl<T: ObjectName> ObjectName for &T {}
impl ObjectName for &'static str {}
impl ObjectName for HostName {}
impl ObjectName for Namespace {}
impl ObjectName for NodeName {}
impl ObjectName for VmName {}

/// An object, or a collection of objects. It is displayed as the path below the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectPath {
    /// The group and its version.
    api: &'static str,
    plural: &'static str,
    /// The kind. None for resources whose kind is not checked.
    kind: Option<&'static str>,
    namespace: Option<String>,
    pub(super) name: Option<String>,
    subresource: Option<&'static str>,
    /// The UID of the response, if it is known.
    pub(super) uid: Option<String>,
}

impl ObjectPath {
    /// Returns a collection. `api` is `/api/v1` or `/apis/GROUP/VERSION`; without `kind`, the kind of a response is not checked.
    #[must_use]
    pub const fn all(api: &'static str, plural: &'static str, kind: Option<&'static str>) -> Self {
        Self {
            api,
            plural,
            kind,
            namespace: None,
            name: None,
            subresource: None,
            uid: None,
        }
    }

    /// Returns a ConfigMap.
    #[must_use]
    pub fn configmap(name: &ConfigMapName) -> Self {
        Self {
            namespace: Some(name.namespace().to_owned()),
            name: Some(name.name().to_owned()),
            ..Self::all(CORE, "configmaps", Some("ConfigMap"))
        }
    }

    /// Returns the collection in one namespace.
    #[must_use]
    pub fn within(mut self, namespace: impl ObjectName) -> Self {
        self.namespace = Some(namespace.to_string());
        self
    }

    /// Returns one object of the collection.
    #[must_use]
    pub fn named(mut self, name: impl ObjectName) -> Self {
        self.name = Some(name.to_string());
        self
    }

    /// Returns the subresource `status` of the object.
    #[must_use]
    pub fn status(mut self) -> Self {
        self.subresource = Some("status");
        self
    }

    /// Returns the name of the object. Empty for a collection.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Returns the kind and the name of the requested object, for messages.
    pub(super) fn what(&self) -> String {
        self.described(self.kind)
    }

    fn described(&self, kind: Option<&str>) -> String {
        let mut what = kind.unwrap_or("object").to_owned();
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => what.push_str(&format!(" `{namespace}/{name}`")),
            (None, Some(name)) => what.push_str(&format!(" `{name}`")),
            (Some(namespace), None) => what.push_str(&format!(" in namespace `{namespace}`")),
            (None, None) => {}
        }
        if let Some(uid) = &self.uid {
            what.push_str(&format!(" with the UID `{uid}`"));
        }
        what
    }

    /// Compares the object in a text that `accept` requested. Returns another one, unescaped and in full, because a credential that was
    /// cut is not recognized: the caller escapes it.
    pub(super) fn compare(&self, text: &[u8], accept: &str) -> serde_json::Result<Option<String>> {
        let texts = [&self.namespace, &self.name, &self.uid];
        if self.kind.is_none() && texts.iter().all(|text| text.is_none()) {
            return Ok(None);
        }
        let found: ExpectedObject = serde_json::from_slice(text)?;
        let fits = |expected: &Option<String>, found: &Option<String>| {
            expected.is_none() || expected == found
        };
        let kind = found.kind.as_deref();
        // The objects of a list have no kind of their own.
        let is_of_kind = self.kind.is_none() || kind.is_none() || kind == self.kind;
        let is_ours = (is_of_kind || accept != JSON && kind == Some(PARTIAL))
            && fits(&self.namespace, &found.metadata.namespace)
            && fits(&self.name, &found.metadata.name)
            && fits(&self.uid, &found.metadata.uid);
        if is_ours {
            return Ok(None);
        }
        let shown = |text: Option<String>| Some(text.unwrap_or_default());
        let other = Self {
            namespace: found.metadata.namespace,
            name: shown(found.metadata.name),
            uid: self.uid.as_ref().and(shown(found.metadata.uid)),
            ..self.clone()
        };
        Ok(Some(other.described(kind.or(self.kind))))
    }

    /// Reports whether a list of this kind may be the one that `accept` requested.
    pub(super) fn is_of_list(&self, kind: &str, accept: &str) -> bool {
        let of = kind.strip_suffix("List");
        self.kind.is_none() || of == self.kind || accept != JSON && of == Some(PARTIAL)
    }
}

impl Display for ObjectPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.api)?;
        if let Some(namespace) = &self.namespace {
            write!(formatter, "/namespaces/{namespace}")?;
        }
        write!(formatter, "/{}", self.plural)?;
        let parts = [self.name.as_deref(), self.subresource];
        let mut parts = parts.into_iter().flatten();
        parts.try_for_each(|part| write!(formatter, "/{part}"))
    }
}

objects! {
    /// The identity of an object.
    struct ExpectedObject {
        kind: Option<String>,
        metadata: IdentityMeta,
    }

    struct IdentityMeta {
        namespace: Option<String>,
        name: Option<String>,
        uid: Option<String>,
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::{METADATA, METADATA_LIST};
    use super::*;

    fn vmi() -> ObjectPath {
        INSTANCES.within("ns").named("vm-1")
    }

    #[test]
    fn an_object_has_its_path_and_its_description() {
        let topology = ConfigMapName::parse("a/b.c").unwrap();
        let settings = ObjectPath::all("/apis/x/v1", "settings", None);
        for (object, path, what) in [
            (NODES, "/api/v1/nodes", "Node"),
            (NODES.named("n"), "/api/v1/nodes/n", "Node `n`"),
            (
                NODES.named("n").status(),
                "/api/v1/nodes/n/status",
                "Node `n`",
            ),
            (
                NAMESPACES.named("kube-system"),
                "/api/v1/namespaces/kube-system",
                "Namespace `kube-system`",
            ),
            (
                ObjectPath::configmap(&topology),
                "/api/v1/namespaces/a/configmaps/b.c",
                "ConfigMap `a/b.c`",
            ),
            (
                vmi(),
                "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances/vm-1",
                "VirtualMachineInstance `ns/vm-1`",
            ),
            (
                INSTANCES.within("ns"),
                "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances",
                "VirtualMachineInstance in namespace `ns`",
            ),
            (
                VIRTUAL_MACHINES.within("ns").named("vm-1"),
                "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines/vm-1",
                "VirtualMachine `ns/vm-1`",
            ),
            (
                PODS.within("ns"),
                "/api/v1/namespaces/ns/pods",
                "Pod in namespace `ns`",
            ),
            (settings.clone(), "/apis/x/v1/settings", "object"),
            (settings.named("a"), "/apis/x/v1/settings/a", "object `a`"),
        ] {
            assert_eq!(object.to_string(), path);
            assert_eq!(object.what(), what, "{path}");
        }
    }

    #[test]
    fn a_name_cannot_lead_to_another_resource_or_select_another_object() {
        for text in [
            "",
            ".",
            "..",
            "../secrets",
            "/b.example",
            "n/",
            "n?x=1",
            "n#x",
            "%2e%2e",
            "..\\b",
            ".\t.",
            "n\n",
            "b c",
            "b:c",
            "ü",
            "a,metadata.namespace=b",
            "a=b",
        ] {
            assert!(HostName::parse(text).is_err(), "{text}");
            assert!(Namespace::parse(text).is_err(), "{text}");
            assert!(NodeName::parse(text).is_err(), "{text}");
            assert!(VmName::parse(text).is_err(), "{text}");
            for configmap in [format!("{text}/name"), format!("namespace/{text}")] {
                assert!(ConfigMapName::parse(&configmap).is_err(), "{configmap}");
            }
        }
    }

    #[test]
    fn each_part_of_the_identity_is_compared() {
        let expected = ObjectPath {
            uid: Some("u".to_owned()),
            ..vmi()
        };
        let compare = |text: &str| expected.compare(text.as_bytes(), METADATA).unwrap();
        let ours = r#"{"kind":"VirtualMachineInstance","metadata":{"namespace":"ns","name":"vm-1","uid":"u"}}"#;
        assert_eq!(compare(ours), None);
        let partial = ours.replace("VirtualMachineInstance", PARTIAL);
        assert_eq!(compare(&partial), None);
        let of_whole = expected.compare(partial.as_bytes(), JSON).unwrap();
        assert!(of_whole.unwrap().starts_with(PARTIAL), "only if requested");
        for (of_ours, other) in [
            ("VirtualMachineInstance", "VirtualMachine"),
            (r#""ns""#, r#""other""#),
            ("vm-1", "vm-2"),
            (r#""u""#, r#""v""#),
            (r#""uid":"u""#, r#""x":"u""#),
            (r#""name":"#, r#""x":"#),
        ] {
            let text = ours.replace(of_ours, other);
            assert!(compare(&text).is_some(), "{text}");
        }
        let found = compare(&ours.replace("vm-1", "vm\\u001b")).unwrap();
        assert_eq!(
            found,
            "VirtualMachineInstance `ns/vm\u{1b}` with the UID `u`"
        );
    }

    #[test]
    fn a_list_is_of_the_requested_kind_or_of_metadata() {
        for (kind, expected) in [
            ("PodList", [true, true]),
            ("PartialObjectMetadataList", [false, true]),
            ("NodeList", [false, false]),
            ("Pod", [false, false]),
            ("Status", [false, false]),
        ] {
            let pods = PODS.within("ns");
            let is_of = [JSON, METADATA_LIST].map(|accept| pods.is_of_list(kind, accept));
            assert_eq!(is_of, expected, "{kind}");
        }
    }
}
