//! Parameters of a context, by OpenSSL's rules.

use std::ffi::CStr;

use lockstep_kernels::aes_gcm::TAG_BYTES;

use super::context::Context;
use crate::ffi::{Params, ParamsMut, Question, Value, failed, name, reason};

/// Settable parameters, in the order in which OpenSSL looks for them.
const SETTABLE: [&CStr; 5] = [
    name::CIPHER_PARAM_AEAD_TAG,
    name::CIPHER_PARAM_IVLEN,
    name::CIPHER_PARAM_AEAD_TLS1_AAD,
    name::CIPHER_PARAM_AEAD_TLS1_IV_FIXED,
    name::CIPHER_PARAM_AEAD_TLS1_SET_IV_INV,
];

/// Gettable parameters, in the order in which OpenSSL looks for them.
const GETTABLE: [&CStr; 8] = [
    name::CIPHER_PARAM_IVLEN,
    name::CIPHER_PARAM_KEYLEN,
    name::CIPHER_PARAM_AEAD_TAGLEN,
    name::CIPHER_PARAM_IV,
    name::CIPHER_PARAM_UPDATED_IV,
    name::CIPHER_PARAM_AEAD_TLS1_AAD_PAD,
    name::CIPHER_PARAM_AEAD_TAG,
    name::CIPHER_PARAM_AEAD_TLS1_GET_IV_GEN,
];

impl Context {
    /// Sets the parameters, up to the first that cannot be set; returns false then.
    pub fn set_params(&mut self, params: Params<'_>) -> bool {
        let mut values = params.values();
        match (values.next(), values.next()) {
            (None, _) => true,
            // libssl and EVP set one parameter in each call.
            (Some(only), None) => self.set_param(only),
            _ => SETTABLE.into_iter().all(|name| {
                let given = params.get(name);
                given.is_none_or(|given| self.set_param(given))
            }),
        }
    }

    fn set_param(&mut self, given: Value<'_>) -> bool {
        let name = given.name();
        if name == name::CIPHER_PARAM_AEAD_TAG {
            self.set_tag(given)
        } else if name == name::CIPHER_PARAM_IVLEN {
            self.set_iv_length(given)
        } else if name == name::CIPHER_PARAM_AEAD_TLS1_AAD {
            self.set_record_header(given)
        } else if name == name::CIPHER_PARAM_AEAD_TLS1_IV_FIXED {
            self.fix_iv(given)
        } else if name == name::CIPHER_PARAM_AEAD_TLS1_SET_IV_INV {
            let part = given.octets_or_whole(0).filter(|part| !part.is_null());
            part.is_some_and(|part| self.begin_with_explicit_iv(part))
        } else {
            true
        }
    }

    /// Sets the tag that a message to decrypt must have.
    fn set_tag(&mut self, given: Value<'_>) -> bool {
        let tag = given.octets_or_whole(usize::MAX);
        let copied = tag.filter(|tag| tag.len() <= TAG_BYTES).and_then(|tag| {
            let to = &mut self.buffer[..tag.len()];
            (!tag.is_null()).then(|| tag.read(|tag| to.copy_from_slice(tag)))??;
            Some(tag.len())
        });
        let Some(length) = copied else {
            return failed(reason::FAILED_TO_GET_PARAMETER);
        };
        if length == 0 || self.encrypts {
            return failed(reason::INVALID_TAG);
        }
        self.tag_length = Some(length);
        true
    }

    fn set_iv_length(&mut self, given: Value<'_>) -> bool {
        match given.size() {
            None => failed(reason::FAILED_TO_GET_PARAMETER),
            Some(length) => self.iv.set_length(length) || failed(reason::INVALID_IV_LENGTH),
        }
    }

    fn set_record_header(&mut self, given: Value<'_>) -> bool {
        match given.octets_or_whole(usize::MAX) {
            None => failed(reason::FAILED_TO_GET_PARAMETER),
            Some(header) => self.set_record(header) || failed(reason::INVALID_AAD),
        }
    }

    fn fix_iv(&mut self, given: Value<'_>) -> bool {
        let whole = self.iv.as_slice().len();
        let fixed = given.octets_or_whole(whole);
        let is_whole = given.is_sizeless();
        let (provctx, encrypts) = (self.provctx, self.encrypts);
        let done = fixed.is_some_and(|fixed| self.iv.fix(provctx, fixed, is_whole, encrypts));
        done || failed(reason::FAILED_TO_GET_PARAMETER)
    }

    /// Answers the questions, up to the first that cannot be answered; returns false then.
    pub fn get_params(&mut self, mut params: ParamsMut<'_>) -> bool {
        let mut questions = params.questions();
        match (questions.next(), questions.next()) {
            (None, _) => true,
            // libssl and EVP ask for one parameter in each call.
            (Some(only), None) => self.answer(only),
            _ => {
                drop(questions);
                GETTABLE.into_iter().all(|name| {
                    let asked = params.questions().find(|question| question.name() == name);
                    asked.is_none_or(|question| self.answer(question))
                })
            }
        }
    }

    fn answer(&mut self, mut question: Question<'_>) -> bool {
        let name = question.name();
        let size = if name == name::CIPHER_PARAM_IVLEN {
            self.iv.as_slice().len()
        } else if name == name::CIPHER_PARAM_AEAD_TAG {
            return self.answer_tag(question);
        } else if name == name::CIPHER_PARAM_AEAD_TLS1_AAD_PAD {
            self.record_padding
        } else if name == name::CIPHER_PARAM_KEYLEN {
            self.key_length
        } else if name == name::CIPHER_PARAM_AEAD_TAGLEN {
            self.tag_length.unwrap_or(TAG_BYTES)
        } else if name == name::CIPHER_PARAM_IV || name == name::CIPHER_PARAM_UPDATED_IV {
            return self.answer_iv(question);
        } else if name == name::CIPHER_PARAM_AEAD_TLS1_GET_IV_GEN {
            return self.begin_with_counted_iv(|iv| question.answer_end_of(iv));
        } else {
            return true;
        };
        question.answer_size(size) || failed(reason::FAILED_TO_SET_PARAMETER)
    }

    fn answer_tag(&self, mut question: Question<'_>) -> bool {
        let room = question.room();
        if !(1..=TAG_BYTES).contains(&room) || !self.encrypts || self.tag_length.is_none() {
            return failed(reason::INVALID_TAG);
        }
        let answered = question.answer_octet_string(&self.buffer[..room]);
        answered || failed(reason::FAILED_TO_SET_PARAMETER)
    }

    fn answer_iv(&self, mut question: Question<'_>) -> bool {
        let iv = self.iv.as_slice();
        if self.iv.is_unset() {
            return false;
        }
        if iv.len() > question.room() {
            return failed(reason::INVALID_IV_LENGTH);
        }
        question.answer_octets_or_pointer(iv) || failed(reason::FAILED_TO_SET_PARAMETER)
    }
}
