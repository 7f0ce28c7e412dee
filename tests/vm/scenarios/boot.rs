// SPDX-License-Identifier: Apache-2.0
//! From the firmware to the labels.

use crate::inside::UNIT;
use crate::stage::Stage;
use crate::{GUEST_AGENT, HOST, REGION, ZONE};

/// On an image's first boot cloud-init writes the credentials and enables the agent; the second time systemd starts it.
pub async fn a_first_boot_leads_to_labels(stage: &mut Stage) {
    stage.settled().await;
    stage.synced().await;
    stage
        .condition_becomes(GUEST_AGENT, "True", "Healthy")
        .await;
    let expected = [(REGION, "eu-1"), (ZONE, "rack-a"), (HOST, "hv-a")];
    for (key, value) in expected {
        assert_eq!(stage.world.node_label(key).await.as_deref(), Some(value));
    }

    // Inside: no simulated part was in the way.
    let name = stage.world.node_name().to_owned();
    assert_eq!(stage.inside.sh("hostname").await, name);
    assert_eq!(stage.inside.property(UNIT, "ActiveState").await, "active");
    let status = stage
        .inside
        .status_becomes("no findings", |status| {
            status["findings"] == serde_json::json!([])
        })
        .await;
    assert_eq!(status["identity"]["state"], "names-match", "{status:#}");
    let signals = status["eventSources"].as_array().unwrap();
    let dead: Vec<_> = signals.iter().filter(|one| one["active"] != true).collect();
    assert!(dead.is_empty(), "{dead:#?}");
    println!("{}", stage.inside.sh("harvester-node-agent whoami").await);
    // Where a person begins: nothing is an error, whatever else a laboratory lacks.
    println!("{}", stage.inside.sh("harvester-node-agent doctor").await);
}
