// SPDX-License-Identifier: Apache-2.0
//! Parts of options that several commands have.

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::sys::escape::shell_path;

/// The help of `--strict`.
pub(super) const STRICT: &str = "Exit with status 3 if there are only warnings";

/// Returns the option for the only configuration file in a command, with a space; nothing for the default files.
pub(super) fn config_option(only: Option<&Path>) -> String {
    only.map(|file| format!("--config={} ", shell_path(file)))
        .unwrap_or_default()
}

/// The commands that examine the configuration of the command that names them.
const CONFIGURED: [&str; 3] = ["config check", "doctor", "whoami"];

/// Returns a text in which each such command reads the same file as this one. Not for what the service published: it may read another.
pub(super) fn with_config(text: &str, only: Option<&Path>) -> String {
    let command = |option, name| format!("harvester-node-agent {option}{name}");
    let option = &*config_option(only);
    CONFIGURED.iter().fold(text.to_owned(), |text, name| {
        text.replace(&command("", name), &command(option, name))
    })
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
            "harvester-node-agent config show",
        ] {
            assert_eq!(given(other), other);
        }
    }
}
