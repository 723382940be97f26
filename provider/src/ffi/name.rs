//! Names of parameters (`core_names.h`).

use std::ffi::CStr;

/// Declares names, and lists them for the comparison with the header.
macro_rules! names {
    ($($name:ident = $text:literal;)*) => {
        $(pub const $name: &CStr = $text;)*

        #[cfg(test)]
        pub const ALL: &[(&str, &CStr)] = &[$((stringify!($name), $name)),*];
    };
}

names! {
    CAPABILITY_TLS_GROUP_ALG = c"tls-group-alg";
    CAPABILITY_TLS_GROUP_ID = c"tls-group-id";
    CAPABILITY_TLS_GROUP_IS_KEM = c"tls-group-is-kem";
    CAPABILITY_TLS_GROUP_MAX_DTLS = c"tls-max-dtls";
    CAPABILITY_TLS_GROUP_MAX_TLS = c"tls-max-tls";
    CAPABILITY_TLS_GROUP_MIN_DTLS = c"tls-min-dtls";
    CAPABILITY_TLS_GROUP_MIN_TLS = c"tls-min-tls";
    CAPABILITY_TLS_GROUP_NAME = c"tls-group-name";
    CAPABILITY_TLS_GROUP_NAME_INTERNAL = c"tls-group-name-internal";
    CAPABILITY_TLS_GROUP_SECURITY_BITS = c"tls-group-sec-bits";
    CIPHER_PARAM_AEAD_TAG = c"tag";
    CIPHER_PARAM_AEAD_TAGLEN = c"taglen";
    CIPHER_PARAM_AEAD_TLS1_AAD = c"tlsaad";
    CIPHER_PARAM_AEAD_TLS1_AAD_PAD = c"tlsaadpad";
    CIPHER_PARAM_AEAD_TLS1_GET_IV_GEN = c"tlsivgen";
    CIPHER_PARAM_AEAD_TLS1_IV_FIXED = c"tlsivfixed";
    CIPHER_PARAM_AEAD_TLS1_SET_IV_INV = c"tlsivinv";
    CIPHER_PARAM_IV = c"iv";
    CIPHER_PARAM_IVLEN = c"ivlen";
    CIPHER_PARAM_KEYLEN = c"keylen";
    CIPHER_PARAM_UPDATED_IV = c"updated-iv";
    KDF_PARAM_DATA = c"data";
    KDF_PARAM_DIGEST = c"digest";
    KDF_PARAM_KEY = c"key";
    KDF_PARAM_LABEL = c"label";
    KDF_PARAM_MODE = c"mode";
    KDF_PARAM_PREFIX = c"prefix";
    KDF_PARAM_SALT = c"salt";
    KEM_PARAM_IKME = c"ikme";
    OBJECT_PARAM_DATA = c"data";
    OBJECT_PARAM_DATA_STRUCTURE = c"data-structure";
    OBJECT_PARAM_DATA_TYPE = c"data-type";
    OBJECT_PARAM_REFERENCE = c"reference";
    OBJECT_PARAM_TYPE = c"type";
    PKEY_PARAM_BITS = c"bits";
    PKEY_PARAM_DHKEM_IKM = c"dhkem-ikm";
    PKEY_PARAM_ENCODED_PUBLIC_KEY = c"encoded-pub-key";
    PKEY_PARAM_GROUP_NAME = c"group";
    PKEY_PARAM_MAX_SIZE = c"max-size";
    PKEY_PARAM_ML_KEM_SEED = c"seed";
    PKEY_PARAM_PRIV_KEY = c"priv";
    PKEY_PARAM_PUB_KEY = c"pub";
    PKEY_PARAM_SECURITY_BITS = c"security-bits";
    PKEY_PARAM_SECURITY_CATEGORY = c"security-category";
    PROV_PARAM_BUILDINFO = c"buildinfo";
    PROV_PARAM_NAME = c"name";
    PROV_PARAM_STATUS = c"status";
    PROV_PARAM_VERSION = c"version";
    SIGNATURE_PARAM_CONTEXT_STRING = c"context-string";
    SIGNATURE_PARAM_DETERMINISTIC = c"deterministic";
    SIGNATURE_PARAM_MESSAGE_ENCODING = c"message-encoding";
    SIGNATURE_PARAM_MU = c"mu";
    SIGNATURE_PARAM_SIGNATURE = c"signature";
    SIGNATURE_PARAM_TEST_ENTROPY = c"test-entropy";
    SIGNATURE_PARAM_TLS_VERSION = c"tls-version";
}
