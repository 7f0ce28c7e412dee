// SPDX-License-Identifier: Apache-2.0
//! Reads the versions: of Harvester, KubeVirt and the hosts from Harvester's API, of the guest cluster from its own API.

use serde::Deserialize;

use super::{Given, read_object};
use crate::commands::doctor::facts::node::release;
use crate::commands::doctor::facts::versions::Versions;
use crate::facts::Fact;
use crate::facts::release::Release;
use crate::sys::document::json::{git_version, setting_value};

/// The version endpoint of every API server.
const VERSION: &str = "/version";

/// The version endpoint of KubeVirt (role `kubevirt.io:default`, which all users have).
const KUBEVIRT: &str = "/apis/subresources.kubevirt.io/v1/version";

/// The release of Harvester, a setting that all users can read (`pkg/settings/settings.go`, `WhiteListedSettings`).
const HARVESTER: &str = "/apis/harvesterhci.io/v1beta1/settings/server-version";

/// A setting in Harvester.
#[derive(Deserialize)]
struct Setting {
    #[serde(default, deserialize_with = "setting_value")]
    value: Option<String>,
}

/// The version of a server (`version.Info` of Kubernetes and of KubeVirt).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Info {
    #[serde(default, deserialize_with = "git_version")]
    git_version: Option<String>,
}

/// Reads all versions.
pub(super) async fn read(given: &Given<'_>) -> Versions {
    let of_hosts = async {
        let harvester = &given.harvester;
        (
            read_object::<Setting>(harvester, HARVESTER).await,
            read_object::<Info>(harvester, KUBEVIRT).await,
            read_object::<Info>(harvester, VERSION).await,
        )
    };
    let ((harvester, kubevirt, hosts), guest) =
        tokio::join!(of_hosts, read_object::<Info>(&given.guest, VERSION));
    let of_info = |info: Fact<Info>| parsed(info.map(|info| info.git_version));
    Versions {
        harvester: parsed(harvester.map(|setting| setting.value)),
        kubevirt: of_info(kubevirt),
        host_kubernetes: of_info(hosts),
        guest_kubernetes: of_info(guest),
    }
}

fn parsed(text: Fact<Option<String>>) -> Fact<Release> {
    match text {
        Fact::Known(text) => release(text.as_deref()),
        Fact::Absent => Fact::Absent,
        Fact::Failed(why) => Fact::Failed(why),
    }
}
