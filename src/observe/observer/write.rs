// SPDX-License-Identifier: Apache-2.0
//! Passes each action to `apply` with the credential of the kubelet, and keeps the Node of the response.

use super::state::Observer;
use crate::agent::{Answer, Apply};
use crate::apply::Own;
use crate::decide::{Action, Now, Refusal};
use crate::facts::Fact;
use crate::facts::observation::Observation;
use crate::observe::api_access::Connections;

impl Apply for Observer {
    async fn apply(&mut self, action: &Action, now: Now) -> Answer {
        let own = own(&self.connections, &self.facts);
        let answer = self.writer.apply(own, action, now).await;
        // The response is the newest version of our Node: the next decision must not use the old one.
        if let Ok(Some(node)) = &answer {
            self.facts.node = Fact::Known(node.clone());
        }
        let left = self.connections.guest.deferred();
        answer.map_err(|refusal| Refusal {
            retry_after: left.filter(|_| refusal.passing).or(refusal.retry_after),
            ..refusal
        })
    }

    async fn announce(&mut self) {
        let own = own(&self.connections, &self.facts);
        self.writer.announce(own, self.is_daemon).await;
    }
}

/// Returns what writes to our own Node need.
fn own<'a>(connections: &'a Connections, facts: &'a Observation) -> Option<Own<'a>> {
    let (link, kubelet) = (connections.guest.link().ok()?, facts.kubelet.known()?);
    Some((&link.client, &kubelet.node_name))
}
