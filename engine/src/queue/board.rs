//! Where jobs gather whose own threads lead.
//!
//! An event loop starts one asynchronous job after the other and then resumes them. So the job that
//! is resumed first finds the requests of the others here, and runs them as one batch: no worker is
//! woken for them, and the answers lie ready when the others are resumed. A request waits here
//! until its job comes back, or until a job of another thread takes it along to fill a pass.
//!
//! Every job comes back for its request, so nothing here needs a leader from elsewhere, a slot or
//! an order among shapes. Workers may help ([`Column::take_pass`]), where a pass takes long enough
//! to be worth it.

use std::collections::VecDeque;
use std::time::Instant;

use super::completion::Booth;
use crate::caller::ThreadId;
use crate::executor::Executor;
use crate::sync::{Arc, Mutex, MutexGuard, lock};

/// The posted requests of all shapes.
pub(crate) struct Board<E: Executor> {
    columns: Vec<Mutex<Column<E>>>,
}

/// The posted requests of one shape, the oldest first.
pub(crate) struct Column<E: Executor> {
    posts: VecDeque<Post<E>>,
    closed: bool,
}

/// One request, and where its answer goes.
pub(crate) struct Post<E: Executor> {
    pub request: E::Request,
    pub booth: Arc<Booth<E::Response>>,
    /// When its thread posted the first of those that it has posted without another in between: to
    /// read the clock for each would cost a short request more than a percent of its time.
    pub since: Instant,
    home: ThreadId,
}

impl<E: Executor> Board<E> {
    pub(crate) fn new() -> Board<E> {
        let column = |_| {
            Mutex::new(Column {
                posts: VecDeque::new(),
                closed: false,
            })
        };
        Board {
            columns: E::SHAPES.iter().map(column).collect(),
        }
    }

    pub(crate) fn column(&self, shape: E::Shape) -> MutexGuard<'_, Column<E>> {
        lock(&self.columns[E::index(shape)])
    }

    /// Takes everything, and nothing more from now on.
    pub(crate) fn close(&self) -> Vec<Post<E>> {
        let mut left = Vec::new();
        for column in &self.columns {
            let mut column = lock(column);
            column.closed = true;
            left.extend(column.posts.drain(..));
        }
        left
    }
}

impl<E: Executor> Column<E> {
    /// Adds a request; false, and nothing more, once the board is closed.
    pub(crate) fn post(
        &mut self,
        request: E::Request,
        booth: Arc<Booth<E::Response>>,
        home: ThreadId,
    ) -> bool {
        if self.closed {
            return false;
        }
        let since = match self.posts.back() {
            Some(last) if last.home == home => last.since,
            _ => Instant::now(),
        };
        self.posts.push_back(Post {
            request,
            booth,
            since,
            home,
        });
        true
    }

    /// Takes the request of `booth` and with it the others of its thread, the oldest first, at most
    /// `most` in all. What is left of the last pass is filled with those of other threads: they
    /// would cost their threads a pass, and cost this one nothing. Takes nothing if the request is
    /// not here.
    pub(crate) fn take(
        &mut self,
        booth: &Arc<Booth<E::Response>>,
        pass: usize,
        most: usize,
        mut taken: impl FnMut(Post<E>),
    ) {
        let Some(own) = self.remove(booth) else {
            return;
        };
        let home = own.home;
        taken(own);
        let mut count = 1;
        for at_home in [true, false] {
            let mut place = 0;
            while place < self.posts.len()
                && count < most
                && (at_home || !count.is_multiple_of(pass))
            {
                if at_home && self.posts[place].home != home {
                    place += 1;
                } else if let Some(post) = self.posts.remove(place)
                    && !Booth::is_abandoned(&post.booth)
                {
                    taken(post);
                    count += 1;
                }
            }
        }
    }

    /// Takes the request of `booth` back, if it is here.
    pub(crate) fn remove(&mut self, booth: &Arc<Booth<E::Response>>) -> Option<Post<E>> {
        let own = |post: &Post<E>| Arc::ptr_eq(&post.booth, booth);
        let place = self.posts.iter().position(own)?;
        self.posts.remove(place)
    }

    /// The thread whose request `booth` is for, if it is here.
    pub(crate) fn home_of(&self, booth: &Arc<Booth<E::Response>>) -> Option<ThreadId> {
        let own = |post: &&Post<E>| Arc::ptr_eq(&post.booth, booth);
        Some(self.posts.iter().find(own)?.home)
    }

    /// Whether a thread has posted a full pass.
    pub(crate) fn has_pass(&self, pass: usize, home: ThreadId) -> bool {
        self.posts.iter().filter(|post| post.home == home).count() >= pass
    }

    /// Takes a full pass of a thread, if there is one: the newest requests, whose jobs are resumed
    /// last.
    pub(crate) fn take_pass(
        &mut self,
        pass: usize,
        home: ThreadId,
        mut taken: impl FnMut(Post<E>),
    ) {
        self.posts.retain(|post| !Booth::is_abandoned(&post.booth));
        if !self.has_pass(pass, home) {
            return;
        }
        let mut place = self.posts.len();
        for _ in 0..pass {
            while place > 0 {
                place -= 1;
                if self.posts[place].home == home {
                    break;
                }
            }
            if let Some(post) = self.posts.remove(place) {
                taken(post);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.posts.len()
    }
}
