// SPDX-License-Identifier: Apache-2.0
//! Reads the certificate and the clock of a server without authentication.
//!
//! No credential is sent, and the result is not trusted: it only explains why the server is not trusted, or why the server does
//! not trust the agent.

use reqwest::header::DATE;
use reqwest::tls::TlsInfo;
use reqwest::{Method, Response};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use super::error::Error;
use super::request_counts::Tally;
use super::transport::{Accept, Call, Timeouts, Transport};
use crate::access::{Credential, ServerVerification};
use crate::wire::backoff::Backoff;

/// A path that every user may read; a response with an error status has a date as well.
const PATH: &str = "/version";

/// The certificate and the clock of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownCertificate {
    /// The certificate of the server, DER. None without TLS.
    pub certificate: Option<Vec<u8>>,
    /// The time of the server, in seconds since 1970 (`Date`, RFC 9110 section 6.6.1).
    pub date: Option<i64>,
}

/// Sends an anonymous request to the credential's server, through the proxy of the credential.
pub async fn probe(credential: &Credential, timeouts: Timeouts) -> Result<ShownCertificate, Error> {
    let anonymous = Credential {
        kubeconfig: credential.kubeconfig.clone(),
        files: Vec::new(),
        server: credential.server.clone(),
        certificate_authorities: Vec::new(),
        tls_server_name: credential.tls_server_name.clone(),
        verify_server: ServerVerification::Skipped,
        proxy: credential.proxy.clone(),
        token: None,
        client_certificate: None,
        namespace: None,
    };
    let transport = Transport::new(&anonymous, timeouts, Tally::default(), Backoff::default())?;
    let call = Call {
        verb: "get",
        method: Method::GET,
        path: PATH,
        query: Vec::new(),
        accept: Accept::Object,
        body: None,
    };
    let target = transport.target(&call);
    Ok(shown(&transport.answer(&call, &target).await?))
}

fn shown(response: &Response) -> ShownCertificate {
    let certificate = response.extensions().get::<TlsInfo>();
    let date = response.headers().get(DATE);
    ShownCertificate {
        certificate: certificate.and_then(|info| info.peer_certificate().map(<[u8]>::to_vec)),
        date: date.and_then(|date| parse(date.to_str().ok()?)),
    }
}

/// Parses a date such as `Sun, 06 Nov 1994 08:49:37 GMT`, which is also a valid mail date.
fn parse(date: &str) -> Option<i64> {
    let date = OffsetDateTime::parse(date, &Rfc2822).ok()?;
    Some(date.unix_timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_a_head_is_read_and_nonsense_is_none() {
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        for nonsense in ["", "now", "06 Nov 1994", "Sun, 99 Nov 1994 08:49:37 GMT"] {
            assert_eq!(parse(nonsense), None, "{nonsense}");
        }
    }
}
