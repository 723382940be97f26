//! The module's values for OpenSSL's key objects, found by the addresses of the objects.
//!
//! They are not in the objects' ex_data. libcrypto numbers the slots of ex_data in each library
//! context anew, and looks them up in the context that is the thread's default at that moment. So
//! the number that the module gets in one context is the program's in another one. There, libcrypto
//! would copy the module's value into a duplicate, pass it to the program's callbacks, and take the
//! program's value for the module's.
//!
//! The table has no lock, so a child process can use it even if a thread of the parent was changing
//! it at the fork.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use once_cell::race::OnceBox;

const BUCKET_BITS: u32 = 12;
const BRANCH_BITS: u32 = 2;

/// Values of type `T` for some objects `O`. A value must be removed before its object is freed,
/// because the next object may have the same address.
pub struct Attached<O, T> {
    /// Trees of slots, by the hash of the object. The first bits of the hash choose the tree, and
    /// further bits the branch at each slot, so that the way to a slot stays short. An object may
    /// be in any slot on its way. Slots are used again and never freed.
    buckets: [OnceBox<Slot<O, T>>; 1 << BUCKET_BITS],
}

/// An object and its value.
struct Slot<O, T> {
    /// A box; NULL in a free slot.
    value: AtomicPtr<T>,
    /// NULL in a free slot, and while a thread takes or frees the slot.
    object: AtomicPtr<O>,
    branches: [OnceBox<Slot<O, T>>; 1 << BRANCH_BITS],
}

/// The way of an object through the table: the unused bits of its hash.
#[derive(Clone, Copy)]
struct Way(u64);

impl Way {
    fn of<O>(object: *const O) -> Way {
        // 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, 6.4).
        Way((object.addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Takes the next bits; zeros when there are no more.
    fn take(&mut self, bits: u32) -> usize {
        let taken = self.0 >> (u64::BITS - bits);
        self.0 <<= bits;
        taken as usize
    }
}

impl<O, T: Send + Sync> Attached<O, T> {
    /// Makes a table without values.
    pub const fn new() -> Attached<O, T> {
        Attached {
            buckets: [const { OnceBox::new() }; 1 << BUCKET_BITS],
        }
    }

    /// Returns the value of an object, if it has one.
    pub fn get<'a>(&self, object: &'a O) -> Option<&'a T> {
        let value = self.slot_of(object)?.value.load(Ordering::Acquire);
        // SAFETY: a slot that has this object holds NULL or a box of `put`, which stays until the
        // object is borrowed exclusively.
        unsafe { value.as_ref() }
    }

    /// Gives an object this value instead of any that it has.
    pub fn put(&self, object: &mut O, value: T) {
        let value = Box::into_raw(Box::new(value));
        match self.slot_of(object) {
            // SAFETY: the slot is the object's, which is borrowed exclusively.
            Some(slot) => unsafe { free(slot.value.swap(value, Ordering::AcqRel)) },
            None => self.take_slot(object, value),
        }
    }

    /// Frees the value of an object, if it has one.
    pub fn remove(&self, object: &mut O) {
        if let Some(slot) = self.slot_of(object) {
            // In this order: once the value is NULL, the slot may be another object's.
            slot.object.store(null_mut(), Ordering::Release);
            // SAFETY: the slot was the object's, which is borrowed exclusively.
            unsafe { free(slot.value.swap(null_mut(), Ordering::AcqRel)) };
        }
    }

    /// Returns the start of an object's way, and the rest of the way.
    fn start(&self, object: *const O) -> (&OnceBox<Slot<O, T>>, Way) {
        let mut way = Way::of(object);
        (&self.buckets[way.take(BUCKET_BITS)], way)
    }

    fn slot_of(&self, object: *const O) -> Option<&Slot<O, T>> {
        let (mut place, mut way) = self.start(object);
        loop {
            let slot = place.get()?;
            if slot.object.load(Ordering::Acquire).cast_const() == object {
                return Some(slot);
            }
            place = slot.branch(&mut way);
        }
    }

    /// Puts an object and its value into the first free slot on its way.
    fn take_slot(&self, object: *mut O, value: *mut T) {
        let (mut place, mut way) = self.start(object);
        loop {
            let slot = place.get_or_init(|| Box::new(Slot::free()));
            if slot.take(value) {
                return slot.object.store(object, Ordering::Release);
            }
            place = slot.branch(&mut way);
        }
    }
}

impl<O, T> Slot<O, T> {
    const fn free() -> Slot<O, T> {
        Slot {
            value: AtomicPtr::new(null_mut()),
            object: AtomicPtr::new(null_mut()),
            branches: [const { OnceBox::new() }; 1 << BRANCH_BITS],
        }
    }

    fn branch(&self, way: &mut Way) -> &OnceBox<Slot<O, T>> {
        &self.branches[way.take(BRANCH_BITS)]
    }

    /// Puts a value here if the slot is free. It reads the slot first, because even a failed
    /// exchange takes the slot's memory from the caches of other CPUs.
    fn take(&self, value: *mut T) -> bool {
        let (taken, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        self.value.load(failed).is_null()
            && self
                .value
                .compare_exchange(null_mut(), value, taken, failed)
                .is_ok()
    }
}

/// Frees a value that was taken out of its slot.
///
/// # Safety
///
/// The value is NULL or a box of `put`, and no thread uses it.
unsafe fn free<T>(value: *mut T) {
    if !value.is_null() {
        // SAFETY: as the caller says.
        drop(unsafe { Box::from_raw(value) });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    type Place = OnceBox<Slot<u64, Arc<u64>>>;

    /// Returns the number of slots that a table has made, and the length of the longest way.
    fn slots(places: &[Place]) -> (usize, usize) {
        let trees = places.iter().filter_map(|place| place.get());
        trees.fold((0, 0), |(count, longest), slot| {
            let (more, behind) = slots(&slot.branches);
            (count + 1 + more, longest.max(1 + behind))
        })
    }

    #[test]
    fn each_object_has_its_own_value_until_it_is_removed() {
        static TABLE: Attached<u64, Arc<u64>> = Attached::new();
        // More objects than buckets, so that some share a bucket.
        let mut objects: Vec<u64> = (0..3 << BUCKET_BITS).collect();
        for _ in 0..2 {
            for object in &mut objects {
                TABLE.put(object, Arc::new(!0));
                TABLE.put(object, Arc::new(*object));
            }
            let is_right = |object: &u64| TABLE.get(object).is_some_and(|value| **value == *object);
            assert!(objects.iter().all(is_right));
            assert!(TABLE.get(&0).is_none());
            for object in objects.iter_mut().step_by(2) {
                TABLE.remove(object);
            }
            let is_there = objects.iter().map(|object| TABLE.get(object).is_some());
            assert!(is_there.eq((0..objects.len()).map(|place| place % 2 == 1)));
            for object in &mut objects {
                TABLE.remove(object);
            }
            let (count, _) = slots(&TABLE.buckets);
            assert_eq!(count, objects.len(), "slots are used again");
        }
    }

    #[test]
    fn the_way_to_each_of_many_objects_is_short() {
        static TABLE: Attached<u64, Arc<u64>> = Attached::new();
        let mut objects = vec![0; 64 << BUCKET_BITS];
        let value = Arc::new(0);
        for object in &mut objects {
            TABLE.put(object, Arc::clone(&value));
        }
        let (count, longest) = slots(&TABLE.buckets);
        assert_eq!(count, objects.len());
        // A list for each bucket would have 64 slots.
        assert!(longest <= 16, "{longest}");
    }

    #[test]
    fn values_are_freed_once() {
        static TABLE: Attached<u64, Arc<u64>> = Attached::new();
        let (first, second) = (Arc::new(1), Arc::new(2));
        let mut object = 0;
        TABLE.remove(&mut object);
        TABLE.put(&mut object, Arc::clone(&first));
        TABLE.put(&mut object, Arc::clone(&second));
        let counts = || [&first, &second].map(Arc::strong_count);
        assert_eq!(counts(), [1, 2]);
        TABLE.remove(&mut object);
        TABLE.remove(&mut object);
        assert_eq!(counts(), [1, 1]);
    }

    #[test]
    fn threads_change_the_values_of_their_objects_at_the_same_time() {
        static TABLE: Attached<u64, Arc<u64>> = Attached::new();
        let mut objects = vec![0; 4 << BUCKET_BITS];
        thread::scope(|scope| {
            for (number, objects) in (1..).zip(objects.chunks_mut(1 << BUCKET_BITS)) {
                scope.spawn(move || {
                    for _ in 0..20 {
                        for object in &mut *objects {
                            TABLE.put(object, Arc::new(number));
                        }
                        let is_right =
                            |object: &u64| TABLE.get(object).is_some_and(|value| **value == number);
                        assert!(objects.iter().all(is_right));
                        for object in &mut *objects {
                            TABLE.remove(object);
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn one_of_two_threads_takes_a_free_slot() {
        const TURNS: usize = 20_000;
        let slot: Slot<u64, u64> = Slot::free();
        let (ready, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let meet = |meeting: usize| {
            ready.fetch_add(1, Ordering::SeqCst);
            // Both continue at the same moment, unless one of them has no CPU.
            let mut looks = 0_u32;
            while ready.load(Ordering::SeqCst) < 2 * meeting {
                looks += 1;
                if looks.is_multiple_of(1000) {
                    thread::yield_now();
                }
            }
        };
        let take = |mut value: u64| {
            for turn in 0..TURNS {
                slot.value.store(null_mut(), Ordering::SeqCst);
                meet(2 * turn + 1);
                let is_taken = slot.take(&raw mut value);
                taken.fetch_add(usize::from(is_taken), Ordering::SeqCst);
                meet(2 * turn + 2);
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| take(1));
            take(2);
        });
        assert_eq!(taken.into_inner(), TURNS);
    }
}
