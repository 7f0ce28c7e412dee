// SPDX-License-Identifier: Apache-2.0
//! Credentials for the two APIs, from kubeconfig files.
//!
//! [`search`] finds a kubeconfig, [`kubeconfig`] reads it with all the files that it names, and [`source`] keeps it up to
//! date. The properties of the credential are in [`certificate`] and [`token`]; [`own_api`] detects a Harvester
//! credential for the guest cluster. No error, `Debug` output or message contains a token, a key or any other value of a
//! kubeconfig that may be one.

pub mod certificate;
mod credential;
mod error;
pub mod kubeconfig;
pub mod own_api;
pub mod pem;
pub mod search;
pub mod source;
#[cfg(test)]
pub(crate) mod testing;
pub mod token;
pub mod trust;
pub mod x509;

pub use credential::{ClientCertificate, Credential, Exposure};
pub use error::CredentialError;
