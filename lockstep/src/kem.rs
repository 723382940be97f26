//! Key encapsulation.

use std::sync::Arc;

use lockstep_ops::{self as ops, Bytes, Kem, Request, Response};

use crate::column::Column;
use crate::error::{Error, Reason};
use crate::key::{Private, PrivateKey, Public};
use crate::rows::Rows;
use crate::verify::Key;
use crate::workers::{Effort, Workers};

/// Results of encapsulations.
#[derive(Debug)]
pub struct Encapsulated {
    /// The ciphertexts, to be sent.
    pub ciphertexts: Column,
    /// The secrets that both sides know then.
    pub secrets: Column,
}

/// A ciphertext, and the key to which it was sent.
#[derive(Clone, Copy, Debug)]
pub struct ToDecapsulate<'a> {
    /// The private key.
    pub key: &'a PrivateKey,
    /// The ciphertext.
    pub ciphertext: &'a [u8],
}

impl Workers {
    /// Makes a secret for each public key, and a ciphertext that carries the secret.
    pub fn encapsulate_many<'a>(
        &self,
        kem: Kem,
        items: &(impl Rows<Key<'a>> + ?Sized),
    ) -> Result<Encapsulated, Error> {
        let mut ciphertexts = Column::new(items.len(), kem.ciphertext_bytes())?;
        let mut secrets = Column::new(items.len(), kem.shared_bytes())?;
        self.run(
            items.len(),
            Effort::Short,
            None,
            (ciphertexts.place(), secrets.place()),
            |thread, numbers, (ciphertexts, secrets)| {
                let read = |number| {
                    let public = match items.row(number) {
                        Key::Raw(bytes) => Bytes::from_slice(bytes),
                        Key::Object(key) => match &key.half {
                            Public::Kem(own, bytes) if *own == kem => Bytes::from_slice(bytes),
                            _ => return Err(Reason::OtherAlgorithm),
                        },
                    };
                    let coins = None;
                    Ok(Request::Encapsulate(ops::EncapsulateInput {
                        kem,
                        public,
                        coins,
                    }))
                };
                let requests = numbers.map(read).collect();
                thread.execute(ops::Shape::Encapsulate(kem), requests, |number, answer| {
                    let (ciphertext, secret) = match &answer {
                        Ok(Response::Encapsulated(sent)) => {
                            (Ok(&sent.ciphertext[..]), Ok(sent.secret.as_bytes()))
                        }
                        Ok(_) => (Err(Reason::Internal), Err(Reason::Internal)),
                        Err(reason) => (Err(*reason), Err(*reason)),
                    };
                    ciphertexts.set(number, ciphertext);
                    secrets.set(number, secret);
                });
            },
        )?;
        Ok(Encapsulated {
            ciphertexts,
            secrets,
        })
    }

    /// Finds the secret of each ciphertext. A ciphertext of the right length that belongs to
    /// another key has a secret that nobody else knows, as FIPS 203 requires.
    pub fn decapsulate_many<'a>(
        &self,
        kem: Kem,
        items: &(impl Rows<ToDecapsulate<'a>> + ?Sized),
    ) -> Result<Column, Error> {
        let mut secrets = Column::new(items.len(), kem.shared_bytes())?;
        self.run(
            items.len(),
            Effort::Short,
            None,
            secrets.place(),
            |thread, numbers, place| {
                let read = |number| {
                    let item = items.row(number);
                    let Private::Kem(key) = &item.key.half else {
                        return Err(Reason::OtherAlgorithm);
                    };
                    if key.kem() != kem {
                        return Err(Reason::OtherAlgorithm);
                    }
                    if item.ciphertext.len() != kem.ciphertext_bytes() {
                        return Err(Reason::MalformedInput);
                    }
                    Ok(Request::Decapsulate(ops::DecapsulateInput {
                        key: Arc::clone(key),
                        ciphertext: Bytes::from_slice(item.ciphertext),
                    }))
                };
                let requests = numbers.map(read).collect();
                thread.execute(
                    ops::Shape::Decapsulate(kem),
                    requests,
                    |number, answer| match answer {
                        Ok(Response::Secret(secret)) => place.set(number, Ok(secret.as_bytes())),
                        Ok(_) => place.set(number, Err(Reason::Internal)),
                        Err(reason) => place.set(number, Err(reason)),
                    },
                );
            },
        )?;
        Ok(secrets)
    }
}
