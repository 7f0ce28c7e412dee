// SPDX-License-Identifier: Apache-2.0
//! `doctor --bundle`: gathers what goes into the support archive. What may be a secret in it, `report::bundle` removes.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::cli::run::Process;
use crate::config::{self, show};
use crate::escape::{chain, one_line};
use crate::facts::guest_agent::UNITS;
use crate::report::bundle::{self, Bundle};
use crate::report::status_file;
use crate::root::Root;

/// Our unit.
const UNIT: &str = "harvester-node-agent.service";

/// The agent in the journal.
const IDENTIFIER: &str = "SYSLOG_IDENTIFIER=harvester-node-agent";

/// Records of the journal.
const RECORDS: &str = "200";

/// No command takes longer; a journal on a slow disk is read from its end.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// The archive takes no longer: its commands come one after the other.
const LIMIT: Duration = Duration::from_secs(30);

/// What is read of a command's output, at most.
const OUTPUT_MAX: u64 = 4 << 20;

/// Units and their drop-ins are a few lines.
const UNIT_MAX: u64 = 64 << 10;

/// Directories with units, by precedence (systemd.unit(5), "Unit File Load Path").
const UNIT_DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// What was printed, in both forms.
#[derive(Debug)]
pub(super) struct Printed {
    /// `-o json`.
    pub(super) document: Value,
    /// `-o text`.
    pub(super) text: String,
    /// When, in seconds since 1970.
    pub(super) at: u64,
}

/// As [`write`], and given up after a while: what hangs where files are cannot be called back.
///
/// # Errors
///
/// Why there is no archive.
pub(super) fn write_within(
    process: &Process,
    file: &Path,
    printed: Printed,
) -> Result<String, String> {
    let (tell, told) = mpsc::channel();
    let (process, path) = (process.clone(), file.to_owned());
    let work = move || {
        tell.send(write(&process, &path, printed))
            .unwrap_or_default()
    };
    let thread = thread::Builder::new().spawn(work);
    thread.map_err(|error| format!("the kernel gives no thread: {error}"))?;
    let seconds = LIMIT.as_secs();
    let hung = |_| {
        Err(format!(
            "no archive within {seconds} s: a disk, a network file system or a device hangs"
        ))
    };
    told.recv_timeout(LIMIT).unwrap_or_else(hung)
}

/// Writes the archive and returns what to say of it.
///
/// # Errors
///
/// Why there is no archive.
fn write(process: &Process, file: &Path, printed: Printed) -> Result<String, String> {
    let at = printed.at;
    let name = file.display().to_string();
    let name = one_line(&name, 500);
    let archive = gather(process, printed).archive(at);
    bundle::write(file, &archive)
        .map_err(|error| format!("failed to write the new file {name}: {error}"))?;
    Ok(format!(
        "wrote {name} for root alone; look through it before you pass it on: tar -xOf {name} | less"
    ))
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

/// What the agent said, and systemd of it. Also by name: journald may take a service for a part of systemd in its first second.
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
    arguments.extend([&unit, "+", "_PID=1", &of_systemd, "+", IDENTIFIER]);
    output("journalctl", &arguments)
}

fn versions(root: &Root) -> String {
    let file = |path| match root.read_text(path, UNIT_MAX) {
        Ok(text) => text.trim().to_owned(),
        Err(error) => chain(&error),
    };
    let systemd = match root.is_live() {
        true => output("systemctl", &["--version"]).unwrap_or_else(|why| why),
        false => "not asked: this is a tree and not the running system".to_owned(),
    };
    format!(
        "harvester-node-agent {}\n\n# /proc/sys/kernel/osrelease\n{}\n\n# systemctl --version\n{}\n\n# /etc/os-release\n{}\n",
        env!("CARGO_PKG_VERSION"),
        file("/proc/sys/kernel/osrelease"),
        systemd.trim(),
        file("/etc/os-release"),
    )
}

/// The file of a unit that is in force, and its drop-ins, each with its path.
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
        return Err("there is no such unit".to_owned());
    }
    Ok(files)
}

/// What a command prints. It is killed when its time is over.
fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("failed to run {program}: {error}");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let (sender, receiver) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = stdout.take(OUTPUT_MAX).read_to_end(&mut bytes);
            // Nobody listens any more when the time is over.
            let _ = sender.send(read.map(|_| bytes));
        });
    }
    let read = receiver.recv_timeout(COMMAND_LIMIT);
    // One that hangs, or has more to say than is wanted.
    let is_whole = matches!(&read, Ok(Ok(bytes)) if (bytes.len() as u64) < OUTPUT_MAX);
    if !is_whole {
        let _ = child.kill();
    }
    let status = child.wait().map_err(failed)?;
    let limit = COMMAND_LIMIT.as_secs();
    let bytes = read.map_err(|_| format!("{program} did not end within {limit} s"))?;
    let bytes = bytes.map_err(failed)?;
    match () {
        () if is_whole && !status.success() => Err(format!("{program} failed, {status}")),
        () if bytes.is_empty() => Err(format!("{program} has nothing to say")),
        () => Ok(String::from_utf8_lossy(&bytes).into_owned()),
    }
}
