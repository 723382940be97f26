//! Names of functions as the exact list holds them, and which functions it holds.

use std::fmt;

/// Functions that may see secrets, by the start of the path of their names. What libraries that the
/// kernels use hold of their own, and the functions of the provider that handle secrets in the
/// open.
const WATCHED: &[&str] = &[
    "lockstep_kernels::",
    "crypto_bigint::",
    "chacha20::",
    "sha2::",
    "zeroize::",
    "lockstep::tls13_kdf::hkdf::",
    "lockstep::tls13_kdf::kept::",
];

/// A function's name as the list has it, and which instance of it this is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Name {
    pub path: String,
    pub instance: String,
}

impl Name {
    /// Reads a demangled name: parameters go into the instance, and a closure that runs behind the
    /// feature boundary is named after the function whose body it is.
    pub fn of(name: &str) -> Self {
        let name = name.split(" [clone").next().unwrap_or(name);
        let (name, inside) = match name.split_once("::enter::with_features::<") {
            Some((_, rest)) => {
                let body = after_first_parameter(rest);
                (body.strip_suffix('>').unwrap_or(body), " in lanes")
            }
            None => (name, ""),
        };
        let (mut path, mut instances) = (String::new(), Vec::new());
        split(name, &mut path, &mut instances);
        path.push_str(inside);
        let instance = instances.join("; ");
        Self {
            path: shortened(&path),
            instance: shortened(&instance),
        }
    }

    /// Whether the list is to have it.
    pub fn is_watched(name: &str) -> bool {
        let start = name
            .trim_start_matches(['<', '&'])
            .trim_start_matches("mut ");
        WATCHED.iter().any(|prefix| start.starts_with(prefix))
            || start.starts_with("core::ptr::drop_in_place::<lockstep_kernels::")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <{}>", self.path, self.instance)
    }
}

/// What follows the first of several generic parameters.
fn after_first_parameter(parameters: &str) -> &str {
    let mut depth = 0_i32;
    for (at, c) in parameters.char_indices() {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' | ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => return parameters[at + 1..].trim_start(),
            _ => {}
        }
    }
    parameters
}

/// Where the bracket that opens at the start of `text` closes.
fn closing(text: &str) -> usize {
    let mut depth = 0_i32;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
        before = c;
    }
    text.len() - 1
}

/// Takes the parameters out of a path.
fn split(name: &str, path: &mut String, instances: &mut Vec<String>) {
    let mut rest = name;
    // `<Type>::…` and `<Type as Trait>::…`.
    if let Some(inner) = rest.strip_prefix('<') {
        let end = closing(rest);
        let inner = &inner[..end - 1];
        let (own, implemented) = inner.split_once(" as ").unwrap_or((inner, ""));
        split(own, path, instances);
        if !implemented.is_empty() {
            path.push_str(" as ");
            split(implemented, path, instances);
        }
        rest = &rest[end + 1..];
    }
    while let Some(at) = rest.find('<') {
        path.push_str(rest[..at].trim_end_matches("::"));
        let end = at + closing(&rest[at..]);
        instances.push(rest[at + 1..end].to_owned());
        rest = &rest[end + 1..];
    }
    path.push_str(rest);
}

/// Without the paths that say nothing more.
fn shortened(name: &str) -> String {
    let mut short = name.to_owned();
    for (long, shorter) in [
        ("lockstep_kernels::simd::avx512ifma::", ""),
        ("lockstep_kernels::simd::avx512ifma256::", ""),
        ("lockstep_kernels::simd::avx2::", ""),
        ("lockstep_kernels::simd::portable::", ""),
        ("lockstep_kernels::nist::curve::", ""),
        ("lockstep_kernels::order::", ""),
        ("lockstep_kernels::", ""),
        ("core::core_arch::x86::", ""),
        ("crypto_bigint::uint::", ""),
        ("cipher::stream::core_api::", ""),
        ("typenum::uint::", ""),
        ("typenum::bit::", ""),
    ] {
        if !(long.starts_with("crypto_bigint") && name.trim_start_matches('<').starts_with(long)) {
            short = short.replace(long, shorter);
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> (String, String) {
        let name = Name::of(text);
        (name.path, name.instance)
    }

    fn pair(path: &str, instance: &str) -> (String, String) {
        (path.to_owned(), instance.to_owned())
    }

    #[test]
    fn names_are_paths_and_instances() {
        let avx = "lockstep_kernels::simd::avx512ifma::Avx512Ifma";
        assert_eq!(
            name(&format!(
                "lockstep_kernels::montgomery::multiply::<{avx}, 20>"
            )),
            pair("montgomery::multiply", "Avx512Ifma, 20")
        );
        assert_eq!(
            name(&format!(
                "<lockstep_kernels::modexp::Power<{avx}, 40>>::store_entry [clone .llvm.7]"
            )),
            pair("modexp::Power::store_entry", "Avx512Ifma, 40")
        );
        assert_eq!(
            name(&format!(
                "<{avx} as lockstep_kernels::simd::Simd>::enter::with_features::<([u64; 5], u8), \
                 <lockstep_kernels::modexp::Power<{avx}, 40>>::store_entry::{{closure#0}}>"
            )),
            pair(
                "modexp::Power::store_entry::{closure#0} in lanes",
                "Avx512Ifma, 40"
            )
        );
        assert_eq!(
            name("<lockstep_kernels::rsa::Claim as core::ops::drop::Drop>::drop"),
            pair("rsa::Claim as core::ops::drop::Drop::drop", "")
        );
    }
}
