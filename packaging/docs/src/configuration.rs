// SPDX-License-Identifier: Apache-2.0
//! Lists the configuration keys, as Markdown, from the comments of the shipped defaults.

use std::fmt::Write;

/// The file that documents every key.
const DEFAULTS: &str = include_str!("../../config.d/10-defaults.toml");

/// The line of a page that the keys replace.
pub(crate) const MARK: &str = "<!-- The keys of packaging/config.d/10-defaults.toml. -->\n";

/// Returns a section with all keys, a table for each table of the file.
pub(crate) fn keys() -> String {
    section(DEFAULTS)
}

fn section(defaults: &str) -> String {
    const HEADER: &str = "| key |  | Default |\n|---|---|---|\n";
    // The first block describes the whole file: its last paragraph, how files are read.
    let (head, rest) = defaults.split_once("\n\n").unwrap_or((defaults, ""));
    let order = head.rsplit("\n#\n").next().unwrap_or(head);
    let order = order.replace("# ", "");
    let mut page = format!("{order}\n\n## Keys\n\n{HEADER}");
    let mut table = String::new();
    let mut prose: Vec<&str> = Vec::new();
    // Writing to a string cannot fail.
    for line in rest.lines() {
        if let Some(text) = line.strip_prefix("# ") {
            prose.push(text);
        } else if let Some(name) = line.strip_prefix("#[") {
            let _ = writeln!(page, "\n### [{name}\n");
            paragraphs(&mut page, &std::mem::take(&mut prose));
            page.push_str(HEADER);
            table = name.replace(']', ".");
        } else if let Some((name, default)) = line
            .strip_prefix('#')
            .and_then(|line| line.split_once(" = "))
        {
            let text = std::mem::take(&mut prose).join(" ");
            let _ = writeln!(page, "| `{table}{name}` | {text} | `{default}` |");
        }
    }
    page
}

/// Writes the comments of a table; indented lines are an example.
fn paragraphs(page: &mut String, prose: &[&str]) {
    let is_example = |line: &&&str| line.starts_with(' ');
    let (example, text): (Vec<&str>, Vec<&str>) = prose.iter().partition(is_example);
    for line in text {
        let _ = writeln!(page, "{line}");
    }
    page.push('\n');
    for line in example {
        let _ = writeln!(page, "    {}", line.trim_start());
    }
    page.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_defaults_but_the_head_is_on_the_page() {
        let page = keys();
        let (_, rest) = DEFAULTS.split_once("\n\n").unwrap();
        for line in rest.lines().filter_map(|line| line.strip_prefix('#')) {
            let (name, default) = line.split_once(" = ").unwrap_or((line, ""));
            let is_key = !line.starts_with(' ') && !default.is_empty();
            match is_key {
                true => {
                    assert!(page.contains(&format!("{name}` | ")), "{name}");
                    assert!(page.contains(&format!(" | `{default}` |\n")), "{default}");
                }
                false => assert!(page.contains(line.trim()), "{line}"),
            }
        }
    }

    #[test]
    fn comments_belong_to_the_line_below_them() {
        let page = section(
            "# All.\n#\n# Files are read.\n\n# Of a key.\n#one = 1\n\n# Of a table.\n#   x = 1\n#[a.b]\n# Of two,\n# and more.\n#two = \"2\"\n",
        );
        assert_eq!(
            page,
            "Files are read.\n\n## Keys\n\n| key |  | Default |\n|---|---|---|\n| `one` | Of a key. | `1` |\n\n\
             ### [a.b]\n\nOf a table.\n\n    x = 1\n\n| key |  | Default |\n|---|---|---|\n| `a.b.two` | Of two, and more. | `\"2\"` |\n"
        );
    }
}
