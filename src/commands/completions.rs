// SPDX-License-Identifier: Apache-2.0
//! `completions`: generates a shell completion script from the command line definition.

use clap::Command;
use clap_complete::{Shell, generate};

use super::answer::{Answer, Exit};

/// The text after the options in the help.
pub const EXIT_STATUS: &str = "Exit status: 0 ok; 2 usage error.";

/// Returns the script for a command line.
pub fn run(shell: Shell, mut command: Command) -> Answer {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    generate(shell, &mut command, name, &mut script);
    Answer::new(String::from_utf8_lossy(&script), Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Arguments;
    use clap::CommandFactory;

    #[test]
    fn every_shell_knows_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = run(shell, Arguments::command()).text;
            for command in Arguments::command().get_subcommands() {
                let name = command.get_name();
                assert!(script.contains(name), "{shell}: {name}");
            }
        }
    }
}
