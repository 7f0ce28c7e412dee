// SPDX-License-Identifier: Apache-2.0
//! A socket for the bus that never reads a large message into memory.
//!
//! Any user of this system can send us a signal of 128 MiB, regardless of match rules, and the bus delivers it. The library
//! allocates memory for a whole message as soon as it has its first 16 bytes. So these are checked first, and a message longer
//! than [`MESSAGE_MAX`] is read in chunks and dropped: no requested message is as large.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use tokio::io::{AsyncReadExt, AsyncWriteExt, Take, copy, sink};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use zbus::Message;
use zbus::connection::socket::{ReadHalf, Socket, Split, WriteHalf};
use zbus::export::async_trait::async_trait;

/// The maximum length of a message in bytes. The requested messages of systemd and systemd-hostnamed have less than 20 kB.
pub(super) const MESSAGE_MAX: usize = 64 << 10;

/// The maximum length of a message in the specification, in bytes; anything longer is not a message.
const PROTOCOL_MAX: usize = 128 << 20;

/// The part of a header that has the same length in each message: it ends with the length of the header's fields.
const FIXED_HEADER: usize = 16;

/// The two halves of a connected socket.
#[derive(Debug)]
pub(super) struct Bounded(pub(super) UnixStream);

impl Socket for Bounded {
    type ReadHalf = SocketReader;
    type WriteHalf = SocketWriter;

    fn split(self) -> Split<SocketReader, SocketWriter> {
        let (read, write) = self.0.into_split();
        Split::new(SocketReader(Bytes(read)), SocketWriter(write))
    }
}

/// Reads the bytes of messages for the library, without a limit.
#[derive(Debug)]
struct Bytes(OwnedReadHalf);

#[async_trait]
impl ReadHalf for Bytes {
    async fn recvmsg(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        // File descriptors are neither requested nor accepted.
        Ok((self.0.read(buffer).await?, Vec::new()))
    }
}

/// The read half of the socket.
#[derive(Debug)]
pub(super) struct SocketReader(Bytes);

impl SocketReader {
    /// Reads until `bytes` has `wanted` bytes.
    async fn fill(&mut self, bytes: &mut Vec<u8>, wanted: usize) -> io::Result<()> {
        let missing = wanted.saturating_sub(bytes.len());
        let read = self.next(missing).read_to_end(bytes).await?;
        whole(read == missing)
    }

    /// Drops `length` bytes: first those in `bytes`, then those that it reads.
    async fn skip(&mut self, bytes: &mut Vec<u8>, length: usize) -> io::Result<()> {
        let there = bytes.len().min(length);
        bytes.drain(..there);
        let left = length - there;
        let skipped = copy(&mut self.next(left), &mut sink()).await?;
        whole(skipped == left as u64)
    }

    /// Returns a reader of the next `length` bytes.
    fn next(&mut self, length: usize) -> Take<&mut OwnedReadHalf> {
        (&mut self.0.0).take(length as u64)
    }
}

fn whole(is_whole: bool) -> io::Result<()> {
    is_whole
        .then_some(())
        .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[async_trait]
impl ReadHalf for SocketReader {
    async fn receive_message(
        &mut self,
        seq: u64,
        already_received_bytes: &mut Vec<u8>,
        already_received_fds: &mut Vec<OwnedFd>,
    ) -> zbus::Result<Message> {
        loop {
            self.fill(already_received_bytes, FIXED_HEADER).await?;
            let length = length(already_received_bytes).filter(|length| *length <= PROTOCOL_MAX);
            match length {
                Some(length) if length > MESSAGE_MAX => {
                    self.skip(already_received_bytes, length).await?;
                }
                Some(_) => {
                    return self
                        .0
                        .receive_message(seq, already_received_bytes, already_received_fds)
                        .await;
                }
                None => return Err(io::Error::from(io::ErrorKind::InvalidData).into()),
            }
        }
    }

    async fn recvmsg(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        self.0.recvmsg(buffer).await
    }
}

/// Returns the length of the message that begins with this header (D-Bus specification, "Message Format").
fn length(header: &[u8]) -> Option<usize> {
    let number: fn([u8; 4]) -> u32 = match header.first()? {
        b'l' => u32::from_le_bytes,
        b'B' => u32::from_be_bytes,
        _ => return None,
    };
    let number = |from| Some(number(*header.get(from..)?.first_chunk()?) as usize);
    let (body, fields) = (number(4)?, number(12)?);
    let before_body = FIXED_HEADER
        .checked_add(fields)?
        .checked_next_multiple_of(8)?;
    before_body.checked_add(body)
}

/// The write half of the socket.
#[derive(Debug)]
pub(super) struct SocketWriter(OwnedWriteHalf);

#[async_trait]
impl WriteHalf for SocketWriter {
    async fn sendmsg(&mut self, buffer: &[u8], _fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        self.0.write(buffer).await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.0.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a signal whose body is a string of this length.
    fn signal(length: usize) -> Vec<u8> {
        let message = Message::signal("/a", "b.c", "D")
            .build(&"x".repeat(length))
            .unwrap();
        message.data().to_vec()
    }

    #[tokio::test]
    async fn a_message_beyond_64_kb_is_dropped_and_those_around_it_arrive() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let messages = [
            signal(1),
            signal(1 << 20),
            signal(2),
            signal(MESSAGE_MAX),
            signal(3),
        ];
        let sent = messages.concat();
        let send = async move {
            theirs.write_all(&sent).await.unwrap();
            theirs
        };
        let receive = async {
            let (mut reader, _writer) = Bounded(ours).split().take();
            // A few bytes arrived with the handshake.
            let mut early = Vec::new();
            reader.fill(&mut early, 21).await.unwrap();
            let mut lengths = Vec::new();
            for number in 0..3 {
                let message = reader
                    .receive_message(number, &mut early, &mut Vec::new())
                    .await
                    .unwrap();
                let body: String = message.body().deserialize().unwrap();
                lengths.push(body.len());
            }
            lengths
        };
        let (_theirs, lengths) = tokio::join!(send, receive);
        assert_eq!(lengths, [1, 2, 3]);
    }

    #[tokio::test]
    async fn what_is_no_message_ends_the_connection() {
        let mut endless = signal(1);
        endless[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
        for bytes in [endless, vec![b'x'; 64]] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(&bytes).await.unwrap();
            let (mut reader, _writer) = Bounded(ours).split().take();
            let error = reader
                .receive_message(0, &mut Vec::new(), &mut Vec::new())
                .await
                .unwrap_err();
            assert!(matches!(error, zbus::Error::InputOutput(_)), "{error:?}");
        }
    }

    #[test]
    fn a_length_is_that_of_the_library_in_both_orders_of_bytes() {
        for size in [0, 1, 7, 8, 9, 100_000] {
            let message = signal(size);
            assert_eq!(length(&message), Some(message.len()));
        }
        let big = [b'B', 4, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 9];
        assert_eq!(length(&big), Some(16 + 9 + 7 + 256));
        assert_eq!(length(&big[..15]), None);
    }
}
