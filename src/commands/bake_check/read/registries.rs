// SPDX-License-Identifier: Apache-2.0
//! Reports whether the registries of RKE2 and K3s have credentials. Only the presence of a credential is checked.

use std::path::Path;

use zeroize::Zeroizing;

use crate::facts::distribution::{DistributionKind, Form, Matter, Unshareable};
use crate::observe::distribution::DistributionProblem;
use crate::sys::document::yaml::{DocumentError, YamlValue, parse};
use crate::sys::root::Root;

/// The registries file of each distribution (<https://docs.k3s.io/installation/private-registry>).
const FILES: [(DistributionKind, &str); 2] = [
    (DistributionKind::Rke2, "/etc/rancher/rke2/registries.yaml"),
    (DistributionKind::K3s, "/etc/rancher/k3s/registries.yaml"),
];

/// The maximum size of such a file; typical ones are below 16 KiB.
const FILE_MAX: u64 = 1 << 20;

/// Returns one setting for each file with a credential, and an error for each file that cannot be parsed.
pub(super) fn read(root: &Root) -> (Vec<Unshareable>, Vec<DistributionProblem>) {
    let mut found = Vec::new();
    let mut problems = Vec::new();
    for (kind, path) in FILES {
        let text = match root.read(path, FILE_MAX) {
            Ok(text) => Zeroizing::new(text),
            Err(source) if source.is_absent() => continue,
            Err(source) => {
                problems.push(DistributionProblem::Unreadable { kind, source });
                continue;
            }
        };
        match parse(&text) {
            Ok(document) if has_login(&document) => found.push(Unshareable {
                matter: Matter::Secret,
                key: "auth".to_owned(),
                origin: path.into(),
                form: Form::Other,
            }),
            Ok(_) | Err(DocumentError::Empty) => {}
            Err(problem) => problems.push(DistributionProblem::Document {
                path: Path::new(path).to_owned(),
                problem,
            }),
        }
    }
    (found, problems)
}

/// Reports whether any `configs.<registry>.auth` has a value.
fn has_login(document: &YamlValue) -> bool {
    let Some(YamlValue::Map(registries)) = document.get("configs") else {
        return false;
    };
    let is_said = |value: &YamlValue| match value {
        YamlValue::Null => false,
        YamlValue::Map(entries) => !entries.is_empty(),
        _ => true,
    };
    registries
        .iter()
        .any(|(_, registry)| registry.get("auth").is_some_and(is_said))
}
