//! The page, and a plain HTTP server that serves it to servers that are proxies.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use lockstep_common::Failure;

use crate::measure::keep_to;

/// Where the page is.
pub const PATH: &str = "/page";

/// An answer with a page of this length: lines of text.
pub fn answer(length: u64) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let mut answer = head.into_bytes();
    answer.extend(page(length));
    answer
}

/// The page itself.
pub fn page(length: u64) -> impl Iterator<Item = u8> {
    let line = *b"the quick brown fox jumps over the lazy dog, line after line...\n";
    line.into_iter().cycle().take(length as usize)
}

/// Serves one connection: reads a request, if one comes, and answers it.
pub fn serve(stream: &mut (impl Read + Write), answer: &[u8]) -> io::Result<()> {
    let mut request = Vec::<u8>::with_capacity(1024);
    let mut bytes = [0; 1024];
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            count => request.extend(&bytes[..count]),
        }
        if request.len() > 64 << 10 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    stream.write_all(answer)?;
    stream.flush()
}

/// Starts the plain server on these CPUs, for so many connections at a time. It runs until the
/// program ends.
pub fn start(length: u64, connections: usize, cpus: &[usize]) -> Result<SocketAddr, Failure> {
    let failed = |error: io::Error| Failure::new(format!("cannot serve the page: {error}"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (listener, answer, cpus) = (Arc::new(listener), Arc::new(answer(length)), cpus.to_vec());
    for _ in 0..connections {
        let (listener, answer, cpus) = (listener.clone(), answer.clone(), cpus.clone());
        let work = move || {
            keep_to(&cpus);
            for mut stream in listener.incoming().flatten() {
                // The proxy, or its client, will notice the error.
                let _ = serve(&mut stream, &answer);
            }
        };
        let thread = thread::Builder::new().stack_size(128 << 10);
        thread.spawn(work).map_err(failed)?;
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn the_page_has_its_length() {
        let address = start(70_000, 2, &[0]).unwrap();
        for _ in 0..3 {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /page HTTP/1.1\r\n").unwrap();
            stream.write_all(b"\r\n").unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            let text = String::from_utf8(all).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.contains("Content-Length: 70000"), "{head}");
            assert_eq!(body.len(), 70_000);
        }
    }
}
