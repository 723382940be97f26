//! Key objects whose arithmetic the lanes, or the key daemon, do.

pub mod attached;
pub mod ec_method;
pub mod ed25519_keys;
pub mod eddsa;
pub mod generation;
pub mod keymgmt;
pub mod ml_dsa;
pub mod number;
pub mod rsa_method;
pub mod shared_key;
pub mod wrapped;
pub mod xdh;
