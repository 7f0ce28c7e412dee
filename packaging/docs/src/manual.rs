// SPDX-License-Identifier: Apache-2.0
//! Generates one page for each command from the definition of the command line.

use std::io;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use harvester_node_agent::commands::Arguments;
use roff::Roff;

use crate::pages;

/// The end of the main page, as Markdown.
const MAIN: &str = include_str!("manual.md");

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
    let named = command.clone().subcommand_help_heading("COMMANDS");
    let named = named.subcommand_value_name("COMMAND");
    let man = Man::new(named).date(date).manual("Harvester node agent");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    pages::layout(Roff::new()).to_writer(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    pages::append(Roff::new(), &rest(command)).to_writer(&mut page)?;
    let text = String::from_utf8_lossy(&page).into_owned();
    pages.push((format!("man/{}", man.get_filename()), text));
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        add(sub, date, pages)?;
    }
    Ok(())
}

/// Returns the sections that the definition of a command does not provide, as Markdown.
fn rest(command: &Command) -> String {
    if command.get_display_name().is_none() {
        return MAIN.to_owned();
    }
    let status = exit_status(command);
    let status = status.unwrap_or_else(|| "See `harvester-node-agent`(1).".to_owned());
    format!(
        "## Exit status\n\n{status}\n\n## See also\n\n\
         `harvester-node-agent`(1), `harvester-node-agent.toml`(5), `journalctl`(1)\n"
    )
}

/// Returns the exit status of a command as its help has it, if it has.
fn exit_status(command: &Command) -> Option<String> {
    let help = command.get_after_help()?.to_string();
    let mut paragraphs = help.split("\n\n");
    let text = paragraphs.find_map(|text| text.strip_prefix("Exit status: "))?;
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use harvester_node_agent::commands::Exit;

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
        let main = page("harvester-node-agent");
        assert!(main.contains("--root"));
        for (file, _) in pages::all("2026-01-01").unwrap() {
            let (name, section) = file.trim_start_matches("man/").rsplit_once('.').unwrap();
            assert!(
                main.contains(&format!("\\fB{name}\\fR({section})")),
                "{file}"
            );
        }
        for status in [
            Exit::Ok,
            Exit::Failed,
            Exit::Usage,
            Exit::Warnings,
            Exit::NotKubevirt,
            Exit::TryAgain,
            Exit::Configuration,
        ] {
            assert!(main.contains(&format!(".TP\n\\fB{}\\fR\n", status as i32)));
        }
        assert!(page("harvester-node-agent-gate").contains("0 in any case"));
        assert!(page("harvester-node-agent-status").contains("75 the agent is not running"));
    }
}
