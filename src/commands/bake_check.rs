// SPDX-License-Identifier: Apache-2.0
//! `bake-check`: checks whether an image is ready for release.

pub mod facts;
pub mod judge;
pub mod read;
pub mod rules;

use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{self, Path, PathBuf};

use serde_json::json;

use super::{Answer, Exit, Output};
use crate::catalog::CommandPlace;
use crate::commands::bake_check::judge::{ImageTree, judge};
use crate::commands::bake_check::rules::Fault;
use crate::report::layout::{TermStyle, paragraph};
use crate::sys::escape::json_text;
use crate::sys::escape::one_line;
use crate::sys::root::Root;

/// The text after the options in the help.
pub const EXIT_STATUS: &str = "Exit status: 0 the image is clean; 1 it is not; 2 usage error.";

/// The maximum length of a displayed fault, in characters.
const SEEN_MAX: usize = 1000;

/// The warning above the faults of a running system, which may be a node in use.
const LIVE: &str = "/ was checked: the running system, not an image. Run the commands below only in the image build, such as in a \
packer provisioner; on a node in use, they delete its identity, keys and data. For a mounted image, use --root DIR.";

/// The indentation of the texts of a fault, in columns.
const INDENT: usize = 12;

/// Prints every fault with the command that fixes it; changes nothing.
pub fn run(root: &Root, only: Option<&Path>, output: Output, style: TermStyle) -> Answer {
    let (dir, target) = checked(root);
    let name = one_line(&dir.to_string_lossy(), SEEN_MAX).into_owned();
    let faults = judge(&read::read(root, only), &ImageTree::new(&dir));
    let text = match output {
        Output::Json => json_text(&document(&name, &faults, target)),
        Output::Text | Output::Short => text(&name, &faults, target, style),
    };
    let exit = if faults.is_empty() {
        Exit::Ok
    } else {
        Exit::Failed
    };
    Answer::new(text, exit)
}

/// The system that was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckedSystem {
    /// A file tree that is not running.
    Tree,
    /// The running system: the machine that builds the image, or a machine in use.
    Live,
}

/// Returns the directory of the checked system. Whatever names `/`, such as a link or a mount, is the running system.
fn checked(root: &Root) -> (PathBuf, CheckedSystem) {
    let place = |root: &Root| {
        Some((
            root.metadata("/").ok()?.dev(),
            root.metadata("/").ok()?.ino(),
        ))
    };
    let running = Root::new("/");
    if place(root).is_some_and(|checked| Some(checked) == place(&running)) {
        return (PathBuf::from("/"), CheckedSystem::Live);
    }
    let dir = root.join("/");
    // Without a trailing slash, which would change the path in a command.
    let dir = path::absolute(&dir).unwrap_or(dir).components().collect();
    (dir, CheckedSystem::Tree)
}

fn document(image: &str, faults: &[Fault], target: CheckedSystem) -> serde_json::Value {
    let faults: Vec<serde_json::Value> = faults
        .iter()
        .map(|fault| {
            let entry = fault.code.entry();
            json!({
                "code": entry.name,
                "title": entry.title,
                "observed": one_line(&fault.seen, SEEN_MAX),
                "impact": entry.impact,
                "commands": [{
                    "runOn": CommandPlace::Image.as_str(),
                    "text": one_line(&fault.remedy, usize::MAX),
                }],
            })
        })
        .collect();
    json!({
        "image": image,
        "runningSystem": target == CheckedSystem::Live,
        "clean": faults.is_empty(),
        "findings": faults,
    })
}

fn text(image: &str, faults: &[Fault], target: CheckedSystem, style: TermStyle) -> String {
    if faults.is_empty() {
        return format!("{image}: clean\n");
    }
    let width = style.width;
    let mut text = String::new();
    if target == CheckedSystem::Live {
        paragraph(&mut text, "", 0, LIVE, width);
        text.push('\n');
    }
    for fault in faults {
        let entry = fault.code.entry();
        let seen = one_line(&fault.seen, SEEN_MAX);
        let title = format!("{} [{}]", entry.title, entry.name);
        paragraph(&mut text, "", 0, &title, width);
        paragraph(&mut text, "  Observed  ", INDENT, &seen, width);
        paragraph(&mut text, "  Impact    ", INDENT, entry.impact, width);
        // A command is never wrapped, and never cut: it would be another command.
        let command = one_line(&fault.remedy, usize::MAX);
        let _ = match target {
            CheckedSystem::Tree => writeln!(text, "  Fix       {command}\n"),
            CheckedSystem::Live => writeln!(
                text,
                "  Fix       in the image build, not on a node in use:\n{:INDENT$}{command}\n",
                ""
            ),
        };
    }
    let count = match faults.len() {
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    };
    let _ = writeln!(text, "{image}: {count}. Do not release this image.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bake_check::rules::FaultCode;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    fn shown(target: CheckedSystem) -> String {
        let faults = [Fault {
            code: FaultCode::MachineId,
            seen: "/etc/machine-id contains an ID".to_owned(),
            remedy: "truncate -s 0 /etc/machine-id".to_owned(),
        }];
        text("/", &faults, target, TermStyle::PLAIN)
    }

    #[test]
    fn a_running_system_has_a_warning_in_front_of_each_command() {
        let text = shown(CheckedSystem::Live);
        assert!(
            text.starts_with("/ was checked: the running system"),
            "{text}"
        );
        let command = "  Fix       in the image build, not on a node in use:\n            truncate -s 0 /etc/machine-id\n";
        assert!(text.contains(command), "{text}");
        let tree = shown(CheckedSystem::Tree);
        assert!(
            tree.starts_with("image contains a machine-id [image-machine-id]\n"),
            "{tree}"
        );
        assert!(
            tree.contains("\n  Fix       truncate -s 0 /etc/machine-id\n"),
            "{tree}"
        );
    }

    #[test]
    fn a_command_removes_all_files_that_it_names_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let mut names: Vec<Vec<u8>> = [
            b"a\x1b[2J".as_slice(),
            b"b\n'c\\",
            b"\xff",
            "é\u{202e}".as_bytes(),
        ]
        .map(<[u8]>::to_vec)
        .to_vec();
        names.extend((0..3000).map(|number| format!("{number:040}").into_bytes()));
        let paths = names
            .iter()
            .map(|name| Path::new("/").join(OsStr::from_bytes(name)));
        let paths: Vec<PathBuf> = paths.collect();
        for name in &names {
            std::fs::write(dir.path().join(OsStr::from_bytes(name)), "").unwrap();
        }
        let other = dir.path().join("a\\x1b[2J");
        std::fs::write(&other, "").unwrap();
        let faults = [Fault {
            code: FaultCode::MachineId,
            seen: String::new(),
            remedy: ImageTree::new(dir.path())
                .remove(&paths.iter().map(PathBuf::as_path).collect::<Vec<_>>()),
        }];
        let text = text("/", &faults, CheckedSystem::Tree, TermStyle::PLAIN);
        let command = text
            .lines()
            .find_map(|line| line.strip_prefix("  Fix       "));
        // The kernel limits one argument of a program, but not a script.
        let elsewhere = tempfile::tempdir().unwrap();
        let script = elsewhere.path().join("script");
        std::fs::write(&script, command.unwrap()).unwrap();
        let mut shell = std::process::Command::new("bash");
        let status = shell.arg(script).status().unwrap();
        assert!(status.success());
        let left = std::fs::read_dir(dir.path()).unwrap();
        let left: Vec<PathBuf> = left.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [other]);
    }

    #[test]
    fn the_running_system_is_recognized_by_whatever_name() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("root");
        std::os::unix::fs::symlink("/", &link).unwrap();
        let live = (PathBuf::from("/"), CheckedSystem::Live);
        for name in [
            Path::new("/"),
            Path::new("/usr/.."),
            Path::new("/proc/self/root"),
            &link,
        ] {
            assert_eq!(checked(&Root::new(name)), live, "{}", name.display());
        }
        let tree = (dir.path().to_owned(), CheckedSystem::Tree);
        assert_eq!(checked(&Root::new(dir.path())), tree);
    }

    #[test]
    fn a_line_fits_the_terminal() {
        for target in [CheckedSystem::Live, CheckedSystem::Tree] {
            let text = shown(target);
            let wide: Vec<&str> = text
                .lines()
                .filter(|line| line.chars().count() > 80)
                .collect();
            assert_eq!(wide, Vec::<&str>::new());
        }
    }
}
