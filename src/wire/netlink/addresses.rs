// SPDX-License-Identifier: Apache-2.0
//! Reads the addresses of this system once, with `getifaddrs(3)`, which uses rtnetlink.

use std::collections::BTreeMap;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

/// Returns each interface that has addresses, with these; loopback and link-local addresses are left out. A name may be any text:
/// escape it before it is shown. Fails in a sandbox without `AF_NETLINK`.
pub fn list_addresses() -> nix::Result<BTreeMap<String, Vec<IpAddr>>> {
    let mut interfaces: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for entry in getifaddrs()? {
        let address = entry.address.as_ref().and_then(ip);
        if let Some(address) = address.filter(is_reachable) {
            let addresses = interfaces.entry(entry.interface_name).or_default();
            addresses.push(address);
        }
    }
    Ok(interfaces)
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    let v6 = || address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()));
    v4.or_else(v6)
}

/// Reports whether another system may be able to reach the address.
fn is_reachable(address: &IpAddr) -> bool {
    let is_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !is_local && !address.is_loopback()
}
