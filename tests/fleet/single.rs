// SPDX-License-Identifier: Apache-2.0
//! One agent, and what it asks for in minutes of trouble, which take milliseconds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use harvester_lab::names::ZONE;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::agents::{self, Handle, Silent, Trees, attach, paused_clock, settings};
use super::network::{Answer, NEVER, Network, Request, SERVERS, Way};
use super::scenarios::{simulate, tick};
use super::store::{Side, vm_name};
use crate::agent::source_board::SourceBoard;
use crate::agent::{self, Mode, Publish, Round, Trigger};
use crate::commands::doctor::case::{Checked, Gap};
use crate::commands::doctor::checks;
use crate::commands::doctor::reads::Reads;
use crate::commands::rbac::permissions::USEFUL;
use crate::config::Settings;
use crate::decide::Memory;
use crate::facts::names::firmware_uuid;
use crate::facts::node::ANNOTATION_PREFIX;
use crate::observe::observer::Observer;
use crate::sys::root::Root;
use crate::wire::dbus::Bus;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The only machine.
const OURS: usize = 0;

const VMIS: &str = "virtualmachineinstances";

/// What the last round reported.
#[derive(Debug, Default)]
struct Reported {
    /// What was seen, by code.
    findings: BTreeMap<&'static str, String>,
    /// From the reason to the labels of the last migration.
    latency: Option<(Trigger, Duration)>,
}

struct Reporter(Rc<RefCell<Reported>>);

impl Publish for Reporter {
    fn publish(&mut self, round: &Round, _: &Settings) {
        let mut reported = self.0.borrow_mut();
        let findings = round.plan.findings.iter();
        reported.findings = findings
            .map(|finding| (finding.code.as_str(), finding.seen.clone()))
            .collect();
        if round.has_labeled_migration() {
            reported.latency = Some((round.trigger(), round.latency()));
        }
    }
    fn hint(&mut self, _: Trigger) {}
    fn alive(&mut self) {}
    fn reloaded(&mut self, _: Result<(), &str>) {}
}

/// An agent and its two APIs.
struct Stage {
    network: Arc<Network>,
    handle: Handle,
    reported: Rc<RefCell<Reported>>,
    _trees: Trees,
}

/// Starts an agent, waits until it has nothing left to do, and plays a story with it.
fn play(tune: impl FnOnce(&mut Settings) + Send, story: impl AsyncFnOnce(&Stage) + Send) {
    play_from(
        |_, _| {},
        tune,
        async |stage| {
            // Until the first poll is over, and bookmarks have come.
            sleep(5 * MINUTE + MINUTE / 2).await;
            assert!(stage.is_labeled());
            stage.network.noted();
            story(stage).await;
        },
    );
}

/// The same from the start, after `prepare`.
fn play_from(
    prepare: impl FnOnce(&Trees, &Network) + Send,
    tune: impl FnOnce(&mut Settings) + Send,
    story: impl AsyncFnOnce(&Stage) + Send,
) {
    // The simulated network is one of the thread.
    let work = || {
        simulate(async {
            let trees = Trees::write(1);
            let network = Arc::new(Network::new(2));
            attach(&network, 7);
            prepare(&trees, &network);
            network.noted();
            tick(&network);
            let mut settings = settings(OURS);
            tune(&mut settings);
            let reported = Rc::default();
            let reporter = Reporter(Rc::clone(&reported));
            let handle = agents::start_with(settings, reporter, &trees, &network, OURS);
            let stage = Stage {
                network,
                handle,
                reported,
                _trees: trees,
            };
            story(&stage).await;
        });
    };
    let outcome = std::thread::scope(|scope| scope.spawn(work).join());
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

impl Stage {
    fn is_labeled(&self) -> bool {
        self.network.read(|store| store.is_labeled(OURS))
    }

    /// The Node, as its API has it.
    fn node(&self) -> Value {
        let text = self.network.read(|store| store.node(OURS, false));
        serde_json::from_str(&text).unwrap()
    }

    fn has(&self, finding: &str) -> bool {
        self.reported.borrow().findings.contains_key(finding)
    }

    /// Waits until something holds. Answers how long that took.
    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) -> Duration {
        let began = Instant::now();
        while !holds(self) {
            let took = began.elapsed();
            assert!(
                took < 30 * MINUTE,
                "never: {what}; {:?}; {:?}",
                self.reported,
                self.asked()
            );
            sleep(Duration::from_millis(10)).await;
        }
        began.elapsed()
    }

    /// A retry waits for up to a minute.
    async fn labeled(&self) -> Duration {
        let took = self.until("the labels", Self::is_labeled).await;
        assert!(took <= 2 * MINUTE, "{took:?}");
        took
    }

    /// All watches end in order.
    fn end_watches(&self) {
        for side in Side::BOTH {
            (0..SERVERS).for_each(|server| self.network.restart(side, server, false));
        }
    }

    /// Whether both watches are open.
    fn is_watching(&self) -> bool {
        // The other machine has no agent.
        self.network.missing() == Side::BOTH.len()
    }

    /// The requests since the last call.
    fn asked(&self) -> Vec<Request> {
        self.network.noted()
    }
}

fn count(requests: &[Request], verb: &str) -> usize {
    requests.iter().filter(|one| one.verb == verb).count()
}

fn json_answer(status: u16, body: &str) -> Answer {
    Answer {
        status,
        header: ("content-type", "application/json"),
        body: Some(body.to_owned()),
    }
}

/// A metav1.Status.
fn refusal(status: u16, reason: &str, message: &str) -> Answer {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": status});
    json_answer(status, &body.to_string())
}

fn page(status: u16, header: (&'static str, &'static str), text: &str) -> Answer {
    Answer {
        status,
        header,
        body: Some(text.to_owned()),
    }
}

#[test]
fn an_overload_is_asked_less_and_less_by_reads_and_watch_together() {
    play(
        |_| {},
        async |stage| {
            for side in Side::BOTH {
                stage.network.set_shedding(side, true);
            }
            stage.end_watches();
            stage.handle.hang_up();
            let mut minutes = Vec::new();
            for _ in 0..10 {
                sleep(MINUTE).await;
                let asked = stage.asked();
                let of = |side| asked.iter().filter(|one| one.side == side).count();
                minutes.push(Side::BOTH.map(of));
            }
            println!("requests each minute: {minutes:?}");
            for side in Side::BOTH {
                let of = |minutes: &[[usize; 2]]| -> usize {
                    minutes.iter().map(|minute| minute[side.index()]).sum()
                };
                assert!((2..=25).contains(&of(&minutes[..1])), "{minutes:?}");
                // The wait before a retry is at most 60 s, and 30 s in the mean.
                assert!(of(&minutes[5..]) <= 2 * 5 + 5, "{minutes:?}");
                assert!(of(&minutes[5..]) <= of(&minutes[..5]), "{minutes:?}");
                assert!(of(&minutes[5..]) >= 5, "the agent gives up: {minutes:?}");
            }
        },
    );
}

#[test]
fn watches_that_end_come_back_where_they_stood_with_nothing_read_beside_them() {
    play(
        |_| {},
        async |stage| {
            stage.end_watches();
            sleep(2 * MINUTE).await;
            let asked = stage.asked();
            let of = |side| {
                let of_side = asked.iter().filter(|one| one.side == side);
                let watches = of_side.map(|one| (one.verb, one.version.as_deref()));
                watches.collect::<Vec<_>>()
            };
            for side in Side::BOTH {
                assert!(
                    matches!(of(side)[..], [("watch", Some(version))] if version != "0"),
                    "{asked:#?}"
                );
            }
            stage.network.migrate(OURS).await;
            assert!(stage.labeled().await < SECOND);
        },
    );
}

#[test]
fn a_migration_while_watches_wait_is_labeled_after_the_hint_of_the_guest() {
    play(
        |settings| settings.timing.watch_delay = 30 * MINUTE,
        async |stage| {
            stage.end_watches();
            sleep(SECOND).await;
            stage.handle.hint();
            stage.network.migrate(OURS).await;
            assert!(stage.labeled().await < 3 * SECOND);
            assert_eq!(count(&stage.asked(), "watch"), 0);
        },
    );
}

#[test]
fn a_migration_costs_three_calls_and_four_events_and_no_read_of_what_the_watch_delivers() {
    play(
        |_| {},
        async |stage| {
            for _ in 0..3 {
                stage.network.migrate(OURS).await;
                assert!(stage.labeled().await < SECOND);
                sleep(20 * SECOND).await;
                let asked = stage.asked();
                // The three states of the scheduled event, and the new host.
                let events = asked.iter().filter(|one| one.path.ends_with("/events"));
                assert!(events.count() <= 4, "{asked:#?}");
                assert!(asked.len() <= 7, "{asked:#?}");
                let reads = asked.iter().filter(|one| one.verb == "get");
                let reads: Vec<&str> = reads.map(|one| one.path.as_str()).collect();
                assert!(reads.len() <= 1, "{reads:?}");
                assert!(
                    reads
                        .iter()
                        .all(|path| path.starts_with("/api/v1/nodes/hv-"))
                );
            }
        },
    );
}

#[test]
fn a_short_watch_delay_brings_watches_back_before_the_least_of_the_default() {
    play(
        |settings| settings.timing.watch_delay = SECOND,
        async |stage| {
            stage.end_watches();
            let took = stage.until("both watches", Stage::is_watching).await;
            assert!(took < 2 * SECOND, "{took:?}");
        },
    );
    play(
        |_| {},
        async |stage| {
            stage.end_watches();
            let took = stage.until("both watches", Stage::is_watching).await;
            assert!((5 * SECOND..=61 * SECOND).contains(&took), "{took:?}");
        },
    );
}

#[test]
fn without_a_grace_period_stale_annotations_are_not_waited_for() {
    for (grace, expected) in [(0, 0..2), (10, 10..13), (40, 40..43)] {
        play(
            |settings| settings.timing.settle = SECOND * grace,
            async |stage| {
                stage.network.migrate_unannotated(OURS).await;
                let took = stage.labeled().await.as_secs();
                assert!(expected.contains(&took), "{took} s, not {expected:?}");
            },
        );
    }
}

#[test]
fn a_daemon_lists_late_where_no_name_leads_to_its_vm_and_then_labels() {
    const RENAMED: usize = 1;
    play_from(
        |trees, network| {
            let uuid = firmware_uuid(&vm_name(RENAMED)).to_string();
            let file = trees.root(OURS).join("sys/class/dmi/id/product_uuid");
            std::fs::write(file, uuid).unwrap();
            let of_vm = json!({"spec": {"providerID": "harvester://uid-vm-1"}});
            network.patch(OURS, &of_vm);
            let vm = network.read(|store| store.vmi(RENAMED));
            let list = format!(
                r#"{{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstanceList","metadata":{{"resourceVersion":"1"}},"items":[{vm}]}}"#
            );
            let lists = |verb: &str, _: &str| verb == "list";
            network.answer(Side::Harvester, lists, json_answer(200, &list));
            let details = json!({"name": vm_name(OURS), "group": "kubevirt.io", "kind": VMIS});
            let missing =
                json!({"kind": "Status", "reason": "NotFound", "code": 404, "details": details});
            let reads = |verb: &str, path: &str| verb == "get" && path.ends_with(&vm_name(OURS));
            let answer = json_answer(404, &missing.to_string());
            network.answer(Side::Harvester, reads, answer);
        },
        |_| {},
        async |stage| {
            let zone = |stage: &Stage| stage.node()["metadata"]["labels"][ZONE] == "rack-1";
            stage.until("the zone of the renamed VM", zone).await;
            sleep(10 * MINUTE).await;
            let asked = stage.asked();
            let lists = asked.iter().filter(|one| one.verb == "list");
            let lists: Vec<Duration> = lists.map(|one| one.at).collect();
            assert!((1..=2).contains(&lists.len()), "{lists:?}");
            // Spread over a minute. This machine is not among the first.
            assert!((SECOND..=61 * SECOND).contains(&lists[0]), "{lists:?}");
        },
    );
}

#[test]
fn each_fault_has_its_finding_costs_few_requests_and_no_label_and_recovers_by_itself() {
    let html = ("content-type", "text/html");
    let not_found = "the server could not find the requested resource";
    let deep = format!(r#"{{"deep":{}{}}}"#, "[".repeat(5000), "]".repeat(5000));
    let endless = Answer {
        body: None,
        ..json_answer(200, "")
    };
    for (answer, finding) in [
        (
            refusal(401, "Unauthorized", "Unauthorized"),
            "harvester-unauthorized",
        ),
        (
            refusal(403, "Forbidden", "virtualmachineinstances is forbidden"),
            "harvester-forbidden",
        ),
        (
            page(503, html, "<html>503 Error</html>"),
            "harvester-unreachable",
        ),
        (
            page(429, ("retry-after", "1"), "Too many requests"),
            "harvester-unreachable",
        ),
        (
            page(302, ("location", "https://127.0.0.1:1/"), ""),
            "harvester-bad-response",
        ),
        (
            page(200, ("content-encoding", "gzip"), "\u{1f}"),
            "harvester-bad-response",
        ),
        (
            page(200, html, "<html>please log in</html>"),
            "harvester-bad-response",
        ),
        (json_answer(200, "nonsense"), "harvester-bad-response"),
        (json_answer(200, &deep), "harvester-bad-response"),
        (endless, "harvester-bad-response"),
        (
            refusal(404, "NotFound", not_found),
            "harvester-bad-response",
        ),
    ] {
        play(
            |_| {},
            async |stage| {
                let labels = stage.node()["metadata"]["labels"].take();
                let of_vms = |_: &str, path: &str| path.contains(VMIS);
                stage.network.answer(Side::Harvester, of_vms, answer);
                stage.end_watches();
                stage.handle.hang_up();
                stage.until(finding, |stage| stage.has(finding)).await;
                sleep(10 * MINUTE).await;
                let asked = stage.asked().len();
                println!("{finding}: {asked} requests in ten minutes");
                assert!(asked <= 60, "{finding}: {asked} requests");
                assert_eq!(stage.node()["metadata"]["labels"], labels, "{finding}");
                stage.network.answer_right();
                stage.network.migrate(OURS).await;
                // A watch that was refused is opened again after ten minutes.
                let took = stage.until("the labels", Stage::is_labeled).await;
                assert!(took <= 11 * MINUTE, "{finding}: {took:?}");
                // Watches that the fault cut are reported for another ten minutes.
                stage.until("it ends", |stage| !stage.has(finding)).await;
            },
        );
    }
}

#[test]
fn a_refused_patch_is_named_and_not_hammered() {
    play(
        |_| {},
        async |stage| {
            let message =
                "nodes is forbidden: is not allowed to modify labels: topology.kubernetes.io/zone";
            let patches = |verb: &str, _: &str| verb == "patch";
            let answer = refusal(403, "Forbidden", message);
            stage.network.answer(Side::Guest, patches, answer);
            stage.network.migrate(OURS).await;
            let named = |stage: &Stage| stage.has("node-write-failed");
            stage.until("the finding", named).await;
            let seen = stage.reported.borrow().findings["node-write-failed"].clone();
            assert!(seen.contains("not allowed to modify labels"), "{seen}");
            sleep(10 * MINUTE).await;
            let patches = count(&stage.asked(), "patch");
            println!("{patches} patches in ten minutes");
            assert!((2..=30).contains(&patches), "{patches} patches");
            stage.network.answer_right();
            // What was refused for long is sent again within five minutes.
            let took = stage.until("the labels", Stage::is_labeled).await;
            assert!(took <= 5 * MINUTE, "{took:?}");
            stage.until("it ends", |stage| !named(stage)).await;
        },
    );
}

#[test]
fn events_that_hang_delay_no_label_no_condition_and_no_record_of_them() {
    play(
        |_| {},
        async |stage| {
            let of_events = |_: &str, path: &str| path.ends_with("/events");
            let answer = json_answer(NEVER, "");
            stage.network.answer(Side::Guest, of_events, answer);
            for _ in 0..3 {
                stage.reported.borrow_mut().latency = None;
                stage.handle.hint();
                stage.network.migrate(OURS).await;
                assert!(stage.labeled().await < SECOND);
                let recorded = |stage: &Stage| stage.reported.borrow().latency.is_some();
                let took = stage.until("the record", recorded).await;
                let (_, latency) = stage.reported.borrow().latency.unwrap();
                assert!(took < SECOND && latency < SECOND, "{took:?}, {latency:?}");
                assert!(!stage.has("guest-api-unreachable"));
                sleep(3 * SECOND).await;
            }
        },
    );
}

#[test]
fn a_thousand_changes_of_a_rival_cost_few_patches() {
    play(
        |_| {},
        async |stage| {
            for number in 0..1000 {
                let zone = format!("rival-{number}");
                let patch = json!({"metadata": {"labels": {ZONE: zone}}});
                stage.network.patch(OURS, &patch);
                sleep(Duration::from_millis(20)).await;
            }
            sleep(MINUTE).await;
            let patches = count(&stage.asked(), "patch");
            assert!((1..=4).contains(&patches), "{patches} patches");
            assert!(stage.has("label-conflict"));
        },
    );
}

#[test]
fn a_rival_that_removes_our_annotations_is_left_alone_after_three_reverts() {
    play(
        |_| {},
        async |stage| {
            let strip = || {
                let node = stage.node();
                let all = node["metadata"]["annotations"].as_object().unwrap();
                let ours = all.keys().filter(|key| key.starts_with(ANNOTATION_PREFIX));
                let ours: serde_json::Map<_, _> =
                    ours.map(|key| (key.clone(), Value::Null)).collect();
                if !ours.is_empty() {
                    stage
                        .network
                        .patch(OURS, &json!({"metadata": {"annotations": ours}}));
                }
            };
            for _ in 0..600 {
                strip();
                sleep(SECOND / 10).await;
            }
            let patches = count(&stage.asked(), "patch");
            assert!((1..=3).contains(&patches), "{patches} patches");
            assert!(stage.has("label-conflict"));
            // A migration is followed all the same.
            stage.network.migrate(OURS).await;
            stage.labeled().await;
        },
    );
}

#[test]
fn a_watch_that_is_deaf_after_a_restore_of_etcd_delays_labels_by_at_most_90_seconds() {
    for after in [0, 30, 60, 120] {
        play(
            |settings| settings.timing.poll = 60 * MINUTE,
            async |stage| {
                stage.network.restore(Side::Harvester, 500_000);
                stage.end_watches();
                stage.until("both watches", Stage::is_watching).await;
                sleep(SECOND * after).await;
                stage.network.migrate(OURS).await;
                let took = stage.until("the labels", Stage::is_labeled).await;
                println!("{after} s after the watch is open: labeled after {took:?}");
                assert!(took <= 90 * SECOND, "{after} s: {took:?}");
                let asked = stage.asked();
                let watches = asked.iter().filter(|one| one.verb == "watch");
                let watches = watches.filter(|one| one.side == Side::Harvester);
                assert!(watches.count() <= 2, "{asked:#?}");
            },
        );
    }
}

#[test]
fn a_hint_of_nothing_costs_few_reads_and_one_new_watch() {
    play(
        |_| {},
        async |stage| {
            let version = |stage: &Stage| stage.node()["metadata"]["resourceVersion"].take();
            let before = version(stage);
            stage.handle.hint();
            sleep(5 * SECOND).await;
            let asked = stage.asked();
            let of_vms = |requests: &[Request], verb: &str| {
                let of_verb = requests.iter().filter(|one| one.verb == verb);
                of_verb.filter(|one| one.path.contains(VMIS)).count()
            };
            let reads = of_vms(&asked, "get");
            assert!((3..=8).contains(&reads), "{asked:#?}");
            // It had said nothing since the hint.
            assert_eq!(of_vms(&asked, "watch"), 1, "{asked:#?}");
            sleep(85 * SECOND).await;
            let late = stage.asked();
            assert!(reads + of_vms(&late, "get") <= 11, "{late:#?}");
            assert_eq!(of_vms(&late, "watch"), 0, "{late:#?}");
            assert_eq!(version(stage), before);
        },
    );
}

#[test]
fn a_migration_that_the_watch_does_not_report_is_found_after_the_hint_and_counted_from_it() {
    play(
        |_| {},
        async |stage| {
            stage.network.hush(Side::Harvester);
            stage.handle.hint();
            sleep(Duration::from_millis(700)).await;
            stage.network.migrate(OURS).await;
            let took = stage.labeled().await;
            assert!(took < 4 * SECOND, "{took:?}");
            sleep(10 * SECOND).await;
            let (trigger, latency) = stage.reported.borrow().latency.unwrap();
            assert_eq!(trigger, Trigger::Link);
            assert!(
                latency >= Duration::from_millis(700) && latency < 5 * SECOND,
                "{latency:?}"
            );
            // The silent watch is not trusted any more, and the new one works.
            stage.network.migrate(OURS).await;
            assert!(stage.labeled().await < SECOND);
        },
    );
}

#[test]
fn a_migration_while_the_node_cannot_be_read_is_counted_from_its_hint() {
    play(
        |_| {},
        async |stage| {
            stage.network.set_way(Side::Guest, Way::Refused);
            stage.end_watches();
            let is_away = |stage: &Stage| stage.has("guest-api-unreachable");
            stage.until("the finding", is_away).await;
            stage.handle.hint();
            stage.network.migrate(OURS).await;
            sleep(20 * SECOND).await;
            assert_eq!(stage.reported.borrow().latency, None);
            stage.network.set_way(Side::Guest, Way::Open);
            stage.labeled().await;
            let recorded = |stage: &Stage| stage.reported.borrow().latency.is_some();
            stage.until("the record", recorded).await;
            let (trigger, latency) = stage.reported.borrow().latency.unwrap();
            assert_eq!(trigger, Trigger::Link);
            assert!(latency >= 20 * SECOND, "{latency:?}");
        },
    );
}

/// What `doctor` checks with two APIs of which `trouble` takes hold after its round, and the requests for that.
fn examined(trouble: impl FnOnce(&Network) + Send) -> (Checked, Vec<Request>) {
    let work = || {
        simulate(async {
            let trees = Trees::write(1);
            let network = Arc::new(Network::new(1));
            attach(&network, 7);
            let empty = json!({"metadata": {}, "items": []}).to_string();
            let review = json!({"status": {"allowed": true}}).to_string();
            for side in Side::BOTH {
                let is_pods = |verb: &str, path: &str| verb == "list" && path.ends_with("/pods");
                network.answer(side, is_pods, json_answer(200, &empty));
                let is_review =
                    |verb: &str, path: &str| verb == "create" && path.ends_with("reviews");
                network.answer(side, is_review, json_answer(201, &review));
            }
            let root = Root::new(trees.root(OURS));
            let (bus, board) = (Bus::new(&root, None), SourceBoard::default());
            let mut observer = Observer::new(root, bus, board, None).with_short_timeouts();
            let (settings, clock) = (settings(OURS), paused_clock(Instant::now()));
            let (memory, mode) = (Memory::default(), Mode::DryRun);
            let mut silent = Silent;
            let round = agent::once(&settings, &mut observer, &mut silent, &clock, memory, mode);
            let round = Box::pin(round).await;
            trouble(&network);
            network.noted();
            assert!(round.identity.vmi().is_some(), "{:?}", round.observation);
            let reads = Box::pin(Reads::after(&round, &observer, &settings)).await;
            let checked = Box::pin(checks::all(&reads)).await;
            (checked, network.noted())
        })
    };
    let outcome = std::thread::scope(|scope| scope.spawn(work).join());
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What was not read in time.
fn late(checked: &Checked) -> Vec<&Gap> {
    let gaps = checked.gaps.iter();
    gaps.filter(|gap| gap.message.contains("timed out"))
        .collect()
}

#[test]
fn doctor_reads_all_of_two_apis_that_are_far_away() {
    for milliseconds in [200, 400] {
        let (checked, asked) = examined(|network| {
            let slowness = Duration::from_millis(milliseconds);
            for side in Side::BOTH {
                network.set_slowness(side, slowness);
            }
        });
        assert_eq!(late(&checked), [] as [&Gap; 0], "{milliseconds} ms");
        let is_review = |request: &&Request| request.path.ends_with("reviews");
        let reviews = asked.iter().filter(is_review).count();
        assert_eq!(reviews, USEFUL.len(), "{milliseconds} ms");
        let is_known = |what: &str| checked.gaps.iter().all(|gap| gap.check != what);
        for what in [
            "permissions of the Harvester credential",
            "labels, conditions and addresses of the VM",
        ] {
            assert!(is_known(what), "{milliseconds} ms: {what}");
        }
    }
}

#[test]
fn permissions_that_doctor_did_not_read_in_time_are_a_skipped_check() {
    let (checked, _) = examined(|network| network.set_slowness(Side::Harvester, MINUTE));
    let what = "permissions of the Harvester credential";
    let late = late(&checked);
    assert!(late.iter().any(|gap| gap.check == what), "{late:?}");
    // What the other API answers is not lost.
    let is_of_pods = |gap: &&Gap| gap.check == "the pods of this Node";
    assert_eq!(checked.gaps.iter().find(is_of_pods), None);
}

#[test]
fn doctor_lists_nothing_that_the_printed_roles_do_not_allow() {
    let (_, asked) = examined(|_| {});
    let lists = asked.iter().filter(|request| request.verb == "list");
    let lists = lists.filter(|request| request.side == Side::Harvester);
    let paths: Vec<&str> = lists.map(|request| request.path.as_str()).collect();
    assert_eq!(paths.len(), 1, "{paths:?}");
    assert!(paths[0].ends_with(VMIS), "{paths:?}");
}
