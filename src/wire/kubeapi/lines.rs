// SPDX-License-Identifier: Apache-2.0
//! Splits the bytes of a stream into lines.

use std::collections::VecDeque;

/// The maximum length of one line of a watch: two objects of the maximum size.
pub const MAXIMUM_LINE: usize = 4 * 1024 * 1024;
/// The buffer size that is kept. A larger buffer is freed when its line is done: the process runs for months.
const KEPT_BUFFER: usize = 64 * 1024;
/// The error for a line longer than [`MAXIMUM_LINE`].
#[derive(Debug, PartialEq)]
pub struct LineTooLong;

/// A buffer that splits the bytes of a stream into lines. Text without a line end is not yet a line.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: VecDeque<u8>,
    /// The length of the part at its start that has no line end.
    searched: usize,
}

impl Lines {
    /// Adds the next bytes of the stream.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.extend(piece);
    }

    /// Returns the next line that is not blank.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>, LineTooLong> {
        loop {
            let mut unseen = self.buffer.iter().skip(self.searched);
            let Some(length) = unseen.position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                return match self.searched > MAXIMUM_LINE {
                    true => Err(LineTooLong),
                    false => Ok(None),
                };
            };
            let end = self.searched + length;
            let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
            line.pop();
            self.searched = 0;
            if self.buffer.is_empty() && self.buffer.capacity() > KEPT_BUFFER {
                self.buffer = VecDeque::new();
            }
            if line.len() > MAXIMUM_LINE {
                return Err(LineTooLong);
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }

    /// Reports whether no line has begun.
    pub fn is_empty(&self) -> bool {
        self.buffer.iter().all(u8::is_ascii_whitespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(lines: &mut Lines) -> Option<String> {
        let line = lines.next_line().unwrap()?;
        Some(String::from_utf8(line).unwrap())
    }

    #[test]
    fn lines_come_out_whole_however_they_are_cut() {
        let text = b"first\n\n \r\nsecond\nthird";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let mut taken = Vec::new();
            for piece in text.chunks(size) {
                lines.push(piece);
                taken.extend(std::iter::from_fn(|| take(&mut lines)));
            }
            assert_eq!(taken, ["first", "second"], "pieces of {size}");
            assert!(!lines.is_empty(), "the third line is cut, not gone");
        }
    }

    #[test]
    fn a_line_may_be_as_long_as_the_cap_and_no_longer() {
        for (length, fits) in [(MAXIMUM_LINE, true), (MAXIMUM_LINE + 1, false)] {
            let mut lines = Lines::default();
            lines.push(&vec![b'x'; length]);
            assert_eq!(
                lines.next_line(),
                if fits { Ok(None) } else { Err(LineTooLong) }
            );
            let mut lines = Lines::default();
            lines.push(&[vec![b'x'; length], vec![b'\n']].concat());
            assert_eq!(lines.next_line().is_ok(), fits);
        }
    }

    #[test]
    fn the_memory_of_a_long_line_is_given_back() {
        let mut lines = Lines::default();
        lines.push(&[vec![b'x'; 1024 * 1024], vec![b'\n']].concat());
        assert!(take(&mut lines).is_some());
        assert_eq!(lines.buffer.capacity(), 0);
        lines.push(b"cut");
        assert_eq!(take(&mut lines), None);
        lines.push(b"!\n");
        assert_eq!(take(&mut lines).as_deref(), Some("cut!"));
    }
}
