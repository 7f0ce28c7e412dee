// SPDX-License-Identifier: Apache-2.0
//! The crates: each is used, and has a license and a source that `.cargo/deny.toml` allows.

use std::process::Command;

use toml::{Table, Value};

use super::{product_files, read, top};

fn table(path: &str) -> Table {
    read(path).parse().unwrap()
}

/// Returns the elements of an array below two tables.
fn list<'a>(table: &'a Table, keys: [&str; 2]) -> impl Iterator<Item = &'a Value> {
    table[keys[0]][keys[1]].as_array().unwrap().iter()
}

#[test]
fn each_linked_crate_has_an_allowed_license() {
    let rules = table(".cargo/deny.toml");
    let allowed = list(&rules, ["licenses", "allow"]).filter_map(Value::as_str);
    let allowed: Vec<&str> = allowed.collect();
    let output = Command::new(env!("CARGO"))
        .args("tree --locked --offline --package=harvester-node-agent".split(' '))
        .args("--edges=normal,build --prefix=none --format={p}\t{l}".split(' '))
        .current_dir(top())
        .output()
        .unwrap();
    let crates = String::from_utf8(output.stdout).unwrap();
    assert!(crates.lines().count() > 100, "{:?}", output.stderr);
    for (name, license) in crates.lines().filter_map(|line| line.split_once('\t')) {
        // Older crates write a slash. To read alternatives before `AND`, whatever the parentheses, allows nothing more.
        let license = license.trim_end_matches(" (*)").replace('/', " OR ");
        let license = license.replace(['(', ')'], "");
        let mut parts = license.split(" AND ");
        let is_allowed = parts.all(|part| part.split(" OR ").any(|one| allowed.contains(&one)));
        assert!(is_allowed, "{name}: {license}");
    }
}

#[test]
fn each_crate_is_from_crates_io_in_a_set_version_and_none_is_banned() {
    let rules = table(".cargo/deny.toml");
    let lock = table("Cargo.lock");
    let crates_io = "registry+https://github.com/rust-lang/crates.io-index";
    for package in lock["package"].as_array().unwrap() {
        let banned = list(&rules, ["bans", "deny"]).find(|row| row["crate"] == package["name"]);
        assert_eq!(banned, None);
        let source = package.get("source").and_then(Value::as_str);
        assert!(source.is_none_or(|one| one == crates_io), "{package:?}");
    }
    let manifest = table("Cargo.toml");
    let members = list(&manifest, ["workspace", "members"]).map(|member| member.as_str().unwrap());
    for folder in members.chain(["."]) {
        let text = read(&format!("{folder}/Cargo.toml"));
        assert!(!text.contains("= \"*\""), "{folder}: any version");
    }
}

#[test]
fn every_library_is_used() {
    let manifest = table("Cargo.toml");
    let code: String = product_files().iter().map(|file| read(file)).collect();
    for name in manifest["dependencies"].as_table().unwrap().keys() {
        let path = format!("{}::", name.replace('-', "_"));
        assert!(code.contains(&path), "{name}");
    }
}
