//! Compares everything in [`ffi`](super) with the headers of the OpenSSL that is installed.
//!
//! It makes a C file of static assertions from the declarations here, and the C compiler checks
//! whether the headers agree on numbers, names, layouts, and the types of all functions.

use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::offset_of;
use std::process::{Command, Stdio};

use super::*;

/// Functions that the headers of OpenSSL 3.0 do not have.
const NEWER: &[&str] = &[
    "GenGetParams",
    "GenGettableParams",
    "NewEx",
    "QueryKeyTypes",
    "SignMessageFinal",
    "SignMessageInit",
    "SignMessageUpdate",
    "VerifyMessageFinal",
    "VerifyMessageInit",
    "VerifyMessageUpdate",
];

/// Objects that C takes as non-const where Rust has a shared reference. Only one thread uses a job:
/// the thread that runs it. A library context and an RSA key have locks of their own. A signature
/// or its verification changes nothing in an EC key.
const CHANGED_BEHIND: &[&str] = &[
    "AsyncJob",
    "AsyncWaitCtx",
    "LibCtx",
    "SharedEcKey",
    "SharedRsa",
];

/// Simple types in C.
const TYPES_OF_C: &[(&str, &str)] = &[
    ("()", "void"),
    ("c_char", "char"),
    ("c_int", "int"),
    ("c_long", "long"),
    ("c_uchar", "unsigned char"),
    ("c_uint", "unsigned int"),
    ("c_void", "void"),
    ("u32", "uint32_t"),
    ("usize", "size_t"),
    ("VaList", "va_list"),
    ("Algorithm", "OSSL_ALGORITHM"),
    ("AsyncJob", "ASYNC_JOB"),
    ("AsyncWaitCtx", "ASYNC_WAIT_CTX"),
    ("Bignum", "BIGNUM"),
    ("BnCtx", "BN_CTX"),
    ("CoreBio", "OSSL_CORE_BIO"),
    ("CoreCtx", "OPENSSL_CORE_CTX"),
    ("CoreHandle", "OSSL_CORE_HANDLE"),
    ("Dispatch", "OSSL_DISPATCH"),
    ("EcGroup", "EC_GROUP"),
    ("EcKey", "EC_KEY"),
    ("EcKeyMethod", "EC_KEY_METHOD"),
    ("EcPoint", "EC_POINT"),
    ("EcdsaSig", "ECDSA_SIG"),
    ("EvpKdf", "EVP_KDF"),
    ("EvpKeyexch", "EVP_KEYEXCH"),
    ("EvpMac", "EVP_MAC"),
    ("EvpSignature", "EVP_SIGNATURE"),
    ("LibCtx", "OSSL_LIB_CTX"),
    ("Param", "OSSL_PARAM"),
    ("Pkey", "EVP_PKEY"),
    ("Provider", "OSSL_PROVIDER"),
    ("Rsa", "RSA"),
    ("RsaMethod", "RSA_METHOD"),
    ("SharedEcKey", "EC_KEY"),
    ("SharedRsa", "RSA"),
    ("Text", "char const *"),
];

/// A Rust type in C.
fn c_type(ours: &str) -> String {
    let ours = ours.trim();
    if let Some(inner) = ours.strip_prefix("Option<") {
        return c_type(inner.strip_suffix('>').expect("a type"));
    }
    if let Some(inner) = ours.strip_prefix("Owned<") {
        return c_type(inner.strip_suffix('>').expect("a type")) + " *";
    }
    if let Some(element) = ours.strip_prefix("Terminated<'static, ") {
        return c_type(element.strip_suffix('>').expect("a type")) + " const *";
    }
    if let Some(referenced) = ours.strip_prefix('&') {
        let referenced = referenced.trim_start();
        let referenced = match referenced.strip_prefix('\'') {
            Some(lifetime) => lifetime.split_once(' ').expect("a type").1,
            None => referenced,
        };
        return match referenced.strip_prefix("mut ") {
            Some(inner) => c_type(inner) + " *",
            None if CHANGED_BEHIND.contains(&referenced) => c_type(referenced) + " *",
            None => c_type(referenced) + " const *",
        };
    }
    if let Some(inner) = ours.strip_prefix("*const ") {
        return c_type(inner) + " const *";
    }
    if let Some(inner) = ours.strip_prefix("*mut ") {
        return c_type(inner) + " *";
    }
    let unbound = ours.split_once('<').map_or(ours, |(name, _)| name);
    match TYPES_OF_C.iter().find(|(name, _)| *name == unbound) {
        Some((_, in_c)) => (*in_c).to_owned(),
        // A type of functions: see `function_types`.
        None => format!("{ours} *"),
    }
}

fn c_arguments<'a>(arguments: impl IntoIterator<Item = &'a str>) -> String {
    let arguments: Vec<String> = arguments.into_iter().map(c_type).collect();
    match &arguments[..] {
        [] => "void".to_owned(),
        _ => arguments.join(", "),
    }
}

/// Parts of `text` between commas that are in no brackets.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let parts = text.split(move |byte| {
        match byte {
            '<' | '(' => depth += 1,
            '>' | ')' => depth -= 1,
            _ => {}
        }
        byte == ',' && depth == 0
    });
    parts
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect()
}

/// The function types of `types.rs` as C declares them.
fn function_types(c: &mut String) {
    let source = include_str!("types.rs").replace('\n', " ");
    for part in source.split("pub type ").skip(1) {
        let (name, of) = part.split_once('=').expect("a type");
        let (of, _) = of.split_once(';').expect("its end");
        let Some((_, of)) = of.split_once("extern \"C\" fn(") else {
            continue;
        };
        let (arguments, result) = of.rsplit_once(')').expect("its arguments");
        let result = c_type(result.trim().strip_prefix("->").unwrap_or("()"));
        let arguments = split(arguments).into_iter().map(|argument| {
            let named = argument.split_once(": ");
            named.map_or(argument, |(_, of)| of)
        });
        let _ = writeln!(c, "typedef {result} {name}({});", c_arguments(arguments));
    }
}

/// `SetCtxParams` as `set_ctx_params`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

fn dispatched(c: &mut String) {
    for (operation, functions) in [
        ("provider_", provider::ALL),
        ("keymgmt_", keymgmt::ALL),
        ("keymgmt_", own_keymgmt::ALL),
        ("kem_", kem::ALL),
        ("cipher_", cipher::ALL),
        ("kdf_", kdf::ALL),
        ("keyexch_", keyexch::ALL),
        ("signature_", signature::ALL),
        ("decoder_", decoder::ALL),
        ("BIO_", bio::ALL),
    ] {
        for (name, id, arguments, result) in functions {
            let of_core = operation == "provider_" && name.starts_with("Core");
            let named = snake(name);
            let named = match of_core || named.starts_with(operation) {
                true => named,
                false => format!("{operation}{named}"),
            };
            let id_in_c = format!("OSSL_FUNC_{}", named.to_uppercase());
            let of = format!(
                "{} ({})",
                c_type(result),
                c_arguments(arguments.iter().copied())
            );
            let is_newer = NEWER.contains(name);
            if is_newer {
                let _ = writeln!(c, "#ifdef {id_in_c}");
            }
            let _ = writeln!(c, "SAME({id_in_c}, {id});");
            let _ = writeln!(c, "ALIKE(OSSL_FUNC_{named}_fn, {of});");
            if is_newer {
                let _ = writeln!(c, "#endif");
            }
        }
    }
}

fn imported(c: &mut String) {
    for (name, arguments, result) in TYPES {
        let result = match *result {
            "" => "void".to_owned(),
            result => c_type(result),
        };
        let arguments = c_arguments(arguments.iter().copied());
        let _ = writeln!(c, "ALIKE(__typeof__({name}), {result} ({arguments}));");
    }
}

fn layouts(c: &mut String) {
    macro_rules! layout {
        ($($name:ident $in_c:ident { $($field:ident $field_in_c:ident),* })*) => {$(
            let _ = writeln!(c, "SAME(sizeof({}), {});", stringify!($in_c), size_of::<$name>());
            $(
                let _ = writeln!(
                    c,
                    "SAME(offsetof({}, {}), {});",
                    stringify!($in_c),
                    stringify!($field_in_c),
                    offset_of!($name, $field)
                );
            )*
        )*};
    }
    layout! {
        Dispatch OSSL_DISPATCH { id function_id, function function }
        Algorithm OSSL_ALGORITHM {
            names algorithm_names, properties property_definition, implementation implementation,
            description algorithm_description
        }
        Param OSSL_PARAM {
            key key, data_type data_type, data data, data_size data_size, return_size return_size
        }
    }
}

fn constants(c: &mut String) {
    macro_rules! constants {
        ($($ours:expr => $theirs:literal,)*) => {
            $(let _ = writeln!(c, "SAME({}, {});", $theirs, $ours);)*
        };
    }
    constants! {
        PARAM_INTEGER => "OSSL_PARAM_INTEGER",
        PARAM_UNSIGNED_INTEGER => "OSSL_PARAM_UNSIGNED_INTEGER",
        PARAM_UTF8_STRING => "OSSL_PARAM_UTF8_STRING",
        PARAM_OCTET_STRING => "OSSL_PARAM_OCTET_STRING",
        PARAM_UTF8_PTR => "OSSL_PARAM_UTF8_PTR",
        PARAM_OCTET_PTR => "OSSL_PARAM_OCTET_PTR",
        format!("{PARAM_UNMODIFIED}u") => "OSSL_PARAM_UNMODIFIED",
        operation::CIPHER => "OSSL_OP_CIPHER",
        operation::KDF => "OSSL_OP_KDF",
        operation::KEYMGMT => "OSSL_OP_KEYMGMT",
        operation::KEYEXCH => "OSSL_OP_KEYEXCH",
        operation::SIGNATURE => "OSSL_OP_SIGNATURE",
        operation::ASYM_CIPHER => "OSSL_OP_ASYM_CIPHER",
        operation::ENCODER => "OSSL_OP_ENCODER",
        operation::DECODER => "OSSL_OP_DECODER",
        operation::KEM => "OSSL_OP_KEM",
        hkdf_mode::EXTRACT_ONLY => "EVP_KDF_HKDF_MODE_EXTRACT_ONLY",
        hkdf_mode::EXPAND_ONLY => "EVP_KDF_HKDF_MODE_EXPAND_ONLY",
        select::DOMAIN_PARAMETERS => "OSSL_KEYMGMT_SELECT_DOMAIN_PARAMETERS",
        select::PRIVATE_KEY => "OSSL_KEYMGMT_SELECT_PRIVATE_KEY",
        select::PUBLIC_KEY => "OSSL_KEYMGMT_SELECT_PUBLIC_KEY",
        select::KEYPAIR => "OSSL_KEYMGMT_SELECT_KEYPAIR",
        select::PUBLIC => "EVP_PKEY_PUBLIC_KEY",
        select::ALL => "OSSL_KEYMGMT_SELECT_ALL",
        INIT_FAIL => "ERR_PACK(ERR_LIB_PROV, 0, ERR_R_INIT_FAIL)",
        reason::MALLOC_FAILURE => "ERR_R_MALLOC_FAILURE",
        reason::CIPHER_OPERATION_FAILED => "PROV_R_CIPHER_OPERATION_FAILED",
        reason::FAILED_TO_GET_PARAMETER => "PROV_R_FAILED_TO_GET_PARAMETER",
        reason::FAILED_TO_SET_PARAMETER => "PROV_R_FAILED_TO_SET_PARAMETER",
        reason::INVALID_KEY_LENGTH => "PROV_R_INVALID_KEY_LENGTH",
        reason::OUTPUT_BUFFER_TOO_SMALL => "PROV_R_OUTPUT_BUFFER_TOO_SMALL",
        reason::INVALID_AAD => "PROV_R_INVALID_AAD",
        reason::INVALID_IV_LENGTH => "PROV_R_INVALID_IV_LENGTH",
        reason::INVALID_TAG => "PROV_R_INVALID_TAG",
        reason::TOO_MANY_RECORDS => "PROV_R_TOO_MANY_RECORDS",
        reason::MISSING_KEY => "PROV_R_MISSING_KEY",
        reason::INVALID_SEED_LENGTH => "PROV_R_INVALID_SEED_LENGTH",
        reason::INVALID_KEY => "PROV_R_INVALID_KEY",
        reason::OPERATION_NOT_SUPPORTED_FOR_THIS_KEYTYPE =>
            "PROV_R_OPERATION_NOT_SUPPORTED_FOR_THIS_KEYTYPE",
        LIB_PROV => "ERR_LIB_PROV",
        OPERATION_FAIL => "ERR_R_OPERATION_FAIL",
        OBJECT_PKEY => "OSSL_OBJECT_PKEY",
        RSA_NO_PADDING => "RSA_NO_PADDING",
        RSA_PKCS1_PADDING => "RSA_PKCS1_PADDING",
        RSA_X931_PADDING => "RSA_X931_PADDING",
        NID_P256 => "NID_X9_62_prime256v1",
        NID_P384 => "NID_secp384r1",
        NAMED_CURVE => "OPENSSL_EC_NAMED_CURVE",
        ASYNC_STATUS_OK => "ASYNC_STATUS_OK",
    }
    // Reasons since OpenSSL 3.5 are not in all headers.
    for (name, number) in [
        ("NULL_LENGTH_POINTER", reason::NULL_LENGTH_POINTER),
        ("NULL_OUTPUT_BUFFER", reason::NULL_OUTPUT_BUFFER),
        ("WRONG_CIPHERTEXT_SIZE", reason::WRONG_CIPHERTEXT_SIZE),
    ] {
        let _ = writeln!(
            c,
            "#ifdef PROV_R_{name}\nSAME(PROV_R_{name}, {number});\n#endif"
        );
    }
    for (name, text) in name::ALL {
        let text = text.to_str().expect("text");
        // Names since OpenSSL 3.1 are not in all headers.
        let _ = writeln!(
            c,
            "#ifdef OSSL_{name}\nTEXT(OSSL_{name}, \"{text}\");\n#endif"
        );
    }
}

/// All assertions as a C file.
fn assertions() -> String {
    let mut c = String::from(
        "#define OPENSSL_SUPPRESS_DEPRECATED\n\
         #include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n\
         #include <openssl/async.h>\n#include <openssl/bn.h>\n#include <openssl/conf.h>\n\
         #include <openssl/core.h>\n#include <openssl/core_dispatch.h>\n\
         #include <openssl/core_names.h>\n#include <openssl/core_object.h>\n\
         #include <openssl/crypto.h>\n#include <openssl/ec.h>\n\
         #include <openssl/err.h>\n#include <openssl/kdf.h>\n#include <openssl/obj_mac.h>\n\
         #include <openssl/params.h>\n\
         #include <openssl/proverr.h>\n#include <openssl/provider.h>\n#include <openssl/rsa.h>\n\
         #include <openssl/x509.h>\n\
         #define SAME(a, b) _Static_assert((a) == (b), #a)\n\
         #define TEXT(a, b) _Static_assert(__builtin_strcmp(a, b) == 0, #a)\n\
         #define ALIKE(a, ...) _Static_assert(__builtin_types_compatible_p(a, __VA_ARGS__), #a)\n",
    );
    function_types(&mut c);
    layouts(&mut c);
    constants(&mut c);
    dispatched(&mut c);
    imported(&mut c);
    c
}

/// Returns whether the C compiler accepts this, and its output; None without a compiler.
fn accepted(c: &str) -> Option<(bool, String)> {
    let mut compiler = Command::new("cc")
        .args(["-std=gnu11", "-fsyntax-only", "-x", "c", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let mut input = compiler.stdin.take()?;
    // After an error the compiler may not read the rest.
    let _ = input.write_all(c.as_bytes());
    drop(input);
    let finished = compiler.wait_with_output().ok()?;
    let said = String::from_utf8_lossy(&finished.stderr).into_owned();
    Some((finished.status.success(), said))
}

/// Returns whether there is a compiler with the headers.
fn can_compile() -> bool {
    let can = accepted("#include <openssl/core_dispatch.h>\n").is_some_and(|(found, _)| found);
    if !can {
        println!("skipped: there is no C compiler `cc`, or no headers of OpenSSL (libssl-dev)");
    }
    can
}

#[test]
fn the_headers_agree() {
    if can_compile() {
        let (agree, said) = accepted(&assertions()).expect("it can compile");
        assert!(agree, "{said}");
    }
}

/// The planted defects: a wrong number, a wrong name, a wrong layout and a wrong type.
#[test]
fn the_headers_find_a_wrong_declaration() {
    if !can_compile() {
        return;
    }
    let right = assertions();
    for (from, to) in [
        (
            "SAME(OSSL_FUNC_KDF_DERIVE, 5)",
            "SAME(OSSL_FUNC_KDF_DERIVE, 6)",
        ),
        (
            "TEXT(OSSL_KDF_PARAM_SALT, \"salt\")",
            "TEXT(OSSL_KDF_PARAM_SALT, \"sault\")",
        ),
        (
            "SAME(offsetof(OSSL_PARAM, data), 16)",
            "SAME(offsetof(OSSL_PARAM, data), 12)",
        ),
        (
            "ALIKE(__typeof__(BN_clear_bit), int (BIGNUM *, int))",
            "ALIKE(__typeof__(BN_clear_bit), int (BIGNUM const *, int))",
        ),
    ] {
        assert!(right.contains(from), "{from}");
        let (agree, _) = accepted(&right.replace(from, to)).expect("it can compile");
        assert!(!agree, "{to}");
    }
}
