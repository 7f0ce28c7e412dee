// SPDX-License-Identifier: Apache-2.0
//! Splits the bytes of a stream into lines.

use std::ops::Range;

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
    buffer: Vec<u8>,
    /// The start of the next line.
    start: usize,
    /// The end of the part that has no line end.
    searched: usize,
}

impl Lines {
    /// Adds the next bytes of the stream.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(piece);
    }

    /// Returns the next line that is not blank. It stays in the buffer until the next call.
    pub fn next_line(&mut self) -> Result<Option<Range<usize>>, LineTooLong> {
        loop {
            let unseen = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(length) = unseen.iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                return if self.searched - self.start > MAXIMUM_LINE {
                    Err(LineTooLong)
                } else {
                    Ok(None)
                };
            };
            let line = self.start..self.searched + length;
            self.start = line.end + 1;
            self.searched = self.start;
            if line.len() > MAXIMUM_LINE {
                return Err(LineTooLong);
            }
            if !self.line(line.clone()).trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }

    /// Returns the line at a place that [`Lines::next_line`] returned.
    pub fn line(&self, line: Range<usize>) -> &[u8] {
        self.buffer.get(line).unwrap_or_default()
    }

    /// Frees the memory of lines that are done.
    pub fn release(&mut self) {
        if self.start == self.buffer.len() && self.buffer.capacity() > KEPT_BUFFER {
            *self = Self::default();
        }
    }

    /// Reports whether no line has begun.
    pub fn is_empty(&self) -> bool {
        self.line(self.start..self.buffer.len())
            .trim_ascii()
            .is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(lines: &mut Lines) -> Option<String> {
        let line = lines.next_line().unwrap()?;
        Some(String::from_utf8(lines.line(line).to_vec()).unwrap())
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
        lines.release();
        assert_eq!(lines.buffer.capacity(), 0);
        lines.push(b"cut");
        assert_eq!(take(&mut lines), None);
        lines.push(b"!\n");
        assert_eq!(take(&mut lines).as_deref(), Some("cut!"));
    }
}
