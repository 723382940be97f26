//! Secrets that two keys agree on.

use lockstep_ops::{Failed, Secret};

use crate::column::Column;
use crate::device;
use crate::error::{Error, Reason};
use crate::key::{Algorithm, Private, PrivateKey, Public};
use crate::rows::Rows;
use crate::verify::Key;
use crate::workers::{Effort, Thread, Workers};

/// Two keys that agree on a secret.
#[derive(Clone, Copy, Debug)]
pub struct ToAgree<'a> {
    /// The own private key.
    pub key: &'a PrivateKey,
    /// The public key of the other side.
    pub peer: Key<'a>,
}

impl<'a> ToAgree<'a> {
    /// Returns an item.
    pub fn new(key: &'a PrivateKey, peer: impl Into<Key<'a>>) -> ToAgree<'a> {
        let peer = peer.into();
        ToAgree { key, peer }
    }
}

impl Workers {
    /// Agrees on secrets by X25519 or by ECDH on P-256 or P-384; returns one for each item, in
    /// their order. A secret of X25519 has 32 bytes; a secret of ECDH is the x-coordinate.
    pub fn agree_many<'a>(
        &self,
        algorithm: Algorithm,
        items: &(impl Rows<ToAgree<'a>> + ?Sized),
    ) -> Result<Column, Error> {
        let curve = algorithm.curve();
        let width = algorithm.agreed_bytes().ok_or(Error::Unsupported)?;
        let mut secrets = Column::new(items.len(), width)?;
        self.run(
            items.len(),
            Effort::Short,
            curve.is_none().then_some(device::Kind::X25519),
            secrets.place(),
            |thread, numbers, place| {
                let items: Vec<_> = numbers.map(|number| items.row(number)).collect();
                let is_fit = |item: &ToAgree<'_>| {
                    item.key.algorithm() == algorithm
                        && match item.peer {
                            Key::Object(peer) => peer.algorithm() == algorithm,
                            Key::Raw(_) => true,
                        }
                };
                let (mut fit, mut others) = (Vec::new(), Vec::new());
                for (number, item) in items.iter().enumerate() {
                    match is_fit(item) {
                        true => fit.push((number, item)),
                        false => others.push(number),
                    }
                }
                for number in others {
                    place.set(number, Err(Reason::OtherAlgorithm));
                }
                let mut numbers = fit.iter().map(|(number, _)| *number);
                let take = |secret: Result<&[u8], _>| {
                    if let Some(number) = numbers.next() {
                        place.set(number, secret.map_err(Reason::from));
                    }
                };
                let peer = |item: &ToAgree<'a>| match item.peer {
                    Key::Raw(bytes) => bytes,
                    Key::Object(peer) => match &peer.half {
                        Public::Ec(_, point) => point,
                        Public::X25519(bytes) => &bytes[..],
                        _ => &[],
                    },
                };
                match curve {
                    Some(curve) => {
                        let keys = fit.iter().filter_map(|(_, item)| match &item.key.half {
                            Private::Ec(key) => Some((&**key, peer(item))),
                            _ => None,
                        });
                        let keys: Vec<_> = keys.collect();
                        thread.lanes.agree_ecdh(curve, &keys, take);
                    }
                    None => {
                        let keys = fit.iter().filter_map(|(_, item)| match &item.key.half {
                            Private::X25519(key) => Some((key.as_bytes(), peer(item))),
                            _ => None,
                        });
                        let keys: Vec<_> = keys.collect();
                        thread.agree_x25519(&keys, take);
                    }
                }
            },
        )?;
        Ok(secrets)
    }
}

impl Thread<'_> {
    /// Agrees by X25519 on the secret of each pair: a secret key and the peer's public key. Gives
    /// the secrets to `take`, in their order.
    fn agree_x25519(
        &mut self,
        keys: &[(&[u8], &[u8])],
        mut take: impl FnMut(Result<&[u8], Failed>),
    ) {
        let Some(device) = self.device else {
            return self.lanes.agree_x25519_of(keys, take);
        };
        let Some(shared) = device::x25519(device, keys) else {
            self.gives_back = true;
            return;
        };
        // A zero secret may be recognised in variable time: the call refuses it.
        let is_zero =
            |secret: &Secret| secret.as_bytes().iter().fold(0, |bits, byte| bits | byte) == 0;
        let is_there: Vec<bool> = shared.iter().map(|secret| !is_zero(secret)).collect();
        let again = device::again(&is_there);
        let inputs: Vec<_> = again.iter().map(|number| keys[*number]).collect();
        let mut computed = Vec::with_capacity(inputs.len());
        self.lanes
            .agree_x25519_of(&inputs, |secret| computed.push(secret.map(Secret::new)));
        let is_wrong = |(number, secret): (&usize, &Result<Secret, Failed>)| {
            let (own, other) = (&shared[*number], secret.as_ref().ok());
            let differ = |other: &Secret| {
                let pairs = own.as_bytes().iter().zip(other.as_bytes());
                pairs.fold(0, |bits, (one, other)| bits | (one ^ other)) != 0
            };
            other.map_or(!is_zero(own), differ)
        };
        if again.iter().zip(&computed).any(is_wrong) {
            device.distrust();
            self.gives_back = true;
            return;
        }
        let mut computed = again.into_iter().zip(computed).peekable();
        for (number, secret) in shared.iter().enumerate() {
            match computed.next_if(|(place, _)| *place == number) {
                Some((_, Ok(secret))) => take(Ok(secret.as_bytes())),
                Some((_, Err(failed))) => take(Err(failed)),
                None => take(Ok(secret.as_bytes())),
            }
        }
    }
}
