//! Property queries of callers.

use std::ffi::{CStr, CString};

/// Error: there is no memory for a copy. A query may have any length.
#[derive(Debug, PartialEq, Eq)]
pub struct NoMemory;

/// Returns a property query for digests: without the clauses that name this module, since no digest
/// matches them. None without a query.
pub fn for_others(query: Option<&CStr>) -> Result<Option<CString>, NoMemory> {
    let Some(query) = query else { return Ok(None) };
    let mut left: Vec<u8> = Vec::new();
    // The copy is at most as long as the query, with a comma in front and a zero at the end.
    let most = query.count_bytes() + 2;
    left.try_reserve_exact(most).map_err(|_| NoMemory)?;
    for clause in clauses(query.to_bytes()).filter(|clause| !names_us(clause)) {
        left.push(b',');
        left.extend_from_slice(clause);
    }
    if !left.is_empty() {
        left.remove(0);
    }
    left.push(0);
    // The parts of a C string contain no zero byte.
    CString::from_vec_with_nul(left)
        .map(Some)
        .map_err(|_| NoMemory)
}

/// Returns the clauses of a property query (property(7)). A comma in quotes does not separate
/// clauses.
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

/// Returns whether a clause is about this provider's name or one of its properties.
fn names_us(clause: &[u8]) -> bool {
    const OURS: &[u8] = b"lockstep";
    let end = clause.iter().position(|byte| b"!=".contains(byte));
    let (name, value) = clause.split_at(end.unwrap_or(clause.len()));
    let name = name.trim_ascii();
    let name = name
        .strip_prefix(b"?")
        .or(name.strip_prefix(b"-"))
        .unwrap_or(name)
        .trim_ascii();
    let is_property = name
        .split_at_checked(OURS.len())
        .is_some_and(|(first, rest)| first.eq_ignore_ascii_case(OURS) && rest.starts_with(b"."));
    let plain = |byte: &&u8| !b"!='\"".contains(byte) && !byte.is_ascii_whitespace();
    let value = value.iter().filter(plain).map(u8::to_ascii_lowercase);
    is_property || (name.eq_ignore_ascii_case(b"provider") && value.eq(OURS.iter().copied()))
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
            let found = for_others(Some(query)).expect("memory");
            assert_eq!(found.as_deref(), Some(left), "{query:?}");
        }
        assert_eq!(for_others(None), Ok(None));
    }
}
