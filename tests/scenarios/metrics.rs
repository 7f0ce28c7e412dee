// SPDX-License-Identifier: Apache-2.0
//! Metrics of a real run: the file and the listener, what they count, and that the shipped alerts and the shipped
//! dashboard speak of nothing else.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use harvester_lab::process::{Agent, Signal};
use harvester_lab::world::{World, WorldOptions, eventually};
use harvester_node_agent::catalog::Code;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::{SOON, TOPOLOGY, ZONE, condition_becomes, findings_become, lab, label_becomes, serve};

const TEXTFILE: &str = "/var/lib/prometheus/node-exporter/harvester_node_agent.prom";
const PREFIX: &str = "harvester_node_agent_";

/// What each look changes.
const VOLATILE: [&str; 2] = ["api_requests_total", "last_reconcile_timestamp_seconds"];

/// A world whose agent serves metrics, and the address.
async fn world() -> (World, SocketAddr) {
    let world = World::lab(WorldOptions::default()).await;
    let address = free_address();
    listen(&world, address);
    (world, address)
}

/// An address that stays free: on this loopback address, no other process listens.
pub(crate) fn free_address() -> SocketAddr {
    let [_, second, third, fourth] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, second, third, fourth);
    let listener = TcpListener::bind((address, 0)).unwrap();
    listener.local_addr().unwrap()
}

pub(crate) fn listen(world: &World, address: SocketAddr) {
    let toml = format!("[metrics]\nlisten = \"{address}\"\n");
    world.guest.agent_config("metrics.toml", &toml);
}

async fn synced(world: &World) -> Agent {
    let agent = serve(world).await;
    condition_becomes(world, TOPOLOGY, "True", "Synced").await;
    agent
}

async fn scrape(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: guest\r\n\r\n")
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    Ok(page.to_owned())
}

/// Waits until the page has a line with this end, which is the whole of a sample or its labels and value.
async fn becomes(address: SocketAddr, sample: &str) -> String {
    let page = || async { scrape(address).await.unwrap_or_default() };
    let has = || async { page().await.lines().any(|line| line.ends_with(sample)) };
    eventually(SOON, sample, has).await;
    page().await
}

/// The page without what each look changes.
fn state(page: &str) -> Vec<String> {
    let is_state = |line: &&str| !VOLATILE.iter().any(|name| line.contains(name));
    page.lines().filter(is_state).map(str::to_owned).collect()
}

/// `promtool`, where `tests/metrics/promtool` put it or where the system has it.
fn promtool() -> PathBuf {
    std::env::var_os("PROMTOOL").map_or_else(|| "promtool".into(), PathBuf::from)
}

/// The families that a page declares.
fn families(page: &str) -> BTreeSet<String> {
    let declared = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    declared
        .map(|rest| rest.split(' ').next().unwrap().to_owned())
        .collect()
}

/// The families that a file speaks of.
fn named(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (start, _) in text.match_indices(PREFIX) {
        let is_of_name = |byte: char| byte.is_ascii_lowercase() || byte == '_';
        let rest = text[start..].split(|byte| !is_of_name(byte)).next();
        let name = rest.unwrap();
        names.insert(name.strip_suffix("_bucket").unwrap_or(name).to_owned());
    }
    names
}

fn shipped(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_textfile_and_the_listener_have_the_same_page() {
    let (world, address) = world().await;
    std::fs::create_dir_all(world.guest.path(TEXTFILE).parent().unwrap()).unwrap();
    let agent = synced(&world).await;
    let page = becomes(
        address,
        "harvester_node_agent_topology_state{state=\"synced\"} 1",
    )
    .await;
    let vm = format!(
        "harvester_node_agent_vm_info{{vm_name=\"{}\",vm_namespace=\"{}\",node_name=\"{}\"}} 1",
        world.node_name(),
        world.guest.status().unwrap()["identity"]["vm"]["namespace"]
            .as_str()
            .unwrap(),
        world.node_name()
    );
    for sample in [
        vm.as_str(),
        "harvester_node_agent_identity_verified 1",
        "harvester_node_agent_identity_state{state=\"names-match\"} 1",
        "harvester_node_agent_identity_state{state=\"hostname-differs\"} 0",
        "harvester_node_agent_topology_synced 1",
        "harvester_node_agent_topology_state{state=\"pending\"} 0",
        "harvester_node_agent_placement_info{host=\"hv-a\",region=\"eu-1\",zone=\"rack-a\"} 1",
        "harvester_node_agent_migrations_total{trigger=\"vmi\"} 0",
        "harvester_node_agent_migration_hints_total{trigger=\"link\",outcome=\"confirmed\"} 0",
        "harvester_node_agent_label_update_duration_seconds_bucket{le=\"+Inf\"} 0",
        "harvester_node_agent_migration_interruption_seconds_bucket{le=\"+Inf\"} 0",
        "harvester_node_agent_poll_interval_seconds 600",
    ] {
        assert!(page.lines().any(|line| line == sample), "{sample}\n{page}");
    }
    let is_written = || async {
        let file = world.guest.read(TEXTFILE);
        file.is_some_and(|file| state(&file) == state(&page))
    };
    eventually(SOON, "the file says what the page says", is_written).await;

    let moved = free_address();
    listen(&world, moved);
    agent.signal(Signal::SIGHUP);
    let answers = || async { scrape(moved).await.is_ok() };
    eventually(SOON, "the port answers", answers).await;
    assert_eq!(state(&scrape(moved).await.unwrap()), state(&page));
    scrape(address).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promtool_finds_nothing_wrong_with_a_page() {
    let (world, address) = world().await;
    let _agent = synced(&world).await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    lab(&world.harvester_api).refuse_connections().await;
    lab(&world.harvester_api).drop_connections();
    let page = becomes(
        address,
        "harvester_node_agent_findings{code=\"harvester-unreachable\",severity=\"warning\"} 1",
    )
    .await;
    let started = Command::new(promtool())
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut check) = started else {
        let why = "there is no promtool; `tests/metrics/promtool` fetches it";
        harvester_lab::skip("promtool_finds_nothing_wrong_with_a_page", why);
        return;
    };
    let mut input = check.stdin.take().unwrap();
    input.write_all(page.as_bytes()).await.unwrap();
    drop(input);
    let output = check.wait_with_output().await.unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert_eq!(
        (output.status.code(), String::from_utf8(said).unwrap()),
        (Some(0), String::new()),
        "{page}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_is_counted_once_with_how_long_the_labels_took() {
    let (world, address) = world().await;
    let _agent = synced(&world).await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    // On a machine that is busy another reason to look may come before the watch's.
    let page = becomes(
        address,
        "harvester_node_agent_label_update_duration_seconds_count 1",
    )
    .await;
    let sum = page
        .lines()
        .find_map(|line| {
            line.strip_prefix("harvester_node_agent_label_update_duration_seconds_sum ")
        })
        .unwrap();
    let sum: f64 = sum.parse().unwrap();
    assert!(sum > 0.0, "{sum}");
    assert!(
        page.contains("update_duration_seconds_bucket{le=\"+Inf\"} 1\n"),
        "{page}"
    );
    let migrations = page.lines().filter(|line| {
        line.starts_with("harvester_node_agent_migrations_total{") && !line.ends_with(" 0")
    });
    let migrations: Vec<_> = migrations.collect();
    assert!(
        matches!(migrations[..], [one] if one.ends_with("} 1")),
        "{page}"
    );
    // The watch reported it: nothing in the guest hinted at it.
    let hints = page.lines().filter(|line| {
        line.starts_with("harvester_node_agent_migration_hints_total{") && !line.ends_with(" 0")
    });
    assert_eq!(hints.count(), 0, "{page}");
}

/// Prometheus renames a label of a page that a scrape target has too, and queries by that label then find the target's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_label_collides_with_one_of_a_scrape_target() {
    let (world, address) = world().await;
    let _agent = synced(&world).await;
    let page = scrape(address).await.unwrap();
    for label in [
        "instance",
        "job",
        "namespace",
        "node",
        "pod",
        "service",
        "vm",
    ] {
        for start in ['{', ','] {
            let labeled = format!("{start}{label}=\"");
            assert!(!page.contains(&labeled), "{label}: {page}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_counted_by_their_result() {
    let (world, address) = world().await;
    let _agent = synced(&world).await;
    let of = |page: &str, result: &str| {
        let start = format!(
            "harvester_node_agent_api_requests_total{{api=\"harvester\",result=\"{result}\"}} "
        );
        let count = page.lines().find_map(|line| line.strip_prefix(&start));
        count.unwrap().parse::<u64>().unwrap()
    };
    let page = scrape(address).await.unwrap();
    assert!(of(&page, "ok") > 0, "{page}");
    assert_eq!(of(&page, "unreachable"), 0, "{page}");
    lab(&world.harvester_api).refuse_connections().await;
    lab(&world.harvester_api).drop_connections();
    findings_become(&world, &["harvester-unreachable"]).await;
    let grows = || async { of(&scrape(address).await.unwrap(), "unreachable") > 0 };
    eventually(SOON, "unreachable requests are counted", grows).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_in_use_is_a_finding_that_goes_when_another_is_configured() {
    let (world, address) = world().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    listen(&world, taken.local_addr().unwrap());
    let agent = synced(&world).await;
    findings_become(&world, &["metrics-unavailable"]).await;
    listen(&world, address);
    agent.signal(Signal::SIGHUP);
    findings_become(&world, &[]).await;
    scrape(address).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_written_is_a_finding_and_one_that_is_not_wanted_goes() {
    let (world, _) = world().await;
    std::fs::create_dir_all(world.guest.path(TEXTFILE)).unwrap();
    let agent = synced(&world).await;
    findings_become(&world, &["metrics-unavailable"]).await;
    std::fs::remove_dir(world.guest.path(TEXTFILE)).unwrap();
    agent.signal(Signal::SIGHUP);
    findings_become(&world, &[]).await;
    assert!(world.guest.path(TEXTFILE).is_file());
    world
        .guest
        .agent_config("textfile.toml", "[metrics]\ntextfile = \"off\"\n");
    agent.signal(Signal::SIGHUP);
    let is_gone = || async { !world.guest.path(TEXTFILE).exists() };
    eventually(SOON, "the file is gone", is_gone).await;
    findings_become(&world, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alerts_and_dashboard_use_every_metric_of_the_agent_and_no_other() {
    let (world, address) = world().await;
    let _agent = synced(&world).await;
    let page = becomes(
        address,
        "harvester_node_agent_topology_state{state=\"synced\"} 1",
    )
    .await;
    let exported = families(&page);
    let rules = shipped("packaging/prometheus/harvester-node-agent.rules.yaml");
    let dashboard = shipped("packaging/grafana/harvester-node-agent.json");
    let tested = shipped("tests/metrics/alerts.yaml");
    for (file, text) in [
        ("rules", &rules),
        ("dashboard", &dashboard),
        ("tests", &tested),
    ] {
        let named = named(text);
        assert!(!named.is_empty(), "{file}");
        let unknown: Vec<_> = named.difference(&exported).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}, of {exported:?}");
    }
    let seen = named(&[rules.clone(), dashboard.clone()].concat());
    let unused: Vec<_> = exported.difference(&seen).collect();
    assert!(
        unused.is_empty(),
        "neither an alert nor a panel uses {unused:?}"
    );

    let parsed: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    assert_eq!(parsed["uid"], "harvester-node-agent");
    // Each alert says to run doctor, and on which node; a code to have explained is one that exists or the one of its finding;
    // and each is tested.
    for alert in rules.split("- alert: ").skip(1) {
        let name = alert.lines().next().unwrap();
        let words: Vec<&str> = alert.split_whitespace().collect();
        let explained = words.windows(2).filter(|pair| pair[0] == "explain");
        let codes: Vec<&str> = explained
            .map(|pair| pair[1].trim_end_matches(['`', ',', '.', ';']))
            .collect();
        let on = words.windows(5);
        let mut on = on.map(|words| words.join(" "));
        let doctor = "`harvester-node-agent doctor` on {{ $labels.instance";
        assert!(on.any(|words| words == doctor), "{name}");
        for code in codes {
            let exists = code == "{{" || Code::parse(code).is_some();
            assert!(exists, "{name}: explain {code}");
        }
        assert!(tested.contains(&format!("alertname: {name}\n")), "{name}");
    }
    for rest in rules.split("code=\"").skip(1) {
        let code = rest.split('"').next().unwrap();
        assert!(Code::parse(code).is_some(), "{code}");
    }
}

#[test]
fn the_probe_for_kubevirt_asks_doctor_and_waits_for_its_answer() {
    let patch = shipped("packaging/kubevirt/readiness-probe.yaml");
    let patch: serde_json::Value = yaml_serde::from_str(&patch).unwrap();
    let probe = &patch["spec"]["template"]["spec"]["readinessProbe"];
    let command: Vec<&str> = probe["exec"]["command"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    let [shell, "-c", script] = command[..] else {
        panic!("{command:?}");
    };
    // With each exit code of doctor: an error alone makes the machine unready.
    let doctor = "/usr/bin/harvester-node-agent doctor --quiet";
    assert_eq!(script.matches(doctor).count(), 1, "{script}");
    for code in [0, 1, 3, 4, 75, 78] {
        let script = script.replace(doctor, &format!("(exit {code})"));
        let status = std::process::Command::new(shell)
            .args(["-c", script.as_str()])
            .status()
            .unwrap();
        assert_eq!(status.success(), code != 1, "{code}: {script}");
    }
    let seconds = |name: &str| probe[name].as_u64().unwrap();
    assert!(seconds("timeoutSeconds") < seconds("periodSeconds"));
}
