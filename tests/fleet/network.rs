// SPDX-License-Identifier: Apache-2.0
//! The simulated network: two APIs, each three servers behind one virtual IP, with what can go wrong there.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep};

use super::record::{Kind, Record, Why};
use super::store::{Side, Store};
use crate::wire::kubeapi::testing::Asked;

/// API servers behind one virtual IP.
pub(super) const SERVERS: usize = 3;

/// TLS handshakes that one server completes in a second.
const HANDSHAKES: f64 = 500.0;

/// Units of work that one server does in a second; a GET is one.
const CAPACITY: f64 = 1_500.0;

/// Work that may wait for one server; what comes on top of it is answered with 429.
const QUEUE: f64 = 3_000.0;

/// A server sends a bookmark about this often.
const BOOKMARK: u64 = 60;

/// How long the memory of a VM is copied.
const COPIED: Duration = Duration::from_millis(20);

/// Harvester's annotations follow a migration after this time.
const ANNOTATED: Duration = Duration::from_millis(20);

/// How long a migration hint explains what an agent reads.
const HINTED: Duration = Duration::from_secs(90);

/// The status of an answer that does not come.
pub(super) const NEVER: u16 = 0;

/// What becomes of packets to the virtual IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// They arrive.
    Open,
    /// They are refused: nothing listens.
    Refused,
    /// They are lost.
    Lost,
}

/// One connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Connection {
    pub(super) server: usize,
    window_end: u64,
}

#[derive(Debug)]
struct Server {
    is_up: bool,
    /// Counts its starts: a connection to an earlier one is gone.
    window_end: u64,
    accepts_from: Instant,
    works_from: Instant,
}

/// A piece of a watch.
#[derive(Debug)]
pub(super) enum Piece {
    /// A line.
    Line(Bytes),
    /// The connection is reset.
    Reset,
}

/// What a watch asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    /// The version to go on from; 0 for what there is.
    pub(super) from: u64,
    pub(super) is_metadata_only: bool,
    /// How long the server may keep it open.
    pub(super) time: Duration,
}

struct Watch {
    agent: usize,
    pieces: UnboundedSender<Piece>,
    /// Only what is newer is sent.
    from: u64,
    is_metadata_only: bool,
    server: usize,
    ends: Instant,
}

/// One API.
struct Api {
    way: Way,
    servers: Vec<Server>,
    next: usize,
    watches: BTreeMap<u64, Watch>,
    /// The open watches of each agent: two for the moment in which one takes the other's place.
    of_agent: Vec<Vec<u64>>,
    /// Agents that have one.
    live: usize,
    /// Every request is answered with 429.
    sheds: bool,
    /// How long each answer takes on top.
    slowness: Duration,
}

/// A migration that the scenario makes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Migration {
    pub(super) agent: usize,
    /// When the API reported it.
    pub(super) reported: Instant,
    /// When the Node had the right label.
    pub(super) labeled: Option<Instant>,
}

/// What is known of an agent.
#[derive(Debug, Clone, Copy, Default)]
struct AgentState {
    why: Why,
    hinted: Option<Instant>,
}

struct State {
    store: Store,
    apis: [Api; 2],
    record: Record,
    agents: Vec<AgentState>,
    migrations: Vec<Migration>,
    next_watch: u64,
    all_back: Option<Instant>,
    hurried: u32,
    /// Every request, where that is asked for.
    log: Option<Vec<Request>>,
    /// Wrong answers, and to which verbs and paths of which side they are given.
    answers: Vec<(Side, Matcher, Answer)>,
}

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Request {
    /// When it was sent, since the start of the simulation.
    pub(super) at: Duration,
    pub(super) side: Side,
    pub(super) verb: &'static str,
    pub(super) path: String,
    /// The version that a watch goes on from.
    pub(super) version: Option<String>,
}

/// An answer in place of the right one.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// [`NEVER`]: the client waits until it gives up.
    pub(super) status: u16,
    pub(super) header: (&'static str, &'static str),
    /// `None`: a body that never ends.
    pub(super) body: Option<String>,
}

type Matcher = Box<dyn Fn(&str, &str) -> bool + Send>;

/// What a server does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is answered then.
    At(Instant),
    /// It is answered at once with 429.
    Shed,
    /// The connection is gone.
    Gone,
}

/// The network.
pub(super) struct Network {
    start: Instant,
    state: Mutex<State>,
}

impl Network {
    /// A network in which all is well.
    pub(super) fn new(agents: usize) -> Self {
        let now = Instant::now();
        let server = || Server {
            is_up: true,
            window_end: 0,
            accepts_from: now,
            works_from: now,
        };
        let api = || Api {
            way: Way::Open,
            servers: (0..SERVERS).map(|_| server()).collect(),
            next: 0,
            watches: BTreeMap::new(),
            of_agent: vec![Vec::new(); agents],
            live: 0,
            sheds: false,
            slowness: Duration::ZERO,
        };
        let state = State {
            store: Store::new(agents),
            apis: [api(), api()],
            record: Record::default(),
            agents: vec![AgentState::default(); agents],
            migrations: Vec::new(),
            next_watch: 0,
            all_back: None,
            hurried: 0,
            log: None,
            answers: Vec::new(),
        };
        Self {
            start: now,
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The second of the simulation.
    pub(super) fn second(&self) -> usize {
        self.start.elapsed().as_secs() as usize
    }

    /// When the simulation began.
    pub(super) fn start(&self) -> Instant {
        self.start
    }

    // ---- what clients do ----

    /// Counts an arrival.
    pub(super) fn arrive(&self, agent: usize, kind: Kind) {
        let second = self.second();
        let mut state = self.lock();
        let AgentState { why, hinted } = state.agents[agent];
        let is_hinted = hinted.is_some_and(|at| at.elapsed() < HINTED);
        let why = if is_hinted { Why::Hint } else { why };
        state.record.arrive(second, kind, why);
    }

    /// Takes note of a request, where that is asked for.
    pub(super) fn note(&self, side: Side, asked: &Asked<'_>) {
        if let Some(log) = &mut self.lock().log {
            let mut query = asked.query.iter();
            let version = query.find(|(key, _)| *key == "resourceVersion");
            log.push(Request {
                at: self.start.elapsed(),
                side,
                verb: asked.verb,
                path: asked.path.to_owned(),
                version: version.map(|(_, version)| version.clone()),
            });
        }
    }

    /// The requests since the last call; from the first call on they are noted.
    pub(super) fn noted(&self) -> Vec<Request> {
        self.lock().log.replace(Vec::new()).unwrap_or_default()
    }

    /// Gives this answer to requests of a side whose verb and path match. They have no effect then.
    pub(super) fn answer(
        &self,
        side: Side,
        matches: impl Fn(&str, &str) -> bool + Send + 'static,
        answer: Answer,
    ) {
        let answer = (side, Box::new(matches) as Matcher, answer);
        self.lock().answers.push(answer);
    }

    /// Gives the right answers again.
    pub(super) fn answer_right(&self) {
        self.lock().answers.clear();
    }

    /// The wrong answer to a request.
    pub(super) fn wrong_answer(&self, side: Side, asked: &Asked<'_>) -> Option<Answer> {
        let state = self.lock();
        let mut answers = state.answers.iter();
        let found = answers.find(|(of, matches, _)| *of == side && matches(asked.verb, asked.path));
        found.map(|(.., answer)| answer.clone())
    }

    /// Counts a request that repeats a failed one too soon.
    pub(super) fn hurry(&self, agent: usize) {
        let mut state = self.lock();
        let hinted = state.agents[agent].hinted;
        if hinted.is_none_or(|at| at.elapsed() >= HINTED) {
            state.hurried += 1;
        }
    }

    /// Begins to open a connection. Answers the connection and when it is established.
    pub(super) fn dial(&self, side: Side) -> Result<(Connection, Instant), Way> {
        let mut state = self.lock();
        let api = &mut state.apis[side.index()];
        if api.way != Way::Open {
            return Err(api.way);
        }
        let index = api.next;
        api.next = (index + 1) % SERVERS;
        let server = &mut api.servers[index];
        if !server.is_up {
            return Err(Way::Refused);
        }
        let from = server.accepts_from.max(Instant::now());
        server.accepts_from = from + Duration::from_secs_f64(1.0 / HANDSHAKES);
        let connection = Connection {
            server: index,
            window_end: server.window_end,
        };
        Ok((connection, server.accepts_from))
    }

    /// Whether a connection still exists.
    pub(super) fn is_open(&self, side: Side, connection: Connection) -> bool {
        let state = self.lock();
        let api = &state.apis[side.index()];
        let server = &api.servers[connection.server];
        server.is_up && server.window_end == connection.window_end && api.way == Way::Open
    }

    /// Whether packets to the API are lost.
    pub(super) fn is_lost(&self, side: Side) -> bool {
        self.lock().apis[side.index()].way == Way::Lost
    }

    /// A request of this much work arrives.
    pub(super) fn admit(&self, side: Side, connection: Connection, work: f64) -> Admission {
        if !self.is_open(side, connection) {
            return Admission::Gone;
        }
        let second = self.second();
        let now = Instant::now();
        let mut state = self.lock();
        let state = &mut *state;
        let api = &mut state.apis[side.index()];
        let server = &mut api.servers[connection.server];
        let waiting = server.works_from.saturating_duration_since(now);
        if api.sheds || waiting.as_secs_f64() * CAPACITY > QUEUE {
            state.record.shed(second);
            return Admission::Shed;
        }
        server.works_from = server.works_from.max(now) + Duration::from_secs_f64(work / CAPACITY);
        Admission::At(server.works_from + api.slowness)
    }

    /// Opens a watch.
    pub(super) fn watch(
        &self,
        side: Side,
        agent: usize,
        connection: Connection,
        wanted: Wish,
        pieces: UnboundedSender<Piece>,
    ) -> u64 {
        let Wish {
            from,
            is_metadata_only,
            time,
        } = wanted;
        let mut state = self.lock();
        let state = &mut *state;
        let (last, own) = (
            state.store.version(side),
            state.store.version_of(side, agent),
        );
        if from != 0 && from < state.store.compacted[side.index()] {
            let line = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version","reason":"Expired","code":410}}"#;
            let _ = pieces.send(Piece::Line(Bytes::from(format!("{line}\n"))));
            return u64::MAX;
        }
        // A version of the future is answered by silence until the store arrives there.
        if own > from && from <= last {
            let kind = if from == 0 { "ADDED" } else { "MODIFIED" };
            let object = state.store.watched(side, agent, is_metadata_only);
            let _ = pieces.send(line(kind, &object));
        }
        state.next_watch += 1;
        let id = state.next_watch;
        let api = &mut state.apis[side.index()];
        let watch = Watch {
            agent,
            pieces,
            from: from.max(own),
            is_metadata_only,
            server: connection.server,
            ends: Instant::now() + time,
        };
        api.watches.insert(id, watch);
        api.live += usize::from(api.of_agent[agent].is_empty());
        api.of_agent[agent].push(id);
        let all = state.agents.len();
        if state.apis.iter().all(|api| api.live == all) && state.all_back.is_none() {
            state.all_back = Some(Instant::now());
        }
        id
    }

    /// The client dropped a watch, or its end has arrived.
    pub(super) fn unwatch(&self, side: Side, id: u64) {
        let mut state = self.lock();
        state.apis[side.index()].close(id);
    }

    /// Reads the store.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Store) -> T) -> T {
        read(&self.lock().store)
    }

    /// Patches a Node and tells those who watch it.
    pub(super) fn patch(&self, agent: usize, patch: &serde_json::Value) {
        let mut state = self.lock();
        state.store.patch(agent, patch);
        state.notify(Side::Guest, agent);
        if state.store.is_labeled(agent) {
            let open = |migration: &&mut Migration| {
                migration.agent == agent && migration.labeled.is_none()
            };
            for migration in state.migrations.iter_mut().filter(open) {
                migration.labeled = Some(Instant::now());
            }
        }
    }

    /// Says why an agent reads from now on.
    pub(super) fn because(&self, agent: usize, why: Why) {
        self.lock().agents[agent].why = why;
    }

    // ---- what happens to servers ----

    /// A second passes: bookmarks are sent, and watches whose time is over end.
    pub(super) fn tick(&self) {
        let now = Instant::now();
        let second = self.second() as u64;
        let mut state = self.lock();
        for side in Side::BOTH {
            let version = state.store.version(side);
            let kind = match side {
                Side::Harvester => {
                    r#""kind":"VirtualMachineInstance","apiVersion":"kubevirt.io/v1""#
                }
                Side::Guest => r#""kind":"Node","apiVersion":"v1""#,
            };
            let object = format!(r#"{{{kind},"metadata":{{"resourceVersion":"{version}"}}}}"#);
            let bookmark =
                Bytes::from(format!(r#"{{"type":"BOOKMARK","object":{object}}}"#) + "\n");
            let api = &mut state.apis[side.index()];
            api.end(|watch| watch.ends <= now, false);
            for (id, watch) in &api.watches {
                if id % BOOKMARK == second % BOOKMARK && version >= watch.from {
                    let _ = watch.pieces.send(Piece::Line(bookmark.clone()));
                }
            }
        }
    }

    /// One server restarts: its connections end, in order or reset, and it is back at once.
    pub(super) fn restart(&self, side: Side, server: usize, is_reset: bool) {
        let mut state = self.lock();
        state.all_back = None;
        let api = &mut state.apis[side.index()];
        api.servers[server].window_end += 1;
        api.end(|watch| watch.server == server, is_reset);
    }

    /// Whether one server is up. The virtual IP goes on sending it its share of the connections.
    pub(super) fn set_up(&self, side: Side, server: usize, is_up: bool) {
        self.lock().apis[side.index()].servers[server].is_up = is_up;
    }

    /// What becomes of packets to an API.
    pub(super) fn set_way(&self, side: Side, way: Way) {
        self.lock().apis[side.index()].way = way;
    }

    /// Whether an API answers everything with 429.
    pub(super) fn set_shedding(&self, side: Side, sheds: bool) {
        self.lock().apis[side.index()].sheds = sheds;
    }

    /// How long each answer takes on top.
    pub(super) fn set_slowness(&self, side: Side, slowness: Duration) {
        self.lock().apis[side.index()].slowness = slowness;
    }

    /// All versions so far are compacted.
    pub(super) fn compact(&self, side: Side) {
        let mut state = self.lock();
        let last = state.store.version(side);
        state.store.compacted[side.index()] = last + 1;
    }

    /// The versions go back by this much.
    pub(super) fn restore(&self, side: Side, by: u64) {
        self.lock().store.restore(side, by);
    }

    /// The open watches of a side deliver nothing more, not even bookmarks.
    pub(super) fn hush(&self, side: Side) {
        for watch in self.lock().apis[side.index()].watches.values_mut() {
            watch.from = u64::MAX;
        }
    }

    // ---- what happens to VMs ----

    /// Moves a VM, as the API reports it now. Harvester's annotations follow.
    pub(super) async fn migrate(&self, agent: usize) {
        self.migrate_unannotated(agent).await;
        sleep(ANNOTATED).await;
        let mut state = self.lock();
        state.store.annotate(agent);
        state.notify(Side::Harvester, agent);
    }

    /// The same, and Harvester's annotations stay.
    pub(super) async fn migrate_unannotated(&self, agent: usize) {
        {
            let mut state = self.lock();
            state.store.start_migration(agent);
            state.notify(Side::Harvester, agent);
        }
        sleep(COPIED).await;
        let mut state = self.lock();
        state.store.migrate(agent);
        state.migrations.push(Migration {
            agent,
            reported: Instant::now(),
            labeled: None,
        });
        state.notify(Side::Harvester, agent);
    }

    /// Takes note that a migration hint reaches a guest.
    pub(super) fn hinted(&self, agent: usize) {
        self.lock().agents[agent].hinted = Some(Instant::now());
    }

    /// Moves a host to another rack.
    pub(super) fn relabel(&self, host: usize) {
        let mut state = self.lock();
        for agent in state.store.relabel(host) {
            state.migrations.push(Migration {
                agent,
                reported: Instant::now(),
                labeled: None,
            });
            state.notify(Side::Harvester, agent);
        }
    }

    /// A kubelet updates the status of its Node.
    pub(super) fn heartbeat(&self, agent: usize) {
        let mut state = self.lock();
        state.store.touch(agent);
        state.notify(Side::Guest, agent);
    }

    // ---- what is measured ----

    /// The record so far.
    pub(super) fn record(&self) -> Record {
        self.lock().record.clone()
    }

    /// All migrations so far.
    pub(super) fn migrations(&self) -> Vec<Migration> {
        self.lock().migrations.clone()
    }

    /// When all watches were open, the first time after the last restart.
    pub(super) fn all_back(&self) -> Option<Instant> {
        self.lock().all_back
    }

    /// How many watches are not open.
    pub(super) fn missing(&self) -> usize {
        let state = self.lock();
        let live: usize = state.apis.iter().map(|api| api.live).sum();
        2 * state.agents.len() - live
    }

    /// Requests that repeated a failed one within half a second.
    pub(super) fn hurried(&self) -> u32 {
        self.lock().hurried
    }
}

impl Api {
    fn close(&mut self, id: u64) -> Option<Watch> {
        let watch = self.watches.remove(&id)?;
        let own = &mut self.of_agent[watch.agent];
        own.retain(|other| *other != id);
        self.live -= usize::from(own.is_empty());
        Some(watch)
    }

    /// Ends watches, in order or reset.
    fn end(&mut self, which: impl Fn(&Watch) -> bool, is_reset: bool) {
        let ended = self.watches.iter().filter(|(_, watch)| which(watch));
        let ended: Vec<u64> = ended.map(|(id, _)| *id).collect();
        for id in ended {
            if let Some(watch) = self.close(id).filter(|_| is_reset) {
                let _ = watch.pieces.send(Piece::Reset);
            }
        }
    }
}

impl State {
    fn notify(&mut self, side: Side, agent: usize) {
        let version = self.store.version_of(side, agent);
        let api = &self.apis[side.index()];
        for watch in api.of_agent[agent].iter().map(|id| &api.watches[id]) {
            if version > watch.from {
                let object = self.store.watched(side, agent, watch.is_metadata_only);
                let _ = watch.pieces.send(line("MODIFIED", &object));
            }
        }
    }
}

fn line(kind: &str, object: &str) -> Piece {
    Piece::Line(Bytes::from(format!(
        "{{\"type\":\"{kind}\",\"object\":{object}}}\n"
    )))
}
