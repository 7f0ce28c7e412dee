// SPDX-License-Identifier: Apache-2.0
//! Reads responses, with limits on time, size and depth. The status is checked before the body.

use std::io::{self, ErrorKind};
use std::time::Duration;

use reqwest::Response;
use reqwest::header::{
    CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER,
};
use secrecy::ExposeSecret;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::error::{Error, Kind, Target, causes, describe};
use super::http::{Call, Transport};
use super::object::ObjectPath;
use super::tls;
use super::types::{ApiStatus, JSON};
use crate::sys::document::json::{MAXIMUM_DEPTH, in_field, is_deeper_than};
use crate::sys::escape::chain;

/// The maximum size of the body of one object. The limit of etcd for an object is 1.5 MiB.
pub(super) const MAXIMUM_OBJECT: usize = 2 * 1024 * 1024;
/// The maximum size of all response headers together. The HTTP library stops reading at about 400 KiB; API servers send less than
/// 1 KiB.
const MAXIMUM_HEADERS: usize = 64 * 1024;
/// The unit of [`MAXIMUM_HEADERS`] in messages.
const IN_HEADERS: &str = "bytes in the headers";
/// The maximum size of the body of an error: more than any `Status`. An error page need not be read to its end.
const MAXIMUM_STATUS: usize = 64 * 1024;
/// The bytes that a header takes in addition to its name and its value: colon, space, line end.
const HEADER_OVERHEAD: usize = 4;

/// The minimum time to wait at the server's request: zero would lead to a busy loop.
const SHORTEST_RETRY_AFTER: Duration = Duration::from_secs(1);
/// The maximum time to wait at the server's request, the same as for any other retry: a proxy that asks for more must not stop reads,
/// writes and watches for longer than an outage does.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

impl Transport {
    /// Checks the status first, then whether the body can be read at all.
    pub(super) async fn check(
        &self,
        response: Response,
        target: &Target,
    ) -> Result<Response, Error> {
        let headers = response.headers();
        let size = headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len() + HEADER_OVERHEAD)
            .fold(0, usize::saturating_add);
        if size > MAXIMUM_HEADERS {
            return Err(target.too_large(IN_HEADERS, MAXIMUM_HEADERS));
        }
        let status = response.status();
        let problem = if status.is_redirection() {
            let to = headers.get(LOCATION).map(|to| self.header(to));
            let (to, code) = (to.unwrap_or_default(), status.as_u16());
            format!("redirected ({code}) to `{to}`; redirects are not followed")
        } else if !status.is_success() {
            return Err(self.refused(response, target).await);
        } else if let Some(encoding) = encoding(headers) {
            let encoding = self.header(encoding);
            format!("the response has the content encoding `{encoding}`, which was not requested")
        } else {
            match headers.get(CONTENT_TYPE).filter(|of| !is_json(of)) {
                Some(other) => format!("the response is `{}`, not JSON", self.header(other)),
                None => return Ok(response),
            }
        };
        Err(target.error(Kind::Refused, problem))
    }

    /// Returns the error for the status of a response, with the message of its body if that is a `Status` object.
    async fn refused(&self, response: Response, target: &Target) -> Error {
        let code = response.status().as_u16();
        let headers = response.headers();
        let retry_after = headers.get(RETRY_AFTER).and_then(retry_after);
        let may_be_status =
            encoding(headers).is_none() && headers.get(CONTENT_TYPE).is_some_and(is_json);
        // An unreadable body does not change the meaning of the status.
        let mut body = Vec::new();
        if may_be_status {
            let read = self.body(response, target, "bytes", MAXIMUM_STATUS);
            body = read.await.unwrap_or_default();
        }
        let status = parse_status(&body).unwrap_or_default();
        target.refused(code, &status, retry_after, |text| self.describe(text))
    }

    /// Returns the error for a `Status` within a watch stream.
    pub(super) fn event_error(&self, text: &[u8], target: &Target) -> Error {
        let Some(status) = parse_status(text) else {
            let problem = "an ERROR event of the watch has no Status";
            return target.error(Kind::Refused, problem);
        };
        let code = match (status.code, status.reason.as_deref()) {
            (Some(code), _) => code,
            (None, Some("Expired" | "Gone")) => 410,
            (None, _) => 500,
        };
        let details = status.details.as_ref();
        let retry_after = details.and_then(|details| details.retry_after_seconds);
        let retry_after = retry_after.map(clamp_retry_after);
        target.refused(code, &status, retry_after, |text| self.describe(text))
    }

    /// Reads a whole body in chunks, never more than `limit` bytes.
    pub(super) async fn body(
        &self,
        mut response: Response,
        target: &Target,
        what: &'static str,
        limit: usize,
    ) -> Result<Vec<u8>, Error> {
        if response.content_length() > Some(limit as u64) {
            return Err(target.too_large(what, limit));
        }
        let (pause, whole) = (self.timeouts.body_progress, self.timeouts.body);
        let end = Instant::now() + whole;
        let mut body = Vec::new();
        loop {
            let next_by = Instant::now() + pause;
            let late = |_| match end <= next_by {
                true => target.timed_out("reading the response", whole),
                false => target.timed_out("reading the next part of the response", pause),
            };
            let chunk = timeout_at(next_by.min(end), response.chunk()).await;
            let chunk = chunk.map_err(late)?;
            let Some(chunk) = chunk.map_err(|source| self.failure(source, target))? else {
                return Ok(body);
            };
            if chunk.len() > limit.saturating_sub(body.len()) {
                return Err(target.too_large(what, limit));
            }
            if chunk.len() > body.capacity().saturating_sub(body.len()) {
                // A vector grows by doubling, which can exceed the limit.
                let doubled = body.capacity().saturating_mul(2);
                let wanted = doubled.max(body.len() + chunk.len()).min(limit);
                body.reserve_exact(wanted.saturating_sub(body.len()));
            }
            body.extend_from_slice(&chunk);
        }
    }

    /// Parses a response, unless it is nested too deep.
    pub(super) fn parse<'body, T: Deserialize<'body>>(
        &self,
        body: &'body [u8],
        target: &Target,
    ) -> Result<T, Error> {
        if is_deeper_than(body, MAXIMUM_DEPTH) {
            let problem = format!("the response nests deeper than {MAXIMUM_DEPTH} levels");
            return Err(target.error(Kind::Refused, problem));
        }
        serde_json::from_slice(body).map_err(|error| self.unreadable(body, &error, target))
    }

    /// Compares the object in a text with the requested one.
    pub(super) fn expect(
        &self,
        call: &Call<'_>,
        text: &[u8],
        target: &Target,
    ) -> Result<(), Error> {
        let compared = call.path.compare(text, call.accept);
        let other = compared.map_err(|error| self.unreadable(text, &error, target))?;
        let unexpected = |found: String| Err(self.unexpected(call.path, &found, target));
        other.map_or(Ok(()), unexpected)
    }

    /// Returns the error for something else than the requested object.
    pub(super) fn unexpected(&self, path: &ObjectPath, found: &str, target: &Target) -> Error {
        let (expected, found) = (describe(&path.what()), self.describe(found));
        let problem = format!("requested {expected}, got {found}");
        target.error(Kind::UnexpectedObject, problem)
    }

    /// Returns the error for JSON that cannot be parsed. The parser's message quotes its input, so it is untrusted text.
    pub(super) fn unreadable(
        &self,
        text: &[u8],
        error: &serde_json::Error,
        target: &Target,
    ) -> Error {
        let error = self.describe(&in_field(text, error));
        target.error(Kind::Refused, format!("invalid response: {error}"))
    }

    /// Converts an error of the HTTP library.
    pub(super) fn failure(&self, source: reqwest::Error, target: &Target) -> Error {
        let source = source.without_url();
        if let Some((kind, problem)) = tls::failure(&source) {
            return target.error(kind, problem);
        }
        if source.is_connect() {
            let limit = self.timeouts.connect;
            let problem = match source.is_timeout() {
                true => format!("connecting timed out after {limit:?}"),
                false => unreached(&source),
            };
            return target.error(Kind::Unreachable, problem);
        }
        let http = causes(&source).find_map(|cause| cause.downcast_ref::<hyper::Error>());
        match http {
            // The library's own limits are 100 headers and about 400 KiB.
            Some(error) if error.is_parse_too_large() => {
                target.too_large(IN_HEADERS, MAXIMUM_HEADERS)
            }
            Some(error) if error.is_parse() => {
                let error = describe(&error.to_string());
                target.error(Kind::Refused, format!("the response is not HTTP: {error}"))
            }
            _ if source.is_builder() => target.error(Kind::Refused, "invalid request"),
            _ => {
                let mut causes =
                    causes(&source).filter_map(|cause| cause.downcast_ref::<io::Error>());
                // The TLS library adds a link to its manual.
                let why = match causes.any(|cause| cause.kind() == ErrorKind::UnexpectedEof) {
                    true => "the server closed it".to_owned(),
                    false => chain(&source),
                };
                target.error(Kind::Interrupted, format!("connection interrupted: {why}"))
            }
        }
    }

    /// Escapes untrusted text for a message. If a server sends our token back, the token must not reach the journal.
    pub(super) fn describe(&self, foreign: &str) -> String {
        let token = self.token.as_ref();
        let token = token.map(|token| token.expose_secret().trim());
        match token.filter(|token| !token.is_empty()) {
            Some(token) => describe(&foreign.replace(token, "[token]")),
            None => describe(foreign),
        }
    }

    fn header(&self, value: &HeaderValue) -> String {
        self.describe(&String::from_utf8_lossy(value.as_bytes()))
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

/// Returns why there is no connection.
fn unreached(error: &reqwest::Error) -> String {
    if error.is_dns() {
        return "cannot resolve the server name (DNS)".to_owned();
    }
    for cause in causes(error) {
        match cause.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(ErrorKind::ConnectionRefused) => return "connection refused".to_owned(),
            Some(ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable) => {
                return "no route to host".to_owned();
            }
            _ => {}
        }
    }
    format!("connection failed: {}", chain(error))
}

fn encoding(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    encodings.find(|value| {
        !value
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"identity")
    })
}

fn is_json(content_type: &HeaderValue) -> bool {
    let value = content_type.to_str().unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case(JSON)
}

/// Parses a `Retry-After` header. A date is ignored like an invalid value: it would depend on our clock.
fn retry_after(header: &HeaderValue) -> Option<Duration> {
    let digits = header.to_str().ok()?.trim();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(clamp_retry_after(digits.parse().unwrap_or(u64::MAX)))
}

/// Converts the number of seconds to wait that the server requested, within our bounds.
fn clamp_retry_after(seconds: u64) -> Duration {
    Duration::from_secs(seconds).clamp(SHORTEST_RETRY_AFTER, LONGEST_RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_takes_seconds_only_and_stays_within_its_bounds() {
        let table = [
            ("0", Some(1)),
            ("1", Some(1)),
            (" 17 ", Some(17)),
            ("60", Some(60)),
            ("600", Some(60)),
            ("1000000000", Some(60)),
            ("99999999999999999999999999", Some(60)),
            ("", None),
            ("-1", None),
            ("+5", None),
            ("1.5", None),
            ("1e9", None),
            ("soon", None),
            ("٣", None),
            ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ];
        for (text, seconds) in table {
            let header = HeaderValue::from_bytes(text.as_bytes()).unwrap();
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(retry_after(&header), expected, "{text:?}");
        }
    }
}
