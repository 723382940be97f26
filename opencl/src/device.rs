//! The devices of this machine.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::io::Write;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::api::{Api, Id};
use crate::error::Error;
use crate::kind::Kind;
use crate::object::{Context, Kept, Program};

/// Maximum time of a piece of work. The time counts from the start of the work or from the last end
/// of another piece, the later of both.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Properties of a device, as OpenCL reports them.
#[derive(Clone, Debug)]
pub struct Description {
    /// Name by which it is opened: `opencl:` and its number.
    pub name: String,
    /// Name of its platform, such as `NVIDIA CUDA`.
    pub platform: String,
    /// Name of its product.
    pub product: String,
    /// Version of its driver.
    pub driver: String,
    /// Bytes of its memory.
    pub memory: u64,
    /// Bytes of the largest buffer.
    pub largest_buffer: u64,
    /// Number of its multiprocessors or cores.
    pub units: u32,
    /// Whether it is a GPU.
    pub is_gpu: bool,
}

/// Lists the devices of all platforms, in the order of their numbers, up to the first platform that
/// fails, and that failure.
pub fn devices() -> Result<(Vec<Description>, Option<Error>), Error> {
    let (listed, all) = list(&Api::load()?)?;
    let devices = listed.into_iter().map(|(_, device)| device).collect();
    Ok((devices, all.err()))
}

/// A program or why the compiler refuses it, with its source and the words of its numbers.
type Compiled = (Result<Program, Error>, Source, u32);

/// A device, with the programs that were compiled for it, or why the compiler fails.
pub struct Device {
    // Before the context, so that they are released first.
    programs: Mutex<Vec<Compiled>>,
    /// Constants, by the names of the kernels that write them.
    kept: Mutex<Vec<(&'static CStr, Arc<Kept>)>>,
    context: Context,
    api: Arc<Api>,
    description: Description,
    time_limit: Duration,
    shared: Arc<Shared>,
    items: AtomicU64,
    failure: Mutex<Option<Error>>,
}

/// The state of a device that all its [`Device`] values share.
struct Shared {
    name: String,
    is_lost: AtomicBool,
    /// Time at which a piece of work ended last.
    last_end: Mutex<Instant>,
}

impl Shared {
    /// Returns the state of the device of this name: a fresh one if the device was given up.
    fn of(name: &str) -> Arc<Shared> {
        static ALL: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());
        let mut all = locked(&ALL);
        all.retain(|shared| !shared.is_lost.load(Ordering::Relaxed));
        if let Some(shared) = all.iter().find(|shared| shared.name == name) {
            return Arc::clone(shared);
        }
        all.push(Arc::new(Shared {
            name: name.to_owned(),
            is_lost: AtomicBool::new(false),
            last_end: Mutex::new(Instant::now()),
        }));
        Arc::clone(&all[all.len() - 1])
    }
}

/// Locks a mutex, and ignores poison: nothing panics while it changes the data.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A source of kernels, which are compiled for a number of words.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Rsa,
    Curve25519,
    P256,
}

impl Source {
    /// Returns the parts of the text.
    fn texts(self) -> [&'static str; 4] {
        const CURVE: &str = include_str!("kernels/curve.cl");
        let (begin, curve, own) = match self {
            Source::Rsa => ("", "", include_str!("kernels/rsa.cl")),
            Source::Curve25519 => (
                "#define POINT_WORDS 32\n",
                CURVE,
                include_str!("kernels/curve25519.cl"),
            ),
            Source::P256 => (
                "#define POINT_WORDS 24\n",
                CURVE,
                include_str!("kernels/p256.cl"),
            ),
        };
        [begin, include_str!("kernels/montgomery.cl"), curve, own]
    }
}

impl Device {
    /// Opens the device of this name: `opencl:0`, `opencl:1` and so on. A device that was given up
    /// gets work again through the new [`Device`].
    pub fn open(name: &str) -> Result<Device, Error> {
        Device::open_by(Api::load()?, name)
    }

    /// Opens the device of this name, with failures planted before.
    #[cfg(feature = "fault-injection")]
    pub fn open_planted(
        name: &str,
        plant: impl FnOnce(&crate::planted::Plan),
    ) -> Result<Device, Error> {
        let api = Api::load()?;
        plant(&api.plan);
        Device::open_by(api, name)
    }

    fn open_by(api: Api, name: &str) -> Result<Device, Error> {
        let api = Arc::new(api);
        let (mut listed, all) = list(&api)?;
        let place = listed.iter().position(|(_, device)| device.name == name);
        let (id, description) = match place {
            Some(place) => listed.swap_remove(place),
            None => {
                all?;
                let (name, count) = (name.to_owned(), listed.len());
                return Err(Error::NoDevice { name, count });
            }
        };
        // SAFETY: the device was listed.
        let context = unsafe { Context::new(&api, id) }?;
        Ok(Device {
            programs: Mutex::default(),
            kept: Mutex::default(),
            context,
            api,
            shared: Shared::of(&description.name),
            description,
            time_limit: TIME_LIMIT,
            items: AtomicU64::new(0),
            failure: Mutex::default(),
        })
    }

    /// Returns this device with another limit on the time of a piece of work. The time in which the
    /// driver compiles does not count.
    #[must_use]
    pub fn with_time_limit(self, time_limit: Duration) -> Device {
        Device { time_limit, ..self }
    }

    /// Returns this device with a memory of no more than this number of bytes.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Device {
        let description = &mut self.description;
        description.memory = description.memory.min(bytes);
        description.largest_buffer = description.largest_buffer.min(bytes);
        self
    }

    /// Returns the properties of the device.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Returns whether the device may get work: it was not given up, and the process is the one
    /// that opened it.
    pub fn is_usable(&self) -> bool {
        self.insist_on_use().is_ok()
    }

    pub(crate) fn insist_on_use(&self) -> Result<(), Error> {
        let is_lost = self.shared.is_lost.load(Ordering::Relaxed);
        match (is_lost, self.api.is_at_home()) {
            (true, _) => Err(Error::GivenUp),
            (false, false) => Err(Error::Forked),
            (false, true) => Ok(()),
        }
    }

    /// Gives the device up: nobody in this process uses it until it is opened again. Writes one
    /// line about that to the standard error.
    pub fn give_up(&self, why: &Error) {
        self.note(why.clone());
        if !self.shared.is_lost.swap(true, Ordering::Relaxed) {
            let Description { name, product, .. } = &self.description;
            let line = format!("lockstep: {name} ({product}) gets no more work: {why}\n");
            // Nobody may be there to read it.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    /// Notes the reason why the device had no results.
    pub fn note(&self, failure: Error) {
        let mut noted = locked(&self.failure);
        // `GivenUp` tells nothing about the failure for which the device was given up.
        if noted.is_none() || failure != Error::GivenUp {
            *noted = Some(failure);
        }
    }

    /// Returns the failure that was noted last.
    pub fn failure(&self) -> Option<Error> {
        locked(&self.failure).clone()
    }

    pub(crate) fn note_end(&self) {
        *locked(&self.shared.last_end) = Instant::now();
    }

    pub(crate) fn last_end(&self) -> Instant {
        *locked(&self.shared.last_end)
    }

    /// Returns the number of items that the device has computed.
    pub fn items(&self) -> u64 {
        self.items.load(Ordering::Relaxed)
    }

    /// Returns the number of items with which an operation fills the device.
    pub fn chunk(&self, kind: Kind) -> usize {
        let of_unit = match (kind, self.description.is_gpu) {
            (Kind::RsaPrivate(_), true) => 256,
            (_, true) => 1024,
            (Kind::RsaPrivate(_), false) => 32,
            (_, false) => 128,
        };
        let largest = self
            .description
            .largest_buffer
            .min(self.description.memory / 8);
        // A modulus of no bits has items of no bytes.
        let fitting = largest / kind.bytes_of_item().max(1);
        let fitting = usize::try_from(fitting).unwrap_or(usize::MAX);
        (of_unit * self.description.units as usize)
            .min(fitting)
            .max(1)
    }

    /// Returns the failures that are planted in the device.
    #[cfg(feature = "fault-injection")]
    pub fn plan(&self) -> &crate::planted::Plan {
        &self.api.plan
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn time_limit(&self) -> Duration {
        self.time_limit
    }

    pub(crate) fn count(&self, items: usize) {
        self.items.fetch_add(items as u64, Ordering::Relaxed);
    }

    /// Calls a function with a program for numbers of `limbs` words of 32 bits, which is compiled
    /// when it is first needed.
    pub(crate) fn with_program<T>(
        &self,
        source: Source,
        limbs: u32,
        with: impl FnOnce(&Program) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut programs = locked(&self.programs);
        let known = |(_, own, of): &Compiled| *own == source && *of == limbs;
        let place = match programs.iter().position(known) {
            Some(place) => place,
            None => {
                let unrolled = match self.description.is_gpu && limbs <= 64 {
                    true => " -D UNROLLED",
                    false => "",
                };
                let options = format!("-cl-std=CL1.2 -D LIMBS={limbs}{unrolled}");
                let program = self.context.program(&source.texts().concat(), &options);
                // The compiler would take minutes to fail again. Other failures may end.
                if let Err(error) = &program
                    && !matches!(error, Error::Compiler(_))
                {
                    return Err(error.clone());
                }
                programs.push((program, source, limbs));
                programs.len() - 1
            }
        };
        with(programs[place].0.as_ref().map_err(Error::clone)?)
    }

    /// Returns the number of programs that the compiler has compiled or refused.
    pub fn programs(&self) -> usize {
        locked(&self.programs).len()
    }

    /// Returns the constants that the kernel of this name writes, which are made when they are
    /// first needed.
    pub(crate) fn kept(
        &self,
        kernel: &'static CStr,
        make: impl FnOnce() -> Result<Arc<Kept>, Error>,
    ) -> Result<Arc<Kept>, Error> {
        let mut all = locked(&self.kept);
        if let Some((_, kept)) = all.iter().find(|(own, _)| *own == kernel) {
            return Ok(Arc::clone(kept));
        }
        let kept = make()?;
        all.push((kernel, Arc::clone(&kept)));
        Ok(kept)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Description { name, product, .. } = &self.description;
        write!(f, "Device({name}, {product})")
    }
}

/// Devices with their handles, and whether these are all: the devices behind a platform that fails
/// are left out, since the numbers of some would be those of other devices.
type List = (Vec<(Id, Description)>, Result<(), Error>);

/// Lists the devices.
///
/// One thread at a time: PoCL 3.1 crashes if several threads begin with it.
fn list(api: &Api) -> Result<List, Error> {
    static LISTING: Mutex<()> = Mutex::new(());
    let _listing = locked(&LISTING);
    #[allow(unused_mut, reason = "only tests change the list")]
    let mut platforms = handles(-1001, |room, place, count| {
        // SAFETY: `handles` passes memory for `room` handles.
        unsafe { api.get_platforms(room, place, count) }
    })?;
    #[cfg(feature = "fault-injection")]
    if api.plan.doubles() {
        platforms.extend(platforms.clone());
    }
    let mut listed = Vec::new();
    let mut platforms = platforms.into_iter();
    let all = platforms.try_for_each(|platform| list_platform(api, platform, &mut listed));
    Ok((listed, all))
}

/// Appends the devices of a platform to a list.
fn list_platform(
    api: &Api,
    platform: Id,
    listed: &mut Vec<(Id, Description)>,
) -> Result<(), Error> {
    const ALL: u64 = 0xffff_ffff;
    const GPU: u64 = 1 << 2;
    const PLATFORM_NAME: u32 = 0x902;
    const KIND: u32 = 0x1000;
    const UNITS: u32 = 0x1002;
    const LARGEST: u32 = 0x1010;
    const MEMORY: u32 = 0x101f;
    const PRODUCT: u32 = 0x102b;
    const DRIVER: u32 = 0x102d;
    let ids = handles(-1, |room, place, count| {
        // SAFETY: `handles` passes memory for `room` handles; OpenCL has listed the platform.
        unsafe { api.get_devices(platform, ALL, room, place, count) }
    })?;
    // SAFETY: `read` passes memory of the size that it names.
    let platform = api.read(|api, room, value, size| unsafe {
        api.platform_info(platform, PLATFORM_NAME, room, value, size)
    })?;
    for id in ids {
        let ask = |what| {
            // SAFETY: as above, and OpenCL has listed the device.
            api.read(|api, room, value: *mut c_void, size| unsafe {
                api.device_info(id, what, room, value, size)
            })
        };
        let number = |what| ask(what).map(|bytes| number(&bytes));
        listed.push((
            id,
            Description {
                name: format!("opencl:{}", listed.len()),
                platform: text(&platform),
                product: text(&ask(PRODUCT)?),
                driver: text(&ask(DRIVER)?),
                memory: number(MEMORY)?,
                largest_buffer: number(LARGEST)?,
                units: number(UNITS)? as u32,
                is_gpu: number(KIND)? & GPU != 0,
            },
        ));
    }
    Ok(())
}

/// Reads a list of handles, which is empty if the function returns the code `none`.
fn handles(
    none: i32,
    ask: impl Fn(u32, *mut Id, *mut u32) -> Result<(), Error>,
) -> Result<Vec<Id>, Error> {
    let mut count = 0;
    match ask(0, ptr::null_mut(), &raw mut count) {
        Err(Error::Call { code, .. }) if code == none => return Ok(Vec::new()),
        asked => asked?,
    }
    let mut handles = vec![ptr::null_mut(); count as usize];
    ask(count, handles.as_mut_ptr(), ptr::null_mut())?;
    Ok(handles)
}

fn text(bytes: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(bytes).map(CStr::to_bytes);
    String::from_utf8_lossy(text.unwrap_or(bytes))
        .trim()
        .to_owned()
}

/// Reads a number of 32 or 64 bits.
fn number(bytes: &[u8]) -> u64 {
    match bytes.len() {
        4 => bytes
            .try_into()
            .map_or(0, |bytes| u64::from(u32::from_ne_bytes(bytes))),
        _ => bytes.try_into().map_or(0, u64::from_ne_bytes),
    }
}
