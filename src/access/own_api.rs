// SPDX-License-Identifier: Apache-2.0
//! Detects a Harvester credential that points to the guest cluster's own API.
//!
//! This happens with a copied kubeconfig of a guest, or with an unchanged `127.0.0.1:6443` that reaches the guest's own server.
//! All requests would then go to the wrong cluster, and labels would be based on its objects.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use reqwest::Url;

use super::Credential;

/// The path prefix of Rancher's proxy, whose certificate authority is not that of the cluster.
const RANCHER_PROXY: &str = "/k8s/clusters/";

/// The evidence that both credentials point to the same API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnApiEvidence {
    /// Both have the same host, port and path.
    SameEndpoint {
        /// The server of the kubelet credential, as in its kubeconfig.
        guest: String,
        /// Whether both URLs have the same text.
        is_same_text: bool,
    },
    /// Both trust the same certificate authorities, and each cluster has its own.
    SameAuthority,
}

impl fmt::Display for OwnApiEvidence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameEndpoint {
                is_same_text: true, ..
            } => formatter.write_str("the kubelet kubeconfig has the same server"),
            Self::SameEndpoint { guest, .. } => write!(
                formatter,
                "the kubelet kubeconfig has the same server, written as {guest}"
            ),
            Self::SameAuthority => {
                formatter.write_str("both kubeconfigs have the same CA certificate")
            }
        }
    }
}

/// Returns the evidence in the files that both credentials point to the same API server.
pub fn is_own_api(harvester: &Credential, guest: &Credential) -> Option<OwnApiEvidence> {
    if endpoint(&harvester.server) == endpoint(&guest.server) {
        return Some(OwnApiEvidence::SameEndpoint {
            guest: guest.server.as_str().trim_end_matches('/').to_owned(),
            is_same_text: harvester.server == guest.server,
        });
    }
    let through_rancher = [harvester, guest]
        .iter()
        .any(|credential| credential.server.path().starts_with(RANCHER_PROXY));
    // Whole sets are compared: clusters that share a corporate root also have authorities of their own.
    let authorities = |credential: &Credential| {
        let all = credential.certificate_authorities.iter();
        let mut all: Vec<Vec<u8>> = all.map(|certificate| certificate.to_vec()).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let own = authorities(guest);
    (!through_rancher && !own.is_empty() && authorities(harvester) == own)
        .then_some(OwnApiEvidence::SameAuthority)
}

/// Reports whether the server is this system itself, which is right for the guest's API and rarely for Harvester's.
pub fn loopback(credential: &Credential) -> bool {
    is_loopback(&credential.server)
}

/// Reports whether the host is one of the usual names of this system. Any other address of 127.0.0.0/8 may be a separate listener,
/// such as a tunnel to Harvester.
fn is_localhost(server: &Url) -> bool {
    match host(server)
        .parse::<IpAddr>()
        .map(|address| address.to_canonical())
    {
        Ok(IpAddr::V4(address)) => address == Ipv4Addr::LOCALHOST || address.is_unspecified(),
        Ok(IpAddr::V6(_)) | Err(_) => is_loopback(server),
    }
}

fn is_loopback(server: &Url) -> bool {
    let host = host(server);
    match host.parse::<IpAddr>() {
        // A connection to the unspecified address also reaches this system.
        Ok(address) => {
            let address = address.to_canonical();
            address.is_loopback() || address.is_unspecified()
        }
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// Returns the host, port and path in normalized form.
fn endpoint(server: &Url) -> (String, Option<u16>, String) {
    let host = if is_localhost(server) {
        "localhost".to_owned()
    } else {
        host(server)
    };
    let path = server.path().trim_end_matches('/').to_owned();
    (host, server.port_or_known_default(), path)
}

fn host(server: &Url) -> String {
    server
        .host_str()
        .unwrap_or_default()
        .trim_start_matches('[')
        .trim_end_matches([']', '.'])
        .to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::ServerVerification;
    use crate::access::testing::Authority;

    fn credential(server: &str, authorities: &[&Authority]) -> Credential {
        Credential {
            kubeconfig: "/k".into(),
            files: vec!["/k".into()],
            server: Url::parse(server).unwrap(),
            certificate_authorities: authorities.iter().map(|one| one.der()).collect(),
            tls_server_name: None,
            verify_server: ServerVerification::Required,
            proxy: None,
            token: None,
            client_certificate: None,
            namespace: None,
        }
    }

    #[test]
    fn one_endpoint_in_two_spellings_is_the_own_api() {
        let (ours, theirs) = (Authority::new("a"), Authority::new("b"));
        for (harvester, guest) in [
            ("https://127.0.0.1:6443", "https://127.0.0.1:6443/"),
            ("https://localhost:6443", "https://[::1]:6443"),
            ("https://EXAMPLE.test", "https://example.test.:443"),
            ("https://[fd00::1]:6443", "https://[fd00:0::1]:6443"),
        ] {
            let found = is_own_api(
                &credential(harvester, &[&theirs]),
                &credential(guest, &[&ours]),
            );
            assert!(
                matches!(found, Some(OwnApiEvidence::SameEndpoint { .. })),
                "{harvester} {guest}"
            );
        }
    }

    #[test]
    fn the_evidence_is_true_of_both_files() {
        let (ours, theirs) = (Authority::new("a"), Authority::new("b"));
        let text = |harvester, guest| {
            let harvester = credential(harvester, &[&theirs]);
            let found = is_own_api(&harvester, &credential(guest, &[&ours]));
            found
                .map(|evidence| evidence.to_string())
                .unwrap_or_default()
        };
        let same = "the kubelet kubeconfig has the same server";
        assert_eq!(
            text("https://127.0.0.1:6443", "https://127.0.0.1:6443/"),
            same
        );
        assert_eq!(
            text("https://127.0.0.1:6443", "https://[::1]:6443"),
            format!("{same}, written as https://[::1]:6443")
        );
    }

    #[test]
    fn two_clusters_stay_two() {
        let (ours, theirs) = (Authority::new("a"), Authority::new("b"));
        for (harvester, guest) in [
            ("https://127.0.0.1:6443", "https://127.0.0.1:6444"),
            ("https://127.0.0.1:6443", "https://127.0.0.2:6443"),
            ("https://192.0.2.10:6443", "https://127.0.0.1:6443"),
            (
                "https://r.test/k8s/clusters/local",
                "https://r.test/k8s/clusters/c-m-x",
            ),
        ] {
            let harvester = credential(harvester, &[&theirs]);
            assert_eq!(is_own_api(&harvester, &credential(guest, &[&ours])), None);
        }
    }

    #[test]
    fn one_authority_is_the_own_api_unless_it_is_ranchers_or_a_shared_root() {
        let (ours, theirs, root) = (
            Authority::new("a"),
            Authority::new("b"),
            Authority::new("root"),
        );
        let guest = credential("https://127.0.0.1:6444", &[&ours, &root]);
        let copied = credential("https://192.0.2.1:6443", &[&root, &ours]);
        assert_eq!(
            is_own_api(&copied, &guest),
            Some(OwnApiEvidence::SameAuthority)
        );
        let harvester = credential("https://192.0.2.1:6443", &[&theirs, &root]);
        assert_eq!(is_own_api(&harvester, &guest), None);
        let local = credential("https://r.test/k8s/clusters/local", &[&root]);
        let other = credential("https://r.test/k8s/clusters/c-m-x", &[&root]);
        assert_eq!(is_own_api(&local, &other), None);
        let no_tls = credential("http://192.0.2.1", &[]);
        assert_eq!(
            is_own_api(&no_tls, &credential("http://192.0.2.2", &[])),
            None
        );
    }

    #[test]
    fn loopback_has_many_spellings() {
        for server in [
            "https://127.8.9.1:6443",
            "https://[::1]",
            "https://localhost",
            "https://api.localhost",
            "https://0.0.0.0:6443",
            "https://[::ffff:127.0.0.1]:6443",
            "https://2130706433:6443",
        ] {
            assert!(loopback(&credential(server, &[])), "{server}");
        }
        for server in [
            "https://192.0.2.1",
            "https://localhost.test",
            "https://[fd00::1]",
        ] {
            assert!(!loopback(&credential(server, &[])), "{server}");
        }
    }
}
