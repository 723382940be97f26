//! Key encapsulation: ML-KEM-768, and the hybrids of it in TLS 1.3.
//!
//! OpenSSL has these from 3.5 on. Earlier ones have no functions that ours could stand around, so
//! the [keys] and the [operation] are the module's own with every OpenSSL. The
//! formats are OpenSSL's. What the lanes decline is asked of them once more, without a pause. What
//! fails then leaves a reason in the queue of errors.

mod keys;
mod mechanism;
mod operation;
mod refused;

pub use keys::functions as key_functions;
pub use mechanism::{
    Mechanism, MlKem768, SECURITY_BITS, SecP256r1MlKem768, TLS_GROUPS, TlsGroup, X25519MlKem768,
};
pub use operation::functions;
