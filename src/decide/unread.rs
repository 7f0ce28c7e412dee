// SPDX-License-Identifier: Apache-2.0
//! Which code has a credential that cannot be used, or a failed request to one of the two APIs?

use crate::catalog::{Api, Code};
use crate::facts::observation::Observation;
use crate::facts::{Fact, UnavailableKind};

/// Returns the code of the failure that prevents reads of an API; `None` if there is none.
pub fn api(observation: &Observation, api: Api) -> Option<Code> {
    match api {
        Api::Harvester => match &observation.harvester {
            Fact::Failed(why) => Some(harvester_credential(why.kind)),
            _ => harvester(observation.candidates.why()?.kind),
        },
        Api::Guest => match &observation.kubelet {
            Fact::Failed(why) => Some(kubelet_credential(why.kind)),
            _ => node(observation.node.why()?.kind),
        },
    }
}

/// Returns the code of a Harvester credential that cannot be used.
pub(super) fn harvester_credential(kind: UnavailableKind) -> Code {
    match kind {
        UnavailableKind::Missing => Code::HarvesterCredentialMissing,
        UnavailableKind::EmptyFile => Code::CredentialIsEmpty,
        UnavailableKind::Directory => Code::CredentialIsDirectory,
        UnavailableKind::OwnApi => Code::HarvesterIsOwnApi,
        _ => Code::HarvesterCredentialInvalid,
    }
}

/// Returns the code of a kubelet credential that cannot be used.
pub(super) fn kubelet_credential(kind: UnavailableKind) -> Code {
    match kind {
        UnavailableKind::Missing => Code::KubeletCredentialMissing,
        _ => Code::KubeletCredentialInvalid,
    }
}

/// Returns the code of a failed request to Harvester; `None` if there was no request.
pub(super) fn harvester(kind: UnavailableKind) -> Option<Code> {
    Some(match kind {
        UnavailableKind::Unreachable => Code::HarvesterUnreachable,
        UnavailableKind::Credential => Code::HarvesterUnauthorized,
        UnavailableKind::Forbidden => Code::HarvesterForbidden,
        UnavailableKind::Tls => Code::HarvesterTlsError,
        UnavailableKind::Refused | UnavailableKind::Malformed => Code::HarvesterBadResponse,
        UnavailableKind::UnexpectedObject => Code::UnexpectedObject,
        UnavailableKind::NotAsked
        | UnavailableKind::Missing
        | UnavailableKind::EmptyFile
        | UnavailableKind::Directory
        | UnavailableKind::OwnApi
        | UnavailableKind::AnotherMachine
        | UnavailableKind::AnotherNode => return None,
    })
}

/// Returns the code of a failed read of a source of the topology.
pub(super) fn source(kind: UnavailableKind) -> Code {
    match kind {
        UnavailableKind::UnexpectedObject => Code::UnexpectedObject,
        _ => Code::HarvesterUnreachable,
    }
}

/// Returns the code of a failed read of the Node; `None` if there was no request.
pub(super) fn node(kind: UnavailableKind) -> Option<Code> {
    Some(match kind {
        UnavailableKind::Unreachable => Code::GuestApiUnreachable,
        UnavailableKind::Credential => Code::GuestApiUnauthorized,
        UnavailableKind::Forbidden => Code::GuestApiForbidden,
        UnavailableKind::Tls => Code::GuestApiTlsError,
        UnavailableKind::Refused | UnavailableKind::Malformed => Code::GuestApiBadResponse,
        UnavailableKind::UnexpectedObject => Code::UnexpectedObject,
        UnavailableKind::AnotherMachine => Code::NodeOfAnotherVm,
        UnavailableKind::AnotherNode => Code::NodeMissing,
        UnavailableKind::NotAsked
        | UnavailableKind::Missing
        | UnavailableKind::EmptyFile
        | UnavailableKind::Directory
        | UnavailableKind::OwnApi => return None,
    })
}
