// SPDX-License-Identifier: Apache-2.0
//! What `doctor`, `whoami` and `once` print in a terminal of 80 columns. The texts are in `expected/`; no line is wider, but for
//! commands.

use std::io::Read;
use std::net::{IpAddr, UdpSocket};
use std::process::Command;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use harvester_lab::admin::{Admin, paths};
use harvester_lab::faults::{Fault, Matcher};
use harvester_lab::guest::Distribution;
use harvester_lab::pki::Validity;
use harvester_lab::world::{ACCOUNT, AGENT, NAMESPACE, VM_NAME, World, WorldOptions};
use nix::pty::{Winsize, openpty};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::doctor_credentials::{HARVESTER, edit};
use crate::expected::is_expected;
use crate::{BINARY, TOPOLOGY, agent, condition_becomes, lab, serve, words};

const WIDTH: usize = 80;

const KUBELET: &str = "/var/lib/rancher/rke2/agent/kubelet.kubeconfig";

/// Lines that are wider than the terminal, but for those that are one word or a command.
fn wide(text: &str) -> Vec<&str> {
    let wide = text.lines().filter(|line| line.chars().count() > WIDTH);
    let is_command = |line: &&str| {
        [
            "harvester-node-agent rbac",
            "kubectl ",
            "ssh ",
            "systemctl ",
            "journalctl ",
            "install -m 0600 ",
            "curl ",
            "tail ",
            "openssl ",
        ]
        .iter()
        .any(|command| line.contains(command))
    };
    wide.filter(|line| !is_command(line) && line.trim().contains(' '))
        .collect()
}

const NO_ADDRESS: &str = "there is no address but the loopback's";

/// Puts Harvester's API behind an address that is not a loopback one, which would be a finding; `None` where there is none.
async fn behind_an_address(world: &World) -> Option<JoinHandle<()>> {
    let probe = UdpSocket::bind("0.0.0.0:0").ok()?;
    probe.connect("192.0.2.1:9").ok()?;
    let address: IpAddr = probe.local_addr().ok()?.ip();
    let listener = TcpListener::bind((address, 0)).await.ok()?;
    let url = world.harvester_api.endpoint().url;
    let behind = url.trim_start_matches("https://").to_owned();
    let here = listener.local_addr().ok()?;
    let server = format!("server: \"https://{here}\"\n    tls-server-name: localhost");
    edit(world, &format!("server: \"{url}\""), &server);
    Some(tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let behind = behind.clone();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(behind).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_healthy_node_each_command_prints_the_expected_text() {
    let world = World::lab(WorldOptions::default()).await;
    let Some(relay) = behind_an_address(&world).await else {
        harvester_lab::skip("of_a_healthy_node", NO_ADDRESS);
        return;
    };
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let doctor = agent(&world, &["doctor"]).await;
    assert_eq!(doctor.code, Some(0), "{}", doctor.stderr);
    is_expected("doctor-healthy", &doctor.stdout);
    let is_wide = |line: &&str| line.chars().count() > WIDTH;
    assert_eq!(doctor.stdout.lines().find(is_wide), None);

    let whoami = agent(&world, &["whoami"]).await.stdout;
    is_expected("whoami-healthy", &whoami);
    assert_eq!(wide(&whoami), Vec::<&str>::new());
    let verbose = agent(&world, &["whoami", "-v"]).await.stdout;
    assert!(
        verbose.contains("\nEvidence ") && verbose.contains("\nPermission "),
        "{verbose}"
    );

    let status = agent(&world, &["status"]).await.stdout;
    assert_eq!(wide(&status), Vec::<&str>::new());
    assert!(
        status.starts_with(&format!("ok   {VM_NAME}: synced on hv-a (eu-1/rack-a)\n")),
        "{status}"
    );

    let dry_run = agent(&world, &["once", "--dry-run"]).await;
    let unchanged = format!("node/{VM_NAME} unchanged (dry run)\n");
    assert_eq!((dry_run.stdout, dry_run.stderr), (unchanged, String::new()));
    relay.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_run_does_not_say_since_when_a_finding_exists() {
    let world = World::lab(WorldOptions::default()).await;
    world.guest.static_hostname("other");
    for command in [&["whoami"][..], &["once", "--dry-run"]] {
        let text = agent(&world, &[command, &["-v"]].concat()).await;
        let shown = text.stdout + &text.stderr;
        assert!(shown.contains("hostname-differs"), "{shown}");
        assert!(!shown.contains("since"), "{shown}");
        let json = agent(&world, &[command, &["-ojson"]].concat()).await.stdout;
        let document: Value = serde_json::from_str(&json).unwrap();
        assert_ne!(document["findings"], serde_json::json!([]));
        assert!(!json.contains("firstObservedTime"), "{json}");
    }
}

/// What a command prints on a terminal with so many columns, where the environment does not say how many.
fn on_terminal(columns: u16, args: &[&str]) -> String {
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let terminal = openpty(Some(&size), None).unwrap();
    let mut command = Command::new(BINARY);
    command.args(args).env_clear().env("TERM", "dumb");
    let mut child = command.stdout(terminal.slave).spawn().unwrap();
    // With the command, the last end of the terminal but the child's is closed.
    drop(command);
    let mut master = std::fs::File::from(terminal.master);
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = master.read(&mut buffer) {
        text.extend_from_slice(&buffer[..count]);
    }
    child.wait().unwrap();
    String::from_utf8(text).unwrap().replace("\r\n", "\n")
}

#[test]
fn lines_are_wrapped_at_the_width_of_the_terminal() {
    for args in [&["explain"][..], &["doctor", "--help"]] {
        for columns in [80, 110] {
            let text = on_terminal(columns, args);
            let is_text = |line: &&str| {
                let line = line.trim();
                line.contains(' ') && !line.contains("sudo ") && !line.contains("kubectl ")
            };
            let widths = text
                .lines()
                .filter(is_text)
                .map(|line| line.chars().count());
            let widest = widths.max().unwrap();
            let columns = usize::from(columns);
            assert!(
                (columns - 20..=columns).contains(&widest),
                "{widest} of {columns}\n{text}"
            );
        }
    }
}

/// What is left of these certificates: between two whole days, so that the text is the same however long the test takes.
const LEFT: time::Duration = time::Duration::hours(28 * 24 + 12);

/// The certificate of an authority that expires soon.
fn authority(name: &str) -> String {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let end = time::OffsetDateTime::now_utc() + LEFT;
    params.not_after = end;
    params
        .self_signed(&KeyPair::generate().unwrap())
        .unwrap()
        .pem()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_error_and_five_expiring_certificates_take_one_block_for_each_code() {
    let world = World::lab(WorldOptions::default()).await;
    let Some(relay) = behind_an_address(&world).await else {
        harvester_lab::skip("one_error_and_five_expiring_certificates", NO_ADDRESS);
        return;
    };
    let mut service = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let user = format!("system:node:{}", world.node_name());
    let soon = Validity::from_now(LEFT);
    let issuer = lab(&world.guest_api).authority();
    let identity = issuer.client_identity_with(&user, &["system:nodes"], soon);
    world
        .guest
        .rotate_kubelet_certificate(Distribution::Rke2, &identity);
    let bundle = "/var/lib/rancher/rke2/agent/server-ca.crt";
    let mut text = world.guest.read(bundle).unwrap();
    for name in [
        "rke2-server-ca@1",
        "rke2-server-ca@2",
        "rke2-server-ca@3",
        "rke2-server-ca@4",
    ] {
        text.push_str(&authority(name));
    }
    world.guest.write(bundle, text);
    let part = |text: String| BASE64_URL_SAFE_NO_PAD.encode(text);
    let claims =
        format!(r#"{{"sub":"system:serviceaccount:{NAMESPACE}:{ACCOUNT}","exp":1795000000}}"#);
    let expired = format!(
        "{}.{}.c2ln",
        part(r#"{"alg":"lab"}"#.to_owned()),
        part(claims)
    );
    edit(&world, &world.token, &expired);
    assert!(world.guest.read(HARVESTER).unwrap().contains(&expired));

    let doctor = agent(&world, &["doctor"]).await;
    assert_eq!(doctor.code, Some(1), "{}", doctor.stderr);
    let text = doctor.stdout;
    is_expected("doctor-expiring", &text);
    assert_eq!(wide(&text), Vec::<&str>::new());
    // No remedy runs a script from the network.
    assert!(!text.contains("curl"), "{text}");
    assert!(service.exited().is_none(), "{}", service.transcript());
    relay.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_labels_of_a_node_that_does_not_exist_are_not_called_synced() {
    let world = World::lab(WorldOptions::default()).await;
    let path = paths::node(world.node_name());
    let admin = Admin::new(&world.guest_api.endpoint());
    admin.delete(&path).await.unwrap();
    let output = agent(&world, &["doctor", "-ojson"]).await.stdout;
    let document: Value = serde_json::from_str(&output).unwrap();
    let mut groups = document["groups"].as_array().unwrap().iter();
    let node = groups.find(|group| group["group"] == "node").unwrap();
    let summary = node["summary"].as_str().unwrap();
    assert_eq!(summary, format!("{VM_NAME}, labels node-missing"));
}

/// The root causes that a new or a broken node has most often, and the code of each. The first has two: neither file exists.
const ROOT_CAUSES: [(&str, &str); 7] = [
    ("no kubeconfigs", "harvester-credential-missing"),
    ("no Harvester kubeconfig", "harvester-credential-missing"),
    ("Harvester token rejected", "harvester-unauthorized"),
    ("Harvester token forbidden", "harvester-forbidden"),
    ("Harvester API away", "harvester-unreachable"),
    ("kubelet certificate rejected", "guest-api-unauthorized"),
    ("no kubelet kubeconfig", "kubelet-credential-missing"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_root_cause_is_one_problem_with_its_commands() {
    for (cause, code) in ROOT_CAUSES {
        let world = World::lab(WorldOptions::default()).await;
        let Some(relay) = behind_an_address(&world).await else {
            harvester_lab::skip("one_root_cause", NO_ADDRESS);
            return;
        };
        let _agent = serve(&world).await;
        condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
        let remove = |path: &str| {
            let path = world.guest.root().join(path.trim_start_matches('/'));
            std::fs::remove_file(path).unwrap();
        };
        let refuse = |server: &harvester_lab::server::Server, fault: Fault| {
            let all = Matcher::any().user_agent(AGENT);
            server.faults().inject(all, fault);
        };
        match cause {
            "no kubeconfigs" => {
                remove(HARVESTER);
                remove(KUBELET);
            }
            "no Harvester kubeconfig" => remove(HARVESTER),
            "Harvester token rejected" => {
                refuse(lab(&world.harvester_api), Fault::unauthorized());
            }
            "Harvester token forbidden" => {
                refuse(lab(&world.harvester_api), Fault::forbidden("forbidden"));
            }
            "Harvester API away" => relay.abort(),
            "kubelet certificate rejected" => {
                refuse(lab(&world.guest_api), Fault::unauthorized());
            }
            _ => remove(KUBELET),
        }
        let doctor = agent(&world, &["doctor"]).await.stdout;
        let name = cause.replace(' ', "-").to_lowercase();
        is_expected(&format!("doctor-{name}"), &doctor);
        let whoami = agent(&world, &["whoami"]).await.stdout;
        is_expected(&format!("whoami-{name}"), &whoami);
        if code == "harvester-unreachable" {
            let verbose = words(&agent(&world, &["whoami", "-v"]).await.stdout);
            let repeated = verbose.matches(": unknown, as above (").count();
            assert_eq!(repeated, 6, "{verbose}");
            assert!(!verbose.contains("selfsubjectaccessreviews"), "{verbose}");
        }
        assert!(doctor.contains(&format!("[{code}]")), "{doctor}");
        assert_eq!(wide(&doctor), Vec::<&str>::new());
        let verbose = agent(&world, &["doctor", "-v"]).await.stdout;
        let reason = format!("due to {code}");
        assert!(words(&verbose).contains(&reason), "{cause}\n{verbose}");
        // A credential that is rejected is not shown as ok; an API that is away says nothing about it.
        let is_shown = words(&whoami).contains(&format!("({code})"));
        assert_eq!(
            is_shown,
            code != "harvester-unreachable",
            "{cause}\n{whoami}"
        );
        relay.abort();
    }
}
