// SPDX-License-Identifier: Apache-2.0
//! Lists every library that is linked into the agent, with its license and license texts.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::libraries::Library;

/// Prefixes of the names of license files, in lower case.
const NAMES: &[&str] = &["licen", "copying", "copyright", "unlicense", "notice"];

/// Returns the file.
///
/// # Errors
///
/// Fails if a library has no license text.
pub(crate) fn text(libraries: &[Library]) -> Result<String, Box<dyn Error>> {
    let mut list = String::new();
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for library in libraries {
        let name = format!("{} {}", library.name, library.version);
        let found = license_files(&library.home)?;
        if found.is_empty() {
            return Err(format!("{name} has no license text in {}", library.home.display()).into());
        }
        writeln!(list, "  {name}: {}", library.license)?;
        for text in found {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    let mut whole = format!(
        "harvester-node-agent is licensed under the Apache License, version 2.0. It contains the Rust standard library\n(MIT or \
         Apache-2.0, https://www.rust-lang.org) and these libraries (https://crates.io):\n\n{list}"
    );
    for (text, libraries) in texts {
        let names = Vec::from_iter(libraries).join(", ");
        let line = "=".repeat(100);
        write!(whole, "\n{line}\n{names}\n{line}\n\n{text}\n")?;
    }
    Ok(whole)
}

/// Returns the license texts of a package, normalized so that equal texts are listed once.
fn license_files(home: &Path) -> Result<BTreeSet<String>, Box<dyn Error>> {
    let mut texts = BTreeSet::new();
    for entry in fs::read_dir(home)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        if entry.file_type()?.is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            let text = fs::read_to_string(entry.path())?;
            let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
            texts.insert(lines.join("\n").trim_matches('\n').to_owned());
        }
    }
    Ok(texts)
}
