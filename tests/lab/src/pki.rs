// SPDX-License-Identifier: Apache-2.0
//! Certificates for the lab: an authority per cluster, server certificates (right and wrong ones) and client certificates
//! whose subject says who the client is, as Kubernetes reads it (CN is the user, each O is a group).

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

/// Lifetime of a certificate whose dates were not chosen; one year is what the Kubernetes signer gives a kubelet.
const DEFAULT_LIFETIME: Duration = Duration::days(365);

/// Certificates begin a little in the past, so that a client whose clock is a few minutes behind accepts them.
const BACKDATE: Duration = Duration::hours(1);

/// OID of the organisation attribute, for a second organisation (see [`Authority::client_identity`]).
const ORGANISATION_OID: [u64; 4] = [2, 5, 4, 10];

/// A certificate and its key.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    /// PEM, leaf first.
    pub certificate_pem: String,
    /// PEM, PKCS#8.
    pub key_pem: String,
}

/// The dates between which a certificate is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first instant at which it is good.
    pub not_before: OffsetDateTime,
    /// The last instant at which it is good.
    pub not_after: OffsetDateTime,
}

impl Validity {
    /// From an hour ago, for a year.
    #[must_use]
    pub fn current() -> Self {
        Self::from_now(DEFAULT_LIFETIME)
    }

    /// From an hour ago until `remaining` from now.
    #[must_use]
    pub fn from_now(remaining: Duration) -> Self {
        let now = OffsetDateTime::now_utc();
        Self {
            not_before: now - BACKDATE,
            not_after: now + remaining,
        }
    }

    /// Ended a day ago.
    #[must_use]
    pub fn expired() -> Self {
        let now = OffsetDateTime::now_utc();
        Self {
            not_before: now - Duration::days(30),
            not_after: now - Duration::days(1),
        }
    }

    /// Begins in a day.
    #[must_use]
    pub fn not_yet() -> Self {
        let now = OffsetDateTime::now_utc();
        Self {
            not_before: now + Duration::days(1),
            not_after: now + Duration::days(30),
        }
    }
}

impl Default for Validity {
    fn default() -> Self {
        Self::current()
    }
}

/// A certificate authority, for example `rke2-server-ca`. Cheap to clone; clones sign with the same key.
#[derive(Debug, Clone)]
pub struct Authority {
    issuer: Arc<Issuer<'static, KeyPair>>,
    pem: String,
}

impl Authority {
    /// A new self-signed authority with a key of its own.
    #[must_use]
    pub fn new(common_name: &str) -> Self {
        Self::with_validity(common_name, Validity::current())
    }

    /// A new self-signed authority that is good between the given dates.
    #[must_use]
    pub fn with_validity(common_name: &str, validity: Validity) -> Self {
        let mut params = params(common_name, &[], validity);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::CrlSign,
        ];
        let key = generate_key();
        let certificate = params
            .self_signed(&key)
            .expect("the parameters of an authority are complete");
        Self {
            pem: certificate.pem(),
            issuer: Arc::new(Issuer::new(params, key)),
        }
    }

    /// The authority whose certificate and key were kept.
    ///
    /// # Panics
    /// When they are not PEM.
    #[must_use]
    pub fn from_pem(certificate: &str, key: &str) -> Self {
        let key = KeyPair::from_pem(key).expect("the key is PEM");
        let issuer = Issuer::from_ca_cert_pem(certificate, key);
        Self {
            pem: certificate.to_owned(),
            issuer: Arc::new(issuer.expect("the certificate is PEM")),
        }
    }

    /// The authority's certificate, as it stands in a kubeconfig.
    #[must_use]
    pub fn pem(&self) -> String {
        self.pem.clone()
    }

    /// Its private key.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A server certificate for DNS names and IP addresses, good now.
    #[must_use]
    pub fn server_identity<N: AsRef<str>>(&self, names: &[N]) -> Identity {
        self.server_identity_with(names, Validity::current())
    }

    /// A server certificate for DNS names and IP addresses, good between the given dates.
    #[must_use]
    pub fn server_identity_with<N: AsRef<str>>(&self, names: &[N], validity: Validity) -> Identity {
        let names: Vec<String> = names.iter().map(|name| name.as_ref().to_owned()).collect();
        let mut params = params("kube-apiserver", &[], validity);
        params.subject_alt_names = CertificateParams::new(names)
            .expect("the names of a server certificate are ASCII")
            .subject_alt_names;
        self.issue(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A client certificate: `common_name` is the user, each organisation a group. Good now.
    ///
    /// Each organisation is an RDN of its own, as the Kubernetes signer writes them.
    ///
    /// # Panics
    /// With more than two organisations, which the certificate library cannot write.
    #[must_use]
    pub fn client_identity<O: AsRef<str>>(
        &self,
        common_name: &str,
        organisations: &[O],
    ) -> Identity {
        self.client_identity_with(common_name, organisations, Validity::current())
    }

    /// A client certificate as of [`Authority::client_identity`], good between the given dates.
    ///
    /// # Panics
    /// With more than two organisations.
    #[must_use]
    pub fn client_identity_with<O: AsRef<str>>(
        &self,
        common_name: &str,
        organisations: &[O],
        validity: Validity,
    ) -> Identity {
        let organisations: Vec<&str> = organisations.iter().map(AsRef::as_ref).collect();
        self.issue(
            params(common_name, &organisations, validity),
            ExtendedKeyUsagePurpose::ClientAuth,
        )
    }

    /// Signs what a client asks for, for a year: subject, key and usages are as in the request, which is PEM.
    ///
    /// # Panics
    /// When it is no request for a certificate.
    #[must_use]
    pub fn sign_request(&self, request_pem: &str) -> String {
        let mut request = CertificateSigningRequestParams::from_pem(request_pem)
            .expect("a kubelet's request is well-formed");
        let validity = Validity::current();
        request.params.not_before = validity.not_before;
        request.params.not_after = validity.not_after;
        let signed = request.signed_by(&self.issuer);
        signed
            .expect("the parameters of a request are complete")
            .pem()
    }

    fn issue(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Identity {
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = generate_key();
        let certificate = params
            .signed_by(&key, &self.issuer)
            .expect("the parameters of a leaf are complete");
        Identity {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }
}

fn generate_key() -> KeyPair {
    KeyPair::generate().expect("the system has randomness")
}

fn params(common_name: &str, organisations: &[&str], validity: Validity) -> CertificateParams {
    let mut name = DistinguishedName::new();
    // The library keeps one value per attribute type; the same OID spelt as a custom type makes room for a second one.
    match organisations {
        [] => {}
        [only] => name.push(DnType::OrganizationName, *only),
        [first, second] => {
            name.push(DnType::OrganizationName, *first);
            name.push(DnType::CustomDnType(ORGANISATION_OID.to_vec()), *second);
        }
        more => panic!(
            "at most two organisations in a client certificate, not {}",
            more.len()
        ),
    }
    name.push(DnType::CommonName, common_name);
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    params.not_before = validity.not_before;
    params.not_after = validity.not_after;
    params
}
