// SPDX-License-Identifier: Apache-2.0
//! Parts of options that several commands have.

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::report::problem::Problem;
use crate::sys::escape::shell_path;

/// The help of `--strict`.
pub(super) const STRICT: &str = "Exit with status 3 if there are only warnings";

/// Returns the option for the only configuration file in a command, with a space; nothing for the default files.
pub(super) fn config_option(only: Option<&Path>) -> String {
    only.map(|file| format!("--config={} ", shell_path(file)))
        .unwrap_or_default()
}

/// The commands of this program that depend on the configuration.
const CONFIGURED: [&str; 5] = ["config ", "doctor", "once", "rbac", "whoami"];

/// Returns a text in which each command of this program that depends on the configuration reads the same file as this one.
pub(super) fn with_config(text: &str, only: Option<&Path>) -> String {
    let command = |option, name| format!("harvester-node-agent {option}{name}");
    let option = &*config_option(only);
    CONFIGURED.iter().fold(text.to_owned(), |text, name| {
        text.replace(&command("", name), &command(option, name))
    })
}

/// Does the same in the steps and commands of problems.
pub(super) fn carry_config<'a>(
    problems: impl IntoIterator<Item = &'a mut Problem>,
    only: Option<&Path>,
) {
    for problem in problems {
        for step in &mut problem.fix {
            *step = with_config(step, only);
        }
        for command in &mut problem.commands {
            command.text = with_config(&command.text, only).into();
        }
    }
}

/// Parses a path that is relative to the caller's working directory, which does not exist inside the root.
pub(super) fn outer_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(std::path::absolute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_command_reads_the_same_configuration() {
        let given = |text: &str| with_config(text, Some(Path::new("/a b.toml")));
        let told = "run: harvester-node-agent config check, or `harvester-node-agent doctor`";
        let expected = "run: harvester-node-agent --config='/a b.toml' config check, or \
                        `harvester-node-agent --config='/a b.toml' doctor`";
        assert_eq!(given(told), expected);
        assert_eq!(given(expected), expected);
        assert_eq!(with_config(told, None), told);
        for other in [
            "journalctl -u harvester-node-agent",
            "/etc/harvester-node-agent/config.toml",
            "harvester-node-agent status -v",
        ] {
            assert_eq!(given(other), other);
        }
    }
}
