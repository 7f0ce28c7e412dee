// SPDX-License-Identifier: Apache-2.0
//! One round of `doctor`: an ordinary round that writes nothing, followed by the examination.
//!
//! It runs in a separate thread. A disk, network file system or device that hangs blocks the thread that reads it, and the read
//! cannot be canceled. After [`LIMIT`], the round times out with its results so far.

use std::io;
use std::thread;
use std::time::Duration;

use serde_json::Value;
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
use crate::commands::doctor::examine::examine;
use crate::commands::doctor::facts::{Examination, Gap, Need};
use crate::commands::doctor::judge::{self, Case};
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
use crate::wire::dbus::Bus;

/// The timeout of one round. Each request has its own, much shorter timeout.
const LIMIT: Duration = Duration::from_secs(15);

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
#[derive(Debug, Default)]
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
    let tell = |part| tell.send(part).unwrap_or_default();
    let clock = SystemClock::new();
    let service = service(process);
    let (settings, mut findings) = settings(process);
    let part = |findings: &[Finding], next| Part {
        service: service.clone(),
        findings: findings.to_vec(),
        next,
        ..Part::default()
    };
    tell(part(&findings, Some("the firmware tables")));
    let machine = read_machine(&process.root);
    if let Some(vendor) = foreign(&machine, &settings) {
        let seen = format!("SMBIOS vendor is {vendor}");
        findings.push(Finding::new(Code::NotKubevirt, seen));
        return tell(part(&findings, None));
    }
    findings.extend(service.finding());
    tell(part(
        &findings,
        Some("credentials, both APIs, qemu-guest-agent"),
    ));

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
    let raised = round.plan.findings.iter().cloned();
    let is_shown = |finding: &Finding| !is_hidden(finding, &round.observation, privileges());
    findings.extend(raised.filter(is_shown));
    let status = Status::new(&round.report(&settings), &context(&clock, Vec::new()));
    let of_round = |findings: &[Finding], next| Part {
        gaps: gaps(
            &round.observation,
            &round.identity,
            round.placement.as_ref(),
            privileges(),
        ),
        status: Some(status.clone()),
        is_unanswered: is_unanswered(round),
        ..part(findings, next)
    };
    tell(of_round(&findings, Some("the additional checks of doctor")));

    let examination = runtime.block_on(Box::pin(examine(&observer, &settings, round, clock.now())));
    let case = Case {
        settings: &settings,
        observation: &round.observation,
        identity: &round.identity,
        placement: round.placement.as_ref(),
        examination: &examination,
        now: clock.now(),
    };
    findings.extend(judge::findings(&case).into_iter().filter(is_shown));
    let reported: Vec<Finding> = service.reported(&findings, privileges()).cloned().collect();
    findings.extend(reported);
    let mut whole = of_round(&findings, None);
    whole.gaps.extend(examination.gaps());
    whole.examination = Some(examination);
    tell(whole);
}

/// Returns the settings, or the defaults and a finding for each error in the configuration.
fn settings(process: &Process) -> (Settings, Vec<Finding>) {
    match config::load(&process.root, process.config.as_deref()) {
        Ok(loaded) => (loaded.settings, Vec::new()),
        Err(errors) => {
            let problems = errors.to_string();
            let finding = |problem| Finding::new(Code::ConfigInvalid, problem);
            let findings = problems.lines().map(finding).collect();
            (Settings::default(), findings)
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
        self.gaps.extend(Group::ALL.iter().map(|group| Gap {
            group: *group,
            what,
            why: Unavailable::new(UnavailableKind::Unreachable, why),
            need: Need::Usual,
        }));
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
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let findings = status
        .as_ref()
        .and_then(|status| status.get("findings")?.as_array());
    let findings = findings.map(Vec::as_slice).unwrap_or_default();
    let reported = findings.iter().filter_map(|finding| {
        let code = Code::parse(&text(finding.get("code"))?)?;
        let steps = finding.get("fix")?.as_array()?.iter();
        let steps = steps.filter_map(|step| text(Some(step))).collect();
        Some(Finding::new(code, text(finding.get("observed"))?).with_steps(steps))
    });
    let since = findings.iter().filter_map(|finding| {
        Some((
            text(finding.get("code"))?,
            text(finding.get("firstObservedTime"))?,
        ))
    });
    let agent = status.as_ref().and_then(|status| status.get("agent"));
    let agent = agent.and_then(|agent| serde_json::from_value(agent.clone()).ok());
    let (holder, is_unknown) = match presence(&process.root, agent.as_ref()) {
        Presence::Running(holder) => (Some(holder.to_string()), false),
        Presence::Absent => (None, false),
        Presence::Unknown => (None, true),
    };
    Service {
        holder,
        is_unknown,
        updated_at: text(
            status
                .as_ref()
                .and_then(|status| status.get("lastUpdateTime")),
        ),
        findings: reported.collect(),
        since: since.collect(),
    }
}

pub(crate) fn privileges() -> Privileges {
    if nix::unistd::geteuid().is_root() {
        Privileges::All
    } else {
        Privileges::Unprivileged
    }
}
