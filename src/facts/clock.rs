// SPDX-License-Identifier: Apache-2.0
//! A step of the wall clock.

use std::fmt;

/// How far the wall clock was set, in nanoseconds; negative is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockStep(pub i128);

/// The steps of the wall clock since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClockSteps {
    /// How many there were.
    pub count: u64,
    /// The last one.
    pub last: Option<ClockStep>,
}

impl fmt::Display for ClockStep {
    /// In seconds to the millisecond: the time between two readings is finer.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { '-' } else { '+' };
        let milliseconds = (self.0.unsigned_abs() + 500_000) / 1_000_000;
        let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
        match milliseconds {
            0 => formatter.write_str("less than 1 ms"),
            _ => write!(formatter, "{sign}{seconds}.{rest:03} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_shown_to_the_millisecond() {
        for (nanoseconds, shown) in [
            (8_702_000_000, "+8.702 s"),
            (-60_000_000_000, "-60.000 s"),
            (0, "less than 1 ms"),
            (1_499_999, "+0.001 s"),
            (-500_000, "-0.001 s"),
            (-499_999, "less than 1 ms"),
        ] {
            assert_eq!(ClockStep(nanoseconds).to_string(), shown);
        }
    }
}
