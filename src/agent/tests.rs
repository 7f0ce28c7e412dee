// SPDX-License-Identifier: Apache-2.0
//! The loop with a paused clock and fake I/O.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::*;
use crate::config::LabelKey;
use crate::decide::Refusal;
use crate::decide::fixtures::{World as Facts, host_labels};
use crate::decide::schedule::Random;
use crate::facts::placement::Source;
use crate::facts::requests::Requests;
use crate::facts::{Fact, UnavailableKind};

/// All events, in order.
type Log = Rc<RefCell<Vec<String>>>;

struct FakeIo {
    facts: Facts,
    log: Log,
    refuse: Option<Refusal>,
    /// The time when the API reports that the VM runs on hv-b, if ever.
    moves: Option<Instant>,
    /// The response time of the APIs.
    slow: Duration,
}

impl Observe for FakeIo {
    type Targets = ();

    fn targets(&self, _: &Settings, _: &Identity) {}

    fn requests(&self) -> Vec<Requests> {
        Vec::new()
    }

    async fn observation(
        &mut self,
        _: &Settings,
        scope: Scope,
        _: Now,
        _: &mut dyn FnMut(),
    ) -> Observation {
        self.log.borrow_mut().push(format!("who {}", named(scope)));
        if self.moves.take_if(|at| *at <= Instant::now()).is_some() {
            self.facts.migrate("hv-b", "eu-1", "rack-b");
        }
        if scope != Scope::NONE {
            tokio::time::sleep(self.slow).await;
        }
        self.facts.observation.clone()
    }

    async fn placement(&mut self, settings: &Settings, at: &Located<'_>, _: Now) -> Placement {
        self.facts.place(settings, at)
    }
}

impl Apply for FakeIo {
    async fn apply(&mut self, action: &Action, _: Now) -> Answer {
        let kind = match action {
            Action::StartUnit(unit) => format!("start {unit}"),
            Action::RunHooks(run) => format!("hooks {}", run.event.state.as_str()),
            Action::SendEvents(events) => format!("events {}", events.announce.len()),
            Action::PatchNode(patch) => format!("patch {}", patch.labels.len()),
            Action::PatchConditions(patch) => format!("conditions {}", patch.conditions.len()),
        };
        self.log.borrow_mut().push(kind);
        if let Some(refusal) = &self.refuse {
            return Err(refusal.clone());
        }
        self.facts.change(action);
        Ok(self.facts.observation.node.known().cloned())
    }

    async fn announce(&mut self) {}
}

struct FakePublish {
    log: Log,
}

impl Publish for FakePublish {
    fn publish(&mut self, round: &Round, _: &Settings) {
        let mut log = self.log.borrow_mut();
        log.push(format!("report {}", round.trigger().as_str()));
        if round.has_labeled_migration() {
            let latency = round.latency().as_millis();
            log.push(format!("migrated after {latency} ms"));
        }
        if let Some(window_end) = &round.plan.window_end {
            let outcome = window_end.outcome.as_str();
            log.push(format!(
                "{outcome} after {} ms and {} reads",
                window_end.took.as_millis(),
                window_end.reads
            ));
        }
    }

    fn hint(&mut self, hint: Trigger) {
        let text = format!("sign {}", hint.as_str());
        self.log.borrow_mut().push(text);
    }

    fn alive(&mut self) {}

    fn reloaded(&mut self, outcome: Result<(), &str>) {
        self.log.borrow_mut().push(format!("reloaded {outcome:?}"));
    }
}

/// A fake that returns the wakes of a script, then the scheduled rounds three times, then waits indefinitely.
struct FakeWait {
    script: VecDeque<Wake>,
    limits: Rc<RefCell<Vec<Duration>>>,
    timers: usize,
    began: Instant,
    log: Log,
    /// The time after which a new name interrupts a round.
    rename: Option<Duration>,
    /// Whether names keep changing indefinitely.
    restless: bool,
}

impl Wait for FakeWait {
    type Targets = ();

    fn subscribe(&mut self, (): ()) {}

    async fn wait(&mut self, next: Next, _: &mut dyn FnMut()) -> Wake {
        self.limits.borrow_mut().push(next.after);
        if let Some(wake) = self.script.pop_front() {
            return wake;
        }
        tokio::time::sleep(next.after).await;
        self.timers += usize::from(next.trigger == Trigger::Timer);
        if self.timers > 3 {
            std::future::pending::<()>().await;
        }
        Wake::Reconcile(Reasons {
            trigger: next.trigger,
            scope: next.scope,
            at: Instant::now() - self.began + Duration::from_secs(1),
            hint: None,
            renamed: false,
        })
    }

    async fn renamed(&mut self) {
        let Some(after) = self.rename else {
            return std::future::pending().await;
        };
        tokio::time::sleep(after).await;
        self.rename = self.rename.filter(|_| self.restless);
    }

    fn verify(&mut self, since: Duration) {
        let after = (Instant::now() - self.began + Duration::from_secs(1)).saturating_sub(since);
        self.log
            .borrow_mut()
            .push(format!("prove after {} ms", after.as_millis()));
    }
}

/// Returns a clock that starts now.
fn paused_clock() -> impl Fn() -> Now {
    let start = Instant::now();
    move || Now {
        uptime: Instant::now() - start + Duration::from_secs(1),
        wall: time::UtcDateTime::from_unix_timestamp(1_795_000_000).unwrap(),
        random: Random::from_bits(u64::MAX / 2),
    }
}

fn wake(trigger: Trigger) -> Wake {
    Wake::Reconcile(Reasons::new(trigger, Duration::from_secs(1)))
}

fn named(scope: Scope) -> &'static str {
    match scope {
        Scope::ALL => "All",
        Scope::KNOWN => "Known",
        Scope::DELIVERED => "delivered",
        Scope::RELOAD => "reload",
        Scope::REFUSED => "refused",
        _ if scope == Scope::KNOWN | Scope::DELIVERED => "Known and delivered",
        Scope::VM | Scope::HINTED => "VM",
        Scope::NONE => "nothing",
        _ => "something else",
    }
}

struct Run {
    log: Vec<String>,
    limits: Vec<Duration>,
}

async fn run_with(
    facts: Facts,
    script: Vec<Wake>,
    refuse: Option<Refusal>,
    reloads: Vec<Result<Settings, String>>,
) -> Run {
    Box::pin(run_tuned(facts, script, refuse, reloads, |_, _| {})).await
}

/// Runs the loop. `tune` changes other settings of the test.
async fn run_tuned(
    facts: Facts,
    script: Vec<Wake>,
    refuse: Option<Refusal>,
    reloads: Vec<Result<Settings, String>>,
    tune: impl FnOnce(&mut FakeIo, &mut FakeWait),
) -> Run {
    let log = Log::default();
    let limits = Rc::new(RefCell::new(Vec::new()));
    let settings = facts.settings.clone();
    let mut reloads = reloads.into_iter();
    let mut agent = Agent {
        io: FakeIo {
            facts,
            log: log.clone(),
            refuse,
            moves: None,
            slow: Duration::ZERO,
        },
        publish: FakePublish { log: log.clone() },
        wait: FakeWait {
            script: script.into(),
            limits: limits.clone(),
            timers: 0,
            began: Instant::now(),
            log: log.clone(),
            rename: None,
            restless: false,
        },
        reload: || {
            let next = reloads.next();
            next.unwrap_or_else(|| Err("nothing to read".to_owned()))
        },
        clock: paused_clock(),
    };
    tune(&mut agent.io, &mut agent.wait);
    // The loop never ends by itself: it is dropped, like in the service.
    let day = Duration::from_secs(86_400);
    let life = Box::pin(run(settings, &mut agent, Memory::default()));
    tokio::time::timeout(day, life).await.unwrap_err();
    Run {
        log: log.take(),
        limits: limits.take(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_labels_then_says_so_and_then_only_time_passes() {
    let run = run_with(Facts::new(), vec![wake(Trigger::Node)], None, Vec::new()).await;
    let expected = [
        "who All",
        "patch 3",
        "report startup",
        "conditions 3",
        "who delivered",
        "report node",
        "who Known",
        "report timer",
        "who Known",
        "report timer",
        "who Known",
        "report timer",
    ];
    assert_eq!(run.log, expected);
    assert!(
        run.limits
            .iter()
            .all(|limit| *limit >= Duration::from_secs(60)),
        "{:?}",
        run.limits
    );
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_tried_again_with_growing_waits_and_never_ends_the_loop() {
    let refusal = Refusal {
        text: "403".to_owned(),
        passing: false,
        retry_after: None,
        is_deferred: false,
    };
    // Conditions have retries of their own.
    let mut facts = Facts::new();
    facts.settings.report.node_conditions = false;
    let run = run_with(facts, Vec::new(), Some(refusal), Vec::new()).await;
    assert_eq!(
        run.log
            .iter()
            .filter(|entry| entry.starts_with("patch"))
            .count(),
        4
    );
    assert!(
        run.limits.windows(2).all(|pair| pair[0] <= pair[1]),
        "{:?}",
        run.limits
    );
    assert!(
        run.limits
            .iter()
            .all(|limit| *limit >= Duration::from_millis(100) && *limit < Duration::from_secs(10))
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_beside_reads_that_succeed_is_tried_again_with_growing_waits() {
    // Each response to a read restarts the backoff of the API, so its remaining time does not increase.
    let refusal = Refusal {
        text: "500".to_owned(),
        passing: true,
        retry_after: Some(Duration::from_millis(100)),
        is_deferred: false,
    };
    let run = run_with(Facts::new(), Vec::new(), Some(refusal), Vec::new()).await;
    assert!(run.limits.len() > 2, "{:?}", run.limits);
    assert!(
        run.limits.windows(2).all(|pair| pair[0] < pair[1]),
        "{:?}",
        run.limits
    );
}

#[tokio::test(start_paused = true)]
async fn refused_conditions_are_tried_later_and_later_and_said() {
    let mut facts = Facts::new();
    let plan = facts.plan();
    facts.apply(&plan);
    facts.memory = Memory::default();
    let refusal = Refusal {
        text: "etcd is full".to_owned(),
        passing: true,
        retry_after: Some(Duration::from_secs(2)),
        is_deferred: false,
    };
    let run = run_with(facts, Vec::new(), Some(refusal), Vec::new()).await;
    assert_eq!(
        run.log
            .iter()
            .filter(|entry| entry.starts_with("conditions"))
            .count(),
        4
    );
    assert!(
        run.limits
            .iter()
            .all(|limit| *limit >= Duration::from_secs(2)),
        "{:?}",
        run.limits
    );
}

#[tokio::test(start_paused = true)]
async fn an_api_that_is_away_costs_no_write_and_slower_and_slower_looks() {
    let mut facts = Facts::new();
    facts.settle();
    facts.observation.candidates = Fact::failed(UnavailableKind::Unreachable, "connection refused");
    facts.memory = Memory::default();
    let run = run_with(facts, Vec::new(), None, Vec::new()).await;
    assert!(!run.log.iter().any(|entry| entry.starts_with("patch")));
    assert!(
        run.limits.windows(2).all(|pair| pair[0] < pair[1]),
        "{:?}",
        run.limits
    );
}

#[tokio::test(start_paused = true)]
async fn a_hostname_change_interrupts_a_slow_read_which_is_then_repeated() {
    let mut facts = Facts::new();
    facts.settle();
    let slowly = |io: &mut FakeIo, wait: &mut FakeWait| {
        io.slow = Duration::from_secs(10);
        wait.rename = Some(Duration::from_secs(1));
    };
    let run = run_tuned(facts, vec![wake(Trigger::Node)], None, Vec::new(), slowly).await;
    let expected = [
        "who All",
        "who nothing",
        "report hostname",
        "who All",
        "report startup",
        "who delivered",
        "report node",
    ];
    assert_eq!(run.log[..expected.len()], expected);
}

#[tokio::test(start_paused = true)]
async fn a_new_name_that_comes_together_with_a_reason_to_ask_is_reported_first() {
    let mut facts = Facts::new();
    facts.settle();
    let at = Duration::from_secs(1);
    let both = Reasons::new(Trigger::Node, at).and(Reasons::new(Trigger::Hostname, at));
    let alone = wake(Trigger::Hostname);
    let slowly = |io: &mut FakeIo, _: &mut FakeWait| io.slow = Duration::from_secs(10);
    let script = vec![Wake::Reconcile(both), alone];
    let run = run_tuned(facts, script, None, Vec::new(), slowly).await;
    let expected = [
        "who All",
        "report startup",
        "who delivered",
        "who nothing",
        "report hostname",
        "who Known and delivered",
        "report node",
        // A new name alone causes no API request.
        "who nothing",
        "report hostname",
        "who Known",
        "report timer",
    ];
    assert_eq!(run.log[..expected.len()], expected);
}

#[tokio::test(start_paused = true)]
async fn constant_hostname_changes_do_not_block_a_slow_read() {
    let mut facts = Facts::new();
    facts.settle();
    let restless = |io: &mut FakeIo, wait: &mut FakeWait| {
        io.slow = Duration::from_secs(10);
        wait.rename = Some(Duration::from_secs(1));
        wait.restless = true;
    };
    let run = run_tuned(facts, Vec::new(), None, Vec::new(), restless).await;
    let begun = run.log.iter().filter(|line| *line == "who All").count();
    assert_eq!(begun, CUTS_MAX as usize + 1, "{:?}", run.log);
    assert!(
        run.log.contains(&"report startup".to_owned()),
        "{:?}",
        run.log
    );
}

#[tokio::test(start_paused = true)]
async fn names_that_change_faster_than_each_second_give_up_one_request_a_second() {
    let mut facts = Facts::new();
    facts.settle();
    let flapping = |io: &mut FakeIo, wait: &mut FakeWait| {
        io.slow = Duration::from_millis(500);
        wait.rename = Some(Duration::from_millis(1));
        wait.restless = true;
    };
    let run = run_tuned(facts, Vec::new(), None, Vec::new(), flapping).await;
    let expected = [
        "who All",
        "who nothing",
        "report hostname",
        "who All",
        "report startup",
    ];
    assert_eq!(run.log[..expected.len()], expected);
}

#[tokio::test(start_paused = true)]
async fn a_hint_of_a_move_is_read_after_until_the_api_reports_it_and_counted_from_the_hint() {
    let mut facts = Facts::new();
    facts.settle();
    let moves = |io: &mut FakeIo, _: &mut FakeWait| {
        io.moves = Some(Instant::now() + Duration::from_millis(700));
    };
    let run = run_tuned(facts, vec![wake(Trigger::Link)], None, Vec::new(), moves).await;
    let expected = [
        "who All",
        "report startup",
        // Before any read: reads after a migration may take long.
        "sign link",
        "who VM",
        "report link",
        "who VM",
        "report fast-poll",
        "who VM",
        "report fast-poll",
        "who VM",
        "report fast-poll",
        "who VM",
        "patch 2",
        "prove after 1000 ms",
        // Writes after a migration are reported with the hint.
        "report link",
        "migrated after 1000 ms",
        "confirmed after 1000 ms and 5 reads",
        "who Known",
        "report timer",
    ];
    assert_eq!(run.log[..expected.len()], expected, "{:#?}", run.log);
}

#[tokio::test(start_paused = true)]
async fn the_first_labels_of_a_migration_end_it_although_another_one_is_not_read_yet() {
    let mut facts = Facts::new();
    let key = LabelKey::parse("example.com/rack").unwrap();
    let mut labels = host_labels("eu-1", "rack-a");
    labels.insert(key.to_string(), "r1".to_owned());
    facts.answer(Source::HostNode, Fact::Known(labels));
    facts.settings.labels.extra.insert(key.clone(), key);
    facts.settle();
    facts.migrate("hv-b", "eu-1", "rack-b");
    facts.annotate("hv-b", "eu-1", "rack-b");
    let unread = Fact::failed(UnavailableKind::Unreachable, "503");
    facts.answer(Source::HostNode, unread);
    let run = run_with(facts, Vec::new(), None, Vec::new()).await;
    let expected = ["patch 2", "report startup", "migrated after 0 ms"];
    assert_eq!(run.log[1..4], expected, "{:#?}", run.log);
}

#[tokio::test(start_paused = true)]
async fn a_hint_without_a_move_costs_eleven_reads_no_write_and_ends_by_itself() {
    let mut facts = Facts::new();
    facts.settle();
    let run = run_with(facts, vec![wake(Trigger::Link)], None, Vec::new()).await;
    let reads = run.log.iter().filter(|entry| *entry == "who VM").count();
    assert!((10..=11).contains(&reads), "{reads} reads: {:#?}", run.log);
    let ends: Vec<&String> = run
        .log
        .iter()
        .filter(|entry| entry.starts_with("unconfirmed"))
        .collect();
    assert_eq!(ends.len(), 1, "{:#?}", run.log);
    assert!(!run.log.iter().any(|entry| entry.starts_with("patch")));
    assert!(
        run.log.iter().any(|entry| entry == "prove after 2000 ms"),
        "{:#?}",
        run.log
    );
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_is_one_look_and_no_window() {
    let mut facts = Facts::new();
    facts.settle();
    let run = run_with(facts, vec![wake(Trigger::Clock)], None, Vec::new()).await;
    let reads = run.log.iter().filter(|entry| *entry == "who VM").count();
    assert_eq!(reads, 1, "{:#?}", run.log);
}

#[tokio::test(start_paused = true)]
async fn a_reload_uses_good_settings_at_once_and_keeps_the_old_ones_otherwise() {
    let mut facts = Facts::new();
    facts.settle();
    let mut without_host_label = facts.settings.clone();
    without_host_label.topology.host_label = None;
    let script = vec![Wake::Reload, Wake::Reload];
    let reloads = vec![Err("config.toml: bad".to_owned()), Ok(without_host_label)];
    let run = run_with(facts, script, None, reloads).await;
    let expected = [
        "who All",
        "report startup",
        "reloaded Err(\"config.toml: bad\")",
        "who reload",
        "report reload",
        "reloaded Ok(())",
        "who reload",
        "patch 1",
        "report reload",
        // The APIs are read later, at a different time per machine.
        "who Known",
        "report reload",
        "who Known",
        "report timer",
    ];
    assert_eq!(run.log[..expected.len()], expected);
}

#[tokio::test(start_paused = true)]
async fn once_writes_all_in_one_round_and_a_dry_run_writes_nothing() {
    for (mode, count, expected) in [
        (Mode::Write, 2, vec!["who All", "patch 3", "conditions 3"]),
        (Mode::DryRun, 1, vec!["who All"]),
    ] {
        let log = Log::default();
        let facts = Facts::new();
        let settings = facts.settings.clone();
        let mut io = FakeIo {
            facts,
            log: log.clone(),
            refuse: None,
            moves: None,
            slow: Duration::ZERO,
        };
        let mut publish = FakePublish { log: log.clone() };
        let clock = paused_clock();
        let round = Box::pin(once(
            &settings,
            &mut io,
            &mut publish,
            &clock,
            Memory::default(),
            mode,
        ))
        .await;
        assert_eq!(log.take(), expected);
        let told = "what is or would be written is told";
        assert_eq!(round.plan.actions.len(), count, "{told}");
    }
}
