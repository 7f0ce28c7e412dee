// SPDX-License-Identifier: Apache-2.0
//! The destination of records: the journal or stderr. Chosen once.

/// journald's socket; the client library supports no other path.
pub const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// The destination of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sink {
    /// journald's own protocol, with fields.
    Journal,
    /// Text on stderr.
    Stderr {
        /// Whether each line has its priority as a prefix, `<4>`, which systemd parses on a service's stderr.
        is_prefixed: bool,
    },
}

/// Returns the journal for a service on a system that has one, otherwise stderr. If that is a terminal, this is no service. `has_stream`
/// is whether systemd connected an output of the process, or of one that started it, to the journal (`JOURNAL_STREAM`).
pub fn choose_sink(has_journal: bool, is_terminal: bool, has_stream: bool) -> Sink {
    match is_terminal {
        false if has_journal => Sink::Journal,
        _ => Sink::Stderr {
            is_prefixed: has_stream && !is_terminal,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_chosen_for_a_service_on_a_system_that_has_one() {
        let stderr = |is_prefixed| Sink::Stderr { is_prefixed };
        for has_stream in [false, true] {
            for (has_journal, is_terminal, expected) in [
                (true, false, Sink::Journal),
                (false, false, stderr(has_stream)),
                (true, true, stderr(false)),
                (false, true, stderr(false)),
            ] {
                let found = choose_sink(has_journal, is_terminal, has_stream);
                assert_eq!(found, expected);
            }
        }
    }
}
