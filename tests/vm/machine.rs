// SPDX-License-Identifier: Apache-2.0
//! A virtual machine as Harvester runs one: a QEMU process on a host, and another one on the host that it moves to. Each has the
//! devices that KubeVirt gives, and its network outlives the move as a VLAN does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use harvester_lab::guard::Guard;
use harvester_lab::guest::GuestTree;
use harvester_lab::pod_info::{POD_INFO, Pod};
use harvester_lab::world::eventually;
use serde_json::json;
use tokio::net::UnixStream;

use crate::LIMIT;
use crate::clocks::machine_time;
use crate::hardware::{Architecture, Firmware, Hardware, Port};
use crate::qmp::{Event, Monitor, connect};
use crate::seed::Seed;

/// What a kernel says on its console before it stops to work. Of a program's own fault it tells in other words.
const CRASHES: [&str; 6] = [
    "general protection fault, probably",
    "BUG: unable to handle",
    "BUG: kernel NULL pointer",
    "kernel BUG at",
    "Kernel panic",
    "Oops: ",
];

/// A boot under emulation takes 40 s on an idle machine with two cores.
pub const BOOT_LIMIT: Duration = Duration::from_secs(900);

/// A QEMU process, which ends with this value.
#[derive(Debug)]
struct Host {
    process: Guard,
    monitor: Monitor,
    dir: PathBuf,
    /// Shares the files of the pod, where the machine has them.
    _virtiofsd: Option<Guard>,
}

impl Host {
    fn socket(&self, port: Port) -> PathBuf {
        self.dir.join(port.id())
    }
}

/// The machine. It is switched off when this is dropped.
#[derive(Debug)]
pub struct Machine {
    host: Host,
    hardware: Hardware,
    dir: tempfile::TempDir,
    logs: PathBuf,
    /// How many hosts it had.
    hosts: usize,
    /// Whether it runs while its memory is copied. A guest that is emulated may then lose what it writes meanwhile.
    pub runs_while_copied: bool,
    _switch: Guard,
}

/// A live migration.
#[derive(Debug, Clone, Copy)]
pub struct Move {
    /// When the target's processors ran, by the host's clock.
    pub resumed: SystemTime,
    /// The same by the machine's clock, in nanoseconds, if the machine ran while its memory was copied.
    pub machine_time: Option<i128>,
    /// How long none ran.
    pub downtime: Duration,
}

impl Machine {
    /// Switches a machine on whose disk is a copy of the image. Logs go to the directory `logs`.
    pub async fn boot(hardware: Hardware, seed: &Seed, logs: &Path) -> Self {
        let base = hardware.image.join("disk");
        let dir = tempfile::Builder::new().prefix("vm-").tempdir().unwrap();
        run(Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"])
            .arg(&base)
            .arg(dir.path().join("disk.qcow2")));
        Self::switch_on(hardware, seed, logs, dir).await
    }

    /// Switches a machine on whose disk is a copy of this one's, which is off.
    pub async fn boot_clone(&self, firmware: Firmware, mac: &str, seed: &Seed) -> Self {
        let hardware = Hardware {
            firmware,
            mac: mac.to_owned(),
            is_timed: false,
            ..self.hardware.clone()
        };
        let dir = tempfile::Builder::new().prefix("vm-").tempdir().unwrap();
        std::fs::copy(
            self.dir.path().join("disk.qcow2"),
            dir.path().join("disk.qcow2"),
        )
        .unwrap();
        Self::switch_on(hardware, seed, &self.logs.join("clone"), dir).await
    }

    async fn switch_on(
        hardware: Hardware,
        seed: &Seed,
        logs: &Path,
        dir: tempfile::TempDir,
    ) -> Self {
        std::fs::create_dir_all(logs).unwrap();
        seed.write(&dir.path().join("seed.iso"));
        let switch = start_switch(hardware.architecture, dir.path(), logs).await;
        let host = start_host(&hardware, dir.path(), logs, 0, None).await;
        Self {
            host,
            hardware,
            dir,
            logs: logs.to_owned(),
            hosts: 1,
            runs_while_copied: false,
            _switch: switch,
        }
    }

    /// By which clock times in the guest are measured, for people.
    pub fn clock(&self) -> String {
        self.hardware.clock()
    }

    /// QEMU's monitor.
    pub fn monitor(&mut self) -> &mut Monitor {
        &mut self.host.monitor
    }

    /// Where disk and seed lie.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Waits until the guest holds a port open or, with `false`, until it does not.
    pub async fn port_opens(&self, port: Port, open: bool, limit: Duration) {
        self.port_opens_after(SystemTime::UNIX_EPOCH, port, open, limit)
            .await;
    }

    /// Waits until the guest begins to hold the guest agent's port open again after a reboot.
    pub async fn comes_up_after(&self, since: SystemTime) {
        self.port_opens_after(since, Port::GuestAgent, true, BOOT_LIMIT)
            .await;
    }

    async fn port_opens_after(&self, since: SystemTime, port: Port, open: bool, limit: Duration) {
        let is_it = |event: &Event| {
            event.at > since && event.data["id"] == port.id() && event.data["open"] == open
        };
        self.host
            .monitor
            .event("VSERPORT_CHANGE", limit, is_it)
            .await;
    }

    /// The host's end of a port.
    pub async fn attach(&self, port: Port) -> UnixStream {
        connect(&self.host.socket(port)).await
    }

    /// The host's end of a port, where the machine has it.
    pub async fn try_attach(&self, port: Port) -> std::io::Result<UnixStream> {
        UnixStream::connect(self.host.socket(port)).await
    }

    /// Moves the machine to a new QEMU process, and ends the old one.
    pub async fn migrate(&mut self) -> Move {
        let mut target = self.target().await;
        let source = &mut self.host.monitor;
        if !self.runs_while_copied {
            source.execute("stop", json!({})).await;
            source.event("STOP", LIMIT, |_| true).await;
        }
        let uri = json!({"uri": incoming(&target.dir)});
        source.execute("migrate", uri).await;
        source.migration_is("completed").await;
        let stopped = source.event("STOP", LIMIT, |_| true).await;
        let mut time = None;
        if self.runs_while_copied {
            time = Some(machine_time(source).await);
        } else {
            go_on(&mut target.monitor).await;
        }
        let resumed = target.monitor.event("RESUME", LIMIT, |_| true).await;
        std::mem::swap(&mut self.host, &mut target);
        Move {
            resumed: resumed.at,
            machine_time: time,
            downtime: resumed.at.duration_since(stopped.at).unwrap_or_default(),
        }
    }

    /// Sets what the files of the next QEMU process's pod say.
    pub fn next_pod(&mut self, pod: Pod<'static>) {
        self.hardware.pod = Some(pod);
    }

    /// The kubelet writes the files of the pod anew.
    pub fn pod_changes(&self, pod: Pod<'_>) {
        pod.share(&pod_files(&self.host.dir));
    }

    /// Begins a migration that is too slow to end, and gives it up.
    pub async fn cancel_migration(&mut self) {
        let target = self.target().await;
        let monitor = &mut self.host.monitor;
        let bandwidth = |bytes: u64| json!({"max-bandwidth": bytes});
        monitor
            .execute("migrate-set-parameters", bandwidth(65536))
            .await;
        monitor
            .execute("migrate", json!({"uri": incoming(&target.dir)}))
            .await;
        monitor.migration_is("active").await;
        monitor.execute("migrate_cancel", json!({})).await;
        monitor.migration_is("cancelled").await;
        monitor
            .execute("migrate-set-parameters", bandwidth(1 << 40))
            .await;
    }

    /// Saves the machine's state to a file, ends QEMU, and goes on from the file in a new QEMU process.
    pub async fn save_and_restore(&mut self) {
        let file = self.dir.path().join("saved");
        let save = format!("exec:cat >{}", file.display());
        let monitor = &mut self.host.monitor;
        monitor.execute("stop", json!({})).await;
        monitor.execute("migrate", json!({"uri": save})).await;
        monitor.migration_is("completed").await;
        let load = format!("exec:cat {}", file.display());
        self.host = self.next_host(Some(&load)).await;
        go_on(&mut self.host.monitor).await;
    }

    /// Cuts the power: QEMU ends, the disk stays.
    pub async fn power_off(&mut self) {
        let host = &mut self.host;
        host.monitor.execute("quit", json!({})).await;
        while !host.process.has_ended() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Switches a machine on again that was switched off.
    pub async fn power_on(&mut self) {
        self.host = self.next_host(None).await;
    }

    /// Switches a machine on again that was switched off, so that an emulator's own work takes no time by its clocks.
    pub async fn power_on_timed(&mut self) {
        self.hardware.is_timed = true;
        self.host = self.next_host(None).await;
    }

    /// A QEMU that waits for the machine.
    async fn target(&mut self) -> Host {
        let dir = self.dir.path().join(format!("host-{}", self.hosts));
        let uri = incoming(&dir);
        self.next_host(Some(&uri)).await
    }

    async fn next_host(&mut self, incoming: Option<&str>) -> Host {
        let number = self.hosts;
        self.hosts += 1;
        let dir = self.dir.path();
        start_host(&self.hardware, dir, &self.logs, number, incoming).await
    }
}

/// Lets a machine run whose state was stopped when it was sent.
async fn go_on(monitor: &mut Monitor) {
    // Before the state is loaded it cannot be told to run.
    while monitor.execute("query-status", json!({})).await["status"] == "inmigrate" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    monitor.execute("cont", json!({})).await;
    monitor.event("RESUME", LIMIT, |_| true).await;
}

/// Ends when the kernel of a machine that has its logs in `logs` crashes, with what it said.
pub async fn crash(logs: &Path) -> String {
    loop {
        for entry in std::fs::read_dir(logs).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with("console-") {
                let text = std::fs::read(entry.path()).unwrap_or_default();
                let text = String::from_utf8_lossy(&text);
                let is_crash = |line: &&str| CRASHES.iter().any(|crash| line.contains(crash));
                if let Some(line) = text.lines().find(is_crash) {
                    return line.to_owned();
                }
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn incoming(dir: &Path) -> String {
    format!("unix:{}", dir.join("incoming").display())
}

async fn start_host(
    hardware: &Hardware,
    dir: &Path,
    logs: &Path,
    number: usize,
    incoming: Option<&str>,
) -> Host {
    let own = dir.join(format!("host-{number}"));
    std::fs::create_dir_all(&own).unwrap();
    let path = |file: &str| own.join(file).display().to_string();
    let mut command = Command::new(hardware.architecture.emulator());
    command.args(hardware.arguments(dir));
    let wire = dir.join(format!("wire-{}", number % 2));
    let wire = format!(
        "stream,id=net,server=off,addr.type=unix,addr.path={}",
        wire.display()
    );
    let console = logs.join(format!("console-{number}"));
    command.args(["-netdev", &wire]);
    command.args(["-serial", &format!("file:{}", console.display())]);
    command.args(["-qmp", &format!("unix:{},server=on,wait=off", path("qmp"))]);
    for port in &hardware.ports {
        let (id, name) = (port.id(), port.name());
        let socket = format!("socket,id={id},path={},server=on,wait=off", path(id));
        command.args(["-chardev", &socket]);
        if *port == Port::Witness {
            command.args(["-serial", &format!("chardev:{id}")]);
        } else {
            let device = format!("virtserialport,bus=ports.0,chardev={id},name={name},id={id}");
            command.args(["-device", &device]);
        }
    }
    if let Some(uri) = incoming {
        command.args(["-incoming", uri]);
    }
    let mut virtiofsd = None;
    if let Some(pod) = hardware.pod {
        let socket = own.join("virtiofsd");
        let log = logs.join(format!("virtiofsd-{number}"));
        virtiofsd = Some(start_virtiofsd(hardware, pod, &own, &socket, &log).await);
        // Guest memory that another process can map.
        let memory = format!(
            "memory-backend-memfd,id=ram,size={}M,share=on",
            hardware.memory
        );
        command.args(["-object", &memory, "-machine", "memory-backend=ram"]);
        let socket = format!("socket,id=virtiofsd,path={}", socket.display());
        command.args(["-chardev", &socket]);
        command.args(["-device", "vhost-user-fs-pci,chardev=virtiofsd,tag=podinfo"]);
    }
    let log = logs.join(format!("qemu-{number}"));
    let process = Guard::start(&command, &log, None);
    let monitor = Monitor::connect(&own.join("qmp")).await;
    Host {
        process,
        monitor,
        dir: own,
        _virtiofsd: virtiofsd,
    }
}

/// The volume of the pod in which QEMU runs.
fn pod_files(host: &Path) -> GuestTree {
    GuestTree::new(host.join("pod"))
}

/// Starts virtiofsd as KubeVirt does (`pkg/virt-controller/services/virtiofs.go`).
async fn start_virtiofsd(
    hardware: &Hardware,
    pod: Pod<'_>,
    host: &Path,
    socket: &Path,
    log: &Path,
) -> Guard {
    let files = pod_files(host);
    pod.share(&files);
    let mut command = Command::new(&hardware.virtiofsd);
    command.arg("--socket-path").arg(socket);
    command.arg("--shared-dir").arg(files.path(POD_INFO));
    command.args(["--sandbox=none", "--cache=auto"]);
    command.args([
        "--migration-mode=find-paths",
        "--migration-on-error=guest-error",
    ]);
    let process = Guard::start(&command, log, None);
    let is_there = || async { socket.exists() };
    eventually(LIMIT, "virtiofsd listens", is_there).await;
    process
}

/// The network between the hosts: a QEMU without a machine, whose user network leads to this machine's loopback. A
/// connection of the guest belongs to it and so outlives a move, as on a VLAN.
async fn start_switch(architecture: Architecture, dir: &Path, logs: &Path) -> Guard {
    let mut command = Command::new(architecture.emulator());
    command
        .args(["-machine", "none", "-nodefaults", "-no-user-config"])
        .args(["-display", "none"])
        .args(["-netdev", "user,id=outside"])
        .args(["-netdev", "hubport,id=hub-outside,hubid=0,netdev=outside"]);
    for side in 0..2 {
        let path = dir.join(format!("wire-{side}"));
        let wire = format!(
            "stream,id=wire-{side},server=on,addr.type=unix,addr.path={}",
            path.display()
        );
        let port = format!("hubport,id=hub-{side},hubid=0,netdev=wire-{side}");
        command.args(["-netdev", &wire, "-netdev", &port]);
    }
    let monitor = dir.join("switch");
    command.args([
        "-qmp",
        &format!("unix:{},server=on,wait=off", monitor.display()),
    ]);
    let process = Guard::start(&command, &logs.join("switch"), Some(dir));
    // It answers when all wires are there. A machine that comes earlier would stay without network, and not say so.
    Monitor::connect(&monitor).await;
    process
}

/// Runs a command to its end.
///
/// # Panics
/// When it fails.
pub fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}
