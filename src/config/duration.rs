// SPDX-License-Identifier: Apache-2.0
//! Durations in the configuration: one whole number and one unit.

use std::time::Duration;

/// The units and their lengths in milliseconds.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// The reason why a text is not a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text does not begin with a digit.
    #[error("does not begin with a whole number")]
    NoNumber,
    /// The number has no unit.
    #[error("has no unit: write `ms`, `s`, `m` or `h` after the number")]
    NoUnit,
    /// The number is followed by anything other than one known unit.
    #[error("has an unknown unit: write one number and one of `ms`, `s`, `m`, `h`")]
    UnknownUnit,
    /// The number is too large.
    #[error("is too large a number")]
    TooLarge,
}

/// Parses a duration such as `90s`, `10m` or `1h`.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let end = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if number.is_empty() {
        return Err(DurationError::NoNumber);
    }
    if unit.is_empty() {
        return Err(DurationError::NoUnit);
    }
    let (_, milliseconds) = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or(DurationError::UnknownUnit)?;
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(*milliseconds))
        .map(Duration::from_millis)
        .ok_or(DurationError::TooLarge)
}

/// Returns the text of a duration, in the largest unit that gives a whole number.
pub(super) fn text(duration: Duration) -> String {
    let length = duration.as_millis();
    let mut units = UNITS.iter().rev();
    let fits = |(_, unit): &&(&str, u64)| length != 0 && length.is_multiple_of(u128::from(*unit));
    match units.find(fits) {
        Some((name, unit)) => format!("{}{name}", length / u128::from(*unit)),
        None => "0s".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_read_as_it_is_written() {
        for written in ["0s", "250ms", "90s", "1m", "10m", "1h", "25h"] {
            assert_eq!(text(parse(written).unwrap()), written);
        }
    }

    #[test]
    fn one_number_and_one_unit_make_a_duration() {
        for (text, expected) in [
            ("250ms", Ok(Duration::from_millis(250))),
            ("90s", Ok(Duration::from_secs(90))),
            ("10m", Ok(Duration::from_secs(600))),
            ("1h", Ok(Duration::from_secs(3600))),
            ("0s", Ok(Duration::ZERO)),
            ("", Err(DurationError::NoNumber)),
            ("m", Err(DurationError::NoNumber)),
            ("-1m", Err(DurationError::NoNumber)),
            ("10", Err(DurationError::NoUnit)),
            ("10d", Err(DurationError::UnknownUnit)),
            ("10 m", Err(DurationError::UnknownUnit)),
            ("1h30m", Err(DurationError::UnknownUnit)),
            ("1.5h", Err(DurationError::UnknownUnit)),
            ("10M", Err(DurationError::UnknownUnit)),
            ("18446744073709551616s", Err(DurationError::TooLarge)),
            ("18446744073709551615h", Err(DurationError::TooLarge)),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
