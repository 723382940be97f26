//! Batches requests from many threads and jobs onto vector lanes.
//!
//! A caller names an [`Operation`](operation::Operation) and asks [`Engine::serve`]. A thread that
//! blocks leads a batch or waits for one. An asynchronous job pauses, and either its own thread
//! leads when it resumes the job, or a worker does. The engine may decline; then the caller asks
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
//! `Engine::serve`, `Queue::enqueue`, `Queue::lead`, `Executor::execute`. `shape` is the table of
//! all operations.
//!
//! The crate has no arithmetic and no `unsafe` code, and it knows nothing of OpenSSL.
#![forbid(unsafe_code)]

mod bytes;
mod caller;
mod completion;
mod config;
mod declined;
mod engine;
mod entropy;
mod epoch;
pub mod executor;
mod failed;
mod fault;
mod gathered;
mod ia32cap;
mod kem;
mod keys;
mod kinds;
mod lanes;
pub mod measure;
mod mistakes;
pub mod operation;
mod pause;
mod permit;
mod plain;
mod policy;
mod publish;
mod queue;
mod rsa_key;
mod serve;
mod shape;
pub mod stats;
mod sync;
mod syslog;
mod thread_id;
mod version;
pub mod way;

pub use bytes::Bytes;
pub use caller::{Caller, Job, NoJob, Paused, Pending, Thread, ThreadId};
pub use completion::{Completion, Notify, Ticket};
pub use config::{BackendChoice, Config, Keys, Setting};
pub use declined::{Declined, Fallback, StockGuard};
pub use engine::{Elsewhere, Engine};
pub use executor::on_lanes::OnLanes;
pub use failed::Failed;
#[cfg(all(feature = "fault-injection", not(loom)))]
pub use fault::{Defect, plant};
pub use kem::{Encapsulated, KemKey};
pub use keys::{EcKey, Ed25519Key, Keypair, Malformed, MlDsaKey, Secret};
pub use kinds::{Curve, Kem, KeyKind, MlDsa};
pub use lanes::ROOM_BYTES;
pub use lockstep_kernels::backend::Backend;
pub use lockstep_kernels::mldsa::{Mu, Signature as MlDsaSignature};
pub use lockstep_kernels::mlkem::ParameterSet;
pub use lockstep_kernels::rsa::{
    Components as RsaComponents, JobError, Schedule, Size, Unsupported,
};
pub use mistakes::{ConfigError, Mistakes};
pub use operation::{
    DecapsulateInput, EcdhInput, EcdsaSignInput, EcdsaVerifyInput, Ed25519SignInput,
    Ed25519VerifyInput, EncapsulateInput, LanesRequest, MlDsaSignInput, MlDsaVerifyInput, Request,
    Response, RsaInput, X25519Input,
};
pub use pause::{Manner, Server, serve_job};
pub use permit::Permit;
pub use policy::{Batch, JobsLead, Lone, lanes_bring_nothing};
pub use queue::fair::Account;
pub use queue::reply::Reply;
pub use queue::service::{Look, Source};
pub use queue::state::StartThread;
pub use queue::workers::STACK_BYTES;
pub use rsa_key::RsaKey;
pub use serve::Outcome;
pub use shape::Shape;
pub use stats::{
    Page, ProcessStats, Published, Snapshot, StatsDir, Unpaused, Unpublished, read_default_stats,
    read_published, read_stats,
};
pub use syslog::{Syslog, warn_of_shared_memory};
pub use version::version;
