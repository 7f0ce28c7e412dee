// SPDX-License-Identifier: Apache-2.0
//! One round of `doctor`: an ordinary round that writes nothing, followed by the examination.
//!
//! It runs in a separate thread. A disk, network file system or device that hangs blocks the thread that reads it, and the read
//! cannot be canceled. After [`LIMIT`], the round times out with its results so far.

use std::io;
use std::thread;
use std::time::Duration;

use time::UtcDateTime;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout_at};

use crate::agent::signal_board::SignalBoard;
use crate::agent::state::{self, MachineId};
use crate::agent::{self, Clock, Mode, Round};
use crate::catalog::{Code, Finding, Group};
use crate::commands::doctor::diagnosis::{
    Diagnosis, DoctorOutcome, Privileges, Service, gaps, is_hidden,
};
use crate::commands::doctor::facts::{Examination, Gap};
use crate::commands::doctor::judge::{self, Case};
use crate::commands::doctor::read;
use crate::commands::run::{Process, Silent, SystemClock, context, earlier, foreign};
use crate::commands::status::presence;
use crate::config::{self, Settings};
use crate::decide::{Memory, rfc3339};
use crate::facts::{Unavailable, UnavailableKind};
use crate::observe::machine::read_machine;
use crate::observe::observer::Observer;
use crate::report::status::Status;
use crate::report::status_file;
use crate::sys::lock::Presence;
use crate::sys::root::Root;
use crate::wire::dbus::Bus;

/// The timeout of one round. Each request has its own, much shorter timeout.
const LIMIT: Duration = Duration::from_secs(20);

/// One round, complete or timed out.
#[derive(Debug)]
pub(crate) struct DoctorRound {
    pub(crate) diagnosis: Diagnosis,
    pub(crate) outcome: DoctorOutcome,
    pub(crate) at: String,
    pub(crate) time: UtcDateTime,
    pub(crate) service: Service,
    pub(crate) status: Option<Status>,
    pub(crate) examination: Option<Examination>,
}

/// The results of a round after one of its steps.
#[derive(Debug, Clone, Default)]
struct Part {
    service: Service,
    findings: Vec<Finding>,
    gaps: Vec<Gap>,
    status: Option<Status>,
    examination: Option<Examination>,
    is_unanswered: bool,
    /// The next step; `None` after the last one.
    next: Option<&'static str>,
}

/// Runs one round.
pub(crate) async fn run(process: &Process) -> DoctorRound {
    let end = Instant::now() + LIMIT;
    let part = match begin(process) {
        Ok(reported) => last(reported, end).await,
        Err(error) => Part::default().without_rest(&format!("failed to spawn a thread: {error}")),
    };
    DoctorRound::new(part, &SystemClock::new())
}

fn begin(process: &Process) -> io::Result<UnboundedReceiver<Part>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (tell, reported) = unbounded_channel();
    let process = process.clone();
    let work = move || gather(&runtime, &process, &tell);
    thread::Builder::new().name("look".to_owned()).spawn(work)?;
    Ok(reported)
}

/// Returns the last part that was reported before the timeout.
async fn last(mut reported: UnboundedReceiver<Part>, end: Instant) -> Part {
    let mut part = Part {
        next: Some("the configuration and the state of the agent"),
        ..Part::default()
    };
    while let Some(step) = part.next {
        part = match timeout_at(end, reported.recv()).await {
            Ok(Some(newer)) => newer,
            Ok(None) => {
                return part.without_rest(&format!("the check stopped while reading {step}"));
            }
            Err(_) => {
                let seconds = LIMIT.as_secs();
                return part.without_rest(&format!(
                    "timed out after {seconds}s while reading {step}: a disk, network file system or device hangs"
                ));
            }
        };
    }
    part
}

/// Runs the round in its thread, and reports the results after each step.
fn gather(runtime: &Runtime, process: &Process, tell: &UnboundedSender<Part>) {
    // After the timeout, there is no receiver.
    let tell = |part: &Part| tell.send(part.clone()).unwrap_or_default();
    let clock = SystemClock::new();
    let (settings, findings) = settings(process);
    let mut part = Part {
        service: service(process),
        findings,
        next: Some("the firmware tables"),
        ..Part::default()
    };
    tell(&part);
    let machine = read_machine(&process.root);
    if let Some(vendor) = foreign(&machine, &settings) {
        let seen = format!("SMBIOS vendor is {vendor}");
        part.findings.push(Finding::new(Code::NotKubevirt, seen));
        part.next = None;
        return tell(&part);
    }
    part.findings.extend(part.service.finding());
    part.next = Some("credentials, both APIs, qemu-guest-agent");
    tell(&part);

    let state = state::recall(&process.root, &MachineId::of(&machine));
    let bus = Bus::new(&process.root, process.system_bus_address.as_deref());
    let mut observer = Observer::new(
        process.root.clone(),
        bus,
        SignalBoard::default(),
        earlier(&state),
    )
    .with_short_timeouts();
    let rounds = runtime.block_on(Box::pin(agent::once(
        &settings,
        &mut observer,
        &mut Silent,
        &clock,
        Memory::default(),
        Mode::DryRun,
    )));
    let Some(round) = rounds.last() else {
        return;
    };
    let (observation, placement) = (&round.observation, round.placement.as_ref());
    let is_shown = |finding: &Finding| !is_hidden(finding, observation, privileges());
    let (raised, consequences) = (&round.plan.findings, &round.plan.consequences);
    part.findings
        .extend(raised.iter().filter(|one| is_shown(one)).cloned());
    // Without its cause, a consequence would be shown as a problem.
    if raised.iter().all(is_shown) {
        part.findings.extend(consequences.iter().cloned());
    }
    part.gaps = gaps(observation, &round.identity, placement, privileges());
    let context = context(&clock, Vec::new());
    part.status = Some(Status::new(&round.report(&settings), &context));
    part.is_unanswered = is_unanswered(round);
    part.next = Some("the additional checks of doctor");
    tell(&part);

    let examination = runtime.block_on(Box::pin(read::read(
        &observer,
        &settings,
        round,
        clock.now(),
    )));
    let found = judge::findings(&Case {
        settings: &settings,
        observation,
        identity: &round.identity,
        placement,
        examination: &examination,
        now: clock.now(),
    });
    part.findings.extend(found.into_iter().filter(is_shown));
    let reported = part.service.reported(&part.findings, privileges());
    let reported: Vec<Finding> = reported.cloned().collect();
    part.findings.extend(reported);
    part.gaps.extend(examination.gaps());
    part.examination = Some(examination);
    part.next = None;
    tell(&part);
}

/// Returns the settings, or the defaults and a finding for each error in the configuration.
fn settings(process: &Process) -> (Settings, Vec<Finding>) {
    match config::load(&process.root, process.config.as_deref()) {
        Ok(loaded) => (loaded.settings, Vec::new()),
        Err(errors) => {
            let finding = |problem| Finding::new(Code::ConfigInvalid, problem);
            (Settings::default(), errors.lines().map(finding).collect())
        }
    }
}

fn is_unanswered(round: &Round) -> bool {
    let credentials = [
        round.observation.harvester.why(),
        round.observation.kubelet.why(),
    ];
    let mut credentials = credentials.into_iter().flatten();
    round.is_unanswered()
        || privileges() == Privileges::Unprivileged
            && credentials.any(|why| why.kind == UnavailableKind::Forbidden)
}

impl Part {
    /// Completes a round whose other steps could not be done.
    fn without_rest(mut self, why: &str) -> Self {
        let what = match self.status {
            Some(_) => "the remaining checks",
            None => "all checks",
        };
        let why = Unavailable::new(UnavailableKind::Unreachable, why);
        let gaps = Group::ALL.iter();
        self.gaps
            .extend(gaps.map(|group| Gap::new(*group, what, why.clone())));
        self.is_unanswered = true;
        self.next = None;
        self
    }
}

impl DoctorRound {
    fn new(part: Part, clock: &SystemClock) -> Self {
        let diagnosis = Diagnosis::new(&part.findings, &part.gaps);
        let now = clock.now();
        Self {
            outcome: diagnosis.outcome(part.is_unanswered),
            diagnosis,
            at: rfc3339(now.wall),
            time: now.wall,
            service: part.service,
            status: part.status,
            examination: part.examination,
        }
    }
}

/// Returns the running agent, according to its lock and its status.
fn service(process: &Process) -> Service {
    let status = status_file::read(&process.root).ok();
    let status = status.and_then(|status| Status::from_json(&status).ok());
    let presence = presence(&process.root, status.as_ref().map(|status| &status.agent));
    let mut service = Service {
        holder: match &presence {
            Presence::Running(holder) => Some(holder.to_string()),
            Presence::Absent | Presence::Unknown => None,
        },
        is_unknown: matches!(presence, Presence::Unknown),
        lacks_namespaces: lacks_namespaces(&process.root),
        updated_at: status
            .as_ref()
            .map(|status| status.last_update_time.clone()),
        ..Service::default()
    };
    for finding in status.into_iter().flat_map(|status| status.findings) {
        let code = finding.code;
        // One code may be about several event sources.
        if let Some(at) = finding.first_observed_time {
            let first = service.since.entry(code).or_insert_with(|| at.clone());
            *first = at.min(first.clone());
        }
        let reported = Finding::new(code, finding.observed);
        service.findings.push(reported.with_steps(finding.fix));
    }
    service
}

/// Reports whether the kernel allows no user namespaces, as some hardening guides require.
fn lacks_namespaces(root: &Root) -> bool {
    let limit = root.read_text("/proc/sys/user/max_user_namespaces", 64);
    limit.is_ok_and(|limit| limit.trim() == "0")
}

pub(crate) fn privileges() -> Privileges {
    if nix::unistd::geteuid().is_root() {
        Privileges::All
    } else {
        Privileges::Unprivileged
    }
}
