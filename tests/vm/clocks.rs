// SPDX-License-Identifier: Apache-2.0
//! The guest's wall clock, seen from the host. All clocks of a machine stand still while no host runs it, and move with it: what they say
//! where one host has stopped the machine, they say where the next one resumes it. Of a PC, QEMU shows one of them, the counter of the
//! HPET. It may lack what the machine had idled just before the stop, so that a time since the resume is too long by that, and never too
//! short.
//!
//! Both clocks are taken to run at one pace for the seconds between a resume and the look at them.

use std::time::Duration;

use serde_json::json;

use crate::inside::Inside;
use crate::qmp::Monitor;

/// Where a PC has the counter: the HPET's address and the register (IA-PC HPET specification 2.3.7).
const COUNTER: u64 = 0xfed0_0000 + 0xf0;

/// QEMU's HPET counts these (`include/hw/timer/hpet.h`).
const NANOSECONDS_PER_TICK: i128 = 10;

/// Exchanges with the guest's clock, of which the shortest counts.
const EXCHANGES: usize = 10;

/// How the guest's wall clock and the machine's clock are related.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// Wall clock less machine's clock, in nanoseconds.
    ahead: i128,
    /// The relation was right to within this when it was found.
    pub error: Duration,
}

impl Clocks {
    /// The relation now. The guest's answer was made between two looks at the machine's clock; the closest ones say it best.
    pub async fn relate(monitor: &mut Monitor, inside: &mut Inside) -> Self {
        let mut best: Option<Self> = None;
        for _ in 0..EXCHANGES {
            let before = machine_time(monitor).await;
            let guest = inside.execute("guest-get-time", json!({})).await;
            let after = machine_time(monitor).await;
            let error = Duration::from_nanos(u64::try_from(after - before).unwrap() / 2);
            let ahead = i128::from(guest.as_i64().unwrap()) - i128::midpoint(before, after);
            if best.is_none_or(|best| error < best.error) {
                best = Some(Self { ahead, error });
            }
        }
        best.unwrap()
    }

    /// A time of the machine by the guest's wall clock, in microseconds since the epoch.
    pub fn in_guest(&self, machine_time: i128) -> i128 {
        (machine_time + self.ahead) / 1000
    }
}

/// The machine's clock, in nanoseconds since the guest's kernel started the counter.
pub async fn machine_time(monitor: &mut Monitor) -> i128 {
    let command = json!({"command-line": format!("xp /1gx {COUNTER:#x}")});
    let shown = monitor.execute("human-monitor-command", command).await;
    // `00000000fed000f0: 0x000000012a05f200`
    let counter = shown
        .as_str()
        .and_then(|text| text.trim().rsplit_once("0x"));
    let counter = counter.and_then(|(_, digits)| i128::from_str_radix(digits, 16).ok());
    counter.unwrap_or_else(|| panic!("no counter: {shown}")) * NANOSECONDS_PER_TICK
}
