// SPDX-License-Identifier: Apache-2.0
//! The entry point: reads the command line and the environment, runs one command, and exits with its exit code.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use harvester_node_agent::commands::{self, Arguments, Process};
use harvester_node_agent::report::logging;
use harvester_node_agent::report::systemd::NotifyEnvironment;
use harvester_node_agent::report::text::TermStyle;
use harvester_node_agent::sys::root::Root;

fn main() -> ExitCode {
    logging::install_panic_hook();
    let terminal = terminal_size::terminal_size_of(stdout());
    let terminal = terminal.map(|(terminal_size::Width(width), _)| width);
    let width = commands::width(variable("COLUMNS").as_deref(), terminal);
    let matches = Arguments::command().term_width(width).get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // For all commands: each may read a credential. If the kernel rejects this, the agent continues without it.
    let _ = logging::deny_core_dumps();
    let is_terminal = stdout().is_terminal();
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(variable);
    let process = Process {
        root: Root::new(arguments.root),
        config: arguments.config,
        output: arguments.output,
        term: TermStyle {
            color: commands::color(
                is_terminal,
                variable("NO_COLOR").as_deref(),
                variable("TERM").as_deref(),
            ),
            unicode: commands::unicode(is_terminal, locale.each_ref().map(Option::as_deref)),
            width,
        },
        is_verbose: arguments.verbose,
        has_journal_stream: variable("JOURNAL_STREAM").is_some(),
        notify: NotifyEnvironment {
            notify_socket: std::env::var_os("NOTIFY_SOCKET"),
            watchdog_usec: variable("WATCHDOG_USEC"),
            watchdog_pid: variable("WATCHDOG_PID"),
        },
        system_bus_address: variable("DBUS_SYSTEM_BUS_ADDRESS"),
    };
    let answer = commands::run(&process, arguments.command).printed(&mut stdout());
    let _ = stderr().write_all(answer.stderr.as_bytes());
    ExitCode::from(answer.exit as u8)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the environment is read in this file alone"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
