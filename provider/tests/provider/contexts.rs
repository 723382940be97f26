//! Programs that load the module themselves: library contexts, unloading, parameters, and every
//! order of taking things down.

use crate::common::{Finished, Place, dist};

/// Runs a way of `programs/contexts.c`.
fn take_way(place: &Place, way: &str) -> Finished {
    take_way_with(place, way, "rsa2048")
}

/// The same with another key.
fn take_way_with(place: &Place, way: &str, key: &str) -> Finished {
    let program = place.compile("contexts");
    let key = place.key(key);
    let directory = dist();
    let directory = directory.to_str().expect("a path in UTF-8");
    place
        .program(&program, &format!("{way} {key} {directory}"))
        .with_counters()
        .succeed()
}

#[test]
fn two_library_contexts_share_the_engine() {
    take_way(&Place::new(), "two").on_lanes("rsa2048", 40);
}

#[test]
fn a_context_is_freed_while_another_signs() {
    take_way(&Place::new(), "free-one").on_lanes("rsa2048", 60);
}

#[test]
fn unloaded_and_loaded_again() {
    take_way(&Place::new(), "reload").on_lanes("rsa2048", 50);
}

#[test]
fn the_curves_too() {
    // Each signature is verified, on lanes too.
    for (key, sign, verify) in [
        ("p256", "p256-sign", "p256-verify"),
        ("p384", "p384-sign", "p384-verify"),
        ("ed25519", "ed25519-sign", "ed25519-verify"),
    ] {
        let place = Place::new();
        for (way, times) in [("two", 40), ("free-one", 60), ("reload", 50)] {
            let finished = take_way_with(&place, way, key);
            let counters = finished.counters();
            assert_eq!(
                counters.shapes(),
                [(sign, times), (verify, times)].into_iter().collect(),
                "{way} {finished}"
            );
            assert_eq!(counters.fallbacks(), 0, "{way} {finished}");
        }
        for way in ["leave", "leave-at-once"] {
            let counters = take_way_with(&place, way, key).counters();
            assert!(
                counters.of(sign) > 0 && counters.fallbacks() == 0,
                "{counters:?}"
            );
        }
    }
    take_way_with(&Place::new(), "unload-first", "p256");
}

#[test]
fn unloaded_while_a_key_and_an_operation_are_alive() {
    take_way(&Place::new(), "unload-first").on_lanes("rsa2048", 3);
}

#[test]
fn exit_without_any_cleanup() {
    // The counters are written for each of the few signatures; nobody takes anything down.
    for way in ["leave", "leave-at-once"] {
        let counters = take_way(&Place::new(), way).counters();
        assert!(
            counters.of("rsa2048") > 0 && counters.fallbacks() == 0,
            "{counters:?}"
        );
    }
}

#[test]
fn parameters_tell_version_status_and_counters() {
    take_way(&Place::new(), "parameters").on_lanes("rsa2048", 3);
}

#[test]
fn unsuitable_parameters_are_refused() {
    let counters = take_way(&Place::new(), "unsuitable").try_counters();
    assert!(counters.is_none_or(|c| c.operations() == 0));
}

#[test]
fn operations_are_duplicated_midway() {
    take_way(&Place::new(), "duplicate").on_lanes("rsa2048", 8);
}

#[test]
fn keys_are_duplicated_and_freed_in_any_order() {
    take_way(&Place::new(), "keys").on_lanes("rsa2048", 6);
}

#[test]
fn size_queries_and_short_buffers() {
    take_way(&Place::new(), "buffers").on_lanes("rsa2048", 2);
}

#[test]
fn property_queries_by_name_find_the_module() {
    take_way(&Place::new(), "properties").on_lanes("rsa2048", 3);
}

/// The ways of `programs/reimport.c`; each use of an object is a signature and a decryption.
#[test]
fn an_object_is_filled_again() {
    let place = Place::new();
    let program = place.compile("reimport");
    let (key, other) = (place.key("rsa2048"), place.key("rsa1536"));
    let directory = dist();
    let directory = directory.to_str().expect("a path in UTF-8");
    // An operation of the lanes, and an operation of OpenSSL, because the key has 1536 bits.
    for (way, on_lanes, by_stock) in [
        ("twice", 2, 0),
        ("used", 6, 0),
        ("public-first", 4, 0),
        ("another", 2, 2),
        ("unblinded", 0, 1),
    ] {
        let finished = place
            .program(&program, &format!("{way} {key} {directory} {other}"))
            .with_counters()
            .succeed();
        let counters = finished.counters();
        assert_eq!(counters.of("rsa2048"), on_lanes, "{way}: {counters:?}");
        assert_eq!(counters.operations(), on_lanes, "{way}: {counters:?}");
        assert_eq!(counters.fallback("key_size"), by_stock, "{way}");
        assert_eq!(counters.fallbacks(), by_stock, "{way}: {counters:?}");
    }
}

/// The last instance of the provider goes in one thread while another one loads it.
#[test]
fn loaded_and_unloaded_by_many_threads() {
    let place = Place::new();
    let program = place.compile("load_unload");
    let key = place.key("p256");
    let directory = dist();
    let directory = directory.to_str().expect("a path in UTF-8");
    let finished = place
        .program(&program, &format!("3 100 {key} {directory}"))
        .with_counters()
        .succeed();
    assert_eq!(finished.text(), "600\n");
    finished.on_lanes("p256-sign", 600);
}

/// libcrypto numbers ex_data in each library context anew.
#[test]
fn ex_data_of_the_program_stay_its_own_in_every_context() {
    let place = Place::new();
    let program = place.compile("indices");
    let directory = dist();
    // Three signatures with a key that is read in each of three contexts; two keys are generated.
    for (key, sign, verify, signed) in [
        ("rsa2048", "rsa2048", None, 9),
        ("p256", "p256-sign", Some("p256-verify"), 15),
    ] {
        let arguments = format!("{} {}", place.key(key), directory.display());
        let process = place.program(&program, &arguments).with_counters();
        let finished = process.succeed();
        let counters = finished.counters();
        assert_eq!(counters.of(sign), signed, "{finished}");
        // One of three is not verified.
        let verified = verify.map_or(signed * 2 / 3, |verify| counters.of(verify));
        assert_eq!(verified, signed * 2 / 3, "{finished}");
        assert_eq!(counters.fallbacks(), 0, "{finished}");
    }
}
