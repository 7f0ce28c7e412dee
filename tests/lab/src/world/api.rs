// SPDX-License-Identifier: Apache-2.0
//! The API servers of a world, of either kind.

use super::{World, WorldOptions};
use crate::Endpoint;
use crate::kubernetes::Kubernetes;
use crate::pki::Identity;
use crate::real::{Lease, RealApi};
use crate::server::{RequestRecord, Server};

/// On which servers a scenario runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// On those of the lab.
    Lab,
    /// On real ones of a version.
    Real(Kubernetes),
}

impl On {
    /// Whether the API server gives a pod the region and zone of its node.
    #[must_use]
    pub fn labels_pods(self) -> bool {
        self == Self::Real(Kubernetes::V1_36)
    }

    /// A world on these servers.
    ///
    /// # Panics
    /// As [`World::real`].
    pub async fn world(self, options: WorldOptions) -> World {
        match self {
            Self::Lab => World::lab(options).await,
            Self::Real(version) => World::real(version, options).await,
        }
    }
}

/// An API server of either kind.
#[derive(Debug)]
pub enum Api {
    /// In this process.
    Lab(Box<Server>),
    /// etcd and kube-apiserver, from the pool.
    Real(Lease),
}

impl Api {
    /// How to reach it.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        match self {
            Self::Lab(server) => server.endpoint(),
            Self::Real(api) => api.endpoint(),
        }
    }

    /// A client certificate that it accepts.
    #[must_use]
    pub fn client_identity(&self, user: &str, groups: &[&str]) -> Identity {
        let authority = match self {
            Self::Lab(server) => server.authority(),
            Self::Real(api) => api.authority(),
        };
        authority.client_identity(user, groups)
    }

    /// Requests of clients whose User-Agent begins so, oldest first.
    pub async fn requests_of(&self, user_agent_prefix: &str) -> Vec<RequestRecord> {
        match self {
            Self::Lab(server) => server.requests_of(user_agent_prefix),
            Self::Real(api) => api.requests_of(user_agent_prefix).await,
        }
    }

    /// The server that is etcd and kube-apiserver.
    ///
    /// # Panics
    /// When it is the lab's own.
    #[must_use]
    pub fn real(&self) -> &RealApi {
        match self {
            Self::Real(api) => api,
            Self::Lab(_) => panic!("this needs a real API server"),
        }
    }

    /// The server in this process, for faults and for what only it can do.
    ///
    /// # Panics
    /// When it is a real one.
    #[must_use]
    pub fn lab(&self) -> &Server {
        match self {
            Self::Lab(server) => server,
            Self::Real(_) => panic!("this needs the lab's own API server"),
        }
    }
}
