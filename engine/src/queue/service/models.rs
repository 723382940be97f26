//! The threads of a service, in every interleaving that loom finds.

use super::fake::{Board, Post};
use crate::policy::LONGEST_BATCH;
use crate::queue::exploration::explore;
use crate::queue::simple::{Simple, service};
use crate::sync::{Arc, thread};

/// The moment at which a service is told to end.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// At any moment.
    Soon,
    /// After the last answer.
    Late,
}

/// Two threads serve the posted requests, and end. Passes of shape 1 count as long.
fn serves(slots: usize, end: End, posts: &'static [Post]) {
    explore(move || {
        let queue = service(Simple::default(), slots);
        queue.lock().line(1).view.pass_time = 2 * LONGEST_BATCH;
        let board = Board::new();
        let source = Arc::new(Board::source(&board, &queue));
        // The last request may come while the other thread looks for requests.
        let (last, first) = posts.split_last().unwrap();
        first.iter().for_each(|post| board.post(*post));
        let serve = {
            let (queue, board) = (queue.clone(), board.clone());
            move || {
                queue.serve_from(&source, &|_| {
                    if end == End::Late && board.answers().len() == posts.len() {
                        queue.end_service();
                    }
                    board.wake();
                });
            }
        };
        let other = thread::spawn(serve.clone());
        board.post(*last);
        if end == End::Soon {
            queue.end_service();
            board.wake();
        }
        serve();
        other.join().unwrap();
        assert_eq!(board.answers().len(), posts.len());
        let state = queue.lock();
        assert_eq!((state.free.len(), state.long), (slots + 1, 0));
        for line in &state.lines {
            let view = line.view;
            assert_eq!([view.waiting, view.leaders, view.running], [0; 3]);
        }
    });
}

#[test]
fn threads_that_share_a_slot_serve_all_of_two_accounts() {
    const POSTS: &[Post] = &[Post::new(7, 0, 1), Post::new(8, 0, 2), Post::new(7, 2, 3)];
    serves(1, End::Soon, POSTS);
}

#[test]
fn two_slots_serve_all() {
    const POSTS: &[Post] = &[Post::new(7, 0, 1), Post::new(8, 0, 2)];
    serves(2, End::Soon, POSTS);
}

/// The batch of a long request does not end before a short request is answered.
#[test]
pub(crate) fn a_long_batch_calls_a_thread() {
    const LONG: Post = Post {
        after: Some(2),
        ..Post::new(7, 1, 1)
    };
    const POSTS: &[Post] = &[LONG, Post::new(8, 0, 2)];
    serves(1, End::Late, POSTS);
}

#[test]
fn long_batches_end_with_the_service() {
    const POSTS: &[Post] = &[Post::new(7, 1, 1), Post::new(8, 0, 2)];
    serves(1, End::Soon, POSTS);
}
