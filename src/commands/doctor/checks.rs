// SPDX-License-Identifier: Apache-2.0
//! The checks that only `doctor` makes, one file for each topic: its facts, its reads, and its judgment, which is a pure function.
//! Findings that the running agent reports too are in `decide/findings/`, not here.
//!
//! To add a check: a file with a function `check`, and here its module and its row in `checks!`. If it needs another object of an API, a
//! field of [`Reads`], and a row in [`gaps`].

mod addresses;
mod capacity;
mod certificates;
mod clock;
mod cloud_provider;
mod credentials;
mod image;
mod kubelet_service;
mod labels;
mod maintenance;
mod permissions;
mod pod_network;
mod shutdown;
mod versions;
mod vm;

use super::case::{Checked, Gap};
use super::reads::Reads;
use crate::catalog::{Api, Group};
use crate::decide::failure_code;
use crate::facts::UnavailableKind;

/// Declares the function that runs all checks, at the same time because some wait for the bus, and collects their results in order.
macro_rules! checks {
    ($($topic:ident),* $(,)?) => {
        /// Runs all checks.
        pub(crate) async fn all(reads: &Reads<'_>) -> Checked {
            let ($($topic,)*) = tokio::join!($(Box::pin(async {
                let mut checked = Checked::default();
                $topic::check(reads, &mut checked).await;
                checked
            })),*);
            let mut all = Checked { gaps: gaps(reads), ..Checked::default() };
            $(all.merge($topic);)*
            all
        }
    };
}

checks! {
    versions,
    cloud_provider,
    labels,
    vm,
    kubelet_service,
    maintenance,
    addresses,
    credentials,
    certificates,
    clock,
    capacity,
    shutdown,
    pod_network,
    image,
    permissions,
}

/// Returns the checks that need what an API did not answer. If no request was sent, that is due to an earlier failure.
fn gaps(reads: &Reads<'_>) -> Vec<Gap> {
    let [node, pods] = [reads.node.why(), reads.pods.why()];
    let [harvester, guest] = [Api::Harvester, Api::Guest].map(|api| reads.server(api));
    let token = credentials::token(reads);
    let mut permissions = reads.permissions.known().into_iter().flatten();
    let permission = permissions.find_map(|one| one.allowed.why());
    let permission = permission.or(reads.permissions.why());
    #[rustfmt::skip]
    let checks = [
        (Api::Harvester, Group::Versions, "the version of Harvester", reads.release.why()),
        (Api::Guest, Group::Versions, "the version of the kubelet", node),
        (Api::Guest, Group::Versions, "the pods of this Node", pods),
        (Api::Guest, Group::Node, "the taints of the Node", node),
        (Api::Guest, Group::Node, "the labels of the pods on this Node", pods),
        (Api::Harvester, Group::HarvesterApi, "labels, conditions and addresses of the VM", reads.instance.why()),
        (Api::Harvester, Group::Identity, "the other VMs of the namespace", reads.namespace.why()),
        (Api::Guest, Group::Node, "the addresses of the Node", node),
        (Api::Harvester, Group::HarvesterApi, "the server's certificate and clock", harvester.why()),
        (Api::Guest, Group::Node, "the server's certificate and clock", guest.why()),
        (Api::Harvester, Group::HarvesterCredential, "the type of its token", token.why()),
        (Api::Guest, Group::Node, "the capacity of the Node", node),
        (Api::Harvester, Group::HarvesterApi, "permissions of the Harvester credential", permission),
    ];
    let gaps = checks.into_iter().filter_map(|(api, group, check, why)| {
        let why = why?;
        let is_skipped = why.kind == UnavailableKind::NotAsked;
        Some(Gap {
            due_to: failure_code::api(reads.case.observation, api).filter(|_| is_skipped),
            ..Gap::new(group, check, why)
        })
    });
    gaps.collect()
}
