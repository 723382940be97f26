//! What these tests share.

use lockstep::Workers;

/// Returns workers with each kind of lanes that this CPU has.
pub fn workers() -> Vec<Workers> {
    let names = ["avx512ifma", "avx2", "portable"];
    let named = names
        .iter()
        .filter_map(|name| Workers::new().with_lanes(name));
    let found: Vec<_> = named.collect();
    if found.len() < names.len() {
        println!("skipped: this CPU does not have all lanes");
    }
    found
}
