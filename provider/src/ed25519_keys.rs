//! Keys of Ed25519 that are [references](crate::reference).
//!
//! OpenSSL's objects for them have no room for values of others. So the module notes by its address
//! which object is a reference, from when it is made until libcrypto gives it back.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use once_cell::race::OnceBox;

use crate::daemon_key::Key;
use crate::ffi::keymgmt::{Dup, Free};
use crate::ffi::{Dispatch, KeyData, OwnedKey};
use crate::keymgmt;
use crate::reference::{self, Referable};
use crate::stock::families::Ed25519Keys;

/// What differs from OpenSSL's own in the management of these keys.
pub fn wrappers() -> Vec<Dispatch> {
    let mut wrappers = vec![Free::entry(free), Dup::entry(duplicate)];
    wrappers.extend(reference::wrappers::<Ed25519Keys>());
    wrappers
}

impl Referable for Ed25519Keys {
    fn refer(key: &OwnedKey<Ed25519Keys>, to: Arc<Key>) -> bool {
        note(address(key), to);
        true
    }

    fn referent(key: &KeyData<Ed25519Keys>) -> Option<Arc<Key>> {
        let key = address(key);
        slots().find_map(|slot| slot.get(key))
    }

    fn release(key: OwnedKey<Ed25519Keys>) {
        let address = address(&key);
        drop(slots().find_map(|slot| slot.take(address)));
        drop(key);
    }
}

/// `OSSL_FUNC_keymgmt_free`: libcrypto gives a key back once. A context of the module's that still
/// uses it has taken what it needs.
fn free(key: Option<OwnedKey<Ed25519Keys>>) {
    if let Some(key) = key {
        Ed25519Keys::release(key);
    }
}

/// `OSSL_FUNC_keymgmt_dup`
fn duplicate(
    key: Option<&KeyData<Ed25519Keys>>,
    selection: c_int,
) -> Option<OwnedKey<Ed25519Keys>> {
    let key = key?;
    keymgmt::duplicate_reference(key).unwrap_or_else(|| Dup::pass(key, selection))
}

fn address(key: &KeyData<Ed25519Keys>) -> *mut KeyData<Ed25519Keys> {
    std::ptr::from_ref(key).cast_mut()
}

/// An object, and what it refers to.
struct Slot {
    /// NULL in a free slot.
    referent: AtomicPtr<Key>,
    /// NULL in a free slot, and while a slot is taken or freed.
    key: AtomicPtr<KeyData<Ed25519Keys>>,
    next: OnceBox<Slot>,
}

/// All slots, as a list. Slots are used again and never freed.
static SLOTS: OnceBox<Slot> = OnceBox::new();

fn slots() -> impl Iterator<Item = &'static Slot> {
    std::iter::successors(SLOTS.get(), |slot| slot.next.get())
}

/// Notes what an object refers to, in the first slot that is free.
fn note(key: *mut KeyData<Ed25519Keys>, to: Arc<Key>) {
    let referent = Arc::into_raw(to).cast_mut();
    let mut place = &SLOTS;
    loop {
        let slot = place.get_or_init(|| {
            Box::new(Slot {
                referent: AtomicPtr::new(null_mut()),
                key: AtomicPtr::new(null_mut()),
                next: OnceBox::new(),
            })
        });
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let free = slot
            .referent
            .compare_exchange(null_mut(), referent, order.0, order.1);
        if free.is_ok() {
            return slot.key.store(key, Ordering::Release);
        }
        place = &slot.next;
    }
}

impl Slot {
    /// What this object refers to, if that is noted here. The caller uses the object, so nobody
    /// gives it back meanwhile.
    fn get(&self, key: *mut KeyData<Ed25519Keys>) -> Option<Arc<Key>> {
        if self.key.load(Ordering::Acquire) != key {
            return None;
        }
        let referent = self.referent.load(Ordering::Acquire);
        // SAFETY: made by `note` from an `Arc`. While a slot has a key it has the referent that
        // belongs to it, and this key stays.
        unsafe {
            Arc::increment_strong_count(referent);
            Some(Arc::from_raw(referent))
        }
    }

    /// The same for the last time.
    fn take(&self, key: *mut KeyData<Ed25519Keys>) -> Option<Arc<Key>> {
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        self.key
            .compare_exchange(key, null_mut(), order.0, order.1)
            .ok()?;
        let referent = self.referent.swap(null_mut(), Ordering::AcqRel);
        // SAFETY: made by `note` from an `Arc`, and taken out once.
        Some(unsafe { Arc::from_raw(referent) })
    }
}
