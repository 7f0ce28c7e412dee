// SPDX-License-Identifier: Apache-2.0
//! Generates what packages ship with the agent from the agent's own definitions, so that a new command or configuration key is never
//! missing.
//!
//! `harvester-docs DIR DATE` writes into DIR: `man/` (one page for each command and for each page in `pages/`), `completions/`,
//! `third-party-licenses.txt` and the software bill of materials. DATE is printed in the footer of the pages. `harvester-docs recording TITLE` prints an SVG of the lines that it reads.

mod completions;
mod configuration;
mod libraries;
mod licenses;
mod manual;
mod pages;
mod recording;
mod sbom;

use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["recording", title] => record(title),
        [directory, date] if !directory.starts_with('-') => write_all(directory, date),
        _ => {
            eprintln!("usage: harvester-docs DIR DATE | recording TITLE");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("harvester-docs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn record(title: &str) -> Result<(), Box<dyn Error>> {
    let lines = io::read_to_string(io::stdin())?;
    print!("{}", recording::draw(title, &lines)?);
    Ok(())
}

fn write_all(directory: &str, date: &str) -> Result<(), Box<dyn Error>> {
    let directory = Path::new(directory);
    let mut files = manual::pages(date)?;
    files.extend(pages::all(date)?);
    files.extend(completions::scripts());
    let libraries = libraries::linked()?;
    let licenses = licenses::text(&libraries)?;
    files.push(("third-party-licenses.txt".into(), licenses));
    let sbom = sbom::document(&libraries, date);
    files.push(("harvester-node-agent.cdx.json".into(), sbom));
    for (name, text) in files {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap_or(directory))?;
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}
