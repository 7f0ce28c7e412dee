// SPDX-License-Identifier: Apache-2.0
//! Certificates for the lab.

/// A certificate and its key.
#[derive(Debug, Clone)]
pub struct Identity {
    /// PEM, leaf first.
    pub certificate_pem: String,
    /// PEM, PKCS#8.
    pub key_pem: String,
}
