// SPDX-License-Identifier: Apache-2.0
//! Reads our own Node.

use crate::facts::names::NodeName;
use crate::facts::node::Node;
use crate::facts::{Fact, UnavailableKind};
use crate::observe::api_access::ApiLink;
use crate::sys::escape::chain;
use crate::wire::kubeapi::{Kind, NODES};

/// Reads the Node with this name.
pub async fn read(link: &ApiLink, name: &NodeName) -> Fact<Node> {
    match link.client.get::<Node>(&NODES.named(name)).await {
        Err(error) if error.kind == Kind::OtherNode => {
            Fact::failed(UnavailableKind::AnotherNode, chain(&error))
        }
        read => read.into(),
    }
}
