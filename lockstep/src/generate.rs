//! New key pairs.

use lockstep_ops::{self as ops, KeyKind, MlDsaKey, Request, Response};
use zeroize::Zeroizing;

use crate::column::{Column, Pairs};
use crate::error::{Error, Reason};
use crate::key::Algorithm;
use crate::workers::{Effort, Workers};

impl Workers {
    /// Makes `count` key pairs of any algorithm but RSA.
    pub fn generate_many(&self, algorithm: Algorithm, count: usize) -> Result<Pairs, Error> {
        let (secret, public) = algorithm.key_bytes().ok_or(Error::Unsupported)?;
        let kind = match algorithm {
            Algorithm::P256 => Some(KeyKind::Nist(ops::Curve::P256)),
            Algorithm::P384 => Some(KeyKind::Nist(ops::Curve::P384)),
            Algorithm::X25519 => Some(KeyKind::X25519),
            Algorithm::Kem(kem) => Some(KeyKind::Kem(kem)),
            Algorithm::Ed25519 | Algorithm::MlDsa(_) | Algorithm::Rsa => None,
        };
        let mut secrets = Column::new(count, secret)?;
        let mut publics = Column::new(count, public)?;
        self.run(
            count,
            match algorithm {
                Algorithm::MlDsa(_) => Effort::Long,
                _ => Effort::Short,
            },
            None,
            (secrets.place(), publics.place()),
            |thread, numbers, (secrets, publics)| {
                let mut set = |number, pair: Result<(&[u8], &[u8]), Reason>| {
                    secrets.set(number, pair.map(|(own, _)| own));
                    publics.set(number, pair.map(|(_, public)| public));
                };
                if let Some(kind) = kind {
                    let requests = numbers.map(|_| Ok(Request::Keypair(kind))).collect();
                    thread.execute(ops::Shape::Keypair(kind), requests, |number, answer| {
                        match answer {
                            // The seed of ML-KEM follows its private key.
                            Ok(Response::Keypair(pair)) => {
                                let own = pair.secret.as_bytes();
                                set(number, Ok((&own[..secret], &pair.public)));
                            }
                            Ok(_) => set(number, Err(Reason::Internal)),
                            Err(reason) => set(number, Err(reason)),
                        }
                    });
                    return;
                }
                let mut seeds = Zeroizing::new(vec![[0; 32]; numbers.len()]);
                if let Err(failed) = ops::fill_random(seeds.as_flattened_mut()) {
                    (0..numbers.len()).for_each(|number| set(number, Err(failed.into())));
                    return;
                }
                match algorithm {
                    Algorithm::MlDsa(parameters) => {
                        for (number, seed) in seeds.iter().enumerate() {
                            let key = MlDsaKey::from_seed(parameters, seed);
                            let key = key.map_err(|_| Reason::NoResources);
                            let pair = key.as_ref().map(|key| (&seed[..], key.public()));
                            set(number, pair.map_err(|reason| *reason));
                        }
                    }
                    _ => {
                        let public = thread.lanes.ed25519_publics(&seeds);
                        for (number, pair) in seeds.iter().zip(&public).enumerate() {
                            set(number, Ok((pair.0, pair.1)));
                        }
                    }
                }
            },
        )?;
        Ok(Pairs { secrets, publics })
    }
}
