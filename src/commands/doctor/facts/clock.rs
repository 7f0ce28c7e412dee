// SPDX-License-Identifier: Apache-2.0
//! The clock: with a wrong clock, a valid certificate looks expired. The clocks of the servers are in `servers`.

facts! {
    /// The clock of this machine.
    ClockFacts {
        /// Whether the kernel clock is synchronized (`adjtimex(2)`, `STA_UNSYNC` not set).
        synchronized: bool, Machine, "clock synchronization (NTP)";
    }
}
