// SPDX-License-Identifier: Apache-2.0
//! Triggers of a reconcile, and the scope of its reads.

use std::time::Duration;

use bitflags::bitflags;

use crate::sys::named::named;

named! {
    /// A reason to reconcile.
    Trigger {
        /// The agent started.
        Startup = "startup",
        /// Our VirtualMachineInstance changed.
        Vmi = "vmi",
        /// Our Node changed.
        Node = "node",
        /// A file changed: a credential, the hostname, or the configuration of the distribution.
        Files = "files",
        /// A virtual NIC announced itself: the VM runs in another QEMU, or was paused for saving.
        Link = "link",
        /// The host side of an open virtio-serial port was replaced.
        Port = "port",
        /// The wall clock was set.
        Clock = "clock",
        /// A name of this machine changed.
        Hostname = "hostname",
        /// A unit of the guest agent changed.
        Units = "units",
        /// An operator on the host requested it through our own channel.
        Operator = "operator",
        /// The configuration was reloaded.
        Reload = "reload",
        /// An event source of this machine failed or recovered.
        EventSource = "event-source",
        /// A read of the fast-poll window, after a migration hint.
        FastPoll = "fast-poll",
        /// A timer expired.
        Timer = "timer",
    }
}

impl Trigger {
    /// Reports whether this is a migration hint: the guest notices a migration before the API reports it.
    pub fn is_migration_hint(self) -> bool {
        matches!(self, Self::Link | Self::Port)
    }

    /// Returns what must be read again.
    pub fn scope(self) -> Scope {
        match self {
            Self::Vmi | Self::Node => Scope::DELIVERED,
            Self::Timer | Self::Operator => Scope::KNOWN,
            Self::Files => Scope::FILES,
            Self::Link | Self::Port => Scope::HINTED,
            Self::Clock | Self::FastPoll => Scope::VM,
            // Every round reads the names of this machine and collects the findings.
            Self::Hostname | Self::EventSource => Scope::NONE,
            Self::Units => Scope::UNITS,
            Self::Startup => Scope::ALL,
            Self::Reload => Scope::RELOAD,
        }
    }
}

bitflags! {
    /// The reads of an observation; other facts are cached.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Scope: u16 {
        /// The credential files of the two APIs. If they changed, all reads that used them are repeated.
        const FILES = 1;
        /// Our VM. If it migrated, the sources for its host are read again as well.
        const VM = 1 << 1;
        /// The sources for the host, even if the host is the same.
        const HOST = 1 << 2;
        /// Our Node.
        const NODE = 1 << 3;
        /// The unit of the guest agent and its dependencies.
        const UNITS = 1 << 4;
        /// All VMs that may have our names or our hardware, although ours is known.
        const SEARCH = 1 << 5;
        /// Refused reads are repeated, as if for the first time.
        const AFRESH = 1 << 6;
        /// The events of the watches. They contain their objects, so that usually no read is needed.
        const DELIVERED = 1 << 7;
        /// The reads do not wait for the backoff of an API, because a migration hint caused them.
        const AT_ONCE = 1 << 8;
    }
}

impl Scope {
    /// Nothing: a decision on cached facts.
    pub const NONE: Self = Self::empty();
    /// The files, the known VM, its host, our Node and the guest agent.
    pub const KNOWN: Self = Self::LOCAL
        .union(Self::VM)
        .union(Self::HOST)
        .union(Self::NODE);
    /// Everything, for the first time.
    pub const ALL: Self = Self::KNOWN.union(Self::AFRESH);
    /// The facts of this machine, and what the new configuration needs in addition. A whole fleet may be reloaded in one second,
    /// so the APIs, and credentials that still work, are read later, at a different time per machine.
    pub const RELOAD: Self = Self::UNITS.union(Self::AFRESH);
    /// The facts that a refused write depends on.
    pub const REFUSED: Self = Self::FILES.union(Self::NODE);
    /// The VM after a migration hint.
    pub const HINTED: Self = Self::VM.union(Self::AT_ONCE);
    /// The facts of this machine. Every round reads its names.
    pub const LOCAL: Self = Self::FILES.union(Self::UNITS);

    /// Reports whether API requests are allowed. A reason that only concerns this machine must not retry a failed API request.
    pub fn asks_apis(self) -> bool {
        !self.difference(Self::UNITS).is_empty()
    }
}

/// One or more reasons to reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reasons {
    /// The first reason, which is reported.
    pub trigger: Trigger,
    /// The combined scope of all reasons.
    pub scope: Scope,
    /// The time when the first reason arrived, since the start of the process.
    pub at: Duration,
    /// The first migration hint and its time of arrival.
    pub hint: Option<(Trigger, Duration)>,
    /// Whether a new name of this machine is one of the reasons. It is reported before any API request.
    pub renamed: bool,
}

impl Reasons {
    /// Creates a single reason that arrived at `at`, since the start of the process.
    pub fn new(trigger: Trigger, at: Duration) -> Self {
        Self {
            trigger,
            scope: trigger.scope(),
            at,
            hint: trigger.is_migration_hint().then_some((trigger, at)),
            renamed: trigger == Trigger::Hostname,
        }
    }

    /// Returns the same reason for decisions at `at` before which nothing is read.
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

    /// Adds a later reason.
    #[must_use]
    pub fn and(self, later: Self) -> Self {
        Self {
            scope: self.scope | later.scope,
            hint: self.hint.or(later.hint),
            renamed: self.renamed || later.renamed,
            ..self
        }
    }
}

/// The next scheduled round if no trigger arrives before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// The delay.
    pub after: Duration,
    /// The trigger.
    pub trigger: Trigger,
    /// The scope.
    pub scope: Scope,
}
