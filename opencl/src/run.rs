//! One piece of work: buffers that are written, kernels that run, results that are read, and all
//! buffers wiped.

use std::ffi::CStr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use crate::device::{Device, Source};
use crate::error::Error;
use crate::object::{Buffer, Event, Kept, Kernel, Queue};
use crate::words::zeros;

/// A buffer of a run.
#[derive(Clone, Copy)]
pub(crate) struct Slot(usize);

/// An argument of a kernel.
#[derive(Clone, Copy)]
pub(crate) enum Argument {
    Buffer(Slot),
    Word(u32),
}

/// Returns a number as an argument.
pub(crate) fn word(number: usize) -> Result<Argument, Error> {
    let word = u32::try_from(number).map_err(|_| Error::Input)?;
    Ok(Argument::Word(word))
}

/// A buffer of this piece of work, or one that it may only read.
enum Room {
    Own(Buffer),
    Lent(Arc<Kept>),
}

impl Room {
    fn buffer(&self) -> &Buffer {
        match self {
            Room::Own(buffer) => buffer,
            Room::Lent(kept) => kept.buffer(),
        }
    }

    fn own(&self) -> Option<&Buffer> {
        match self {
            Room::Own(buffer) => Some(buffer),
            Room::Lent(_) => None,
        }
    }
}

/// A piece of work on one device, in a queue of its own.
pub(crate) struct Run<'a> {
    device: &'a Device,
    /// `None` once it has ended.
    parts: Option<Parts>,
}

/// Objects and memory that a device uses until the work ends.
struct Parts {
    queue: Queue,
    kernels: Vec<Kernel>,
    rooms: Vec<Room>,
    /// The ends of kernels and of reading. A kernel that fails must not pass for one that ran.
    events: Vec<Event>,
    /// Words that the device reads and writes at its own time.
    words: Vec<Zeroizing<Vec<u32>>>,
}

impl<'a> Run<'a> {
    /// Begins a piece of work.
    pub(crate) fn new(device: &'a Device) -> Result<Run<'a>, Error> {
        device.insist_on_use()?;
        let parts = Parts {
            queue: device.context().queue()?,
            kernels: Vec::new(),
            rooms: Vec::new(),
            events: Vec::new(),
            words: Vec::new(),
        };
        Ok(Run {
            device,
            parts: Some(parts),
        })
    }

    fn parts(&mut self) -> Result<&mut Parts, Error> {
        self.parts.as_mut().ok_or(Error::Input)
    }

    /// Makes a buffer of this number of words.
    pub(crate) fn room(&mut self, words: usize) -> Result<Slot, Error> {
        let device = self.device;
        let parts = self.parts()?;
        let bytes = words
            .checked_mul(4)
            .filter(|bytes| *bytes > 0)
            .ok_or(Error::Input)?;
        let own = parts.rooms.iter().filter_map(Room::own);
        let all: usize = own.map(Buffer::bytes).sum();
        let description = device.description();
        for (needed, there) in [
            (bytes as u64, description.largest_buffer),
            ((all + bytes) as u64, description.memory),
        ] {
            if needed > there {
                return Err(Error::TooLittleMemory { needed, there });
            }
        }
        parts.rooms.push(Room::Own(device.context().buffer(bytes)?));
        Ok(Slot(parts.rooms.len() - 1))
    }

    /// Makes a buffer with these words.
    pub(crate) fn input(&mut self, words: Zeroizing<Vec<u32>>) -> Result<Slot, Error> {
        let slot = self.room(words.len())?;
        let parts = self.parts()?;
        parts.words.push(words);
        let words = &parts.words[parts.words.len() - 1];
        // SAFETY: the words lie in a vector that is kept until the work has ended, and is leaked if
        // that cannot be known.
        unsafe { parts.queue.write(parts.rooms[slot.0].buffer(), words) }?;
        Ok(slot)
    }

    /// Takes a buffer that this work reads.
    pub(crate) fn lent(&mut self, kept: Arc<Kept>) -> Result<Slot, Error> {
        let parts = self.parts()?;
        parts.rooms.push(Room::Lent(kept));
        Ok(Slot(parts.rooms.len() - 1))
    }

    /// Has a whole buffer copied into another one: behind `place` others of its length.
    pub(crate) fn copy(&mut self, from: Slot, to: Slot, place: usize) -> Result<(), Error> {
        let parts = self.parts()?;
        let [from, to] = [from, to].map(|slot| parts.rooms[slot.0].buffer());
        parts.queue.copy(from, to, place * from.bytes())
    }

    /// Has a kernel of a program run, with this number of items, rounded up to a multiple of 64.
    /// The kernel leaves out the additional items.
    pub(crate) fn kernel(
        &mut self,
        (source, limbs): (Source, usize),
        name: &CStr,
        items: usize,
        arguments: &[Argument],
    ) -> Result<(), Error> {
        let device = self.device;
        let parts = self.parts()?;
        let kernel = device.with_program(source, limbs as u32, |program| program.kernel(name));
        let mut kernel = kernel?;
        for (place, argument) in (0..).zip(arguments) {
            match argument {
                Argument::Buffer(slot) => {
                    kernel.set_buffer(place, parts.rooms[slot.0].buffer())?;
                }
                Argument::Word(word) => kernel.set_word(place, *word)?,
            }
        }
        parts.kernels.push(kernel);
        let kernel = &parts.kernels[parts.kernels.len() - 1];
        let event = parts.queue.run(kernel, items.next_multiple_of(64))?;
        parts.events.push(event);
        Ok(())
    }

    /// Reads words from a buffer, and waits until the work has ended and all buffers are wiped.
    pub(crate) fn finish(mut self, slot: Slot, words: usize) -> Result<Zeroizing<Vec<u32>>, Error> {
        let parts = self.parts()?;
        parts.words.push(zeros(words));
        let last = parts.words.len() - 1;
        let buffer = parts.rooms[slot.0].buffer();
        // SAFETY: the words lie in a vector that is kept until the work has ended, and is leaked if
        // that cannot be known. Nobody uses them before.
        let event = unsafe { parts.queue.read(buffer, &mut parts.words[last]) }?;
        parts.events.push(event);
        let mut ended = self.end()?;
        // The device may have been found wrong meanwhile, by another piece.
        self.device.insist_on_use()?;
        #[allow(unused_mut, reason = "only tests change results")]
        let mut result = std::mem::take(&mut ended.words[last]);
        #[cfg(feature = "fault-injection")]
        {
            let plan = self.device.plan();
            let (wrong, mask) = (
                u32::from(plan.lies()),
                u32::from(plan.blanks()).wrapping_sub(1),
            );
            result
                .iter_mut()
                .for_each(|word| *word = (*word ^ wrong) & mask);
        }
        Ok(result)
    }

    /// Waits until the work has ended, and keeps its only buffer.
    pub(crate) fn keep(mut self) -> Result<Arc<Kept>, Error> {
        let device = self.device;
        let parts = self.parts()?;
        parts.queue.flush()?;
        wait(parts.events.last().ok_or(Error::Input)?, device)?;
        let [Room::Own(_)] = &parts.rooms[..] else {
            return Err(Error::Input);
        };
        parts.are_complete()?;
        let Some(mut parts) = self.parts.take() else {
            return Err(Error::Input);
        };
        match parts.rooms.pop() {
            Some(Room::Own(buffer)) => Ok(Arc::new(Kept::new(buffer, parts.queue))),
            _ => Err(Error::Input),
        }
    }

    /// Wipes all buffers, and waits for the end of the work. After a failure other than a timeout,
    /// tries once more. If that fails, too, or after a timeout, gives the device up, and leaks the
    /// memory that the device may still use.
    fn end(&mut self) -> Result<Parts, Error> {
        let parts = self.parts.take().ok_or(Error::Input)?;
        let error = match parts.end(self.device).and_then(|()| parts.are_complete()) {
            Ok(()) => return Ok(parts),
            Err(error) => error,
        };
        let again = match &error {
            Error::TimeOut(_) => Err(error.clone()),
            _ => parts.end(self.device),
        };
        if let Err(last) = again {
            self.device.give_up(&error);
            match last {
                // A driver may wait for the work when its objects are released.
                Error::TimeOut(_) => std::mem::forget(parts),
                _ => std::mem::forget(parts.words),
            }
        }
        Err(error)
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        // The work ends here only after a failure, which the caller already has.
        let _ = self.end();
    }
}

impl Parts {
    /// Wipes all buffers, and waits until they are wiped.
    fn end(&self, device: &Device) -> Result<(), Error> {
        // All other buffers are wiped even if one cannot be.
        let own = self.rooms.iter().filter_map(Room::own);
        let wiped: Vec<_> = own.map(|buffer| self.queue.wipe(buffer)).collect();
        let wiped: Vec<Event> = wiped.into_iter().collect::<Result<_, _>>()?;
        let Some(last) = wiped.last() else {
            return Ok(());
        };
        self.queue.flush()?;
        wait(last, device)?;
        are_complete(&wiped)
    }

    /// Checks that all kernels have run, and that all is read. The queue keeps its order.
    fn are_complete(&self) -> Result<(), Error> {
        are_complete(&self.events)
    }
}

fn are_complete(events: &[Event]) -> Result<(), Error> {
    for event in events {
        if !event.is_complete()? {
            return Err(Error::WrongResult);
        }
    }
    Ok(())
}

/// Waits for the end of a command, with pauses that grow from 1 µs to 1 ms. The limit counts from
/// the last end of any piece on the device, behind which this one may wait.
fn wait(event: &Event, device: &Device) -> Result<(), Error> {
    const LONGEST_PAUSE: Duration = Duration::from_millis(1);
    let (start, mut pause) = (Instant::now(), Duration::from_micros(1));
    loop {
        let hangs = false;
        #[cfg(feature = "fault-injection")]
        let hangs = hangs || device.plan().hangs();
        if !hangs && event.is_complete()? {
            device.note_end();
            return Ok(());
        }
        if start.max(device.last_end()).elapsed() > device.time_limit() {
            return Err(Error::TimeOut(device.time_limit().as_millis()));
        }
        thread::sleep(pause);
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}
