// SPDX-License-Identifier: Apache-2.0
//! Simulated machines with the real agent on them: the real loop, world, client, watches and waits. Only the network, the kernel's
//! timers and the guest's own event sources are simulated.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use time::UtcDateTime;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::network::Network;
use super::record::Why;
use super::store::{Side, namespace, vm_name};
use super::wire::Line;
use crate::agent::source_board::SourceBoard;
use crate::agent::{Agent, Next, Publish, Reasons, Round, Trigger, Wait, Wake};
use crate::config::{FilePath, Settings};
use crate::decide::schedule::Random;
use crate::decide::{Memory, Now};
use crate::facts::names::{Namespace, NodeName, firmware_uuid};
use crate::observe::machine::read_machine;
use crate::observe::observer::Observer;
use crate::sys::root::Root;
use crate::triggers::{Chance, Listener, Sender, Targets};
use crate::wire::dbus::Bus;
use crate::wire::kubeapi::testing::replace_network;

/// A planned read as late as this is a poll, an earlier one a retry.
const POLLS: Duration = Duration::from_secs(60);

const GUEST: &str = "/guest";
const HARVESTER: &str = "/harvester";

/// The files that say who a machine is, and that QEMU's guest agent is well.
const FILES: [&str; 7] = [
    "/etc/hostname",
    "/proc/sys/kernel/hostname",
    "/sys/class/dmi/id/product_uuid",
    "/sys/class/dmi/id/sys_vendor",
    "/sys/class/dmi/id/product_family",
    "/usr/sbin/qemu-ga",
    "/sys/class/virtio-ports/vport1p1/name",
];

const CHANNEL: &str = "org.qemu.guest_agent.0";

thread_local! {
    /// The state of the generator: one for all agents of a thread, each of which takes its numbers in turn.
    static SEED: Cell<u64> = const { Cell::new(0) };
}

/// 64 random bits.
pub(super) fn bits() -> u64 {
    // SplitMix64.
    let state = SEED.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
    SEED.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A random number.
pub(super) fn random() -> Random {
    Random::from_bits(bits())
}

/// The files of all simulated machines.
pub(super) struct Trees {
    dir: tempfile::TempDir,
    authorities: [String; 2],
}

impl Trees {
    /// Writes the files of so many machines.
    pub(super) fn write(agents: usize) -> Self {
        Self::some(0..agents)
    }

    /// Writes the files of these machines.
    pub(super) fn some(agents: impl Iterator<Item = usize>) -> Self {
        use base64::Engine;
        let encode = |text: String| base64::engine::general_purpose::STANDARD.encode(text);
        let authority = |name: &str| encode(harvester_lab::pki::Authority::new(name).pem());
        let dir = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .expect("a directory for the machines");
        let trees = Self {
            dir,
            authorities: ["harvester", "guest"].map(authority),
        };
        for agent in agents {
            trees.machine(agent);
            trees.credentials(agent, 1);
        }
        trees
    }

    /// The files of a machine.
    pub(super) fn root(&self, agent: usize) -> PathBuf {
        self.dir.path().join(agent.to_string())
    }

    fn machine(&self, agent: usize) {
        let root = self.root(agent);
        let name = vm_name(agent);
        let uuid = firmware_uuid(&name).to_string();
        let (family, program) = ("KubeVirt", "a program");
        let texts = [&name, &name, &uuid, family, family, program, CHANNEL];
        for (path, text) in FILES.into_iter().zip(texts) {
            write(&root.join(path.trim_start_matches('/')), text);
        }
    }

    /// Writes the credentials of a machine, as the `generation`-th that it has.
    pub(super) fn credentials(&self, agent: usize, generation: u32) {
        for (side, place) in [(Side::Harvester, HARVESTER), (Side::Guest, GUEST)] {
            let (authority, space) = (&self.authorities[side.index()], namespace(agent));
            let host = match side {
                Side::Harvester => "harvester",
                Side::Guest => "guest",
            };
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                 clusters:\n- name: c\n  cluster:\n    server: https://a{agent}.{host}.fleet:6443\n    \
                 certificate-authority-data: {authority}\n\
                 users:\n- name: c\n  user:\n    token: token-{generation}\n\
                 contexts:\n- name: c\n  context:\n    user: c\n    cluster: c\n    namespace: {space}\n"
            );
            write(&self.root(agent).join(place.trim_start_matches('/')), &text);
        }
    }
}

fn write(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(path.parent().expect("a file has a directory")).expect("it is writable");
    fs::write(path, text).expect("it is writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is ours");
}

/// Makes the clients of this thread use `network`.
pub(super) fn attach(network: &Arc<Network>, seed: u64) {
    SEED.set(seed);
    crate::sys::root::testing::have_only(&FILES, &[GUEST, HARVESTER]);
    let network = Arc::clone(network);
    replace_network(Box::new(move |credential| {
        let host = credential.server.host_str().unwrap_or_default();
        let side = match host.contains("harvester") {
            true => Side::Harvester,
            false => Side::Guest,
        };
        let agent = host.trim_start_matches('a').split('.').next();
        let agent = agent.and_then(|agent| agent.parse().ok());
        let agent = agent.expect("the server's name begins with the agent");
        Arc::new(Line::new(Arc::clone(&network), side, agent))
    }));
}

/// A running agent, from outside.
pub(super) struct Handle {
    sender: Sender,
    reload: Rc<Notify>,
}

impl Handle {
    /// The NIC announces itself.
    pub(super) fn hint(&self) {
        self.sender.clone().paced(true).send(Trigger::Link);
    }

    /// SIGHUP.
    pub(super) fn hang_up(&self) {
        self.reload.notify_one();
    }

    /// inotify reports a credential file.
    pub(super) fn files_changed(&self) {
        self.sender.send(Trigger::Files);
    }
}

/// The settings of an agent, all but names and places as by default.
pub(super) fn settings(agent: usize) -> Settings {
    let mut settings = Settings::default();
    settings.guest.kubeconfig = FilePath::try_from(GUEST.to_owned()).ok();
    settings.guest.node_name = NodeName::parse(&vm_name(agent)).ok();
    settings.harvester.kubeconfig = FilePath::try_from(HARVESTER.to_owned()).ok();
    settings.harvester.namespace = Namespace::parse(&namespace(agent)).ok();
    settings
}

/// Starts an agent on the present local task set.
pub(super) fn start(trees: &Trees, network: &Arc<Network>, agent: usize) -> Handle {
    start_with(settings(agent), Silent, trees, network, agent)
}

/// The same with these settings, and reports to somebody.
pub(super) fn start_with(
    settings: Settings,
    publish: impl Publish + 'static,
    trees: &Trees,
    network: &Arc<Network>,
    agent: usize,
) -> Handle {
    let root = Root::new(trees.root(agent));
    let bus = Bus::new(&root, None);
    let board = SourceBoard::default();
    let start = Instant::now();
    let listener = Listener::new(
        &root,
        &bus,
        start,
        None,
        board.clone(),
        Chance {
            random,
            machine: read_machine(&root).phase(),
        },
    )
    .expect("a process can listen to SIGHUP");
    let reload = Rc::new(Notify::new());
    let handle = Handle {
        sender: listener.sender(),
        reload: Rc::clone(&reload),
    };
    let wait = SimulatedWait {
        listener,
        reload,
        network: Arc::clone(network),
        agent,
    };
    let same = settings.clone();
    let mut parts = Agent {
        io: Observer::new(root, bus, board, None).backing_off(random),
        publish,
        wait,
        reload: move || Ok(same.clone()),
        clock: paused_clock(start),
    };
    network.because(agent, Why::Start);
    tokio::task::spawn_local(async move {
        Box::pin(crate::agent::run(settings, &mut parts, Memory::default())).await;
    });
    handle
}

/// The real waits, with SIGHUP from the scenario, and a note of why the agent reads.
struct SimulatedWait {
    listener: Listener,
    reload: Rc<Notify>,
    network: Arc<Network>,
    agent: usize,
}

impl Wait for SimulatedWait {
    type Targets = Targets;

    fn subscribe(&mut self, targets: Targets) {
        self.listener.subscribe(targets);
    }

    async fn wait(&mut self, next: Next, alive: &mut dyn FnMut()) -> Wake {
        let wake = tokio::select! {
            biased;
            () = self.reload.notified() => Wake::Reload,
            wake = self.listener.wait(next, alive) => wake,
        };
        let why = match &wake {
            Wake::Reload => Why::Reload,
            Wake::Reconcile(reasons) => why(reasons, next.after),
        };
        self.network.because(self.agent, why);
        wake
    }

    async fn renamed(&mut self) {
        self.listener.renamed().await;
    }

    fn verify(&mut self, since: Duration) {
        self.listener.verify(since);
    }
}

fn why(reasons: &Reasons, planned: Duration) -> Why {
    match reasons.trigger {
        Trigger::Startup => Why::Start,
        Trigger::Vmi | Trigger::Node => Why::Watch,
        Trigger::Link | Trigger::Port | Trigger::Clock | Trigger::FastPoll => Why::Hint,
        Trigger::Files => Why::Files,
        Trigger::Reload => Why::Reload,
        Trigger::Timer if planned >= POLLS => Why::Poll,
        Trigger::Timer => Why::Retry,
        _ => Why::Other,
    }
}

/// Nobody reads the reports.
pub(super) struct Silent;

impl Publish for Silent {
    fn publish(&mut self, _: &Round, _: &Settings) {}
    fn hint(&mut self, _: Trigger) {}
    fn alive(&mut self) {}
    fn reloaded(&mut self, _: Result<(), &str>) {}
}

/// Returns a clock that started at `start`.
pub(super) fn paused_clock(start: Instant) -> impl Fn() -> Now {
    move || {
        let uptime = start.elapsed();
        let began = UtcDateTime::from_unix_timestamp(1_795_000_000).expect("it is in range");
        Now {
            uptime,
            wall: began + uptime,
            random: random(),
        }
    }
}
