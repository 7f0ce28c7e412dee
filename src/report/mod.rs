// SPDX-License-Identifier: Apache-2.0
//! Reports: the journal, systemd, the status file, metrics. A message may be lost; a report never stops the loop and never changes
//! a decision.
//!
//! To add a report: a file here that takes a [`Status`], and a line in [`Reporter`].

pub mod changes;
pub mod compose;
pub mod counters;
pub mod endpoint;
pub mod event_log;
pub mod exposition;
mod file_writers;
pub mod journal;
pub mod logging;
pub mod message_id;
pub mod metrics;
pub mod problem;
pub mod relative;
pub mod show;
pub mod sink;
pub mod status;
pub mod status_file;
pub mod systemd;
pub mod text;
pub mod textfile;

use std::time::Duration;

use crate::agent::source_board::SourceBoard;
use crate::agent::state::{LastMigration, Seconds, State};
use crate::agent::{Publish, Round};
use crate::catalog::{Code, Finding, FindingKey, Flag};
use crate::config::Settings;
use crate::decide::name_match::Verdict;
use crate::facts::UnavailableKind;
use crate::facts::clock::rfc3339;
use crate::facts::trigger::Trigger;
use crate::report::endpoint::MetricsPage;
use crate::sys::disk::FileWriter;
use crate::sys::root::Root;
use changes::Reported;
use compose::Context;
use counters::Counters;
use file_writers::{METRICS, SETTLE, writers};
use journal::{Journal, Priority, Record};
use status::{AgentStatus, MigrationHintStatus, Status};
use systemd::Notifier;
use textfile::Textfile;

/// How long the exit of the process waits for the journal.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

/// How long the exit waits until the last state is saved. A lost state is determined again.
const SAVE_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 2 });

/// All reports of the daemon.
#[derive(Debug)]
pub struct Reporter {
    root: Root,
    journal: Journal,
    systemd: Notifier,
    board: SourceBoard,
    reported: Reported,
    state: State,
    state_file: FileWriter,
    status_file: FileWriter,
    events_file: FileWriter,
    context: Context,
    counters: Counters,
    textfile: Textfile,
    metrics: MetricsPage,
    ready: bool,
    line: String,
}

impl Reporter {
    /// Creates a reporter for a process that has just started.
    pub fn new(
        root: Root,
        journal: Journal,
        systemd: Notifier,
        board: SourceBoard,
        state: State,
        agent: AgentStatus,
        metrics: MetricsPage,
    ) -> Self {
        let files = [METRICS, "state", "status", "events"];
        let [textfile, state_file, status_file, events_file] = writers(&root, &board, files);
        let context = Context {
            agent,
            ..Context::default()
        };
        Self {
            textfile: Textfile::new(&root, textfile),
            root,
            journal,
            systemd,
            board,
            reported: Reported::default(),
            state,
            state_file,
            status_file,
            events_file,
            context,
            counters: Counters::default(),
            metrics,
            ready: false,
            line: String::new(),
        }
    }

    /// Sends one record without further fields.
    pub fn say(&mut self, priority: Priority, message_id: Option<&'static str>, message: String) {
        self.journal.send(Record {
            message_id,
            ..Record::new(priority, message)
        });
    }

    /// Returns the interval of the watchdog notifications to systemd.
    pub fn watchdog_period(&self) -> Option<Duration> {
        self.systemd.watchdog_interval()
    }

    /// Reports that the process is stopping.
    pub fn stopping(&mut self) {
        self.systemd.stopping();
        self.say(
            Priority::Info,
            Some(message_id::STOPPED),
            "stopping: labels of the Node are unchanged".to_owned(),
        );
    }

    /// Writes all queued entries and the state, and closes the reports.
    pub fn close(self) {
        self.journal.close(CLOSE_TIMEOUT);
        self.state_file.settle(SAVE_TIMEOUT);
    }

    fn remember(&mut self, round: &Round) {
        let state = &mut self.state;
        let last = state.last_migration.as_ref().map(|last| &last.migration);
        let remembered = round.plan.memory.last_migration.as_ref();
        if last != remembered {
            state.last_migration = remembered.cloned().map(LastMigration::from);
        }
        if let Some(last) = &mut state.last_migration {
            if round.has_labeled_migration() && last.trigger.is_none() {
                self.counters.latency.observe(round.latency());
                last.duration_seconds = Some(Seconds::of(round.latency()));
                last.trigger = Some(round.trigger().as_str().to_owned());
            }
            if let Some(interruption) = round.plan.interruption {
                self.counters.interruption.observe(interruption);
                last.interruption_seconds = Some(Seconds::of(interruption));
            }
        }
        // What is not there was not copied, and only the kubelet of this VM reports the Node.
        let kubelet = round.observation.kubelet.why();
        let has_none = kubelet.is_some_and(|why| why.kind == UnavailableKind::Missing);
        let has_joined = round.plan.memory.reporters.are_ours()
            && round.identity.node_verdict() != Verdict::AnotherVm;
        if has_none || has_joined {
            state.copied_from = None;
        }
        state.scheduled.clone_from(&round.plan.memory.scheduled);
        event_log::append(&mut state.events, &round.plan.scheduled);
        if let Some(vmi) = round.identity.vmi() {
            state.vm = Some(vmi.name.to_string());
        }
    }

    /// Updates the metrics if they are enabled.
    fn measure(&mut self, status: &Status, round: &Round, settings: &Settings) {
        self.counters.note(round);
        let path = textfile::path(&self.root, &settings.metrics.textfile);
        let listen = settings.metrics.listen.map(|listen| listen.0);
        let is_wanted = path.is_some() || listen.is_some();
        let pages = is_wanted.then(|| {
            let state = metrics::state(status, round, &settings.timing, &self.counters);
            (state, metrics::request_counters(round))
        });
        let (state, activity) = pages.unwrap_or_default();
        self.metrics.show(listen, &state, &activity);
        let uptime = round.now.uptime;
        self.textfile
            .publish(path.as_deref(), &state, &activity, uptime);
    }
}

impl Publish for Reporter {
    fn publish(&mut self, round: &Round, settings: &Settings) {
        self.remember(round);
        let now = rfc3339(round.now.wall);
        let findings = round.plan.findings.iter();
        let keys: Vec<FindingKey> = findings.map(Finding::key).collect();
        let unread = round.placement.is_none();
        let since = &mut self.context.since;
        since.retain(|key, _| keys.contains(key) || unread && key.0.is(Flag::NeedsPlacement));
        for key in keys {
            since.entry(key).or_insert_with(|| now.clone());
        }
        self.context.event_sources = self.board.sources();
        if let Some(window_end) = &round.plan.window_end {
            self.context.last_migration_hint = Some(MigrationHintStatus::new(window_end, now));
        }
        let mut status = Status {
            last_migration: self.state.last_migration.clone(),
            scheduled_event: self.state.events.last().cloned(),
            ..Status::new(round, &self.context)
        };
        status.identity.copied_from = self.state.copied_from;
        let clock = self.board.clock_steps();
        for record in self.reported.news(&status, round, clock) {
            self.journal.send(record);
        }
        self.status_file.write(status_file::content(&status));
        self.status_file.settle(SETTLE);
        self.events_file
            .write(event_log::content(&self.state.events));
        self.events_file.settle(SETTLE);
        self.measure(&status, round, settings);
        self.line = show::line(&status);
        self.systemd.status(&self.line);
        self.state_file.write(self.state.content());
    }

    fn hint(&mut self, hint: Trigger) {
        self.journal.send(self.reported.hint(hint));
    }

    fn alive(&mut self) {
        // The first keep-alive is the first local round, after which the service is ready: an unreachable API must not delay the
        // boot.
        if !self.ready {
            self.ready = true;
            self.systemd.ready("starting: identifying VM and host");
        }
        if self.systemd.watchdog_interval().is_some() {
            self.systemd.watchdog();
        }
    }

    fn reloaded(&mut self, outcome: Result<(), &str>) {
        self.systemd.reloading();
        let kept = outcome
            .err()
            .map(|text| Finding::new(Code::ConfigReloadFailed, text));
        if kept.is_none() {
            self.say(
                Priority::Info,
                Some(message_id::RELOADED),
                "configuration reloaded".to_owned(),
            );
        }
        // The next round reports it, in the journal and in the status.
        self.board.report("configuration", kept);
        let line = self.line.clone();
        self.systemd.ready(&line);
    }
}

#[cfg(test)]
pub(crate) mod tests;
