// SPDX-License-Identifier: Apache-2.0
//! `config show` and `config check`.

use clap::Subcommand;
use serde_json::json;

use super::answer::{Answer, Exit, Output};
use super::process::Process;
use crate::config::{self, show};
use crate::report::text::many;
use crate::sys::escape::json_text;

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
pub fn run(process: &Process, action: ConfigAction) -> Answer {
    let output = process.output;
    let mut loaded = match config::load(&process.root, process.config.as_deref()) {
        Ok(loaded) => loaded,
        Err(errors) if output == Output::Json && matches!(action, ConfigAction::Check) => {
            let errors: Vec<String> = errors.lines().collect();
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
    // A file that sets the default changes nothing.
    let is_changed_only = matches!(action, ConfigAction::Show { changed: true });
    loaded
        .values
        .retain(|value| !is_changed_only || !value.is_default);
    let text = match (action, output) {
        (ConfigAction::Show { .. }, Output::Text) => show::text(&loaded.values),
        (ConfigAction::Show { .. }, Output::Json) => json_text(&show::json(&loaded.values)),
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
            count => format!("configuration OK ({})\n", many(count, "file")),
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
