// SPDX-License-Identifier: Apache-2.0
//! The command line: its definition, and one file for each command.
//!
//! To add a command: a variant of [`Command`], a file with its `run`, and an arm in [`run()`].

mod answer;
pub mod bake_check;
pub mod completions;
pub mod config;
pub mod doctor;
pub mod events;
pub mod explain;
pub mod gate;
pub mod kubeconfig;
pub mod once;
mod options;
mod process;
pub mod rbac;
pub mod run;
pub mod status;
pub mod whoami;

use std::io;
use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};

use crate::sys::escape::one_line;

use options::{STRICT, outer_path};

pub use answer::{Answer, Exit, Output};
pub use process::Process;

/// Identify the Harvester VM of a Kubernetes node and keep its topology labels in sync
#[derive(Debug, Parser)]
#[command(name = "harvester-node-agent", version, about, long_about = LONG_ABOUT, propagate_version = true)]
pub struct Arguments {
    /// Configuration file to use instead of the default files
    #[arg(long, global = true, value_name = "FILE", value_parser = outer_path(), help_heading = GLOBAL)]
    pub config: Option<PathBuf>,
    /// Output format
    #[arg(
        short,
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "text",
        help_heading = GLOBAL
    )]
    pub output: Output,
    /// Directory to use as the file system root
    #[arg(long, global = true, value_name = "DIR", default_value = "/", value_parser = outer_path(), help_heading = GLOBAL)]
    pub root: PathBuf,
    /// Show all details
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub verbose: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The heading of the options for all commands.
const GLOBAL: &str = "Global options";

const LONG_ABOUT: &str = "\
Runs inside a Harvester (KubeVirt) virtual machine that is a Kubernetes node. Checks that the names of the node match its \
VM, sets region, zone and host labels on its own Node with the kubelet credential, and updates them after each live \
migration.

Exit status: 0 ok; 1 a check failed; 2 usage error; 3 warnings with --strict; 4 not a KubeVirt virtual machine; 75 try \
again later; 78 invalid configuration.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run as a service
    #[command(after_help = run::EXIT_STATUS)]
    Run,
    /// Reconcile the Node once and exit
    #[command(after_help = once::EXIT_STATUS)]
    Once {
        /// Print what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
        /// `--strict`.
        #[arg(long, help = STRICT)]
        strict: bool,
    },
    /// Show the runtime status of the agent
    #[command(after_help = status::EXAMPLES)]
    Status(status::Options),
    /// Show scheduled events: live migrations and stops of the VM
    #[command(after_help = events::EXAMPLES)]
    Events(events::Options),
    /// Wait for the VM name before the kubelet starts
    ///
    /// Delays the first kubelet start until the node name matches the VM.
    #[command(after_help = gate::EXIT_STATUS)]
    Gate {
        /// Maximum time to wait, such as 90s or 2m
        #[arg(long, value_name = "TIME", default_value = "2m", value_parser = crate::config::parse_duration)]
        timeout: std::time::Duration,
        /// Write or remove the file with the labels for the kubelet, as root, and do not wait
        #[arg(long, conflicts_with = "timeout")]
        labels: bool,
    },
    /// Show which VM and host this node is
    #[command(after_help = whoami::EXIT_STATUS)]
    Whoami {
        /// `--strict`.
        #[arg(long, help = STRICT)]
        strict: bool,
    },
    /// Diagnose problems and print fixes
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(doctor::Options),
    /// Explain a finding
    #[command(after_help = explain::EXIT_STATUS)]
    Explain(explain::Options),
    /// Show or validate the configuration
    #[command(after_help = config::EXIT_STATUS)]
    Config {
        /// What to do with it
        #[command(subcommand)]
        action: config::ConfigAction,
    },
    /// Generate RBAC manifests for Harvester
    #[command(after_help = rbac::EXAMPLES)]
    Rbac(rbac::Options),
    /// Create a Harvester kubeconfig from a service account Secret
    ///
    /// Reads the Secret as JSON from standard input. `rbac --subject NAMESPACE:NAME --create-account` prints the manifest that creates it, as
    /// NAME-token.
    #[command(after_help = kubeconfig::EXAMPLES)]
    Kubeconfig(kubeconfig::Options),
    /// Check an OS image before release
    #[command(after_help = bake_check::EXIT_STATUS)]
    BakeCheck,
    /// Generate shell completions
    #[command(after_help = completions::EXIT_STATUS)]
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
}

/// What is shown of a path, in characters.
const PATH_MAX: usize = 500;

/// The width if none is known.
const WIDTH: usize = 80;

/// The maximum width: longer lines are hard to read, even on a wider terminal.
const WIDTH_MAX: usize = 120;

/// The minimum width: narrower tables are not readable.
const WIDTH_MIN: usize = 40;

/// Runs a command.
pub fn run(process: &Process, command: Command) -> Answer {
    let directory = process.root.join("/");
    if !directory.is_dir() {
        let name = one_line(&directory.to_string_lossy(), PATH_MAX).into_owned();
        let text = format!("error: --root {name}: not a directory\n");
        return Answer::stderr(text, Exit::Usage);
    }
    let is_text_only = matches!(
        command,
        Command::Run | Command::Gate { .. } | Command::Kubeconfig(_) | Command::Completions { .. }
    );
    if is_text_only && process.output != Output::Text {
        let text = "error: this command does not support this output format (-o)\n";
        return Answer::stderr(text, Exit::Usage);
    }
    match command {
        Command::Run => run::run(process),
        Command::Once { dry_run, strict } => once::run(process, dry_run, strict),
        Command::Gate { labels: true, .. } => gate::write_labels(process),
        Command::Gate { timeout, .. } => gate::run(process, timeout),
        Command::Doctor(options) => doctor::run(process, &options),
        Command::Whoami { strict } => whoami::run(process, strict),
        Command::Status(options) => status::run(process, &options),
        Command::Events(options) => events::run(process, options, &mut io::stdout()),
        Command::Explain(options) => explain::run(process, &options),
        Command::Config { action } => config::run(process, action),
        Command::Rbac(options) => rbac::run(process, options),
        Command::Kubeconfig(options) => kubeconfig::run(&process.root, &options, io::stdin()),
        Command::BakeCheck => bake_check::run(process),
        Command::Completions { shell } => completions::run(shell, Arguments::command()),
    }
}

/// Reports whether output is colored: on a terminal with color support, unless `NO_COLOR` is set (<https://no-color.org>).
pub fn color(is_terminal: bool, no_color: Option<&str>, term: Option<&str>) -> bool {
    let refused = no_color.is_some_and(|value| !value.is_empty()) || term == Some("dumb");
    is_terminal && !refused
}

/// Returns the line width: `COLUMNS`, or the width of the terminal.
pub fn width(columns: Option<&str>, terminal: Option<u16>) -> usize {
    let columns = columns.and_then(|columns| columns.parse().ok());
    let width = columns.or(terminal.map(usize::from)).unwrap_or(WIDTH);
    width.clamp(WIDTH_MIN, WIDTH_MAX)
}

/// Reports whether output has symbols of Unicode: only on a terminal whose locale supports it. The locale is the first of `LC_ALL`,
/// `LC_CTYPE` and `LANG` that is not empty (locale(7)).
pub fn unicode(is_terminal: bool, locale: [Option<&str>; 3]) -> bool {
    let mut names = locale.into_iter().flatten();
    let name = names.find(|name| !name.is_empty()).unwrap_or_default();
    let name = name.to_ascii_lowercase();
    is_terminal && (name.contains("utf-8") || name.contains("utf8"))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use clap::CommandFactory;
    use harvester_lab::expected::cases_are_expected;
    use serde_json::json;

    use super::*;
    use crate::access::testing::{Authority, harvester_kubeconfig, jwt, tree, write};
    use crate::config::tests::write_files;
    use crate::decide::fixtures::World;
    use crate::report::compose::Context;
    use crate::report::status::Status;
    use crate::report::status_file::STATUS_FILE;
    use crate::report::tests::round;
    use crate::sys::lock;
    use crate::sys::root::Root;

    /// Writes a Harvester kubeconfig with this token.
    fn write_token(root: &Root, token: &str) {
        let kubeconfig = harvester_kubeconfig(&Authority::new("ca"), token);
        write(root, "/etc/kubernetes/cloud-config", &kubeconfig);
    }

    /// The file has commands after `$ `, in trees with files, with a kubeconfig with a token, or with the lock of an agent. ` | grep ` is
    /// followed by a part of the lines of standard output that are compared.
    #[test]
    fn each_command_prints_the_expected_text_in_its_tree() {
        cases_are_expected("src/commands/cases.txt", |case| {
            let ((_dir, root), mut text) = (tree(), String::new());
            let mut held = None;
            for line in write_files(&root, case) {
                match line.split_once(' ').unwrap() {
                    ("token", token) => write_token(&root, token),
                    ("subject", name) => {
                        write_token(&root, &jwt(&json!({"sub": name}).to_string()));
                    }
                    ("published", state) => {
                        let mut status =
                            Status::new(&round(&World::new(), &[]), &Context::default());
                        state.clone_into(&mut status.labels.state);
                        write(&root, STATUS_FILE, &status.to_json().to_string());
                    }
                    ("running", since) => {
                        held = Some(lock::acquire(&root).unwrap());
                        let file = std::fs::File::open(root.join(lock::LOCK_FILE)).unwrap();
                        if since == "long" {
                            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
                        }
                    }
                    (start, command) => {
                        assert_eq!(start, "$", "{case}");
                        let (command, part) =
                            command.split_once(" | grep ").unwrap_or((command, ""));
                        let words = command.split(' ').map(|word| word.trim_matches('\''));
                        let arguments = Arguments::parse_from([""].into_iter().chain(words));
                        let process = Process {
                            config: arguments.config,
                            output: arguments.output,
                            ..Process::plain(root.clone())
                        };
                        let answer = super::run(&process, arguments.command);
                        let lines = answer.text.lines().filter(|line| line.contains(part));
                        text.extend(lines.map(|line| format!("{line}\n")));
                        text += &format!("{}exit {}\n", answer.stderr, answer.exit as u8);
                    }
                }
            }
            drop(held);
            assert!(!text.contains("CANARY"), "{text}");
            text.replace(&format!("process {}", std::process::id()), "process PID")
        });
    }

    #[test]
    fn the_path_of_the_tree_is_absolute() {
        // Commands with its paths are printed, for any directory.
        let tree = Arguments::parse_from(["", "--root=tree", "bake-check"]).root;
        assert!(tree.is_absolute() && tree.ends_with("tree"), "{tree:?}");
    }

    #[test]
    fn what_cannot_be_written_is_a_failure_and_a_reader_that_left_is_none() {
        let answer = || Answer::new("text", Exit::Ok);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let mut full = full.unwrap();
        let reported = answer().printed(&mut full);
        assert_eq!(reported.exit, Exit::Failed);
        assert!(reported.stderr.contains("No space"), "{}", reported.stderr);
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        let reported = answer().printed(&mut writer);
        assert_eq!((reported.exit, reported.stderr.as_str()), (Exit::Ok, ""));
    }

    #[test]
    fn color_needs_a_terminal_and_no_objection() {
        assert!(color(true, None, Some("xterm")));
        assert!(color(true, Some(""), None));
        assert!(!color(true, Some("1"), None));
        assert!(!color(true, None, Some("dumb")));
        assert!(!color(false, None, None));
    }

    #[test]
    fn lines_are_as_wide_as_the_terminal_within_reason() {
        for (columns, terminal, expected) in [
            (None, None, 80),
            (None, Some(100), 100),
            (Some("90"), Some(100), 90),
            (Some("many"), Some(100), 100),
            (None, Some(7), 40),
            (Some("1000"), None, 120),
        ] {
            let found = width(columns, terminal);
            assert_eq!(found, expected, "{columns:?} {terminal:?}");
        }
    }

    #[test]
    fn symbols_need_a_terminal_and_a_locale_that_has_them() {
        let utf8 = Some("C.UTF-8");
        assert!(unicode(true, [None, None, utf8]));
        assert!(unicode(true, [Some(""), Some("de_DE.utf8"), None]));
        assert!(!unicode(true, [Some("C"), utf8, utf8]));
        assert!(!unicode(true, [None, None, None]));
        assert!(!unicode(false, [utf8, utf8, utf8]));
    }

    #[test]
    fn the_help_of_each_command_fits_the_terminal_and_ends_with_its_exit_status() {
        Arguments::command().debug_assert();
        let mut command = Arguments::command().term_width(80);
        command.build();
        let (mut count, mut strict) = (0, Vec::new());
        for command in command.get_subcommands_mut() {
            let about = command.get_about().map(ToString::to_string);
            let about = about.unwrap_or_default();
            assert!(about.len() <= 60 && !about.ends_with('.'), "{about}");
            let help = command.render_long_help().to_string();
            let wide = help.lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None);
            if command.get_name() == "help" {
                continue;
            }
            assert!(help.contains("\nExit status: "), "{help}");
            let mut arguments = command.get_arguments();
            if arguments.any(|argument| argument.get_id() == "strict") {
                strict.push(command.get_name().to_owned());
            }
            let Some((_, examples)) = help.split_once("\nExamples:\n") else {
                continue;
            };
            let block = examples.split("\n\n").next().unwrap_or_default();
            let indent = |line: &str| line.len() - line.trim_start().len();
            let indents: Vec<usize> = block.lines().map(indent).collect();
            assert_eq!(indents[..2], [2, 4], "{block}");
            let is_known = indents.iter().all(|indent| [2, 4, 6].contains(indent));
            assert!(is_known, "{block}");
            count += 1;
        }
        assert_eq!(count, 5);
        // It is an option only where it does something.
        assert_eq!(strict, ["once", "status", "whoami", "doctor"]);
    }
}
