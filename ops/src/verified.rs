//! The check of an RSA result that was computed elsewhere. Only a checked result leaves.

use lockstep_kernels::rsa::{JobError, Scratch, Signature, Verified, verified};

use zeroize::Zeroizing;

use crate::failed::Failed;
use crate::rsa_key::RsaKey;

impl RsaKey {
    /// Returns a result that was computed elsewhere for this input, if output^e mod n = input. The
    /// thread needs [`ROOM_BYTES`](crate::ROOM_BYTES) of stack.
    pub fn verified(&self, input: &[u8], output: Vec<u8>) -> Result<Verified<Signature>, Failed> {
        let mut output = Zeroizing::new(output);
        let mut scratch = Scratch::try_new().ok_or(Failed::NoMemory)?;
        let output = std::mem::take(&mut *output);
        let result = verified(self.private(), input, output, &mut scratch);
        result.map_err(|error| match error {
            JobError::CheckFailed => Failed::CheckFailed,
            error => Failed::Input(error),
        })
    }
}
