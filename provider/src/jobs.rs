//! OpenSSL's asynchronous jobs: how one pauses, and how it is woken.

pub mod async_job;
pub mod descriptors;
pub mod eventfd;
pub mod notifier;
pub mod wait_ctx;
