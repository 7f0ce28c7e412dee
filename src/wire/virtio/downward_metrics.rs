// SPDX-License-Identifier: Apache-2.0
//! Requests the metrics of the host on KubeVirt's virtio-serial port (`pkg/downwardmetrics/virtio-serial/server.go`).
//!
//! The request is two lines, the second blank. The response is a document and a blank line, without a length and without an ID of
//! the request. So the next reader gets a response that an earlier one left unread: data in the port before
//! the request is dropped, and a document is accepted only by its timestamp.
//!
//! The port is open only during a request, because other programs need it too. The host accepts one request per second.

use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::port::{Port, PortError, READ_MAX, Read};
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
    match ask_on(&port, wall, timeouts).await {
        Ok(metrics) => Fact::Known(metrics),
        Err(why) => Fact::Failed(why),
    }
}

async fn ask_on(port: &Port, wall: i64, limits: ReadTimeouts) -> Result<HostMetrics, Unavailable> {
    let limit = limits.send.as_millis();
    let unread = |_| {
        Err(unreachable(format!(
            "nothing on the host reads from `{PORT}`: sending the request timed out after {limit} ms"
        )))
    };
    let sent = timeout(limits.send, request(port)).await;
    sent.unwrap_or_else(unread)?;
    let mut responses = Responses {
        port,
        received: Vec::new().into_iter(),
        answer: MetricsAnswer::default(),
    };
    let limit = limits.receive.as_millis();
    let silent = |_| {
        let text = format!("no response from the host on `{PORT}` within {limit} ms");
        Err(unreachable(text))
    };
    let end = Instant::now() + limits.receive;
    let first = timeout_at(end, responses.next()).await;
    let why = match judge(&first.unwrap_or_else(silent)?, wall) {
        Err(why) => why,
        accepted => return accepted,
    };
    // It may be the response to an earlier reader: then ours follows it, or the request is sent once more.
    let second = async {
        if let Ok(own) = timeout(limits.again, responses.next()).await {
            return own;
        }
        responses.answer.message.clear();
        request(port).await?;
        responses.next().await
    };
    match timeout_at(end, second).await {
        Ok(second) => judge(&second?, wall),
        // The reason why a response was rejected is more precise than the timeout for the next one.
        Err(_) => Err(why),
    }
}

/// Writes the request when there is space. The data before it is no response to it: of a host that sends without end, only so much is
/// dropped.
async fn request(port: &Port) -> Result<(), Unavailable> {
    let mut rest = REQUEST;
    while !rest.is_empty() {
        for _ in 0..=ANSWER_MAX / READ_MAX {
            if !matches!(port.read()?, Read::Data(_)) {
                break;
            }
        }
        let written = port.write(rest)?;
        rest = rest.get(written..).unwrap_or_default();
        if written == 0 {
            port.changed().await?;
        }
    }
    Ok(())
}

/// The responses on an open port.
struct Responses<'a> {
    port: &'a Port,
    /// The rest of the last read.
    received: std::vec::IntoIter<u8>,
    answer: MetricsAnswer,
}

impl Responses<'_> {
    /// Returns the next whole message. Cancel-safe.
    async fn next(&mut self) -> Result<Vec<u8>, Unavailable> {
        loop {
            if let Some(message) = self.answer.take(&mut self.received)? {
                return Ok(message);
            }
            match self.port.read()? {
                Read::Data(bytes) => self.received = bytes.into_iter(),
                Read::HostAway => {
                    let text = format!("the host closed `{PORT}` before it responded");
                    return Err(unreachable(text));
                }
                Read::Nothing => {
                    self.port.changed().await?;
                }
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
                if !message.is_empty() {
                    return Ok(Some(message));
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
