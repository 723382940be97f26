//! OpenSSL's asynchronous jobs: pause and wake-up.

pub mod async_job;
pub mod descriptors;
pub mod eventfd;
pub mod notifier;
pub mod wait_ctx;
