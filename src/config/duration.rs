// SPDX-License-Identifier: Apache-2.0
//! Durations in the configuration: one whole number and one unit.

use std::time::Duration;

/// The units and their lengths in milliseconds.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Parses a duration such as `90s`, `10m` or `1h`.
pub fn parse(text: &str) -> Result<Duration, &'static str> {
    let end = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if number.is_empty() {
        return Err("does not begin with a whole number");
    }
    if unit.is_empty() {
        return Err("has no unit: write `ms`, `s`, `m` or `h` after the number");
    }
    let (_, milliseconds) = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or("has an unknown unit: write one number and one of `ms`, `s`, `m`, `h`")?;
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(*milliseconds))
        .map(Duration::from_millis)
        .ok_or("is too large a number")
}

/// Returns the text of a duration, in the largest unit that gives a whole number.
pub fn text(duration: Duration) -> String {
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
    fn one_number_and_one_unit_make_a_duration_which_is_shown_as_it_is_written() {
        for (written, milliseconds) in [
            ("250ms", 250),
            ("90s", 90_000),
            ("1m", 60_000),
            ("10m", 600_000),
            ("1h", 3_600_000),
            ("25h", 90_000_000),
            ("0s", 0),
        ] {
            let duration = Duration::from_millis(milliseconds);
            assert_eq!(parse(written), Ok(duration));
            assert_eq!(text(duration), written);
        }
    }
}
