// SPDX-License-Identifier: Apache-2.0
//! `config show` and `config check`.

use clap::Subcommand;
use serde_json::json;

use super::answer::{Answer, Exit, Output};
use super::process::Process;
use crate::config::{self, LoadedConfig, show};
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
    let loaded = config::load(&process.root, process.config.as_deref());
    let warnings = match &loaded {
        Ok(loaded) => &loaded.warnings,
        Err(errors) => &errors.warnings,
    };
    let warnings = warnings.iter().map(|text| format!("warning: {text}\n"));
    let warnings: String = warnings.collect();
    let (text, exit) = match loaded {
        Ok(loaded) => (valid(loaded, action, output), Exit::Ok),
        Err(errors) if output == Output::Json && action == ConfigAction::Check => {
            let errors: Vec<String> = errors.lines().collect();
            let document = json!({"valid": false, "errors": errors});
            (json_text(&document), Exit::Configuration)
        }
        Err(errors) => {
            let count = match errors.problems.len() {
                1 => String::new(),
                count => many(count, "error") + "\n",
            };
            return Answer::stderr(format!("{errors}\n{count}{warnings}"), Exit::Configuration);
        }
    };
    Answer {
        text,
        stderr: warnings,
        exit,
    }
}

/// Returns what is printed of a valid configuration.
fn valid(mut loaded: LoadedConfig, action: ConfigAction, output: Output) -> String {
    if action == (ConfigAction::Show { changed: true }) {
        // A file that sets the default changes nothing.
        loaded.values.retain(|value| !value.is_default);
    }
    match (action, output) {
        (ConfigAction::Show { .. }, Output::Text) => show::text(&loaded.values),
        (ConfigAction::Show { .. }, Output::Json) => json_text(&show::json(&loaded.values)),
        (ConfigAction::Check, Output::Json) => {
            let files = loaded.files.iter();
            let files: Vec<String> = files.map(|file| file.display().to_string()).collect();
            json_text(&json!({"valid": true, "files": files, "errors": []}))
        }
        (ConfigAction::Check, _) => match loaded.files.len() {
            0 => "configuration OK (no files, defaults only)\n".to_owned(),
            count => format!("configuration OK ({})\n", many(count, "file")),
        },
    }
}
