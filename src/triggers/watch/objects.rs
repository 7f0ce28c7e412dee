// SPDX-License-Identifier: Apache-2.0
//! The two kinds of objects that are watched, and what of them matters.

use std::collections::BTreeMap;

use super::target::Watched;
use crate::facts::node::Node;
use crate::facts::vmi::Vmi;

impl Watched for Node {
    type Snapshot = (String, BTreeMap<String, String>, Vec<(String, String)>);

    /// Its status changes often and is nothing to us.
    const METADATA_ONLY: bool = true;

    fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Labels, and of the annotations only ours: others change at each heartbeat of someone.
    fn snapshot(&self) -> Self::Snapshot {
        let ours =
            |(key, _): &(&String, &String)| key.starts_with(crate::decide::ANNOTATION_PREFIX);
        let annotations = self.annotations.iter().filter(ours);
        (
            self.uid.clone(),
            self.labels.clone(),
            annotations
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        )
    }
}

impl Watched for Vmi {
    type Snapshot = Vmi;

    const METADATA_ONLY: bool = false;

    fn name(&self) -> &str {
        self.name.as_str()
    }

    /// All that we read of it but the pods and the annotations that only a user interface reads.
    fn snapshot(&self) -> Vmi {
        let mut vmi = self.clone();
        vmi.active_pods.clear();
        vmi.annotations
            .retain(|key, _| crate::facts::topology::is_host_key(key));
        vmi
    }
}
