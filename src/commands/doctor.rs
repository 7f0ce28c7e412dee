// SPDX-License-Identifier: Apache-2.0
//! `doctor`: diagnoses problems with identity and topology, and prints the commands that fix them.

mod address;
mod bundle;
pub(crate) mod case;
mod certificate;
pub(crate) mod checks;
mod diagnosis;
mod found;
mod gaps;
pub mod objects;
mod print;
pub(crate) mod reads;
mod release;
mod round;
mod service;
mod summary;
#[cfg(test)]
mod testing;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use super::answer::{Answer, Exit, Output};
use super::options::STRICT;
use super::process::Process;
use super::run::not_root;
use crate::sys::escape::json_text;

use bundle::Written;
use diagnosis::{Diagnosis, Outcome};

/// The text after the options in the help.
pub const EXAMPLES: &str = "\
Examples:
  Diagnose problems and print fixes:
    sudo harvester-node-agent doctor
  Repeat until the exit status is 0, for at most 5 minutes:
    sudo harvester-node-agent doctor --wait 5m
  Use the exit status only:
    sudo harvester-node-agent doctor --quiet || ...
  Write an archive for support:
    sudo harvester-node-agent doctor --bundle /root/doctor.tar

Exit status: 0 no problem, or warnings only; 1 an error; 3 warnings with --strict; 4 not a KubeVirt virtual machine; 75 an API \
is unreachable, or a check timed out, and there is no error, or it is not run as root; 78 invalid configuration.";

/// The delays between two rounds of `--wait`, in seconds; the last one is repeated.
const PAUSES: [u64; 3] = [1, 2, 5];

/// What `doctor` takes.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// Print nothing
    #[arg(long)]
    pub quiet: bool,
    /// Repeat until the exit status is 0, for at most this time, such as 90s or 5m
    #[arg(long, value_name = "TIME", value_parser = crate::config::parse_duration)]
    pub wait: Option<Duration>,
    /// Also write an archive for support
    ///
    /// Contains this diagnosis, and status, configuration and journal of the agent; no file of another program. FILE must not
    /// exist and is not relative to --root; - writes the archive to standard output and the diagnosis to standard error.
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
    /// `--strict`.
    #[arg(long, help = STRICT)]
    pub strict: bool,
}

/// Diagnoses the node, and prints the result.
pub fn run(process: &Process, options: &Options) -> Answer {
    if let Some(answer) = not_root(process, "doctor") {
        return answer;
    }
    let diagnosis = check_until(process, options);
    answer(process, options, diagnosis)
}

/// Repeats the diagnosis until the exit status is 0, or final, or the time is over; without a limit, runs it once.
#[expect(clippy::disallowed_methods, reason = "a command has no loop")]
fn check_until(process: &Process, options: &Options) -> Diagnosis {
    let began = Instant::now();
    let mut pauses = PAUSES.into_iter().map(Duration::from_secs);
    let mut pause = Duration::ZERO;
    loop {
        let diagnosis = round::run(process);
        pause = pauses.next().unwrap_or(pause);
        let wait = options.wait.unwrap_or_default();
        let left = wait.saturating_sub(began.elapsed());
        // A final result is reported immediately.
        let is_final = diagnosis.outcome == Outcome::NotKubevirt;
        let exit = exit(diagnosis.outcome, options.strict);
        if is_final || exit == Exit::Ok || left.is_zero() {
            return diagnosis;
        }
        thread::sleep(pause.min(left));
    }
}

fn exit(outcome: Outcome, is_strict: bool) -> Exit {
    match outcome {
        Outcome::Warnings if is_strict => Exit::Warnings,
        Outcome::Ok | Outcome::Warnings => Exit::Ok,
        Outcome::Unreachable => Exit::TryAgain,
        Outcome::Errors => Exit::Failed,
        Outcome::NotKubevirt => Exit::NotKubevirt,
        Outcome::Configuration => Exit::Configuration,
    }
}

fn answer(process: &Process, options: &Options, mut diagnosis: Diagnosis) -> Answer {
    let mut exit = exit(diagnosis.outcome, options.strict);
    diagnosis.exit_code = exit as u8;
    let mut stderr = String::new();
    let mut archive = None;
    if let Some(file) = &options.bundle {
        match bundle::write_within(process, file, diagnosis.document(), diagnosis.now) {
            Ok(Written::File(_)) if options.quiet => {}
            Ok(Written::File(said)) => stderr = format!("{said}\n"),
            Ok(Written::Printed(text)) => archive = Some(text),
            Err(why) => {
                stderr = format!("error: {why}\n");
                exit = Exit::Failed;
                diagnosis.exit_code = exit as u8;
            }
        }
    }
    let mut text = match process.output {
        _ if options.quiet => String::new(),
        Output::Json => json_text(&diagnosis.document()),
        Output::Text => print::text(&diagnosis, process.show(diagnosis.now)),
    };
    if let Some(archive) = archive {
        // Standard output is used for the archive.
        (text, stderr) = (archive, text);
    }
    Answer { text, stderr, exit }
}
