// SPDX-License-Identifier: Apache-2.0
//! The service: systemd's protocol, reload, stop, exit codes, what it leaves behind.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use harvester_lab::process::{Agent, Line, Signal, run_once};
use harvester_lab::world::{Side, World, WorldOptions, eventually};

use crate::{
    BINARY, HOST, IDENTITY, On, SOON, TOPOLOGY, agent, condition_becomes, label_becomes, on_both,
    serve, words,
};

on_both!(
    it_is_ready_before_any_api_answers_and_stops_at_once,
    a_reload_takes_good_configuration_and_keeps_the_old_one_otherwise,
    a_start_with_a_faulty_configuration_waits_for_a_better_one,
    a_second_agent_says_who_is_first,
    an_ordinary_user_sees_whether_the_agent_runs,
    a_dry_run_leaves_the_machine_byte_for_byte_as_it_was,
    the_watchdog_is_fed_while_nothing_happens,
    nothing_happens_while_nothing_changes,
);

async fn it_is_ready_before_any_api_answers_and_stops_at_once(on: On) {
    let world = on.world(WorldOptions::default()).await;
    for path in [
        "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
        "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config",
    ] {
        world.guest.remove(path);
    }
    let mut agent = serve(&world).await;
    let missing = |text: &'static str| move |line: &Line| line.text.contains(text);
    agent
        .wait_line(missing("[harvester-credential-missing]"), SOON)
        .await;
    agent
        .wait_line(missing("[kubelet-credential-missing]"), SOON)
        .await;
    agent.signal(Signal::SIGTERM);
    let status = agent.wait_exit(SOON).await;
    assert_eq!(status.code(), Some(0), "{}", agent.transcript());
    agent
        .wait_notify(|notification| notification.has("STOPPING"), SOON)
        .await;
    let shown = crate::agent(&world, &["status"]).await;
    assert!(
        words(&shown.stdout).contains("agent is not running; showing last status from "),
        "{}",
        shown.stdout
    );
    let shown = crate::agent(&world, &["status", "-o", "json"]).await;
    assert!(
        shown.stdout.contains("\"running\": false"),
        "{}",
        shown.stdout
    );
    assert_eq!(shown.code, Some(75));
    assert!(
        shown
            .stderr
            .contains("agent is not running; showing last status from "),
        "{}",
        shown.stderr
    );
}

async fn a_reload_takes_good_configuration_and_keeps_the_old_one_otherwise(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let mut agent = serve(&world).await;
    label_becomes(&world, HOST, "hv-a").await;
    world.guest.agent_config(
        "10-host.toml",
        "[topology]\nhost_lable = \"example.com/host\"\n",
    );
    agent.signal(Signal::SIGHUP);
    agent
        .wait_line(|line| line.text.contains("[config-reload-failed]"), SOON)
        .await;
    // The message is short; the whole error follows it.
    agent
        .wait_line(|line| line.text.contains("did you mean"), SOON)
        .await;
    assert_eq!(
        crate::agent(&world, &["config", "check"]).await.code,
        Some(78)
    );
    world.guest.agent_config(
        "10-host.toml",
        "[topology]\nhost_label = \"example.com/host\"\n",
    );
    agent.signal(Signal::SIGHUP);
    label_becomes(&world, "example.com/host", "hv-a").await;
    assert_eq!(
        world.node_label(HOST).await,
        None,
        "the label of the old configuration was ours and goes"
    );
    agent.signal(Signal::SIGTERM);
    agent
        .wait_notify(|notification| notification.has("STOPPING"), SOON)
        .await;
    assert_eq!(agent.notified("RELOADING"), 2);
}

async fn a_start_with_a_faulty_configuration_waits_for_a_better_one(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let faulty = "[topology]\nhost_lable = \"example.com/host\"\n";
    world.guest.agent_config("10-host.toml", faulty);
    let env = [("WATCHDOG_USEC", "400000")];
    let mut agent = Agent::spawn(BINARY, world.guest.root(), &["run"], &env);
    let ready = agent.wait_ready(SOON).await;
    assert!(ready.has("STATUS"));
    agent
        .wait_line(|line| line.text.contains("did you mean"), SOON)
        .await;
    let shown = crate::agent(&world, &["status"]).await;
    let is_idle = "the agent is idle or not running, because its configuration is invalid";
    assert!(shown.stderr.contains(is_idle), "{}", shown.stderr);
    let shown = words(&crate::agent(&world, &["doctor", "-v"]).await.stdout);
    for part in ["[config-invalid]", "[agent-not-running]"] {
        assert!(shown.contains(part), "{shown}");
    }
    assert!(!shown.contains("enable --now"), "{shown}");
    world.guest.write("/good.toml", "");
    let good = crate::agent(&world, &["doctor", "--config=/good.toml"]).await;
    assert!(!good.stdout.contains("config-invalid"), "{}", good.stdout);
    // Read again with the same faults: by a signal, by a change, and each time the watchdog is fed.
    agent.signal(Signal::SIGHUP);
    world.guest.agent_config("20-empty.toml", "");
    let is_fed = || async { agent.notified("WATCHDOG") >= 3 };
    eventually(SOON, "the watchdog is fed", is_fed).await;
    // With another fault, which is the second that is told.
    let other = "[topology]\nhost_labels = \"example.com/host\"\n";
    world.guest.agent_config("10-host.toml", other);
    agent
        .wait_line(|line| line.text.contains("host_labels"), SOON)
        .await;
    let told = agent.transcript().matches("did you mean").count();
    assert_eq!(told, 2, "{}", agent.transcript());
    assert!(world.agent_writes().await.is_empty());
    let better = "[topology]\nhost_label = \"example.com/host\"\n";
    world.guest.agent_config("10-host.toml", better);
    label_becomes(&world, "example.com/host", "hv-a").await;
    agent.signal(Signal::SIGTERM);
    let status = agent.wait_exit(SOON).await;
    assert_eq!(status.code(), Some(0), "{}", agent.transcript());
}

async fn a_second_agent_says_who_is_first(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let first = serve(&world).await;
    for command in ["run", "once"] {
        let second = agent(&world, &[command]).await;
        assert_eq!(second.code, Some(75), "{command}");
        assert!(
            second.stderr.contains(&format!("process {}", first.pid())),
            "{}",
            second.stderr
        );
    }
    let output = agent(&world, &["once", "--dry-run"]).await;
    assert_ne!(output.code, Some(75), "{}", output.stderr);
}

/// `nobody`.
const STRANGER: u32 = 65534;

/// As the unit starts it: files that it makes are for root alone unless it says otherwise.
async fn an_ordinary_user_sees_whether_the_agent_runs(on: On) {
    if !nix::unistd::geteuid().is_root() {
        let why = "only root can be another user";
        harvester_lab::skip("an_ordinary_user_sees_whether_the_agent_runs", why);
        return;
    }
    let world = on.world(WorldOptions::default()).await;
    let root = world.guest.root().to_owned();
    std::fs::set_permissions(&root, PermissionsExt::from_mode(0o755)).unwrap();
    // One that the user may execute.
    let binary = world.guest.path("/usr/bin/harvester-node-agent");
    std::fs::create_dir_all(binary.parent().unwrap()).unwrap();
    std::fs::copy(BINARY, &binary).unwrap();
    let ask = async |args: &[&str]| {
        let asked = tokio::process::Command::new(&binary)
            .args(args)
            .arg("--root")
            .arg(&root)
            .env_clear()
            .uid(STRANGER)
            .gid(STRANGER)
            .output();
        let output = asked.await.unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.code(), stdout, stderr)
    };
    let script = "umask 077; exec \"$@\"";
    let mut daemon = world.spawn_agent("sh", &["-c", script, "sh", BINARY, "run"]);
    daemon.wait_ready(SOON).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let (code, _, said) = ask(&["status"]).await;
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let diagnosis = agent(&world, &["doctor", "-o", "json"]).await.stdout;
    let diagnosis: serde_json::Value = serde_json::from_str(&diagnosis).unwrap();
    assert_eq!(diagnosis["service"]["running"], true, "{diagnosis:#}");
    assert!(!diagnosis.to_string().contains("agent-not-running"));
    // Killed, it leaves its status behind, and its number to another process.
    daemon.signal(Signal::SIGKILL);
    daemon.wait_exit(SOON).await;
    let mut status = world.guest.status().unwrap();
    let pid = &mut status["agent"]["pid"];
    assert_eq!(pid.as_u64(), Some(daemon.pid().into()));
    *pid = std::process::id().into();
    let text = status.to_string();
    world
        .guest
        .write("/run/harvester-node-agent/status.json", text);
    let (code, said, _) = ask(&["status"]).await;
    assert_eq!(code, Some(75));
    assert!(words(&said).contains("agent is not running"), "{said}");
    let diagnosis = agent(&world, &["doctor", "-o", "json"]).await.stdout;
    assert!(diagnosis.contains("agent-not-running"), "{diagnosis}");
    let (code, said, error) = ask(&["events"]).await;
    assert_eq!((code, said.as_str()), (Some(75), ""));
    assert!(error.contains("the agent is not running"), "{error}");
    for command in ["doctor", "whoami"] {
        let (code, said, error) = ask(&[command, "-o", "json"]).await;
        assert_eq!((code, said.as_str()), (Some(75), ""));
        let next = format!(
            "sudo harvester-node-agent --root={} {command}\n",
            root.display()
        );
        assert!(error.ends_with(&next), "{error}");
    }
}

/// All that is below a directory: paths, modes, times of change, and what is in the files.
fn all_of(directory: &Path) -> BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let found = std::fs::symlink_metadata(&path).unwrap();
        let content = match found.file_type() {
            kind if kind.is_dir() => {
                let entries = std::fs::read_dir(&path).unwrap();
                left.extend(entries.map(|entry| entry.unwrap().path()));
                Vec::new()
            }
            kind if kind.is_file() => std::fs::read(&path).unwrap(),
            _ => Vec::new(),
        };
        let about = (found.mode(), found.mtime(), found.mtime_nsec(), content);
        all.insert(path, about);
    }
    all
}

async fn a_dry_run_leaves_the_machine_byte_for_byte_as_it_was(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let own = ["/var/lib/harvester-node-agent", "/run/harvester-node-agent"];
    // Where the agent never ran, and where what it remembers is damaged.
    for is_damaged in [false, true] {
        for directory in own {
            let place = world.guest.path(directory);
            if is_damaged {
                std::fs::create_dir_all(&place).unwrap();
                world.guest.write(&format!("{directory}/state.json"), "{");
            } else {
                std::fs::remove_dir_all(&place).unwrap();
            }
        }
        let before = all_of(world.guest.root());
        for command in [&["once", "--dry-run"] as &[&str], &["whoami"], &["doctor"]] {
            let output = agent(&world, command).await;
            assert!(!output.stdout.is_empty(), "{command:?}: {}", output.stderr);
            assert!(all_of(world.guest.root()) == before, "{command:?}");
        }
    }
}

async fn the_watchdog_is_fed_while_nothing_happens(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let env = [("WATCHDOG_USEC", "400000")];
    let mut agent = Agent::spawn(BINARY, world.guest.root(), &["run"], &env);
    agent.wait_ready(SOON).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    // More than the last rounds of the start.
    let enough = agent.notified("WATCHDOG") + 10;
    let is_fed = || async { agent.notified("WATCHDOG") >= enough };
    eventually(SOON, "it is fed", is_fed).await;
}

async fn nothing_happens_while_nothing_changes(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let mut agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    condition_becomes(&world, IDENTITY, "True", "NamesMatch").await;
    // What others change comes after all that was before, and is undone at once.
    let undone = async |agent: &mut Agent, count: usize| {
        let change = [(HOST, Some("elsewhere"))];
        world.relabel_node("kubectl", &change).await;
        let mut entries = 0;
        let is_entry = |line: &Line| {
            entries += usize::from(line.text.contains(" labeled in "));
            entries == count
        };
        agent.wait_line(is_entry, SOON).await;
    };
    // The entry of the start is the first.
    undone(&mut agent, 2).await;
    let lines = agent.lines().len();
    let harvester = requests(&world, Side::Harvester).await;
    let guest = requests(&world, Side::Guest).await;
    // The kubelet's heartbeat is no reason to look.
    let heartbeat = serde_json::json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}});
    let path = format!("/api/v1/nodes/{}", world.node_name());
    world
        .guest_admin
        .strategic_patch_status(&path, &heartbeat)
        .await
        .unwrap();
    undone(&mut agent, 3).await;
    assert_eq!(agent.lines().len(), lines + 1, "{}", agent.transcript());
    assert_eq!(requests(&world, Side::Harvester).await, harvester);
    let since = &requests(&world, Side::Guest).await[guest.len()..];
    assert_eq!(since, [format!("patch {path}")]);
    assert!(agent.exited().is_none());
}

/// Verb and path of each request of the agent.
async fn requests(world: &World, side: Side) -> Vec<String> {
    let requests = world.agent_requests(side).await;
    let texts = requests
        .iter()
        .map(|one| format!("{} {}", one.verb, one.path));
    texts.collect()
}

#[tokio::test]
async fn a_machine_that_is_not_kubevirts_is_reported_so_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let guest = harvester_lab::guest::GuestTree::new(dir.path());
    guest.foreign_dmi("QEMU", "Standard PC (Q35 + ICH9, 2009)");
    for command in ["run", "once", "whoami"] {
        let output = run_once(BINARY, dir.path(), &[command], SOON).await;
        assert_eq!(output.code, Some(4), "{command}: {}", output.stderr);
        assert!(
            output.stderr.contains("assume_kubevirt"),
            "{}",
            output.stderr
        );
    }
}

#[tokio::test]
async fn with_no_credential_at_all_the_firmware_uuid_proves_the_name() {
    let dir = tempfile::tempdir().unwrap();
    let guest = harvester_lab::guest::GuestTree::new(dir.path());
    guest.kernel_hostname("pool1-abcde");
    guest.dmi("e933dfba-2423-5f1e-a6ec-2e465bb621cf", None);
    let output = run_once(BINARY, dir.path(), &["whoami"], SOON).await;
    assert!(
        output
            .stdout
            .starts_with("VM           pool1-abcde   (matched by uuid-of-name"),
        "{}",
        output.stdout
    );
    assert!(
        output.stdout.contains("Names        ok   hostname\n"),
        "{}",
        output.stdout
    );
}

#[tokio::test]
async fn exit_codes_and_streams_are_as_promised() {
    let dir = tempfile::tempdir().unwrap();
    let code =
        |args: &'static [&'static str]| async { run_once(BINARY, dir.path(), args, SOON).await };
    assert_eq!(code(&["nonsense"]).await.code, Some(2));
    assert_eq!(code(&["explain", "hostname-differs"]).await.code, Some(0));
    assert_eq!(code(&["explain", "nonsense"]).await.code, Some(2));
    assert_eq!(code(&["config", "show"]).await.code, Some(0));
    assert_eq!(code(&["status"]).await.code, Some(75));
    assert_eq!(code(&["completions", "bash"]).await.code, Some(0));
    std::fs::create_dir_all(dir.path().join("etc/harvester-node-agent")).unwrap();
    std::fs::write(
        dir.path().join("etc/harvester-node-agent/config.toml"),
        "log.level = 3\nnonsense = 1\n",
    )
    .unwrap();
    for command in ["run", "once"] {
        let output = run_once(BINARY, dir.path(), &[command], SOON).await;
        assert_eq!((output.code, output.stdout.as_str()), (Some(78), ""));
        let mut parts = ["config.toml:1: ", "config.toml:2: ", "config check"].iter();
        let is_named = parts.all(|part| output.stderr.contains(part));
        assert!(is_named, "{}", output.stderr);
    }
}
