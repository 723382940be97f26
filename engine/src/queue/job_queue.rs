//! The requests of jobs whose own threads lead.
//!
//! An event loop starts one asynchronous job after the other and then resumes them. So the job that
//! is resumed first finds the requests of the others here, and runs them as one batch: no worker is
//! woken for them, and the answers are ready when the others are resumed. A request waits here
//! until its job is resumed, or until a job of another thread takes it to fill a pass.
//!
//! Every job looks for its request when it is resumed, so no request here needs another leader, a
//! slot or an order among shapes. Workers may help ([`ShapeQueue::take_pass`]), where a pass takes
//! long enough to be worth it.

use std::collections::VecDeque;
use std::time::Instant;

use crate::caller::ThreadId;
use crate::completion::Completion;
use crate::executor::{Answer, Executor};
use crate::sync::{Arc, Mutex, MutexGuard, lock};

/// The posted requests of all shapes.
pub(crate) struct JobQueue<E: Executor> {
    shapes: Vec<Mutex<ShapeQueue<E>>>,
}

/// The posted requests of one shape, the oldest first.
pub(crate) struct ShapeQueue<E: Executor> {
    posts: VecDeque<PostedRequest<E>>,
    closed: bool,
}

/// A request with the completion of its answer.
pub(crate) struct PostedRequest<E: Executor> {
    pub request: E::Request,
    pub completion: Arc<Completion<Answer<E>>>,
    /// Time at which its thread posted. Consecutive requests of one thread have the time of the
    /// first of them: reading the clock costs a short request more than a percent of its time.
    pub since: Instant,
    pub thread: ThreadId,
}

impl<E: Executor> JobQueue<E> {
    pub(crate) fn new() -> JobQueue<E> {
        let posted = |_| {
            Mutex::new(ShapeQueue {
                posts: VecDeque::new(),
                closed: false,
            })
        };
        JobQueue {
            shapes: E::SHAPES.iter().map(posted).collect(),
        }
    }

    pub(crate) fn of(&self, shape: E::Shape) -> MutexGuard<'_, ShapeQueue<E>> {
        lock(&self.shapes[E::index(shape)])
    }

    /// Takes all requests out, and closes the queue.
    pub(crate) fn close(&self) -> Vec<PostedRequest<E>> {
        let mut left = Vec::new();
        for posted in &self.shapes {
            let mut posted = lock(posted);
            posted.closed = true;
            left.extend(posted.posts.drain(..));
        }
        left
    }
}

impl<E: Executor> ShapeQueue<E> {
    /// Adds a request. Does nothing and returns false once the queue is closed.
    pub(crate) fn post(
        &mut self,
        request: E::Request,
        completion: Arc<Completion<Answer<E>>>,
        thread: ThreadId,
    ) -> bool {
        if self.closed {
            return false;
        }
        let since = match self.posts.back() {
            Some(last) if last.thread == thread => last.since,
            _ => Instant::now(),
        };
        self.posts.push_back(PostedRequest {
            request,
            completion,
            since,
            thread,
        });
        true
    }

    /// Takes the request of `completion`, and with it the other requests of its thread, the oldest
    /// first, at most `most` in all. The rest of the last pass is filled with requests of other
    /// threads, which would cost their threads a pass, and cost this one nothing. Takes nothing if
    /// the request is not here.
    pub(crate) fn take(
        &mut self,
        completion: &Arc<Completion<Answer<E>>>,
        pass: usize,
        most: usize,
        mut taken: impl FnMut(PostedRequest<E>),
    ) {
        let Some(own) = self.remove(completion) else {
            return;
        };
        let thread = own.thread;
        taken(own);
        let mut count = 1;
        for own_thread in [true, false] {
            let mut place = 0;
            while place < self.posts.len()
                && count < most
                && (own_thread || !count.is_multiple_of(pass))
            {
                if own_thread && self.posts[place].thread != thread {
                    place += 1;
                } else if let Some(post) = self.posts.remove(place)
                    && !Completion::is_abandoned(&post.completion)
                {
                    taken(post);
                    count += 1;
                }
            }
        }
    }

    /// Takes the request of `completion` back, if it is here.
    pub(crate) fn remove(
        &mut self,
        completion: &Arc<Completion<Answer<E>>>,
    ) -> Option<PostedRequest<E>> {
        let own = |post: &PostedRequest<E>| Arc::ptr_eq(&post.completion, completion);
        let place = self.posts.iter().position(own)?;
        self.posts.remove(place)
    }

    /// Returns the thread of the request of `completion`, if it is here.
    pub(crate) fn thread_of(&self, completion: &Arc<Completion<Answer<E>>>) -> Option<ThreadId> {
        let own = |post: &&PostedRequest<E>| Arc::ptr_eq(&post.completion, completion);
        Some(self.posts.iter().find(own)?.thread)
    }

    /// Returns whether a thread has posted a full pass.
    pub(crate) fn has_pass(&self, pass: usize, thread: ThreadId) -> bool {
        self.posts
            .iter()
            .filter(|post| post.thread == thread)
            .count()
            >= pass
    }

    /// Takes a full pass of a thread, if there is one: the newest requests, whose jobs are resumed
    /// last.
    pub(crate) fn take_pass(
        &mut self,
        pass: usize,
        thread: ThreadId,
        mut taken: impl FnMut(PostedRequest<E>),
    ) {
        self.posts
            .retain(|post| !Completion::is_abandoned(&post.completion));
        if !self.has_pass(pass, thread) {
            return;
        }
        let mut place = self.posts.len();
        for _ in 0..pass {
            while place > 0 {
                place -= 1;
                if self.posts[place].thread == thread {
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
