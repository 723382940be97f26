//! What an operation leaves of its key: in vector registers, and on stacks.

use crate::common::{Place, has_ifma};

#[test]
fn an_operation_leaves_nothing_of_its_key_in_registers_and_on_the_stack() {
    // Portable lanes are arrays on the stack, and OpenSSL's own curves leave parts of keys in
    // registers.
    if !has_ifma() {
        return;
    }
    let place = Place::new();
    let program = place.compile("left_behind");
    let finished = place.program(&program, "").with_lockstep().succeed();
    let text = finished.text();
    let mut seen = 0;
    for line in text.lines() {
        // In registers and on the stack, after the first use of the key and after another one.
        assert!(line.ends_with(" 0 0 0 0"), "{line}");
        seen += 1;
    }
    assert_eq!(seen, 14, "{finished}");
    let counters = finished.counters();
    for shape in [
        "rsa1024",
        "rsa4096",
        "p384-sign",
        "x25519",
        "x25519mlkem768-client",
    ] {
        assert!(counters.of(shape) > 0, "no {shape}: {counters:?}");
    }
}
