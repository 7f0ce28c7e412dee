// SPDX-License-Identifier: Apache-2.0
//! Makes what packages ship beside the agent, from the agent's own definitions: nothing here can be forgotten when a
//! command, a key of the configuration or a record of the journal is added.
//!
//! `harvester-docs DIR DATE` writes into DIR: `man/` (one page for each command, one for the configuration), `completions/`,
//! `harvester-node-agent.catalog` and `third-party-licences.txt`. DATE stands at the foot of the pages.

mod catalog;
mod completions;
mod configuration;
mod licences;
mod manual;
mod pages;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, date] = arguments.as_slice() else {
        eprintln!("usage: harvester-docs DIR DATE");
        return ExitCode::from(2);
    };
    match write_all(&PathBuf::from(directory), date) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("harvester-docs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_all(directory: &std::path::Path, date: &str) -> Result<(), Box<dyn Error>> {
    let mut files = manual::pages(date)?;
    files.push(configuration::page(date));
    files.extend(pages::all(date)?);
    files.extend(completions::scripts());
    files.push(("harvester-node-agent.catalog".into(), catalog::text()));
    files.push(("third-party-licences.txt".into(), licences::text()?));
    for (name, text) in files {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap_or(directory))?;
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}
