//! A source for tests: posted requests, and a place where its thread waits.

use std::collections::VecDeque;

use super::{Look, Source};
use crate::declined::Declined;
use crate::queue::fair::Account;
use crate::queue::reply::Reply;
use crate::queue::simple::Simple;
use crate::queue::state::Queue;
use crate::sync::{Arc, Condvar, Mutex, lock, wait_while};

/// A posted request.
#[derive(Clone, Copy)]
pub(super) struct Post {
    pub account: u64,
    pub shape: usize,
    pub number: i64,
    pub is_fit: bool,
    pub is_gone: bool,
    pub can_wait: bool,
    /// Its batch does not end before the request with this number is answered.
    pub after: Option<i64>,
}

impl Post {
    pub(super) const fn new(account: u64, shape: usize, number: i64) -> Post {
        Post {
            account,
            shape,
            number,
            is_fit: true,
            is_gone: false,
            can_wait: false,
            after: None,
        }
    }
}

/// The place where requests are posted.
pub(super) struct Board {
    posts: Mutex<VecDeque<Post>>,
    is_woken: Mutex<bool>,
    woken: Condvar,
    /// Numbers and answers of the requests so far, in order.
    answers: Mutex<Vec<(i64, Option<i64>)>>,
    answered: Condvar,
}

impl Board {
    pub(super) fn new() -> Arc<Board> {
        Arc::new(Board {
            posts: Mutex::new(VecDeque::new()),
            is_woken: Mutex::new(false),
            woken: Condvar::new(),
            answers: Mutex::new(Vec::new()),
            answered: Condvar::new(),
        })
    }

    pub(super) fn answers(&self) -> Vec<(i64, Option<i64>)> {
        lock(&self.answers).clone()
    }

    fn answer(&self, number: i64, answer: Option<i64>) {
        lock(&self.answers).push((number, answer));
        self.answered.notify_all();
    }

    /// Waits until `condition` returns true for the answers.
    pub(super) fn wait_until(&self, condition: impl Fn(&[(i64, Option<i64>)]) -> bool) {
        drop(wait_while(&self.answered, lock(&self.answers), |answers| {
            !condition(answers)
        }));
    }

    pub(super) fn post(&self, post: Post) {
        lock(&self.posts).push_back(post);
        self.wake();
    }

    pub(super) fn wake(&self) {
        *lock(&self.is_woken) = true;
        self.woken.notify_one();
    }

    pub(super) fn source(board: &Arc<Board>, queue: &Arc<Queue<Simple>>) -> Mutex<Posts> {
        Mutex::new(Posts {
            queue: queue.clone(),
            board: board.clone(),
            company: 0,
        })
    }
}

/// The board as a source of the queue.
pub(super) struct Posts {
    queue: Arc<Queue<Simple>>,
    board: Arc<Board>,
    pub company: usize,
}

impl Source for Posts {
    fn collect(&mut self, _: bool) {
        let posts = std::mem::take(&mut *lock(&self.board.posts));
        for post in posts {
            let board = self.board.clone();
            let reply: Box<dyn Reply<i64>> = Box::new(Posted { post, board });
            let look = Look {
                found: 1,
                took: std::time::Duration::ZERO,
            };
            let request = (post.shape, post.number, reply);
            self.queue.enter(Account(post.account), [request], look);
        }
    }

    fn company(&self) -> usize {
        self.company
    }

    fn wait(&mut self) {
        let is_woken = lock(&self.board.is_woken);
        *wait_while(&self.board.woken, is_woken, |is_woken| !*is_woken) = false;
    }
}

struct Posted {
    post: Post,
    board: Arc<Board>,
}

impl Reply<i64> for Posted {
    fn is_gone(&self) -> bool {
        self.post.is_gone
    }

    fn can_wait(&self) -> bool {
        self.post.can_wait
    }

    fn is_fit(&mut self) -> bool {
        if let Some(other) = self.post.after {
            let is_there = |answers: &[(i64, _)]| answers.iter().any(|own| own.0 == other);
            self.board.wait_until(is_there);
        }
        self.post.is_fit
    }

    fn refuse(self: Box<Self>) {
        self.board.answer(self.post.number, None);
    }

    fn answer(self: Box<Self>, answer: Result<i64, Declined>) {
        self.board.answer(self.post.number, answer.ok());
    }
}
