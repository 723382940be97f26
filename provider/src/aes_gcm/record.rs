//! Records of TLS 1.2 (RFC 5288): the explicit part of the IV, the message and its tag, in place.

use lockstep_kernels::InOut;
use lockstep_kernels::aes_gcm::{TAG_BYTES, tags_are_equal};
use lockstep_kernels::wipe;

use super::context::Context;
use super::iv::{EXPLICIT, State};
use crate::ffi::{Bytes, failed, reason};

/// Length of the data that a record authenticates beside its message: its number, its type, the
/// version and the length.
const HEADER: usize = 13;

impl Context {
    /// Notes the header of the next record, and puts the length of the record's message into the
    /// header's length field. Returns false for an invalid header; if only the length field is
    /// invalid, the next message is a record nevertheless.
    pub fn set_record(&mut self, header: Bytes<'_>) -> bool {
        let to = &mut self.buffer[..HEADER];
        if header.len() != HEADER || header.read(|header| to.copy_from_slice(header)).is_none() {
            return false;
        }
        self.is_record = true;
        let length = &mut self.buffer[HEADER - 2..HEADER];
        let record = usize::from(u16::from_be_bytes([length[0], length[1]]));
        let beside = EXPLICIT + if self.encrypts { 0 } else { TAG_BYTES };
        let Some(message) = record.checked_sub(beside) else {
            return false;
        };
        length.copy_from_slice(&(message as u16).to_be_bytes());
        self.record_padding = TAG_BYTES;
        true
    }

    /// Encrypts or decrypts a record. Returns the length of the output, or None for an error. Even
    /// after an error, the next message is no record, and must have another IV.
    pub fn record(&mut self, bytes: Option<&mut [u8]>) -> Option<usize> {
        let length = bytes.and_then(|bytes| self.whole_record(bytes));
        self.iv.state = State::Finished;
        self.is_record = false;
        length
    }

    fn whole_record(&mut self, bytes: &mut [u8]) -> Option<usize> {
        let length = bytes.len();
        let (explicit, rest) = bytes.split_first_chunk_mut::<EXPLICIT>()?;
        let (message, tag) = rest.split_last_chunk_mut::<TAG_BYTES>()?;
        if !self.has_key {
            return None;
        }
        if self.encrypts {
            self.encrypt_record(explicit, message, tag)?;
            return Some(length);
        }
        self.decrypt_record(explicit, message, tag)?;
        Some(message.len())
    }

    fn encrypt_record(
        &mut self,
        explicit: &mut [u8; EXPLICIT],
        message: &mut [u8],
        tag: &mut [u8; TAG_BYTES],
    ) -> Option<()> {
        self.records = self.records.wrapping_add(1);
        if self.records == 0 {
            failed(reason::TOO_MANY_RECORDS);
            return None;
        }
        let write = |iv: &[u8]| match iv.last_chunk() {
            Some(end) => {
                *explicit = *end;
                true
            }
            None => false,
        };
        if !self.begin_with_counted_iv(write) {
            return None;
        }
        let (key, ours) = (&self.key, &mut self.message);
        ours.authenticate(key, &self.buffer[..HEADER]).ok()?;
        ours.encrypt(key, InOut::in_place(message)).ok()?;
        *tag = ours.tag(key);
        self.tag_length = Some(TAG_BYTES);
        Some(())
    }

    /// Decrypts a record, and wipes a message with a wrong tag.
    fn decrypt_record(
        &mut self,
        explicit: &[u8; EXPLICIT],
        message: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> Option<()> {
        if !self.begin_with_explicit_iv(Bytes::new(explicit)) {
            return None;
        }
        let (key, ours) = (&self.key, &mut self.message);
        ours.authenticate(key, &self.buffer[..HEADER]).ok()?;
        ours.decrypt(key, InOut::in_place(message)).ok()?;
        self.tag_length = Some(TAG_BYTES);
        if !tags_are_equal(&ours.tag(key), tag) {
            wipe(message);
            return None;
        }
        Some(())
    }
}
