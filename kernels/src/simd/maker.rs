//! The vendor of this CPU.

/// Returns whether `cpuid` names AMD as the vendor.
pub(crate) fn is_amd() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::__cpuid;
        use std::sync::OnceLock;

        // Cached, because a hypervisor may take long to answer.
        static IS_AMD: OnceLock<bool> = OnceLock::new();
        *IS_AMD.get_or_init(|| {
            // SAFETY: every x86-64 CPU has the instruction and this leaf.
            #[allow(unused_unsafe, reason = "not in all versions of Rust")]
            let leaf = unsafe { __cpuid(0) };
            let name = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes);
            name.as_flattened() == b"AuthenticAMD"
        })
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}
