// SPDX-License-Identifier: Apache-2.0
//! Resolves every name to the server's own host, for `tls-server-name`: the URL then has the name that TLS sends and verifies.

use std::net::{IpAddr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// A resolver that returns the addresses of the host in the kubeconfig when it gets the name of `tls-server-name`.
#[derive(Debug, Clone)]
pub(super) struct ServerHost {
    host: String,
}

impl ServerHost {
    /// Creates a resolver. `host` has the form of a URL host: an IPv6 address is in brackets.
    pub(super) fn new(host: &str) -> Self {
        let bare = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(host);
        Self {
            host: bare.to_owned(),
        }
    }
}

impl Resolve for ServerHost {
    fn resolve(&self, _name: Name) -> Resolving {
        // Port 0 means the port of the URL.
        if let Ok(address) = self.host.parse::<IpAddr>() {
            let addresses: Addrs = Box::new(std::iter::once(SocketAddr::new(address, 0)));
            return Box::pin(std::future::ready(Ok(addresses)));
        }
        let host = self.host.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            let addresses: Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn an_address_is_answered_at_once_and_without_a_lookup() {
        for (host, address) in [
            ("192.0.2.7", "192.0.2.7:0"),
            ("[2001:db8::7]", "[2001:db8::7]:0"),
        ] {
            // Without a runtime, a lookup would panic.
            let mut resolving = ServerHost::new(host).resolve("api.example".parse().unwrap());
            let polled = Future::poll(resolving.as_mut(), &mut Context::from_waker(Waker::noop()));
            let Poll::Ready(Ok(addresses)) = polled else {
                panic!("{host} was looked up")
            };
            assert_eq!(addresses.collect::<Vec<_>>(), [address.parse().unwrap()]);
        }
    }
}
