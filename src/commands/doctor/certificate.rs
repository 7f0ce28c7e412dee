// SPDX-License-Identifier: Apache-2.0
//! Certificates of the credentials and of the servers. Never contains a secret.

use crate::access::x509;
use crate::catalog::Api;
use crate::observe::api_access::ApiLink;
use crate::sys::escape::one_line;
use crate::wire::kubeapi::Client;

/// The maximum length of a name in a certificate, in characters.
const NAME_MAX: usize = 253;

/// A certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Certificate {
    /// The API that it is used for.
    pub(super) api: Api,
    /// The purpose.
    pub(super) role: CertificateRole,
    /// The kubeconfig that contains it, or the address of the server that presents it.
    pub(super) origin: String,
    /// The subject, on one line.
    pub(super) subject: String,
    /// The start of its validity, as a Unix timestamp.
    pub(super) begins: i64,
    /// The end of its validity, as a Unix timestamp.
    pub(super) ends: i64,
    /// The names and addresses for which it is valid.
    pub(super) names: Vec<String>,
    /// Whether all that is wrong with a server certificate is its names: its chain was verified.
    pub(super) is_misnamed: bool,
}

/// The purpose of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CertificateRole {
    /// A client certificate: identifies us.
    Client,
    /// A CA certificate: verifies the certificates that it signed.
    Authority,
    /// A server certificate: identifies the server.
    Server,
}

impl Certificate {
    /// Parses a certificate; `None` if it cannot be parsed: it is not used elsewhere either.
    fn parse(api: Api, role: CertificateRole, origin: &str, der: &[u8]) -> Option<Self> {
        let read = x509::Certificate::parse(der)?;
        let line = |text: &str| one_line(text, NAME_MAX).into_owned();
        let names = read.alternative_names.iter();
        Some(Self {
            api,
            role,
            origin: origin.to_owned(),
            subject: line(&read.subject.to_string()),
            begins: read.not_before,
            ends: read.not_after,
            names: names.map(|name| line(name)).collect(),
            is_misnamed: false,
        })
    }

    /// Returns the certificate that a server showed in its responses, whether or not it is trusted.
    pub(super) fn of_server(api: Api, client: &Client) -> Option<Self> {
        let shown = client.server_shown();
        let server = CertificateRole::Server;
        let certificate = Self::parse(api, server, client.server(), &shown.certificate?)?;
        Some(Self {
            is_misnamed: shown.is_misnamed,
            ..certificate
        })
    }

    /// Returns the certificates of a credential.
    pub(super) fn of_link(api: Api, link: &ApiLink) -> Vec<Self> {
        let credential = &link.credential;
        let origin = credential.kubeconfig.display().to_string();
        let authorities = credential.certificate_authorities.iter();
        let authorities = authorities.map(|der| (CertificateRole::Authority, der));
        let client = credential.client_certificate.iter();
        let client =
            client.filter_map(|client| Some((CertificateRole::Client, client.chain.first()?)));
        let all = authorities.chain(client);
        all.filter_map(|(role, der)| Self::parse(api, role, &origin, der))
            .collect()
    }
}
