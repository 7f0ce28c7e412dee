// SPDX-License-Identifier: Apache-2.0
//! Protocols without policy: the Kubernetes API, D-Bus, netlink, and virtio-serial channels.

pub mod backoff;
pub mod dbus;
pub mod kubeapi;
pub mod netlink;
pub mod virtio;
