// SPDX-License-Identifier: Apache-2.0
//! Reads our own Node.

use serde::de::DeserializeOwned;

use super::why;
use crate::facts::names::NodeName;
use crate::facts::node::Node;
use crate::facts::{Fact, UnavailableKind};
use crate::observe::api_access::ApiLink;
use crate::sys::escape::chain;
use crate::wire::kubeapi::{Client, Error, Kind};

/// The required freshness of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// The newest version, by a quorum read of etcd.
    Newest,
    /// The version in the API server's cache, which costs etcd nothing.
    Cached,
}

impl Freshness {
    /// Reads one object.
    pub async fn get<T: DeserializeOwned>(self, client: &Client, path: &str) -> Result<T, Error> {
        match self {
            Self::Newest => client.get(path).await,
            Self::Cached => client.get_cached(path).await,
        }
    }
}

/// Reads the Node with this name.
pub async fn read(link: &ApiLink, name: &NodeName, freshness: Freshness) -> Fact<Node> {
    let path = format!("/api/v1/nodes/{name}");
    match freshness.get::<Node>(&link.client, &path).await {
        Ok(node) if node.name == *name => Fact::Known(node),
        Ok(node) => Fact::failed(
            UnavailableKind::Refused,
            format!("requested Node `{name}`, got `{}`", node.name),
        ),
        Err(error) if error.kind == Kind::Absent => Fact::Absent,
        Err(error) if error.kind == Kind::OtherNode => {
            Fact::failed(UnavailableKind::AnotherNode, chain(&error))
        }
        Err(error) => Fact::Failed(why(&error)),
    }
}
