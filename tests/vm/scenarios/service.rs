// SPDX-License-Identifier: Apache-2.0
//! What happens to the agent itself, and what it costs.

use serde_json::json;

use crate::HOST;
use crate::inside::{UNIT, codes_of};
use crate::stage::Stage;

/// What the unit promises, `systemd-analyze security`.
const EXPOSURE: f64 = 1.6;

/// KubeVirt sets the guest's clock after a migration; here by an hour, and back.
pub async fn a_clock_that_is_set_is_reported_and_harmless(stage: &mut Stage) {
    stage.settled().await;
    stage.synced().await;
    let version = stage.world.node_resource_version().await;
    for hours in [1, -1] {
        stage.begin().await;
        let now = stage.inside.execute("guest-get-time", json!({})).await;
        let time = now.as_i64().unwrap() + hours * 3_600_000_000_000;
        stage
            .inside
            .execute("guest-set-time", json!({"time": time}))
            .await;
        let records = stage.recorded(" set by ").await;
        println!("{}", records[0].message());
    }
    assert_eq!(stage.world.node_resource_version().await, version);
    stage.inside.has_no_finding().await;
}

/// Where the examples of drop-ins are installed.
const EXAMPLES: &str = "/usr/share/harvester-node-agent/systemd";

/// In the sandbox that is shipped: the process is in a user namespace, the kernel denies it every disk and every TCP port, and the
/// examples of drop-ins allow one of these each. Without user namespaces the third example lets the service start.
pub async fn the_sandbox_denies_disks_and_ports_unless_a_drop_in_allows_them(stage: &mut Stage) {
    stage.settled().await;
    stage.synced().await;
    let drop_ins = format!("/etc/systemd/system/{UNIT}.d");
    let with = |example: &str| {
        format!(
            "mkdir -p {drop_ins} && cp {EXAMPLES}/{example}.conf {drop_ins}/ && systemctl daemon-reload && \
             systemctl restart {UNIT}"
        )
    };
    let without = format!("rm -r {drop_ins}; systemctl daemon-reload; systemctl restart {UNIT}");
    let main = format!("$(systemctl show --value --property=MainPID {UNIT})");
    let map = format!("cat /proc/{main}/uid_map | tr -s ' '");
    assert_eq!(stage.inside.sh(&map).await.trim(), "0 0 1");
    let run = format!("grep -o ' /run [^,]*' /proc/{main}/mountinfo");
    assert_eq!(stage.inside.sh(&run).await.trim(), "/run ro");
    let swap = stage.inside.property(UNIT, "MemorySwapMax").await;
    assert_eq!(swap, "0");

    // Devices are denied to whatever runs in the service's control group.
    let disk = format!(
        "echo $$ >/sys/fs/cgroup/system.slice/{UNIT}/cgroup.procs; head --bytes=1 /dev/vda | wc --bytes"
    );
    let denied = stage.inside.run(&disk).await.text;
    assert!(denied.contains("Operation not permitted"), "{denied}");

    let metrics = "/etc/harvester-node-agent/config.d/60-port.toml";
    let toml = "[metrics]\\nlisten = \"127.0.0.1:9879\"\\n";
    let script = format!(
        "mkdir -p $(dirname {metrics}); printf '{toml}' >{metrics}; systemctl reload {UNIT}"
    );
    stage.inside.sh(&script).await;
    // Not every distribution builds systemd with what denies ports; Debian 12 does not.
    let version = stage.inside.sh("systemctl --version").await;
    if version.contains("+BPF_FRAMEWORK") {
        let status = stage
            .inside
            .status_becomes("the port is denied", |status| {
                codes_of(status) == ["metrics-unavailable"]
            })
            .await;
        let fix = status["findings"][0]["fix"].to_string();
        assert!(fix.contains("SocketBindAllow=tcp:9879"), "{fix}");
    } else {
        println!("this systemd cannot deny ports: -BPF_FRAMEWORK");
    }
    stage.inside.sh(&with("metrics-port")).await;
    let scrape = "exec 3<>/dev/tcp/127.0.0.1/9879; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; grep -c ^harvester_node <&3";
    let scrape = format!("bash -c \"{}\"", scrape.replace('"', "\\\""));
    let lines = stage.inside.until(&scrape).await;
    println!("{lines} samples from the port");
    stage.inside.sh(&format!("rm {metrics}; {without}")).await;

    let limit = "/proc/sys/user/max_user_namespaces";
    let before = stage.inside.sh(&format!("cat {limit}")).await;
    stage.inside.sh(&format!("echo 0 >{limit}")).await;
    let restarted = stage
        .inside
        .run(&format!(
            "systemctl restart {UNIT}; systemctl show --property=Result,ExecMainStatus {UNIT}"
        ))
        .await;
    println!("without user namespaces: {}", restarted.text);
    stage.inside.sh(&with("no-user-namespace")).await;
    stage
        .inside
        .until(&format!("systemctl is-active {UNIT}"))
        .await;
    stage
        .inside
        .sh(&format!("echo {before} >{limit}; {without}"))
        .await;
    stage.says_that_it_is_synced().await;
    stage.inside.has_no_finding().await;
}

/// Both APIs are away when the machine boots. Labels stay, and it says what is missing; when they are back it goes on as if
/// nothing had been.
pub async fn a_boot_before_the_apis_is_outlived(stage: &mut Stage) {
    stage.settled().await;
    stage.synced().await;
    let version = stage.world.node_resource_version().await;
    let boot = "cat /proc/sys/kernel/random/boot_id";
    let before = stage.inside.sh(boot).await;
    for api in [&stage.world.harvester_api, &stage.world.guest_api] {
        api.lab().refuse_connections().await;
        api.lab().drop_connections();
    }
    stage.reboot().await;
    stage.settled().await;
    assert_ne!(stage.inside.sh(boot).await, before);
    let away = ["guest-api-unreachable", "harvester-unreachable"];
    stage
        .inside
        .status_becomes("both APIs are away", |status| {
            let codes = codes_of(status);
            away.iter().all(|code| codes.contains(code))
        })
        .await;
    let security = format!("systemd-analyze security --no-pager {UNIT} | tail -1");
    let security = stage.inside.sh(&security).await;
    let mut words = security.split_whitespace();
    let exposure = words.find_map(|word| word.parse::<f64>().ok());
    assert!(
        exposure.is_some_and(|found| found <= EXPOSURE),
        "{security}"
    );
    for api in [&stage.world.harvester_api, &stage.world.guest_api] {
        api.lab().serve_again().await;
    }
    stage.inside.has_no_finding().await;
    stage.synced().await;
    assert_eq!(stage.world.node_label(HOST).await.as_deref(), Some("hv-a"));
    let writes = stage.world.node_resource_version().await != version;
    println!("the Node was written after the boot: {writes}");
}
