// SPDX-License-Identifier: Apache-2.0
//! What arrives at the API servers, second by second.

/// What arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A connection is opened: TCP, and a TLS handshake where the server accepts it.
    Dial,
    /// One object is read.
    Get,
    /// A collection is read.
    List,
    /// A watch is opened.
    Watch,
    /// The Node or its status is patched.
    Patch,
    /// An Event is created, or a review.
    Create,
}

impl Kind {
    const COUNT: usize = Self::Create as usize + 1;

    fn index(self) -> usize {
        self as usize
    }
}

/// Why an agent reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Why {
    /// It has started.
    #[default]
    Start,
    /// The regular poll.
    Poll,
    /// A retry after a failure.
    Retry,
    /// A watch reported a change or its own return.
    Watch,
    /// A migration hint, or a read of the window that it opened.
    Hint,
    /// SIGHUP.
    Reload,
    /// A credential file changed.
    Files,
    /// Anything else.
    Other,
}

/// One second.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Second {
    /// Arrivals by kind.
    pub(super) arrivals: [u32; Kind::COUNT],
    /// Answers with status 429.
    pub(super) shed: u32,
    /// GETs and LISTs that neither a poll nor a migration hint explains.
    pub(super) unexplained: u32,
}

impl Second {
    /// Arrivals of one kind.
    pub(super) fn of(&self, kind: Kind) -> u32 {
        self.arrivals[kind.index()]
    }

    /// All arrivals.
    pub(super) fn all(&self) -> u32 {
        self.arrivals.iter().sum()
    }
}

/// All seconds since the start of a simulation.
#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    seconds: Vec<Second>,
}

impl Record {
    fn at(&mut self, second: usize) -> &mut Second {
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, Second::default());
        }
        &mut self.seconds[second]
    }

    /// Counts an arrival.
    pub(super) fn arrive(&mut self, second: usize, kind: Kind, why: Why) {
        let is_read = matches!(kind, Kind::Get | Kind::List);
        let second = self.at(second);
        second.arrivals[kind.index()] += 1;
        second.unexplained += u32::from(is_read && !matches!(why, Why::Poll | Why::Hint));
    }

    /// Counts an answer with status 429.
    pub(super) fn shed(&mut self, second: usize) {
        self.at(second).shed += 1;
    }

    /// The seconds of a range, those in which nothing arrived included.
    pub(super) fn range(&self, from: usize, to: usize) -> Vec<Second> {
        let second = |second| self.seconds.get(second).copied().unwrap_or_default();
        (from..to).map(second).collect()
    }
}
