// SPDX-License-Identifier: Apache-2.0
//! Detects a Harvester credential that points to the guest cluster's own API.
//!
//! This happens with a copied kubeconfig of a guest, or with an unchanged `127.0.0.1:6443` that reaches the guest's own server.
//! All requests would then go to the wrong cluster, and labels would be based on its objects.

use std::net::{IpAddr, Ipv4Addr};

use reqwest::Url;

use super::credential::Credential;

/// Returns the evidence in the files that both credentials point to the same API server: the same host, port and path. Equal certificate
/// authorities are none: a company may give one to all of its clusters.
pub fn is_own_api(harvester: &Credential, guest: &Credential) -> Option<String> {
    let same = "the kubelet kubeconfig has the same server";
    let written = guest.server.as_str().trim_end_matches('/');
    match endpoint(&harvester.server) == endpoint(&guest.server) {
        false => None,
        true if harvester.server == guest.server => Some(same.to_owned()),
        true => Some(format!("{same}, written as {written}")),
    }
}

/// Reports whether the host is one of the usual names of this system. Any other address of 127.0.0.0/8 may be a separate listener,
/// such as a tunnel to Harvester.
fn is_localhost(server: &Url) -> bool {
    match address(server) {
        Some(IpAddr::V4(address)) => address == Ipv4Addr::LOCALHOST || address.is_unspecified(),
        _ => is_loopback(server),
    }
}

/// Reports whether the server is this system itself, which is right for the guest's API and rarely for Harvester's.
pub fn is_loopback(server: &Url) -> bool {
    let host = host(server);
    match address(server) {
        // A connection to the unspecified address also reaches this system.
        Some(address) => address.is_loopback() || address.is_unspecified(),
        None => host == "localhost" || host.ends_with(".localhost"),
    }
}

fn address(server: &Url) -> Option<IpAddr> {
    let address = host(server).parse::<IpAddr>().ok()?;
    Some(address.to_canonical())
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
    use crate::access::testing::Authority;

    fn credential(server: &str, authorities: &[&Authority]) -> Credential {
        Credential {
            kubeconfig: "/k".into(),
            files: vec!["/k".into()],
            server: Url::parse(server).unwrap(),
            certificate_authorities: authorities.iter().map(|one| one.der()).collect(),
            tls_server_name: None,
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
            assert!(found.is_some(), "{harvester} {guest}");
        }
    }

    #[test]
    fn the_evidence_is_true_of_both_files() {
        let (ours, theirs) = (Authority::new("a"), Authority::new("b"));
        let text = |harvester, guest| {
            let harvester = credential(harvester, &[&theirs]);
            let found = is_own_api(&harvester, &credential(guest, &[&ours]));
            found.unwrap_or_default()
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
    fn one_authority_of_a_company_for_all_its_clusters_is_no_evidence() {
        let (ours, root) = (Authority::new("a"), Authority::new("root"));
        for authorities in [vec![&root], vec![&root, &ours], vec![]] {
            for harvester in [
                "https://192.0.2.1:6443",
                "https://harvester.example.test",
                "https://r.test/k8s/clusters/local",
            ] {
                let guest = credential("https://127.0.0.1:6443", &authorities);
                let harvester = credential(harvester, &authorities);
                assert_eq!(is_own_api(&harvester, &guest), None, "{}", harvester.server);
            }
        }
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
            assert!(is_loopback(&Url::parse(server).unwrap()), "{server}");
        }
        for server in [
            "https://192.0.2.1",
            "https://localhost.test",
            "https://[fd00::1]",
        ] {
            assert!(!is_loopback(&Url::parse(server).unwrap()), "{server}");
        }
    }
}
