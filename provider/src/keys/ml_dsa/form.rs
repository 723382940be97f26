//! The parameters of a signature: how a message is represented, and where randomness comes from.

use std::ffi::CStr;

use lockstep_engine::{MlDsaKey, Secret};

use crate::ffi::{Bytes, Value, name};

/// Length of the longest context of a message.
const LONGEST_CONTEXT: usize = 255;
/// Length of the randomness of a signature.
const RANDOMNESS: usize = 32;

/// The parameters of a context, as OpenSSL's own context has noted them.
#[derive(Clone)]
pub struct Form {
    /// Context of the message.
    context: Vec<u8>,
    /// Whether the message is signed as it is given, without anything in front.
    is_raw: bool,
    /// Whether μ is given in place of the message.
    pub is_mu: bool,
    pub is_deterministic: bool,
    /// Bytes that a test gives in place of randomness.
    pub entropy: Option<Secret>,
}

/// OpenSSL's own defaults.
impl Default for Form {
    fn default() -> Form {
        Form {
            context: Vec::new(),
            is_raw: false,
            is_mu: false,
            is_deterministic: false,
            entropy: None,
        }
    }
}

impl Form {
    /// Notes a parameter; None if it cannot be read, or if OpenSSL takes it and the module does not
    /// know it. Parameters that are not settable are ignored, as OpenSSL ignores them.
    pub fn note(&mut self, value: Value<'_>, is_settable: impl Fn(&CStr) -> bool) -> Option<()> {
        let is = |value: Value<'_>| match value.int()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        match value.name() {
            known if known == name::SIGNATURE_PARAM_CONTEXT_STRING => {
                let context = value.octets()?;
                if context.len() > LONGEST_CONTEXT {
                    return None;
                }
                self.context = context.to_vec();
            }
            known if known == name::SIGNATURE_PARAM_TEST_ENTROPY => {
                let entropy = value.octets()?;
                if entropy.len() != RANDOMNESS {
                    return None;
                }
                self.entropy = Some(Secret::new(entropy));
            }
            known if known == name::SIGNATURE_PARAM_MESSAGE_ENCODING => self.is_raw = !is(value)?,
            known if known == name::SIGNATURE_PARAM_DETERMINISTIC => {
                self.is_deterministic = is(value)?;
            }
            known if known == name::SIGNATURE_PARAM_MU => self.is_mu = is(value)?,
            // The signature of a message in pieces, and the version of TLS, which libssl 4.0 passes
            // and OpenSSL ignores.
            known if known == name::SIGNATURE_PARAM_SIGNATURE => {}
            known if known == name::SIGNATURE_PARAM_TLS_VERSION => {}
            unknown if !is_settable(unknown) => {}
            _ => return None,
        }
        Some(())
    }

    /// Returns μ of a message; None if the caller gives μ itself with another length.
    pub fn mu(&self, key: &MlDsaKey, message: Bytes<'_>) -> Option<[u8; 64]> {
        if self.is_mu {
            return message.read(|mu| mu.try_into().ok()).flatten();
        }
        let mut mu = key.mu();
        #[cfg(feature = "fault-injection")]
        if crate::fault::planted("lost-context") {
            return message.read(|message| {
                mu.update(&[0, 0]);
                mu.update(message);
                mu.finish()
            });
        }
        if !self.is_raw {
            // At most 255 bytes.
            mu.update(&[0, self.context.len() as u8]);
            mu.update(&self.context);
        }
        message.read(|message| mu.update(message))?;
        Some(mu.finish())
    }

    /// Returns the randomness of a signature, unless it is drawn later.
    pub fn randomness(&self) -> Option<Secret> {
        match &self.entropy {
            Some(entropy) => Some(entropy.clone()),
            None => self.is_deterministic.then(|| Secret::new(&[0; RANDOMNESS])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::List;

    #[test]
    fn a_parameter_that_openssl_passes_over_changes_nothing() {
        let list = List::<2>::new().octets(c"unknown", &[7]);
        let value = list.as_params().values().next().expect("a parameter");
        let mut form = Form::default();
        assert_eq!(form.note(value, |_| false), Some(()));
        assert_eq!(form.note(value, |name| name == c"unknown"), None);
    }
}
