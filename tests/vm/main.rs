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
mod figures;
mod hardware;
mod inside;
mod kubelet;
mod machine;
mod qmp;
mod scenarios;
mod seed;
mod stage;
#[path = "../bench/statistics.rs"]
mod statistics;
#[path = "../bench/table.rs"]
mod table;
mod timeline;
mod witness;

use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::RwLock;
use std::time::{Duration, Instant};

pub use harvester_lab::names::{GUEST_AGENT, HOST, IDENTITY, REGION, TOPOLOGY, ZONE};
use tokio::runtime::Runtime;

use crate::figures::Figures;
use crate::stage::{Setting, Stage};

/// Generous: a limit for something broken on an emulated processor that others share.
pub const LIMIT: Duration = Duration::from_secs(90);

/// A scenario that takes longer hangs.
const PLAY_LIMIT: Duration = Duration::from_secs(15 * 60);

/// A scenario.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    /// On which machine it runs; scenarios that follow each other in one setting share a boot.
    pub setting: Setting,
    pub run: for<'a> fn(&'a mut Stage, &'a mut Figures) -> Play<'a>,
}

pub type Play<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The scenarios of one setting, in the order in which they are played.
#[macro_export]
macro_rules! scenarios {
    ($setting:expr => $($play:path),* $(,)?) => {
        vec![$($crate::Scenario {
            name: stringify!($play),
            setting: $setting,
            run: |stage, figures| Box::pin($play(stage, figures)),
        }),*]
    };
}

/// What `tests/vm/run` made ready and was told.
#[derive(Debug)]
pub struct Setup {
    /// The directory of `tests/vm/bake`.
    pub image: PathBuf,
    /// `kvm` or `tcg`.
    pub accelerator: String,
    /// The package of a later version.
    pub later_package: PathBuf,
    /// virtiofsd, which shares the files of a pod.
    pub virtiofsd: PathBuf,
    /// Whether the agent is to be blind for moves.
    pub broken: bool,
    keep_going: bool,
    /// A file that other tests lock, shared, while they run.
    others: Option<PathBuf>,
    logs: PathBuf,
    figures: PathBuf,
}

impl Setup {
    /// From the environment; `None` where somebody else started this program.
    fn read() -> Option<Self> {
        let set = |name: &str| std::env::var(name).ok();
        let path = |name: &str| set(name).map(PathBuf::from);
        Some(Self {
            image: path("VM_IMAGE")?,
            accelerator: set("VM_ACCELERATOR")?,
            later_package: path("VM_LATER_PACKAGE")?,
            virtiofsd: path("VM_VIRTIOFSD")?,
            broken: set("VM_BROKEN").is_some(),
            others: path("QUIET_LOCK"),
            keep_going: set("VM_KEEP_GOING").is_some(),
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
    let mut chosen = scenarios::all();
    if wanted.is_empty() {
        chosen.retain(Scenario::is_usual);
    }
    let all = chosen.len();
    chosen.retain(|scenario| wanted.is_empty() || is_wanted(scenario));
    if setup.broken {
        let known = |name: &&&str| scenarios::all().iter().any(|one| one.name == **name);
        assert_eq!(
            scenarios::OF_MOVES.iter().filter(known).count(),
            scenarios::OF_MOVES.len()
        );
        chosen.retain(|scenario| scenarios::OF_MOVES.contains(&scenario.name));
    }
    if chosen.is_empty() {
        println!("no scenario is called so: {wanted:?}");
        return ExitCode::from(2);
    }
    let (nodes, others): (Vec<_>, Vec<_>) = chosen.iter().partition(|one| one.setting.is_node());
    let quiet = RwLock::new(());
    // A boot uses one processor most of the time.
    let played = std::thread::scope(|scope| {
        let tracks = [nodes, others].map(|track| scope.spawn(|| play_all(&setup, track, &quiet)));
        tracks.map(|track| track.join().unwrap())
    });
    let mut figures = Figures::default();
    let mut failed = 0;
    for (track, failures) in played {
        figures.append(track);
        failed += failures;
    }
    figures.write(&setup.figures);
    println!("{}", figures.print());
    let passed = chosen.len() - failed;
    let missed = figures.missed();
    if !missed.is_empty() {
        println!("missed on {}: {}", setup.accelerator, missed.join(", "));
        // What an emulator and its host's load do to times is no fault of the agent's.
        if setup.accelerator == "kvm" {
            println!("test vm::figures ... FAILED");
            failed += 1;
        }
    }
    println!(
        "{passed} passed, {failed} failed, {} skipped",
        all - chosen.len()
    );
    // A blind agent that is told apart from one that sees.
    let is_as_wanted = if setup.broken {
        passed == 0
    } else {
        failed == 0
    };
    if is_as_wanted {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Plays scenarios one after the other, never with two machines at once. Gives what was measured, and the number of failures.
/// `quiet` is held alone by a scenario that is timed.
fn play_all(setup: &Setup, scenarios: Vec<&Scenario>, quiet: &RwLock<()>) -> (Figures, usize) {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let mut figures = Figures::default();
    let mut stage: Option<Stage> = None;
    let mut failed = 0;
    for scenario in scenarios {
        let is_timed = scenarios::TIMED.contains(&scenario.name);
        let _alone = is_timed.then(|| quiet.write().unwrap());
        let _shared = (!is_timed).then(|| quiet.read().unwrap());
        // One that does not fit is switched off first.
        let kept = stage.take().filter(|kept| kept.fits(scenario.setting));
        let (used, passed) = play(&runtime, setup, scenario, kept, &mut figures);
        failed += usize::from(!passed);
        stage = used;
    }
    (figures, failed)
}

/// Plays one scenario, on the machine of the one before where there is one. Gives the machine back, and whether all went well.
/// One on which a scenario failed serves no other, unless that is wanted.
fn play(
    runtime: &Runtime,
    setup: &Setup,
    scenario: &Scenario,
    kept: Option<Stage>,
    figures: &mut Figures,
) -> (Option<Stage>, bool) {
    let began = Instant::now();
    let name = scenario.label();
    let logs = setup.logs.join(&name);
    let (mut stage, mut passed) = attempt(runtime, setup, scenario, kept, figures, &logs);
    if let Some(crash) = emulators_fault(setup, stage.as_ref().filter(|_| !passed)) {
        println!("{name} is played again, the guest's kernel crashed: {crash}");
        drop(stage);
        let _ = std::fs::rename(&logs, setup.logs.join(format!("{name}.crashed")));
        figures.forget_samples();
        (stage, passed) = attempt(runtime, setup, scenario, None, figures, &logs);
    }
    let verdict = if passed { "ok" } else { "FAILED" };
    let seconds = began.elapsed().as_secs_f64();
    println!("{name}: {seconds:.1} s, logs in {}", logs.display());
    println!("test vm::{name} ... {verdict}");
    (stage.filter(|_| passed || setup.keep_going), passed)
}

/// How the kernel of a guest that has moved under emulation crashed. QEMU before 9 loses writes of such a guest; `tests/vm/emulator`
/// fetches a newer one where it can. On a real processor, and before a move, nothing is forgiven.
fn emulators_fault(setup: &Setup, failed: Option<&Stage>) -> Option<String> {
    let failed = failed.filter(|_| setup.accelerator == "tcg")?;
    failed.machine.crash_after_a_move()
}

fn attempt(
    runtime: &Runtime,
    setup: &Setup,
    scenario: &Scenario,
    kept: Option<Stage>,
    figures: &mut Figures,
    logs: &Path,
) -> (Option<Stage>, bool) {
    let _ = std::fs::remove_dir_all(logs);
    std::fs::create_dir_all(logs).unwrap();
    let stage = kept.or_else(|| caught(runtime, scenario.setting.boot(setup, logs)));
    let Some(mut stage) = stage else {
        return (None, false);
    };
    let alone = scenarios::TIMED.contains(&scenario.name);
    let _locked = setup.others.as_ref().filter(|_| alone).map(alone_with);
    let outcome = caught(runtime, async {
        stage.begin().await;
        let played = (scenario.run)(&mut stage, figures);
        let played = tokio::time::timeout(PLAY_LIMIT, played).await;
        played.expect("a scenario comes to an end");
    });
    caught(runtime, stage.keep_journal(logs));
    (Some(stage), outcome.is_some())
}

/// Waits until no other test runs, and lets none begin as long as the file is open.
fn alone_with(others: &PathBuf) -> File {
    let file = File::open(others).unwrap();
    file.lock().unwrap();
    file
}

/// What a future gives, unless it panics, which prints why.
fn caught<T>(runtime: &Runtime, future: impl Future<Output = T>) -> Option<T> {
    std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(future))).ok()
}

impl Scenario {
    /// Whether it is played where none is named: of the versions of Kubernetes that a node can have here, most only on the newest.
    fn is_usual(&self) -> bool {
        let is_older = |version| Some(version) != kubelet::newest();
        !matches!(self.setting, Setting::Node(version) if is_older(version))
            || scenarios::ON_EACH_VERSION.contains(&self.name)
    }

    /// Its name, and where it is not the usual one the setting.
    fn label(&self) -> String {
        match self.setting {
            Setting::Node(version) => format!("node-{version}::{}", self.name),
            _ => self.name.to_owned(),
        }
    }
}
