// SPDX-License-Identifier: Apache-2.0
//! The process: reads its command line and environment, runs one command, ends with its exit code.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use harvester_node_agent::agent::Mode;
use harvester_node_agent::cli::run::{Process, Task, run};
use harvester_node_agent::cli::{self, Answer, Arguments, Command, Strictness};
use harvester_node_agent::logging;
use harvester_node_agent::report::diagnosis::Dress;
use harvester_node_agent::report::sink::StderrStyle;
use harvester_node_agent::root::Root;

fn main() -> ExitCode {
    logging::install_panic_hook(StderrStyle::Plain);
    let arguments = Arguments::parse();
    // Of every command: each may read a credential. Where it is refused, nothing is lost but that.
    let _ = logging::deny_core_dumps();
    let answer = dispatch(arguments).printed(&mut std::io::stdout());
    let _ = std::io::stderr().write_all(answer.complaint.as_bytes());
    ExitCode::from(answer.exit as u8)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the environment"
)]
fn dispatch(arguments: Arguments) -> Answer {
    let no_color = std::env::var("NO_COLOR").ok();
    let is_terminal = std::io::stdout().is_terminal();
    let [term, columns] = ["TERM", "COLUMNS"].map(|name| std::env::var(name).ok());
    let style = cli::style(is_terminal, no_color.as_deref(), term.as_deref());
    let columns = cli::columns(is_terminal, columns.as_deref());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(|name| std::env::var(name).ok());
    let locale = locale.each_ref().map(Option::as_deref);
    let symbols = cli::symbols(is_terminal, locale);
    let root = Root::new(arguments.root);
    // A path from the working directory is the caller's; inside the root there is no such directory.
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    let config = arguments.config.map(absolute);
    let process = Process {
        root,
        config,
        output: arguments.output,
        style,
        dress: Dress {
            style,
            symbols,
            columns,
        },
        strictness: if arguments.strict {
            Strictness::Strict
        } else {
            Strictness::Lenient
        },
        journal_stream: std::env::var("JOURNAL_STREAM").ok(),
        no_color,
        notify_socket: std::env::var_os("NOTIFY_SOCKET"),
        watchdog_usec: std::env::var("WATCHDOG_USEC").ok(),
        watchdog_pid: std::env::var("WATCHDOG_PID").ok(),
        system_bus_address: std::env::var("DBUS_SYSTEM_BUS_ADDRESS").ok(),
    };
    match arguments.command {
        Command::Run => run(&process, Task::Serve),
        Command::Once { dry_run } => run(
            &process,
            Task::Once(if dry_run { Mode::DryRun } else { Mode::Write }),
        ),
        Command::Gate {
            make_directories: true,
            ..
        } => cli::gate::make_directories(&process),
        Command::Gate { timeout, .. } => cli::gate::run(&process, timeout),
        Command::Doctor(options) => cli::doctor::run(&process, &options),
        Command::Whoami => run(&process, Task::Whoami),
        Command::Status => cli::status::run(
            &process.root,
            process.output,
            process.style,
            process.strictness,
        ),
        Command::Explain(options) => {
            cli::explain::run(&options, process.output, process.dress.term())
        }
        Command::Config { action } => cli::config::run(
            &process.root,
            process.config.as_deref(),
            action,
            process.output,
        ),
        Command::Rbac(mut options) => {
            options.credential = options.credential.map(absolute);
            let config = process.config.as_deref();
            cli::rbac::run(&process.root, config, options, process.output)
        }
        Command::BakeCheck => {
            cli::bake_check::run(&process.root, process.config.as_deref(), process.output)
        }
        Command::Completions { shell } => cli::completions::run(shell),
    }
}
