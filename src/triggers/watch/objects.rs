// SPDX-License-Identifier: Apache-2.0
//! The two kinds of watched objects, and their relevant fields.

use std::collections::BTreeMap;

use super::target::Watched;
use crate::facts::node::{ANNOTATION_PREFIX, Node};
use crate::facts::vmi::Vmi;

impl Watched for Node {
    type Snapshot = (String, BTreeMap<String, String>, Vec<(String, String)>);

    /// Its status changes often and is not relevant.
    const METADATA_ONLY: bool = true;

    /// Returns the labels and our own annotations: other annotations change at each heartbeat of another component.
    fn snapshot(&self) -> Self::Snapshot {
        let ours = self.annotations.iter();
        let ours = ours.filter(|(key, _)| key.starts_with(ANNOTATION_PREFIX));
        let ours = ours.map(|(key, value)| (key.clone(), value.clone()));
        (self.uid.clone(), self.labels.clone(), ours.collect())
    }
}

impl Watched for Vmi {
    type Snapshot = Vmi;

    const METADATA_ONLY: bool = false;

    /// Returns all fields that we read except the pods.
    fn snapshot(&self) -> Vmi {
        let mut vmi = self.clone();
        vmi.active_pods.clear();
        vmi.resource_version = None;
        vmi
    }
}
