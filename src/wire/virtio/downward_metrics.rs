// SPDX-License-Identifier: Apache-2.0
//! Asks the host for its metrics on KubeVirt's virtio-serial port (`pkg/downwardmetrics/virtio-serial/server.go`).
//!
//! The request is two lines, the second blank. The answer is a document and a blank line, with no length and no number that
//! would tell which request it answers. So an answer that an earlier asker left unread comes to the next one: what lies in
//! the port before the request is thrown away, and a document is believed by the time that stands in it.
//!
//! The port is open only while we ask, because other programs need it too. The host takes one request in a second.

use std::time::Duration;

use tokio::time::timeout;

use super::port::{Port, PortError, READ_MAX, Read};
use crate::facts::host_metrics::{HostMetrics, MetricsError, Via};
use crate::sys::root::Root;

/// The name of the port.
pub const PORT: &str = "org.github.vhostmd.1";

const REQUEST: &[u8] = b"GET /metrics/XML\n\n";

/// The host's word for a request that it does not understand.
const REFUSAL: &[u8] = b"INVALID REQUEST";

/// Ends a message. A document holds no blank line.
const END: &[u8] = b"\n\n";

/// All that is read for one question, in bytes. KubeVirt's document has about 2500.
const ANSWER_MAX: usize = 64 * 1024;

/// A document may be older than the request by this, in seconds: the host keeps whole seconds and its clock is not ours.
const CLOCK_TOLERANCE: i64 = 2;

/// How long to wait for the host.
#[derive(Debug, Clone, Copy)]
pub struct ReadTimeouts {
    /// Until it takes the request: no one may be there.
    pub send: Duration,
    /// From then until it has answered, a second request included.
    pub receive: Duration,
    /// For our own answer behind one that is not ours. No second request goes out earlier.
    pub again: Duration,
}

impl Default for ReadTimeouts {
    /// For each request the host asks QEMU for numbers, which may take 12 s.
    fn default() -> Self {
        Self {
            send: Duration::from_secs(5),
            receive: Duration::from_secs(15),
            again: Duration::from_secs(2),
        }
    }
}

/// Why the host's metrics could not be had.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The host does not offer the port.
    #[error("the host does not provide the port `{PORT}`")]
    NotOffered,
    /// A port has one reader, and it is another program for the moment.
    #[error(
        "the port `{PORT}` is in use by another program, such as vm-dump-metrics; retrying later"
    )]
    Busy,
    /// The port cannot be used.
    #[error("failed to use the port `{PORT}`")]
    Port(#[source] PortError),
    /// The port is there, and no virt-handler behind it.
    #[error("nothing on the host reads from `{PORT}`: sending the request timed out after {} ms", .0.as_millis())]
    NotServed(Duration),
    /// The request was taken and not answered.
    #[error("no response from the host on `{PORT}` within {} ms", .0.as_millis())]
    NoAnswer(Duration),
    /// virt-handler went away after it took the request.
    #[error("the host closed `{PORT}` before it responded")]
    HungUp,
    /// More than any answer has.
    #[error("the response on `{PORT}` is longer than {ANSWER_MAX} bytes")]
    TooLarge,
    /// The host's own refusal.
    #[error("the host responded `INVALID REQUEST` on `{PORT}`")]
    Refused,
    /// Bytes that are no text.
    #[error("the response on `{PORT}` is not valid UTF-8")]
    NotText,
    /// A document that says nothing about the host.
    #[error("unexpected response on `{PORT}`")]
    Document(#[source] MetricsError),
    /// A document from before the request. Either it answered someone else, or the clocks differ.
    #[error(
        "the response on `{PORT}` is stale: it is {} s older than the request, or the clocks of host and guest differ",
        asked.saturating_sub(*time)
    )]
    Stale {
        /// When the host wrote it, by its clock.
        time: i64,
        /// When it was asked, by ours.
        asked: i64,
    },
}

impl From<PortError> for AskError {
    fn from(error: PortError) -> Self {
        match error {
            PortError::NotOffered(_) => Self::NotOffered,
            PortError::Busy(_) => Self::Busy,
            error => Self::Port(error),
        }
    }
}

/// Asks the host once for what it says of itself. `wall` is the time now, in seconds since 1970.
///
/// # Errors
///
/// When the host has no such port, or did not give a document of now in time.
pub async fn ask(root: &Root, wall: i64, timeouts: ReadTimeouts) -> Result<HostMetrics, AskError> {
    let mut question = Question {
        port: Port::open(root, PORT)?,
        answer: MetricsAnswer::default(),
        rejected: None,
    };
    timeout(timeouts.send, question.send())
        .await
        .map_err(|_| AskError::NotServed(timeouts.send))??;
    let received = timeout(timeouts.receive, question.receive(wall, timeouts.again)).await;
    // What came and could not be believed says more than that nothing else came.
    let rejected = question.rejected;
    received.unwrap_or_else(|_| Err(rejected.unwrap_or(AskError::NoAnswer(timeouts.receive))))
}

/// One question on an open port. The port is closed with it.
#[derive(Debug)]
struct Question {
    port: Port,
    answer: MetricsAnswer,
    /// Why the last message was not believed.
    rejected: Option<AskError>,
}

impl Question {
    /// Writes the request when there is room. All that came before is not its answer.
    async fn send(&mut self) -> Result<(), AskError> {
        let mut rest = REQUEST;
        loop {
            self.read_all()?;
            let written = self.port.write(rest)?;
            rest = rest.get(written..).unwrap_or_default();
            if rest.is_empty() {
                self.answer.asked();
                return Ok(());
            }
            if written == 0 {
                self.port.changed().await?;
            }
        }
    }

    /// Reads until a message can be believed. One that cannot may be what an earlier asker left: then ours stands behind
    /// it, or the host is asked once more.
    async fn receive(&mut self, wall: i64, again: Duration) -> Result<HostMetrics, AskError> {
        match judge(&self.message().await?, wall) {
            Ok(metrics) => return Ok(metrics),
            Err(reason) => self.rejected = Some(reason),
        }
        if let Ok(behind) = timeout(again, self.believed(wall)).await {
            return behind;
        }
        self.send().await?;
        judge(&self.message().await?, wall)
    }

    /// The first message that can be believed.
    async fn believed(&mut self, wall: i64) -> Result<HostMetrics, AskError> {
        loop {
            match judge(&self.message().await?, wall) {
                Ok(metrics) => return Ok(metrics),
                Err(reason) => self.rejected = Some(reason),
            }
        }
    }

    /// The next whole message. Cancel-safe.
    async fn message(&mut self) -> Result<Vec<u8>, AskError> {
        loop {
            let host = self.read_all()?;
            if let Some(message) = self.answer.take() {
                return Ok(message);
            }
            if host == Read::HostAway {
                return Err(AskError::HungUp);
            }
            self.port.changed().await?;
        }
    }

    /// Reads what is there, and says how it ended.
    fn read_all(&mut self) -> Result<Read, AskError> {
        let mut buffer = [0; READ_MAX];
        loop {
            match self.port.read(&mut buffer)? {
                Read::Data(count) => self
                    .answer
                    .push(buffer.get(..count).unwrap_or_default())
                    .map_err(|TooLarge| AskError::TooLarge)?,
                end => return Ok(end),
            }
        }
    }
}

/// Whether a message is the host's word of now.
fn judge(message: &[u8], wall: i64) -> Result<HostMetrics, AskError> {
    if message == REFUSAL {
        return Err(AskError::Refused);
    }
    let text = std::str::from_utf8(message).map_err(|_| AskError::NotText)?;
    let metrics = HostMetrics::parse(text, Via::Channel).map_err(AskError::Document)?;
    match metrics.time {
        Some(time) if time < wall.saturating_sub(CLOCK_TOLERANCE) => {
            Err(AskError::Stale { time, asked: wall })
        }
        _ => Ok(metrics),
    }
}

/// More was read than any answer has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// What came from the port, cut into messages.
#[derive(Debug, Default)]
pub(crate) struct MetricsAnswer {
    bytes: Vec<u8>,
    /// Bytes at the start in which no message ends.
    searched: usize,
    /// Bytes that came in all.
    received: usize,
    /// Whether the message that begins here began before the request.
    left_over: bool,
}

impl MetricsAnswer {
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        self.received = self.received.saturating_add(bytes.len());
        if self.received > ANSWER_MAX {
            return Err(TooLarge);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// The next whole message, without its end.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        loop {
            let message = self.cut()?;
            if !std::mem::take(&mut self.left_over) && !message.is_empty() {
                return Some(message);
            }
        }
    }

    /// Says that the request went out only now.
    fn asked(&mut self) {
        while self.take().is_some() {}
        self.left_over = !self.bytes.is_empty();
    }

    fn cut(&mut self) -> Option<Vec<u8>> {
        let unsearched = self.bytes.get(self.searched..).unwrap_or_default();
        let found = unsearched.windows(END.len()).position(|pair| pair == END);
        let Some(found) = found else {
            self.searched = self.bytes.len().saturating_sub(END.len() - 1);
            return None;
        };
        let end = self.searched + found;
        let rest = self.bytes.split_off(end + END.len());
        let mut message = std::mem::replace(&mut self.bytes, rest);
        message.truncate(end);
        self.searched = 0;
        Some(message)
    }
}

#[cfg(test)]
mod tests;
