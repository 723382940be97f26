//! Keys and certificates of the processes that are measured.

use std::fs;
use std::path::Path;

use lockstep_common::Failure;
use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::x509::X509;

use super::cases::KINDS;
use crate::files::{on, write_private};
use crate::handshakes::{Identity, Kind, certificate};

/// Files below the directory of the material.
pub const BUNDLE: &str = "bundle.pem";
pub const ROOT: &str = "chain/root.pem";
pub const INTERMEDIATE: &str = "chain/intermediate.pem";
pub const LEAF: &str = "chain/leaf.pem";
/// A host's certificate with the one above it, and its key.
pub const HOST_CHAIN: &str = "chain/host.pem";
pub const HOST_KEY: &str = "chain/key.pem";

/// The system's certificate authorities, where Debian and Fedora have them.
const AUTHORITIES: [&str; 2] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
];

/// How many certificates are made where the system has none.
const MADE: usize = 150;

/// The key of a kind.
pub fn key(kind: Kind) -> String {
    format!("{}/key.pem", kind.name())
}

/// The certificate of that key.
pub fn certificate_of(kind: Kind) -> String {
    format!("{}/certificate.pem", kind.name())
}

/// All files, and the facts about them that the parent needs.
pub struct Material {
    /// By the kinds of their keys.
    pub identities: Vec<(Kind, Identity)>,
    /// Where the bundle is from, and how many certificates it has.
    pub bundle: String,
}

impl Material {
    /// Makes the files in a directory.
    pub fn make(directory: &Path) -> Result<Material, Failure> {
        let mut identities = Vec::new();
        for kind in KINDS {
            let own = directory.join(kind.name());
            fs::create_dir(&own).map_err(on(&own, "create"))?;
            identities.push((kind, Identity::make(kind, &own)?));
        }
        let own = directory.join("chain");
        fs::create_dir(&own).map_err(on(&own, "create"))?;
        let failed = |error: ErrorStack| Failure::new(format!("cannot make a chain: {error}"));
        let chain = Chain::make().map_err(failed)?;
        let pem = |certificate: &X509| certificate.to_pem().map_err(failed);
        let (leaf, between) = (pem(&chain.leaf)?, pem(&chain.intermediate)?);
        let key = chain.key.private_key_to_pem_pkcs8().map_err(failed)?;
        for (name, text) in [
            (ROOT, &pem(&chain.root)?),
            (HOST_CHAIN, &[&leaf[..], &between].concat()),
            (LEAF, &leaf),
            (INTERMEDIATE, &between),
            (HOST_KEY, &key),
        ] {
            write_private(&directory.join(name), text)?;
        }
        let (from, text) = match system_authorities() {
            Some((path, text)) => (path.to_owned(), text),
            None => ("made".to_owned(), pem(&chain.root)?.repeat(MADE)),
        };
        let count = X509::stack_from_pem(&text).map_err(failed)?.len();
        write_private(&directory.join(BUNDLE), &text)?;
        Ok(Material {
            identities,
            bundle: format!("{count} certificates, {from}"),
        })
    }

    /// The authority that clients of a server with such a key trust, as DER.
    pub fn identity(&self, kind: Kind) -> Option<&Identity> {
        let mut identities = self.identities.iter();
        identities
            .find(|(known, _)| *known == kind)
            .map(|(_, identity)| identity)
    }
}

fn system_authorities() -> Option<(&'static str, Vec<u8>)> {
    let mut files = AUTHORITIES.into_iter();
    files.find_map(|path| Some((path, fs::read(path).ok()?)))
}

/// A host's certificate, the one above it, and the authority; all keys are RSA-2048.
struct Chain {
    root: X509,
    intermediate: X509,
    leaf: X509,
    key: PKey<Private>,
}

impl Chain {
    fn make() -> Result<Chain, ErrorStack> {
        let generate = || PKey::from_rsa(Rsa::generate(2048)?);
        let (root_key, between_key, key) = (generate()?, generate()?, generate()?);
        let root = certificate("root", &root_key, None, true)?;
        let above = Some((&root, &*root_key));
        let intermediate = certificate("intermediate", &between_key, above, true)?;
        let leaf = certificate("host", &key, Some((&intermediate, &between_key)), false)?;
        Ok(Chain {
            root,
            intermediate,
            leaf,
            key,
        })
    }
}
