// SPDX-License-Identifier: Apache-2.0
//! `doctor --bundle`: the archive for support. It has four files, all of this agent: the diagnosis, the status, the configuration,
//! and the journal of its unit. A file of another program never enters it, so there is no secret to remove.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::libc;
use nix::unistd::linkat;
use serde_json::Value;
use time::UtcDateTime;

use crate::commands::bake_check::unit::{OURS as UNIT, PROGRAM};
use crate::commands::process::Process;
use crate::config::{self, show};
use crate::facts::clock::rfc3339;
use crate::report::status::Status;
use crate::sys::disk;
use crate::sys::escape::{chain, in_json, json_text, one_line, shell_path};
use crate::sys::root::Root;

/// The hostname of the kernel, also in a file tree.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// The maximum length of a hostname (`__NEW_UTS_LEN`).
const HOST_MAX: usize = 64;

/// The maximum number of journal records.
const RECORDS: &str = "200";

/// The fields of a journal record that are kept, in addition to our own with the prefix `HNA_`. Other fields contain command
/// lines, IDs of this machine, or arbitrary data.
const FIELDS: [&str; 9] = [
    "__REALTIME_TIMESTAMP",
    "PRIORITY",
    "MESSAGE",
    "MESSAGE_ID",
    "UNIT_RESULT",
    "JOB_RESULT",
    "EXIT_STATUS",
    "_PID",
    "_TRANSPORT",
];

/// The timeout of `journalctl` in seconds: even on a slow disk, the journal is read from its end.
const JOURNAL_LIMIT: &str = "5";

/// The exit code of timeout(1) for a program that it ended. With SIGKILL, it ends itself as well.
const TIMED_OUT: i32 = 124;

/// The timeout of the archive.
const LIMIT: Duration = Duration::from_secs(30);

/// For the owner only: an error text that the agent quotes was written by a server.
const MODE: u32 = 0o600;

/// The location of the archive.
#[derive(Debug)]
pub(super) enum Written {
    /// A file; with the message to print.
    File(String),
    /// Standard output; with the archive to print.
    Printed(String),
}

/// The files of the archive, in their order: each with its content, or the reason why it is missing.
type Parts = [(&'static str, Result<String, String>); 4];

/// Writes the archive with a timeout: a read or write on a file system that hangs cannot be canceled.
///
/// # Errors
///
/// Returns the reason why there is no archive.
pub(super) fn write_within(
    process: &Process,
    file: &Path,
    diagnosis: Value,
    at: UtcDateTime,
) -> Result<Written, String> {
    let (process, path) = (process.clone(), file.to_owned());
    let written = disk::within(LIMIT, move || write(&process, &path, &diagnosis, at));
    written.unwrap_or_else(|| {
        let seconds = LIMIT.as_secs();
        Err(format!(
            "no archive within {seconds}s: a disk, network file system or device hangs"
        ))
    })
}

fn write(
    process: &Process,
    file: &Path,
    diagnosis: &Value,
    at: UtcDateTime,
) -> Result<Written, String> {
    let host = process.root.read_text(HOST_NAME, 4096).unwrap_or_default();
    let archive = archive(&parts(process, diagnosis), &directory(&host, at), at);
    let archive = archive.map_err(|error| format!("failed to make the archive: {error}"))?;
    if file == Path::new("-") {
        // An archive consists only of text and null bytes.
        let archive = String::from_utf8(archive).map_err(|error| error.to_string())?;
        return Ok(Written::Printed(archive));
    }
    let name = one_line(&file.display().to_string(), 500).into_owned();
    create(file, &archive).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            format!("{name} exists; remove it, or choose another name")
        }
        _ => format!("failed to write {name}: {error}"),
    })?;
    // To tar, what precedes a colon is another host, unless a slash precedes it.
    let has_colon = file.as_os_str().as_encoded_bytes().contains(&b':');
    let local = Path::new(if has_colon { "." } else { "" }).join(file);
    let word = shell_path(&local);
    Ok(Written::File(format!(
        "wrote {name} (mode 0600); review it before you share it: tar -xOf {word} | less"
    )))
}

fn parts(process: &Process, diagnosis: &Value) -> Parts {
    let root = &process.root;
    // Of a file with other content, nothing is kept.
    let status = Status::read(root).map(|status| json_text(&status.to_json()));
    let config = config::load(root, process.config.as_deref());
    let config = config.map(|loaded| show::text(&loaded.values));
    [
        ("doctor.json", Ok(json_text(diagnosis))),
        ("status.json", status.map_err(|error| chain(&error))),
        ("config.toml", config.map_err(|errors| errors.to_string())),
        ("journal.jsonl", journal(root)),
    ]
}

/// Returns the archive, in the ustar format. A missing file is replaced by one with the reason. All files are in one directory.
fn archive(parts: &Parts, directory: &str, at: UtcDateTime) -> io::Result<Vec<u8>> {
    let seconds = u64::try_from(at.unix_timestamp()).unwrap_or_default();
    let mut archive = tar::Builder::new(Vec::new());
    for (name, part) in parts {
        let (suffix, text) = match part {
            Ok(text) => ("", text.clone()),
            Err(why) => (".missing", format!("{}\n", one_line(why, 1000))),
        };
        let mut header = tar::Header::new_ustar();
        header.set_mode(MODE);
        header.set_uid(0);
        header.set_gid(0);
        header.set_username("root")?;
        header.set_groupname("root")?;
        header.set_mtime(seconds);
        header.set_size(text.len() as u64);
        let path = format!("{directory}/{name}{suffix}");
        archive.append_data(&mut header, path, text.as_bytes())?;
    }
    archive.into_inner()
}

/// Returns the name of the directory, valid for any hostname. It has the hostname and the time, so that archives of several machines
/// do not overwrite each other.
fn directory(host: &str, at: UtcDateTime) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || character == '-';
    let host: String = host.trim().chars().take(HOST_MAX).collect();
    let host = host.replace(|character| !is_plain(character), "-");
    let time = rfc3339(at).replace(['-', ':'], "");
    format!("doctor-{}-{time}", host.trim_matches('-'))
}

/// Returns the journal records of the agent, and of systemd about it, one JSON object per line. `journalctl` leaves out long fields.
fn journal(root: &Root) -> Result<String, String> {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=1", JOURNAL_LIMIT, "journalctl"]);
    command.args(["--lines", RECORDS, "--output", "json"]);
    command.args(["--no-pager", "--quiet"]);
    if !root.is_live() {
        command.arg(format!("--root={}", root.join("/").display()));
    }
    command.arg(format!("_SYSTEMD_UNIT={UNIT}"));
    // At the start of a service and after its end, journald may not know its unit.
    command.args(["+", "_UID=0"]).arg(format!("_EXE={PROGRAM}"));
    command.args(["+", "_PID=1"]).arg(format!("UNIT={UNIT}"));
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("failed to run journalctl: {error}"))?;
    let status = output.status;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stderr = one_line(stderr.trim(), 500);
    match () {
        () if status.code() == Some(TIMED_OUT) || status.signal() == Some(libc::SIGKILL) => {
            Err(format!("journalctl timed out after {JOURNAL_LIMIT} s"))
        }
        () if output.stdout.is_empty() => Err(format!("journalctl printed nothing: {stderr}")),
        () if !status.success() => Err(format!("journalctl failed, {status}: {stderr}")),
        () => {
            let records = String::from_utf8_lossy(&output.stdout);
            let records = records.lines().filter_map(record);
            Ok(records.map(|record| record + "\n").collect())
        }
    }
}

/// Returns the useful fields of a journal record (`journalctl -o json`), if it is about our unit by a field that journald itself
/// adds. Any process can send a record in the name of the agent.
fn record(line: &str) -> Option<String> {
    let Value::Object(fields) = serde_json::from_str(line).ok()? else {
        return None;
    };
    let is = |name: &str, value: &str| fields.get(name).and_then(Value::as_str) == Some(value);
    let is_ours = is("_SYSTEMD_UNIT", UNIT)
        // The output of a command, such as `kubeconfig`, is not its log.
        || is("_UID", "0") && is("_EXE", PROGRAM) && is("_TRANSPORT", "journal")
        || is("_PID", "1") && is("UNIT", UNIT);
    if !is_ours {
        return None;
    }
    let is_kept = |name: &String| FIELDS.contains(&name.as_str()) || name.starts_with("HNA_");
    let fields = fields.into_iter().filter(|(name, _)| is_kept(name));
    Some(in_json(&Value::Object(fields.collect()).to_string()).into_owned())
}

/// Creates a file for its owner only. An existing file or link is not changed. Where the file system supports files without a name
/// (`O_TMPFILE`), the file gets its name when it is complete: a killed process leaves nothing.
fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).mode(MODE);
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let mut unnamed = options.clone();
    let unnamed = unnamed.custom_flags(libc::O_TMPFILE);
    if let Ok(file) = unnamed.open(parent.unwrap_or(Path::new("."))) {
        fill(&file, bytes)?;
        let content = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = AtFlags::AT_SYMLINK_FOLLOW;
        return Ok(linkat(AT_FDCWD, content.as_str(), AT_FDCWD, path, flags)?);
    }
    let file = options.create_new(true).open(path)?;
    fill(&file, bytes).inspect_err(|_| {
        // A partial archive is useless; the write error is the one to report.
        let _ = std::fs::remove_file(path);
    })
}

fn fill(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    // Some file systems report a full disk only at the sync.
    file.write_all(bytes).and_then(|()| file.sync_all())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    #[test]
    fn tar_unpacks_what_was_put_in_and_why_the_rest_is_missing() {
        let parts: Parts = [
            ("a.txt", Ok("hello\n".to_owned())),
            ("b", Ok(String::new())),
            ("c.json", Err("journalctl\nis not installed".to_owned())),
            ("d", Ok("words\n".to_owned())),
        ];
        let at = UtcDateTime::from_unix_timestamp(1_795_000_000).unwrap();
        let top = directory(&"h".repeat(HOST_MAX), at);
        let dir = tempfile::tempdir().unwrap();
        let bytes = archive(&parts, &top, at).unwrap();
        std::fs::write(dir.path().join("a.tar"), bytes).unwrap();
        let tar = |arguments: &[&str]| {
            let mut tar = Command::new("tar");
            let tar = tar.args(arguments).current_dir(dir.path());
            let output = tar.env("TZ", "UTC").output().unwrap();
            let is_read = output.status.success() && output.stderr.is_empty();
            assert!(is_read, "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let list = tar(&["-tvf", "a.tar"]);
        let entry = "-rw------- root/root         6 2026-11-18 ";
        assert!(list.contains(entry), "{list}");
        tar(&["-xf", "a.tar"]);
        let read = |name| std::fs::read_to_string(dir.path().join(&top).join(name)).unwrap();
        let texts = ["a.txt", "b", "c.json.missing", "d"].map(read);
        let missing = "journalctl\\nis not installed\n";
        assert_eq!(texts, ["hello\n", "", missing, "words\n"]);
    }

    #[test]
    fn the_directory_reports_machine_and_time_and_is_one_name_whatever_the_host_is_called() {
        let at = UtcDateTime::from_unix_timestamp(1_795_000_000).unwrap();
        let (long, whole) = ("x".repeat(500), "x".repeat(HOST_MAX));
        for (host, name) in [
            ("pool1-abcde\n", "pool1-abcde"),
            ("node.example", "node-example"),
            ("../../etc/\u{1b}[31m", "etc---31m"),
            ("", ""),
            (&long, &whole),
        ] {
            let expected = format!("doctor-{name}-20261118T110640Z");
            assert_eq!(directory(host, at), expected);
        }
    }

    #[test]
    fn of_a_record_only_known_fields_are_kept_and_only_where_journald_says_that_it_is_ours() {
        let kept = |unit: &str, pid: &str| {
            record_of(&json!({
                "MESSAGE": "m", "HNA_FIX": "f", "_CMDLINE": "c", "X": "x", "SYSLOG_IDENTIFIER": "harvester-node-agent",
                "UNIT": UNIT, "_SYSTEMD_UNIT": unit, "_PID": pid, "_UID": "0",
            }))
        };
        for (unit, pid) in [(UNIT, "7"), ("init.scope", "1")] {
            let expected = json!({"MESSAGE": "m", "HNA_FIX": "f", "_PID": pid});
            assert_eq!(kept(unit, pid), Some(expected), "{unit}");
        }
        assert_eq!(kept("other.service", "7"), None);
        assert_eq!(record_of(&json!({"MESSAGE": "m", "UNIT": UNIT})), None);
        assert_eq!(record("no record"), None);
    }

    fn record_of(record: &Value) -> Option<Value> {
        super::record(&record.to_string()).map(|text| serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn the_command_to_review_an_archive_names_it_whatever_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::plain(Root::new(dir.path()));
        let long = "x".repeat(200);
        let deep = dir.path().join(&long).join(&long).join(&long);
        std::fs::create_dir_all(&deep).unwrap();
        let at = UtcDateTime::from_unix_timestamp(1_795_000_000).unwrap();
        for file in [dir.path().join("a\tb'\u{202e}.tar"), deep.join("a.tar")] {
            let written = write(&process, &file, &json!({}), at).unwrap();
            let Written::File(said) = written else {
                panic!("{written:?}");
            };
            let (_, command) = said.split_once("share it: ").unwrap();
            let command = command.replace(" | less", " >/dev/null");
            let status = Command::new("bash").args(["-c", &command]).status();
            assert!(status.unwrap().success(), "{command}");
        }
    }

    #[test]
    fn no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let [link, victim] = ["link.tar", "victim"].map(|name| dir.path().join(name));
        symlink(&victim, &link).unwrap();
        let error = create(&link, b"two").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert!(!victim.exists());
    }
}
