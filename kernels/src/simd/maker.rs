//! Who made this CPU.

/// The name that `cpuid` gives, like `AuthenticAMD`; zeros on other architectures.
pub(crate) fn maker() -> [u8; 12] {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::__cpuid;
        use std::sync::OnceLock;

        // A hypervisor may take long to answer.
        static MAKER: OnceLock<[u8; 12]> = OnceLock::new();
        *MAKER.get_or_init(|| {
            // SAFETY: every x86-64 CPU has the instruction and this leaf.
            #[allow(unused_unsafe, reason = "not in all versions of Rust")]
            let leaf = unsafe { __cpuid(0) };
            let words = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes);
            *words.as_flattened().first_chunk().expect("12 bytes")
        })
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    [0; 12]
}
