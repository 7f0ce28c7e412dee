// SPDX-License-Identifier: Apache-2.0
//! The response to a request. The HTTP library parses the request, and rejects an invalid one.

use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

/// The only path.
const PATH: &str = "/metrics";

const PLAIN: &str = "text/plain; charset=utf-8";

/// The content type; Prometheus rejects a page of an unknown type.
const PAGE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the response. For a HEAD request, the library sends it without the body.
pub(crate) fn answer<B>(request: &Request<B>, page: &str) -> Response<String> {
    if request.uri().path() != PATH {
        return response(
            StatusCode::NOT_FOUND,
            PLAIN,
            "the metrics are at /metrics\n",
        );
    }
    match *request.method() {
        Method::GET | Method::HEAD => response(StatusCode::OK, PAGE, page),
        _ => {
            let problem = "metrics are read-only\n";
            let mut refusal = response(StatusCode::METHOD_NOT_ALLOWED, PLAIN, problem);
            let allowed = HeaderValue::from_static("GET, HEAD");
            refusal.headers_mut().insert(ALLOW, allowed);
            refusal
        }
    }
}

fn response(status: StatusCode, kind: &'static str, text: &str) -> Response<String> {
    let mut response = Response::new(text.to_owned());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
