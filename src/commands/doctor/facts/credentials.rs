// SPDX-License-Identifier: Apache-2.0
//! The types and expiration of the credential files. Never contains a secret.

use std::path::PathBuf;

use super::Gap;
use crate::catalog::Group;
use crate::facts::names::ServiceAccount;
use crate::facts::observation::Api;
use crate::facts::{Fact, Unavailable};

/// Both credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The paths where the Harvester credential is searched, in the order of the search, with their content.
    pub places: Fact<Vec<CredentialPlace>>,
    /// The token of the Harvester credential. Absent if it has a client certificate instead.
    pub token: Fact<Token>,
    /// The certificates of both: the client certificate of the kubelet, and the trusted CA certificates.
    pub certificates: Fact<Vec<CertificateFacts>>,
    /// Whether the Harvester credential can read storage classes, as the CSI driver requires. Absent if the agent has its own
    /// credential, which the CSI driver does not use.
    pub csi_role: Fact<bool>,
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

/// The public part of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The issuer.
    pub kind: TokenFacts,
    /// The time of issue, in seconds since 1970.
    pub issued: Option<i64>,
    /// The expiration time, in seconds since 1970.
    pub expires: Option<i64>,
}

/// The issuer of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenFacts {
    /// Kubernetes, for a service account.
    ServiceAccount(ServiceAccount),
    /// Rancher, for one of its users; its expiration is not in the token.
    Rancher {
        /// The name of the token object, which is not a secret.
        name: String,
    },
    /// Unknown: the token has neither form.
    Opaque,
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

impl Credentials {
    /// Creates facts that are all unavailable for the same reason.
    pub fn unseen(why: &Unavailable) -> Self {
        Self {
            places: Fact::Failed(why.clone()),
            token: Fact::Failed(why.clone()),
            certificates: Fact::Failed(why.clone()),
            csi_role: Fact::Failed(why.clone()),
        }
    }

    /// Returns the checks that could not be done.
    pub fn gaps(&self) -> Vec<Gap> {
        let group = Group::HarvesterCredential;
        let gaps = [
            Gap::of(group, "the paths of the kubeconfig", &self.places),
            Gap::of(group, "the type of its token", &self.token),
            Gap::of(group, "the certificates", &self.certificates),
            Gap::of(
                group,
                "whether it has the role of the CSI driver",
                &self.csi_role,
            ),
        ];
        gaps.into_iter().flatten().collect()
    }
}
