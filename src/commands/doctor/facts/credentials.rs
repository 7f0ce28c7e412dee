// SPDX-License-Identifier: Apache-2.0
//! What are the credential files, and how long do they last? Never a value of theirs.

use std::path::PathBuf;

use super::Gap;
use crate::catalogue::Group;
use crate::facts::names::ServiceAccount;
use crate::facts::observation::Api;
use crate::facts::{Fact, Unavailable};

/// Both credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// What stands at each place where the Harvester credential is looked for, in the order of the search.
    pub places: Fact<Vec<CredentialPlace>>,
    /// The token of the Harvester credential. Absent where it has a client certificate in its place.
    pub token: Fact<Token>,
    /// The certificates of both: of the kubelet, and the authorities that are trusted.
    pub certificates: Fact<Vec<CertificateFacts>>,
    /// Whether the Harvester credential may read storage classes, as the CSI driver must. Absent where the agent has a credential
    /// of its own, which the CSI driver does not use.
    pub csi_role: Fact<bool>,
}

/// A place where the Harvester credential is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialPlace {
    /// Where.
    pub path: PathBuf,
    /// The file of the distribution whose `cloud-provider-config` names it.
    pub named_in: Option<PathBuf>,
    /// What stands there.
    pub content: CredentialContent,
}

/// What stands at a place for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialContent {
    /// Nothing.
    Nothing,
    /// A file without a byte.
    EmptyFile,
    /// A file.
    File,
    /// A directory.
    Directory,
    /// That could not be found out.
    Unknown,
}

/// What a token says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Who made it.
    pub kind: TokenFacts,
    /// When it was made, in seconds since 1970.
    pub issued: Option<i64>,
    /// When it ends, in seconds since 1970.
    pub expires: Option<i64>,
}

/// Who made a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenFacts {
    /// Kubernetes, for a service account.
    ServiceAccount(ServiceAccount),
    /// Rancher, for one of its users; it may end by a setting that the token does not tell.
    Rancher {
        /// The name of the token object, which is no secret.
        name: String,
    },
    /// Neither is to be seen.
    Opaque,
}

/// A certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// At which of the two APIs it is of use.
    pub api: Api,
    /// What it proves there.
    pub role: CredentialRole,
    /// The kubeconfig that it belongs to, or the address of the server that shows it.
    pub origin: String,
    /// Its subject, on one line.
    pub subject: String,
    /// Valid from, in seconds since 1970.
    pub begins: i64,
    /// Valid until, in seconds since 1970.
    pub ends: i64,
    /// The names and addresses that it is for.
    pub names: Vec<String>,
}

/// What a certificate proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialRole {
    /// Who we are.
    Client,
    /// That a server is the right one, for those whose certificate it signed.
    Authority,
    /// Who the server is.
    Server,
}

impl Credentials {
    /// None of it, for one reason.
    pub fn unseen(why: &Unavailable) -> Self {
        Self {
            places: Fact::Failed(why.clone()),
            token: Fact::Failed(why.clone()),
            certificates: Fact::Failed(why.clone()),
            csi_role: Fact::Failed(why.clone()),
        }
    }

    /// What could not be checked.
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
