// SPDX-License-Identifier: Apache-2.0
//! Why the agent reconciles, and how far.

use std::time::Duration;

/// Tells people of a migration hint at once, before the host is read.
pub type HintSink = Box<dyn Fn(Trigger) + Send>;

/// Why the agent reconciles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// The agent has just started.
    Startup,
    /// Our VirtualMachineInstance changed.
    Vmi,
    /// Our Node changed.
    Node,
    /// A file changed: a credential, the host name, the distribution's configuration.
    Files,
    /// A virtual NIC announced itself again: another QEMU runs us, or the same one after a pause for saving.
    Link,
    /// The host side of a virtio-serial port that we hold was replaced.
    Port,
    /// The wall clock was set.
    Clock,
    /// A name of this machine changed.
    Hostname,
    /// A unit of the guest agent changed.
    Units,
    /// Someone on the host asked for it through our own channel.
    Operator,
    /// The configuration was read again.
    Reload,
    /// An event source of this machine failed or recovered.
    #[serde(rename = "event-source")]
    Signals,
    /// A read of the fast-poll window, after a migration hint.
    #[serde(rename = "fast-poll")]
    Resync,
    /// It is time.
    Timer,
}

impl Trigger {
    /// The name used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Vmi => "vmi",
            Self::Node => "node",
            Self::Files => "files",
            Self::Link => "link",
            Self::Port => "port",
            Self::Clock => "clock",
            Self::Hostname => "hostname",
            Self::Units => "units",
            Self::Operator => "operator",
            Self::Signals => "event-source",
            Self::Resync => "fast-poll",
            Self::Reload => "reload",
            Self::Timer => "timer",
        }
    }

    /// Whether it is a hint that another host runs us now: the guest sees a move before the API tells of it.
    pub fn is_migration_hint(self) -> bool {
        matches!(self, Self::Link | Self::Port)
    }

    /// Reports whether the host can send it at will, and each costs the APIs a request.
    pub fn is_from_outside(self) -> bool {
        matches!(self, Self::Link | Self::Port | Self::Operator)
    }

    /// What must be read afresh because of it.
    pub fn scope(self) -> Scope {
        match self {
            Self::Vmi | Self::Node => Scope::DELIVERED,
            Self::Timer | Self::Operator => Scope::KNOWN,
            Self::Files => Scope::FILES,
            Self::Link | Self::Port => Scope::HINTED,
            Self::Clock | Self::Resync => Scope::MOVED,
            // The names of this machine are read, and the findings gathered, at every round.
            Self::Hostname | Self::Signals => Scope::NONE,
            Self::Units => Scope::UNITS,
            Self::Startup => Scope::ALL,
            Self::Reload => Scope::RELOAD,
        }
    }
}

/// What an observation reads afresh; the rest is what was read last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// The files that lead to the two APIs. Where they changed, all that was read through them is read again.
    pub files: bool,
    /// Our VM. Where it moved, the sources that tell of its host are read again as well.
    pub vm: bool,
    /// The sources that tell of the host, although it is the same one.
    pub host: bool,
    /// Our Node.
    pub node: bool,
    /// The guest agent's unit and what it needs.
    pub units: bool,
    /// All VMs that may have our hardware: duplicates.
    pub search: bool,
    /// What was refused is asked for again, as if it never had been.
    pub refused: bool,
    /// What the watches delivered. They carry their objects, so that this reads nothing unless it has to.
    pub delivered: bool,
    /// Whether an answer from the API server's cache is new enough.
    pub cached: bool,
    /// Whether a migration hint asks for it, which does not wait until the backoff of an API is over.
    pub hinted: bool,
}

impl Scope {
    /// Nothing: a decision on what was read last.
    pub const NONE: Self = Self {
        files: false,
        vm: false,
        host: false,
        node: false,
        units: false,
        search: false,
        refused: false,
        delivered: false,
        cached: false,
        hinted: false,
    };
    /// Everything, for the first time.
    pub const ALL: Self = Self {
        refused: true,
        ..Self::KNOWN
    };
    /// What is on this machine, and what the new configuration needs that the old one did not. A fleet is reloaded in one
    /// second: the APIs, and credentials that still work, are read later, each machine at its own time.
    pub const RELOAD: Self = Self {
        units: true,
        refused: true,
        ..Self::NONE
    };
    /// What a write that was refused depends on.
    pub const REFUSED: Self = Self {
        files: true,
        node: true,
        ..Self::NONE
    };
    /// What the watches delivered.
    pub const DELIVERED: Self = Self {
        delivered: true,
        ..Self::NONE
    };
    /// The files, the VM that was found, its host, our Node and the guest agent.
    pub const KNOWN: Self = Self {
        files: true,
        vm: true,
        host: true,
        node: true,
        units: true,
        search: false,
        refused: false,
        delivered: false,
        cached: false,
        hinted: false,
    };
    /// The same, as the API servers' caches have it.
    pub const CACHED: Self = Self {
        cached: true,
        ..Self::KNOWN
    };
    /// The VM, and its host where that is another one.
    pub const MOVED: Self = Self {
        vm: true,
        ..Self::NONE
    };
    /// The same at once.
    pub const HINTED: Self = Self {
        hinted: true,
        ..Self::MOVED
    };
    /// The files, and nothing more while they hold what they held.
    pub const FILES: Self = Self {
        files: true,
        ..Self::NONE
    };
    /// The guest agent.
    pub const UNITS: Self = Self {
        units: true,
        ..Self::NONE
    };

    /// Reports whether an API may be asked. What only this machine can answer is no reason to ask one again that failed.
    pub fn asks_apis(self) -> bool {
        let local = Self {
            units: false,
            ..self
        };
        local != Self::NONE
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            files: self.files || other.files,
            vm: self.vm || other.vm,
            host: self.host || other.host,
            node: self.node || other.node,
            units: self.units || other.units,
            search: self.search || other.search,
            refused: self.refused || other.refused,
            delivered: self.delivered || other.delivered,
            cached: self.cached && other.cached,
            hinted: self.hinted || other.hinted,
        }
    }
}

/// One or more reasons, taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reasons {
    /// The first reason, which the report names.
    pub trigger: Trigger,
    /// What to read, for all reasons together.
    pub scope: Scope,
    /// When the first reason arrived, since the start of the process.
    pub at: Duration,
    /// The first migration hint among them, and when it arrived.
    pub hint: Option<(Trigger, Duration)>,
    /// Whether a new name of this machine is among them. It is reported before any API is asked.
    pub renamed: bool,
}

impl Reasons {
    /// One reason that arrived at `at`, since the start of the process.
    pub fn new(trigger: Trigger, at: Duration) -> Self {
        Self {
            trigger,
            scope: trigger.scope(),
            at,
            hint: trigger.is_migration_hint().then_some((trigger, at)),
            renamed: trigger == Trigger::Hostname,
        }
    }

    /// Returns the same reason for a round at `at` that reads nothing.
    #[must_use]
    pub fn again(self, at: Duration) -> Self {
        Self {
            scope: Scope::NONE,
            at,
            hint: None,
            renamed: false,
            ..self
        }
    }

    /// These, and a later one.
    #[must_use]
    pub fn and(self, later: Self) -> Self {
        Self {
            scope: self.scope.and(later.scope),
            hint: self.hint.or(later.hint),
            renamed: self.renamed || later.renamed,
            ..self
        }
    }
}

/// The round that comes by itself when nothing happens before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// How long to wait for it.
    pub after: Duration,
    /// The reason that it will have.
    pub trigger: Trigger,
    /// What it will read.
    pub scope: Scope,
}
