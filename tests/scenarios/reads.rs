// SPDX-License-Identifier: Apache-2.0
//! What one observation after another reads of the APIs, counted on the wire: how often a namespace is listed, how many namesakes are
//! read, and whether a cache that lags is believed. The observer is called directly, so that hours pass at once.

use std::time::Duration;

use harvester_lab::admin::paths;
use harvester_lab::faults::{Fault, Matcher};
use harvester_lab::harvester::{Firmware, VmSpec};
use harvester_lab::server::Server;
use harvester_lab::world::{AGENT, VM_NAME, World, WorldOptions};
use harvester_node_agent::agent::source_board::SourceBoard;
use harvester_node_agent::agent::{Observe as _, Scope};
use harvester_node_agent::config::{self, Settings};
use harvester_node_agent::decide::Now;
use harvester_node_agent::decide::identity::{Identity, OwnVm, identify};
use harvester_node_agent::decide::placement::locate;
use harvester_node_agent::decide::schedule::Random;
use harvester_node_agent::facts::observation::Observation;
use harvester_node_agent::observe::observer::Observer;
use harvester_node_agent::sys::root::Root;
use harvester_node_agent::wire::dbus::Bus;
use serde_json::{Value, json};

use crate::lab;

const VMIS: &str = "virtualmachineinstances";

const SEARCH: Scope = Scope::KNOWN.union(Scope::SEARCH);

/// What the backoff after a failure does not delay.
const HINTED: Scope = Scope::KNOWN.union(Scope::AT_ONCE);

fn half() -> Random {
    Random::from_bits(u64::MAX / 2)
}

/// The observer of a daemon, and the world that it reads.
struct Reader {
    world: World,
    settings: Settings,
    observer: Observer,
    uptime: Duration,
}

/// One reading.
struct Read {
    observation: Observation,
    identity: Identity,
    lists: usize,
    gets: usize,
}

impl Read {
    fn knows(&self, name: &str) -> bool {
        let candidates = self.observation.candidates.known().into_iter();
        let mut vmis = candidates.flat_map(|candidates| &candidates.vmis);
        vmis.any(|vmi| vmi.name.as_str() == name)
    }
}

impl Reader {
    async fn new() -> Self {
        let world = World::lab(WorldOptions::default()).await;
        let root = Root::new(world.guest.root());
        let settings = config::load(&root, None).unwrap().settings;
        let bus = Bus::new(&root, None);
        let observer = Observer::new(root, bus, SourceBoard::default(), None).backing_off(half);
        Self {
            world,
            settings,
            observer,
            uptime: Duration::from_secs(1),
        }
    }

    fn harvester(&self) -> &Server {
        lab(&self.world.harvester_api)
    }

    async fn read(&mut self, scope: Scope) -> Read {
        let now = Now {
            uptime: self.uptime,
            wall: time::UtcDateTime::now(),
            random: half(),
        };
        self.harvester().clear_requests();
        let observation = self
            .observer
            .observation(&self.settings, scope, now, &mut || {})
            .await;
        let identity = identify(&observation, None, None);
        if let Some(located) = locate(&identity, &observation) {
            self.observer.placement(&self.settings, &located, now).await;
        }
        let requests = self.harvester().requests_of(AGENT);
        let count = |verb: &str| {
            let of_vmis = requests.iter().filter(|one| one.path.contains(VMIS));
            of_vmis.filter(|one| one.verb == verb).count()
        };
        Read {
            lists: count("list"),
            gets: count("get"),
            observation,
            identity,
        }
    }

    /// A VM with our hardware.
    async fn twin(&self, name: &str) {
        let ours = &self.world.vm;
        let mut twin = VmSpec::named(name).firmware(Firmware::Fixed(ours.firmware_uuid.clone()));
        twin.serial.clone_from(&ours.spec.serial);
        twin.macs.clone_from(&ours.spec.macs);
        let created = self.world.harvester.create_vm(twin, "hv-b").await;
        assert!(created.is_ok(), "{:?}", created.err());
    }

    /// A VM that looks like ours in a list, because of its owner.
    async fn likely(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let spec = VmSpec::named(name).firmware(Firmware::Random);
        let created = self.world.harvester.create_vm(spec, "hv-b").await;
        created.unwrap();
        self.owned(name, change).await;
    }

    /// Gives a VM the owner of ours.
    async fn owned(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let path = paths::vmi(&self.world.vm.spec.namespace, name);
        let mut change = Some(change);
        let change = |vmi: &mut Value| {
            vmi["metadata"]["ownerReferences"][0]["uid"] = json!(self.world.vm.uid);
            if let Some(change) = change.take() {
                change(vmi);
            }
        };
        let updated = self.world.harvester.admin().update(&path, change).await;
        updated.unwrap();
    }

    /// Reads each minute until the namespace was listed.
    async fn read_until_listed(&mut self) -> Read {
        loop {
            let read = self.read(HINTED).await;
            if read.lists > 0 {
                return read;
            }
            self.uptime += Duration::from_secs(60);
            assert!(self.uptime < Duration::from_secs(300), "no list");
        }
    }

    async fn delete(&self, name: &str) {
        let path = paths::vmi(&self.world.vm.spec.namespace, name);
        self.world.harvester.admin().delete(&path).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_is_found_by_a_search_and_stays_known() {
    let mut reader = Reader::new().await;
    for number in 0..20 {
        let other = VmSpec::named(&format!("other-{number}")).firmware(Firmware::Random);
        let created = reader.world.harvester.create_vm(other, "hv-b").await;
        created.unwrap();
    }
    let read = reader.read(Scope::ALL).await;
    assert!(matches!(read.identity.vm, OwnVm::Identified(_)));
    assert_eq!(read.lists, 0);
    // Metadata, and whole objects.
    let read = reader.read(SEARCH).await;
    assert!(matches!(read.identity.vm, OwnVm::Identified(_)));
    assert_eq!(read.lists, 2);
    reader.twin("gc8-clone").await;
    assert!(!reader.read(Scope::KNOWN).await.knows("gc8-clone"));
    let read = reader.read(SEARCH).await;
    assert!(matches!(read.identity.vm, OwnVm::Ambiguous(_)) && read.knows("gc8-clone"));
    // It is not forgotten between two searches.
    for _ in 0..2 {
        let read = reader.read(Scope::KNOWN).await;
        assert!(matches!(read.identity.vm, OwnVm::Ambiguous(_)) && read.knows("gc8-clone"));
        assert_eq!(read.lists, 0);
    }
    reader.delete("gc8-clone").await;
    let read = reader.read(Scope::KNOWN).await;
    assert!(matches!(read.identity.vm, OwnVm::Identified(_)) && !read.knows("gc8-clone"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_that_others_create_cost_four_reads_however_many_they_are() {
    let mut reader = Reader::new().await;
    reader.read(Scope::ALL).await;
    for number in 0..12 {
        reader.twin(&format!("gc8-clone-{number:02}")).await;
    }
    let read = reader.read(SEARCH).await;
    assert!(matches!(read.identity.vm, OwnVm::Ambiguous(_)));
    for _ in 0..2 {
        let read = reader.read(Scope::KNOWN).await;
        assert!(matches!(read.identity.vm, OwnVm::Ambiguous(_)));
        // Ours, and four of theirs.
        assert_eq!((read.lists, read.gets), (0, 5));
    }
}

/// Our VM has a name that no name of this machine leads to, and comes last.
async fn renamed() -> Reader {
    let reader = Reader::new().await;
    reader.twin("zz-renamed").await;
    reader.owned("zz-renamed", |_| {}).await;
    reader.delete(VM_NAME).await;
    reader
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn likely_vms_that_others_create_do_not_hide_ours() {
    for others in [4, 30] {
        let mut reader = renamed().await;
        for number in 0..others {
            reader.likely(&format!("aa-{number:02}"), |_| {}).await;
        }
        let vm = reader.read_until_listed().await.identity.vm;
        assert!(
            matches!(&vm, OwnVm::Identified(vmi) if vmi.name.as_str() == "zz-renamed"),
            "{vm:?}"
        );
    }
    // With four of them, a copy is not taken for the only VM with our hardware.
    let mut reader = renamed().await;
    for number in 0..3 {
        reader.likely(&format!("aa-{number:02}"), |_| {}).await;
    }
    reader.twin("bb-copy").await;
    reader.owned("bb-copy", |_| {}).await;
    let read = reader.read_until_listed().await;
    assert!(matches!(read.identity.vm, OwnVm::Ambiguous(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_likely_vm_that_cannot_be_parsed_does_not_hide_ours_and_is_named_if_there_is_no_other() {
    let damage = |vmi: &mut Value| vmi["status"] = json!("damaged");
    let mut reader = renamed().await;
    reader.likely("aa-damaged", damage).await;
    let read = reader.read_until_listed().await;
    assert!(matches!(read.identity.vm, OwnVm::Identified(_)));

    // Also among so many likely ones that not each of them is read first, one by one or from a list.
    for others in [4, 30] {
        let mut reader = renamed().await;
        for number in 0..others {
            reader.likely(&format!("aa-{number:02}"), |_| {}).await;
        }
        reader.owned("zz-renamed", damage).await;
        let read = reader.read_until_listed().await;
        let why = read.observation.candidates.why().unwrap();
        assert!(why.text.contains("zz-renamed"), "{}", why.text);
    }

    let mut reader = renamed().await;
    reader.owned("zz-renamed", damage).await;
    let read = reader.read_until_listed().await;
    let why = read.observation.candidates.why().unwrap();
    assert!(why.text.contains("zz-renamed"), "{}", why.text);
    // Until the next list, it is not said that there is none.
    reader.uptime += Duration::from_secs(1);
    let read = reader.read(HINTED).await;
    assert!(read.observation.candidates.why().is_some());
    let path = paths::vmi(&reader.world.vm.spec.namespace, "zz-renamed");
    let admin = reader.world.harvester.admin();
    let repair = |vmi: &mut Value| vmi["status"] = json!({"nodeName": "hv-b"});
    admin.update(&path, repair).await.unwrap();
    reader.uptime += Duration::from_secs(30 * 60);
    let read = reader.read(HINTED).await;
    assert!(matches!(read.identity.vm, OwnVm::Identified(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_without_an_owner_is_not_taken_for_our_vm_that_cannot_be_parsed() {
    let mut reader = Reader::new().await;
    reader.twin("gc8-copy").await;
    let free = |vmi: &mut Value| vmi["metadata"]["ownerReferences"] = json!([]);
    reader.owned("gc8-copy", free).await;
    let damage = |vmi: &mut Value| vmi["status"] = json!("damaged");
    reader.owned(VM_NAME, damage).await;
    let read = reader.read_until_listed().await;
    let why = read.observation.candidates.why().unwrap();
    assert!(why.text.contains(VM_NAME), "{}", why.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_with_our_name_is_not_ours_in_the_first_round_if_the_node_names_another_vm() {
    for owners in [json!([]), json!([{"uid": "another"}])] {
        let mut reader = Reader::new().await;
        reader.twin("zz-renamed").await;
        reader.owned("zz-renamed", |_| {}).await;
        let of_another = |vmi: &mut Value| {
            vmi["metadata"]["ownerReferences"] = owners.clone();
        };
        let path = paths::vmi(&reader.world.vm.spec.namespace, VM_NAME);
        let admin = reader.world.harvester.admin();
        admin.update(&path, of_another).await.unwrap();
        let read = reader.read(HINTED).await;
        assert!(
            !matches!(read.identity.vm, OwnVm::Identified(_)),
            "{owners}"
        );
        let vm = reader.read_until_listed().await.identity.vm;
        assert!(matches!(vm, OwnVm::Ambiguous(_)), "{owners}: {vm:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_an_instance_stops_is_not_read_for_a_new_name() {
    let mut reader = Reader::new().await;
    reader.read(Scope::ALL).await;
    let (harvester, vm) = (&reader.world.harvester, &reader.world.vm);
    harvester.begin_stop(vm, true).await.unwrap();
    let matcher = Matcher::path("virtualmachines/").user_agent(AGENT);
    let forbidden = Fault::forbidden("virtualmachines is forbidden");
    reader.harvester().faults().inject(matcher, forbidden);
    for (scope, expected) in [(HINTED, 1), (Scope::NONE, 0), (HINTED, 1)] {
        reader.read(scope).await;
        let requests = reader.harvester().requests_of(AGENT);
        let of_vm = requests
            .iter()
            .filter(|one| one.path.contains("virtualmachines/"));
        assert_eq!(of_vm.count(), expected, "{scope:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_that_fails_costs_no_vm_that_was_read_by_its_name() {
    let mut reader = Reader::new().await;
    reader.read(Scope::ALL).await;
    let matcher = Matcher::path(VMIS).user_agent(AGENT).verb("list");
    reader
        .harvester()
        .faults()
        .inject(matcher, Fault::html(500));
    let read = reader.read(SEARCH).await;
    assert_eq!(read.lists, 1);
    assert!(matches!(read.identity.vm, OwnVm::Identified(_)) && read.knows(VM_NAME));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_fails_is_sent_again_after_minutes_and_then_later_and_later() {
    let mut reader = Reader::new().await;
    reader.twin("gc8-renamed").await;
    reader.delete(VM_NAME).await;
    let matcher = Matcher::path(VMIS).user_agent(AGENT).verb("list");
    reader
        .harvester()
        .faults()
        .inject(matcher, Fault::html(500));
    let mut sent = Vec::new();
    for minute in 0..180 {
        reader.uptime = Duration::from_secs(1 + minute * 60);
        let read = reader.read(HINTED).await;
        assert!(!matches!(read.identity.vm, OwnVm::Identified(_)));
        if read.lists > 0 {
            sent.push((minute, read.lists));
        }
    }
    let at: Vec<u64> = sent.iter().map(|(minute, _)| *minute).collect();
    assert!(sent.iter().all(|(_, lists)| *lists == 1), "{sent:?}");
    // With the middle of all chances, a wait is one and a half times its least.
    let waits: Vec<u64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(at[0] <= 1, "{at:?}");
    assert_eq!(waits, [15, 30, 60], "{at:?}");
    reader.harvester().faults().clear();
    reader.uptime += Duration::from_secs(2 * 60 * 60);
    let read = reader.read(HINTED).await;
    assert!(matches!(read.identity.vm, OwnVm::Identified(_)));
    assert!(read.knows("gc8-renamed"));
}
