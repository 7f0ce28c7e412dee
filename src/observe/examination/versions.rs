// SPDX-License-Identifier: Apache-2.0
//! Reads the versions: of Harvester, KubeVirt and the hosts from Harvester's API, of the guest cluster from the guest's.

use serde_json::Value;

use super::{Given, read_object};
use crate::facts::Seen;
use crate::facts::examination::node::release;
use crate::facts::examination::versions::Versions;
use crate::facts::release::Release;

/// What every server tells of itself.
const VERSION: &str = "/version";

/// What KubeVirt tells of itself (role `kubevirt.io:default`, which everybody has).
const KUBEVIRT: &str = "/apis/subresources.kubevirt.io/v1/version";

/// Harvester's release, one of the settings that everybody may read (`pkg/settings/settings.go`, `WhiteListedSettings`).
const HARVESTER: &str = "/apis/harvesterhci.io/v1beta1/settings/server-version";

/// Reads them.
pub(super) async fn read(given: &Given<'_>) -> Versions {
    let of_hosts = async {
        let harvester = &given.harvester;
        (
            read_object(harvester, HARVESTER).await,
            read_object(harvester, KUBEVIRT).await,
            read_object(harvester, VERSION).await,
        )
    };
    let ((harvester, kubevirt, hosts), guest) =
        tokio::join!(of_hosts, read_object(&given.guest, VERSION));
    Versions {
        harvester: field(harvester, "value"),
        kubevirt: field(kubevirt, "gitVersion"),
        host_kubernetes: field(hosts, "gitVersion"),
        guest_kubernetes: field(guest, "gitVersion"),
    }
}

fn field(object: Seen<Value>, name: &str) -> Seen<Release> {
    match object {
        Seen::Known(object) => release(object.get(name)),
        Seen::Absent => Seen::Absent,
        Seen::Failed(why) => Seen::Failed(why),
    }
}
