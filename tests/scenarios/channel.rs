// SPDX-License-Identifier: Apache-2.0
//! Our own channel to the host: the same client and the same expectations for the real qemu-ga and for the agent, and what
//! an operator on the host can do with it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use harvester_lab::guest::GuestTree;
use harvester_lab::process::{Agent, Line};
use harvester_lab::qga::{Client, outcome};
use harvester_lab::virtio_port::VirtioPort;
use harvester_lab::world::{World, WorldOptions, eventually};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::process::Command;

use crate::{
    BINARY, SOON, TOPOLOGY, agent, condition_becomes, findings, findings_become, lab, serve,
};

pub(crate) const PORT: &str = "io.harvesterhci.node_agent.0";

/// What a host may expect of the real qemu-ga and of the agent.
async fn speaks_the_dialect<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> Client<S> {
    let mut client = Client::new(stream);
    client.ping().await;

    let info = client.execute("guest-info", Value::Null).await.unwrap();
    assert!(info["version"].is_string(), "{info}");
    let commands = info["supported_commands"].as_array().unwrap();
    for name in ["guest-info", "guest-ping"] {
        let command = json!({"name": name, "enabled": true, "success-response": true});
        assert!(commands.contains(&command), "{name} in {info}");
    }

    for request in [
        json!({"execute": "no-such-command"}),
        json!({"execute": "guest-ping", "more": 2}),
        json!({"execute": "guest-ping", "arguments": {"more": 2}}),
        json!({"execute": 5}),
        json!({"exec": "guest-ping"}),
        json!({}),
        json!([]),
        json!(5),
    ] {
        client.send(format!("{request}\n").as_bytes()).await;
        let refusal = outcome(&mut client.reply().await).unwrap_err();
        assert!(!refusal.description.is_empty(), "{request}");
    }

    // The id may be anything.
    for id in [json!(1.5), json!("ä\n"), json!([{"a": []}])] {
        let request = json!({"execute": "guest-ping", "id": id});
        client.send(format!("{request}\n").as_bytes()).await;
        assert_eq!(client.reply().await, json!({"return": {}, "id": id}));
    }

    // Where writes begin and end is nothing to the parser.
    client
        .send(
            b"{\"execute\":\"guest-ping\",\"id\":1}\n {\"execute\":\"guest-ping\",\"id\":2}\r\n\n",
        )
        .await;
    for id in [1, 2] {
        assert_eq!(client.reply().await, json!({"return": {}, "id": id}));
    }
    for piece in ["{\"exec", "ute\":\"guest-pi", "ng\"", "}", "\n"] {
        client.send(piece.as_bytes()).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.reply().await, json!({"return": {}}));
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_qemu_ga_speaks_the_dialect() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("qga.sock");
    let started = Command::new("qemu-ga")
        .args(["-m", "unix-listen", "-p"])
        .arg(&socket)
        .arg("-t")
        .arg(dir.path())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let _agent = match started {
        Ok(agent) => agent,
        Err(error) => {
            let why = format!("qemu-ga cannot be started: {error}");
            harvester_lab::skip("the_real_qemu_ga_speaks_the_dialect", why);
            return;
        }
    };
    // Its socket exists before it listens.
    let connected = async {
        loop {
            match UnixStream::connect(&socket).await {
                Ok(stream) => break stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let stream = tokio::time::timeout(SOON, connected).await;
    let stream = stream.expect("qemu-ga listens");
    speaks_the_dialect(stream).await;
}

/// A VM that knows its name and nothing else: no network, no credential.
fn lonely_guest() -> (tempfile::TempDir, GuestTree) {
    let dir = tempfile::tempdir().unwrap();
    let guest = GuestTree::new(dir.path());
    guest.kernel_hostname("pool1-abcde");
    guest.dmi("e933dfba-2423-5f1e-a6ec-2e465bb621cf", None);
    (dir, guest)
}

async fn serve_lonely(guest: &GuestTree) -> Agent {
    let mut agent = Agent::spawn(BINARY, guest.root(), &["run"], &[]);
    agent.wait_ready(SOON).await;
    agent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_speaks_the_dialect_and_a_line_end_is_a_new_begin() {
    let (_dir, guest) = lonely_guest();
    let port = VirtioPort::offer(&guest, PORT);
    let _agent = serve_lonely(&guest).await;
    let mut port = speaks_the_dialect(port).await;
    for rubbish in [
        b"garbage".to_vec(),
        b"{\"execute\":\"guest-pi".to_vec(),
        b"{\"execute\":\"guest-ping\",}\n".to_vec(),
        b"\xff\xff\x00\xc3\x28 }]\n".to_vec(),
        b"[".repeat(2000),
        b"\n\n\n".to_vec(),
    ] {
        port.send(&rubbish).await;
        port.ping().await;
    }
}

/// Makes the agent read everything now: after SIGHUP it reads the APIs seconds later, and a retry may wait for a minute.
pub(crate) async fn resync(client: &mut Client<VirtioPort>) {
    let asked = client.execute("node-agent-resync", Value::Null).await;
    assert_eq!(asked, Ok(json!({})));
}

async fn status(client: &mut Client<VirtioPort>) -> Value {
    let status = client.execute("node-agent-status", Value::Null).await;
    status.unwrap()
}

/// Asks the agent to look until the host is told that the last look was for that: a reason that comes while another one waits
/// is dealt with in the look for that.
async fn makes_the_agent_look(client: &mut Client<VirtioPort>) -> Value {
    let deadline = std::time::Instant::now() + SOON;
    loop {
        resync(client).await;
        let mut status = Value::Null;
        for _ in 0..25 {
            status = self::status(client).await;
            if status["trigger"] == "operator" {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "the last look was for {}",
            status["trigger"]
        );
    }
}

fn signal(status: &Value) -> (bool, String) {
    let signals = status["eventSources"].as_array().unwrap();
    let mut channel = signals.iter().filter(|signal| signal["name"] == "port");
    // The first status may be written before this event source has said anything.
    let Some(signal) = channel.next() else {
        return (false, String::new());
    };
    (
        signal["active"].as_bool().unwrap(),
        signal["detail"].as_str().unwrap().to_owned(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_on_the_host_asks_while_both_apis_are_away() {
    let world = World::lab(WorldOptions::default()).await;
    let mut client = Client::new(VirtioPort::offer(&world.guest, PORT));
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    for api in [&world.harvester_api, &world.guest_api] {
        lab(api).refuse_connections().await;
        lab(api).drop_connections();
    }
    client.ping().await;
    let away = || async {
        let codes = findings(&world);
        ["guest-api-unreachable", "harvester-unreachable"]
            .iter()
            .all(|code| codes.iter().any(|found| found == code))
    };
    eventually(SOON, "both APIs are known to be away", away).await;
    let told = status(&mut client).await;
    assert_eq!(told["identity"]["vm"]["name"], world.node_name(), "{told}");
    let codes = told["findings"].to_string();
    assert!(codes.contains("harvester-unreachable"), "{codes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_on_the_host_makes_the_agent_look_and_so_does_a_host_side_that_is_replaced() {
    let world = World::lab(WorldOptions::default()).await;
    let mut client = Client::new(VirtioPort::offer(&world.guest, PORT));
    let agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    client.ping().await;
    let told = makes_the_agent_look(&mut client).await;
    assert_eq!(signal(&told), (true, format!("{PORT}: host connected")));

    // Whoever asked and leaves is no sign of anything.
    client.stream().hang_up();
    client.stream().come_back();
    client.ping().await;
    makes_the_agent_look(&mut client).await;
    let lines = agent.transcript();
    assert!(!lines.contains("possible live migration"), "{lines}");

    // Whoever is there and says nothing, until the host side is replaced, is.
    client.stream().hang_up();
    client.stream().come_back();
    let is_sign = |line: &Line| line.text.contains("possible live migration (port:");
    let replaced = async {
        while !agent.lines().iter().any(is_sign) {
            tokio::time::sleep(Duration::from_millis(200)).await;
            client.stream().hang_up();
            client.stream().come_back();
        }
    };
    tokio::time::timeout(SOON, replaced).await.unwrap();
    let lines = agent.transcript();
    assert!(!lines.contains("event-source-unavailable"), "{lines}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_comes_after_the_agent_is_served_and_so_is_one_that_comes_again() {
    let (_dir, guest) = lonely_guest();
    let agent = serve_lonely(&guest).await;
    let none = || async {
        let none = (false, format!("{PORT}: the host does not provide the port"));
        guest.status().is_some_and(|status| signal(&status) == none)
    };
    eventually(SOON, "the status says that there is no port", none).await;

    let mut client = Client::new(VirtioPort::offer(&guest, PORT));
    client.ping().await;
    // The state of an event source is written with the next round.
    let told = async || {
        agent.reload(SOON).await;
        signal(&guest.status().unwrap())
    };
    let connected = async || told().await == (true, format!("{PORT}: host connected"));
    eventually(SOON, "the host side is there", connected).await;
    client.stream().withdraw();
    let gone = async || {
        let (live, detail) = told().await;
        !live && detail.ends_with(": the host does not provide the port")
            || detail.ends_with(": provided, host not connected")
    };
    eventually(SOON, "the host side is gone", gone).await;

    client.stream().come_back();
    client.ping().await;
    assert!(!agent.transcript().contains("event-source-unavailable"));
}

/// Every finding of a document, wherever it groups them.
fn found_in(document: &Value) -> Vec<Value> {
    match document {
        Value::Object(fields) if fields.contains_key("code") => vec![document.clone()],
        Value::Object(fields) => fields.values().flat_map(found_in).collect(),
        Value::Array(items) => items.iter().flat_map(found_in).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_gets_the_findings_that_doctor_reports_in_the_machine() {
    let world = World::lab(WorldOptions::default()).await;
    world.guest.kernel_hostname("localhost");
    let kubeconfig = world
        .guest
        .path("/var/lib/rancher/rke2/etc/config-files/cloud-provider-config");
    std::fs::set_permissions(&kubeconfig, Permissions::from_mode(0o644)).unwrap();
    let mut client = Client::new(VirtioPort::offer(&world.guest, PORT));
    let _agent = serve(&world).await;
    client.ping().await;
    let expected = [
        "credential-exposed",
        "hostname-differs",
        "static-hostname-differs",
    ];
    findings_become(&world, &expected).await;
    let told = status(&mut client).await;
    let told = told["findings"].as_array().unwrap();
    for code in expected {
        let is_told = told.iter().any(|finding| finding["code"] == code);
        assert!(is_told, "{code}: {told:?}");
    }

    let doctor = agent(&world, &["doctor", "-o", "json"]).await;
    let document: Value = serde_json::from_str(&doctor.stdout).unwrap();
    let found = found_in(&document);
    for finding in told {
        let same = |other: &&Value| other["code"] == finding["code"];
        let other = found.iter().find(same);
        let other = other.unwrap_or_else(|| panic!("doctor lacks {finding}, has {document}"));
        for part in ["severity", "observed"] {
            assert_eq!(other[part], finding[part], "{finding}");
        }
        // A ticket of the host and one of the machine say the same to do.
        let remedy = other.get("fix");
        assert!(
            remedy.is_none_or(|remedy| *remedy == finding["fix"]),
            "{other}"
        );
        assert!(!finding["fix"].as_array().unwrap().is_empty(), "{finding}");
    }
}
