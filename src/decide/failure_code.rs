// SPDX-License-Identifier: Apache-2.0
//! Which code has a credential that cannot be used, or a failed request to one of the two APIs?

use crate::catalog::{Api, Code};
use crate::facts::UnavailableKind as Kind;
use crate::facts::observation::Observation;

/// Returns the code of the failure that prevents reads of an API; `None` if there is none.
pub fn api(observation: &Observation, api: Api) -> Option<Code> {
    match observation.credential_failure(api) {
        Some(why) => credential(api, why.kind),
        None => request(api, observation.read_failure(api)?.kind),
    }
}

/// Returns the code of a credential that cannot be used; `None` if it was not read.
pub(super) fn credential(api: Api, kind: Kind) -> Option<Code> {
    Some(match (api, kind) {
        (_, Kind::NotAsked) => return None,
        (Api::Harvester, Kind::Missing) => Code::HarvesterCredentialMissing,
        (Api::Harvester, Kind::EmptyFile) => Code::CredentialIsEmpty,
        (Api::Harvester, Kind::Directory) => Code::CredentialIsDirectory,
        (Api::Harvester, Kind::OwnApi) => Code::HarvesterIsOwnApi,
        (Api::Harvester, _) => Code::HarvesterCredentialInvalid,
        (Api::Guest, Kind::Missing) => Code::KubeletCredentialMissing,
        (Api::Guest, _) => Code::KubeletCredentialInvalid,
    })
}

/// Returns the code of a failed request to an API; `None` if there was no request.
pub(super) fn request(api: Api, kind: Kind) -> Option<Code> {
    Some(match (api, kind) {
        (Api::Harvester, Kind::Unreachable) => Code::HarvesterUnreachable,
        (Api::Harvester, Kind::Credential) => Code::HarvesterUnauthorized,
        (Api::Harvester, Kind::Forbidden) => Code::HarvesterForbidden,
        (Api::Harvester, Kind::Tls) => Code::HarvesterTlsError,
        (Api::Harvester, Kind::Refused | Kind::Malformed) => Code::HarvesterBadResponse,
        (Api::Guest, Kind::Unreachable) => Code::GuestApiUnreachable,
        (Api::Guest, Kind::Credential) => Code::GuestApiUnauthorized,
        (Api::Guest, Kind::Forbidden) => Code::GuestApiForbidden,
        (Api::Guest, Kind::Tls) => Code::GuestApiTlsError,
        (Api::Guest, Kind::Refused | Kind::Malformed) => Code::GuestApiBadResponse,
        (Api::Guest, Kind::AnotherMachine) => Code::NodeOfAnotherVm,
        (Api::Guest, Kind::AnotherNode) => Code::NodeMissing,
        (_, Kind::UnexpectedObject) => Code::UnexpectedObject,
        (Api::Harvester, Kind::AnotherMachine | Kind::AnotherNode)
        | (_, Kind::NotAsked | Kind::Missing | Kind::EmptyFile | Kind::Directory | Kind::OwnApi) => {
            return None;
        }
    })
}

/// Returns the code of a failed read of a source of the topology.
pub(super) fn source(kind: Kind) -> Code {
    match kind {
        Kind::UnexpectedObject => Code::UnexpectedObject,
        _ => Code::HarvesterUnreachable,
    }
}
