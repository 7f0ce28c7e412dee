// SPDX-License-Identifier: Apache-2.0
//! Finds the libraries that are linked into the agent.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A library that is linked into the agent. Build scripts and procedural macros are not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Library {
    /// Its name on crates.io.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// Its license, an SPDX expression.
    pub(crate) license: String,
    /// The directory of its sources.
    pub(crate) home: PathBuf,
    /// SHA-256 of its package, in hexadecimal, as recorded in `Cargo.lock`.
    pub(crate) checksum: String,
}

/// Returns the linked libraries, by name and version.
///
/// # Errors
///
/// Fails if cargo cannot be run, or if `Cargo.lock` cannot be read.
pub(crate) fn linked() -> Result<Vec<Library>, Box<dyn Error>> {
    let tree = cargo(&[
        "tree",
        "--locked",
        "--package=harvester-node-agent",
        "--edges=normal,no-proc-macro",
        "--prefix=none",
        "--no-dedupe",
        "--format={p}\t{l}",
    ])?;
    let homes = homes()?;
    let checksums = checksums()?;
    let mut linked = Vec::new();
    for line in tree.lines() {
        let (package, license) = line
            .split_once('\t')
            .ok_or("cargo tree prints no license")?;
        let mut words = package.split_whitespace();
        let (name, version) = (words.next(), words.next().and_then(|v| v.strip_prefix('v')));
        let (Some(name), Some(version)) = (name, version) else {
            continue;
        };
        if name == "harvester-node-agent" {
            continue;
        }
        let key = (name.to_owned(), version.to_owned());
        let unknown = |what: &str| format!("{what} does not know {name} {version}");
        linked.push(Library {
            home: homes
                .get(&key)
                .ok_or_else(|| unknown("cargo metadata"))?
                .clone(),
            checksum: checksums
                .get(&key)
                .ok_or_else(|| unknown("Cargo.lock"))?
                .clone(),
            name: key.0,
            version: key.1,
            // Older packages separate alternatives with a slash.
            license: license.replace('/', " OR "),
        });
    }
    linked.sort();
    linked.dedup();
    Ok(linked)
}

type Key = (String, String);

/// Returns the source directory of each package.
fn homes() -> Result<BTreeMap<Key, PathBuf>, Box<dyn Error>> {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--locked", "--format-version=1"])?)?;
    let text = |package: &Value, key: &str| package.get(key)?.as_str().map(str::to_owned);
    let packages = metadata.get("packages").and_then(Value::as_array);
    Ok(packages
        .into_iter()
        .flatten()
        .filter_map(|package| {
            let manifest = PathBuf::from(text(package, "manifest_path")?);
            let home = manifest.parent()?.to_owned();
            Some(((text(package, "name")?, text(package, "version")?), home))
        })
        .collect())
}

/// Returns the checksum of each package of a registry.
fn checksums() -> Result<BTreeMap<Key, String>, Box<dyn Error>> {
    let path = checkout().join("Cargo.lock");
    let lock: toml::Table = toml::from_str(&std::fs::read_to_string(path)?)?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    Ok(packages
        .into_iter()
        .flatten()
        .filter_map(|package| {
            let text = |key: &str| package.get(key)?.as_str().map(str::to_owned);
            Some(((text("name")?, text("version")?), text("checksum")?))
        })
        .collect())
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn cargo(arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let output = Command::new("cargo")
        .args(arguments)
        .arg("--manifest-path")
        .arg(checkout().join("Cargo.toml"))
        .output()?;
    if output.status.success() {
        Ok(String::from_utf8(output.stdout)?)
    } else {
        let complaint = String::from_utf8_lossy(&output.stderr);
        Err(format!("cargo {}: {complaint}", arguments.join(" ")).into())
    }
}
