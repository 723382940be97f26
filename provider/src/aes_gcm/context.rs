//! A context, and the steps of a message in it.

use lockstep_engine::ExternalEvent;
use lockstep_kernels::aes_gcm::{Key, Lanes, Message, TAG_BYTES, tags_are_equal};
use lockstep_kernels::wipe;

use super::iv::{Iv, State};
use crate::ffi::{Bytes, Params, ProvCtx, Transformed, failed, reason};
use crate::process;

/// A context: a key, an IV, and the state of the message with both.
pub struct Context {
    pub(super) key: Key,
    pub(super) message: Message,
    pub(super) iv: Iv,
    pub(super) provctx: ProvCtx,
    pub(super) key_length: usize,
    pub(super) has_key: bool,
    pub(super) encrypts: bool,
    /// Whether the message had a wrong tag.
    pub(super) is_spoiled: bool,
    /// Length of the tag, once it is known.
    pub(super) tag_length: Option<usize>,
    /// The tag of a message that was encrypted or is to be decrypted, or the header of a record.
    pub(super) buffer: [u8; TAG_BYTES],
    /// Whether the next message is a record of TLS 1.2, whose header is in the buffer.
    pub(super) is_record: bool,
    /// Difference between the lengths of a record and of its message, once there was a record.
    pub(super) record_padding: usize,
    /// Number of records that were encrypted with the key.
    pub(super) records: u64,
}

impl Drop for Context {
    fn drop(&mut self) {
        wipe(&mut self.buffer);
    }
}

impl Context {
    /// Makes a context without a key, for keys of `key_length` bytes.
    pub fn new(provctx: ProvCtx, lanes: Lanes, key_length: usize) -> Box<Context> {
        Box::new(Context {
            key: Key::new(lanes),
            message: Message::default(),
            iv: Iv::UNSET,
            provctx,
            key_length,
            has_key: false,
            encrypts: false,
            is_spoiled: false,
            tag_length: None,
            buffer: [0; TAG_BYTES],
            is_record: false,
            record_padding: 0,
            records: 0,
        })
    }

    /// Copies the context directly to its final place: a clone would leave the key on the stack of
    /// the caller.
    pub fn duplicate(&self) -> Box<Context> {
        let Context {
            key,
            message,
            iv,
            provctx,
            key_length,
            has_key,
            encrypts,
            is_spoiled,
            tag_length,
            buffer,
            is_record,
            record_padding,
            records,
        } = self;
        let mut copy = Context::new(*provctx, key.lanes(), *key_length);
        copy.key.copy_from(key);
        copy.message.copy_from(message);
        copy.iv.copy_from(iv);
        copy.has_key = *has_key;
        copy.encrypts = *encrypts;
        copy.is_spoiled = *is_spoiled;
        copy.tag_length = *tag_length;
        copy.buffer.copy_from_slice(buffer);
        copy.is_record = *is_record;
        copy.record_padding = *record_padding;
        copy.records = *records;
        copy
    }

    /// Takes a key, an IV and parameters, as far as they are given; returns false at the first that
    /// is refused.
    pub fn begin(
        &mut self,
        encrypts: bool,
        key: Bytes<'_>,
        iv: Bytes<'_>,
        params: Params<'_>,
    ) -> bool {
        self.encrypts = encrypts;
        if !iv.is_null() && !self.iv.set(iv) {
            return failed(reason::INVALID_IV_LENGTH);
        }
        if !key.is_null() && !self.set_key(key) {
            return failed(reason::INVALID_KEY_LENGTH);
        }
        params.is_null() || self.set_params(params)
    }

    fn set_key(&mut self, key: Bytes<'_>) -> bool {
        if key.len() != self.key_length {
            return false;
        }
        let ours = &mut self.key;
        if !matches!(key.read(|key| ours.set(key)), Some(Ok(()))) {
            return false;
        }
        if !self.has_key {
            self.has_key = true;
            process::count(ExternalEvent::Cipher);
        }
        // As in OpenSSL, a message that has begun with an earlier key is dropped.
        if self.iv.state == State::Copied {
            self.message = Message::without_iv();
            self.is_spoiled = false;
        }
        self.records = 0;
        true
    }

    /// Encrypts or decrypts bytes, authenticates them if there is no output, or ends the message if
    /// there is no input. Returns the length to report to the caller, or None for an error.
    pub fn transform(&mut self, bytes: &mut Transformed<'_>) -> Option<usize> {
        if self.is_record {
            return self.record(bytes.in_place());
        }
        if bytes.from().is_null() {
            return self.finish().map(|()| 0);
        }
        self.begin_message()?;
        let (key, message) = (&self.key, &mut self.message);
        let length = bytes.from().len();
        let done = if !bytes.has_output() {
            bytes
                .from()
                .read(|additional| message.authenticate(key, additional))?
        } else if self.encrypts {
            message.encrypt(key, bytes.in_out()?)
        } else {
            message.decrypt(key, bytes.in_out()?)
        };
        done.ok().map(|()| length)
    }

    /// Begins a message with the IV, unless a message has begun with it.
    fn begin_message(&mut self) -> Option<()> {
        if !self.has_key {
            return None;
        }
        match self.iv.state {
            State::Copied => return Some(()),
            State::Finished => return None,
            State::Unset => {
                if !self.encrypts || !self.iv.randomize(self.provctx) {
                    return None;
                }
            }
            State::Buffered => {}
        }
        self.begin_with_iv();
        Some(())
    }

    fn begin_with_iv(&mut self) {
        self.message.begin(&self.key, self.iv.as_slice());
        self.iv.state = State::Copied;
        self.is_spoiled = false;
    }

    /// Begins a message with the IV, gives the IV to `write`, and increments it. Returns false if
    /// OpenSSL's rules forbid that, or if `write` returns false.
    pub fn begin_with_counted_iv(&mut self, write: impl FnOnce(&[u8]) -> bool) -> bool {
        if !self.iv.counts() || !self.has_key || !write(self.iv.as_slice()) {
            return false;
        }
        self.begin_with_iv();
        self.iv.count();
        true
    }

    /// Begins a message with an IV that ends with `part`. Returns false if OpenSSL's rules forbid
    /// that.
    pub fn begin_with_explicit_iv(&mut self, part: Bytes<'_>) -> bool {
        let may = self.has_key && !self.encrypts && self.iv.set_explicit(part);
        if may {
            self.begin_with_iv();
        }
        may
    }

    /// Ends the message: makes its tag, or compares it. Returns None if the tag is wrong or
    /// missing.
    pub fn finish(&mut self) -> Option<()> {
        if self.is_record {
            return self.record(None).map(drop);
        }
        self.begin_message()?;
        // After a wrong tag, every further call for the same message fails. OpenSSL would compute
        // another tag, from a value that is not the message's hash.
        if self.is_spoiled {
            return None;
        }
        if self.encrypts {
            self.buffer = self.message.tag(&self.key);
            #[cfg(feature = "fault-injection")]
            if crate::fault::planted("wrong-tag") {
                self.buffer[TAG_BYTES - 1] ^= 1;
            }
            self.tag_length = Some(TAG_BYTES);
        } else {
            let length = self.tag_length?;
            let tag = self.message.tag(&self.key);
            self.is_spoiled = !tags_are_equal(&tag[..length], &self.buffer[..length]);
            if self.is_spoiled {
                return None;
            }
        }
        self.iv.state = State::Finished;
        Some(())
    }
}
