// SPDX-License-Identifier: Apache-2.0
//! Answers, and the faults that spoil right ones.

use bytes::Bytes;
use hyper::Response;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::Value;

use super::body::Body;
use super::status::Failure;
use super::wire::{Flow, Valve};
use crate::faults::{Answer, Fault};

/// An answer before it meets the faults of its end.
pub(crate) struct Reply {
    pub status: u16,
    headers: Vec<(String, String)>,
    body: Body,
    /// The body's bytes, for faults that change them; none for streams.
    bytes: Option<Bytes>,
}

impl Reply {
    pub(crate) fn of_bytes(status: u16, content_type: &str, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: Body::whole(bytes.clone()),
            bytes: Some(bytes),
        }
    }

    pub(crate) fn of_json(status: u16, value: &Value) -> Self {
        Self::of_bytes(status, "application/json", value.to_string())
    }

    pub(crate) fn of_failure(failure: &Failure) -> Self {
        match &failure.body {
            Value::String(text) => {
                Self::of_bytes(failure.code, "text/plain; charset=utf-8", text.clone())
            }
            status => Self::of_json(failure.code, status),
        }
    }

    pub(crate) fn of_answer(answer: &Answer) -> Self {
        Self {
            status: answer.status,
            headers: answer.headers.clone(),
            body: Body::whole(answer.body.clone()),
            bytes: None,
        }
    }

    /// 200 with a body that goes on.
    pub(crate) fn of_stream(body: Body) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body,
            bytes: None,
        }
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self
            .status
            .try_into()
            .expect("a status code has three digits");
        let headers = response.headers_mut();
        headers.insert(
            "cache-control",
            HeaderValue::from_static("no-cache, private"),
        );
        for (name, value) in self.headers {
            let name = HeaderName::try_from(name).expect("a header name of a test is legal");
            let value = HeaderValue::try_from(value).expect("a header value of a test is legal");
            headers.append(name, value);
        }
        response
    }
}

/// Applies the faults that change a right answer.
pub(crate) fn spoil(reply: &mut Reply, fault: Fault, valve: &Valve) {
    match fault {
        Fault::Trickle(interval) => set(valve, Flow::Trickle(interval)),
        Fault::EndlessHeader => set(valve, Flow::EndlessHead),
        Fault::EndlessBody => reply.body = Body::endless(),
        Fault::Header(name, value) => reply.headers.push((name, value)),
        Fault::TruncatedBody => {
            let bytes = reply.bytes.clone().unwrap_or_default();
            reply
                .headers
                .push(("content-length".to_owned(), bytes.len().to_string()));
            reply.body = Body::cut(bytes.slice(..bytes.len() / 2));
        }
        // The others were dealt with before the answer, or are about open watches.
        _ => {}
    }
}

pub(crate) fn set(valve: &Valve, flow: Flow) {
    *valve.lock().expect("no holder of a valve panics") = flow;
}
