//! Provider instances, and the default provider that each works with.
//!
//! Each library context that loads the module has an instance. Our provider context *is* that of a
//! default provider, so that the default provider's functions can stand in our tables as they are.
//! If the application has a default provider of its own when we are loaded, we use that one: then
//! the functions see the digests, random generators, properties and policies of the application.
//! Otherwise we use the default provider of our private library context ([`stock`](crate::stock)).
//!
//! An instance holds a reference to the application's default provider until its own teardown. The
//! reference keeps the provider's context alive, and does not keep the provider active. There are
//! no locks here: a process may fork at any time.

use std::ffi::{OsString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use once_cell::race::OnceBox;

use crate::ffi::provider::{
    CoreGetLibctx, DeregisterChildCb, ProviderFree, ProviderGet0Dispatch, ProviderGet0ProviderCtx,
    ProviderUpRef, RegisterChildCb,
};
use crate::ffi::{CoreCtx, CoreHandle, Dispatch, LibCtx, ProvCtx};
use crate::host::loader::Core;
use crate::stock::Stock;

/// Returns the provider context for a new instance; [`end`] takes it back.
pub fn begin(core: &Core, stock: &Stock) -> ProvCtx {
    let Some(found) = application_default(core, stock) else {
        return stock.provctx();
    };
    let context = found.context;
    found.note();
    context
}

/// Ends an instance with this context.
pub fn end(context: ProvCtx) {
    drop(slots().find_map(|slot| slot.take(context.as_ptr())));
}

/// Returns the library context of the application that has an instance with this context, at the
/// first call. Returns None later, and for an instance that works with the private context.
///
/// The library context lives as long as the instance, and the caller is in a call of that instance.
pub fn library_once(context: ProvCtx) -> Option<&'static LibCtx> {
    let slot = slots().find(|slot| slot.context.load(Ordering::Acquire) == context.as_ptr())?;
    let library = slot.library.swap(null_mut(), Ordering::AcqRel);
    // SAFETY: the core's name for the library context in which it has loaded us, and our functions
    // are bound to that libcrypto. The application is in a call of this instance.
    unsafe { library.cast::<LibCtx>().as_ref() }
}

/// Returns the settings for keys of ML-KEM of the default provider that an instance with this
/// context uses.
pub fn ml_kem(context: ProvCtx) -> MlKemSettings {
    let of_context = |slot: &&Slot| slot.context.load(Ordering::Acquire) == context.as_ptr();
    let slot = slots().find(of_context);
    slot.map_or(MlKemSettings::DEFAULT, |slot| {
        MlKemSettings(slot.ml_kem.load(Ordering::Relaxed))
    })
}

/// Settings of OpenSSL's default provider for keys of ML-KEM (EVP_PKEY-ML-KEM(7)), as bits. Each
/// bit disables a default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MlKemSettings(u8);

impl MlKemSettings {
    pub const DEFAULT: MlKemSettings = MlKemSettings(0);
    const FORGETS_SEED: u8 = 1;
    const PREFERS_KEY: u8 = 2;
    const CHECKS_NO_PAIR: u8 = 4;

    /// Reads the settings in a provider's section of the configuration.
    fn read(setting: impl Fn(&str) -> Option<OsString>) -> MlKemSettings {
        let is_any = |name, values: &[&str]| {
            let value = setting(name);
            value.map(|value| values.iter().any(|any| value.eq_ignore_ascii_case(any)))
        };
        let off = ["0", "no", "false", "off"];
        let forgets = is_any("ml-kem.retain_seed", &off) == Some(true);
        let prefers_key = is_any("ml-kem.prefer_seed", &off) == Some(true);
        // Any other value turns the check off in OpenSSL, too.
        let checks = is_any("ml-kem.import_pct_type", &["random", "fixed"]);
        let bits = [
            (forgets, MlKemSettings::FORGETS_SEED),
            (prefers_key, MlKemSettings::PREFERS_KEY),
            (checks == Some(false), MlKemSettings::CHECKS_NO_PAIR),
        ];
        let set = bits.into_iter().filter(|(is_set, _)| *is_set);
        MlKemSettings(set.fold(0, |all, (_, bit)| all | bit))
    }

    /// Returns whether a key keeps the seed from which it was made.
    pub fn retains_seed(self) -> bool {
        self.0 & MlKemSettings::FORGETS_SEED == 0
    }

    /// Returns whether the seed of an imported key has precedence over its private key.
    pub fn prefers_seed(self) -> bool {
        self.0 & MlKemSettings::PREFERS_KEY == 0
    }

    /// Returns whether the parts of an imported private key must belong together.
    pub fn checks_pairs(self) -> bool {
        self.0 & MlKemSettings::CHECKS_NO_PAIR == 0
    }
}

/// A reference to a provider, given back when it is dropped.
struct Reference {
    handle: *mut CoreHandle,
    free: ProviderFree,
}

impl Drop for Reference {
    fn drop(&mut self) {
        // SAFETY: the core counted the reference for us, and it is dropped once.
        unsafe { self.free.call(self.handle, 0) };
    }
}

/// A place for a reference.
struct Place {
    /// NULL without one.
    handle: AtomicPtr<CoreHandle>,
    free: ProviderFree,
}

impl Place {
    fn new(free: ProviderFree) -> Place {
        Place {
            handle: AtomicPtr::new(null_mut()),
            free,
        }
    }

    /// Keeps a reference, or returns it if there is one already.
    fn put(&self, reference: Reference) -> Result<(), Reference> {
        let (ours, kept) = (reference.handle, &self.handle);
        let put = kept.compare_exchange(null_mut(), ours, Ordering::AcqRel, Ordering::Acquire);
        if put.is_err() {
            return Err(reference);
        }
        std::mem::forget(reference);
        Ok(())
    }

    fn take(&self) -> Option<Reference> {
        let handle = self.handle.swap(null_mut(), Ordering::AcqRel);
        let free = self.free;
        (!handle.is_null()).then(|| Reference { handle, free })
    }
}

/// The application's default provider, with a reference to it.
struct Found {
    reference: Reference,
    context: ProvCtx,
    /// NULL where the core does not tell.
    library: *mut CoreCtx,
    ml_kem: MlKemSettings,
}

/// Returns the default provider of the library context that loads the module, if it is active and
/// has the functions of the private context's default provider.
fn application_default(core: &Core, stock: &Stock) -> Option<Found> {
    /// The callbacks' search, and its result.
    struct Search {
        dispatch: *const Dispatch,
        get_dispatch: ProviderGet0Dispatch,
        up_ref: ProviderUpRef,
        found: Place,
    }
    /// Called for each active provider, under locks of libcrypto: nothing here waits or allocates.
    unsafe extern "C" fn visit(provider: *const CoreHandle, search: *mut c_void) -> c_int {
        // SAFETY: the `Search` below, alive until the callbacks are deregistered; other threads may
        // be here too. The functions are the core's, called with its handle.
        let (search, is_held) = unsafe {
            let search = &*search.cast::<Search>();
            let is_default = search.get_dispatch.call(provider) == search.dispatch;
            // `up_ref` returns the number of references.
            (search, is_default && search.up_ref.call(provider, 0) > 0)
        };
        if is_held {
            let reference = Reference {
                handle: provider.cast_mut(),
                free: search.found.free,
            };
            // If another thread has put a reference already, this one is given back.
            drop(search.found.put(reference));
        }
        1
    }
    unsafe extern "C" fn leave(_provider: *const CoreHandle, _search: *mut c_void) -> c_int {
        1
    }
    unsafe extern "C" fn properties(_query: *const c_char, _search: *mut c_void) -> c_int {
        1
    }
    let register = RegisterChildCb::of(core.table())?;
    let deregister = DeregisterChildCb::of(core.table())?;
    let get_context = ProviderGet0ProviderCtx::of(core.table())?;
    let search = Search {
        dispatch: stock.dispatch(),
        get_dispatch: ProviderGet0Dispatch::of(core.table())?,
        up_ref: ProviderUpRef::of(core.table())?,
        found: Place::new(ProviderFree::of(core.table())?),
    };
    // These are the callbacks by which a provider learns of the others (provider-base(7)). Unlike
    // `OSSL_PROVIDER_load`, they do not make libcrypto read its configuration, which it may be
    // doing. The result of the registration differs among versions; a deregistration without a
    // registration does no harm. SAFETY: the core's functions with our own handle. No callback runs
    // after the deregistration, which waits for those that run.
    unsafe {
        let data = (&raw const search).cast_mut().cast();
        register.call(core.handle(), visit, leave, properties, data);
        deregister.call(core.handle());
    }
    let reference = search.found.take()?;
    // SAFETY: a default provider, which stays as long as the reference is held.
    let context = unsafe {
        let context = get_context.call(reference.handle);
        (!context.is_null()).then(|| ProvCtx::new(context))?
    };
    let library = CoreGetLibctx::of(core.table());
    // SAFETY: the core's function with its handle.
    let library = library.map_or(null_mut(), |get| unsafe { get.call(core.handle()) });
    // SAFETY: the reference keeps the provider.
    let setting = |name: &str| unsafe { core.param_of(reference.handle, name) };
    let ml_kem = MlKemSettings::read(setting);
    Some(Found {
        reference,
        context,
        library,
        ml_kem,
    })
}

/// A reference to a default provider, or room for one.
struct Slot {
    reference: Place,
    /// NULL in a free slot, and while a slot is taken or freed.
    context: AtomicPtr<c_void>,
    /// The application's library context, until [`library_once`] has given it.
    library: AtomicPtr<CoreCtx>,
    /// The [`MlKemSettings`].
    ml_kem: AtomicU8,
    next: OnceBox<Slot>,
}

/// All slots, as a list. Slots are used again and never freed, so there are at most as many as
/// there were instances at a time.
static SLOTS: OnceBox<Slot> = OnceBox::new();

/// Returns all slots that exist now.
fn slots() -> impl Iterator<Item = &'static Slot> {
    std::iter::successors(SLOTS.get(), |slot| slot.next.get())
}

impl Found {
    /// Keeps the reference until [`end`], in the first slot that is free.
    fn note(self) {
        let Found {
            mut reference,
            context,
            library,
            ml_kem,
        } = self;
        let mut place = &SLOTS;
        loop {
            let slot = place.get_or_init(|| Slot::new(reference.free));
            match slot.reference.put(reference) {
                Ok(()) => {
                    slot.library.store(library, Ordering::Relaxed);
                    slot.ml_kem.store(ml_kem.0, Ordering::Relaxed);
                    return slot.context.store(context.as_ptr(), Ordering::Release);
                }
                Err(returned) => reference = returned,
            }
            place = &slot.next;
        }
    }
}

impl Slot {
    fn new(free: ProviderFree) -> Box<Slot> {
        Box::new(Slot {
            reference: Place::new(free),
            context: AtomicPtr::new(null_mut()),
            library: AtomicPtr::new(null_mut()),
            ml_kem: AtomicU8::new(0),
            next: OnceBox::new(),
        })
    }

    /// Takes the reference out of this slot, if it is a reference to a provider with this context.
    fn take(&self, context: *mut c_void) -> Option<Reference> {
        // While a slot has a context, the slot has the reference that belongs to the context.
        self.context
            .compare_exchange(context, null_mut(), Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        self.reference.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_ml_kem_are_read_as_openssl_reads_them() {
        let read = |name: &str, value: &str| {
            let settings = MlKemSettings::read(|asked| (asked == name).then(|| value.into()));
            [
                settings.retains_seed(),
                settings.prefers_seed(),
                settings.checks_pairs(),
            ]
        };
        let all = [true; 3];
        assert_eq!(MlKemSettings::read(|_| None), MlKemSettings::DEFAULT);
        for value in ["no", "No", "OFF", "false", "0"] {
            assert_eq!(read("ml-kem.retain_seed", value), [false, true, true]);
            assert_eq!(read("ml-kem.prefer_seed", value), [true, false, true]);
        }
        for value in ["yes", "1", "maybe", ""] {
            assert_eq!(read("ml-kem.retain_seed", value), all);
            assert_eq!(read("ml-kem.prefer_seed", value), all);
        }
        for value in ["random", "Fixed"] {
            assert_eq!(read("ml-kem.import_pct_type", value), all);
        }
        assert_eq!(read("ml-kem.import_pct_type", "none"), [true, true, false]);
    }
}
