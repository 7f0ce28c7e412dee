// SPDX-License-Identifier: Apache-2.0
//! The project's own world: two Kubernetes API servers (in-process or real), a Harvester, a cloud controller, a guest's
//! file tree, and faults on the wire. The demo, the tests and the benchmarks all use this one lab.

pub mod admin;
pub mod bus;
pub mod cloud_controller;
pub mod downward_metrics;
pub mod expected;
pub mod faults;
pub mod figures;
pub mod guard;
pub mod guest;
pub mod harvester;
pub mod kubernetes;
pub mod names;
pub mod pki;
pub mod pod_info;
pub mod process;
pub mod qga;
pub mod real;
pub mod server;
pub mod virtio_port;
pub mod world;

/// Names in the right server certificates. The last is this machine, as guests of QEMU's user network see it.
pub(crate) const SERVER_NAMES: [&str; 5] = [
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default.svc",
    "10.0.2.2",
];

/// Says that a test, or the rest of it, is left out because this machine lacks something.
///
/// # Panics
/// When the environment variable `HNA_REQUIRE` is `1`: then every test must run.
pub fn skip(test: &str, why: impl std::fmt::Display) {
    let is_required = std::env::var_os("HNA_REQUIRE").is_some_and(|value| value == "1");
    assert!(!is_required, "{test} must run, and cannot: {why}");
    println!("SKIP {test}: {why}");
}

/// How to reach one API server as its administrator, whichever kind it is.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// `https://127.0.0.1:PORT`.
    pub url: String,
    /// PEM of the authority that signed the server's certificate.
    pub authority_pem: String,
    /// A client certificate in group `system:masters`.
    pub admin: pki::Identity,
}
