// SPDX-License-Identifier: Apache-2.0
//! `explain`: what the catalogue says of a finding.

use std::fmt::Write;

use serde_json::json;

use super::{Answer, Exit, Output};
use crate::findings::{Code, Entry};

/// Codes this much alike are worth suggesting.
const ALIKE: f64 = 0.75;

/// One finding, or a list of all.
pub fn run(code: Option<&str>, output: Output) -> Answer {
    let Some(name) = code else {
        return list(output);
    };
    match Code::parse(name) {
        Some(code) => Answer::new(one(code.entry(), output), Exit::Ok),
        None => {
            let alike = |code: &&Code| strsim::jaro_winkler(name, code.as_str());
            let near = Code::ALL
                .iter()
                .max_by(|a, b| alike(a).total_cmp(&alike(b)))
                .filter(|code| alike(code) > ALIKE);
            let hint = near
                .map(|code| format!("; did you mean `{code}`?"))
                .unwrap_or_default();
            let name = name.escape_debug();
            Answer::complaint(
                format!("no finding has the code `{name}`{hint}\n"),
                Exit::Usage,
            )
        }
    }
}

fn list(output: Output) -> Answer {
    let entries = Code::ALL.iter().map(|code| code.entry());
    let text = match output {
        Output::Json => format!("{:#}\n", json!(entries.map(value).collect::<Vec<_>>())),
        Output::Text => entries.fold(String::new(), |mut text, entry| {
            let _ = writeln!(
                text,
                "{:<30}{:<9}{}",
                entry.name,
                entry.severity.as_str(),
                entry.title
            );
            text
        }),
    };
    Answer::new(text, Exit::Ok)
}

fn one(entry: &Entry, output: Output) -> String {
    match output {
        Output::Json => format!("{:#}\n", value(entry)),
        Output::Text => {
            let silences: Vec<&str> = entry.silences.iter().map(|code| code.as_str()).collect();
            let mut text = format!(
                "{} ({}, {})\n\n{}.\n\nWhy it matters:  {}\nWhat to do:      {}\n",
                entry.name,
                entry.severity.as_str(),
                entry.group.title(),
                entry.title,
                entry.consequence,
                entry.remedy
            );
            let mut place = None;
            for command in entry.commands {
                if place != Some(command.place) {
                    place = Some(command.place);
                    let _ = writeln!(text, "\nWhat to type {}:", command.place.title());
                }
                let _ = writeln!(text, "    {}", command.text);
            }
            if !silences.is_empty() {
                let _ = writeln!(
                    text,
                    "Hides:           {}, which it explains",
                    silences.join(", ")
                );
            }
            for (count, link) in entry.code.links().iter().enumerate() {
                let name = if count == 0 { "Read on:" } else { "" };
                let _ = writeln!(text, "{name:<17}{link}");
            }
            text
        }
    }
}

fn value(entry: &Entry) -> serde_json::Value {
    json!({
        "code": entry.name,
        "group": entry.group.as_str(),
        "severity": entry.severity.as_str(),
        "title": entry.title,
        "consequence": entry.consequence,
        "remedy": entry.remedy,
        "commands": entry.commands.iter().map(|command| json!({
            "place": command.place.as_str(),
            "text": command.text,
        })).collect::<Vec<_>>(),
        "silences": entry.silences.iter().map(|code| code.as_str()).collect::<Vec<_>>(),
        "links": entry.code.links(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_explained() {
        for code in Code::ALL {
            let answer = run(Some(code.as_str()), Output::Text);
            assert_eq!(answer.exit, Exit::Ok);
            let entry = code.entry();
            for part in [entry.group.title(), entry.consequence, entry.remedy] {
                assert!(answer.text.contains(part), "{}", answer.text);
            }
            for link in code.links() {
                assert!(answer.text.contains(link), "{}", answer.text);
            }
        }
        assert_eq!(
            run(None, Output::Text).text.lines().count(),
            Code::ALL.len()
        );
    }

    #[test]
    fn a_code_that_is_almost_right_is_suggested() {
        let answer = run(Some("hostname-difers"), Output::Text);
        assert_eq!(answer.exit, Exit::Usage);
        assert!(
            answer.complaint.contains("did you mean `hostname-differs`"),
            "{}",
            answer.complaint
        );
        assert!(
            !run(Some("\u{1b}[31m"), Output::Text)
                .complaint
                .contains('\u{1b}')
        );
    }
}
