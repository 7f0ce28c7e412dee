// SPDX-License-Identifier: Apache-2.0
//! `bake-check`: whether an image may be shipped.

pub mod facts;
pub mod judge;
pub mod read;
pub mod rules;

use std::fmt::Write;
use std::path::{self, Path, PathBuf};

use serde_json::json;

use super::{Answer, Exit, Output};
use crate::commands::bake_check::judge::{ImageTree, judge};
use crate::commands::bake_check::rules::Fault;
use crate::sys::escape::json_text;
use crate::sys::escape::one_line;
use crate::sys::root::Root;

/// The longest text shown of one fault, in characters.
const SEEN_MAX: usize = 1000;

/// The longest command: it names every file that is to be removed.
const REMEDY_MAX: usize = 100_000;

/// Every fault with the command that takes it away; nothing is changed.
pub fn run(root: &Root, only: Option<&Path>, output: Output) -> Answer {
    let dir = root.join("/");
    // Without a slash at its end, in which it would be another word.
    let dir: PathBuf = path::absolute(&dir).unwrap_or(dir).components().collect();
    let name = one_line(&dir.to_string_lossy(), SEEN_MAX).into_owned();
    if !dir.is_dir() {
        let stderr = format!("`{name}` is not a directory; no image was checked\n");
        return Answer::stderr(stderr, Exit::Failed);
    }
    let faults = judge(&read::read(root, only), &ImageTree::new(&dir));
    let text = match output {
        Output::Json => json_text(&document(&name, &faults)),
        Output::Text | Output::Short => text(&name, &faults),
    };
    let exit = if faults.is_empty() {
        Exit::Ok
    } else {
        Exit::Failed
    };
    Answer::new(text, exit)
}

fn document(image: &str, faults: &[Fault]) -> serde_json::Value {
    let faults: Vec<serde_json::Value> = faults
        .iter()
        .map(|fault| {
            let entry = fault.code.entry();
            json!({
                "code": entry.name,
                "title": entry.title,
                "observed": one_line(&fault.seen, SEEN_MAX),
                "impact": entry.impact,
                "command": one_line(&fault.remedy, REMEDY_MAX),
            })
        })
        .collect();
    json!({"image": image, "clean": faults.is_empty(), "findings": faults})
}

fn text(image: &str, faults: &[Fault]) -> String {
    if faults.is_empty() {
        return format!("{image}: clean\n");
    }
    let mut text = String::new();
    for fault in faults {
        let entry = fault.code.entry();
        let _ = writeln!(
            text,
            "{} [{}]\n  Observed  {}\n  Impact    {}\n  Fix       {}\n",
            entry.title,
            entry.name,
            one_line(&fault.seen, SEEN_MAX),
            entry.impact,
            one_line(&fault.remedy, REMEDY_MAX),
        );
    }
    let count = match faults.len() {
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    };
    let _ = writeln!(text, "{image}: {count}. Do not release this image.");
    text
}
