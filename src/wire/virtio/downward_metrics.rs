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

use super::port::{Port, PortError, Read};
use crate::facts::UnavailableKind::{Forbidden, Malformed, Refused, Unreachable};
use crate::facts::host_metrics::HostMetrics;
use crate::facts::{Fact, Unavailable};
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

impl From<PortError> for Unavailable {
    fn from(error: PortError) -> Self {
        let text = format!("failed to use the port `{PORT}`: {}", chain(&error));
        match error {
            PortError::Denied => Self::new(Forbidden, text),
            PortError::Busy => unreachable(format!(
                "the port `{PORT}` is in use by another program, such as vm-dump-metrics; retrying later"
            )),
            _ => unreachable(text),
        }
    }
}

fn unreachable(text: String) -> Unavailable {
    Unavailable::new(Unreachable, text)
}

/// Requests the metrics of the host once; absent if the host has no such port. `wall` is the current time, in seconds since 1970: an
/// earlier response is rejected.
pub async fn ask(root: &Root, wall: i64, timeouts: ReadTimeouts) -> Fact<HostMetrics> {
    let port = match Port::open(root, PORT) {
        Ok(port) => port,
        Err(PortError::NotOffered) => return Fact::Absent,
        Err(error) => return Fact::Failed(error.into()),
    };
    let mut question = Question {
        port,
        received: Vec::new().into_iter(),
        answer: MetricsAnswer::default(),
        rejected: None,
    };
    match question.ask(wall, timeouts).await {
        Ok(metrics) => Fact::Known(metrics),
        Err(why) => Fact::Failed(why),
    }
}

/// One request on an open port. Dropping it closes the port.
#[derive(Debug)]
struct Question {
    port: Port,
    /// The rest of the last read.
    received: std::vec::IntoIter<u8>,
    answer: MetricsAnswer,
    /// The reason why the last message was rejected.
    rejected: Option<Unavailable>,
}

impl Question {
    async fn ask(&mut self, wall: i64, timeouts: ReadTimeouts) -> Result<HostMetrics, Unavailable> {
        let ReadTimeouts {
            send,
            receive,
            again,
        } = timeouts;
        timeout(send, self.send()).await.unwrap_or_else(|_| {
            Err(unreachable(format!(
                "nothing on the host reads from `{PORT}`: sending the request timed out after {} ms",
                send.as_millis()
            )))
        })?;
        let received = timeout(receive, self.receive(wall, again)).await;
        received.unwrap_or_else(|_| {
            let limit = receive.as_millis();
            let silent = || format!("no response from the host on `{PORT}` within {limit} ms");
            // The reason why a response was rejected is more precise than the timeout for the next one.
            Err(self
                .rejected
                .take()
                .unwrap_or_else(|| unreachable(silent())))
        })
    }

    /// Writes the request when there is space. All data before it is not its response.
    async fn send(&mut self) -> Result<(), Unavailable> {
        let mut rest = REQUEST;
        while !rest.is_empty() {
            while matches!(self.read()?, Read::Data(_)) {}
            let written = self.port.write(rest)?;
            rest = rest.get(written..).unwrap_or_default();
            if written == 0 {
                self.port.changed().await?;
            }
        }
        self.answer.asked();
        Ok(())
    }

    /// Reads until a message is accepted. A rejected one may be the response to an earlier reader: then ours follows
    /// it, or the request is sent once more.
    async fn receive(&mut self, wall: i64, again: Duration) -> Result<HostMetrics, Unavailable> {
        let mut is_repeated = false;
        loop {
            let limit = match self.rejected {
                Some(_) if !is_repeated => again,
                _ => Duration::MAX,
            };
            match timeout(limit, self.message()).await {
                Ok(message) => match judge(&message?, wall) {
                    Ok(metrics) => return Ok(metrics),
                    Err(why) if is_repeated => return Err(why),
                    Err(why) => self.rejected = Some(why),
                },
                Err(_) => {
                    self.send().await?;
                    is_repeated = true;
                }
            }
        }
    }

    /// Returns the next whole message. Cancel-safe.
    async fn message(&mut self) -> Result<Vec<u8>, Unavailable> {
        loop {
            match self.read()? {
                Read::Data(message) => return Ok(message),
                Read::HostAway => {
                    let text = format!("the host closed `{PORT}` before it responded");
                    return Err(unreachable(text));
                }
                Read::Nothing => self.port.changed().await?,
            };
        }
    }

    /// Returns the next whole message, or the result of the last read if there is none.
    fn read(&mut self) -> Result<Read, Unavailable> {
        loop {
            if let Some(message) = self.answer.take(&mut self.received)? {
                return Ok(Read::Data(message));
            }
            match self.port.read()? {
                Read::Data(bytes) => self.received = bytes.into_iter(),
                end => return Ok(end),
            }
        }
    }
}

/// Checks that a message has current metrics.
fn judge(message: &[u8], wall: i64) -> Result<HostMetrics, Unavailable> {
    if message == REFUSAL {
        let text = format!("the host responded `INVALID REQUEST` on `{PORT}`");
        return Err(Unavailable::new(Refused, text));
    }
    let text = std::str::from_utf8(message).map_err(|_| {
        let text = format!("the response on `{PORT}` is not valid UTF-8");
        Unavailable::new(Malformed, text)
    })?;
    let metrics = HostMetrics::parse(text).map_err(|why| {
        let text = format!("unexpected response on `{PORT}`: {}", why.text);
        Unavailable::new(why.kind, text)
    })?;
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

/// Splits the data from the port into messages.
#[derive(Debug, Default)]
pub struct MetricsAnswer {
    /// The start of the next message.
    message: Vec<u8>,
    /// The number of bytes received in total.
    received: usize,
    /// Whether the message began before the request.
    left_over: bool,
}

impl MetricsAnswer {
    /// Adds bytes up to the end of the next message, and returns it without its end.
    ///
    /// # Errors
    ///
    /// When there is more data than any valid response has.
    pub fn take(
        &mut self,
        bytes: &mut impl Iterator<Item = u8>,
    ) -> Result<Option<Vec<u8>>, Unavailable> {
        for byte in bytes {
            self.received += 1;
            if self.received > ANSWER_MAX {
                let text = format!("the response on `{PORT}` is longer than {ANSWER_MAX} bytes");
                return Err(Unavailable::new(Refused, text));
            }
            self.message.push(byte);
            if self.message.ends_with(END) {
                let mut message = std::mem::take(&mut self.message);
                message.truncate(message.len() - END.len());
                if !std::mem::take(&mut self.left_over) && !message.is_empty() {
                    return Ok(Some(message));
                }
            }
        }
        Ok(None)
    }

    /// Records that the request was sent just now.
    fn asked(&mut self) {
        self.left_over = !self.message.is_empty();
    }
}

#[cfg(test)]
mod tests;
