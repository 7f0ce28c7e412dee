// SPDX-License-Identifier: Apache-2.0
//! As much of HTTP/1.1 as a scrape needs: one request without a body, one answer, and the connection ends (RFC 9112).

/// A request's head may be this long, in bytes. Prometheus sends less than 400.
pub(super) const HEAD_MAX: usize = 4096;

/// What is asked for.
const PATH: &str = "/metrics";

const PLAIN: &str = "text/plain; charset=utf-8";

/// Prometheus refuses a page of a type that it does not know.
const PAGE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The answer to what was read so far; `None` while the head is not whole.
pub(super) fn answer(read: &[u8], page: &str) -> Option<Vec<u8>> {
    let is_whole = read.windows(4).any(|four| four == b"\r\n\r\n");
    if !is_whole {
        let is_long = read.len() >= HEAD_MAX;
        return is_long.then(|| {
            let problem = "the request header is longer than 4096 bytes\n";
            response("431 Request Header Fields Too Large", PLAIN, problem, true)
        });
    }
    let line = read.split(|byte| *byte == b'\r').next();
    let line = line.and_then(|line| std::str::from_utf8(line).ok());
    let mut words = line.unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (method, target, version, words.next())
    else {
        let problem = "not an HTTP/1.1 request\n";
        return Some(response("400 Bad Request", PLAIN, problem, true));
    };
    let path = target.split('?').next();
    let has_body = method != "HEAD";
    Some(match method {
        _ if path != Some(PATH) => response(
            "404 Not Found",
            PLAIN,
            "the metrics are at /metrics\n",
            has_body,
        ),
        "GET" | "HEAD" => response("200 OK", PAGE, page, has_body),
        _ => response(
            "405 Method Not Allowed\r\nAllow: GET, HEAD",
            PLAIN,
            "metrics are read-only\n",
            true,
        ),
    })
}

fn response(status: &str, kind: &str, body: &str, has_body: bool) -> Vec<u8> {
    let length = body.len();
    let sent = if has_body { body } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{sent}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &[u8]) -> Option<String> {
        let answer = String::from_utf8(answer(request, "a 1\n")?).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "))
            .unwrap();
        if !request.starts_with(b"HEAD ") {
            assert_eq!(length, body.len().to_string(), "{answer}");
        }
        assert!(head.contains("\r\nConnection: close"), "{answer}");
        Some(head.lines().next().unwrap().to_owned())
    }

    #[test]
    fn a_page_is_read_by_get_and_its_head_by_head() {
        let get = answer(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "a 1\n").unwrap();
        let text = String::from_utf8(get).unwrap();
        assert_eq!(
            text,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: 4\r\n\
             Connection: close\r\n\r\na 1\n"
        );
        let head = answer(b"HEAD /metrics HTTP/1.0\r\n\r\n", "a 1\n").unwrap();
        assert_eq!(String::from_utf8(head).unwrap(), text.replace("a 1\n", ""));
    }

    #[test]
    fn everything_else_is_refused_with_its_own_status() {
        for (request, expected) in [
            ("GET /metrics?x=1 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK"),
            ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
            ("GET /metrics/ HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
            (
                "POST /metrics HTTP/1.1\r\n\r\n",
                "HTTP/1.1 405 Method Not Allowed",
            ),
            (
                "get /metrics HTTP/1.1\r\n\r\n",
                "HTTP/1.1 405 Method Not Allowed",
            ),
            ("GET /metrics HTTP/2.0\r\n\r\n", "HTTP/1.1 400 Bad Request"),
            ("GET /metrics\r\n\r\n", "HTTP/1.1 400 Bad Request"),
            ("GET  /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request"),
            ("\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        ] {
            let got = status(request.as_bytes());
            assert_eq!(got.as_deref(), Some(expected), "{request:?}");
        }
        assert_eq!(
            status(b"\xff\xfe\r\n\r\n").as_deref(),
            Some("HTTP/1.1 400 Bad Request")
        );
    }

    #[test]
    fn a_head_that_is_not_whole_is_waited_for_up_to_its_longest() {
        let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        for end in 0..request.len() {
            assert_eq!(status(&request[..end]), None);
        }
        assert_eq!(status(&[b'a'; HEAD_MAX - 1]), None);
        assert_eq!(
            status(&[b'a'; HEAD_MAX]).as_deref(),
            Some("HTTP/1.1 431 Request Header Fields Too Large")
        );
    }
}
