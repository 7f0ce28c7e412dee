// SPDX-License-Identifier: Apache-2.0
//! Reads responses, with limits on time, size and depth. The status is checked before the body.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use reqwest::Response;
use reqwest::header::{
    CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER,
};
use secrecy::ExposeSecret;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::error::{Error, RequestPhase, RequestTarget, Unreached};
use super::status::{Answered, clamp_retry_after, from_status, own_node, parse_retry_after};
use super::text::describe;
use super::tls;
use super::transport::{Timeouts, Transport};
use super::types::ApiStatus;
use crate::sys::document::json::{MAXIMUM_DEPTH, is_deeper_than};

/// The maximum size of the body of one object. The limit of etcd for an object is 1.5 MiB.
pub const MAXIMUM_OBJECT: usize = 2 * 1024 * 1024;
/// The maximum size of all response headers together. The HTTP library stops reading at about 400 KiB; API servers send less than
/// 1 KiB.
pub const MAXIMUM_HEADERS: usize = 64 * 1024;
/// The unit of [`MAXIMUM_HEADERS`] in messages.
const IN_HEADERS: &str = "bytes in the headers";
/// The maximum size of the body of an error: more than any `Status`. An error page need not be read to its end.
const MAXIMUM_STATUS: usize = 64 * 1024;
/// The bytes that a header takes in addition to its name and its value: colon, space, line end.
const HEADER_OVERHEAD: usize = 4;
/// The HTTP library's message for a head beyond its own limits of 100 headers and about 400 KiB; it has a method for this only for
/// servers.
const HEAD_TOO_LARGE: &str = "message head is too large";

impl Transport {
    /// Checks the status first, then whether the body can be read at all.
    pub(super) async fn check(
        &self,
        response: Response,
        target: &Arc<RequestTarget>,
    ) -> Result<Response, Error> {
        let headers = response.headers();
        let size: usize = headers
            .iter()
            .map(|(name, value)| {
                name.as_str()
                    .len()
                    .saturating_add(value.len())
                    .saturating_add(HEADER_OVERHEAD)
            })
            .sum();
        if size > MAXIMUM_HEADERS {
            return Err(target.too_large(IN_HEADERS, MAXIMUM_HEADERS));
        }
        let status = response.status();
        if status.is_redirection() {
            let to = headers
                .get(LOCATION)
                .map(|to| self.describe(&String::from_utf8_lossy(to.as_bytes())));
            let to = to.unwrap_or_default();
            return Err(Error::Redirected {
                target: Arc::clone(target),
                status: status.as_u16(),
                to,
            });
        }
        if !status.is_success() {
            return Err(self.answered(response, target).await);
        }
        if let Some(encoding) = encoding(headers) {
            return Err(Error::Compressed {
                target: Arc::clone(target),
                encoding: self.describe(&encoding),
            });
        }
        match headers.get(CONTENT_TYPE) {
            Some(content_type) if !is_json(content_type) => {
                let content_type = self.describe(&String::from_utf8_lossy(content_type.as_bytes()));
                Err(target.protocol(format!("the response is `{content_type}`, not JSON")))
            }
            _ => Ok(response),
        }
    }

    /// Returns the error for the status of a response, with the message of its body if that is a `Status` object.
    async fn answered(&self, response: Response, target: &Arc<RequestTarget>) -> Error {
        let status = response.status().as_u16();
        let headers = response.headers();
        let retry_after = headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(parse_retry_after);
        let may_be_status =
            encoding(headers).is_none() && headers.get(CONTENT_TYPE).is_some_and(is_json);
        // An unreadable body does not change the meaning of the status.
        let body = match may_be_status {
            true => self
                .body(response, target, "bytes", MAXIMUM_STATUS)
                .await
                .unwrap_or_default(),
            false => Vec::new(),
        };
        let read = parse_status(&body);
        // For a kind that the server does not serve, the message is "could not find the requested resource", without the name of
        // an object.
        let confirmed = read.as_ref().is_some_and(|status| {
            let message = status.message.as_deref().unwrap_or_default();
            status.details.name.is_some() || message.contains("not found")
        });
        let said = read.and_then(|status| status.message);
        let (message, own_node) = self.message(said.as_deref());
        from_status(
            Arc::clone(target),
            Answered {
                status,
                message,
                own_node,
                confirmed,
                retry_after,
            },
        )
    }

    /// Returns the server's message, escaped, and the Node of the credential if the message names it.
    fn message(&self, said: Option<&str>) -> (Option<String>, Option<String>) {
        let own = said.and_then(own_node);
        (
            said.map(|message| self.describe(message)),
            own.map(|name| self.describe(name)),
        )
    }

    /// Returns the error for a `Status` within a watch stream.
    pub(super) fn event_error(&self, text: &str, target: &Arc<RequestTarget>) -> Error {
        let Some(read) = parse_status(text.as_bytes()) else {
            return target.protocol("an ERROR event of the watch has no Status");
        };
        let status = match (read.code, read.reason.as_deref()) {
            (Some(code), _) => code,
            (None, Some("Expired" | "Gone")) => 410,
            (None, _) => 500,
        };
        let (message, own_node) = self.message(read.message.as_deref());
        let retry_after = read.details.retry_after_seconds.map(clamp_retry_after);
        from_status(
            Arc::clone(target),
            Answered {
                status,
                message,
                own_node,
                confirmed: true,
                retry_after,
            },
        )
    }

    /// Reads a whole body in chunks, never more than `limit` bytes.
    pub(super) async fn body(
        &self,
        mut response: Response,
        target: &Arc<RequestTarget>,
        what: &'static str,
        limit: usize,
    ) -> Result<Vec<u8>, Error> {
        if response
            .content_length()
            .is_some_and(|length| usize::try_from(length).map_or(true, |length| length > limit))
        {
            return Err(target.too_large(what, limit));
        }
        let Timeouts {
            body_progress,
            body: whole,
            ..
        } = self.timeouts;
        let end = Instant::now() + whole;
        let mut body = Vec::new();
        loop {
            let next_by = Instant::now() + body_progress;
            let chunk = timeout_at(next_by.min(end), response.chunk())
                .await
                .map_err(|_| match end <= next_by {
                    true => target.timeout(RequestPhase::Body, whole),
                    false => target.timeout(RequestPhase::BodyProgress, body_progress),
                })?;
            let Some(chunk) = chunk.map_err(|source| self.failure(source, target))? else {
                return Ok(body);
            };
            if chunk.len() > limit.saturating_sub(body.len()) {
                return Err(target.too_large(what, limit));
            }
            if chunk.len() > body.capacity().saturating_sub(body.len()) {
                // A vector grows by doubling, which can exceed the limit.
                let wanted = body
                    .capacity()
                    .saturating_mul(2)
                    .max(body.len() + chunk.len());
                body.reserve_exact(wanted.min(limit).saturating_sub(body.len()));
            }
            body.extend_from_slice(&chunk);
        }
    }

    /// Parses a response, unless it is nested too deep.
    pub(super) fn parse<'body, T: Deserialize<'body>>(
        &self,
        body: &'body [u8],
        target: &Arc<RequestTarget>,
    ) -> Result<T, Error> {
        if is_deeper_than(body, MAXIMUM_DEPTH) {
            return Err(Error::TooDeep {
                target: Arc::clone(target),
                limit: MAXIMUM_DEPTH,
            });
        }
        serde_json::from_slice(body).map_err(|error| self.unreadable(&error, target))
    }

    /// Returns the error for JSON that cannot be parsed. The parser's message quotes its input, so it is untrusted text.
    pub(super) fn unreadable(
        &self,
        error: &serde_json::Error,
        target: &Arc<RequestTarget>,
    ) -> Error {
        target.protocol(format!(
            "invalid response: {}",
            self.describe(&error.to_string())
        ))
    }

    /// Converts an error of the HTTP library.
    pub(super) fn failure(&self, source: reqwest::Error, target: &Arc<RequestTarget>) -> Error {
        let source = source.without_url();
        if let Some(reason) = tls::find(&source) {
            let target = Arc::clone(target);
            return Error::Tls { target, reason };
        }
        if source.is_connect() {
            if source.is_timeout() {
                return target.timeout(RequestPhase::Connect, self.timeouts.connect);
            }
            let reason = unreached(&source);
            let source = Some(source).filter(|_| reason == Unreached::Other);
            return Error::Connect {
                target: Arc::clone(target),
                reason,
                source,
            };
        }
        match http_error(&source) {
            Some(error) if error.to_string() == HEAD_TOO_LARGE => {
                target.too_large(IN_HEADERS, MAXIMUM_HEADERS)
            }
            Some(error) if error.is_parse() => target.protocol(format!(
                "the response is not HTTP: {}",
                describe(&error.to_string())
            )),
            _ if source.is_builder() => target.protocol("invalid request"),
            _ => Error::Interrupted {
                target: Arc::clone(target),
                source: Some(source),
            },
        }
    }

    /// Escapes untrusted text for a message. If a server sends our token back, the token must not reach the journal.
    pub(super) fn describe(&self, foreign: &str) -> String {
        match self
            .token
            .as_ref()
            .map(|token| token.expose_secret().trim())
        {
            Some(token) if !token.is_empty() && foreign.contains(token) => {
                describe(&foreign.replace(token, "[token]"))
            }
            _ => describe(foreign),
        }
    }
}

fn parse_status(body: &[u8]) -> Option<ApiStatus> {
    if is_deeper_than(body, MAXIMUM_DEPTH) {
        return None;
    }
    serde_json::from_slice::<ApiStatus>(body)
        .ok()
        .filter(|status| status.kind.as_deref() == Some("Status"))
}

/// Returns the step at which the connection failed.
fn unreached(error: &reqwest::Error) -> Unreached {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        // The HTTP library's message for a name that was not found; its type for this is private.
        if error.to_string() == "dns error" {
            return Unreached::Name;
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            match error.kind() {
                ErrorKind::ConnectionRefused => return Unreached::Port,
                ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                    return Unreached::Route;
                }
                _ => {}
            }
        }
        next = error.source();
    }
    Unreached::Other
}

fn http_error(error: &reqwest::Error) -> Option<&hyper::Error> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(http) = error.downcast_ref::<hyper::Error>() {
            return Some(http);
        }
        next = error.source();
    }
    None
}

fn encoding(headers: &HeaderMap) -> Option<String> {
    headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned())
        .find(|value| !value.eq_ignore_ascii_case("identity"))
}

fn is_json(content_type: &HeaderValue) -> bool {
    let value = content_type.to_str().unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}
