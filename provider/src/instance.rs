//! Provider instances, and the default provider that each works with.
//!
//! Each library context that loads the module has an instance. Our provider context *is* that of a
//! default provider, so that its functions can stand in our tables as they are. It is the
//! application's own default provider where there is one when we are loaded: then the functions see
//! the digests, random generators, properties and policies of the application. Elsewhere it is the
//! one of our private library context ([`stock`](crate::stock)).
//!
//! An instance holds a reference to the application's default provider until its own teardown. The
//! reference keeps the provider's context alive, and does not keep the provider active. There are
//! no locks here: a process may fork at any time.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::ffi::provider::{
    DeregisterChildCb, ProviderFree, ProviderGet0Dispatch, ProviderGet0ProviderCtx, ProviderUpRef,
    RegisterChildCb,
};
use crate::ffi::{CoreHandle, Dispatch, ProvCtx};
use crate::loader::Core;
use crate::stock::Stock;

/// The provider context for a new instance. It is to be given back by [`end`].
pub fn begin(core: &Core, stock: &Stock) -> ProvCtx {
    let Some(found) = application_default(core, stock) else {
        return stock.provctx();
    };
    found.note();
    found.context
}

/// Ends an instance with this context.
pub fn end(context: ProvCtx) {
    let context = context.as_ptr();
    let held = slots().find_map(|slot| Some((slot.take(context)?, slot.free)));
    if let Some((held, free)) = held {
        // SAFETY: see `Slot::take`.
        unsafe { free.call(held, 0) };
    }
}

/// The application's default provider, with a reference to it.
struct Found {
    handle: *mut CoreHandle,
    context: ProvCtx,
    free: ProviderFree,
}

/// The default provider of the library context that loads us, if it is active and is the same
/// implementation as the one in our private context.
fn application_default(core: &Core, stock: &Stock) -> Option<Found> {
    /// What the callbacks know, and what they have found.
    struct Search {
        dispatch: *const Dispatch,
        get_dispatch: ProviderGet0Dispatch,
        up_ref: ProviderUpRef,
        free: ProviderFree,
        found: AtomicPtr<CoreHandle>,
    }
    /// Called for each active provider, under locks of libcrypto: nothing here waits or allocates.
    unsafe extern "C" fn visit(provider: *const CoreHandle, search: *mut c_void) -> c_int {
        // SAFETY: the `Search` below, alive until the callbacks are deregistered; other threads may
        // be here too. The functions are the core's, called with its handle.
        unsafe {
            let search = &*search.cast::<Search>();
            let is_default = search.get_dispatch.call(provider) == search.dispatch;
            // It returns the number of references.
            if is_default && search.up_ref.call(provider, 0) > 0 {
                let handle = provider.cast_mut();
                let first = search.found.compare_exchange(
                    null_mut(),
                    handle,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                );
                if first.is_err() {
                    search.free.call(provider, 0);
                }
            }
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
    let free = ProviderFree::of(core.table())?;
    let search = Search {
        dispatch: stock.dispatch(),
        get_dispatch: ProviderGet0Dispatch::of(core.table())?,
        up_ref: ProviderUpRef::of(core.table())?,
        free,
        found: AtomicPtr::new(null_mut()),
    };
    // These are the callbacks by which a provider learns of the others (provider-base(7)). Unlike
    // `OSSL_PROVIDER_load`, they do not have libcrypto read its configuration, which it may be
    // doing. What the registration returns, differs; the deregistration does no harm where there is
    // none. SAFETY: the core's functions with our own handle. No callback runs after the
    // deregistration, which waits for those that run.
    let handle = unsafe {
        let data = (&raw const search).cast_mut().cast();
        register.call(core.handle(), visit, leave, properties, data);
        deregister.call(core.handle());
        search.found.load(Ordering::Acquire)
    };
    if handle.is_null() {
        return None;
    }
    // SAFETY: a reference to this provider is held; it is given back if the provider has no
    // context.
    unsafe {
        let context = get_context.call(handle);
        if context.is_null() {
            free.call(handle, 0);
            return None;
        }
        Some(Found {
            handle,
            context: ProvCtx::new(context),
            free,
        })
    }
}

/// A reference to a default provider, or room for one.
struct Slot {
    /// NULL in a free slot.
    handle: AtomicPtr<CoreHandle>,
    /// NULL in a free slot, and while a slot is taken or freed.
    context: AtomicPtr<c_void>,
    free: ProviderFree,
    next: *mut Slot,
}

/// All slots, as a list. Slots are used again and never freed, so there are at most as many as
/// there were instances at a time.
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(null_mut());

/// All slots there are now.
fn slots() -> impl Iterator<Item = &'static Slot> {
    // SAFETY: NULL, or a slot. Slots are never freed.
    let slot = |slot: *mut Slot| unsafe { slot.as_ref::<'static>() };
    let first = slot(SLOTS.load(Ordering::Acquire));
    std::iter::successors(first, move |current| slot(current.next))
}

impl Found {
    /// Keeps the reference until [`end`].
    fn note(&self) {
        for slot in slots() {
            let taken = slot.handle.compare_exchange(
                null_mut(),
                self.handle,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if taken.is_ok() {
                slot.context.store(self.context.as_ptr(), Ordering::Release);
                return;
            }
        }
        let fresh = Box::leak(Box::new(Slot {
            handle: AtomicPtr::new(self.handle),
            context: AtomicPtr::new(self.context.as_ptr()),
            free: self.free,
            next: null_mut(),
        }));
        let mut head = SLOTS.load(Ordering::Acquire);
        loop {
            fresh.next = head;
            match SLOTS.compare_exchange_weak(head, fresh, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

impl Slot {
    /// The reference in this slot, which is the caller's from now on, if it is one to a provider
    /// with this context.
    fn take(&self, context: *mut c_void) -> Option<*mut CoreHandle> {
        // While a slot has a context, it has the handle that belongs to it.
        self.context
            .compare_exchange(context, null_mut(), Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        Some(self.handle.swap(null_mut(), Ordering::AcqRel))
    }
}
