//! ML-KEM on words that hold terms, for `cargo xtask prove`: a word is the place of a [`Word`] in a
//! list, so one run of a function lists all that it does to every coefficient.
//!
//! Memory that was registered holds places, and all other memory is a table of numbers.

use std::cell::RefCell;
use std::collections::HashMap;

use super::parameters::{Bytes, length};
use super::{coding, transform};
use crate::simd::words16::portable::PortableWords;
use crate::simd::words16::{COEFFICIENTS, Polynomial, Sampled, Words};

/// The place of a word in its list.
pub type Place = u16;

/// What a word holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// A number.
    Constant(i16),
    /// An input.
    Input(u16),
    /// a + b.
    Add([Place; 2]),
    /// a − b.
    Sub([Place; 2]),
    /// The lower half of a·b.
    MulLow([Place; 2]),
    /// The upper half of a·b.
    MulHigh([Place; 2]),
    /// ⌊(a·b + 2^14) / 2^15⌋.
    MulRound([Place; 2]),
    /// a & b.
    And([Place; 2]),
    /// a | b.
    Or([Place; 2]),
    /// The smaller one, unsigned.
    Min([Place; 2]),
    /// a·2^count.
    Left(Place, u32),
    /// ⌊a / 2^count⌋, unsigned.
    Right(Place, u32),
    /// −1 if a is negative, else 0.
    Sign(Place),
    /// The lower half of a sum of products.
    Low(u32),
    /// Its upper half.
    High(u32),
}

/// A function, all that it does, and its results.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name, with the words of a vector.
    pub name: String,
    /// Words, in the order of their computation.
    pub list: Vec<Word>,
    /// Sums of products of two words.
    pub sums: Vec<Vec<[Place; 2]>>,
    /// The places of its results.
    pub results: Vec<Place>,
    /// How many inputs it has.
    pub inputs: usize,
    run: fn(&[i16]) -> Vec<i16>,
}

impl Function {
    /// Its results for these inputs, by portable words.
    pub fn run(&self, inputs: &[i16]) -> Vec<i16> {
        (self.run)(inputs)
    }
}

#[derive(Default)]
struct Record {
    list: Vec<Word>,
    places: HashMap<Word, Place>,
    sums: Vec<Vec<[Place; 2]>>,
    /// Addresses of memory that holds places.
    memory: Vec<[usize; 2]>,
    /// Vectors that were packed to an address.
    packed: HashMap<usize, Vector>,
    signs: Vec<Place>,
    bits: Vec<Place>,
}

thread_local! {
    static RECORD: RefCell<Record> = RefCell::default();
}

fn place(word: Word) -> Place {
    RECORD.with_borrow_mut(|record| {
        let Record { list, places, .. } = record;
        *places.entry(word).or_insert_with(|| {
            list.push(word);
            Place::try_from(list.len() - 1).expect("few words")
        })
    })
}

/// Words that hold terms, `L` in a vector.
#[derive(Clone, Copy, Debug)]
struct Terms<const L: usize>;

type Vector = [Place; 32];

impl<const L: usize> Terms<L> {
    fn each(word: impl Fn(usize) -> Word) -> Vector {
        core::array::from_fn(|i| if i < L { place(word(i)) } else { 0 })
    }

    fn two(word: fn([Place; 2]) -> Word, a: Vector, b: Vector) -> Vector {
        Self::each(|i| word([a[i], b[i]]))
    }
}

impl<const L: usize> Words for Terms<L> {
    type Vector = Vector;
    type Sums = [u32; 16];

    const LANES: usize = L;

    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        body()
    }

    fn load(self, from: &[i16]) -> Vector {
        let at = from.as_ptr().addr();
        let is_known = |[start, end]: &[usize; 2]| (*start..*end).contains(&at);
        match RECORD.with_borrow(|record| record.memory.iter().any(is_known)) {
            true => core::array::from_fn(|i| if i < L { from[i] as Place } else { 0 }),
            false => Self::each(|i| Word::Constant(from[i])),
        }
    }

    fn store(self, to: &mut [i16], a: Vector) {
        let at = to.as_ptr().addr();
        RECORD.with_borrow_mut(|record| record.memory.push([at, at + 2 * L]));
        for (to, a) in to.iter_mut().zip(&a[..L]) {
            *to = *a as i16;
        }
    }

    fn splat(self, value: i16) -> Vector {
        Self::each(|_| Word::Constant(value))
    }

    fn add(self, a: Vector, b: Vector) -> Vector {
        Self::two(Word::Add, a, b)
    }

    fn sub(self, a: Vector, b: Vector) -> Vector {
        Self::two(Word::Sub, a, b)
    }

    fn mul_low(self, a: Vector, b: Vector) -> Vector {
        Self::two(Word::MulLow, a, b)
    }

    fn mul_high(self, a: Vector, b: Vector) -> Vector {
        Self::two(Word::MulHigh, a, b)
    }

    fn mul_round(self, a: Vector, b: Vector) -> Vector {
        Self::two(Word::MulRound, a, b)
    }

    fn and(self, a: Vector, b: Vector) -> Vector {
        Self::two(Word::And, a, b)
    }

    fn or(self, a: Vector, b: Vector) -> Vector {
        Self::two(Word::Or, a, b)
    }

    fn min_unsigned(self, a: Vector, b: Vector) -> Vector {
        Self::two(Word::Min, a, b)
    }

    fn shift_left(self, a: Vector, count: u32) -> Vector {
        Self::each(|i| Word::Left(a[i], count))
    }

    fn shift_right(self, a: Vector, count: u32) -> Vector {
        Self::each(|i| Word::Right(a[i], count))
    }

    fn swap_pairs(self, a: Vector) -> Vector {
        core::array::from_fn(|i| a[i ^ 1])
    }

    fn exchange<const PAIRS: usize>(self, a: Vector, b: Vector) -> [Vector; 2] {
        let block = 2 * PAIRS;
        let upper = |i: usize| if i & block == 0 { a[i] } else { b[i - block] };
        let lower = |i: usize| if i & block == 0 { a[i + block] } else { b[i] };
        let all = |word: &dyn Fn(usize) -> Place| {
            core::array::from_fn(|i| if i < L { word(i) } else { 0 })
        };
        [all(&upper), all(&lower)]
    }

    fn unzip(self, a: Vector, b: Vector) -> [Vector; 2] {
        let word = |i: usize| if i < L { a[i] } else { b[i - L] };
        [0, 1].map(|odd| {
            let from = |i: usize| word(4 * (i / 2) + 2 * odd + i % 2);
            core::array::from_fn(|i| if i < L { from(i) } else { 0 })
        })
    }

    fn zip(self, even: Vector, odd: Vector) -> [Vector; 2] {
        [0, L].map(|start| {
            core::array::from_fn(|i| {
                let at = (start + i) / 4 * 2 + i % 2;
                match i {
                    _ if i >= L => 0,
                    _ if i & 2 == 0 => even[at],
                    _ => odd[at],
                }
            })
        })
    }

    fn no_sums(self) -> Self::Sums {
        [0; 16]
    }

    fn add_products(self, sums: Self::Sums, a: Vector, b: Vector) -> Self::Sums {
        RECORD.with_borrow_mut(|record| {
            core::array::from_fn(|i| {
                let mut sum = record.sums[sums[i] as usize].clone();
                sum.extend([2 * i, 2 * i + 1].map(|i| [a[i], b[i]]));
                record.sums.push(sum);
                record.sums.len() as u32 - 1
            })
        })
    }

    fn halves(self, even: Self::Sums, odd: Self::Sums) -> [Vector; 2] {
        let sum = |i: usize| [even, odd][i % 2][i / 2];
        [
            Self::each(|i| Word::Low(sum(i))),
            Self::each(|i| Word::High(sum(i))),
        ]
    }

    fn signs(self, a: Vector) -> u32 {
        let signs: Vec<Place> = a[..L].iter().map(|&a| place(Word::Sign(a))).collect();
        RECORD.with_borrow_mut(|record| record.signs.extend(signs));
        0
    }

    fn spread(self, _bits: u32, value: Vector) -> Vector {
        let bits: Vec<Place> = RECORD.with_borrow_mut(|record| record.bits.drain(..L).collect());
        Self::each(|i| Word::And([bits[i], value[i]]))
    }

    fn unpack<const BITS: usize>(self, from: &[u8]) -> Vector {
        RECORD.with_borrow(|record| record.packed[&from.as_ptr().addr()])
    }

    fn pack<const BITS: usize>(self, to: &mut [u8], a: Vector) {
        RECORD.with_borrow_mut(|record| record.packed.insert(to.as_ptr().addr(), a));
    }

    fn sift_vartime(self, _from: &[u8], _to: &mut Sampled, _count: usize) -> usize {
        panic!("a time that depends on terms")
    }
}

/// Polynomials of these words.
fn polynomials(x: &[i16]) -> Vec<Polynomial> {
    let mut all = vec![Polynomial::ZERO; x.len() / COEFFICIENTS];
    let at = [0, size_of_val(&all[..])].map(|end| all.as_ptr().addr() + end);
    RECORD.with_borrow_mut(|record| record.memory.push(at));
    for (polynomial, x) in all.iter_mut().zip(x.chunks(COEFFICIENTS)) {
        polynomial.0.copy_from_slice(x);
    }
    all
}

fn packed<W: Words, const BITS: usize>(w: W, x: &[i16]) -> Vec<u8> {
    let mut bytes = vec![0; length(BITS)];
    let polynomial = polynomials(x);
    for at in (0..COEFFICIENTS).step_by(W::LANES) {
        let a = w.load(&polynomial[0].0[at..]);
        w.pack::<BITS>(&mut bytes[length(BITS) * at / COEFFICIENTS..], a);
    }
    bytes
}

fn unpacked<W: Words, const BITS: usize>(w: W, bytes: &[u8]) -> Vec<i16> {
    let mut polynomial = Polynomial::ZERO;
    for at in (0..COEFFICIENTS).step_by(W::LANES) {
        let a = w.unpack::<BITS>(&bytes[length(BITS) * at / COEFFICIENTS..]);
        w.store(&mut polynomial.0[at..], a);
    }
    polynomial.0.to_vec()
}

fn forward<W: Words, const ANY: usize>(w: W, x: &[i16]) -> Vec<i16> {
    let mut a = polynomials(x);
    transform::forward(w, &mut a[0]);
    a[0].0.to_vec()
}

fn inverse<W: Words, const ANY: usize>(w: W, x: &[i16]) -> Vec<i16> {
    let mut a = polynomials(x);
    transform::inverse(w, &mut a[0]);
    a[0].0.to_vec()
}

fn multiplier<W: Words, const ANY: usize>(w: W, x: &[i16]) -> Vec<i16> {
    let a = polynomials(x);
    let mut out = [Polynomial::ZERO; 2];
    transform::multiplier(w, &a[0], &mut out);
    out.iter().flat_map(|out| out.0).collect()
}

fn product<W: Words, const K: usize>(w: W, x: &[i16]) -> Vec<i16> {
    let all = polynomials(x);
    let a = core::array::from_fn::<_, K, _>(|i| &all[i].0);
    let multipliers = polynomials(&x[K * COEFFICIENTS..]);
    let multipliers = multipliers.as_chunks().0.first_chunk::<K>().expect("all");
    // A copy lies elsewhere.
    let mut out = polynomials(&[0; COEFFICIENTS]);
    transform::product(w, a, multipliers, &mut out[0]);
    out[0].0.to_vec()
}

fn add_product<W: Words, const ANY: usize>(w: W, x: &[i16]) -> Vec<i16> {
    let mut all = polynomials(x);
    let (sum, product) = all.split_at_mut(1);
    transform::add_product(w, &mut sum[0], &product[0]);
    sum[0].0.to_vec()
}

fn decode<W: Words, const ANY: usize>(w: W, x: &[i16]) -> Vec<i16> {
    let bytes = packed::<W, 12>(w, x);
    let mut out = polynomials(&[0; COEFFICIENTS]);
    let is_valid = coding::decode(w, &bytes, &mut out[0]);
    // Whether one is not below q: of the portable words one for all, of terms one for each place.
    let mut signs = RECORD.with_borrow_mut(|record| core::mem::take(&mut record.signs));
    signs.resize(32, i16::from(is_valid).wrapping_sub(1) as Place);
    [
        out[0].0.to_vec(),
        signs.into_iter().map(|sign| sign as i16).collect(),
    ]
    .concat()
}

fn encode<W: Words, const ANY: usize>(w: W, x: &[i16]) -> Vec<i16> {
    let a = polynomials(x);
    let mut bytes = vec![0; length(12)];
    coding::encode(w, &a[0], &mut bytes);
    unpacked::<W, 12>(w, &bytes)
}

fn compress<W: Words, const BITS: usize>(w: W, x: &[i16]) -> Vec<i16> {
    let a = polynomials(x);
    let mut bytes = vec![0; length(BITS)];
    coding::compress::<W, BITS>(w, &a[0], &a[1], &mut bytes);
    unpacked::<W, BITS>(w, &bytes)
}

fn decompress<W: Words, const BITS: usize>(w: W, x: &[i16]) -> Vec<i16> {
    let bytes = packed::<W, BITS>(w, x);
    let mut out = polynomials(&[0; COEFFICIENTS]);
    coding::decompress::<W, BITS>(w, &bytes, &mut out[0]);
    out[0].0.to_vec()
}

/// The bits of the message are words that are 0 or −1.
fn add_message<W: Words, const ANY: usize>(w: W, x: &[i16]) -> Vec<i16> {
    let mut a = polynomials(&x[..COEFFICIENTS]);
    let bits = &x[COEFFICIENTS..];
    let all = bits.iter().map(|&bit| bit as Place).collect();
    RECORD.with_borrow_mut(|record| record.bits = all);
    let mut message: Bytes = [0; 32];
    for (i, bit) in bits.iter().enumerate() {
        message[i / 8] |= ((bit & 1) as u8) << (i % 8);
    }
    coding::add_message(w, &message, &mut a[0]);
    a[0].0.to_vec()
}

/// −1 where a bit is 0.
fn message<W: Words, const ANY: usize>(w: W, x: &[i16]) -> Vec<i16> {
    let a = polynomials(x);
    let mut message: Bytes = [0; 32];
    coding::message(w, &a[0], &a[1], &mut message);
    let signs = RECORD.with_borrow_mut(|record| core::mem::take(&mut record.signs));
    match signs.is_empty() {
        true => (0..COEFFICIENTS)
            .map(|i| i16::from(message[i / 8] >> (i % 8) & 1) - 1)
            .collect(),
        false => signs.into_iter().map(|sign| sign as i16).collect(),
    }
}

fn noise<W: Words, const ANY: usize>(w: W, x: &[i16]) -> Vec<i16> {
    let bytes = packed::<W, 4>(w, x);
    let mut out = polynomials(&[0; COEFFICIENTS]);
    coding::noise(w, bytes[..].try_into().expect("all"), &mut out[0]);
    out[0].0.to_vec()
}

fn wide_noise<W: Words, const ANY: usize>(w: W, x: &[i16]) -> Vec<i16> {
    let bytes = packed::<W, 6>(w, x);
    let mut out = polynomials(&[0; COEFFICIENTS]);
    coding::wide_noise(w, bytes[..].try_into().expect("all"), &mut out[0]);
    out[0].0.to_vec()
}

fn record(
    name: String,
    count: usize,
    work: fn(&[i16]) -> Vec<i16>,
    run: fn(&[i16]) -> Vec<i16>,
) -> Function {
    RECORD.set(Record {
        sums: vec![Vec::new()],
        ..Record::default()
    });
    // Memory that is nothing but zeros holds the number zero.
    place(Word::Constant(0));
    let inputs = (0..(count * COEFFICIENTS) as u16).map(|i| place(Word::Input(i)) as i16);
    let results = work(&inputs.collect::<Vec<i16>>());
    let Record { list, sums, .. } = RECORD.take();
    Function {
        name,
        list,
        sums,
        results: results.into_iter().map(|place| place as Place).collect(),
        inputs: count * COEFFICIENTS,
        run,
    }
}

/// All of them, on vectors of 16 words and of 32.
pub fn functions() -> Vec<Function> {
    let mut all = Vec::new();
    macro_rules! functions {
        ($($f:ident $of:literal $inputs:expr;)*) => { $(
            for (lanes, work) in [
                (16, (|x| $f::<_, $of>(Terms::<16>, x)) as fn(&[i16]) -> Vec<i16>),
                (32, |x| $f::<_, $of>(Terms::<32>, x)),
            ] {
                let of = if $of == 0 { String::new() } else { format!(" {}", $of) };
                let name = format!("mlkem::{}{of}, {lanes} words", stringify!($f));
                all.push(record(name, $inputs, work, |x| $f::<_, $of>(PortableWords, x)));
            }
        )* };
    }
    functions! {
        forward 0 1; inverse 0 1; multiplier 0 1;
        product 2 6; product 3 9; product 4 12; add_product 0 2;
        decode 0 1; encode 0 1;
        compress 4 2; compress 5 2; compress 10 2; compress 11 2;
        decompress 4 1; decompress 5 1; decompress 10 1; decompress 11 1;
        add_message 0 2; message 0 2; noise 0 1; wide_noise 0 1;
    }
    all
}
