// SPDX-License-Identifier: Apache-2.0
//! Replaces earlier reads with the objects that the watches delivered.

use std::cmp::Ordering;

use super::due::Due;
use super::state::Observer;
use crate::facts::node::Node;
use crate::facts::observation::Candidates;
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::observe::unavailable::why;
use crate::triggers::feed::Delivered;
use crate::wire::kubeapi::{Error, age};

impl Observer {
    /// Takes the objects that the watches delivered since the last read. Returns those of which the watch did not deliver enough.
    pub(super) fn take_delivered(&mut self) -> Due {
        let (vmi, reach) = self.vmi_feed.take();
        match reach {
            // The watch does not restore an instance that was never read.
            Some(Err(error)) if self.own.is_some() => {
                self.facts.candidates = Fact::Failed(away(&error));
            }
            // The watch resumes at its version, so they are still valid, or a change is delivered next.
            Some(Ok(())) if is_watched(&self.facts.candidates) => {
                self.remember_candidates();
            }
            _ => {}
        }
        let (node, reach) = self.node_feed.take();
        match reach {
            Some(Err(error)) => {
                if let Fact::Known(node) = &self.facts.node {
                    self.last_node = Some(node.clone());
                }
                if self.last_node.is_some() {
                    self.facts.node = Fact::Failed(away(&error));
                }
            }
            Some(Ok(())) if is_watched(&self.facts.node) => {
                if let Some(node) = self.last_node.take() {
                    self.facts.node = Fact::Known(node);
                }
            }
            _ => {}
        }
        let mut doubted = Due::empty();
        let is_vm_doubted = is_doubted(vmi, |vmi, version| self.accept_vmi(vmi, &version));
        let is_node_doubted = is_doubted(node, |node, version| self.accept_node(node, version));
        doubted.set(Due::VM, is_vm_doubted);
        doubted.set(Due::NODE, is_node_doubted);
        doubted
    }

    /// Sets the candidates to our instance and those that were kept with it.
    pub(super) fn remember_candidates(&mut self) {
        if let Some(own) = &self.own {
            let others = own.others.vmis.iter().cloned();
            self.facts.candidates = Fact::Known(Candidates {
                vmis: [own.vmi.clone()].into_iter().chain(others).collect(),
                coverage: own.others.coverage,
            });
        }
    }

    /// Accepts the delivered instance. Returns `false` if it cannot be determined whether it is ours and newer.
    fn accept_vmi(&mut self, vmi: Vmi, version: &str) -> bool {
        let Some(own) = self.own.as_mut().filter(|own| {
            own.vmi.uid == vmi.uid && own.vmi.namespace == vmi.namespace && own.vmi.name == vmi.name
        }) else {
            return false;
        };
        // It may have been read again since it was found.
        let mut read = self.facts.vmis().iter();
        let read = read.find(|read| read.uid == vmi.uid);
        let known = read.unwrap_or(&own.vmi).resource_version.as_deref();
        match age(version, known) {
            Some(Ordering::Greater) => {}
            Some(Ordering::Equal) => return self.facts.candidates.known().is_some(),
            _ => return false,
        }
        let known = std::mem::replace(&mut own.vmi, vmi);
        let is_unrelated = Vmi {
            announcements: own.vmi.announcements.clone(),
            guest_agent: own.vmi.guest_agent.clone(),
            resource_version: own.vmi.resource_version.clone(),
            ..known
        } == own.vmi;
        self.remember_candidates();
        // Neither an announcement nor the state of the guest agent changes a label.
        if let (false, Some(own)) = (is_unrelated, &self.own) {
            self.host_labels.doubt(&own.vmi);
        }
        true
    }

    /// Accepts the delivered metadata of our Node. Returns `false` if other fields may have changed too.
    fn accept_node(&mut self, delivered: Node, version: String) -> bool {
        let Fact::Known(node) = &mut self.facts.node else {
            return false;
        };
        if node.uid != delivered.uid || node.name != delivered.name {
            return false;
        }
        let last = self.delivered_version.replace(version.clone());
        match age(&version, node.resource_version.as_deref()) {
            Some(Ordering::Greater) => {}
            Some(Ordering::Equal) => return true,
            // The watch delivers what the responses to our writes include.
            _ => return age(&version, last.as_deref()) == Some(Ordering::Greater),
        }
        node.labels = delivered.labels;
        node.annotations = delivered.annotations;
        node.managers = delivered.managers;
        node.resource_version = Some(version);
        // A cloud provider that initializes the Node writes labels and `spec.providerID`.
        node.provider_id.is_some()
    }
}

/// Reports whether the object must be read: `accept` refuses it, or the watch does not know it.
fn is_doubted<T>(delivered: Option<Delivered<T>>, accept: impl FnOnce(T, String) -> bool) -> bool {
    match delivered {
        Some(Delivered::Object { object, version }) => !accept(object, version),
        Some(Delivered::Unknown) => true,
        None => false,
    }
}

fn away(error: &Error) -> Unavailable {
    let why = why(error);
    Unavailable {
        // An error that another credential may fix is retried with the current credential.
        is_watched: why.kind == UnavailableKind::Unreachable,
        ..why
    }
}

fn is_watched<T>(fact: &Fact<T>) -> bool {
    fact.why().is_some_and(|why| why.is_watched)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::source_board::SourceBoard;
    use crate::catalog::Api;
    use crate::sys::root::Root;
    use crate::wire::dbus::Bus;
    use crate::wire::kubeapi::Kind;

    fn node(version: &str) -> Node {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "vm-1", "uid": "1", "resourceVersion": version},
            "spec": {"providerID": "harvester://1"},
        }))
        .unwrap()
    }

    #[test]
    fn what_the_response_to_a_write_includes_is_not_read_again_when_it_is_delivered() {
        let root = Root::new("/nonexistent");
        let bus = Bus::new(&root, None);
        let mut observer = Observer::new(root, bus, SourceBoard::default(), None);
        // It read version 4, wrote labels and a condition, and the last response had version 6.
        observer.delivered_version = Some("4".to_owned());
        observer.facts.node = Fact::Known(node("6"));
        // A watch that lags or another etcd deliver the version that was read, or an older one.
        for (version, is_accepted) in [("5", true), ("6", true), ("7", true), ("6", false)] {
            let accepted = observer.accept_node(node(version), version.to_owned());
            assert_eq!(accepted, is_accepted, "{version}");
        }
        for version in ["4", "3"] {
            observer.delivered_version = Some("4".to_owned());
            assert!(!observer.accept_node(node(version), version.to_owned()));
        }
    }

    #[test]
    fn a_node_is_known_again_when_its_api_is_reached_but_not_after_another_credential() {
        for is_forgotten in [false, true] {
            let root = Root::new("/nonexistent");
            let bus = Bus::new(&root, None);
            let mut observer = Observer::new(root, bus, SourceBoard::default(), None);
            observer.facts.node = Fact::Known(node("4"));
            let away = || Err(Error::new(Kind::Unreachable, "no route"));
            observer.node_feed.reach(away());
            observer.take_delivered();
            assert!(is_watched(&observer.facts.node));
            if is_forgotten {
                observer.forget(Api::Guest);
                // The Node cannot be read with the new credential.
                observer.facts.node = Fact::failed(UnavailableKind::Unreachable, "no route");
                observer.node_feed.reach(away());
                observer.take_delivered();
            }
            observer.node_feed.reach(Ok(()));
            observer.take_delivered();
            assert_eq!(observer.facts.node.known().is_none(), is_forgotten);
        }
    }
}
