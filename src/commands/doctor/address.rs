// SPDX-License-Identifier: Apache-2.0
//! The address of a server, whose parts identify the type of the server.

use reqwest::Url;

use crate::access::own_api::is_loopback;

/// The prefix of a path through Rancher; the name of a cluster follows.
const RANCHER_PROXY: &str = "/k8s/clusters/";

/// The public form of the URL of a server: without user, query and the default port.
#[derive(Debug)]
pub(super) struct Address(Url);

impl Address {
    /// Parses the URL; `None` for any other text.
    pub(super) fn parse(server: &str) -> Option<Self> {
        Url::parse(server).ok().map(Self)
    }

    /// Returns the host, an IPv6 address without its brackets.
    pub(super) fn host(&self) -> &str {
        let host = self.0.host_str().unwrap_or_default();
        host.trim_matches(['[', ']'])
    }

    fn path(&self) -> &str {
        self.0.path().trim_end_matches('/')
    }

    /// Reports whether this is an API server of another machine: with a port and without a path, unlike the UI and Rancher.
    pub(super) fn is_api(&self) -> bool {
        let is_api = self.0.scheme() == "https" && self.0.port().is_some();
        is_api && self.path().is_empty() && !is_loopback(&self.0)
    }

    /// Reports whether this is Harvester's ingress, with its UI, or its built-in Rancher, on any port.
    pub(super) fn is_web(&self) -> bool {
        let path = self.path();
        path == "/k8s/clusters/local" || (self.0.port().is_none() && path.is_empty())
    }

    /// Reports whether this is an external Rancher that manages this Harvester: only the built-in one has Harvester as `local`.
    pub(super) fn is_external_rancher(&self) -> bool {
        let cluster = self.path().strip_prefix(RANCHER_PROXY);
        cluster.is_some_and(|cluster| cluster != "local")
    }
}
