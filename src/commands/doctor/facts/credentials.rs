// SPDX-License-Identifier: Apache-2.0
//! The types and expiration of the credential files. Never contains a secret.

use std::path::PathBuf;

use crate::access::token::TokenKind;
use crate::facts::observation::Api;

facts! {
    /// Both credentials.
    Credentials {
        /// The paths where the Harvester credential is searched, in the order of the search, with their content.
        places: Vec<CredentialPlace>, HarvesterCredential, "the paths of the kubeconfig";
        /// The token of the Harvester credential. Absent if it has a client certificate instead.
        token: TokenKind, HarvesterCredential, "the type of its token";
        /// The certificates of both: the client certificate of the kubelet, and the trusted CA certificates.
        certificates: Vec<CertificateFacts>, HarvesterCredential, "the certificates";
        /// Whether the Harvester credential can read storage classes, as the CSI driver requires. Absent if the agent has its own
        /// credential, which the CSI driver does not use.
        csi_role: bool, HarvesterCredential, "whether it has the role of the CSI driver";
    }
}

/// A path where the Harvester credential is searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialPlace {
    /// The path.
    pub path: PathBuf,
    /// The file of the distribution whose `cloud-provider-config` refers to it.
    pub named_in: Option<PathBuf>,
    /// The content.
    pub content: CredentialContent,
}

/// The content of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialContent {
    /// Not found.
    Nothing,
    /// An empty file.
    EmptyFile,
    /// A file.
    File,
    /// A directory.
    Directory,
    /// Unknown: the path could not be read.
    Unknown,
}

/// A certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The API that it is used for.
    pub api: Api,
    /// The purpose.
    pub role: CredentialRole,
    /// The kubeconfig that contains it, or the address of the server that presents it.
    pub origin: String,
    /// The subject, on one line.
    pub subject: String,
    /// The start of its validity, in seconds since 1970.
    pub begins: i64,
    /// The end of its validity, in seconds since 1970.
    pub ends: i64,
    /// The names and addresses for which it is valid.
    pub names: Vec<String>,
}

/// The purpose of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialRole {
    /// A client certificate: identifies us.
    Client,
    /// A CA certificate: verifies the certificates that it signed.
    Authority,
    /// A server certificate: identifies the server.
    Server,
}
