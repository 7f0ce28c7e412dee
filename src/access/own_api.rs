// SPDX-License-Identifier: Apache-2.0
//! Detects a Harvester credential that points to the guest cluster's own API.
//!
//! This happens with a copied kubeconfig of a guest, or with an unchanged `127.0.0.1:6443` that reaches the guest's own server.
//! All requests would then go to the wrong cluster, and labels would be based on its objects.

use std::net::{IpAddr, Ipv4Addr};

use reqwest::Url;

/// Returns the evidence that a server is that of the kubelet kubeconfig: the same host, port and path. Equal certificate authorities are
/// none: a company may give one to all of its clusters.
pub fn is_own_api(harvester: &Url, guest: &Url) -> Option<String> {
    let written = match guest.as_str().trim_end_matches('/') {
        _ if harvester == guest => String::new(),
        other => format!(", written as {other}"),
    };
    let is_same = endpoint(harvester) == endpoint(guest);
    is_same.then(|| format!("the kubelet kubeconfig has the same server{written}"))
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

    #[test]
    fn one_endpoint_in_two_spellings_is_the_own_api_and_two_clusters_stay_two() {
        let same = "the kubelet kubeconfig has the same server";
        for (harvester, guest, evidence) in [
            ("https://127.0.0.1:6443", "https://127.0.0.1:6443/", ""),
            (
                "https://localhost:6443",
                "https://[::1]:6443",
                ", written as https://[::1]:6443",
            ),
            (
                "https://EXAMPLE.test",
                "https://example.test.:443",
                ", written as https://example.test.",
            ),
            ("https://[fd00::1]:6443", "https://[fd00:0::1]:6443", ""),
            ("https://127.0.0.1:6443", "https://127.0.0.1:6444", "none"),
            ("https://127.0.0.1:6443", "https://127.0.0.2:6443", "none"),
            ("https://192.0.2.10:6443", "https://127.0.0.1:6443", "none"),
            (
                "https://r.test/k8s/clusters/local",
                "https://r.test/k8s/clusters/c-m-x",
                "none",
            ),
        ] {
            let [harvester, guest] = [harvester, guest].map(|url| Url::parse(url).unwrap());
            let expected = (evidence != "none").then(|| format!("{same}{evidence}"));
            assert_eq!(is_own_api(&harvester, &guest), expected, "{harvester}");
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
