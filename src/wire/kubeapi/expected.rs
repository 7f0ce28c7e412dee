// SPDX-License-Identifier: Apache-2.0
//! Compares a response with the kind, namespace, name and UID that the request names. Any other object is rejected: a
//! proxy or a cache that mixes up responses must not lead to a Node with the labels of another one.

use std::fmt;

use serde::Deserialize;

use super::error::{Error, Kind, Target, describe};
use super::http::Transport;
use super::types::{MAXIMUM_ITEMS, PARTIAL};
use crate::sys::document::json::Capped;

/// The kinds of the resources that are read, by the resource in their path.
const KINDS: [(&str, &str); 6] = [
    ("nodes", "Node"),
    ("pods", "Pod"),
    ("configmaps", "ConfigMap"),
    ("namespaces", "Namespace"),
    ("virtualmachines", "VirtualMachine"),
    ("virtualmachineinstances", "VirtualMachineInstance"),
];

/// The expected properties of a response, as far as the request defines them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Expected {
    /// The kind. None for resources whose kind is not checked.
    kind: Option<&'static str>,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

impl Expected {
    /// Returns the properties that the path of a request defines; none if the path is not of an object.
    pub(super) fn of(path: &str) -> Self {
        let mut segments = path.split('/').skip(1);
        let version = match segments.next() {
            Some("api") => segments.next(),
            Some("apis") => segments.nth(1),
            _ => None,
        };
        if version.is_none() {
            return Self::default();
        }
        let rest: Vec<&str> = segments.collect();
        let (namespace, plural, name) = match rest.as_slice() {
            ["namespaces", namespace, plural, rest @ ..] => {
                (Some(*namespace), Some(*plural), rest.first())
            }
            [plural, rest @ ..] => (None, Some(*plural), rest.first()),
            [] => (None, None, None),
        };
        let kind = KINDS
            .into_iter()
            .find_map(|(resource, kind)| (Some(resource) == plural).then_some(kind));
        Self {
            kind,
            namespace: namespace.map(str::to_owned),
            name: name.map(|name| (*name).to_owned()),
            uid: None,
        }
    }

    /// Adds the name of one object of a collection.
    pub(super) fn named(self, name: Option<&str>) -> Self {
        Self {
            name: name.map(str::to_owned).or(self.name),
            ..self
        }
    }

    /// Adds the UID of the object.
    pub(super) fn with_uid(self, uid: Option<&str>) -> Self {
        Self {
            uid: uid.map(str::to_owned),
            ..self
        }
    }

    fn is_anything(&self) -> bool {
        *self == Self::default()
    }

    /// Compares the object in a text. The inner error is the received object, unescaped and in full, because a credential that was cut
    /// is not recognized: the caller escapes it.
    pub(super) fn compare(&self, text: &[u8]) -> Result<Result<(), String>, serde_json::Error> {
        if self.is_anything() {
            return Ok(Ok(()));
        }
        Ok(self.compare_with(&serde_json::from_slice(text)?))
    }

    /// Compares each object of a list.
    pub(super) fn compare_list(
        &self,
        text: &[u8],
    ) -> Result<Result<(), String>, serde_json::Error> {
        if self.is_anything() {
            return Ok(Ok(()));
        }
        let list: Identities = serde_json::from_slice(text)?;
        let is_other = |kind: &&str| {
            let of = kind.strip_suffix("List");
            self.kind
                .is_some_and(|expected| of != Some(expected) && of != Some(PARTIAL))
        };
        if let Some(kind) = list.kind.as_deref().filter(is_other) {
            return Ok(Err(format!("a `{kind}`")));
        }
        Ok(list
            .items
            .0
            .iter()
            .try_for_each(|item| self.compare_with(item)))
    }

    fn compare_with(&self, found: &ExpectedObject) -> Result<(), String> {
        let fits = |expected: &Option<String>, found: &Option<String>| {
            expected.is_none() || expected == found
        };
        let kind = found.kind.as_deref();
        // The objects of a list have no kind of their own.
        let is_of_kind = self.kind.is_none() || kind.is_none() || kind == self.kind;
        let is_ours = (is_of_kind || kind == Some(PARTIAL))
            && fits(&self.namespace, &found.metadata.namespace)
            && fits(&self.name, &found.metadata.name)
            && fits(&self.uid, &found.metadata.uid);
        if is_ours {
            return Ok(());
        }
        let mut what = kind.or(self.kind).unwrap_or("object").to_owned();
        let IdentityMeta {
            namespace,
            name,
            uid,
        } = &found.metadata;
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        match namespace {
            Some(_) => what.push_str(&format!(" `{}/{}`", part(namespace), part(name))),
            None => what.push_str(&format!(" `{}`", part(name))),
        }
        if self.uid.is_some() {
            what.push_str(&format!(" with the UID `{}`", part(uid)));
        }
        Err(what)
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind.unwrap_or("object"))?;
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => write!(formatter, " `{namespace}/{name}`")?,
            (None, Some(name)) => write!(formatter, " `{name}`")?,
            (Some(namespace), None) => write!(formatter, " in namespace `{namespace}`")?,
            (None, None) => {}
        }
        match &self.uid {
            Some(uid) => write!(formatter, " with the UID `{uid}`"),
            None => Ok(()),
        }
    }
}

/// The identity of an object.
#[derive(Deserialize)]
struct ExpectedObject {
    kind: Option<String>,
    #[serde(default)]
    metadata: IdentityMeta,
}

#[derive(Deserialize, Default)]
struct IdentityMeta {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

#[derive(Deserialize)]
struct Identities {
    kind: Option<String>,
    #[serde(default)]
    items: Capped<ExpectedObject, MAXIMUM_ITEMS>,
}

impl Transport {
    /// Converts the result of a comparison to an error.
    pub(super) fn expect(
        &self,
        expected: &Expected,
        compared: Result<Result<(), String>, serde_json::Error>,
        target: &Target,
    ) -> Result<(), Error> {
        let compared = compared.map_err(|error| self.unreadable(&error, target))?;
        compared.map_err(|found| {
            let (expected, found) = (describe(&expected.to_string()), self.describe(&found));
            let problem = format!("requested {expected}, got {found}");
            target.error(Kind::UnexpectedObject, problem)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VMI: &str = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances/vm-1";

    #[test]
    fn the_path_says_what_is_expected() {
        for (path, expected) in [
            ("/api/v1/nodes/n", "Node `n`"),
            ("/api/v1/nodes/n/status", "Node `n`"),
            ("/api/v1/namespaces/kube-system", "Namespace `kube-system`"),
            ("/api/v1/namespaces/a/configmaps/b", "ConfigMap `a/b`"),
            (VMI, "VirtualMachineInstance `ns/vm-1`"),
            ("/api/v1/namespaces/ns/pods", "Pod in namespace `ns`"),
            ("/apis/x/v1/settings/a", "object `a`"),
            ("/version", "object"),
        ] {
            assert_eq!(Expected::of(path).to_string(), expected, "{path}");
        }
    }

    #[test]
    fn each_part_of_the_identity_is_compared() {
        let expected = Expected::of(VMI).with_uid(Some("u"));
        let compare = |text: &str| expected.compare(text.as_bytes()).unwrap();
        let ours = r#"{"kind":"VirtualMachineInstance","metadata":{"namespace":"ns","name":"vm-1","uid":"u"}}"#;
        assert_eq!(compare(ours), Ok(()));
        let partial = ours.replace("VirtualMachineInstance", PARTIAL);
        assert_eq!(compare(&partial), Ok(()));
        for (of_ours, other) in [
            ("VirtualMachineInstance", "VirtualMachine"),
            (r#""ns""#, r#""other""#),
            ("vm-1", "vm-2"),
            (r#""u""#, r#""v""#),
            (r#""uid":"u""#, r#""x":"u""#),
            (r#""name":"#, r#""x":"#),
        ] {
            let text = ours.replace(of_ours, other);
            assert!(compare(&text).is_err(), "{text}");
        }
        let found = compare(&ours.replace("vm-1", "vm\\u001b")).unwrap_err();
        assert_eq!(
            found,
            "VirtualMachineInstance `ns/vm\u{1b}` with the UID `u`"
        );
    }

    #[test]
    fn each_object_of_a_list_is_compared() {
        let expected = Expected::of("/api/v1/namespaces/ns/pods");
        let compare = |text: &str| expected.compare_list(text.as_bytes()).unwrap();
        let item = |namespace: &str| format!(r#"{{"metadata":{{"namespace":"{namespace}"}}}}"#);
        let list = |kind: &str, last: &str| {
            let (ours, last) = (item("ns"), item(last));
            format!(r#"{{"kind":"{kind}","items":[{ours},{last}]}}"#)
        };
        for kind in ["PodList", "PartialObjectMetadataList"] {
            assert_eq!(compare(&list(kind, "ns")), Ok(()));
        }
        assert_eq!(compare(r#"{"items":null}"#), Ok(()));
        assert!(compare(&list("PodList", "other")).is_err());
        assert!(compare(&list("NodeList", "ns")).is_err());
        assert!(compare(&list("Pod", "ns")).is_err());
    }
}
