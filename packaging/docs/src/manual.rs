// SPDX-License-Identifier: Apache-2.0
//! Generates one page for each command from the definition of the command line.

use std::io;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use harvester_node_agent::commands::{Arguments, Exit};
use roff::{Inline, Roff, bold, roman};

/// The entries of the section EXIT STATUS.
const EXIT_STATUS: &[(Exit, &str)] = &[
    (Exit::Ok, "Success."),
    (Exit::Failed, "A check failed."),
    (Exit::Usage, "Usage error."),
    (Exit::Warnings, "There are only warnings (with --strict)."),
    (Exit::NotKubevirt, "Not a KubeVirt virtual machine."),
    (
        Exit::TryAgain,
        "Temporary failure, such as an unreachable API or another running agent; try again.",
    ),
    (Exit::Configuration, "Invalid configuration."),
];

/// The entries of the section FILES.
const FILES: &[(&str, &str)] = &[
    (
        "/etc/harvester-node-agent/config.toml",
        "Configuration file; see harvester-node-agent.toml(5).",
    ),
    (
        "/etc/harvester-node-agent/hooks.d/STATE/",
        "Executables that run when a scheduled event enters the state; see harvester-node-agent-events(7).",
    ),
    (
        "/usr/lib/harvester-node-agent/config.d/10-defaults.toml",
        "All configuration keys with their defaults.",
    ),
    (
        "/run/harvester-node-agent/status.json",
        "Runtime status of the service; harvester-node-agent-status(1) prints it.",
    ),
    (
        "/var/lib/harvester-node-agent/",
        "Machine-specific state; exclude it from images.",
    ),
];

/// Returns the pages with their file names.
///
/// # Errors
///
/// Never in practice: the pages are written to memory.
pub(crate) fn pages(date: &str) -> io::Result<Vec<(String, String)>> {
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add(&command, date, &mut pages)?;
    Ok(pages)
}

fn add(command: &Command, date: &str, pages: &mut Vec<(String, String)>) -> io::Result<()> {
    let man = Man::new(
        command
            .clone()
            .subcommand_help_heading("COMMANDS")
            .subcommand_value_name("COMMAND"),
    )
    .date(date)
    .manual("Harvester node agent");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    let mut layout = Roff::new();
    wrap_at_words(&mut layout);
    layout.to_writer(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    rest(command).to_writer(&mut page)?;
    pages.push((
        format!("man/{}", man.get_filename()),
        String::from_utf8_lossy(&page).into_owned(),
    ));
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        add(sub, date, pages)?;
    }
    Ok(())
}

/// Returns the sections that the definition of a command does not provide.
fn rest(command: &Command) -> Roff {
    let is_main = command.get_display_name().is_none();
    let mut roff = Roff::new();
    if is_main {
        section(&mut roff, "EXIT STATUS");
        for (status, what) in EXIT_STATUS {
            entry(&mut roff, &(*status as i32).to_string(), what);
        }
        section(&mut roff, "ENVIRONMENT");
        entry(
            &mut roff,
            "NO_COLOR",
            "If set to a non-empty value, disables color, also on a terminal.",
        );
        section(&mut roff, "FILES");
        for (path, what) in FILES {
            entry(&mut roff, path, what);
        }
    } else {
        section(&mut roff, "EXIT STATUS");
        match exit_status(command) {
            Some(text) => roff.text([roman(text)]),
            None => roff.text([roman("See "), bold("harvester-node-agent"), roman("(1).")]),
        };
    }
    section(&mut roff, "SEE ALSO");
    let mut others = Vec::new();
    if !is_main {
        others.push(("harvester-node-agent", "(1), "));
    }
    others.push(("harvester-node-agent.toml", "(5), "));
    others.push(("journalctl", "(1)"));
    let names = others
        .into_iter()
        .flat_map(|(name, rest)| [bold(name), roman(rest)]);
    roff.text(names.collect::<Vec<Inline>>());
    roff
}

/// Returns the exit status of a command as its help has it, if it has.
fn exit_status(command: &Command) -> Option<String> {
    let help = command.get_after_help()?.to_string();
    let mut paragraphs = help.split("\n\n");
    let text = paragraphs.find_map(|text| text.strip_prefix("Exit status: "))?;
    Some(format!("{text}\n"))
}

/// Disables hyphenation and justification, because users copy commands and paths from a page.
pub(crate) fn wrap_at_words(roff: &mut Roff) {
    roff.control("nh", []);
    roff.control("ad", ["l"]);
}

fn section(roff: &mut Roff, title: &str) {
    roff.control("SH", [title]);
}

fn entry(roff: &mut Roff, name: &str, what: &str) {
    roff.control("TP", []);
    roff.text([bold(name)]);
    roff.text([roman(what)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_all_its_options() {
        let pages = pages("2026-01-01").unwrap();
        let page = |name: &str| {
            let file = format!("man/{name}.1");
            let found = pages.iter().find(|(name, _)| *name == file);
            found.map(|(_, text)| text.replace("\\-", "-")).expect(name)
        };
        page("harvester-node-agent-config-show");
        for command in Arguments::command().get_subcommands() {
            let text = page(&format!("harvester-node-agent-{}", command.get_name()));
            for argument in command.get_arguments() {
                let positional = argument.get_value_names().and_then(<[_]>::first);
                let name = argument
                    .get_long()
                    .or(positional.map(clap::builder::Str::as_str));
                let name = name.unwrap_or(argument.get_id().as_str());
                assert!(text.contains(name), "{}: {name}", command.get_name());
            }
        }
        assert!(page("harvester-node-agent").contains("--root"));
        assert!(page("harvester-node-agent-gate").contains("0 in any case"));
        assert!(page("harvester-node-agent-status").contains("75 the agent is not running"));
    }
}
