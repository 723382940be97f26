//! The check of a request against the rights on its key.

use lockstep_engine::{Request, Secret};
use lockstep_remote::Operation;
use lockstep_remote::protocol::{Uses, status};

use crate::clients::padding::is_signature;
use crate::keys::key::{Key, Private};

/// A request for the engine with the check that its input still needs; or the status of the
/// refusal.
pub type Asked = Result<(Request, InputCheck), u16>;

/// Check of an input. It takes time, so the daemon does it only at the request's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputCheck {
    /// No check.
    None,
    /// The padding must be that of a signature.
    Signature,
}

impl InputCheck {
    /// Returns whether the input passes.
    pub fn passes(self, input: &[u8]) -> bool {
        self == InputCheck::None || is_signature(input)
    }
}

/// Returns the request for an operation with this key.
pub fn asked(key: &Key, uses: Uses, operation: Operation, input: &[u8]) -> Asked {
    use Operation::{DeferrableRsaPrivate, DeterministicMlDsaSign, MlDsaSign, RsaPrivate};
    let is_rsa = matches!(operation, RsaPrivate | DeferrableRsaPrivate);
    if !is_rsa && !uses.sign {
        return Err(status::FORBIDDEN);
    }
    let is_of_key = match &key.private {
        Private::Rsa(_) => is_rsa,
        Private::Ec(_) => operation == Operation::EcdsaSign,
        Private::Ed25519(_) => operation == Operation::Ed25519Sign,
        Private::MlDsa(_) => matches!(operation, MlDsaSign | DeterministicMlDsaSign),
    };
    if !is_of_key {
        return Err(status::UNFIT);
    }
    let randomness = (operation == DeterministicMlDsaSign).then(|| Secret::new(&[0; 32]));
    let request = key.private.request(input, randomness);
    let request = request.ok_or(status::UNFIT)?;
    if !uses.any() {
        return Err(status::FORBIDDEN);
    }
    let check = match is_rsa && !uses.decrypt {
        true => InputCheck::Signature,
        false => InputCheck::None,
    };
    Ok((request, check))
}

#[cfg(test)]
mod tests {
    use lockstep_engine::{Config, MlDsa};

    use super::*;
    use crate::keys::key::tests::{ed25519, ml_dsa, rsa2048};

    const SIGN: Uses = Uses {
        sign: true,
        decrypt: false,
    };
    const DECRYPT: Uses = Uses {
        sign: false,
        decrypt: true,
    };

    #[test]
    fn a_key_of_ml_dsa_signs_the_representative_of_a_message() {
        let key = ml_dsa(MlDsa::MlDsa65);
        let asked = |uses, operation, input: &[u8]| {
            let asked = asked(&key, uses, operation, input);
            asked.map(|(request, check)| match request {
                Request::MlDsaSign(input) => (input.mu, input.randomness.is_none(), check),
                _ => panic!("another request"),
            })
        };
        let mu = [9; 64];
        let [hedged, fixed] = [Operation::MlDsaSign, Operation::DeterministicMlDsaSign];
        assert_eq!(asked(SIGN, hedged, &mu), Ok((mu, true, InputCheck::None)));
        assert_eq!(asked(SIGN, fixed, &mu), Ok((mu, false, InputCheck::None)));
        for operation in [hedged, fixed] {
            let forbidden = Err(status::FORBIDDEN);
            assert_eq!(asked(DECRYPT, operation, &mu), forbidden);
            for length in [0, 32, 63, 65, 1024] {
                let unfit = asked(SIGN, operation, &vec![9; length]);
                assert_eq!(unfit, Err(status::UNFIT), "{length}");
            }
        }
        assert_eq!(asked(SIGN, Operation::Ed25519Sign, &mu), Err(status::UNFIT));
        let other = super::asked(&ed25519(), SIGN, hedged, &mu).map(|_| ());
        assert_eq!(other, Err(status::UNFIT));
    }

    #[test]
    fn a_key_that_only_signs_takes_signatures_alone() {
        let rsa = rsa2048();
        let check = |uses, operation| {
            let asked = asked(&rsa, uses, operation, &[7; 256]);
            asked.map(|(_, check)| check)
        };
        let both = Uses {
            sign: true,
            decrypt: true,
        };
        for operation in [Operation::RsaPrivate, Operation::DeferrableRsaPrivate] {
            assert_eq!(check(SIGN, operation), Ok(InputCheck::Signature));
            assert_eq!(check(DECRYPT, operation), Ok(InputCheck::None));
            assert_eq!(check(both, operation), Ok(InputCheck::None));
            assert_eq!(check(Uses::default(), operation), Err(status::FORBIDDEN));
        }
        assert!(!InputCheck::Signature.passes(&[7; 256]));
        assert!(InputCheck::None.passes(&[7; 256]));
    }

    #[test]
    fn a_request_that_does_not_fit_its_key_or_the_uses_is_refused() {
        let ed25519 = ed25519();
        assert_eq!(ed25519.kind(), "Ed25519");
        let ask = |uses, operation, input: &[u8]| asked(&ed25519, uses, operation, input).err();
        assert_eq!(ask(SIGN, Operation::Ed25519Sign, &[]), None);
        assert_eq!(ask(SIGN, Operation::Ed25519Sign, &[7; 1024]), None);
        let forbidden = Some(status::FORBIDDEN);
        assert_eq!(ask(DECRYPT, Operation::Ed25519Sign, &[7]), forbidden);
        assert_eq!(
            ask(Uses::default(), Operation::Ed25519Sign, &[7]),
            forbidden
        );
        let text = "-----BEGIN PRIVATE KEY-----\n\
                    MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgCb73sUhR5EDkkm4Z\n\
                    pIaKHi8mos9G9IuKc0NOdij43NOhRANCAATOS22SYWGU/KWLrhr9Lfa7XDw3tA+G\n\
                    ++PPa6wSLGzpXP/MJ58EkaGF2XtpVUbQ6f5QTR4LwDL/x20TFlBID60Z\n\
                    -----END PRIVATE KEY-----\n";
        let engine = crate::engine(Config::default());
        let p256 = Key::from_pem(text.as_bytes(), &engine).expect("a key");
        let rsa = rsa2048();
        for (length, fits) in [(0, false), (1, true), (64, true), (65, false)] {
            let asked = asked(&p256, SIGN, Operation::EcdsaSign, &vec![7; length]);
            assert_eq!(asked.is_ok(), fits, "{length}");
        }
        for (length, fits) in [(0, false), (255, false), (256, true), (257, false)] {
            let asked = asked(&rsa, SIGN, Operation::RsaPrivate, &vec![7; length]);
            assert_eq!(asked.is_ok(), fits, "{length}");
        }
        let unfit = Some(status::UNFIT);
        assert_eq!(ask(SIGN, Operation::EcdsaSign, &[7; 32]), unfit);
        assert_eq!(ask(SIGN, Operation::RsaPrivate, &[7; 256]), unfit);
        assert_eq!(ask(SIGN, Operation::DeferrableRsaPrivate, &[7; 256]), unfit);
    }
}
