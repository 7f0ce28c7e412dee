// SPDX-License-Identifier: Apache-2.0
//! What the processor decides: where the firmware's strings come from, how devices are called, and which system calls there are.

use crate::hardware::Port;
use crate::inside::UNIT;
use crate::stage::{Stage, Telling};

/// systemd compares the firmware before it starts the service, the agent finds VM and ports by these names.
pub async fn the_firmware_and_the_ports_are_found_by_name(stage: &mut Stage) {
    stage.settled().await;
    assert_eq!(stage.inside.sh("uname -m").await, "aarch64");
    let dmi = stage
        .inside
        .sh("cd /sys/class/dmi/id; cat sys_vendor product_uuid product_serial")
        .await;
    let spec = &stage.world.vm.spec;
    let uuid = stage.world.vm.firmware_uuid.to_lowercase();
    let expected = ["KubeVirt", &uuid, spec.serial.as_deref().unwrap_or("")];
    let found: Vec<&str> = dmi.lines().collect();
    assert_eq!(found, expected, "{dmi}");
    // Without hardware virtualization, which an emulator has not.
    let kind = stage.inside.sh("systemd-detect-virt --vm").await;
    assert!(["kvm", "qemu"].contains(&kind.as_str()), "{kind}");
    let names = stage.inside.sh("sort /sys/class/virtio-ports/*/name").await;
    for port in [Port::GuestAgent, Port::DownwardMetrics, Port::Own] {
        assert!(names.lines().any(|name| name == port.name()), "{names}");
    }
    println!("{kind}: {}", names.replace('\n', ", "));
}

/// The lists of the units are from a trace on x86-64. Here the kernel notes what is not in the list of the service, while it starts,
/// follows a move, reloads and stops.
pub async fn no_system_call_is_outside_of_the_list(stage: &mut Stage) {
    const NOTED: &str = "journalctl --boot --quiet --output=cat _TRANSPORT=audit + _TRANSPORT=kernel | \
                         grep -E 'SECCOMP|type=1326'";
    stage.settled().await;
    stage.synced().await;
    let call = "systemd-run --quiet --wait --property=SystemCallLog=uname uname";
    stage.inside.sh(call).await;
    let shown = stage.inside.until(&format!("{NOTED} | grep uname")).await;
    println!("what is noted looks so: {shown}");

    let drop_ins = format!("/etc/systemd/system/{UNIT}.d");
    let unit = format!("/usr/lib/systemd/system/{UNIT}");
    stage
        .inside
        .sh(&format!(
            "mkdir -p {drop_ins}; {{ printf '[Service]\\nSystemCallFilter=\\n'; \
             sed -n 's/^SystemCallFilter=/SystemCallLog=~/p' {unit}; }} >{drop_ins}/log.conf; \
             systemctl daemon-reload; systemctl restart {UNIT}"
        ))
        .await;
    // Without a list, nothing would be noted.
    let logged = format!("systemctl show --value --property=SystemCallLog {UNIT}");
    assert_ne!(stage.inside.sh(&logged).await, "");
    stage.says_that_it_is_synced().await;
    // The reload is over when the next move has been followed.
    for to in ["hv-b", "hv-a"] {
        stage.begin().await;
        stage.inside.sh(&format!("systemctl reload {UNIT}")).await;
        stage.recorded("configuration reloaded").await;
        stage.migrate(to, Telling::default()).await;
        stage.labelled(to).await;
    }
    stage
        .inside
        .sh(&format!(
            "rm -r {drop_ins}; systemctl daemon-reload; systemctl restart {UNIT}"
        ))
        .await;
    stage.says_that_it_is_synced().await;
    let noted = stage
        .inside
        .sh(&format!(
            "journalctl --sync; {NOTED} | grep harvester || true"
        ))
        .await;
    assert_eq!(noted, "");
}
