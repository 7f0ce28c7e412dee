// SPDX-License-Identifier: Apache-2.0
//! Reads the versions: of Harvester, KubeVirt and the hosts from Harvester's API, of the kubelet and the guest cluster from
//! the guest's.

use serde_json::Value;

use super::{Given, briefly};
use crate::connections::Link;
use crate::facts::examination::versions::Versions;
use crate::facts::{Seen, Why, WhyKind};
use crate::observe::why;

/// Reads them.
pub(super) async fn read(given: &Given<'_>) -> Versions {
    let unread = Why::new(WhyKind::NotAsked, "this version does not look at it");
    let (host_kubernetes, guest_kubernetes) = tokio::join!(
        git_version(&given.harvester, "/version"),
        git_version(&given.guest, "/version"),
    );
    Versions {
        host_kubernetes,
        guest_kubernetes,
        ..Versions::unseen(&unread)
    }
}

/// `gitVersion` of what stands at a path that everybody may read.
async fn git_version(link: &Result<&Link, Why>, path: &str) -> Seen<String> {
    let client = match link {
        Ok(link) => &link.client,
        Err(why) => return Seen::Failed(why.clone()),
    };
    briefly(async {
        match client.get::<Value>(path).await {
            Ok(answer) => match answer.get("gitVersion").and_then(Value::as_str) {
                Some(version) => Seen::Known(version.to_owned()),
                None => Seen::Absent,
            },
            Err(error) => Seen::Failed(why(&error)),
        }
    })
    .await
}
