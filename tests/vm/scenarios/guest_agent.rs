// SPDX-License-Identifier: Apache-2.0
//! QEMU's guest agent is stopped, masked, removed. The host then has no way into the guest but a serial line; the Node tells.

use harvester_lab::admin::paths;
use serde_json::{Value, json};

use crate::GUEST_AGENT;
use crate::stage::Stage;

const UNIT: &str = "qemu-guest-agent.service";

/// The conditions of the VM's instance, as virt-handler writes them: the lab does not look at the channel.
async fn conditions(stage: &Stage, conditions: Value) {
    let vm = &stage.world.vm.spec;
    let patch = json!({"status": {"conditions": conditions}});
    let admin = stage.world.harvester.admin();
    let path = paths::vmi(&vm.namespace, &vm.name);
    admin.merge_patch(&path, &patch).await.unwrap();
}

/// Each time the Node tells what is wrong, and that it is right again.
pub async fn a_guest_agent_that_is_stopped_masked_or_removed_is_reported(stage: &mut Stage) {
    stage.settled().await;
    stage
        .condition_becomes(GUEST_AGENT, "True", "Healthy")
        .await;
    // What a removal takes away, to be put back: the image has no copy of the package.
    let keep = "tar --create --file=/root/qemu-guest-agent.tar --no-recursion $(dpkg --listfiles qemu-guest-agent)";
    stage.inside.sh(keep).await;
    let mut witness = stage.witness().await;
    let put_back = "tar --extract --file=/root/qemu-guest-agent.tar --directory=/ && systemctl daemon-reload && systemctl start";
    for (reason, away, back) in [
        ("GuestAgentNotRunning", "systemctl stop", "systemctl start"),
        (
            "GuestAgentNotRunning",
            "systemctl mask --now",
            "systemctl unmask --now",
        ),
        (
            "GuestAgentNotInstalled",
            "dpkg --purge qemu-guest-agent >/dev/null #",
            put_back,
        ),
    ] {
        conditions(stage, json!([])).await;
        println!("{}", witness.run(&format!("{away} {UNIT}")).await);
        stage.condition_becomes(GUEST_AGENT, "False", reason).await;
        println!(
            "{}",
            witness
                .run("harvester-node-agent status | grep 'guest agent'")
                .await
        );
        conditions(stage, json!([{"type": "AgentConnected", "status": "True"}])).await;
        // `unmask --now` starts nothing.
        println!(
            "{}",
            witness
                .run(&format!("{back} {UNIT}; systemctl start {UNIT}"))
                .await
        );
        stage
            .condition_becomes(GUEST_AGENT, "True", "Healthy")
            .await;
    }
    witness.leave().await;
    stage.inside.sync().await;
    let records = stage.recorded("resolved: guest-agent-not-installed").await;
    for record in &records {
        println!("{}", record.message());
    }
}
