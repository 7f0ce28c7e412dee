// SPDX-License-Identifier: Apache-2.0
//! `config show` and `config check`.

use std::path::Path;

use clap::Subcommand;
use serde_json::json;

use super::answer::{Answer, Exit, Output};
use crate::config::{self, show};
use crate::report::text::many;
use crate::sys::escape::json_text;
use crate::sys::root::Root;

/// The text after the options in the help.
pub const EXIT_STATUS: &str = "Exit status: 0 ok; 2 usage error; 78 invalid configuration.";

/// What to do with the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum ConfigAction {
    /// Print every value and its origin
    Show {
        /// Print only values that differ from the default
        #[arg(long)]
        changed: bool,
    },
    /// Validate the configuration
    Check,
}

/// Returns the effective configuration with the origin of each value, or every error in it.
pub fn run(root: &Root, only: Option<&Path>, action: ConfigAction, output: Output) -> Answer {
    let loaded = match config::load(root, only) {
        Ok(loaded) => loaded,
        Err(errors) if output == Output::Json && matches!(action, ConfigAction::Check) => {
            let errors: Vec<String> = errors.problems.iter().map(ToString::to_string).collect();
            let document = json!({"valid": false, "errors": errors});
            return Answer::new(json_text(&document), Exit::Configuration);
        }
        Err(errors) => {
            let mut text = format!("{errors}\n");
            let count = errors.problems.len();
            if count > 1 {
                text.push_str(&format!("{}\n", many(count, "error")));
            }
            return Answer::stderr(text, Exit::Configuration);
        }
    };
    let shown = |changed| show::selected(loaded.values, changed);
    let text = match (action, output) {
        (ConfigAction::Show { changed }, Output::Text) => show::text(&shown(changed)),
        (ConfigAction::Show { changed }, Output::Json) => json_text(&show::json(&shown(changed))),
        (ConfigAction::Check, Output::Json) => {
            let files: Vec<String> = loaded
                .files
                .iter()
                .map(|file| file.display().to_string())
                .collect();
            json_text(&json!({"valid": true, "files": files, "errors": []}))
        }
        (ConfigAction::Check, _) => match loaded.files.len() {
            0 => "configuration OK (no files, defaults only)\n".to_owned(),
            1 => "configuration OK (1 file)\n".to_owned(),
            count => format!("configuration OK ({count} files)\n"),
        },
    };
    let warnings = loaded
        .warnings
        .iter()
        .map(|warning| format!("{warning}\n"))
        .collect();
    Answer {
        text,
        stderr: warnings,
        exit: Exit::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_errors_are_counted_below_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = Path::new("/a.toml");
        let said = |content: &str| {
            std::fs::write(dir.path().join("a.toml"), content).unwrap();
            let root = Root::new(dir.path());
            run(&root, Some(file), ConfigAction::Check, Output::Text).stderr
        };
        assert_eq!(said("watch = 1").lines().count(), 1);
        let two = said("watch = 1\nlog.level = 'x'");
        assert_eq!(two.lines().count(), 3, "{two}");
        assert!(two.ends_with("\n2 errors\n"), "{two}");
    }
}
