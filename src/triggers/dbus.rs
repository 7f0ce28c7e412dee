// SPDX-License-Identifier: Apache-2.0
//! Signals on the system bus: a host name set through systemd-hostnamed, a change of the guest agent's unit.
//!
//! The bus delivers only signals that match our rules, by sender, object and name, so nothing else wakes us. But any process may
//! send a signal directly to us, regardless of the rules; so a signal counts only if its sender owns the bus name at that moment.
//! Only the bus itself is trusted to report the owner.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use zbus::Message;
use zbus::message::Type;

use super::files;
use super::inbox::Sender;
use super::restart_delay::Waits;
use crate::agent::Trigger;
use crate::agent::signal_board::{Signal, SignalBoard};
use crate::facts::guest_agent::{DEVICE_UNIT, UNITS};
use crate::sys::escape::chain;
use crate::sys::root::Root;
use crate::wire::dbus::{Bus, BusError, DRIVER, MANAGER, Messages, PROPERTIES, SOCKET, unit_path};

/// The interval of checks for the socket if inotify is not available.
const CHECK_AGAIN: Duration = Duration::from_secs(60);

/// The event source for systemd-hostnamed: its bus name without the prefix.
const HOSTNAME1: &str = "hostname1";
/// The event source for systemd.
const SYSTEMD1: &str = "units";

const HOSTNAME: &str = "org.freedesktop.hostname1";
const HOSTNAME_PATH: &str = "/org/freedesktop/hostname1";

/// Follows the bus until dropped, across its absence, its restarts, and those of both services.
pub async fn keep_following(root: Root, bus: Bus, sender: Sender, health: SignalBoard) {
    let mut waits = Waits::default();
    loop {
        let began = Instant::now();
        // Boxed, so that the memory is freed afterwards: the task lives as long as the process.
        let ended = match Box::pin(Subscription::begin(&bus)).await {
            Ok(mut subscription) => {
                let ended = subscription.follow(&bus, &sender, &health).await;
                // Updates the report, which shows the signals as inactive.
                sender.send(Trigger::Units);
                ended
            }
            Err(error) => error,
        };
        let detail = chain(&ended);
        health.set(HOSTNAME1, false, detail.as_str());
        dead(&health, &detail);
        let is_absent = matches!(ended, BusError::Absent(_));
        if is_absent {
            // A machine without a bus is intended; nothing on it is broken.
            health.report(SYSTEMD1, None);
        }
        // A bus that closes each new connection is treated like one that accepts none.
        wait(&root, is_absent, waits.after(began.elapsed())).await;
    }
}

/// Returns the state of the event sources, for a command that runs one round.
pub async fn probe(root: &Root, address: Option<&str>) -> Vec<(&'static str, Signal)> {
    let bus = Bus::new(root, address);
    let state = |live, detail: String| Signal { live, detail };
    match Subscription::begin(&bus).await {
        Err(error) => {
            let detail = chain(&error);
            vec![
                (HOSTNAME1, state(false, detail.clone())),
                (SYSTEMD1, state(false, detail)),
            ]
        }
        Ok(mut subscription) => {
            let systemd = match subscription.subscribe(&bus).await {
                Ok(()) => state(true, systemd_detail()),
                Err(why) => state(false, why),
            };
            vec![
                (HOSTNAME1, state(true, hostname_detail())),
                (SYSTEMD1, systemd),
            ]
        }
    }
}

fn hostname_detail() -> String {
    format!("{HOSTNAME} on the system bus")
}

fn systemd_detail() -> String {
    format!("{} on the system bus", MANAGER.name)
}

/// Reports that systemd's signals are not received.
fn dead(health: &SignalBoard, why: &str) {
    health.set(SYSTEMD1, false, why);
    let what = format!("{why}; the unit of qemu-guest-agent is only polled");
    health.unavailable(SYSTEMD1, what);
}

/// Waits until the socket appears again; at most for `pause` unless there is no socket.
async fn wait(root: &Root, is_absent: bool, pause: Duration) {
    let news = Notify::new();
    let mut stands = false;
    let socket = [PathBuf::from(SOCKET)].into_iter().collect();
    let watch = files::watch(root.clone(), socket, || {
        // The first call only means that the watch is established: the socket may have appeared before.
        if stands || (is_absent && root.exists(SOCKET)) {
            news.notify_one();
        }
        stands = true;
    });
    let pause = async {
        match is_absent {
            true => std::future::pending().await,
            false => sleep(pause).await,
        }
    };
    tokio::select! {
        () = news.notified() => {}
        () = pause => {}
        // inotify is not available: check periodically.
        _ = watch => sleep(CHECK_AGAIN).await,
    }
}

/// The meaning of a message.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    /// A reason to reconcile.
    Reason(Trigger),
    /// The owner of systemd's name changed, or there is none.
    SystemdReplaced,
    /// Nothing.
    Nothing,
}

/// The reason why reasons are no longer passed on.
#[derive(Debug, PartialEq, Eq)]
enum Passed {
    /// The owner of systemd's name changed, or there is none.
    SystemdReplaced,
    /// The connection ended.
    Ended,
}

/// A connection with our match rules.
#[derive(Debug)]
struct Subscription {
    messages: Messages,
    /// The unique name of systemd-hostnamed.
    hostname: Option<String>,
    /// The unique name of systemd.
    systemd: Option<String>,
}

impl Subscription {
    async fn begin(bus: &Bus) -> Result<Self, BusError> {
        // Created before the first rule, so that no signal between it and the first round is lost.
        let mut messages = bus.messages().await?;
        for rule in rules() {
            let arguments = [rule.as_str()];
            let call = bus.call(DRIVER, "AddMatch", &arguments);
            messages.during(call).await?;
        }
        let hostname = messages.during(owner(bus, HOSTNAME)).await?;
        let systemd = messages.during(owner(bus, MANAGER.name)).await?;
        Ok(Self {
            messages,
            hostname,
            systemd,
        })
    }

    /// Subscribes to systemd, which sends no signals without subscribers. Returns the error.
    async fn subscribe(&mut self, bus: &Bus) -> Result<(), String> {
        if self.systemd.is_none() {
            return Err(format!("{} is not on the system bus", MANAGER.name));
        }
        let call = bus.call(MANAGER, "Subscribe", &[]);
        match self.messages.during(call).await {
            Ok(_) => Ok(()),
            Err(error) => match error.name().as_deref() {
                Some("org.freedesktop.systemd1.AlreadySubscribed") => Ok(()),
                _ => Err(chain(&error)),
            },
        }
    }

    /// Sends reasons until the connection ends.
    async fn follow(&mut self, bus: &Bus, sender: &Sender, health: &SignalBoard) -> BusError {
        health.set(HOSTNAME1, true, hostname_detail());
        loop {
            let mut waits = Waits::default();
            let mut is_first = true;
            // Each iteration is for one instance of systemd: until its name has a new owner.
            while let Err(why) = self.subscribe(bus).await {
                dead(health, &why);
                if std::mem::take(&mut is_first) {
                    // Updates the report, which shows the error.
                    sender.send(Trigger::Units);
                }
                let retry = self.systemd.is_some().then(|| waits.after(Duration::ZERO));
                match self.pass_on(sender, retry).await {
                    Some(Passed::Ended) => return BusError::Ended,
                    Some(Passed::SystemdReplaced) => waits = Waits::default(),
                    None => {}
                }
            }
            health.set(SYSTEMD1, true, systemd_detail());
            health.report(SYSTEMD1, None);
            // For changes while systemd's signals were not received.
            sender.send(Trigger::Units);
            if let Some(Passed::Ended) = self.pass_on(sender, None).await {
                return BusError::Ended;
            }
        }
    }

    /// Passes reasons on until another event, for at most `limit`.
    async fn pass_on(&mut self, sender: &Sender, limit: Option<Duration>) -> Option<Passed> {
        let passing = async {
            while let Some(message) = self.messages.next().await {
                match self.handle(&message) {
                    Heard::Reason(trigger) => sender.send(trigger),
                    Heard::SystemdReplaced => return Passed::SystemdReplaced,
                    Heard::Nothing => {}
                }
            }
            Passed::Ended
        };
        match limit {
            Some(limit) => timeout(limit, passing).await.ok(),
            None => Some(passing.await),
        }
    }

    fn handle(&mut self, message: &Message) -> Heard {
        let header = message.header();
        let (Type::Signal, Some(sender)) = (message.message_type(), header.sender()) else {
            return Heard::Nothing;
        };
        let member = header.member().map_or("", |member| member.as_str());
        match sender.as_str() {
            bus if bus == DRIVER.name && member == "NameOwnerChanged" => {
                self.owner_changed(message)
            }
            sender if Some(sender) == self.hostname.as_deref() => Heard::Reason(Trigger::Hostname),
            sender if Some(sender) == self.systemd.as_deref() => match member {
                // `true` is the beginning of a reload; the changes are known at its end.
                "Reloading" if message.body().deserialize().unwrap_or(false) => Heard::Nothing,
                _ => Heard::Reason(Trigger::Units),
            },
            _ => Heard::Nothing,
        }
    }

    fn owner_changed(&mut self, message: &Message) -> Heard {
        let body = message.body();
        let Ok((name, _, new)) = body.deserialize::<(&str, &str, &str)>() else {
            return Heard::Nothing;
        };
        let owner = Some(new.to_owned()).filter(|new| !new.is_empty());
        match name {
            HOSTNAME => self.hostname = owner,
            name if name == MANAGER.name => {
                self.systemd = owner;
                return Heard::SystemdReplaced;
            }
            _ => {}
        }
        Heard::Nothing
    }
}

/// Returns the current owner of a name. Asking the bus starts no service, unlike a call to the service.
async fn owner(bus: &Bus, name: &str) -> Result<Option<String>, BusError> {
    match bus.text(DRIVER, "GetNameOwner", &[name]).await {
        Err(BusError::Refused { .. }) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Returns the match rules, as narrow as the bus supports (D-Bus specification, "Match Rules").
fn rules() -> Vec<String> {
    let systemd = MANAGER.name;
    let manager = format!(
        "type='signal',sender='{systemd}',path='{}',interface='{}'",
        MANAGER.path, MANAGER.interface
    );
    let changed = format!("interface='{PROPERTIES}',member='PropertiesChanged'");
    let mut rules = vec![
        format!(
            "type='signal',sender='{HOSTNAME}',path='{HOSTNAME_PATH}',{changed},arg0='{HOSTNAME}'"
        ),
        format!("{manager},member='UnitFilesChanged'"),
        format!("{manager},member='Reloading'"),
    ];
    for name in [HOSTNAME, systemd] {
        let driver = DRIVER.name;
        rules.push(format!(
            "type='signal',sender='{driver}',interface='{driver}',member='NameOwnerChanged',arg0='{name}'"
        ));
    }
    for unit in UNITS.into_iter().chain([DEVICE_UNIT]) {
        let path = unit_path(unit);
        rules.extend([
            // The states of services and devices alike are properties of the unit.
            format!(
                "type='signal',sender='{systemd}',path='{path}',{changed},arg0='{systemd}.Unit'"
            ),
            format!("{manager},member='UnitNew',arg0='{unit}'"),
            format!("{manager},member='UnitRemoved',arg0='{unit}'"),
            format!("{manager},member='JobRemoved',arg2='{unit}'"),
        ]);
    }
    rules
}

#[cfg(test)]
mod tests;
