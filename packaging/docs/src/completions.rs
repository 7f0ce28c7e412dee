// SPDX-License-Identifier: Apache-2.0
//! Generates completions for the shells whose directories distributions agree on, as the agent's own command prints them.

use clap::CommandFactory;
use clap_complete::Shell;
use harvester_node_agent::commands;

/// Returns the script of each shell, under the name that the shell searches for.
pub(crate) fn scripts() -> Vec<(String, String)> {
    [
        (Shell::Bash, "harvester-node-agent"),
        (Shell::Zsh, "_harvester-node-agent"),
        (Shell::Fish, "harvester-node-agent.fish"),
    ]
    .into_iter()
    .map(|(shell, name)| {
        let script = commands::completions::run(shell, commands::Arguments::command()).text;
        (format!("completions/{name}"), script)
    })
    .collect()
}
