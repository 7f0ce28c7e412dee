// SPDX-License-Identifier: Apache-2.0
//! Whether the registries of RKE2 and K3s come with a login. Of it only the presence is checked.

use std::path::Path;

use zeroize::Zeroizing;

use crate::facts::distribution::{DistributionKind, Form, Matter, Unshareable};
use crate::observe::distribution::DistributionProblem;
use crate::sys::document::yaml::{DocumentError, YamlValue, parse};
use crate::sys::root::Root;

/// What each of the two reads (<https://docs.k3s.io/installation/private-registry>).
const FILES: [(DistributionKind, &str); 2] = [
    (DistributionKind::Rke2, "/etc/rancher/rke2/registries.yaml"),
    (DistributionKind::K3s, "/etc/rancher/k3s/registries.yaml"),
];

/// The largest such file; they are below 16 KiB.
const FILE_MAX: u64 = 1 << 20;

/// One for each file with a login, and why a file could not be understood.
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

/// `configs.<registry>.auth` that holds anything.
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
