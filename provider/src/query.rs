//! Property queries of callers.

use std::ffi::{CStr, CString};

/// A property query without the clauses that name us: no digest could meet them. None for no query.
pub fn for_others(query: Option<&CStr>) -> Option<CString> {
    let clauses: Vec<&[u8]> = clauses(query?.to_bytes())
        .filter(|clause| !names_us(clause))
        .collect();
    CString::new(clauses.join(&b","[..])).ok()
}

/// The clauses of a property query (property(7)). A comma in quotes separates nothing.
fn clauses(query: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quote = None;
    query.split(move |&byte| {
        match quote {
            Some(open) if byte == open => quote = None,
            None if byte == b'"' || byte == b'\'' => quote = Some(byte),
            _ => {}
        }
        quote.is_none() && byte == b','
    })
}

/// Whether a clause is about this provider's name or one of its properties.
fn names_us(clause: &[u8]) -> bool {
    let clause = clause.to_ascii_lowercase();
    let end = clause.iter().position(|byte| b"!=".contains(byte));
    let (name, value) = clause.split_at(end.unwrap_or(clause.len()));
    let name = name.trim_ascii();
    let name = name
        .strip_prefix(b"?")
        .or(name.strip_prefix(b"-"))
        .unwrap_or(name)
        .trim_ascii();
    let plain = |byte: &u8| !b"!='\"".contains(byte) && !byte.is_ascii_whitespace();
    let value: Vec<u8> = value.iter().copied().filter(plain).collect();
    name.starts_with(b"lockstep.") || (name == b"provider" && value == b"lockstep")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_that_name_us_are_left_out_of_a_query() {
        for (query, left) in [
            (c"", c""),
            (c"provider=lockstep", c""),
            (c"?provider = 'lockstep'", c""),
            (c"provider != lockstep", c""),
            (c"Lockstep.Fast=yes,?lockstep.keys!=yes", c""),
            (c"-lockstep.fast", c""),
            (c"provider=default", c"provider=default"),
            (c"provider!=default", c"provider!=default"),
            (c"fips=yes,provider=lockstep,?a=b", c"fips=yes,?a=b"),
            (c"a='x,lockstep.y',lockstep.fast", c"a='x,lockstep.y'"),
            (
                c"lockstep2.a=1,provider=lockstep2",
                c"lockstep2.a=1,provider=lockstep2",
            ),
        ] {
            assert_eq!(for_others(Some(query)).as_deref(), Some(left), "{query:?}");
        }
        assert_eq!(for_others(None), None);
    }
}
