//! The server's key and certificate, and the authority that clients trust.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use clap::builder::PossibleValue;
use lockstep_common::Failure;
use lockstep_engine::{Curve, MlDsa, Shape, Size};
use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, PKeyRef, Private};
use openssl::rand::rand_bytes;
use openssl::rsa::Rsa;
use openssl::x509::extension::{
    BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName,
};
use openssl::x509::{X509, X509Name};
use rustls::pki_types::ServerName;

use super::over_rustls::{Client, Trust, algorithm, has_ml_dsa};
use super::parameters::Version;
use crate::files::{on, write_private};
use crate::subject::nid;

/// The name in the certificate.
pub const HOST: &str = "localhost";

/// A host that clients ask for.
pub fn host(name: &str) -> Result<ServerName<'static>, Failure> {
    ServerName::try_from(name.to_owned())
        .map_err(|error| Failure::usage(format!("{name} is no name of a host: {error}")))
}

/// The kind of a server's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Rsa(Size),
    Ecdsa(Curve),
    Ed25519,
    MlDsa(MlDsa),
}

impl Kind {
    pub const ALL: [Kind; 9] = [
        Kind::Rsa(Size::Rsa2048),
        Kind::Rsa(Size::Rsa3072),
        Kind::Rsa(Size::Rsa4096),
        Kind::Ecdsa(Curve::P256),
        Kind::Ecdsa(Curve::P384),
        Kind::Ed25519,
        Kind::MlDsa(MlDsa::MlDsa44),
        Kind::MlDsa(MlDsa::MlDsa65),
        Kind::MlDsa(MlDsa::MlDsa87),
    ];

    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Rsa(_) => self.shape().name(),
            Kind::Ecdsa(Curve::P256) => "p256",
            Kind::Ecdsa(Curve::P384) => "p384",
            Kind::Ed25519 => "ed25519",
            Kind::MlDsa(MlDsa::MlDsa44) => "mldsa44",
            Kind::MlDsa(MlDsa::MlDsa65) => "mldsa65",
            Kind::MlDsa(MlDsa::MlDsa87) => "mldsa87",
        }
    }

    /// Whether this program's libcrypto has such keys.
    pub fn is_known(self) -> bool {
        !matches!(self, Kind::MlDsa(_)) || has_ml_dsa()
    }

    /// Fails unless this program's libcrypto, without lockstep, can make such keys and check their
    /// signatures: ring, which does that for the other kinds, has no ML-DSA.
    pub fn insist_on(self) -> Result<(), Failure> {
        let is_loading = std::env::var_os("OPENSSL_CONF").is_some_and(|path| path != "/dev/null");
        match self {
            _ if !self.is_known() => Err(Failure::new(format!(
                "{} has no keys of ML-DSA: OpenSSL has them from 3.5 on",
                openssl::version::version()
            ))
            .remedy("run it where OpenSSL 3.5 or later is installed, or with another --key")),
            Kind::MlDsa(_) if is_loading => Err(Failure::new(
                "with OPENSSL_CONF, the clients themselves would check signatures of ML-DSA by \
                 lockstep",
            )
            .remedy(
                "unset OPENSSL_CONF: the servers then take the openssl.cnf beside this program, or \
                 /etc/lockstep/openssl.cnf",
            )),
            _ => Ok(()),
        }
    }

    /// The engine's shape of a signature with such a key.
    pub fn shape(self) -> Shape {
        match self {
            Kind::Rsa(size) => Shape::Rsa {
                size,
                wide_exponent: false,
            },
            Kind::Ecdsa(curve) => Shape::EcdsaSign(curve),
            Kind::Ed25519 => Shape::Ed25519Sign,
            Kind::MlDsa(set) => Shape::MlDsaSign(set),
        }
    }

    fn generate(self) -> Result<PKey<Private>, ErrorStack> {
        match self {
            Kind::Rsa(size) => PKey::from_rsa(Rsa::generate(size.bits() as u32)?),
            Kind::Ecdsa(curve) => {
                let group = EcGroup::from_curve_name(nid(curve))?;
                PKey::from_ec_key(EcKey::generate(&group)?)
            }
            Kind::Ed25519 => PKey::generate_ed25519(),
            Kind::MlDsa(set) => {
                let mut seed = [0; 32];
                rand_bytes(&mut seed)?;
                // A private key (RFC 9881) that is a seed, in PKCS#8.
                let around = [
                    &[0x30, 0x34, 2, 1, 0],
                    &algorithm(set)[..],
                    &[4, 0x22, 0x80, 0x20],
                ];
                PKey::private_key_from_der(&[&around.concat()[..], &seed].concat())
            }
        }
    }
}

impl ValueEnum for Kind {
    fn value_variants<'a>() -> &'a [Kind] {
        &Kind::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

/// Files for servers, and the facts by which clients trust them.
#[derive(Clone)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Key and certificate in one file.
    pub both: PathBuf,
    /// The certificate of the authority, as DER, and in a file.
    pub authority: Vec<u8>,
    pub authority_file: PathBuf,
}

impl Identity {
    /// Makes an authority and a certificate signed by it. The authority has an RSA-2048 key,
    /// whatever the server's: such a signature is verified fastest, and the clients' CPU must not
    /// be the limit.
    pub fn make(kind: Kind, directory: &Path) -> Result<Identity, Failure> {
        kind.insist_on()?;
        let failed = |error| Failure::new(format!("cannot make a certificate: {error}"));
        let made = || -> Result<[Vec<u8>; 4], ErrorStack> {
            let above = Kind::Rsa(Size::Rsa2048).generate()?;
            let authority = certificate("lockstep handshakes", &above, None, true)?;
            let key = kind.generate()?;
            let leaf = certificate(HOST, &key, Some((&authority, &above)), false)?;
            let (der, pem) = (authority.to_der()?, authority.to_pem()?);
            Ok([key.private_key_to_pem_pkcs8()?, leaf.to_pem()?, der, pem])
        };
        let [key, certificate, authority, authority_pem] = made().map_err(failed)?;
        let at = |name: &str| directory.join(name);
        let identity = Identity {
            certificate: at("certificate.pem"),
            key: at("key.pem"),
            both: at("both.pem"),
            authority,
            authority_file: at("authority.pem"),
        };
        for (path, text) in [
            (&identity.authority_file, &authority_pem),
            (&identity.certificate, &certificate),
            (&identity.key, &key),
            (&identity.both, &[&key[..], &certificate].concat()),
        ] {
            write_private(path, text)?;
        }
        Ok(identity)
    }

    /// A client that trusts the server with this certificate, and takes this group in TLS 1.3.
    pub fn client(&self, group: &str) -> Result<Client, Failure> {
        let group = group.parse().map_err(|why: String| Failure::new(why))?;
        let trust = Trust::Authority(&self.authority);
        Client::new(trust, Version::Tls13, group, host(HOST)?)
    }

    /// Removes the files of the key: the programs that serve have read it.
    pub fn forget_key(&self) -> Result<(), Failure> {
        for path in [&self.key, &self.both] {
            fs::remove_file(path).map_err(on(path, "remove"))?;
        }
        Ok(())
    }

    /// The same with this text in the place of the key, in files of another directory.
    pub fn with_key(&self, key: &[u8], directory: &Path) -> Result<Identity, Failure> {
        let certificate = fs::read(&self.certificate).map_err(on(&self.certificate, "read"))?;
        let identity = Identity {
            key: directory.join("key.pem"),
            both: directory.join("both.pem"),
            ..self.clone()
        };
        write_private(&identity.key, key)?;
        write_private(&identity.both, &[key, &certificate].concat())?;
        Ok(identity)
    }
}

/// A certificate, signed by the one above it with its key, or by its own key. It is valid from an
/// hour ago until in two days.
pub fn certificate(
    name: &str,
    key: &PKeyRef<Private>,
    above: Option<(&X509, &PKeyRef<Private>)>,
    is_authority: bool,
) -> Result<X509, ErrorStack> {
    const HOUR: i64 = 3600;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_secs() as i64);
    let mut subject = X509Name::builder()?;
    subject.append_entry_by_nid(Nid::COMMONNAME, name)?;
    let subject = subject.build();
    let mut serial = BigNum::new()?;
    serial.rand(127, MsbOption::MAYBE_ZERO, false)?;
    let mut builder = X509::builder()?;
    builder.set_version(2)?;
    builder.set_serial_number(&*serial.to_asn1_integer()?)?;
    builder.set_subject_name(&subject)?;
    builder.set_issuer_name(above.map_or(&*subject, |(above, _)| above.subject_name()))?;
    builder.set_not_before(&*Asn1Time::from_unix(now - HOUR)?)?;
    builder.set_not_after(&*Asn1Time::from_unix(now + 48 * HOUR)?)?;
    builder.set_pubkey(key)?;
    if is_authority {
        builder.append_extension(BasicConstraints::new().critical().ca().build()?)?;
        builder.append_extension(KeyUsage::new().critical().key_cert_sign().build()?)?;
    } else {
        builder.append_extension(BasicConstraints::new().critical().build()?)?;
        builder.append_extension(KeyUsage::new().critical().digital_signature().build()?)?;
        builder.append_extension(ExtendedKeyUsage::new().server_auth().build()?)?;
        let context = builder.x509v3_context(above.map(|(above, _)| &**above), None);
        let alternative = SubjectAlternativeName::new().dns(name).build(&context)?;
        builder.append_extension(alternative)?;
    }
    builder.sign(above.map_or(key, |(_, key)| key), MessageDigest::sha256())?;
    Ok(builder.build())
}

#[cfg(test)]
mod tests {
    use lockstep_common::Scratch;

    use super::*;

    /// RSA-1024 signatures are too short for a certificate, and one key of a kind has the usual
    /// exponent.
    #[test]
    fn every_operation_that_signs_has_a_kind_of_key() {
        let signing = Shape::ALL.into_iter().filter(|shape| shape.signs());
        for shape in signing.filter(|shape| !shape.name().ends_with("_wide_exponent")) {
            let has_kind = Kind::ALL.iter().any(|kind| kind.shape() == shape);
            assert_eq!(has_kind, shape.name() != "rsa1024", "{shape:?}");
        }
    }

    #[test]
    fn the_authority_certifies_every_kind_of_key() {
        let scratch = Scratch::new("identity-test").unwrap();
        for kind in Kind::ALL.into_iter().filter(|kind| kind.is_known()) {
            let directory = scratch.path().join(kind.name());
            fs::create_dir(&directory).unwrap();
            let identity = Identity::make(kind, &directory).unwrap();
            let authority = X509::from_der(&identity.authority).unwrap();
            let pem = fs::read(&identity.certificate).unwrap();
            let leaf = X509::from_pem(&pem).unwrap();
            assert!(leaf.verify(&authority.public_key().unwrap()).unwrap());
            let key = PKey::private_key_from_pem(&fs::read(&identity.both).unwrap()).unwrap();
            assert!(leaf.public_key().unwrap().public_eq(&key), "{kind:?}");
        }
    }
}
