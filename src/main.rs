// SPDX-License-Identifier: Apache-2.0
//! The entry point: parses the command line and environment, runs one command, and exits with its exit code.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use harvester_node_agent::agent::Mode;
use harvester_node_agent::commands::run::{Process, Task, run};
use harvester_node_agent::commands::status::Waited;
use harvester_node_agent::commands::{self, Answer, Arguments, Command, Exit, Strictness};
use harvester_node_agent::report::logging;
use harvester_node_agent::report::sink::StderrStyle;
use harvester_node_agent::report::text::TermStyle;
use harvester_node_agent::sys::escape;
use harvester_node_agent::sys::root::Root;

/// What is shown of a path, in characters.
const PATH_MAX: usize = 500;

fn main() -> ExitCode {
    logging::install_panic_hook(StderrStyle::Plain);
    let width = width();
    let matches = Arguments::command().term_width(width).get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // For all commands: each may read a credential. If the kernel rejects this, the agent continues without it.
    let _ = logging::deny_core_dumps();
    let answer = dispatch(arguments, width).printed(&mut std::io::stdout());
    let _ = std::io::stderr().write_all(answer.stderr.as_bytes());
    ExitCode::from(answer.exit as u8)
}

/// Returns the width of the output.
#[expect(
    clippy::disallowed_methods,
    reason = "the environment is read in this file alone"
)]
fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok();
    let terminal = terminal_size::terminal_size_of(std::io::stdout());
    commands::width(
        columns.as_deref(),
        terminal.map(|(terminal_size::Width(width), _)| width),
    )
}

/// Returns the value of `--strict`; lenient for commands without it.
fn strictness(command: &Command) -> Strictness {
    match command {
        Command::Once { strict, .. } | Command::Whoami(strict) => (*strict).into(),
        Command::Status(options) => options.strict.into(),
        Command::Doctor(options) => options.strict.into(),
        _ => Strictness::Lenient,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the environment"
)]
fn dispatch(arguments: Arguments, width: usize) -> Answer {
    let no_color = std::env::var("NO_COLOR").ok();
    let is_terminal = std::io::stdout().is_terminal();
    let term = std::env::var("TERM").ok();
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(|name| std::env::var(name).ok());
    let locale = locale.each_ref().map(Option::as_deref);
    if !arguments.root.is_dir() {
        let name = escape::one_line(&arguments.root.to_string_lossy(), PATH_MAX).into_owned();
        return Answer::stderr(
            format!("error: --root {name}: not a directory\n"),
            Exit::Usage,
        );
    }
    if !arguments.command.has_format(arguments.output) {
        return Answer::stderr(
            "error: this command does not support this output format (-o)\n",
            Exit::Usage,
        );
    }
    let root = Root::new(arguments.root);
    // A relative path is relative to the caller's working directory, which does not exist inside the root.
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    let config = arguments.config.map(absolute);
    let process = Process {
        root,
        config,
        output: arguments.output,
        term: TermStyle {
            color: commands::color(is_terminal, no_color.as_deref(), term.as_deref()),
            charset: commands::charset(is_terminal, locale),
            width,
        },
        is_verbose: arguments.verbose,
        strictness: strictness(&arguments.command),
        journal_stream: std::env::var("JOURNAL_STREAM").ok(),
        no_color,
        notify_socket: std::env::var_os("NOTIFY_SOCKET"),
        watchdog_usec: std::env::var("WATCHDOG_USEC").ok(),
        watchdog_pid: std::env::var("WATCHDOG_PID").ok(),
        system_bus_address: std::env::var("DBUS_SYSTEM_BUS_ADDRESS").ok(),
    };
    match arguments.command {
        Command::Run => run(&process, Task::Serve),
        Command::Once { dry_run, .. } => run(
            &process,
            Task::Once(if dry_run { Mode::DryRun } else { Mode::Write }),
        ),
        Command::Gate {
            make_directories: true,
            ..
        } => commands::gate::make_directories(&process),
        Command::Gate { timeout, .. } => commands::gate::run(&process, timeout),
        Command::Doctor(options) => commands::doctor::run(&process, &options),
        Command::Whoami(_) => run(&process, Task::Whoami),
        Command::Status(options) => {
            let waited = match options.wait {
                Some(limit) => commands::status::wait(&process.root, limit),
                None => Waited::Final,
            };
            commands::status::run(
                &process.root,
                process.config.as_deref(),
                process.output,
                process.show(time::UtcDateTime::now()),
                process.strictness,
                &waited,
            )
        }
        Command::Events(options) => commands::events::run(
            &process.root,
            options,
            process.output,
            &mut std::io::stdout(),
        ),
        Command::Explain(options) => {
            let show = process.show(time::UtcDateTime::now());
            commands::explain::run(&options, process.output, show)
        }
        Command::Config { action } => commands::config::run(
            &process.root,
            process.config.as_deref(),
            action,
            process.output,
        ),
        Command::Rbac(options) => commands::rbac::run(
            &process.root,
            process.config.as_deref(),
            options,
            process.output,
        ),
        Command::Kubeconfig(mut options) => {
            options.write = options.write.map(absolute);
            commands::kubeconfig::run(&process.root, &options, std::io::stdin())
        }
        Command::BakeCheck => {
            let config = process.config.as_deref();
            commands::bake_check::run(&process.root, config, process.output, process.term)
        }
        Command::Completions { shell } => commands::completions::run(shell),
    }
}
