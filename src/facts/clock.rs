// SPDX-License-Identifier: Apache-2.0
//! Steps of the wall clock, and the form of a time.

use std::fmt;

use time::UtcDateTime;

/// A step of the wall clock in nanoseconds; negative if it was set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockStep(pub i128);

/// The steps of the wall clock since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClockSteps {
    /// The number of steps.
    pub count: u64,
    /// The last step.
    pub last: Option<ClockStep>,
}

impl fmt::Display for ClockStep {
    /// Formats the step in seconds, rounded to milliseconds.
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

/// Formats a time as RFC 3339 with seconds, like Kubernetes.
pub fn rfc3339(time: UtcDateTime) -> String {
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second) = time.as_hms();
    format!(
        "{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z",
        u8::from(month)
    )
}

/// Formats a Unix timestamp in the same form.
pub fn date(seconds: i64) -> String {
    let time = UtcDateTime::from_unix_timestamp(seconds);
    time.map_or_else(|_| format!("Unix timestamp {seconds}"), rfc3339)
}

/// Formats a time as RFC 3339 with microseconds, like the type `MicroTime` of Kubernetes.
pub fn rfc3339_micros(time: UtcDateTime) -> String {
    let seconds = rfc3339(time);
    format!(
        "{}.{:06}Z",
        seconds.trim_end_matches('Z'),
        time.microsecond()
    )
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
