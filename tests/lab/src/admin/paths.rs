// SPDX-License-Identifier: Apache-2.0
//! The paths of the resources that the lab uses.

/// All Nodes.
pub const NODES: &str = "/api/v1/nodes";

/// A Node.
#[must_use]
pub fn node(name: &str) -> String {
    format!("{NODES}/{name}")
}

/// A resource of the core group in a namespace: `pods`, `configmaps`, `events`.
#[must_use]
pub fn core(namespace: &str, resource: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{resource}")
}

/// A resource of another group in a namespace, `group` with its version.
#[must_use]
pub fn grouped(group: &str, namespace: &str, resource: &str) -> String {
    format!("/apis/{group}/namespaces/{namespace}/{resource}")
}

/// A VirtualMachine.
#[must_use]
pub fn vm(namespace: &str, name: &str) -> String {
    grouped(
        "kubevirt.io/v1",
        namespace,
        &format!("virtualmachines/{name}"),
    )
}

/// A VirtualMachineInstance.
#[must_use]
pub fn vmi(namespace: &str, name: &str) -> String {
    grouped(
        "kubevirt.io/v1",
        namespace,
        &format!("virtualmachineinstances/{name}"),
    )
}
