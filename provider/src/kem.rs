//! Key encapsulation: ML-KEM, and the hybrids of it in TLS 1.3.
//!
//! OpenSSL has these from 3.5 on. Earlier versions have no functions that the module's could wrap,
//! so the [keys] and the [operation] are the module's own with every OpenSSL. The formats are
//! OpenSSL's. If the engine declines an operation, the calling thread computes on the lanes itself,
//! without a pause. If this fails too, the queue of errors gets the reason.

mod keys;
mod mechanism;
mod operation;
mod refused;

pub use keys::functions as key_functions;
pub use mechanism::{
    Mechanism, MlKem512, MlKem768, MlKem1024, NAMES_OF_OWN, SecP256r1MlKem768, SecP384r1MlKem1024,
    TLS_GROUPS, TlsGroup, X25519MlKem768,
};
pub use operation::functions;
