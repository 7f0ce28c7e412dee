// SPDX-License-Identifier: Apache-2.0
//! Generates the page of the configuration file: every row of the agent's table of keys, with the comments of the shipped defaults.

use std::collections::BTreeMap;

use harvester_node_agent::config::{KEYS, Key};
use roff::{Roff, bold, italic, roman};

use crate::manual;

/// The file that documents every key.
const DEFAULTS: &str = include_str!("../../config.d/10-defaults.toml");

const NAME: &str = "harvester-node-agent.toml";

/// Returns the page with its file name.
pub(crate) fn page(date: &str) -> (String, String) {
    let comments = comments(DEFAULTS);
    let mut roff = Roff::new();
    roff.control("TH", [NAME, "5", date, "", "Harvester node agent"]);
    manual::wrap_at_words(&mut roff);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!(
        "{NAME} - configuration of the Harvester node agent"
    ))]);
    roff.control("SH", ["SYNOPSIS"]);
    roff.control("nf", []);
    for path in [
        "/usr/lib/harvester-node-agent/config.d/*.toml",
        "/run/harvester-node-agent/config.d/*.toml",
        "/etc/harvester-node-agent/config.toml",
        "/etc/harvester-node-agent/config.d/*.toml",
    ] {
        roff.text([italic(path)]);
    }
    roff.control("fi", []);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(
        "TOML. All files are optional: a key that is not set has its default. Unknown keys are rejected. After a change:",
    )]);
    example(
        &mut roff,
        &[
            "harvester-node-agent config check",
            "systemctl reload harvester-node-agent",
        ],
    );
    // The other paragraphs describe the file itself.
    let head = comments.get("").map_or(&[][..], Vec::as_slice);
    roff.control("PP", []);
    prose(
        &mut roff,
        head.rsplit(|line| line.is_empty()).next().unwrap_or(head),
    );
    roff.control("SH", ["KEYS"]);
    let mut table = "";
    for key in KEYS {
        if table_of(key) != table {
            table = table_of(key);
            roff.control("SS", [format!("[{table}]").as_str()]);
            prose(&mut roff, comments.get(table).map_or(&[], Vec::as_slice));
        }
        describe(&mut roff, key, &comments);
    }
    roff.control("SH", ["EXAMPLE"]);
    example(
        &mut roff,
        &[
            "# /etc/harvester-node-agent/config.toml",
            "[topology]",
            "on_change = \"hold\"    # keep the first zone: volumes are bound to it",
        ],
    );
    roff.control("SH", ["SEE ALSO"]);
    roff.text([
        bold("harvester-node-agent"),
        roman("(1), "),
        bold("harvester-node-agent-config"),
        roman("(1)"),
    ]);
    (format!("man/{NAME}.5"), roff.to_roff())
}

fn describe(roff: &mut Roff, key: &Key, comments: &BTreeMap<String, Vec<&str>>) {
    roff.control("TP", []);
    roff.text([bold(key.path.replace('*', "NAME"))]);
    match comments.get(key.path) {
        Some(lines) => prose(roff, lines),
        // Described above, for the whole table.
        None if key.path.contains('*') => {}
        None => {
            let mut help = key.help.chars();
            let first = help.next().map(|first| first.to_ascii_uppercase());
            roff.text([roman(format!(
                "{}{}.",
                first.map_or_else(String::new, String::from),
                help.as_str()
            ))]);
        }
    }
    if !key.path.contains('*') {
        roff.control("IP", []);
    }
    roff.text([
        roman("Allowed: "),
        roman(key.allowed),
        roman(". Default: "),
        bold(key.default),
    ]);
}

/// Returns the table of a key.
fn table_of(key: &Key) -> &'static str {
    match key.path.split_once(".*") {
        Some((table, _)) => table,
        None => key.path.rsplit_once('.').map_or("", |(table, _)| table),
    }
}

/// Returns the comments of the shipped defaults: of each table, of each key, and under the empty name of the whole file.
fn comments(defaults: &str) -> BTreeMap<String, Vec<&str>> {
    let mut comments = BTreeMap::new();
    let mut table = "";
    let mut lines = Vec::new();
    for line in defaults.lines() {
        if line.is_empty() {
            // Only the first block belongs to no key.
            comments
                .entry(String::new())
                .or_insert_with(|| lines.clone());
            lines.clear();
        } else if line == "#" {
            lines.push("");
        } else if let Some(text) = line.strip_prefix("# ") {
            lines.push(text);
        } else if let Some(name) = line.strip_prefix("#[") {
            table = name.trim_end_matches(']');
            if !lines.is_empty() {
                comments.insert(table.to_owned(), std::mem::take(&mut lines));
            }
        } else if let Some((name, _)) = line.strip_prefix('#').and_then(|key| key.split_once(" = "))
        {
            let path = [table, name].join(".");
            if !lines.is_empty() {
                comments.insert(
                    path.trim_start_matches('.').to_owned(),
                    std::mem::take(&mut lines),
                );
            }
        }
    }
    comments
}

/// Writes comments as paragraphs; indented lines are an example.
fn prose(roff: &mut Roff, lines: &[&str]) {
    let mut rest = lines;
    while let Some(first) = rest.first() {
        let is_example = |line: &&str| line.starts_with("  ");
        let kind = is_example(first);
        let length = rest
            .iter()
            .position(|line| line.is_empty() || is_example(line) != kind)
            .unwrap_or(rest.len());
        let (block, after) = rest.split_at(length);
        if kind {
            let block: Vec<&str> = block.iter().map(|line| line.trim_start()).collect();
            example(roff, &block);
        } else if !block.is_empty() {
            roff.text([roman(block.join(" "))]);
        }
        rest = match after.split_first() {
            Some((&"", more)) => {
                roff.control("PP", []);
                more
            }
            _ => after,
        };
    }
}

fn example(roff: &mut Roff, lines: &[&str]) {
    roff.control("RS", ["4"]);
    roff.control("nf", []);
    for line in lines {
        roff.text([roman(*line)]);
    }
    roff.control("fi", []);
    roff.control("RE", []);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_on_the_page_with_its_default_and_allowed_values() {
        let (_, page) = page("2026-01-01");
        let page = page
            .replace("\\-", "-")
            .replace("\\&", "")
            .replace("\\\\", "\\");
        for key in KEYS {
            let allowed = format!("Allowed: {}. Default: \\fB{}\\fR", key.allowed, key.default);
            assert!(
                page.contains(&key.path.replace('*', "NAME")),
                "{}",
                key.path
            );
            assert!(page.contains(&allowed), "{allowed}");
        }
    }

    #[test]
    fn comments_belong_to_the_line_below_them() {
        let found = comments(
            "# All.\n#\n# More.\n\n# Of a table.\n#[a.b]\n#one = 1\n# Of two.\n#   x = 1\n#two = 2\n",
        );
        assert_eq!(found[""], ["All.", "", "More."]);
        assert_eq!(found["a.b"], ["Of a table."]);
        assert_eq!(found.get("a.b.one"), None);
        assert_eq!(found["a.b.two"], ["Of two.", "  x = 1"]);
    }
}
