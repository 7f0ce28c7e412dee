// SPDX-License-Identifier: Apache-2.0
//! The checks that only `doctor` makes, one file for each topic: its facts, its reads, and its judgement, which is a pure function.
//! Findings that the running agent reports too are in `decide/findings.rs`, not here.
//!
//! To add a check: a file with a function `check`, and its name in the table.

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

use super::case::Checked;
use super::reader::Reader;

/// Runs the checks of these topics concurrently, and returns their results in this order.
macro_rules! run {
    ($reader:ident: $($topic:ident)*) => {{
        let ($($topic,)*) = tokio::join!($(async {
            let mut checked = Checked::default();
            $topic::check($reader, &mut checked).await;
            checked
        },)*);
        [$($topic),*]
    }};
}

/// Runs all checks.
pub(crate) async fn all(reader: &Reader<'_>) -> Checked {
    let results = run! { reader:
        versions cloud_provider labels vm kubelet_service maintenance addresses credentials certificates clock
        capacity shutdown pod_network image permissions
    };
    let mut all = Checked::default();
    for checked in results {
        all.merge(checked);
    }
    all
}
