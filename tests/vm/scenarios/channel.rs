// SPDX-License-Identifier: Apache-2.0
//! The agent's own channel: a host asks a guest that has no network.

use harvester_lab::qga::Client;
use harvester_lab::world::eventually;
use serde_json::Value;

use crate::LIMIT;
use crate::hardware::Port;
use crate::inside::{UNIT, codes_of};
use crate::stage::Stage;

/// The client that asks QEMU's guest agent in all other scenarios asks the agent, in the same form. An agent that starts without a network says
/// what it can see from inside, and goes on when the cable is in again.
pub async fn a_host_asks_a_guest_whose_agent_starts_without_a_network(stage: &mut Stage) {
    stage.settled().await;
    stage.synced().await;
    stage.plug_cable(false).await;
    let is_out = "[ $(cat /sys/class/net/e*/carrier) = 0 ]";
    stage.inside.until(is_out).await;

    let mut client = Client::new(stage.machine.attach(Port::Own).await).patient(LIMIT);
    client.ping().await;
    let status = client
        .execute("node-agent-status", Value::Null)
        .await
        .unwrap();
    assert_eq!(status["identity"]["state"], "names-match", "{status:#}");
    assert_eq!(status["placement"]["host"], "hv-a", "{status:#}");
    let unknown = client.execute("guest-exec", Value::Null).await;
    let refusal = unknown.unwrap_err().description;
    assert!(refusal.contains("guest-exec"), "{refusal}");
    drop(client);

    stage.inside.sh(&format!("systemctl restart {UNIT}")).await;
    let away = ["guest-api-unreachable", "harvester-unreachable"];
    eventually(LIMIT, "both APIs are away, for the host too", || async {
        let port = stage.machine.attach(Port::Own).await;
        let mut client = Client::new(port).patient(LIMIT);
        client.ping().await;
        let status = client.execute("node-agent-status", Value::Null).await;
        // Its status comes with its first look.
        status.is_ok_and(|status| {
            let codes = codes_of(&status);
            status["identity"]["state"] == "names-match"
                && away.iter().all(|code| codes.contains(code))
        })
    })
    .await;

    stage.plug_cable(true).await;
    stage.inside.has_no_finding().await;
    stage.synced().await;
}
