//! When a batch starts, how large it grows, and who runs it. Pure functions. The reasons are in
//! `docs/decisions/0002-gathering.md`, the figures in `docs/lab/gathering.md`.

use lockstep_kernels::backend::Backend;
use lockstep_kernels::rsa::Size;

use crate::kinds::Curve;
use crate::shape::Shape;

/// What a decision about one shape looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Requests in the queue.
    pub waiting: usize,
    /// Those of them whose thread is blocked, and so can lead.
    pub threads: usize,
    /// Leaders that have a slot and have not yet taken their batch.
    pub leaders: usize,
    /// Requests that such leaders brought along.
    pub in_hand: usize,
    /// Batches that run.
    pub running: usize,
    /// Requests in them.
    pub in_batches: usize,
    /// Requests in the batch that was taken last.
    pub last: usize,
    /// Threads that compute with OpenSSL's own implementation outside of the slots.
    pub elsewhere: usize,
    /// Requests that fill a pass of the lanes.
    pub pass: usize,
    /// Requests that a batch may have.
    pub batch: usize,
}

impl View {
    /// Requests that no batch has taken yet.
    fn gathered(&self) -> usize {
        self.waiting + self.in_hand
    }
}

/// The rules, with the numbers that they depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// Batches that may run at a time: the CPUs of this process.
    pub slots: usize,
    /// How often a leader may yield its CPU while requests gather.
    pub yields: u32,
}

/// How often in a row a leader yields in vain before it stops expecting more.
pub(crate) const PATIENCE: u32 = 2;

impl Policy {
    /// How many requests the next batch takes at most.
    ///
    /// All that are in the engine, divided among the slots, in full passes: eight requests on two
    /// idle CPUs are better served as twice four at the same time than as eight on one of them. And
    /// what would fill the last pass only in part stays for the next leader.
    pub fn share(&self, view: &View) -> usize {
        let most = self.room(view);
        let gathered = view.gathered();
        if view.pass < gathered && gathered < most {
            gathered - gathered % view.pass
        } else {
            most
        }
    }

    /// Whether one of the waiting requests gets a free slot now.
    ///
    /// A thread never waits while a slot is free. Asynchronous requests do, while a batch of
    /// their shape runs and they do not fill a pass: their callers have other work.
    pub fn starts(&self, view: &View) -> bool {
        // What a leader on its way will take needs no other leader.
        let unled = view.gathered() > view.leaders * self.share(view);
        let alone = view.running + view.leaders == 0;
        view.waiting > 0 && unled && (view.threads > 0 || alone || view.waiting >= view.pass)
    }

    /// Whether a leader has reason to expect more requests than it sees, and so yields its CPU to
    /// the threads that would bring them: the batch before had company, this one has already, or
    /// more threads compute than there are CPUs.
    pub fn expects_company(&self, view: &View) -> bool {
        let busy = view.running + view.leaders + view.elsewhere;
        (view.last > 1 || view.gathered() > view.leaders || busy > self.slots)
            && view.gathered() < view.leaders * self.room(view)
    }

    /// Whether a request that came now would run alone, if there is a free slot: it would be led at
    /// once, and its leader would neither find others nor expect any.
    pub fn is_alone(&self, view: &View) -> bool {
        let arrived = View {
            waiting: view.waiting + 1,
            threads: view.threads + 1,
            ..*view
        };
        let led = View {
            leaders: view.leaders + 1,
            in_hand: view.in_hand + 1,
            ..*view
        };
        view.waiting == 0 && self.starts(&arrived) && !self.expects_company(&led)
    }

    /// A slot's part of all that is in the engine, in full passes.
    fn room(&self, view: &View) -> usize {
        let each = (view.gathered() + view.in_batches).div_ceil(self.slots);
        each.next_multiple_of(view.pass)
            .clamp(view.pass, view.batch)
    }
}

/// Whether lone requests go to OpenSSL's own implementation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lone {
    /// Where OpenSSL's own implementation was measured to be faster.
    #[default]
    Auto,
    /// Never; nor do any others where full lanes bring nothing.
    Lanes,
    /// Always.
    Stock,
}

/// Whether OpenSSL 3.0's own implementation serves one request alone faster than `backend` does.
/// Measured, see `docs/lab/gathering.md` for RSA, `docs/lab/curves.md`, and `docs/lab/avx2.md`.
pub(crate) fn lone_is_slower(backend: Backend, shape: Shape) -> bool {
    if backend == Backend::PORTABLE {
        // It is in use only if the configuration names it.
        return false;
    }
    match shape {
        Shape::Rsa { size, .. } => size == Size::Rsa2048,
        Shape::X25519 | Shape::Ed25519Sign | Shape::Ed25519Verify => backend.is_avx2(),
        _ => false,
    }
}

/// Which requests of asynchronous jobs the jobs' own threads serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobsLead {
    /// All; workers help with those that take longer than to hand a batch to another thread and to
    /// be notified of its end.
    #[default]
    Auto,
    /// All, and workers none.
    Yes,
    /// None: workers serve them all.
    No,
}

impl JobsLead {
    /// Whether workers help with a shape. Measured, see `docs/lab/jobs-lead.md`.
    pub(crate) fn wants_help(self, shape: Shape, slots: usize) -> bool {
        // With one slot another thread would have no CPU of its own.
        self == JobsLead::Auto
            && slots > 1
            && match shape {
                Shape::Rsa { .. } => true,
                Shape::Ecdh(curve) => curve == Curve::P384,
                _ => false,
            }
    }
}

/// Whether OpenSSL's own implementation serves requests one by one about as fast as `backend` does
/// at best, or faster: then it gets all of them. Measured, see
/// `docs/lab/rsa-words.md`.
pub fn lanes_bring_nothing(backend: Backend, shape: Shape) -> bool {
    shape.is_rsa() && backend.is_avx2()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_avx2_brings_nothing_for_rsa() {
        for backend in Backend::available() {
            for shape in Shape::ALL {
                let nothing = shape.is_rsa() && backend.name() == "avx2";
                assert_eq!(lanes_bring_nothing(backend, shape), nothing);
            }
        }
    }

    #[test]
    fn a_25519_request_alone_is_slower_on_avx2_lanes_only() {
        for backend in Backend::available() {
            for shape in [Shape::X25519, Shape::Ed25519Sign, Shape::Ed25519Verify] {
                let slower = backend.name() == "avx2";
                assert_eq!(lone_is_slower(backend, shape), slower);
            }
        }
    }

    #[test]
    fn of_lanes_with_52_bit_multiplies_only_rsa_2048_alone_is_slower() {
        let fast = |backend: &Backend| backend.name().starts_with("avx512ifma");
        for backend in Backend::available().into_iter().filter(fast) {
            for shape in Shape::ALL {
                let slower = shape.name().starts_with("rsa2048");
                assert_eq!(lone_is_slower(backend, shape), slower, "{}", shape.name());
            }
        }
    }

    const POLICY: Policy = Policy {
        slots: 2,
        yields: 16,
    };
    const IDLE: View = View {
        waiting: 0,
        threads: 0,
        leaders: 0,
        in_hand: 0,
        running: 0,
        in_batches: 0,
        last: 0,
        elsewhere: 0,
        pass: 4,
        batch: 8,
    };

    #[test]
    fn a_share_is_a_slots_part_in_full_passes() {
        let share = |waiting, in_batches| {
            POLICY.share(&View {
                waiting,
                in_batches,
                ..IDLE
            })
        };
        assert_eq!(share(1, 0), 4);
        assert_eq!(share(4, 0), 4);
        assert_eq!(share(8, 0), 4, "two slots take four each");
        assert_eq!(share(9, 0), 8, "the ninth needs a further pass");
        assert_eq!(share(16, 0), 8);
        assert_eq!(share(100, 0), 8);
        assert_eq!(share(5, 8), 4, "the fifth would run alone in its pass");
        assert_eq!(share(3, 8), 8, "room for more that may come");
    }

    #[test]
    fn a_thread_starts_at_once() {
        assert!(POLICY.starts(&View {
            waiting: 1,
            threads: 1,
            ..IDLE
        }));
        let busy = View {
            running: 1,
            in_batches: 8,
            ..IDLE
        };
        assert!(POLICY.starts(&View {
            waiting: 1,
            threads: 1,
            ..busy
        }));
    }

    #[test]
    fn a_leader_on_its_way_needs_no_other() {
        let led = View {
            leaders: 1,
            in_hand: 1,
            ..IDLE
        };
        assert!(!POLICY.starts(&View {
            waiting: 3,
            threads: 3,
            ..led
        }));
        assert!(
            POLICY.starts(&View {
                waiting: 4,
                threads: 4,
                ..led
            }),
            "a fifth request does"
        );
    }

    #[test]
    fn who_finds_and_expects_nobody_is_alone() {
        assert!(POLICY.is_alone(&IDLE));
        let running = View {
            running: 1,
            in_batches: 8,
            last: 1,
            ..IDLE
        };
        assert!(POLICY.is_alone(&running), "the other slot is for it");
        let led = View {
            leaders: 1,
            in_hand: 1,
            ..IDLE
        };
        for company in [
            View { waiting: 1, ..IDLE },
            led,
            View { last: 2, ..IDLE },
            View {
                elsewhere: 2,
                ..IDLE
            },
        ] {
            assert!(!POLICY.is_alone(&company), "{company:?}");
        }
    }

    #[test]
    fn jobs_wait_for_a_pass_or_an_end() {
        let busy = View {
            running: 1,
            in_batches: 8,
            ..IDLE
        };
        assert!(POLICY.starts(&View { waiting: 1, ..IDLE }));
        assert!(!POLICY.starts(&View { waiting: 3, ..busy }));
        assert!(POLICY.starts(&View { waiting: 4, ..busy }));
    }

    #[test]
    fn only_signs_of_company_make_a_leader_yield() {
        let led = View {
            leaders: 1,
            in_hand: 1,
            ..IDLE
        };
        assert!(!POLICY.expects_company(&led));
        let worker = View {
            leaders: 1,
            waiting: 1,
            ..IDLE
        };
        assert!(
            !POLICY.expects_company(&worker),
            "what it leads for is no company"
        );
        assert!(!POLICY.expects_company(&View {
            running: 1,
            in_batches: 1,
            last: 1,
            ..led
        }));
        assert!(POLICY.expects_company(&View { last: 8, ..led }));
        assert!(POLICY.expects_company(&View { waiting: 1, ..led }));
        assert!(
            !POLICY.expects_company(&View { waiting: 3, ..led }),
            "the pass is full"
        );
        assert!(!POLICY.expects_company(&View {
            elsewhere: 1,
            ..led
        }));
        assert!(POLICY.expects_company(&View {
            elsewhere: 2,
            ..led
        }));
    }
}
