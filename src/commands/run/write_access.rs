// SPDX-License-Identifier: Apache-2.0
//! Restricts the service with Landlock: it writes only below its own directories, and executes nothing.
//!
//! This also applies where systemd sets up no sandbox. Reads are not restricted: the certificates of a kubelet can be in any
//! directory, in one that is created later, or below a later mount, and a rule for a file does not apply to the file that replaces
//! it. `InaccessiblePaths=` in the unit excludes secrets of others.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
    path_beneath_rules,
};

use crate::config::{MetricsFile, Settings};
use crate::report::textfile::DEFAULT_DIRECTORY;
use crate::sys::atomic_file::{RUNTIME_DIRECTORY, STATE_DIRECTORY};
use crate::sys::root::Root;

/// The newest version of the interface whose access rights are restricted; an older kernel restricts those that it has.
const NEWEST: ABI = ABI::V5;

/// Restricts this thread and all threads that it starts later. Directories that are created later are not writable, as in the
/// sandbox of systemd. Below another root than `/`, everything is writable.
///
/// # Errors
///
/// If the kernel rejects the rules. A kernel without Landlock is not an error.
pub(super) fn restrict(root: &Root, settings: &Settings) -> Result<RulesetStatus, RulesetError> {
    let files = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile;
    let files = files | AccessFs::MakeDir;
    let devices = AccessFs::WriteFile | AccessFs::IoctlDev;
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_write(NEWEST) | AccessFs::Execute)?
        .create()?
        .add_rules(path_beneath_rules(["/dev"], devices))?
        .add_rules(path_beneath_rules(writable(root, settings), files))?;
    Ok(rules.restrict_self()?.ruleset)
}

/// Returns the directories that the service writes to.
fn writable(root: &Root, settings: &Settings) -> Vec<PathBuf> {
    if !root.is_live() {
        return vec![root.join("/")];
    }
    let parent = |path: &Path| path.parent().map(Path::to_owned);
    let textfile = match &settings.metrics.textfile {
        MetricsFile::Path(path) => parent(path),
        MetricsFile::Auto | MetricsFile::Off => None,
    };
    // Without systemd, these two may not exist yet.
    let own = [RUNTIME_DIRECTORY, STATE_DIRECTORY].map(|path| existing(Path::new(path)));
    own.into_iter()
        .chain([PathBuf::from(DEFAULT_DIRECTORY)])
        .chain(textfile)
        .collect()
}

/// Returns the nearest directory that exists: `path` or one of its parents.
fn existing(path: &Path) -> PathBuf {
    let found = path.ancestors().find(|ancestor| ancestor.is_dir());
    found.unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind::PermissionDenied;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_restricted_thread_writes_below_its_root_reads_everywhere_and_executes_nothing() {
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let outside = other.path().join("file");
        fs::write(&outside, "text").unwrap();
        let root = Root::new(own.path());
        let restricted = move || {
            let status = restrict(&root, &Settings::default()).unwrap();
            if status == RulesetStatus::NotEnforced {
                let test = "a_restricted_thread_writes_below_its_root_reads_everywhere_and_executes_nothing";
                harvester_lab::skip(test, "no Landlock");
                return;
            }
            println!("{status:?}");
            fs::create_dir(root.join("new")).unwrap();
            fs::write(root.join("new/file"), "text").unwrap();
            fs::rename(root.join("new/file"), root.join("new/other")).unwrap();
            fs::remove_file(root.join("new/other")).unwrap();
            fs::write("/dev/null", "text").unwrap();
            assert_eq!(fs::read_to_string(&outside).unwrap(), "text");
            let refused = [
                fs::write(&outside, "changed"),
                fs::write(outside.with_file_name("new"), ""),
                fs::create_dir(outside.with_file_name("new")),
                fs::remove_file(&outside),
                fs::hard_link(&outside, root.join("link")),
                Command::new("/bin/true").status().map(drop),
            ];
            for (number, result) in refused.into_iter().enumerate() {
                let kind = result.expect_err("refused").kind();
                // Before Linux 5.19, a link from another directory is an error of its own.
                let is_denied = kind == PermissionDenied || number == 4;
                assert!(is_denied, "{number}: {kind:?}");
            }
        };
        std::thread::spawn(restricted).join().unwrap();
    }

    #[test]
    fn on_a_live_system_only_directories_of_the_agent_are_writable() {
        let mut settings = Settings::default();
        settings.metrics.textfile = MetricsFile::Path("/srv/metrics/agent.prom".into());
        let found = writable(&Root::new("/"), &settings);
        for wanted in ["/srv/metrics", DEFAULT_DIRECTORY] {
            assert!(found.contains(&wanted.into()), "{wanted}: {found:?}");
        }
        let is_missing = |path: &PathBuf| path == Path::new("/") || path == Path::new("/var");
        let is_other = |path: &PathBuf| is_missing(path) || path.starts_with("/etc");
        assert!(!found.iter().any(is_other), "{found:?}");
    }
}
