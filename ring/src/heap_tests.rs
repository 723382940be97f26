//! Both sides over memory of one process, for Miri, which has no shared mappings.

use std::thread;
use std::time::Duration;

use crate::memory::{Memory, Owner};
use crate::{Call, Client, INPUT, Patience, Refused, Server, status};

const PATIENCE: Patience = Patience {
    spin: Duration::ZERO,
    timeout: Duration::MAX,
};

#[test]
fn heap_requests_and_answers_are_whole() {
    let memory = Memory::new(2);
    let server = Server::of(memory.clone());
    let client = Client::of(memory, Owner::default());
    let daemon = thread::spawn(move || {
        let mut served = 0;
        while served < 6 {
            server.sleep(PATIENCE);
            served += server.take(|request| {
                let output: Vec<u8> = request.input().iter().map(|byte| !byte).collect();
                request.answer(status::DONE, &output);
            });
        }
        assert_eq!(server.in_flight(), 0);
    });
    let threads: Vec<_> = (0..2_u8)
        .map(|number| {
            let client = client.clone();
            thread::spawn(move || {
                for length in [0, 9, INPUT] {
                    let input = vec![number; length];
                    let mut ticket = client
                        .submit(&Call {
                            operation: 1,
                            key: 2,
                            input: &input,
                            notify: false,
                        })
                        .unwrap();
                    let answer = ticket.wait(PATIENCE).unwrap().expect("it has no timeout");
                    assert_eq!(answer.output[..], vec![!number; length]);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|it| it.join().unwrap());
    daemon.join().unwrap();
    client.poison();
    let call = Call {
        operation: 1,
        key: 2,
        input: &[],
        notify: false,
    };
    assert_eq!(client.submit(&call).unwrap_err(), Refused::Gone);
}
