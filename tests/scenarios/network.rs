// SPDX-License-Identifier: Apache-2.0
//! The way to Harvester: a name with several addresses or none, an address that moves, a server with a new certificate, a server that was
//! restored from a backup, and another cluster in its place.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use harvester_lab::guest::KubeconfigForm;
use harvester_lab::harvester::Firmware;
use harvester_lab::process::Agent;
use harvester_lab::server::{Server, User};
use harvester_lab::world::{ACCOUNT, NAMESPACE, World, WorldOptions, eventually};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::{BINARY, HOST, SOON, TOPOLOGY, ZONE, condition_becomes, lab, label_becomes, serve};

/// Its name in the kubeconfig and in its certificate.
const NAME: &str = "harvester.test";

/// Passes connections on to a server, which can be replaced.
struct Relay {
    address: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
    connections: Arc<Mutex<JoinSet<()>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Relay {
    async fn start(listen: &str, target: SocketAddr) -> Self {
        let listener = tokio::net::TcpListener::bind(listen).await.unwrap();
        let address = listener.local_addr().unwrap();
        let target = Arc::new(Mutex::new(target));
        let connections = Arc::new(Mutex::new(JoinSet::new()));
        let (to, open) = (target.clone(), connections.clone());
        let task = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let to = *to.lock().unwrap();
                open.lock().unwrap().spawn(async move {
                    if let Ok(mut far) = TcpStream::connect(to).await {
                        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                    }
                });
            }
        });
        Self {
            address,
            target,
            connections,
            task,
        }
    }

    /// Cuts what is open; later connections go there.
    fn lead_to(&self, target: SocketAddr) {
        *self.target.lock().unwrap() = target;
        *self.connections.lock().unwrap() = JoinSet::new();
    }

    fn passed(&self) -> usize {
        self.connections.lock().unwrap().len()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn address(server: &Server) -> SocketAddr {
    let url = server.url();
    url.trim_start_matches("https://").parse().unwrap()
}

fn use_server(world: &World, url: &str) {
    let authority = lab(&world.harvester_api).endpoint().authority_pem;
    let form = KubeconfigForm::HarvesterApi;
    let guest = &world.guest;
    guest.harvester_kubeconfig(form, url, &authority, &world.token, NAMESPACE);
}

/// Starts the agent where only this file says which addresses a name has.
fn serve_with_hosts(world: &World) -> Agent {
    world.guest.write("/hosts", "");
    world.guest.write("/nsswitch", "hosts: files\n");
    let [hosts, switch] = ["/hosts", "/nsswitch"].map(|path| world.guest.path(path));
    let script = format!(
        "mount --bind {} /etc/hosts && mount --bind {} /etc/nsswitch.conf && exec \"$0\" \"$@\"",
        hosts.display(),
        switch.display()
    );
    let namespaces = ["--map-root-user", "--mount"];
    let shell = ["sh", "-c", &script, BINARY, "run"];
    world.spawn_agent("unshare", &[&namespaces[..], &shell].concat())
}

/// Replaces the text of the file that is mounted.
fn resolve(world: &World, addresses: &[&str]) {
    let lines: String = addresses
        .iter()
        .map(|address| format!("{address} {NAME}\n"))
        .collect();
    std::fs::write(world.guest.path("/hosts"), lines).unwrap();
}

/// A port that completes no more handshakes: no process accepts, and the queue is full.
struct Full(#[expect(dead_code, reason = "held open")] (TcpListener, Vec<std::net::TcpStream>));

impl Full {
    fn new(address: SocketAddr) -> Self {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&address.into()).unwrap();
        socket.listen(0).unwrap();
        let mut queued = Vec::new();
        let patience = std::time::Duration::from_millis(200);
        while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, patience) {
            queued.push(stream);
        }
        Self((socket.into(), queued))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_resolved_anew_for_each_connection_and_dead_addresses_are_passed_over() {
    let world = World::lab(WorldOptions::default()).await;
    let server = lab(&world.harvester_api);
    server.present_identity(&server.authority().server_identity(&[NAME, "127.0.0.1"]));
    let target = address(server);
    let port = target.port();
    let at = |address: &str| -> SocketAddr { format!("{address}:{port}").parse().unwrap() };
    // The addresses of a name are sorted by how much they have in common with the sender's; these have as much.
    let live = Relay::start(&at("127.0.0.5").to_string(), target).await;
    let moved = Relay::start(&at("127.0.0.7").to_string(), target).await;
    let _full = Full::new(at("127.0.0.6"));
    use_server(&world, &format!("https://{NAME}:{port}"));
    let mut agent = serve_with_hosts(&world);
    agent.wait_ready(SOON).await;
    world.findings_become(&["harvester-unreachable"]).await;
    let mut to = ["hv-b", "hv-c"].into_iter().cycle();
    let only = Relay::start(&format!("[::1]:{port}"), target).await;
    for (what, addresses) in [
        (
            "one that refuses, then one that works",
            &["127.0.0.4", "127.0.0.5"][..],
        ),
        (
            "one that hangs, then one that works",
            &["127.0.0.6", "127.0.0.5"],
        ),
        ("IPv6 only", &["::1"]),
        ("another one", &["127.0.0.7"]),
    ] {
        resolve(&world, addresses);
        for relay in [&live, &moved, &only] {
            relay.lead_to(target);
        }
        let host = to.next().unwrap();
        world.migrate(host).await;
        world.settles_on(host, &[]).await;
        println!("{what}: followed");
    }
    // A connection that was being made at the change has an earlier address. Once it has ended, all have the new one.
    let mut tries = 0;
    loop {
        for relay in [&live, &moved, &only] {
            relay.lead_to(target);
        }
        let host = to.next().unwrap();
        world.migrate(host).await;
        label_becomes(&world, HOST, host).await;
        if moved.passed() > 0 && live.passed() == 0 && only.passed() == 0 {
            break;
        }
        tries += 1;
        assert!(tries < 5, "an earlier address is still used");
    }
    // Gone, and there again.
    resolve(&world, &[]);
    drop(moved);
    // An idle connection to an earlier address may be used again.
    for relay in [&live, &only] {
        relay.lead_to(target);
    }
    world.findings_become(&["harvester-unreachable"]).await;
    resolve(&world, &["127.0.0.5"]);
    world.findings_become(&[]).await;
    assert!(agent.exited().is_none());
}

/// A world that is reached through a relay, as at a virtual address.
async fn behind_a_relay() -> (World, Relay, Agent) {
    let world = World::lab(WorldOptions::default()).await;
    let relay = Relay::start("127.0.0.1:0", address(lab(&world.harvester_api))).await;
    use_server(&world, &format!("https://{}", relay.address));
    let agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    (world, relay, agent)
}

/// A second Harvester at the same address, with a certificate of the same authority and the same account.
async fn stand_in(world: &World, options: WorldOptions) -> World {
    let other = World::lab(options).await;
    let server = lab(&other.harvester_api);
    let authority = lab(&world.harvester_api).authority();
    server.present_identity(&authority.server_identity(&["127.0.0.1"]));
    server.add_token(&world.token, User::service_account(NAMESPACE, ACCOUNT));
    other
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_is_issued_anew_is_nothing_to_report() {
    let (world, relay, agent) = behind_a_relay().await;
    let server = lab(&world.harvester_api);
    server.present(harvester_lab::faults::ServerCertificate::Right);
    let lines = agent.lines().len();
    relay.lead_to(address(server));
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    world.settles_on("hv-b", &[]).await;
    let new: String = agent.lines()[lines..]
        .iter()
        .map(|line| line.text.as_str())
        .collect();
    assert!(!new.contains("-tls-error"), "{new}");
}

/// An emulated card and a passed-through function of one: QEMU makes only virtio announce itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nics_that_announce_nothing_are_named_and_the_watch_is_enough() {
    let world = World::lab(WorldOptions::default()).await;
    let guest = &world.guest;
    let mac = &world.vm.spec.macs[0];
    guest.remove("/sys/class/net/eth0");
    for (slot, name, driver, mac) in [
        ("03", "ens3", "e1000", mac.as_str()),
        ("04", "ens4", "mlx5_core", "6e:00:00:00:00:01"),
    ] {
        let device = format!("/sys/devices/pci0000:00/0000:00:{slot}.0");
        let real = format!("{device}/net/{name}");
        for (file, value) in [("address", mac), ("addr_assign_type", "0"), ("type", "1")] {
            guest.write(&format!("{real}/{file}"), format!("{value}\n"));
        }
        guest.flip_link(
            &format!("{real}/device"),
            &format!("../../../0000:00:{slot}.0"),
        );
        guest.flip_link(&format!("{device}/subsystem"), "../../../bus/pci");
        let drivers = format!("../../../bus/pci/drivers/{driver}");
        guest.flip_link(&format!("{device}/driver"), &drivers);
        let class = format!("/sys/class/net/{name}");
        guest.flip_link(&class, &format!("../..{}", real.trim_start_matches("/sys")));
    }
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let status = guest.status().unwrap();
    let sources = status["eventSources"].as_array().unwrap();
    let link = sources
        .iter()
        .find(|source| source["name"] == "link")
        .unwrap();
    assert_eq!(link["active"], false, "{link}");
    assert!(link.to_string().contains("no virtio NIC"), "{link}");
    // The MAC of the card still proves which VM this is.
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    world.settles_on("hv-b", &[]).await;
}

mod slow {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_harvester_that_was_restored_is_followed_from_where_it_now_stands() {
        let (world, relay, mut agent) = behind_a_relay().await;
        for host in ["hv-b", "hv-c", "hv-b"] {
            world.migrate(host).await;
            label_becomes(&world, HOST, host).await;
        }
        // The same VM with another UID, on its first host, and with lower versions.
        let restored = stand_in(
            &world,
            WorldOptions {
                vm: world.vm.spec.clone(),
                ..WorldOptions::default()
            },
        )
        .await;
        let [before, after] = [&world, &restored].map(|world| lab(&world.harvester_api).revision());
        assert!(after < before, "{after} of {before}");
        relay.lead_to(address(lab(&restored.harvester_api)));
        // The watch asks for versions of the future, and hears nothing until its silence ends it.
        let is_followed = || async { world.node_label(ZONE).await.as_deref() == Some("rack-a") };
        eventually(SOON * 2, "the host of the restored VM", is_followed).await;
        assert!(agent.exited().is_none());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn another_cluster_with_a_vm_of_our_name_changes_no_label() {
        let (world, relay, _agent) = behind_a_relay().await;
        let mut vm = harvester_lab::harvester::VmSpec::named(&world.vm.spec.name);
        vm.firmware = Firmware::Random;
        let other = stand_in(
            &world,
            WorldOptions {
                vm,
                ..WorldOptions::default()
            },
        )
        .await;
        other.migrate("hv-c").await;
        relay.lead_to(address(lab(&other.harvester_api)));
        let is_named = || async { world.findings() == ["vm-not-found"] };
        eventually(SOON * 2, "a finding", is_named).await;
        for (key, value) in [(ZONE, "rack-a"), (HOST, "hv-a")] {
            assert_eq!(world.node_label(key).await.as_deref(), Some(value));
        }
    }
}
