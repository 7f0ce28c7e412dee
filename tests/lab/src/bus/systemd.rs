// SPDX-License-Identifier: Apache-2.0
//! A stand-in for systemd's manager on the bus. As the real one it says nothing before a client subscribes, answers for units
//! in memory only, and tells units on disk by their file's state.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::task::JoinHandle;
use zbus::message::{Body, Header, Type};
use zbus::wire::{ObjectPath, Variant};
use zbus::{Connection, Message, MessageStream};

use super::{Bus, next};

const NAME: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// A unit as systemd shows it.
#[derive(Debug, Clone)]
pub struct Unit {
    /// `LoadState`.
    pub load: &'static str,
    /// `ActiveState`.
    pub active: &'static str,
    /// `SubState`.
    pub sub: &'static str,
    /// `UnitFileState`.
    pub file_state: &'static str,
    /// `WantedBy`.
    pub wanted_by: Vec<String>,
    /// `NRestarts`.
    pub restarts: u32,
    /// Whether systemd has it in memory; otherwise only its file exists.
    pub in_memory: bool,
}

impl Unit {
    /// A service that runs, started by its device.
    #[must_use]
    pub fn running() -> Self {
        Self {
            load: "loaded",
            active: "active",
            sub: "running",
            file_state: "enabled",
            wanted_by: Vec::new(),
            restarts: 0,
            in_memory: true,
        }
    }

    /// The same, not running.
    #[must_use]
    pub fn stopped() -> Self {
        Self {
            active: "inactive",
            sub: "dead",
            ..Self::running()
        }
    }

    /// A device that is there.
    #[must_use]
    pub fn plugged() -> Self {
        Self {
            sub: "plugged",
            file_state: "",
            ..Self::running()
        }
    }

    /// The properties of the interface of every unit.
    fn properties(&self) -> HashMap<&'static str, Variant<'static>> {
        let names = [
            "LoadState",
            "ActiveState",
            "SubState",
            "UnitFileState",
            "WantedBy",
        ];
        let named = names
            .into_iter()
            .map(|name| Some((name, self.property(name)?)));
        named.flatten().collect()
    }

    fn property(&self, name: &str) -> Option<Variant<'static>> {
        Some(match name {
            "LoadState" => self.load.into(),
            "ActiveState" => self.active.into(),
            "SubState" => self.sub.into(),
            "UnitFileState" => self.file_state.into(),
            "NRestarts" => self.restarts.into(),
            "WantedBy" => self.wanted_by.clone().into(),
            _ => return None,
        })
    }
}

/// A transient unit whose start job has not ended.
#[derive(Debug, Clone)]
pub struct TransientUnit {
    /// The properties that it was started with, each in the notation of GVariant.
    pub properties: BTreeMap<String, String>,
    job: u32,
}

#[derive(Debug, Default)]
struct State {
    units: BTreeMap<String, Unit>,
    transient: BTreeMap<String, TransientUnit>,
    /// The number of jobs for transient units so far.
    jobs: u32,
    is_stuck: bool,
    is_subscribed: bool,
    refusal: Option<String>,
    calls: Vec<String>,
}

/// The stand-in. Dropping it ends its connection, as a crash of systemd does.
#[derive(Debug)]
pub struct Systemd {
    connection: Connection,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Systemd {
    /// Takes systemd's name, with these units.
    ///
    /// # Panics
    /// When another process has the name.
    pub async fn start(bus: &Bus, units: &[(&str, Unit)]) -> Self {
        let connection = bus.connect().await;
        let units = units.iter().cloned();
        let state = State {
            units: units.map(|(name, unit)| (name.to_owned(), unit)).collect(),
            ..State::default()
        };
        let state = Arc::new(Mutex::new(state));
        let messages = MessageStream::from(&connection);
        let task = tokio::spawn(serve(connection.clone(), messages, state.clone()));
        let request = connection.request_name(NAME).await;
        request.expect("no other process has the name");
        Self {
            connection,
            state,
            task,
        }
    }

    /// Changes a unit, and says so to those who subscribed.
    pub async fn set(&self, name: &str, unit: Unit) {
        let changed = HashMap::from([
            ("ActiveState", Variant::from(unit.active)),
            ("SubState", Variant::from(unit.sub)),
        ]);
        lock(&self.state).units.insert(name.to_owned(), unit);
        let body = (UNIT, changed, Vec::<&str>::new());
        self.say(&unit_path(name), PROPERTIES, "PropertiesChanged", &body)
            .await;
    }

    /// Says that files of units changed.
    pub async fn unit_files_changed(&self) {
        self.say(PATH, MANAGER, "UnitFilesChanged", &()).await;
    }

    /// Says that a reload began or ended.
    pub async fn reloading(&self, begins: bool) {
        self.say(PATH, MANAGER, "Reloading", &begins).await;
    }

    /// Says that a unit came into memory.
    pub async fn unit_new(&self, name: &str) {
        let path = ObjectPath::try_from(unit_path(name)).expect("the path is escaped");
        self.say(PATH, MANAGER, "UnitNew", &(name, path)).await;
    }

    /// Leaves the bus, as systemd does when it executes itself anew.
    ///
    /// # Panics
    /// When the bus has gone.
    pub async fn leave(self) {
        let released = self.connection.release_name(NAME).await;
        released.expect("the bus runs");
    }

    /// Refuses each `StartUnit` from now on with this text.
    pub fn refuse_to_start(&self, text: &str) {
        lock(&self.state).refusal = Some(text.to_owned());
    }

    /// The transient units whose jobs have not ended.
    #[must_use]
    pub fn transient_units(&self) -> BTreeMap<String, TransientUnit> {
        lock(&self.state).transient.clone()
    }

    /// Ends the job of a transient unit, and unloads the unit.
    ///
    /// # Panics
    /// When there is none of this name.
    pub async fn end_transient_unit(&self, name: &str, result: &str) {
        let unit = lock(&self.state).transient.remove(name);
        let job = unit.expect("it was started").job;
        let body = (job, job_path(job), name, result);
        self.say(PATH, MANAGER, "JobRemoved", &body).await;
    }

    /// Answers no call to start a transient unit from now on.
    pub fn stick(&self) {
        lock(&self.state).is_stuck = true;
    }

    /// The methods called so far, each with its first argument.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        lock(&self.state).calls.clone()
    }

    /// Whether a client subscribed.
    #[must_use]
    pub fn is_subscribed(&self) -> bool {
        lock(&self.state).is_subscribed
    }

    async fn say<B>(&self, path: &str, interface: &str, member: &str, body: &B)
    where
        B: serde::Serialize + zbus::wire::DynamicType,
    {
        if self.is_subscribed() {
            let everybody = None::<&str>;
            let said = self
                .connection
                .emit_signal(everybody, path, interface, member, body);
            said.await.expect("the bus runs");
        }
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no holder panics")
}

async fn serve(connection: Connection, mut messages: MessageStream, state: Arc<Mutex<State>>) {
    while let Some(message) = next(&mut messages).await {
        if message.message_type() == Type::MethodCall {
            answer(&connection, &message, &state).await;
        }
    }
}

/// What a method answers: a body, or the name and text of an error.
type Answer = Result<Variant<'static>, (&'static str, String)>;

async fn answer(connection: &Connection, message: &Message, state: &Mutex<State>) {
    let header = message.header();
    let member = header.member().map_or("", |member| member.as_str());
    let body = message.body();
    let sent = match member {
        "Subscribe" => {
            lock(state).is_subscribed = true;
            lock(state).calls.push(member.to_owned());
            connection.reply(&header, &()).await
        }
        "StartTransientUnit" => match start_transient(&body, state) {
            Some(Ok(job)) => connection.reply(&header, &job_path(job)).await,
            Some(Err((name, text))) => connection.reply_error(&header, name, &text).await,
            None => return,
        },
        "GetAll" => match unit_of(&header, state) {
            Some(unit) => connection.reply(&header, &unit.properties()).await,
            None => {
                let name = "org.freedesktop.DBus.Error.UnknownObject";
                connection
                    .reply_error(&header, name, &"Unknown object")
                    .await
            }
        },
        "Get" => {
            let (_, property): (&str, &str) = body.deserialize().expect("two strings");
            match property_of(&header, property, state) {
                Ok(value) => connection.reply(&header, &value).await,
                Err((name, text)) => connection.reply_error(&header, name, &text).await,
            }
        }
        _ => {
            let first = match member {
                "StartUnit" => body.deserialize::<(&str, &str)>().map(|(unit, _)| unit),
                _ => body.deserialize::<&str>(),
            };
            let unit = first.expect("the argument is a string");
            lock(state).calls.push(format!("{member} {unit}"));
            match about_unit(member, unit, state) {
                Ok(Variant::ObjectPath(path)) => connection.reply(&header, &path).await,
                Ok(Variant::Str(text)) => connection.reply(&header, &text).await,
                Ok(other) => panic!("no method answers {other:?}"),
                Err((name, text)) => connection.reply_error(&header, name, &text).await,
            }
        }
    };
    // The bus may just have been killed, which ends the stream of calls as well.
    drop(sent);
}

/// Starts a transient unit. Returns its job, an error, or nothing while it is stuck.
fn start_transient(
    body: &Body,
    state: &Mutex<State>,
) -> Option<Result<u32, (&'static str, String)>> {
    type Properties<'a> = Vec<(&'a str, Variant<'a>)>;
    type Arguments<'a> = (
        &'a str,
        &'a str,
        Properties<'a>,
        Vec<(&'a str, Properties<'a>)>,
    );
    let (unit, _, properties, _): Arguments<'_> = body.deserialize().expect("typed as in systemd");
    let mut state = lock(state);
    state.calls.push(format!("StartTransientUnit {unit}"));
    if state.is_stuck {
        return None;
    }
    if state.transient.contains_key(unit) {
        let text = format!("Unit {unit} was already loaded or has a fragment file.");
        return Some(Err(("org.freedesktop.systemd1.UnitExists", text)));
    }
    state.jobs += 1;
    let job = state.jobs;
    let properties = properties
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.to_string()))
        .collect();
    let started = TransientUnit { properties, job };
    state.transient.insert(unit.to_owned(), started);
    Some(Ok(job))
}

fn job_path(job: u32) -> ObjectPath<'static> {
    ObjectPath::try_from(format!("{PATH}/job/{job}")).expect("a path")
}

fn about_unit(method: &str, name: &str, state: &Mutex<State>) -> Answer {
    let no_such_unit = || {
        let text = format!("Unit {name} not loaded.");
        ("org.freedesktop.systemd1.NoSuchUnit", text)
    };
    let state = lock(state);
    let unit = state.units.get(name);
    let path = |path: String| Variant::ObjectPath(ObjectPath::try_from(path).expect("escaped"));
    match method {
        "GetUnit" => match unit.filter(|unit| unit.in_memory) {
            Some(_) => Ok(path(unit_path(name))),
            None => Err(no_such_unit()),
        },
        "GetUnitFileState" => match unit.filter(|unit| unit.load != "not-found") {
            Some(unit) => Ok(unit.file_state.into()),
            None => Err((
                "org.freedesktop.DBus.Error.FileNotFound",
                "No such file or directory".to_owned(),
            )),
        },
        "StartUnit" => match &state.refusal {
            Some(text) => Err(("org.freedesktop.DBus.Error.AccessDenied", text.clone())),
            None if unit.is_none() => Err(no_such_unit()),
            None => Ok(path(format!("{PATH}/job/1"))),
        },
        _ => Err((
            "org.freedesktop.DBus.Error.UnknownMethod",
            method.to_owned(),
        )),
    }
}

fn unit_of(header: &Header<'_>, state: &Mutex<State>) -> Option<Unit> {
    let path = header.path().map_or("", |path| path.as_str());
    let state = lock(state);
    let mut units = state.units.iter();
    let unit = units.find(|(name, unit)| unit.in_memory && unit_path(name) == path);
    unit.map(|(_, unit)| unit.clone())
}

fn property_of(header: &Header<'_>, property: &str, state: &Mutex<State>) -> Answer {
    let value = unit_of(header, state).and_then(|unit| unit.property(property));
    value.ok_or_else(|| {
        let name = "org.freedesktop.DBus.Error.UnknownProperty";
        (name, format!("Unknown property {property}"))
    })
}

/// As systemd's `bus_label_escape`, written a second time so that the agent's own is not tested against itself.
fn unit_path(unit: &str) -> String {
    let escaped: Vec<String> = unit
        .chars()
        .map(|character| match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' => character.to_string(),
            other => format!("_{:02x}", u32::from(other)),
        })
        .collect();
    format!("{PATH}/unit/{}", escaped.concat())
}
