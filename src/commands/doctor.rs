// SPDX-License-Identifier: Apache-2.0
//! `doctor`: diagnoses problems with identity and topology, and prints the commands that fix them.

mod address;
pub mod archive;
mod bundle;
pub mod diagnosis;
pub mod facts;
pub mod judge;
pub mod print;
pub(crate) mod read;
mod round;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

use super::run::Process;
use super::{Answer, Exit, Output};
use crate::commands::doctor::diagnosis::DoctorOutcome;
use crate::commands::doctor::print::View;
use crate::report::layout::TermStyle;
use crate::sys::escape::json_text;

use bundle::Written;
use round::DoctorRound;

/// The text after the options in the help.
pub const EXAMPLES: &str = "\
Examples:
  Diagnose problems and print fixes:
    sudo harvester-node-agent doctor
  Wait up to 5 minutes until there is no problem:
    sudo harvester-node-agent doctor --wait 5m
  Use the exit status only:
    sudo harvester-node-agent doctor --quiet || ...
  Write an archive for support:
    sudo harvester-node-agent doctor --bundle /root/doctor.tar

Exit status: 0 no problem, or warnings only; 1 an error; 3 warnings with --strict; 4 not a KubeVirt virtual machine; \
75 an API is unreachable, a credential is not readable, or a check timed out, and there is no error; 78 invalid \
configuration.";

/// The delays between two rounds of `--wait`; the last one is repeated.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// What `doctor` takes.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// Print nothing
    #[arg(long)]
    pub quiet: bool,
    /// Repeat until there is no problem, for at most this time, such as 90s or 5m
    #[arg(long, value_name = "TIME", value_parser = crate::config::parse_duration)]
    pub wait: Option<Duration>,
    /// Also write an archive for support
    ///
    /// Contains this diagnosis, configuration, status, journal and versions, without anything that resembles a secret. FILE
    /// must not exist and is not relative to --root; - writes the archive to standard output and the diagnosis to standard
    /// error.
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
    /// `--strict`.
    #[arg(long, help = super::STRICT)]
    pub strict: bool,
}

/// Diagnoses the node, and prints the result.
pub fn run(process: &Process, options: &Options) -> Answer {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let text = format!("failed to create event loop: {error}\n");
            return Answer::stderr(text, Exit::TryAgain);
        }
    };
    let round = runtime.block_on(check_until(process, options));
    // Do not wait for a name server or a disk that does not respond.
    runtime.shutdown_background();
    answer(process, options, &round)
}

/// Repeats the diagnosis until there is no problem or the time is over; without a limit, runs it once.
async fn check_until(process: &Process, options: &Options) -> DoctorRound {
    let began = Instant::now();
    let mut pauses = PAUSES.into_iter();
    let mut pause = Duration::ZERO;
    loop {
        let round = round::run(process).await;
        pause = pauses.next().unwrap_or(pause);
        let left = options
            .wait
            .unwrap_or_default()
            .saturating_sub(began.elapsed());
        // A final result is reported immediately.
        let is_final = round.outcome == DoctorOutcome::NotKubevirt;
        if is_final || exit(round.outcome, options.strict) == Exit::Ok || left.is_zero() {
            return round;
        }
        sleep(pause.min(left)).await;
    }
}

fn exit(outcome: DoctorOutcome, is_strict: bool) -> Exit {
    match outcome {
        DoctorOutcome::Warnings if is_strict => Exit::Warnings,
        DoctorOutcome::Ok | DoctorOutcome::Warnings => Exit::Ok,
        DoctorOutcome::Unreachable => Exit::TryAgain,
        DoctorOutcome::Errors => Exit::Failed,
        DoctorOutcome::NotKubevirt => Exit::NotKubevirt,
        DoctorOutcome::Configuration => Exit::Configuration,
    }
}

fn answer(process: &Process, options: &Options, round: &DoctorRound) -> Answer {
    let view = View {
        diagnosis: &round.diagnosis,
        outcome: round.outcome,
        at: &round.at,
        now: round.time,
        service: &round.service,
        status: round.status.as_ref(),
        examination: round.examination.as_ref(),
    };
    let mut exit = exit(round.outcome, options.strict);
    let mut stderr = String::new();
    let mut archive = None;
    if let Some(file) = &options.bundle {
        let printed = bundle::Printed {
            document: print::document(&view, exit as u8),
            text: print::text(&view, TermStyle::PLAIN, true, round::privileges()),
            at: round.time,
        };
        match bundle::write_within(process, file, printed) {
            Ok(Written::File(_)) if options.quiet => {}
            Ok(Written::File(said)) => stderr = format!("{said}\n"),
            Ok(Written::Printed(text)) => archive = Some(text),
            Err(why) => {
                stderr = format!("{why}\n");
                exit = Exit::Failed;
            }
        }
    }
    let mut text = match process.output {
        _ if options.quiet => String::new(),
        Output::Json => json_text(&print::document(&view, exit as u8)),
        Output::Text => print::text(&view, process.term, process.is_verbose, round::privileges()),
    };
    if let Some(archive) = archive {
        // Standard output is used for the archive.
        (text, stderr) = (archive, text);
    }
    Answer { text, stderr, exit }
}
