// SPDX-License-Identifier: Apache-2.0
//! Times relative to now: `2h ago`, `in 29d`.

use time::UtcDateTime;
use time::format_description::well_known::Rfc3339;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Returns the seconds from `now` until an RFC 3339 time; negative for a time in the past.
pub fn seconds_until(now: UtcDateTime, time: &str) -> Option<i64> {
    let time = UtcDateTime::parse(time, &Rfc3339).ok()?;
    Some(time.unix_timestamp().saturating_sub(now.unix_timestamp()))
}

/// Returns a span in its largest unit, rounded down: `59s`, `2h`, `311d`.
pub fn span(seconds: i64) -> String {
    match seconds.saturating_abs() {
        seconds @ ..MINUTE => format!("{seconds}s"),
        seconds @ ..HOUR => format!("{}m", seconds / MINUTE),
        seconds @ ..DAY => format!("{}h", seconds / HOUR),
        seconds => format!("{}d", seconds / DAY),
    }
}

/// Returns an RFC 3339 time as `2h ago` or `in 29d`, and any other text unchanged.
pub fn relative(now: UtcDateTime, time: &str) -> String {
    match seconds_until(now, time) {
        None => time.to_owned(),
        Some(seconds @ ..=0) => format!("{} ago", span(seconds)),
        Some(seconds) => format!("in {}", span(seconds)),
    }
}

/// Returns `expires in 29d` or `expired 2h ago`.
pub fn expiry(now: UtcDateTime, time: &str) -> String {
    match seconds_until(now, time) {
        Some(..=0) => format!("expired {}", relative(now, time)),
        _ => format!("expires {}", relative(now, time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_in_its_largest_unit() {
        let now = UtcDateTime::parse("2026-11-21T10:00:00Z", &Rfc3339).unwrap();
        for (time, shown) in [
            ("2026-11-21T10:00:00Z", "0s ago"),
            ("2026-11-21T09:59:01Z", "59s ago"),
            ("2026-11-21T09:58:59Z", "1m ago"),
            ("2026-11-21T08:00:00Z", "2h ago"),
            ("2026-12-20T11:00:00Z", "in 29d"),
            ("2026-11-21T10:30:00.5Z", "in 30m"),
            ("yesterday", "yesterday"),
        ] {
            assert_eq!(relative(now, time), shown);
        }
        assert_eq!(expiry(now, "2026-12-20T11:00:00Z"), "expires in 29d");
        assert_eq!(expiry(now, "2026-11-20T11:00:00Z"), "expired 23h ago");
    }
}
