// SPDX-License-Identifier: Apache-2.0
//! The files of the virt-launcher pod in the machine, through a real virtiofsd.

use std::time::{Duration, SystemTime};

use harvester_lab::pod_info::Pod;
use harvester_lab::world::{HOSTS, Side, VM_NAME};

use super::migration::label_patches;
use crate::stage::{Stage, Telling};

/// From the resume until KubeVirt and the kubelet have put the name of the new host into the files. It may be two minutes.
const HOST_DELAY: Duration = Duration::from_secs(20);

/// The pod on the first host.
pub fn first_pod() -> Pod<'static> {
    pod("aaaaa", "hv-a")
}

/// The pod of the machine on a host.
fn pod(suffix: &'static str, host: &'static str) -> Pod<'static> {
    let place = HOSTS.iter().find(|(name, ..)| *name == host);
    Pod {
        vm: VM_NAME,
        suffix,
        host,
        place: place.map(|(_, region, zone)| (*region, *zone)),
    }
}

/// There is no credential for Harvester, and no other source of the host. The files of the pod name VM, host, region and zone, also
/// those of the pod to which the machine has moved. The name of the host in them is late, and not believed until it changes.
pub async fn the_files_of_the_pod_alone_lead_to_labels(stage: &mut Stage) {
    stage.settled().await;
    stage.labelled("hv-a").await;
    stage.inside.has_no_finding().await;
    println!("{}", stage.inside.sh("harvester-node-agent whoami").await);
    for (suffix, from, to) in [("bbbbb", "hv-a", "hv-c"), ("ccccc", "hv-c", "hv-a")] {
        stage.begin().await;
        let patches = label_patches(stage).await;
        let late = Pod {
            host: from,
            ..pod(suffix, to)
        };
        stage.machine.next_pod(late);
        let migration = stage.migrate(to, Telling::default()).await;
        let resumed = migration.moved.resumed;
        stage.placed(to).await;
        println!("region and zone {:.1} s after the resume", since(resumed));
        let left = HOST_DELAY.saturating_sub(resumed.elapsed().unwrap());
        tokio::time::sleep(left).await;
        stage.machine.pod_changes(pod(suffix, to));
        stage.labelled(to).await;
        let written = label_patches(stage).await - patches;
        println!(
            "and the host {:.1} s after it, of which the files took {} s; {written} patches",
            since(resumed),
            HOST_DELAY.as_secs()
        );
        for record in stage.recorded("labeled in").await {
            println!("{}", record.message());
        }
        stage.inside.has_no_finding_on(to).await;
    }
    let credentials =
        "find / -xdev -name '*cloud-provider-config*' -o -xdev -name 'harvester*.kubeconfig'";
    assert_eq!(stage.inside.sh(credentials).await, "");
    let asked = stage.world.agent_requests(Side::Harvester).await;
    assert!(asked.is_empty(), "{asked:#?}");
}

fn since(at: SystemTime) -> f64 {
    at.elapsed().unwrap().as_secs_f64()
}
