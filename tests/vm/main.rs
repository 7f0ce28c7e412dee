// SPDX-License-Identifier: Apache-2.0
//! The shipped binary in real virtual machines: real kernel, systemd, cloud-init, QEMU's guest agent and virtio devices, and
//! live migrations between two QEMU processes. The lab on this machine is Harvester and guest cluster. Started by
//! `tests/vm/run`, which makes the image; the arguments are names of scenarios, all by default.

#![expect(
    missing_docs,
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests"
)]

mod clocks;
mod hardware;
mod inside;
mod kubelet;
mod machine;
mod qmp;
mod scenarios;
mod seed;
mod stage;
mod witness;

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use harvester_lab::figures::Figures;
pub use harvester_lab::names::{GUEST_AGENT, HOST, IDENTITY, REGION, TOPOLOGY, ZONE};
use tokio::runtime::Runtime;

use crate::hardware::Architecture;
use crate::stage::{Setting, Stage};

/// Generous: a limit for something broken on an emulated processor that others share.
pub const LIMIT: Duration = Duration::from_secs(600);

/// A scenario.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    /// On which machine it runs; scenarios that follow each other in one setting share a boot.
    pub setting: Setting,
    pub run: for<'a> fn(&'a mut Stage) -> Play<'a>,
}

pub type Play<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The scenarios of one setting, in the order in which they are played.
#[macro_export]
macro_rules! scenarios {
    ($setting:expr => $($play:path),* $(,)?) => {
        vec![$($crate::Scenario {
            name: stringify!($play),
            setting: $setting,
            run: |stage| Box::pin($play(stage)),
        }),*]
    };
}

/// What `tests/vm/run` made ready and was told.
#[derive(Debug)]
pub struct Setup {
    /// A disk without the agent.
    pub base: PathBuf,
    /// The same with it; as `base`, a directory of `tests/vm/bake`. Without it, each machine installs the package at its first boot.
    pub image: Option<PathBuf>,
    /// The processor of the machines.
    pub architecture: Architecture,
    /// `kvm` or `tcg`.
    pub accelerator: String,
    /// The package.
    pub package: PathBuf,
    /// virtiofsd, which shares the files of a pod.
    pub virtiofsd: PathBuf,
    /// Whether machines run while their memory is copied.
    pub live: bool,
    /// `gate`, `arm64`, `bench` or `all`.
    part: String,
    logs: PathBuf,
    figures: PathBuf,
}

impl Setup {
    /// From the environment; `None` where another program started this one.
    fn read() -> Option<Self> {
        let set = |name: &str| std::env::var(name).ok();
        let path = |name: &str| set(name).map(PathBuf::from);
        Some(Self {
            base: path("VM_BASE")?,
            image: path("VM_IMAGE"),
            architecture: match set("VM_PART")?.as_str() {
                "arm64" => Architecture::Arm64,
                _ => Architecture::Amd64,
            },
            accelerator: set("VM_ACCELERATOR")?,
            package: path("VM_PACKAGE")?,
            virtiofsd: path("VM_VIRTIOFSD")?,
            live: set("VM_LIVE").is_some(),
            part: set("VM_PART")?,
            logs: path("VM_LOGS")?,
            figures: path("VM_FIGURES")?,
        })
    }
}

fn main() -> ExitCode {
    let Some(setup) = Setup::read() else {
        println!("these tests need an image: run tests/vm/run");
        return ExitCode::from(2);
    };
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |scenario: &Scenario| wanted.iter().any(|name| scenario.label().contains(name));
    let mut chosen = match setup.part.as_str() {
        "gate" => scenarios::newest(),
        "arm64" => scenarios::on_arm64(),
        "bench" => scenarios::bench(),
        _ => scenarios::all(),
    };
    match (wanted.is_empty(), setup.part.as_str()) {
        (false, _) => chosen.retain(is_wanted),
        (true, "gate") => chosen.truncate(1),
        (true, _) => chosen.retain(Scenario::is_usual),
    }
    if chosen.is_empty() {
        println!("no scenario is called so, or there is no Kubernetes for it: {wanted:?}");
        return ExitCode::from(2);
    }
    let _ = std::fs::remove_dir_all(&setup.logs);
    std::fs::create_dir_all(&setup.logs).unwrap();
    // A boot uses one processor most of the time. What is measured has the machine for itself.
    let measured = setup.part == "bench";
    let is_first = |one: &&Scenario| measured || one.setting.is_node();
    let (first, second): (Vec<_>, Vec<_>) = chosen.iter().partition(is_first);
    let played = std::thread::scope(|scope| {
        let tracks = [first, second].map(|track| scope.spawn(|| play_all(&setup, track)));
        tracks.map(|track| track.join().unwrap())
    });
    let failed: usize = played.iter().map(|(_, failures)| failures).sum();
    if measured {
        let [(figures, _), _] = played;
        figures.write(&setup.figures);
        println!("{}", figures.print());
    }
    println!("{} passed, {failed} failed", chosen.len() - failed);
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Plays scenarios one after the other, never with two machines at once. Gives what was measured, and the number of failures.
fn play_all(setup: &Setup, scenarios: Vec<&Scenario>) -> (Figures, usize) {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let mut figures = Figures::default();
    let mut stage: Option<Stage> = None;
    let mut failed = 0;
    for scenario in scenarios {
        // One that does not fit is switched off first.
        let kept = stage.take().filter(|kept| kept.fits(scenario.setting));
        stage = play(&runtime, setup, scenario, kept);
        match &mut stage {
            Some(stage) => figures.append(std::mem::take(&mut stage.figures)),
            None => failed += 1,
        }
    }
    (figures, failed)
}

/// Plays one scenario, on the machine of the one before where there is one. Gives the machine back, unless something failed: then
/// it serves no other.
fn play(
    runtime: &Runtime,
    setup: &Setup,
    scenario: &Scenario,
    kept: Option<Stage>,
) -> Option<Stage> {
    let (name, began) = (scenario.label(), Instant::now());
    let logs = match &kept {
        Some(stage) => stage.logs.clone(),
        None => own_logs(&setup.logs, &scenario.setting.label()),
    };
    let played = kept
        .or_else(|| caught(runtime, watched(&logs, scenario.setting.boot(setup, &logs))))
        .and_then(|mut stage| {
            let played = watched(&logs, async {
                stage.comes_home().await;
                stage.begin().await;
                (scenario.run)(&mut stage).await;
            });
            let passed = caught(runtime, played).is_some();
            if !passed {
                caught(runtime, watched(&logs, stage.keep_journal()));
            }
            passed.then_some(stage)
        });
    if played.is_none() {
        println!("{name}: the logs of its machine are in {}", logs.display());
    }
    let verdict = if played.is_some() { "ok" } else { "FAILED" };
    println!("{} s", began.elapsed().as_secs());
    println!("test vm::{name} ... {verdict}");
    played
}

/// A new directory for the logs of a machine.
fn own_logs(logs: &Path, machine: &str) -> PathBuf {
    let names = (1..).map(|number| logs.join(format!("{machine}-{number}")));
    let mut made = names.filter(|dir| std::fs::create_dir(dir).is_ok());
    made.next().expect("numbers do not end")
}

/// A future that does not wait for a machine whose kernel has crashed.
async fn watched<T>(logs: &Path, future: impl Future<Output = T>) -> T {
    tokio::select! {
        done = future => done,
        crash = machine::crash(logs) => panic!("the kernel of the machine crashed: {crash}"),
    }
}

/// What a future gives, unless it panics, which prints why.
fn caught<T>(runtime: &Runtime, future: impl Future<Output = T>) -> Option<T> {
    std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(future))).ok()
}

impl Scenario {
    /// Whether it is played where none is named: of the versions of Kubernetes that a node can have here, only the newest. What
    /// differs between them is tested with kubelets that need no VM.
    fn is_usual(&self) -> bool {
        let is_older = |version| Some(version) != kubelet::newest();
        !matches!(self.setting, Setting::Node(version) if is_older(version))
    }

    /// Its name, and where it is not the usual one the setting.
    fn label(&self) -> String {
        match self.setting {
            Setting::Node(_) => format!("{}::{}", self.setting.label(), self.name),
            _ => self.name.to_owned(),
        }
    }
}
