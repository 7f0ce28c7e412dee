// SPDX-License-Identifier: Apache-2.0
//! `doctor`: every reason why identity or topology is wrong, with the command that fixes it.

mod bundle;
mod look;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

use super::run::Process;
use super::{Answer, Exit, Output, Strictness};
use crate::decide::diagnosis::Outcome;
use crate::report::diagnosis::text::Symbols;
use crate::report::diagnosis::{self, Dress, View};
use crate::report::text::Style;

use bundle::Written;
use look::Look;

/// What stands below the options in the help.
pub const EXAMPLES: &str = "\
  sudo harvester-node-agent doctor                  everything, with what to type
  sudo harvester-node-agent doctor --short          a few lines for a ticket, without secrets
  sudo harvester-node-agent doctor --wait 5m        until nothing is wrong, 5 minutes at most
  sudo harvester-node-agent doctor --quiet || ...   the exit code alone
  sudo harvester-node-agent doctor --bundle /root/doctor.tar   an archive for whoever helps you

Exit codes: 0 nothing is wrong, or warnings only; 1 an error; 3 warnings with --strict; 4 not a KubeVirt machine; 75 an API \
gave no answer, a credential may not be read, or something hung, and nothing else is wrong; 78 the configuration has faults.";

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
    columns: None,
};

/// What `doctor` takes.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// A few lines for a ticket: version, VM, host, and one line for each finding; -o json is always whole
    #[arg(long)]
    pub short: bool,
    /// Print nothing, the exit code tells; with --short, print only when something is wrong
    #[arg(long)]
    pub quiet: bool,
    /// Look again until nothing is wrong, for this time at most, such as 90s or 5m
    #[arg(long, value_name = "TIME", value_parser = crate::config::parse_duration)]
    pub wait: Option<Duration>,
    /// Write a new archive for support too: this diagnosis, configuration, status, journal and versions, without what looks like
    /// a secret. FILE is a path of yours, also with --root; - prints the archive, and the diagnosis on standard error
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
}

/// Looks, and says what is wrong.
pub fn run(process: &Process, options: &Options) -> Answer {
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
    let began = Instant::now();
    let mut pauses = PAUSES.into_iter();
    let mut pause = Duration::ZERO;
    loop {
        let look = look::look(process).await;
        pause = pauses.next().unwrap_or(pause);
        let left = patience.unwrap_or_default().saturating_sub(began.elapsed());
        // What no time mends is told at once.
        let is_final = look.outcome == Outcome::NotKubevirt;
        if is_final || exit(look.outcome, process.strictness) == Exit::Ok || left.is_zero() {
            return look;
        }
        sleep(pause.min(left)).await;
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
    let view = View {
        diagnosis: &look.diagnosis,
        outcome: look.outcome,
        at: &look.at,
        service: &look.service,
        status: look.status.as_ref(),
        examination: look.examination.as_ref(),
    };
    let mut exit = exit(look.outcome, process.strictness);
    let mut complaint = String::new();
    let mut archive = None;
    if let Some(file) = &options.bundle {
        let printed = bundle::Printed {
            document: diagnosis::document(&view, exit as u8),
            text: diagnosis::text(&view, PLAIN, look::rights()),
            at: look.time,
        };
        match bundle::write_within(process, file, printed) {
            Ok(Written::File(_)) if options.quiet => {}
            Ok(Written::File(said)) => complaint = format!("{said}\n"),
            Ok(Written::Printed(text)) => archive = Some(text),
            Err(why) => {
                complaint = format!("{why}\n");
                exit = Exit::Failed;
            }
        }
    }
    let is_silent = options.quiet && (exit == Exit::Ok || !options.short);
    let mut text = match process.output {
        _ if is_silent => String::new(),
        Output::Json => format!("{:#}\n", diagnosis::document(&view, exit as u8)),
        Output::Text | Output::Short if options.short || process.output == Output::Short => {
            diagnosis::short(&view)
        }
        Output::Text | Output::Short => diagnosis::text(&view, process.dress, look::rights()),
    };
    if let Some(archive) = archive {
        // Standard output is the archive's.
        (text, complaint) = (archive, text);
    }
    Answer {
        text,
        complaint,
        exit,
    }
}
