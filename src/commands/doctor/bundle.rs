// SPDX-License-Identifier: Apache-2.0
//! `doctor --bundle`: collects the content of the support archive. [`super::archive`] removes the secrets.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use time::UtcDateTime;

use crate::commands::doctor::archive::{self, Bundle};
use crate::commands::run::Process;
use crate::config::{self, show};
use crate::facts::guest_agent::UNITS;
use crate::report::status_file;
use crate::sys::escape::{chain, one_line, shell_word};
use crate::sys::root::Root;

/// Our unit.
const UNIT: &str = "harvester-node-agent.service";

/// Matches journal records with the name of the agent, which any process can use.
const IDENTIFIER: &str = "SYSLOG_IDENTIFIER=harvester-node-agent";

/// Matches journal records of root, as verified by the kernel.
const OF_ROOT: &str = "_UID=0";

/// The hostname of the kernel, also in a file tree.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// The maximum number of journal records.
const RECORDS: &str = "200";

/// The timeout of a command: even on a slow disk, the journal is read from its end.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// The timeout of the archive: its commands run one after another.
const LIMIT: Duration = Duration::from_secs(30);

/// The maximum output of a command, in bytes.
const OUTPUT_MAX: u64 = 4 << 20;

/// The maximum size of a unit file, which has only some lines.
const UNIT_MAX: u64 = 64 << 10;

/// The unit directories, by precedence (systemd.unit(5), "Unit File Load Path").
const UNIT_DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// The time that a killed command needs to exit, unless the kernel blocks it.
const KILL_LIMIT: Duration = Duration::from_millis(500);

/// The maximum error output of a command, in bytes.
const COMPLAINT_MAX: u64 = 4 << 10;

/// The printed diagnosis, in both formats.
#[derive(Debug)]
pub(super) struct Printed {
    /// `-o json`.
    pub(super) document: Value,
    /// `-o text`.
    pub(super) text: String,
    /// The time of the diagnosis.
    pub(super) at: UtcDateTime,
}

/// Runs [`write`] with a timeout: a read or write on a file system that hangs cannot be canceled.
///
/// # Errors
///
/// Returns the reason why there is no archive.
pub(super) fn write_within(
    process: &Process,
    file: &Path,
    printed: Printed,
) -> Result<Written, String> {
    let (tell, reported) = mpsc::channel();
    let (process, path) = (process.clone(), file.to_owned());
    let work = move || {
        tell.send(write(&process, &path, printed))
            .unwrap_or_default();
    };
    let thread = thread::Builder::new().spawn(work);
    thread.map_err(|error| format!("failed to spawn a thread: {error}"))?;
    let seconds = LIMIT.as_secs();
    let hung = |_| {
        Err(format!(
            "no archive within {seconds}s: a disk, network file system or device hangs"
        ))
    };
    reported.recv_timeout(LIMIT).unwrap_or_else(hung)
}

/// Writes the archive, and returns its location or content.
///
/// # Errors
///
/// Returns the reason why there is no archive.
fn write(process: &Process, file: &Path, printed: Printed) -> Result<Written, String> {
    let at = printed.at;
    let host = process.root.read_text(HOST_NAME, UNIT_MAX);
    let archive = gather(process, printed).archive(&host.unwrap_or_default(), at);
    let archive = archive.map_err(|error| format!("failed to make the archive: {error}"))?;
    if file == Path::new("-") {
        // An archive consists only of text and null bytes.
        let archive = String::from_utf8(archive).map_err(|error| error.to_string())?;
        return Ok(Written::Printed(archive));
    }
    let name = one_line(&file.display().to_string(), 500).into_owned();
    archive::write(file, &archive).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            format!("{name} exists; remove it, or choose another name")
        }
        _ => format!("failed to write {name}: {error}"),
    })?;
    let word = shell_word(&name);
    Ok(Written::File(format!(
        "wrote {name} (mode 0600); review it before you share it: tar -xOf {word} | less"
    )))
}

/// The location of the archive.
#[derive(Debug)]
pub(super) enum Written {
    /// A file; with the message to print.
    File(String),
    /// Standard output; with the archive to print.
    Printed(String),
}

fn gather(process: &Process, printed: Printed) -> Bundle {
    let root = &process.root;
    let mut bundle = Bundle::default();
    bundle.document("doctor.json", Ok(printed.document));
    bundle.text("doctor.txt", Ok(printed.text));
    let config = config::load(root, process.config.as_deref());
    let config = config.map(|loaded| show::text(&loaded.values));
    bundle.text("config.toml", config.map_err(|faults| faults.to_string()));
    let status = status_file::read(root).map_err(|error| chain(&error));
    bundle.document("status.json", status);
    bundle.records("journal.jsonl", journal(root));
    bundle.text("versions.txt", Ok(versions(root)));
    for unit in [UNIT].into_iter().chain(UNITS) {
        bundle.text(&format!("units/{unit}"), unit_files(root, unit));
    }
    bundle
}

/// Returns the records of the agent, and of systemd about it. Also matches by name: journald may attribute the first second of a
/// service to systemd.
fn journal(root: &Root) -> Result<String, String> {
    let unit = format!("_SYSTEMD_UNIT={UNIT}");
    let of_systemd = format!("UNIT={UNIT}");
    let tree = format!("--root={}", root.join("/").display());
    let mut arguments = vec![
        "--lines",
        RECORDS,
        "--output",
        "json",
        "--no-pager",
        "--quiet",
    ];
    if !root.is_live() {
        arguments.push(&tree);
    }
    arguments.extend([&unit, "+", "_PID=1", &of_systemd, "+", IDENTIFIER, OF_ROOT]);
    output("journalctl", &arguments)
}

fn versions(root: &Root) -> String {
    let file = |path| match root.read_text(path, UNIT_MAX) {
        Ok(text) => text.trim().to_owned(),
        Err(error) => chain(&error),
    };
    let systemd = match root.is_live() {
        true => output("systemctl", &["--version"]).unwrap_or_else(|why| why),
        false => "skipped: this is a file tree, not the running system".to_owned(),
    };
    format!(
        "harvester-node-agent {}\n\n# /proc/sys/kernel/osrelease\n{}\n\n# systemctl --version\n{}\n\n# /etc/os-release\n{}\n",
        env!("CARGO_PKG_VERSION"),
        file("/proc/sys/kernel/osrelease"),
        systemd.trim(),
        file("/etc/os-release"),
    )
}

/// Returns the effective unit file and its drop-ins, each with its path.
fn unit_files(root: &Root, unit: &str) -> Result<String, String> {
    let main = UNIT_DIRECTORIES.map(|directory| Path::new(directory).join(unit));
    let main = main.into_iter().find(|path| root.exists(path));
    let drop_ins = UNIT_DIRECTORIES.iter().flat_map(|directory| {
        let directory = Path::new(directory).join(format!("{unit}.d"));
        let names = root.list(&directory).unwrap_or_default();
        names.into_iter().map(move |name| directory.join(name))
    });
    let files = main.into_iter().chain(drop_ins).map(|path| {
        let text = root.read_text(&path, UNIT_MAX);
        let text = text.unwrap_or_else(|error| chain(&error));
        format!("# {}\n{text}\n", path.display())
    });
    let files: String = files.collect();
    if files.is_empty() {
        return Err("no such unit".to_owned());
    }
    Ok(files)
}

/// Returns the output of a command. The command is killed after a timeout.
fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("failed to run {program}: {error}");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let (sender, receiver) = mpsc::channel();
    if let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) {
        thread::spawn(move || {
            let (mut bytes, mut said) = (Vec::new(), Vec::new());
            let read = stdout.take(OUTPUT_MAX).read_to_end(&mut bytes);
            if (bytes.len() as u64) < OUTPUT_MAX {
                let _ = stderr.take(COMPLAINT_MAX).read_to_end(&mut said);
            }
            // After the timeout, there is no receiver.
            let _ = sender.send(read.map(|_| (bytes, said)));
        });
    }
    let read = receiver.recv_timeout(COMMAND_LIMIT);
    // The command hangs, or its output is too long.
    let is_whole = matches!(&read, Ok(Ok((bytes, _))) if (bytes.len() as u64) < OUTPUT_MAX);
    if !is_whole {
        let _ = child.kill();
    }
    let status = ended(child).map_err(failed)?;
    let limit = COMMAND_LIMIT.as_secs();
    let read = read.map_err(|_| format!("{program} timed out after {limit} s"))?;
    let (bytes, stderr) = read.map_err(failed)?;
    let stderr = String::from_utf8_lossy(&stderr);
    let stderr = one_line(stderr.trim(), 500);
    match status {
        Some(status) if is_whole && !status.success() => {
            Err(format!("{program} failed, {status}: {stderr}"))
        }
        _ if bytes.is_empty() => Err(format!("{program} printed nothing: {stderr}")),
        _ => Ok(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

/// Waits for the exit of a command that closed its output or was killed, but not for one that is blocked by a disk in the kernel.
fn ended(mut child: Child) -> std::io::Result<Option<ExitStatus>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // After the timeout, there is no receiver.
        let _ = sender.send(child.wait());
    });
    receiver.recv_timeout(KILL_LIMIT).ok().transpose()
}
