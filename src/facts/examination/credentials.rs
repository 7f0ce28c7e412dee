// SPDX-License-Identifier: Apache-2.0
//! What are the credential files, who may read them, and how long do they last? Never a value of theirs.

use std::path::PathBuf;

use super::Gap;
use crate::facts::{Seen, Why};
use crate::findings::Group;

/// Both credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The token of the Harvester credential.
    pub token: Seen<Token>,
    /// The files of the Harvester credential.
    pub harvester_files: Seen<Vec<CredentialFile>>,
    /// The files of the kubelet's credential.
    pub kubelet_files: Seen<Vec<CredentialFile>>,
    /// The certificates of both: of the kubelet, and the authorities that are trusted.
    pub certificates: Seen<Vec<Certificate>>,
}

/// What a token says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Who made it.
    pub kind: TokenKind,
    /// When it was made, in seconds since 1970.
    pub issued: Option<i64>,
    /// When it ends, in seconds since 1970.
    pub expires: Option<i64>,
}

/// Who made a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Kubernetes, for a service account.
    ServiceAccount,
    /// Rancher, for one of its users; it may end by a setting that the token does not tell.
    Rancher,
    /// Neither is to be seen.
    Opaque,
}

/// A file that holds a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialFile {
    /// Where.
    pub path: PathBuf,
    /// Permission bits.
    pub mode: u32,
    /// User that owns it.
    pub owner: u32,
}

/// A certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The file, or the kubeconfig that holds it.
    pub path: PathBuf,
    /// The common name of its subject.
    pub subject: String,
    /// Valid from, in seconds since 1970.
    pub begins: i64,
    /// Valid until, in seconds since 1970.
    pub ends: i64,
}

impl Credentials {
    /// None of it, for one reason.
    pub fn unseen(why: &Why) -> Self {
        Self {
            token: Seen::Failed(why.clone()),
            harvester_files: Seen::Failed(why.clone()),
            kubelet_files: Seen::Failed(why.clone()),
            certificates: Seen::Failed(why.clone()),
        }
    }

    /// What could not be looked at.
    pub fn gaps(&self) -> Vec<Gap> {
        let (harvester, kubelet) = (Group::HarvesterCredential, Group::KubeletCredential);
        let gaps = [
            Gap::of(harvester, "the Harvester token", &self.token),
            Gap::of(harvester, "who may read its files", &self.harvester_files),
            Gap::of(kubelet, "who may read its files", &self.kubelet_files),
            Gap::of(kubelet, "the certificates", &self.certificates),
        ];
        gaps.into_iter().flatten().collect()
    }
}
