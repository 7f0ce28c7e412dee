// SPDX-License-Identifier: Apache-2.0
//! `doctor`: every reason why identity or topology is wrong, with the command that fixes it.

mod bundle;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

use super::run::{Process, Silent, SystemClock, context, earlier, foreign};
use super::{Answer, Exit, Output, Strictness};
use crate::agent::{self, Clock, Mode, Round};
use crate::bus::Bus;
use crate::config::{self, Settings};
use crate::decide::diagnosis::{Diagnosis, Outcome, Rights, Service, gaps, is_hidden};
use crate::decide::examination::{self, Case};
use crate::decide::{Memory, rfc3339};
use crate::facts::WhyKind;
use crate::facts::examination::Examination;
use crate::few::Few;
use crate::findings::{Code, Finding};
use crate::lock;
use crate::logging;
use crate::observe::machine::read_machine;
use crate::report::diagnosis::text::Symbols;
use crate::report::diagnosis::{self, Dress, View};
use crate::report::status::Status;
use crate::report::status_file;
use crate::report::text::Style;
use crate::state::{self, MachineId};
use crate::triggers::health::Health;
use crate::world::World;

/// What stands below the options in the help.
pub const EXAMPLES: &str = "\
  sudo harvester-node-agent doctor                  everything, with what to type
  sudo harvester-node-agent doctor --short          a few lines for a ticket, without secrets
  sudo harvester-node-agent doctor --wait 5m        until nothing is wrong, 5 minutes at most
  sudo harvester-node-agent doctor --quiet || ...   the exit code alone
  sudo harvester-node-agent doctor --bundle /tmp/doctor.tar   an archive for whoever helps you

Exit codes: 0 nothing is wrong, or warnings only; 1 an error; 3 warnings with --strict; 4 not a KubeVirt machine; 75 an API \
gave no answer or a credential may not be read, and nothing else is wrong; 78 the configuration has faults.";

/// Waits between two looks of `--wait`; the last one for all that follow.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// For a file.
const PLAIN: Dress = Dress {
    style: Style::Plain,
    symbols: Symbols::Ascii,
};

/// What `doctor` takes.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// A few lines for a ticket: version, VM, host, and one line for each finding
    #[arg(long)]
    pub short: bool,
    /// Print nothing, the exit code tells; with --short, print only when something is wrong
    #[arg(long)]
    pub quiet: bool,
    /// Look again until nothing is wrong, for this time at most, such as 90s or 5m
    #[arg(long, value_name = "TIME", value_parser = crate::config::parse_duration)]
    pub wait: Option<Duration>,
    /// Write a new archive for support too: this diagnosis, configuration, status, journal and versions, without what looks like
    /// a secret. FILE is a path of yours, also with --root
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
}

/// One look, whole.
#[derive(Debug)]
struct Look {
    diagnosis: Diagnosis,
    outcome: Outcome,
    at: String,
    seconds: u64,
    service: Service,
    round: Option<(Status, Examination)>,
}

/// Looks, and says what is wrong.
pub fn run(process: &Process, options: &Options) -> Answer {
    if let Err(error) = logging::deny_core_dumps() {
        tracing::debug!(%error, "failed to forbid core dumps");
    }
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let text = format!("the kernel gives no event loop: {error}\n");
            return Answer::complaint(text, Exit::TryAgain);
        }
    };
    let look = runtime.block_on(look_until(process, options.wait));
    // Not for the sake of a name server or a disk that does not answer.
    runtime.shutdown_background();
    answer(process, options, &look)
}

/// Looks until nothing is wrong or the time is over; once, where there is none.
async fn look_until(process: &Process, patience: Option<Duration>) -> Look {
    let end = Instant::now() + patience.unwrap_or_default();
    let mut pauses = PAUSES.into_iter();
    let mut pause = Duration::ZERO;
    loop {
        let look = Box::pin(look(process)).await;
        pause = pauses.next().unwrap_or(pause);
        let left = end.saturating_duration_since(Instant::now());
        // What no time mends is told at once.
        let is_final = look.outcome == Outcome::NotKubevirt;
        if is_final || exit(look.outcome, process.strictness) == Exit::Ok || left.is_zero() {
            return look;
        }
        sleep(pause.min(left)).await;
    }
}

/// One ordinary round that writes nothing, and the examination beside it.
async fn look(process: &Process) -> Look {
    let clock = SystemClock::new();
    let service = service(process);
    let mut findings = Vec::new();
    let settings = match config::load(&process.root, process.config.as_deref()) {
        Ok(loaded) => loaded.settings,
        Err(errors) => {
            let faults = errors.to_string();
            let faults: Vec<&str> = faults.lines().map(str::trim).collect();
            findings.push(Finding::new(Code::ConfigurationInvalid, faults.join("; ")));
            Settings::default()
        }
    };
    let machine = read_machine(&process.root);
    if let Some(vendor) = foreign(&machine, &settings) {
        let seen = format!("the firmware says {vendor}");
        findings.push(Finding::new(Code::NotKubevirt, seen));
        return Look::new(&findings, None, service, &clock);
    }
    findings.extend(service.finding());
    let (state, _) = state::load(&process.root, &MachineId::of(&machine));
    let bus = Bus::new(&process.root, process.system_bus_address.as_deref());
    let health = Health::default();
    let mut world = World::new(process.root.clone(), bus, health, earlier(&state)).hurried();
    let rounds = Box::pin(agent::once(
        &settings,
        &mut world,
        &mut Silent,
        &clock,
        Memory::default(),
        Mode::DryRun,
    ))
    .await;
    let Some(round) = rounds.last() else {
        return Look::new(&findings, None, service, &clock);
    };
    let examination = Box::pin(world.examine(&settings, round, clock.now())).await;
    let case = Case {
        settings: &settings,
        who: &round.who,
        identity: &round.identity,
        placement: round.placement.as_ref(),
        examination: &examination,
        now: clock.now(),
    };
    let raised = round.plan.findings.iter().cloned();
    let raised = raised.chain(examination::findings(&case));
    findings.extend(raised.filter(|finding| !is_hidden(finding, &round.who, rights())));
    let told: Vec<Finding> = service.told(&findings, rights()).cloned().collect();
    findings.extend(told);
    let status = Status::new(&round.report(&settings), &context(&clock, Vec::new()));
    Look::new(
        &findings,
        Some((round, status, examination)),
        service,
        &clock,
    )
}

impl Look {
    fn new(
        findings: &[Finding],
        round: Option<(&Round, Status, Examination)>,
        service: Service,
        clock: &SystemClock,
    ) -> Self {
        let (mut unseen, mut unanswered) = (Vec::new(), false);
        if let Some((round, _, examination)) = &round {
            unseen = gaps(
                &round.who,
                &round.identity,
                round.placement.as_ref(),
                rights(),
            );
            unseen.extend(examination.gaps());
            let credentials = [round.who.harvester.why(), round.who.kubelet.why()];
            let mut credentials = credentials.into_iter().flatten();
            unanswered = round.is_unanswered()
                || rights() == Rights::Few && credentials.any(|why| why.kind == WhyKind::Forbidden);
        }
        let diagnosis = Diagnosis::new(findings, &unseen);
        let now = clock.now();
        Self {
            outcome: diagnosis.outcome(unanswered),
            diagnosis,
            at: rfc3339(now.wall),
            seconds: u64::try_from(now.wall.unix_timestamp()).unwrap_or_default(),
            service,
            round: round.map(|(_, status, examination)| (status, examination)),
        }
    }
}

/// The running agent, as its lock and its status tell.
fn service(process: &Process) -> Service {
    let status = status_file::read(&process.root).ok();
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let findings = status
        .as_ref()
        .and_then(|status| status.get("findings")?.as_array());
    let findings = findings.map(Vec::as_slice).unwrap_or_default();
    let told = findings.iter().filter_map(|finding| {
        let code = Code::parse(&text(finding.get("code"))?)?;
        let remedy = text(finding.get("remedy"))?;
        Some(Finding::new(code, text(finding.get("seen"))?).with_remedy(remedy))
    });
    let since = findings
        .iter()
        .filter_map(|finding| Some((text(finding.get("code"))?, text(finding.get("since"))?)));
    Service {
        holder: lock::is_held(&process.root).map(|holder| holder.to_string()),
        updated_at: text(status.as_ref().and_then(|status| status.get("updatedAt"))),
        findings: told.collect(),
        since: since.into_map(),
    }
}

fn rights() -> Rights {
    if nix::unistd::geteuid().is_root() {
        Rights::All
    } else {
        Rights::Few
    }
}

fn exit(outcome: Outcome, strictness: Strictness) -> Exit {
    match outcome {
        Outcome::Warnings if strictness == Strictness::Strict => Exit::Warnings,
        Outcome::Well | Outcome::Warnings => Exit::Ok,
        Outcome::Unanswered => Exit::TryAgain,
        Outcome::Errors => Exit::Failed,
        Outcome::NotKubevirt => Exit::NotKubevirt,
        Outcome::Configuration => Exit::Configuration,
    }
}

fn answer(process: &Process, options: &Options, look: &Look) -> Answer {
    let exit = exit(look.outcome, process.strictness);
    let view = View {
        diagnosis: &look.diagnosis,
        outcome: look.outcome,
        at: &look.at,
        service: &look.service,
        looked: look
            .round
            .as_ref()
            .map(|(status, examination)| (status, examination)),
    };
    let is_silent = options.quiet && (exit == Exit::Ok || !options.short);
    let text = match process.output {
        _ if is_silent => String::new(),
        Output::Json => format!("{:#}\n", diagnosis::document(&view, exit as u8)),
        Output::Text if options.short => diagnosis::short(&view),
        Output::Text => diagnosis::text(&view, process.dress, rights()),
    };
    let mut answer = Answer::new(text, exit);
    if let Some(file) = &options.bundle {
        let printed = bundle::Printed {
            document: diagnosis::document(&view, exit as u8),
            text: diagnosis::text(&view, PLAIN, rights()),
            at: look.seconds,
        };
        match bundle::write(process, file, printed) {
            Ok(said) => answer.complaint = format!("{said}\n"),
            Err(why) => {
                answer.complaint = format!("{why}\n");
                answer.exit = Exit::Failed;
            }
        }
    }
    answer
}
