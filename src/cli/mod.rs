// SPDX-License-Identifier: Apache-2.0
//! The command line: its shape, and one file for each command.
//!
//! To add a command: a variant of [`Command`], a file with its `run`, and an arm in `main`.

pub mod bake_check;
pub mod completions;
pub mod config;
pub mod doctor;
pub mod explain;
pub mod gate;
mod hold;
pub mod once;
pub mod rbac;
pub mod run;
pub mod status;
pub mod whoami;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::escape::in_json;
use crate::findings::Severity;
use crate::report::diagnosis::text::Symbols;
use crate::report::status::Status;
use crate::report::text::Style;

/// What the process says with its exit code. Frozen: units and scripts depend on the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Ok = 0,
    /// A check failed.
    Failed = 1,
    /// The command line is wrong (clap's own code).
    Usage = 2,
    /// Warnings, with `--strict`.
    Warnings = 3,
    /// This machine is not a KubeVirt virtual machine.
    NotKubevirt = 4,
    /// Not now: an API does not answer, or another agent runs.
    TryAgain = 75,
    /// The configuration has faults.
    Configuration = 78,
}

/// Tells a Harvester VM that is a Kubernetes node who it is and where it runs, and keeps its topology labels right.
#[derive(Debug, Parser)]
#[command(name = "harvester-node-agent", version, about, long_about = LONG_ABOUT, propagate_version = true)]
pub struct Arguments {
    /// Prefix of every path that is read or written; the shipped binary can be tried on a directory tree
    #[arg(long, global = true, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Read this configuration file and no other
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Output for people or for programs
    #[arg(
        short,
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "text"
    )]
    pub output: Output,
    /// End with 3 when all that is found are warnings
    #[arg(long, global = true)]
    pub strict: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

const LONG_ABOUT: &str = "\
Runs inside a Harvester (KubeVirt) virtual machine that is a Kubernetes node. Reports whether the machine's names are its \
VM's name, puts region, zone and name of the physical host on its own Node with the kubelet's credential, and does so again \
after each live migration.

Exit codes: 0 ok; 1 a check failed; 2 usage; 3 warnings with --strict; 4 not a KubeVirt machine; 75 try again later; \
78 bad configuration.";

/// How output is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// A few lines, for a ticket.
    Short,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run as a service
    Run,
    /// Look, write what is to be written, and end
    Once {
        /// Say what would be written, and write nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// What the running agent last found out
    Status,
    /// Hold the kubelet's first start until its name is the VM's; ends with 0 whatever it finds
    Gate {
        /// Let it start after this time at the latest, such as 90s or 2m
        #[arg(long, value_name = "TIME", default_value = "2m", value_parser = crate::config::parse_duration)]
        timeout: std::time::Duration,
        /// Only create the directories of the label files, for the distributions that are installed here
        #[arg(long, conflicts_with = "timeout")]
        make_directories: bool,
    },
    /// Which VM this machine is and which host runs it, with the evidence; writes nothing
    Whoami,
    /// Every reason why identity or topology is wrong, with the command that fixes it; writes nothing
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(doctor::Options),
    /// The long text of a finding
    Explain(explain::Options),
    /// The configuration in force
    Config {
        /// What to do with it
        #[command(subcommand)]
        action: ConfigAction,
    },
    /// The roles on Harvester that the agent needs, as YAML for kubectl apply
    #[command(after_help = rbac::EXAMPLES)]
    Rbac(rbac::Options),
    /// Fail the build of an image that holds what belongs to one machine, or lacks what each needs
    BakeCheck,
    /// Completions for a shell, to be sourced by it
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// What to do with the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum ConfigAction {
    /// Print every value and where it comes from
    Show,
    /// Say what is wrong with it
    Check,
}

/// Longer lines are hard to read, however wide the terminal.
const READABLE: usize = 100;

/// What was printed, and how the process ends.
#[derive(Debug)]
pub struct Answer {
    /// For standard output.
    pub text: String,
    /// For standard error.
    pub complaint: String,
    /// The exit code.
    pub exit: Exit,
}

/// Whether warnings are a failure of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// They are not.
    Lenient,
    /// They are (`--strict`).
    Strict,
}

impl Strictness {
    /// The exit code for a status whose findings are warnings at worst.
    pub fn apply(self, mut answer: Answer, status: &Status) -> Answer {
        let warned = status
            .findings
            .iter()
            .any(|finding| finding.severity == Severity::Warning.as_str());
        if self == Self::Strict && answer.exit == Exit::Ok && warned {
            answer.exit = Exit::Warnings;
        }
        answer
    }
}

impl Answer {
    /// Text for standard output.
    pub fn new(text: impl Into<String>, exit: Exit) -> Self {
        Self {
            text: text.into(),
            complaint: String::new(),
            exit,
        }
    }

    /// Writes the text, and complains where that cannot be. A reader that went away (`| head`) is no failure of ours.
    pub fn printed(mut self, output: &mut impl Write) -> Self {
        let written = output.write_all(in_json(&self.text).as_bytes());
        match written.and_then(|()| output.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                self.complaint
                    .push_str(&format!("failed to write to standard output: {error}\n"));
                self.exit = match self.exit {
                    Exit::Ok => Exit::Failed,
                    exit => exit,
                };
            }
            _ => {}
        }
        self
    }

    /// Text for standard error.
    pub fn complaint(text: impl Into<String>, exit: Exit) -> Self {
        Self {
            text: String::new(),
            complaint: text.into(),
            exit,
        }
    }
}

/// Colour only on a terminal that knows it, and never where `NO_COLOR` says so (<https://no-color.org>).
pub fn style(is_terminal: bool, no_color: Option<&str>, term: Option<&str>) -> Style {
    let refused = no_color.is_some_and(|value| !value.is_empty()) || term == Some("dumb");
    if is_terminal && !refused {
        Style::Colour
    } else {
        Style::Plain
    }
}

/// Where lines end on a terminal: as `COLUMNS` says, or as far as people like to read.
pub fn columns(is_terminal: bool, columns: Option<&str>) -> Option<usize> {
    let said = columns.and_then(|columns| columns.parse().ok());
    is_terminal.then(|| said.unwrap_or(READABLE).clamp(40, READABLE))
}

/// Signs outside ASCII only on a terminal whose locale can show them: the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is
/// not empty names it (locale(7)).
pub fn symbols(is_terminal: bool, locale: [Option<&str>; 3]) -> Symbols {
    let mut names = locale.into_iter().flatten();
    let name = names.find(|name| !name.is_empty()).unwrap_or_default();
    let name = name.to_ascii_lowercase();
    if is_terminal && (name.contains("utf-8") || name.contains("utf8")) {
        Symbols::Unicode
    } else {
        Symbols::Ascii
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_cannot_be_written_is_a_failure_and_a_reader_that_left_is_none() {
        let answer = || Answer::new("text", Exit::Ok);
        let mut full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let told = answer().printed(&mut full);
        assert_eq!(told.exit, Exit::Failed);
        assert!(told.complaint.contains("No space"), "{}", told.complaint);
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        let told = answer().printed(&mut writer);
        assert_eq!((told.exit, told.complaint.as_str()), (Exit::Ok, ""));
    }

    #[test]
    fn colour_needs_a_terminal_and_no_objection() {
        assert_eq!(style(true, None, Some("xterm")), Style::Colour);
        assert_eq!(style(true, Some(""), None), Style::Colour);
        assert_eq!(style(true, Some("1"), None), Style::Plain);
        assert_eq!(style(true, None, Some("dumb")), Style::Plain);
        assert_eq!(style(false, None, None), Style::Plain);
    }

    #[test]
    fn lines_end_on_a_terminal_only() {
        for (is_terminal, said, end) in [
            (false, Some("80"), None),
            (true, Some("80"), Some(80)),
            (true, Some("7"), Some(40)),
            (true, Some("1000"), Some(100)),
            (true, Some("many"), Some(100)),
            (true, None, Some(100)),
        ] {
            assert_eq!(columns(is_terminal, said), end, "{said:?}");
        }
    }

    #[test]
    fn symbols_need_a_terminal_and_a_locale_that_has_them() {
        let utf8 = Some("C.UTF-8");
        assert_eq!(symbols(true, [None, None, utf8]), Symbols::Unicode);
        assert_eq!(
            symbols(true, [Some(""), Some("de_DE.utf8"), None]),
            Symbols::Unicode
        );
        assert_eq!(symbols(true, [Some("C"), utf8, utf8]), Symbols::Ascii);
        assert_eq!(symbols(true, [None, None, None]), Symbols::Ascii);
        assert_eq!(symbols(false, [utf8, utf8, utf8]), Symbols::Ascii);
    }

    #[test]
    fn global_options_are_taken_after_the_command_too() {
        let arguments = Arguments::parse_from(["x", "whoami", "--root", "/tree", "-o", "json"]);
        assert_eq!(
            (arguments.root.to_str(), arguments.output),
            (Some("/tree"), Output::Json)
        );
    }
}
