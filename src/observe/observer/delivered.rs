// SPDX-License-Identifier: Apache-2.0
//! What the watches delivered, put in the place of what was read before.

use super::Observer;
use crate::facts::node::Node;
use crate::facts::observation::Candidates;
use crate::facts::topology::Topology;
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::observe::why;
use crate::triggers::feed::{Delivered, Reach};
use crate::wire::kubeapi::{Age, Error, age};

/// What must be read because a watch said too little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Uncertain {
    pub(super) vm: bool,
    pub(super) node: bool,
}

impl Observer {
    /// Takes what the watches delivered since the last reading.
    pub(super) fn take_delivered(&mut self) -> Uncertain {
        let (vmi, node) = (self.vmi_feed.take(), self.node_feed.take());
        match vmi.reach {
            // What was never read is not reported by the watch when it is back.
            Some(Reach::Away(error)) if self.own.is_some() => {
                self.candidates = Fact::Failed(away(&error));
            }
            Some(Reach::Reached) if is_watched(&self.candidates) => self.remember_candidates(),
            _ => {}
        }
        match node.reach {
            Some(Reach::Away(error)) => {
                if let Fact::Known(node) = &self.node {
                    self.last_node = Some(node.clone());
                }
                if self.last_node.is_some() {
                    self.node = Fact::Failed(away(&error));
                }
            }
            Some(Reach::Reached) if is_watched(&self.node) => {
                if let Some(node) = self.last_node.take() {
                    self.node = Fact::Known(node);
                }
            }
            _ => {}
        }
        Uncertain {
            vm: match vmi.delivered {
                Some(Delivered::Object { object, version }) => !self.accept_vmi(object, version),
                Some(Delivered::Unknown) => true,
                None => false,
            },
            node: match node.delivered {
                Some(Delivered::Object { object, version }) => !self.accept_node(object, version),
                Some(Delivered::Unknown) => true,
                None => false,
            },
        }
    }

    /// The watch goes on where it stood, so what was known then is still true, or is delivered next.
    fn remember_candidates(&mut self) {
        if let Some(own) = &self.own {
            let others = own.others.vmis.iter().cloned();
            self.candidates = Fact::Known(Candidates {
                vmis: [own.vmi.clone()].into_iter().chain(others).collect(),
                coverage: own.others.coverage,
            });
        }
    }

    /// Takes our instance as it is now, unless it cannot be determined whether it is that.
    fn accept_vmi(&mut self, vmi: Vmi, version: String) -> bool {
        let Some(own) = self.own.as_mut().filter(|own| {
            own.vmi.uid == vmi.uid && own.vmi.namespace == vmi.namespace && own.vmi.name == vmi.name
        }) else {
            return false;
        };
        let known = self.versions.iter().find(|(uid, _)| *uid == vmi.uid);
        match age(&version, known.and_then(|(_, version)| version.as_deref())) {
            Age::Doubtful => return false,
            Age::Same => return self.candidates.known().is_some(),
            Age::Newer => {}
        }
        self.versions = vec![(vmi.uid.clone(), Some(version))];
        own.vmi = vmi;
        self.remember_candidates();
        self.doubt_reads();
        true
    }

    /// Keeps what was read of the host only while the instance gives no reason to doubt it.
    fn doubt_reads(&mut self) {
        let (Some(own), Some(reads)) = (&self.own, &self.reads) else {
            return;
        };
        let annotated = own
            .vmi
            .annotations_are_fresh()
            .then(|| Topology::parse(&own.vmi.annotations).ok())
            .flatten()
            .filter(|topology| !topology.is_empty());
        let reported = reads.host_node.known();
        let reported = reported.and_then(|labels| Topology::parse(labels).ok());
        let is_doubtful = match (&annotated, &reported) {
            // Harvester copies these labels: where they differ, ours are older.
            (Some(annotated), Some(reported)) => annotated != reported,
            (Some(_), None) | (None, Some(_)) => false,
            // A pod of the instance may tell now what it did not before.
            (None, None) => true,
        };
        if is_doubtful {
            if let Some(host) = &own.vmi.host {
                self.hosts.forget(host);
            }
            self.reads = None;
        }
    }

    /// Takes the metadata of our Node as it is now, unless more than that may have changed.
    fn accept_node(&mut self, delivered: Node, version: String) -> bool {
        let Fact::Known(node) = &mut self.node else {
            return false;
        };
        if node.uid != delivered.uid || node.name != delivered.name {
            return false;
        }
        match age(&version, node.resource_version.as_deref()) {
            Age::Doubtful => return false,
            Age::Same => return true,
            Age::Newer => {}
        }
        node.labels = delivered.labels;
        node.annotations = delivered.annotations;
        node.label_managers = delivered.label_managers;
        node.annotation_managers = delivered.annotation_managers;
        node.resource_version = Some(version);
        // A cloud provider that takes the Node on writes labels and `spec.providerID`.
        node.provider_id.is_some()
    }
}

fn away(error: &Error) -> Unavailable {
    let why = why(error);
    Unavailable {
        // What may be cured by another credential is tried with the one that is there then.
        is_watched: why.kind == UnavailableKind::Unreachable,
        ..why
    }
}

fn is_watched<T>(fact: &Fact<T>) -> bool {
    fact.why().is_some_and(|why| why.is_watched)
}
