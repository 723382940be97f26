//! Groups of TLS that the module offers to libssl.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ahead;
use crate::ffi::{List, Params, ProvCtx, Receiver, Text, name};
use crate::host::shared_memory;
use crate::kem::{self, TlsGroup};
use crate::stock::stock;

use super::tables::tables;

/// Whether libssl takes a group from any provider (OpenSSL 3.5).
pub static TAKES_ANY: AtomicBool = AtomicBool::new(false);

/// `OSSL_FUNC_provider_get_capabilities`: the default provider's TLS groups on keys that the module
/// generates, and the groups of key encapsulation that it lacks.
///
/// Before OpenSSL 3.5 libssl takes a group only from the provider whose key management it finds for
/// the group, so the module must offer every group on EC and X25519 keys, with or without lanes.
/// Later versions take the groups of the application's default provider with the module's keys. So
/// the module does not pass these groups on: libssl would list them as well.
pub fn capabilities(
    provctx: ProvCtx,
    capability: Option<Text<'_>>,
    receiver: Receiver<'_>,
) -> c_int {
    if shared_memory::reason().is_some() {
        return 1;
    }
    let (Some(stock), Some(tables)) = (stock(), tables()) else {
        return 0;
    };
    if capability.map(Text::to_cstr) != Some(c"TLS-GROUP") {
        return 0;
    }
    ahead::look_up(provctx);
    let is_applications = provctx.as_ptr() != stock.provctx().as_ptr();
    let passes_on = !is_applications || !TAKES_ANY.load(Ordering::Relaxed);
    let mut lacks = kem::TLS_GROUPS.map(|group| tables.generated.contains(&group.name));
    let mut filter = |params: Params<'_>| {
        // The size counts the zero byte.
        let algorithm = params.get(name::CAPABILITY_TLS_GROUP_ALG);
        let algorithm = algorithm
            .and_then(|value| value.utf8())
            .and_then(|bytes| CStr::from_bytes_until_nul(bytes).ok());
        for (group, lacks) in kem::TLS_GROUPS.iter().zip(&mut lacks) {
            *lacks &= algorithm != Some(group.name);
        }
        match algorithm {
            Some(algorithm) if passes_on && tables.generated.contains(&algorithm) => {
                receiver.receive(params)
            }
            _ => 1,
        }
    };
    if stock.capabilities(c"TLS-GROUP", Receiver::new(&mut filter)) == 0 {
        return 0;
    }
    let mut ours = kem::TLS_GROUPS.iter().zip(lacks);
    c_int::from(ours.all(|(group, lacks)| !lacks || describe(group, receiver) == 1))
}

/// Describes a group of TLS 1.3 to libssl.
fn describe(group: &TlsGroup, receiver: Receiver<'_>) -> c_int {
    /// `TLS1_3_VERSION`
    const TLS_1_3: c_int = 0x0304;
    let (any, none, is_kem) = (0, -1, 1);
    let TlsGroup {
        name: of,
        id,
        security_bits,
    } = group;
    let list = List::<11>::new()
        .utf8(name::CAPABILITY_TLS_GROUP_NAME, of)
        .utf8(name::CAPABILITY_TLS_GROUP_NAME_INTERNAL, of)
        .utf8(name::CAPABILITY_TLS_GROUP_ALG, of)
        .uint(name::CAPABILITY_TLS_GROUP_ID, id)
        .uint(name::CAPABILITY_TLS_GROUP_SECURITY_BITS, security_bits)
        .uint(name::CAPABILITY_TLS_GROUP_IS_KEM, &is_kem)
        .int(name::CAPABILITY_TLS_GROUP_MIN_TLS, &TLS_1_3)
        .int(name::CAPABILITY_TLS_GROUP_MAX_TLS, &any)
        .int(name::CAPABILITY_TLS_GROUP_MIN_DTLS, &none)
        .int(name::CAPABILITY_TLS_GROUP_MAX_DTLS, &none);
    receiver.receive(list.as_params())
}
