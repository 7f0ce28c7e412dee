// SPDX-License-Identifier: Apache-2.0
//! What runs on our Node that acts on it? The pods that the kubelet's credential may list: those of this Node.

use super::Gap;
use crate::facts::{Seen, Why};
use crate::findings::Group;

/// The pods of our Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pods {
    /// Each with its images.
    pub here: Seen<Vec<Pod>>,
}

/// One pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// `namespace/name`.
    pub reference: String,
    /// The images of its containers, such as `rancher/harvester-csi-driver:v0.2.2`.
    pub images: Vec<String>,
}

impl Pods {
    /// None of it, for one reason.
    pub fn unseen(why: &Why) -> Self {
        Self {
            here: Seen::Failed(why.clone()),
        }
    }

    /// What could not be looked at.
    pub fn gaps(&self) -> Vec<Gap> {
        let gap = Gap::of(Group::Versions, "the pods of this Node", &self.here);
        gap.into_iter().collect()
    }
}
