// SPDX-License-Identifier: Apache-2.0
//! Requests the metrics of the host on KubeVirt's virtio-serial port (`pkg/downwardmetrics/virtio-serial/server.go`).
//!
//! The request is two lines, the second blank. The response is a document and a blank line, without a length and without an ID of
//! the request. So the next reader gets a response that an earlier one left unread: data in the port before
//! the request is dropped, and a document is accepted only by its timestamp. Of one that an earlier reader read in part, the rest
//! may come after the request; it is rejected like any other text.
//!
//! The port is open only during a request, because other programs need it too. The host accepts one request per second.

use std::fmt::Display;
use std::io::ErrorKind::PermissionDenied;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::port::{Port, PortError, READ_MAX, Read};
use crate::facts::UnavailableKind::{Forbidden, Malformed, Refused, Unreachable};
use crate::facts::host_metrics::HostMetrics;
use crate::facts::{Fact, Unavailable, UnavailableKind};
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
    /// From then until it has responded.
    pub receive: Duration,
    /// To wait for our own response after a rejected one.
    pub again: Duration,
}

/// The usual timeouts. For each request the host queries QEMU, which may take 12 s.
pub const TIMEOUTS: ReadTimeouts = ReadTimeouts {
    send: Duration::from_secs(5),
    receive: Duration::from_secs(15),
    again: Duration::from_secs(5),
};

impl From<PortError> for Unavailable {
    fn from(error: PortError) -> Self {
        match &error {
            PortError::Io(why) if why.kind() == PermissionDenied => of_port(Forbidden, chain(why)),
            PortError::Busy => of_port(
                Unreachable,
                format_args!("{error}, such as vm-dump-metrics; retrying later"),
            ),
            _ => of_port(Unreachable, chain(&error)),
        }
    }
}

fn of_port(kind: UnavailableKind, what: impl Display) -> Unavailable {
    Unavailable::new(kind, format!("port `{PORT}`: {what}"))
}

/// Requests the metrics of the host once; absent if the host has no such port. `wall` is the current time, in seconds since 1970: an
/// earlier response is rejected.
pub async fn ask(root: &Root, wall: i64, timeouts: ReadTimeouts) -> Fact<HostMetrics> {
    let asked = match Port::open(root, PORT) {
        Ok(port) => ask_on(&port, wall, timeouts).await,
        Err(PortError::Absent) => return Fact::Absent,
        Err(error) => Err(error.into()),
    };
    asked.map_or_else(Fact::Failed, Fact::Known)
}

async fn ask_on(port: &Port, wall: i64, limits: ReadTimeouts) -> Result<HostMetrics, Unavailable> {
    timeout(limits.send, send(port)).await.map_err(|_| {
        let limit = limits.send.as_millis();
        let what = "nothing on the host reads from it: sending the request timed out after";
        of_port(Unreachable, format_args!("{what} {limit} ms"))
    })??;
    let limit = limits.receive.as_millis();
    let silent = format_args!("no response from the host within {limit} ms");
    let mut problem = of_port(Unreachable, silent);
    let mut deadline = Instant::now() + limits.receive;
    let (mut received, mut answer) = (Vec::new().into_iter(), MetricsAnswer::default());
    while let Ok(message) = timeout_at(deadline, next(port, &mut received, &mut answer)).await {
        match judge(&message?, wall) {
            Ok(metrics) => return Ok(metrics),
            // The reason is more precise than the timeout for the next message.
            Err(why) => problem = why,
        }
        // It may be the response to an earlier reader: then ours follows.
        deadline = deadline.min(Instant::now() + limits.again);
    }
    Err(problem)
}

/// Writes the request when there is space. What is read before it is not its response.
async fn send(port: &Port) -> Result<(), PortError> {
    let mut rest = REQUEST;
    while !rest.is_empty() {
        // Not more, so that a host that sends without end does not keep the thread.
        for _ in 0..ANSWER_MAX / READ_MAX {
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

/// Returns the next whole message. `received` is the rest of the last read.
async fn next(
    port: &Port,
    received: &mut std::vec::IntoIter<u8>,
    answer: &mut MetricsAnswer,
) -> Result<Vec<u8>, Unavailable> {
    loop {
        if let Some(message) = answer.take(received)? {
            return Ok(message);
        }
        match port.read()? {
            Read::Data(bytes) => *received = bytes.into_iter(),
            Read::Nothing => drop(port.changed().await?),
            Read::HostAway => {
                let what = "the host closed it before it responded";
                return Err(of_port(Unreachable, what));
            }
        }
    }
}

/// Checks that a message has current metrics.
fn judge(message: &[u8], wall: i64) -> Result<HostMetrics, Unavailable> {
    if message == REFUSAL {
        return Err(of_port(Refused, "the host responded `INVALID REQUEST`"));
    }
    let text = std::str::from_utf8(message)
        .map_err(|_| of_port(Malformed, "the response is not valid UTF-8"))?;
    let metrics = HostMetrics::parse(text).map_err(|why| {
        let what = format_args!("unexpected response: {}", why.text);
        of_port(why.kind, what)
    })?;
    match metrics.time {
        Some(time) if time < wall.saturating_sub(CLOCK_TOLERANCE) => {
            let age = wall.saturating_sub(time);
            let what = "older than the request, or the clocks of host and guest differ";
            Err(of_port(
                Unreachable,
                format_args!("the response is stale: it is {age} s {what}"),
            ))
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
    /// Adds bytes up to the end of the next message, and returns it without its end. Fails if there is more data than any valid response
    /// has.
    pub fn take(
        &mut self,
        bytes: &mut impl Iterator<Item = u8>,
    ) -> Result<Option<Vec<u8>>, Unavailable> {
        for byte in bytes {
            self.received += 1;
            if self.received > ANSWER_MAX {
                let what = format_args!("the response is longer than {ANSWER_MAX} bytes");
                return Err(of_port(Refused, what));
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
