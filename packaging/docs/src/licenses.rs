// SPDX-License-Identifier: Apache-2.0
//! Lists every library that is linked into the agent, with its license and license texts.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Prefixes of the names of license files, in lower case.
const NAMES: &[&str] = &["licen", "copying", "copyright", "unlicense", "notice"];

/// Returns the file.
///
/// # Errors
///
/// Fails if cargo cannot be run, or if a library has no license text.
pub(crate) fn text() -> Result<String, Box<dyn Error>> {
    let homes = homes()?;
    let mut list = String::new();
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (library, license) in linked()? {
        let home = homes
            .get(&library)
            .ok_or_else(|| format!("cargo metadata does not know {library}"))?;
        let found = license_files(home)?;
        if found.is_empty() {
            return Err(format!("{library} has no license text in {}", home.display()).into());
        }
        writeln!(list, "  {library}: {license}")?;
        for text in found {
            texts.entry(text).or_default().insert(library.clone());
        }
    }
    let mut whole = format!(
        "harvester-node-agent is licensed under the Apache License, version 2.0. It contains the Rust standard library\n(MIT or \
         Apache-2.0, https://www.rust-lang.org) and these libraries (https://crates.io):\n\n{list}"
    );
    for (text, libraries) in texts {
        let libraries: Vec<String> = libraries.into_iter().collect();
        let line = "=".repeat(100);
        write!(
            whole,
            "\n{line}\n{}\n{line}\n\n{text}\n",
            libraries.join(", ")
        )?;
    }
    Ok(whole)
}

/// Returns name, version and license of the linked libraries, without build scripts and procedural macros.
fn linked() -> Result<BTreeSet<(String, String)>, Box<dyn Error>> {
    let tree = cargo(&[
        "tree",
        "--locked",
        "--package=harvester-node-agent",
        "--edges=normal,no-proc-macro",
        "--prefix=none",
        "--no-dedupe",
        "--format={p}\t{l}",
    ])?;
    let mut linked = BTreeSet::new();
    for line in tree.lines() {
        let (package, license) = line
            .split_once('\t')
            .ok_or("cargo tree prints no license")?;
        let mut words = package.split_whitespace();
        let (name, version) = (words.next(), words.next().and_then(|v| v.strip_prefix('v')));
        if let (Some(name), Some(version)) = (name, version)
            && name != "harvester-node-agent"
        {
            linked.insert((format!("{name} {version}"), license.to_owned()));
        }
    }
    Ok(linked)
}

/// Returns the source directory of each package.
fn homes() -> Result<BTreeMap<String, PathBuf>, Box<dyn Error>> {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--locked", "--format-version=1"])?)?;
    let text = |package: &Value, key: &str| package.get(key)?.as_str().map(str::to_owned);
    let packages = metadata.get("packages").and_then(Value::as_array);
    Ok(packages
        .into_iter()
        .flatten()
        .filter_map(|package| {
            let name = text(package, "name")?;
            let version = text(package, "version")?;
            let manifest = PathBuf::from(text(package, "manifest_path")?);
            Some((format!("{name} {version}"), manifest.parent()?.to_owned()))
        })
        .collect())
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

fn cargo(arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let output = Command::new("cargo")
        .args(arguments)
        .arg("--manifest-path")
        .arg(manifest)
        .output()?;
    if output.status.success() {
        Ok(String::from_utf8(output.stdout)?)
    } else {
        let complaint = String::from_utf8_lossy(&output.stderr);
        Err(format!("cargo {}: {complaint}", arguments.join(" ")).into())
    }
}
