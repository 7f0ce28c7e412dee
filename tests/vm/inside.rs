// SPDX-License-Identifier: Apache-2.0
//! Inside the machine: commands through QEMU's guest agent, as a Harvester runs them, and what the journal says.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use harvester_lab::qga::Client;
use serde_json::{Value, json};
use tokio::net::UnixStream;

use crate::LIMIT;

/// The agent's records.
const JOURNAL: &str = "journalctl --identifier=harvester-node-agent";

/// Where the kernel tells what it was asked to note.
const TRACING: &str = "/sys/kernel/tracing";

/// The agent's unit.
pub const UNIT: &str = "harvester-node-agent.service";

/// Between two looks into the guest, each of which costs it something.
const POLL: Duration = Duration::from_millis(300);

/// From the start of a command to the first question whether it has ended; each following one comes after twice as long.
const FIRST_QUESTION: Duration = Duration::from_millis(20);

/// Commands in the guest.
#[derive(Debug)]
pub struct Inside {
    client: Client<UnixStream>,
}

/// The end of a command.
#[derive(Debug, Clone)]
pub struct Output {
    /// Exit code.
    pub code: i64,
    /// Both streams.
    pub text: String,
}

/// A time of the host in microseconds since the epoch.
pub fn micros(at: SystemTime) -> i128 {
    let since = at.duration_since(UNIX_EPOCH).unwrap();
    i128::try_from(since.as_micros()).unwrap()
}

/// A record of the guest's journal.
#[derive(Clone)]
pub struct Record(pub Value);

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message())
    }
}

impl Record {
    /// A field; empty where there is none.
    pub fn field(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    /// What a person reads.
    pub fn message(&self) -> &str {
        self.field("MESSAGE")
    }

    /// When journald had it, by the guest's wall clock, in microseconds since the epoch.
    pub fn at(&self) -> i128 {
        self.field("__REALTIME_TIMESTAMP").parse().unwrap()
    }

    /// What the guest's wall clock is ahead of its monotonic clock, in microseconds, when journald had it.
    pub fn wall_ahead(&self) -> i128 {
        let monotonic: i128 = self.field("__MONOTONIC_TIMESTAMP").parse().unwrap();
        self.at() - monotonic
    }

    /// When it was sent to journald, as the kernel noted it on the datagram: the time that `journalctl` prints.
    pub fn sent_at(&self) -> i128 {
        self.field("_SOURCE_REALTIME_TIMESTAMP").parse().unwrap()
    }
}

impl Inside {
    /// Speaks to the guest agent at the other end of its port.
    pub async fn new(port: UnixStream) -> Self {
        let mut client = Client::new(port).patient(LIMIT);
        client.sync().await;
        Self { client }
    }

    /// Makes both ends forget what was, after the guest agent was started anew behind the same port.
    pub async fn sync(&mut self) {
        self.client.sync().await;
    }

    /// A command of the guest agent.
    pub async fn execute(&mut self, command: &str, arguments: Value) -> Value {
        let answer = self.client.execute(command, arguments).await;
        answer.unwrap_or_else(|error| panic!("{command}: {error:?}"))
    }

    /// Runs a script to its end, whatever that is.
    pub async fn run(&mut self, script: &str) -> Output {
        let arguments = json!({
            "path": "/bin/sh", "arg": ["-c", format!("exec 2>&1; {script}")], "capture-output": true,
            "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "SYSTEMD_PAGER="],
        });
        let pid = self.execute("guest-exec", arguments).await["pid"].clone();
        // Twice as long as a script itself waits, by the guest's clock, which may be slower.
        let deadline = Instant::now() + LIMIT * 2;
        let mut pause = FIRST_QUESTION;
        loop {
            tokio::time::sleep(pause).await;
            pause = POLL.min(pause * 2);
            let mut status = self.execute("guest-exec-status", json!({"pid": pid})).await;
            if status["exited"] == true {
                let encoded = status["out-data"].take();
                let bytes = base64::engine::general_purpose::STANDARD
                    .decode(encoded.as_str().unwrap_or_default())
                    .unwrap();
                return Output {
                    code: status["exitcode"].as_i64().unwrap_or(-1),
                    text: String::from_utf8_lossy(&bytes).trim_end().to_owned(),
                };
            }
            assert!(Instant::now() < deadline, "`{script}` did not end");
        }
    }

    /// Runs a script that must succeed; what it printed.
    pub async fn sh(&mut self, script: &str) -> String {
        let output = self.run(script).await;
        assert_eq!(output.code, 0, "`{script}`: {}", output.text);
        output.text
    }

    /// Waits until a script succeeds; what it printed then.
    pub async fn until(&mut self, script: &str) -> String {
        let output = self.try_until(script).await;
        assert_eq!(output.code, 0, "not in time: `{script}`: {}", output.text);
        output.text
    }

    /// Waits until a script succeeds, or fails for the last time.
    async fn try_until(&mut self, script: &str) -> Output {
        let seconds = LIMIT.as_secs();
        self.run(&format!(
            "up() {{ read -r up _ </proc/uptime; up=${{up%.*}}; }}; up; end=$((up + {seconds})); \
             until out=$({{ {script}; }} 2>&1); do up; [ $up -lt $end ] || {{ late=1; break; }}; sleep 0.2; done; \
             printf '%s\\n' \"$out\"; exit ${{late:-0}}"
        ))
        .await
    }

    /// Properties of a unit.
    pub async fn property(&mut self, unit: &str, name: &str) -> String {
        let script = format!("systemctl show --value --property={name} {unit}");
        self.sh(&script).await
    }

    /// The agent's status file, which is there some time after the start.
    pub async fn status(&mut self) -> Value {
        let text = self
            .until("cat /run/harvester-node-agent/status.json")
            .await;
        serde_json::from_str(&text).unwrap()
    }

    /// Waits until the agent's status is so.
    pub async fn status_becomes(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + LIMIT;
        loop {
            let status = self.status().await;
            if wanted(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "not in time: {what}: {status:#}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until the status names the finding. The agent writes its status after the Node, so what the API shows may be ahead of it.
    pub async fn has_finding(&mut self, code: &str) {
        self.status_becomes(code, |status| codes_of(status).contains(&code))
            .await;
    }

    /// Waits until the status has no finding.
    pub async fn has_no_finding(&mut self) {
        self.status_becomes("no finding", |status| codes_of(status).is_empty())
            .await;
    }

    /// Waits until one status is of this host and has no finding: one of before the move is of another host.
    pub async fn has_no_finding_on(&mut self, host: &str) {
        let is_well =
            |status: &Value| status["placement"]["host"] == host && codes_of(status).is_empty();
        self.status_becomes("no finding on the host", is_well).await;
    }

    /// An argument of `journalctl` for what comes after the last record of the agent so far. A record of another program would not do: `journalctl`
    /// takes the first one that it finds after a cursor for the cursor's own.
    pub async fn cursor(&mut self) -> String {
        let shown = format!("{JOURNAL} --lines=1 --show-cursor --quiet --output=cat || true");
        let text = self.sh(&shown).await;
        let cursor = text.rsplit_once("-- cursor: ");
        cursor.map_or_else(String::new, |(_, cursor)| {
            format!("--after-cursor='{}'", cursor.trim())
        })
    }

    /// What the agent wrote to the journal since then.
    pub async fn records(&mut self, since: &str) -> Vec<Record> {
        // It fails where there is none.
        let shown = format!("{JOURNAL} {since} --quiet --output=json || true");
        records(&self.sh(&shown).await)
    }

    /// When another program wrote its first record after a time of the guest, both in microseconds since the epoch.
    pub async fn first_record_of(&mut self, identifier: &str, after: i128) -> Option<i128> {
        let (seconds, micros) = (after / 1_000_000, after % 1_000_000);
        let since = format!("--since=@{seconds}.{micros:06}");
        let shown =
            format!("journalctl --identifier={identifier} {since} --quiet --output=json || true");
        let text = self.sh(&shown).await;
        let first = serde_json::from_str(text.lines().next()?).unwrap();
        Some(Record(first).at())
    }

    /// Makes the kernel note when it announces a NIC.
    pub async fn trace_announcements(&mut self) {
        self.sh(&format!(
            "mountpoint -q {TRACING} || mount -t tracefs tracefs {TRACING}; cd {TRACING}; \
             echo mono >trace_clock; echo p:announced netdev_notify_peers >kprobe_events; \
             echo 1 >events/kprobes/announced/enable"
        ))
        .await;
    }

    /// When the kernel began to announce a NIC first since this was last asked, by its monotonic clock in microseconds.
    pub async fn announced(&mut self) -> Option<i128> {
        let script = format!("cd {TRACING}; sed '/^#/d; q' trace; : >trace");
        // `kworker/1:2-44 [001] ..... 81.123456: announced: (netdev_notify_peers+0x0/0x60)`
        let text = self.sh(&script).await;
        let (before, _) = text.split_once(": announced:")?;
        let (seconds, micros) = before.rsplit_once(' ')?.1.split_once('.')?;
        Some(seconds.parse::<i128>().ok()? * 1_000_000 + micros.parse::<i128>().ok()?)
    }

    /// Waits until the agent has written a record since then; all of that time.
    pub async fn recorded(&mut self, since: &str, message: &str) -> Vec<Record> {
        let shown = format!("{JOURNAL} {since} --quiet --output=json");
        let wanted = message.replace('\'', r"'\''");
        let script = format!(
            "{shown} >/run/records; cat /run/records; grep --fixed-strings --quiet '{wanted}' /run/records"
        );
        let output = self.try_until(&script).await;
        let records = records(&output.text);
        assert_eq!(output.code, 0, "not in time: `{message}` in {records:#?}");
        records
    }
}

/// The codes of the findings in the agent's status.
pub fn codes_of(status: &Value) -> Vec<&str> {
    let findings = status["findings"].as_array().unwrap();
    let codes = findings.iter().filter_map(|one| one["code"].as_str());
    codes.collect()
}

/// The output of `journalctl --output=json`.
fn records(text: &str) -> Vec<Record> {
    let records = text.lines().map(|line| serde_json::from_str(line).unwrap());
    records.map(Record).collect()
}
