// SPDX-License-Identifier: Apache-2.0
//! Splits the bytes from the host into JSON values.
//!
//! A value is returned as soon as it is complete, regardless of line ends; invalid JSON leads to one error and is
//! dropped up to the end of its line; 0xFF drops all bytes before it and is not part of a value.

use serde_json::{Deserializer, Value};

use super::refusal::{INPUT_MAX, QgaRefusal, RESET};

/// The bytes that were received and not yet parsed. Holds at most [`INPUT_MAX`] bytes and one push, if [`Input::take`] is called
/// after each push until it returns `None`.
#[derive(Debug, Default)]
pub struct Input {
    bytes: Vec<u8>,
    /// The number of lines to drop from the start, after invalid JSON.
    skip: usize,
}

/// The state of the start of the input.
enum Front {
    /// A value, and its length in bytes.
    Whole(Value, usize),
    /// Only the start of a value.
    Partial,
    /// Invalid JSON: the problem, and the number of lines up to it.
    Broken(String, usize),
}

impl Input {
    /// Adds bytes at the end.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Drops all bytes.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the next value, or the error for invalid JSON in its place; `None` if more bytes are needed.
    pub fn take(&mut self) -> Option<Result<Value, QgaRefusal>> {
        loop {
            if self.skip > 0 {
                let is_end = |byte: &u8| [b'\n', RESET].contains(byte);
                let Some(end) = self.bytes.iter().position(is_end) else {
                    self.bytes.clear();
                    return None;
                };
                let is_reset = self.bytes.get(end) == Some(&RESET);
                self.skip = if is_reset { 0 } else { self.skip - 1 };
                self.drop_first(end + 1);
                continue;
            }
            let is_blank = |byte: &&u8| byte.is_ascii_whitespace();
            self.drop_first(self.bytes.iter().take_while(is_blank).count());
            let reset = self.bytes.iter().position(|byte| *byte == RESET);
            let end = reset.unwrap_or(self.bytes.len());
            match front(self.bytes.get(..end).unwrap_or_default()) {
                Front::Whole(value, length) => {
                    self.drop_first(length);
                    return Some(Ok(value));
                }
                Front::Broken(what, lines) => {
                    self.skip = lines;
                    return Some(Err(QgaRefusal::NotJson(what)));
                }
                Front::Partial if reset.is_some() => self.drop_first(end + 1),
                Front::Partial if end > INPUT_MAX => {
                    self.bytes.clear();
                    self.skip = 1;
                    return Some(Err(QgaRefusal::TooLong));
                }
                Front::Partial => return None,
            }
        }
    }

    fn drop_first(&mut self, count: usize) {
        self.bytes.drain(..count.min(self.bytes.len()));
    }
}

fn front(bytes: &[u8]) -> Front {
    let mut values = Deserializer::from_slice(bytes).into_iter();
    match values.next() {
        Some(Ok(value)) => Front::Whole(value, values.byte_offset()),
        Some(Err(error)) if !error.is_eof() => {
            // A line feed that is itself the error counts as part of the next line.
            let after = usize::from(error.column() == 0);
            let lines = error.line().saturating_sub(after).max(1);
            Front::Broken(error.to_string(), lines)
        }
        Some(Err(_)) | None => Front::Partial,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns all results of these pushes, with errors as text.
    fn taken(pushes: &[&[u8]]) -> Vec<Value> {
        let mut input = Input::default();
        let mut taken = Vec::new();
        for bytes in pushes {
            input.push(bytes);
            while let Some(next) = input.take() {
                taken.push(next.unwrap_or_else(|refusal| json!(refusal.to_string())));
            }
            assert!(input.bytes.len() <= INPUT_MAX);
        }
        taken
    }

    fn is_finding(value: &Value) -> bool {
        value
            .as_str()
            .is_some_and(|text| text.starts_with("JSON parse error, "))
    }

    #[test]
    fn a_value_is_whole_wherever_the_writes_and_lines_are_cut() {
        let text = b"{\"a\":\n\"}\\\"\xc3\xa4\"}\n\n {\"b\":[1]}{\"c\":{}}\n";
        let expected = [json!({"a": "}\"ä"}), json!({"b": [1]}), json!({"c": {}})];
        assert_eq!(taken(&[text]), expected);
        for cut in 1..text.len() {
            assert_eq!(taken(&[&text[..cut], &text[cut..]]), expected, "{cut}");
        }
        let single: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(taken(&single), expected);
    }

    #[test]
    fn the_reset_byte_drops_half_a_value_and_keeps_whole_ones() {
        assert_eq!(
            taken(&[b"{\"a\":1}\n{\"b\":\"\xff{\"c\":3}"]),
            [json!({"a": 1}), json!({"c": 3})]
        );
        assert_eq!(taken(&[b"\xff\xff\xff{}\xff"]), [json!({})]);
    }

    #[test]
    fn what_is_no_json_is_answered_once_and_dropped_to_the_end_of_its_line() {
        for broken in [
            &b"garbage and more"[..],
            b"}",
            b"\0",
            b"{\"a\":]",
            b"{\"a\":\n\n]",
            b"{\"a\":\"b",
            b"{\"execute\":\"\xc3\x28\"}",
            b"{\"a\":\"\x01\"}",
            b"{'a':1}",
            b"{\"a\":1e999}",
        ] {
            for pause in [false, true] {
                let rest = b"\n{\"b\":2}\n";
                let all = [broken, rest].concat();
                let taken = match pause {
                    false => taken(&[&all]),
                    true => taken(&[broken, rest]),
                };
                assert_eq!(taken.len(), 2, "{} {taken:?}", broken.escape_ascii());
                assert!(is_finding(&taken[0]), "{taken:?}");
                assert_eq!(taken[1], json!({"b": 2}));
            }
        }
    }

    #[test]
    fn the_reset_byte_ends_what_is_no_json_as_well() {
        let taken = taken(&[b"garbage \xff{\"b\":2}"]);
        assert!(is_finding(&taken[0]));
        assert_eq!(taken[1..], [json!({"b": 2})]);
    }

    #[test]
    fn a_megabyte_without_an_end_is_one_complaint_and_no_more_memory() {
        for (fill, end) in [(b'x', b"\n"), (b'"', b"\xff")] {
            let mut input = Input::default();
            let mut findings = 0;
            input.push(b"{\"a\":\"");
            for _ in 0..256 {
                input.push(&[if fill == b'"' { b'\\' } else { fill }; 4096]);
                while let Some(next) = input.take() {
                    assert_eq!(next, Err(QgaRefusal::TooLong));
                    findings += 1;
                }
                assert!(input.bytes.len() <= INPUT_MAX);
                assert!(input.bytes.capacity() <= 4 * INPUT_MAX);
            }
            assert_eq!(findings, 1);
            input.push(end);
            input.push(b"{}");
            assert_eq!(input.take(), Some(Ok(json!({}))));
        }
    }

    #[test]
    fn the_largest_value_that_is_allowed_passes() {
        let text = format!("{{\"a\":\"{}\"}}", "x".repeat(INPUT_MAX - 8));
        assert_eq!(text.len(), INPUT_MAX);
        let writes: Vec<&[u8]> = text.as_bytes().chunks(4096).collect();
        assert_eq!(taken(&writes).len(), 1);
    }

    #[test]
    fn deep_nesting_is_refused_before_it_costs_anything() {
        let deep = [b"[".repeat(100_000), b"\n{}".to_vec()].concat();
        let taken = taken(&deep.chunks(4096).collect::<Vec<_>>());
        assert!(is_finding(&taken[0]));
        assert_eq!(taken[1..], [json!({})]);
    }

    #[test]
    fn blank_input_is_nothing_and_is_not_kept() {
        let mut input = Input::default();
        for _ in 0..100 {
            input.push(&[b'\n'; 4096]);
            assert_eq!(input.take(), None);
        }
        assert!(input.bytes.is_empty());
    }
}
