// SPDX-License-Identifier: Apache-2.0
//! `explain`: what the catalogue says of findings.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{Answer, Exit, Output};
use crate::findings::{Code, Entry};

/// Codes this much alike are worth suggesting.
const ALIKE: f64 = 0.75;

/// So many are suggested at most.
const SUGGESTIONS: usize = 3;

/// The findings of these names, or a list of all.
pub fn run(names: &[String], output: Output) -> Answer {
    if names.is_empty() {
        return Answer::new(list(output), Exit::Ok);
    }
    let (mut entries, mut complaint) = (Vec::new(), String::new());
    for name in names {
        match Code::parse(&plain(name)) {
            Some(code) => entries.push(code.entry()),
            None => complaint.push_str(&unknown(name)),
        }
    }
    let text = match (output, entries.as_slice()) {
        (_, []) => String::new(),
        (Output::Text, _) => {
            let texts: Vec<String> = entries.into_iter().map(text).collect();
            texts.join("\n\n")
        }
        (Output::Json, [entry]) if names.len() == 1 => format!("{:#}\n", value(entry)),
        (Output::Json, _) => values(entries),
    };
    let exit = match complaint.as_str() {
        "" => Exit::Ok,
        _ => Exit::Usage,
    };
    Answer {
        text,
        complaint,
        exit,
    }
}

/// A name as it stands in the catalogue, however it was copied.
fn plain(name: &str) -> String {
    let name = name.trim_matches(|character: char| !character.is_ascii_alphabetic());
    name.to_ascii_lowercase().replace('_', "-")
}

fn unknown(name: &str) -> String {
    let plain = plain(name);
    let alike = |code: &Code| match code.as_str().contains(&plain) && plain.len() > 2 {
        true => 1.0,
        false => strsim::jaro_winkler(&plain, code.as_str()),
    };
    let mut near: Vec<Code> = Code::ALL.to_vec();
    near.retain(|code| alike(code) > ALIKE);
    near.sort_by(|a, b| alike(b).total_cmp(&alike(a)));
    let near = near.iter().take(SUGGESTIONS);
    let near: Vec<String> = near.map(|code| format!("`{code}`")).collect();
    let hint = match near.as_slice() {
        [] => "; `harvester-node-agent explain` lists all".to_owned(),
        near => format!("; did you mean {}?", near.join(" or ")),
    };
    format!("no finding has the code `{}`{hint}\n", name.escape_debug())
}

fn list(output: Output) -> String {
    let entries = Code::ALL.iter().map(|code| code.entry());
    match output {
        Output::Json => values(entries),
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
    }
}

fn text(entry: &Entry) -> String {
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
    let silences: Vec<&str> = entry.silences.iter().map(|code| code.as_str()).collect();
    if !silences.is_empty() {
        let _ = writeln!(text, "\nIt explains:     {}", silences.join(", "));
    }
    for (count, link) in entry.code.links().iter().enumerate() {
        let name = if count == 0 { "\nRead on:" } else { "" };
        let _ = writeln!(text, "{name:<17}{link}");
    }
    text
}

fn values<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> String {
    let values: Vec<Value> = entries.into_iter().map(value).collect();
    format!("{:#}\n", json!(values))
}

fn value(entry: &Entry) -> Value {
    let commands = entry.commands.iter();
    json!({
        "code": entry.name,
        "group": entry.group.as_str(),
        "severity": entry.severity.as_str(),
        "title": entry.title,
        "consequence": entry.consequence,
        "remedy": entry.remedy,
        "commands": commands.map(|command| json!({
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

    fn explain(names: &[&str], output: Output) -> Answer {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        run(&names, output)
    }

    #[test]
    fn every_code_is_explained() {
        for code in Code::ALL {
            let answer = explain(&[code.as_str()], Output::Text);
            assert_eq!(answer.exit, Exit::Ok);
            let entry = code.entry();
            for part in [entry.group.title(), entry.consequence, entry.remedy] {
                assert!(answer.text.contains(part), "{}", answer.text);
            }
            for command in entry.commands {
                let heading = format!("\nWhat to type {}:\n", command.place.title());
                assert!(answer.text.contains(&heading), "{}", answer.text);
                assert!(answer.text.contains(&format!("\n    {}\n", command.text)));
            }
            for link in code.links() {
                assert!(answer.text.contains(link), "{}", answer.text);
            }
        }
        let all = explain(&[], Output::Text).text;
        assert_eq!(all.lines().count(), Code::ALL.len());
    }

    #[test]
    fn a_code_that_is_almost_right_is_suggested() {
        for (name, near) in [
            ("hostname-difers", "did you mean `hostname-differs`"),
            ("zone", "did you mean `hosts-in-one-zone`?"),
            ("qqqqqqq", "`harvester-node-agent explain` lists all"),
            ("", "`harvester-node-agent explain` lists all"),
        ] {
            let answer = explain(&[name], Output::Text);
            assert_eq!((answer.exit, answer.text.as_str()), (Exit::Usage, ""));
            assert!(answer.complaint.contains(near), "{}", answer.complaint);
        }
        let hostile = explain(&["\u{1b}[31m"], Output::Text);
        assert!(!hostile.complaint.contains('\u{1b}'));
    }

    #[test]
    fn a_code_may_be_copied_from_anywhere() {
        for name in [
            "[node-missing]",
            "NODE-MISSING",
            "`node-missing`:",
            "node_missing",
        ] {
            let answer = explain(&[name], Output::Text);
            assert!(answer.text.starts_with("node-missing ("), "{name}");
        }
    }

    #[test]
    fn what_is_known_of_several_is_told_in_spite_of_one_that_is_not() {
        let names = ["node-missing", "nonsense-code", "label-conflict"];
        let answer = explain(&names, Output::Json);
        assert_eq!(answer.exit, Exit::Usage);
        let told: Value = serde_json::from_str(&answer.text).unwrap();
        assert_eq!(
            [&told[0]["code"], &told[1]["code"]],
            ["node-missing", "label-conflict"]
        );
        assert!(answer.complaint.contains("`nonsense-code`"));
        let one: Value = serde_json::from_str(&explain(&names[..1], Output::Json).text).unwrap();
        assert_eq!(one["code"], "node-missing");
    }
}
