//! Batches requests from many threads and jobs onto vector lanes.
//!
//! A caller names an [`Operation`](operation::Operation) and asks [`Engine::serve`]. A thread that
//! blocks leads a batch or waits for one. An asynchronous job pauses. Then its own thread leads a
//! batch when it resumes the job, or a worker leads. The engine may decline; then the caller asks
//! OpenSSL's own implementation.
//!
//! ```no_run
//! use lockstep_engine::operation::Keygen;
//! use lockstep_engine::{Config, Engine, KeyKind, Outcome, Thread};
//!
//! let engine = Engine::new(Config::default());
//! match engine.serve(Keygen(KeyKind::X25519), || Some(()), &Thread) {
//!     Outcome::Done(pair) => drop(pair),
//!     // OpenSSL's own implementation would serve it.
//!     Outcome::Declined(_) | Outcome::NotAsked => {}
//! }
//! ```
//!
//! One request goes through `serve`, `queue` (with `policy`), `executor`, and the kernels:
//! `Engine::serve`, `Queue::enqueue`, `Queue::lead`, `Executor::execute`. The table of all
//! operations is in `ops/src/shape.rs`.
//!
//! The crate has no arithmetic and no `unsafe` code, and it knows nothing of OpenSSL.
#![forbid(unsafe_code)]

mod busy;
mod caller;
mod completion;
mod config;
mod daemon;
mod declined;
pub mod direct;
mod engine;
mod executor;
mod fault;
mod ia32cap;
mod mistakes;
mod pause;
mod policy;
mod publish;
mod queue;
mod serve;
mod sync;
mod thread_id;

pub use caller::{Caller, Job, NoJob, Paused, Pending, Thread, ThreadId};
pub use completion::{Completion, Notify, Ticket};
pub use config::setting::Setting;
pub use config::{BackendChoice, Config, Keys};
pub use declined::{Declined, StockGuard};
pub use engine::Engine;
pub use fault::plant_of_environment;
pub use lockstep_counters::way;
pub use lockstep_counters::{
    ExternalEvent, Fallback, Page, Permit, ProcessStats, Published, Snapshot, StatsDir, Syslog,
    Unpaused, Unpublished, read_default_stats, read_published, read_stats, version,
    warn_of_shared_memory,
};
pub use lockstep_ops::fault::is_planted;
pub use lockstep_ops::{
    Backend, Bytes, Curve, DecapsulateInput, EcKey, EcdhInput, EcdsaSignInput, EcdsaVerifyInput,
    Ed25519Key, Ed25519SignInput, Ed25519VerifyInput, EncapsulateInput, Encapsulated, Failed,
    GuardedRequest, JobError, Kem, KemKey, KeyKind, Keypair, Malformed, MlDsa, MlDsaKey,
    MlDsaSignInput, MlDsaSignature, MlDsaVerifyInput, Mu, ParameterSet, ROOM_BYTES, Request,
    Response, RsaComponents, RsaInput, RsaKey, Schedule, Secret, Shape, Size, Unsupported,
    X25519Input, operation,
};
pub use mistakes::{ConfigError, Mistakes};
pub use pause::{Manner, Server, serve_job};
pub use policy::{Lone, lanes_bring_nothing};
pub use queue::fair::Account;
pub use queue::reply::Reply;
pub use queue::service::{Look, Source};
pub use queue::state::StartThread;
pub use queue::workers::STACK_BYTES;
pub use serve::Outcome;
