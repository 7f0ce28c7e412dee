// SPDX-License-Identifier: Apache-2.0
//! Requests the metrics of the host on KubeVirt's virtio-serial port (`pkg/downwardmetrics/virtio-serial/server.go`).
//!
//! The request is two lines, the second blank. The response is a document and a blank line, without a length and without an ID of
//! the request. So the next reader gets a response that an earlier one left unread: data in the port before
//! the request is dropped, and a document is accepted only by its timestamp.
//!
//! The port is open only during a request, because other programs need it too. The host accepts one request per second.

use std::time::Duration;

use tokio::time::timeout;

use super::port::{Port, PortError, READ_MAX, Read};
use crate::facts::UnavailableKind;
use crate::facts::host_metrics::{HostMetrics, MetricsError};
use crate::sys::escape::chain;
use crate::sys::root::Root;

/// The name of the port.
pub const PORT: &str = "org.github.vhostmd.1";

const REQUEST: &[u8] = b"GET /metrics/XML\n\n";

/// The host's response to an invalid request.
const REFUSAL: &[u8] = b"INVALID REQUEST";

/// The end of a message. A document has no blank line.
const END: &[u8] = b"\n\n";

/// The maximum number of bytes that are read for one request. KubeVirt's document has about 2500.
const ANSWER_MAX: usize = 64 * 1024;

/// The maximum age of a document before the request, in seconds: the host uses whole seconds, and its clock may differ from ours.
const CLOCK_TOLERANCE: i64 = 2;

/// The timeouts for the host.
#[derive(Debug, Clone, Copy)]
pub struct ReadTimeouts {
    /// Until the host accepts the request: nothing may be connected.
    pub send: Duration,
    /// From then until it has responded, including a second request.
    pub receive: Duration,
    /// To wait for our own response after a rejected one. No second request is sent earlier.
    pub again: Duration,
}

impl Default for ReadTimeouts {
    /// For each request the host queries QEMU, which may take 12 s.
    fn default() -> Self {
        Self {
            send: Duration::from_secs(5),
            receive: Duration::from_secs(15),
            again: Duration::from_secs(2),
        }
    }
}

/// The reason why the host's metrics are not available.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The host does not provide the port.
    #[error("the host does not provide the port `{PORT}`")]
    NotOffered,
    /// Any other reason: its kind, and one line that names the port.
    #[error("{1}")]
    Failed(UnavailableKind, String),
}

impl From<PortError> for AskError {
    fn from(error: PortError) -> Self {
        match error {
            PortError::NotOffered(_) => Self::NotOffered,
            PortError::Busy(_) => unreachable(format!(
                "the port `{PORT}` is in use by another program, such as vm-dump-metrics; retrying later"
            )),
            error => {
                let kind = match error {
                    PortError::Denied(_) => UnavailableKind::Forbidden,
                    _ => UnavailableKind::Unreachable,
                };
                let cause = chain(&error);
                AskError::Failed(kind, format!("failed to use the port `{PORT}`: {cause}"))
            }
        }
    }
}

fn unreachable(text: String) -> AskError {
    AskError::Failed(UnavailableKind::Unreachable, text)
}

fn unexpected(error: &MetricsError) -> AskError {
    let kind = match error {
        error if error.is_passing() => UnavailableKind::Unreachable,
        MetricsError::Dtd | MetricsError::TooMany | MetricsError::NotMetrics(_) => {
            UnavailableKind::Refused
        }
        _ => UnavailableKind::Malformed,
    };
    let cause = chain(error);
    AskError::Failed(kind, format!("unexpected response on `{PORT}`: {cause}"))
}

/// Requests the metrics of the host once. `wall` is the current time, in seconds since 1970.
///
/// # Errors
///
/// When the host has no such port, or did not return a current document in time.
pub async fn ask(root: &Root, wall: i64, timeouts: ReadTimeouts) -> Result<HostMetrics, AskError> {
    let mut question = Question {
        port: Port::open(root, PORT)?,
        answer: MetricsAnswer::default(),
        rejected: None,
    };
    timeout(timeouts.send, question.send())
        .await
        .map_err(|_| {
            let limit = timeouts.send.as_millis();
            unreachable(format!(
                "nothing on the host reads from `{PORT}`: sending the request timed out after {limit} ms"
            ))
        })??;
    let received = timeout(timeouts.receive, question.receive(wall, timeouts.again)).await;
    // The reason why a response was rejected is more precise than the timeout for the next one.
    let rejected = question.rejected;
    received.unwrap_or_else(|_| {
        let limit = timeouts.receive.as_millis();
        let silent = || {
            unreachable(format!(
                "no response from the host on `{PORT}` within {limit} ms"
            ))
        };
        Err(rejected.unwrap_or_else(silent))
    })
}

/// One request on an open port. Dropping it closes the port.
#[derive(Debug)]
struct Question {
    port: Port,
    answer: MetricsAnswer,
    /// The reason why the last message was rejected.
    rejected: Option<AskError>,
}

impl Question {
    /// Writes the request when there is space. All data before it is not its response.
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

    /// Reads until a message is accepted. A rejected one may be the response to an earlier reader: then ours follows
    /// it, or the request is sent once more.
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

    /// Returns the first message that is accepted.
    async fn believed(&mut self, wall: i64) -> Result<HostMetrics, AskError> {
        loop {
            match judge(&self.message().await?, wall) {
                Ok(metrics) => return Ok(metrics),
                Err(reason) => self.rejected = Some(reason),
            }
        }
    }

    /// Returns the next whole message. Cancel-safe.
    async fn message(&mut self) -> Result<Vec<u8>, AskError> {
        loop {
            let host = self.read_all()?;
            if let Some(message) = self.answer.take() {
                return Ok(message);
            }
            if host == Read::HostAway {
                let text = format!("the host closed `{PORT}` before it responded");
                return Err(unreachable(text));
            }
            self.port.changed().await?;
        }
    }

    /// Reads the available data, and returns the result of the last read.
    fn read_all(&mut self) -> Result<Read, AskError> {
        let mut buffer = [0; READ_MAX];
        loop {
            match self.port.read(&mut buffer)? {
                Read::Data(count) => self
                    .answer
                    .push(buffer.get(..count).unwrap_or_default())
                    .map_err(|TooLarge| {
                        let text =
                            format!("the response on `{PORT}` is longer than {ANSWER_MAX} bytes");
                        AskError::Failed(UnavailableKind::Refused, text)
                    })?,
                end => return Ok(end),
            }
        }
    }
}

/// Checks that a message has current metrics.
fn judge(message: &[u8], wall: i64) -> Result<HostMetrics, AskError> {
    if message == REFUSAL {
        let text = format!("the host responded `INVALID REQUEST` on `{PORT}`");
        return Err(AskError::Failed(UnavailableKind::Refused, text));
    }
    let text = std::str::from_utf8(message).map_err(|_| {
        let text = format!("the response on `{PORT}` is not valid UTF-8");
        AskError::Failed(UnavailableKind::Malformed, text)
    })?;
    let metrics = HostMetrics::parse(text).map_err(|error| unexpected(&error))?;
    match metrics.time {
        Some(time) if time < wall.saturating_sub(CLOCK_TOLERANCE) => {
            let age = wall.saturating_sub(time);
            Err(unreachable(format!(
                "the response on `{PORT}` is stale: it is {age} s older than the request, or the clocks of host and guest differ"
            )))
        }
        _ => Ok(metrics),
    }
}

/// The error for more data than any valid response has.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLarge;

/// The data from the port, split into messages.
#[derive(Debug, Default)]
pub struct MetricsAnswer {
    bytes: Vec<u8>,
    /// The number of bytes at the start in which no message ends.
    searched: usize,
    /// The number of bytes received in total.
    received: usize,
    /// Whether the first message in the buffer began before the request.
    left_over: bool,
}

impl MetricsAnswer {
    /// Adds the next bytes from the port.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        self.received = self.received.saturating_add(bytes.len());
        if self.received > ANSWER_MAX {
            return Err(TooLarge);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the next whole message, without its end.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        loop {
            let message = self.cut()?;
            if !std::mem::take(&mut self.left_over) && !message.is_empty() {
                return Some(message);
            }
        }
    }

    /// Records that the request was sent just now.
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
