// SPDX-License-Identifier: Apache-2.0
//! `bake-check`: checks whether an image is ready for release. It changes nothing.
//!
//! One image becomes many machines. It must not contain what is unique to one machine or gives access to one, and must contain
//! what each machine needs. The list follows <https://systemd.io/BUILDING_IMAGES/>, with additions for Harvester, Rancher and
//! Kubernetes.
//!
//! To add a finding: an entry with [`Group::Image`](crate::catalog::Group::Image) in the catalog. For one that is only a file or
//! directory in the tree, a row in `places.rs` is sufficient; any other is detected in `check.rs`.

pub mod check;
pub mod places;
mod settings;
pub(crate) mod unit;

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{self, PathBuf};

use serde_json::json;

use super::answer::{Answer, Exit, Output};
use super::process::Process;
use crate::report::problem::Problem;
use crate::report::text::{Show, Text, many};
use crate::sys::escape::{json_text, one_line};
use crate::sys::root::Root;

/// The text after the options in the help.
pub const EXIT_STATUS: &str = "Exit status: 0 the image is clean; 1 it is not; 2 usage error.";

/// The maximum length of the name of the image, in characters.
const NAME_MAX: usize = 1000;

/// The warning above the findings of a running system, which may be a node in use.
const LIVE: &str = "/ was checked: the running system, not an image. Run the commands below only in the image build, such as in a \
packer provisioner; on a node in use, they delete its identity, keys and data. For a mounted image, use --root DIR.";

/// Prints every finding with its fix.
pub fn run(process: &Process) -> Answer {
    let dir = checked(&process.root);
    let name = one_line(&dir.to_string_lossy(), NAME_MAX).into_owned();
    let root = Root::new(dir);
    let is_live = root.is_live();
    let findings = check::check(&root, process.config.as_deref(), is_live);
    let problem = |finding| Problem::new(finding, |_| None);
    let problems: Vec<Problem> = findings.iter().map(problem).collect();
    let text = match process.output {
        Output::Json => json_text(&json!({
            "image": name,
            "runningSystem": is_live,
            "clean": problems.is_empty(),
            "findings": problems,
        })),
        Output::Text => text(&name, &problems, is_live, process.show_now()),
    };
    let exit = match problems.is_empty() {
        true => Exit::Ok,
        false => Exit::Failed,
    };
    Answer::new(text, exit)
}

/// Returns the directory of the checked system, which is `/` if that is running: the machine that builds the image, or one in use.
/// Whatever names `/`, such as a link or a mount, is the running system.
fn checked(root: &Root) -> PathBuf {
    let place = |found: Metadata| (found.dev(), found.ino());
    let place = |root: &Root| root.metadata("/").ok().map(place);
    let checked = place(root);
    if checked.is_some() && checked == place(&Root::new("/")) {
        return PathBuf::from("/");
    }
    let dir = root.join("/");
    // Without a trailing slash, which would change the path in a command.
    path::absolute(&dir).unwrap_or(dir).components().collect()
}

fn text(image: &str, problems: &[Problem], is_live: bool, mut show: Show) -> String {
    if problems.is_empty() {
        return format!("{image}: clean\n");
    }
    // A step names a file: if it was cut, it would be another one.
    show.verbose = true;
    let mut out = Text::new(show);
    if is_live {
        out.put("", LIVE);
        out.blank();
    }
    for same in problems.chunk_by(|one, next| one.code == next.code) {
        Problem::write(&same.iter().collect::<Vec<_>>(), &mut out);
        out.blank();
    }
    let count = many(problems.len(), "problem");
    let closing = match is_live {
        true => format!(
            "Running system: {count}. Release no image of it before they are fixed, and run none of the commands on a node in use."
        ),
        false => format!("{image}: {count}. Do not release this image."),
    };
    out.put("", &closing);
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Code, CommandPlace, Finding};
    use crate::report::text::TermStyle;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    const SHOW: Show = Show {
        style: TermStyle::PLAIN,
        verbose: false,
        now: time::UtcDateTime::UNIX_EPOCH,
    };

    #[test]
    fn a_running_system_has_a_warning_and_no_line_is_wider_than_the_terminal() {
        let command = "truncate -s 0 /etc/machine-id".to_owned();
        let finding = Finding::new(Code::ImageMachineId, "/etc/machine-id contains an ID");
        let finding = finding.and_command(CommandPlace::Image, command);
        let shown = |is_live| text("/", &[Problem::new(&finding, |_| None)], is_live, SHOW);
        let file = "src/commands/bake_check/running_system.txt";
        harvester_lab::expected::is_expected(file, &shown(true), str::to_owned);
        for text in [shown(true), shown(false)] {
            let wide = text.lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None);
        }
    }

    #[test]
    fn a_command_removes_all_files_that_it_names_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("var/log/journal");
        std::fs::create_dir_all(&journal).unwrap();
        let mut names: Vec<Vec<u8>> = [
            b"a\x1b[2J".as_slice(),
            b"b\n'c\\",
            b"\xff",
            "é\u{202e}".as_bytes(),
        ]
        .map(<[u8]>::to_vec)
        .to_vec();
        names.extend((0..3000).map(|number| format!("{number:040}").into_bytes()));
        for name in &names {
            std::fs::write(journal.join(OsStr::from_bytes(name)), "x").unwrap();
        }
        // Of an empty file nothing is to be removed, even if its name looks like that of another one.
        let other = journal.join("a\\x1b[2J");
        std::fs::write(&other, "").unwrap();
        let root = Root::new(dir.path());
        let text = run(&Process::plain(root)).text;
        let mut lines = text.lines().map(str::trim_start);
        let command = lines.find(|line| line.starts_with("rm -rf ") && line.contains("journal"));
        // The kernel limits one argument of a program, but not a script.
        let elsewhere = tempfile::tempdir().unwrap();
        let script = elsewhere.path().join("script");
        std::fs::write(&script, command.unwrap()).unwrap();
        let mut shell = std::process::Command::new("bash");
        let status = shell.arg(script).status().unwrap();
        assert!(status.success());
        let left = std::fs::read_dir(&journal).unwrap();
        let left: Vec<PathBuf> = left.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [other]);
    }

    #[test]
    fn the_running_system_is_recognized_by_whatever_name() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("root");
        std::os::unix::fs::symlink("/", &link).unwrap();
        for name in [
            Path::new("/"),
            Path::new("/usr/.."),
            Path::new("/proc/self/root"),
            &link,
        ] {
            assert_eq!(
                checked(&Root::new(name)),
                Path::new("/"),
                "{}",
                name.display()
            );
        }
        assert_eq!(checked(&Root::new(dir.path())), dir.path());
    }
}
