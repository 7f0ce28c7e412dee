// SPDX-License-Identifier: Apache-2.0
//! Finds the libraries that are linked into the agent.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

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

/// What `cargo metadata` or `Cargo.lock` lists.
#[derive(Debug, Deserialize)]
struct Packages {
    #[serde(alias = "package")]
    packages: Vec<Package>,
}

/// A package: the license and the manifest from `cargo metadata`, the checksum from `Cargo.lock`.
#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    manifest_path: Option<PathBuf>,
    checksum: Option<String>,
}

impl Packages {
    fn find(&self, name: &str, version: &str) -> Option<&Package> {
        let mut packages = self.packages.iter();
        packages.find(|package| package.name == name && package.version == version)
    }
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
        "--format={p}",
    ])?;
    let metadata = cargo(&["metadata", "--locked", "--format-version=1"])?;
    let metadata: Packages = serde_json::from_str(&metadata)?;
    let lock: Packages = toml::from_str(&fs::read_to_string(checkout().join("Cargo.lock"))?)?;
    let mut linked = Vec::new();
    for line in tree.lines() {
        let package = line.split_once(" v");
        let Some((name, version)) = package.filter(|(name, _)| *name != "harvester-node-agent")
        else {
            continue;
        };
        let unknown = |what: &str| format!("{what} does not know {name} {version}");
        let known = metadata.find(name, version).and_then(|package| {
            let home = package.manifest_path.as_ref()?.parent()?;
            Some((package.license.as_ref()?, home))
        });
        let (license, home) = known.ok_or_else(|| unknown("cargo metadata"))?;
        let locked = lock.find(name, version);
        let checksum = locked.and_then(|package| package.checksum.clone());
        linked.push(Library {
            name: name.to_owned(),
            version: version.to_owned(),
            // Older packages separate alternatives with a slash.
            license: license.replace('/', " OR "),
            home: home.to_owned(),
            checksum: checksum.ok_or_else(|| unknown("Cargo.lock"))?,
        });
    }
    linked.sort();
    linked.dedup();
    Ok(linked)
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
