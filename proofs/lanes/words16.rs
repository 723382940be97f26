//! Words of 16 and of 32 bits that hold terms, for `cargo xtask prove`: a word is the place of a
//! [`Word`] in a list, so one run of a function lists its computation for every coefficient.
//!
//! Memory that was registered holds places, and all other memory is a table of numbers.

use std::cell::RefCell;
use std::collections::HashMap;

use super::{COEFFICIENTS, Polynomial, Sampled, Words};

/// The place of a word in its list.
pub type Place = u16;

/// The term of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// A number.
    Constant(i32),
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
    /// ⌊a·b / 2^count⌋ for numbers of 15 bits, or of 16 if the count is 16.
    MulShort([Place; 2], u32),
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

/// From inputs to results.
pub(crate) type Run = fn(&[i32]) -> Vec<i32>;

/// A function, its whole computation, and its results.
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
    run: Run,
}

impl Function {
    /// Its results for these inputs, by portable words.
    pub fn run(&self, inputs: &[i32]) -> Vec<i32> {
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

/// Where it stands.
pub(crate) fn place(word: Word) -> Place {
    RECORD.with_borrow_mut(|record| {
        let Record { list, places, .. } = record;
        *places.entry(word).or_insert_with(|| {
            list.push(word);
            Place::try_from(list.len() - 1).expect("few words")
        })
    })
}

/// Notes the sum of products with other ones.
pub(crate) fn sum(before: u32, products: &[[Place; 2]]) -> u32 {
    RECORD.with_borrow_mut(|record| {
        let sum = [&record.sums[before as usize], products].concat();
        record.sums.push(sum);
        record.sums.len() as u32 - 1
    })
}

/// Whether these numbers are places.
pub(crate) fn is_known<T>(from: &[T]) -> bool {
    let at = from.as_ptr().addr();
    let is_there = |[start, end]: &[usize; 2]| (*start..*end).contains(&at);
    RECORD.with_borrow(|record| record.memory.iter().any(is_there))
}

/// From now on, places lie there.
pub(crate) fn register<T>(memory: &[T]) {
    let at = memory.as_ptr().addr();
    let end = at + size_of_val(memory);
    RECORD.with_borrow_mut(|record| record.memory.push([at, end]));
}

/// The signs that were asked for since the last time, or none.
pub(crate) fn take_signs() -> Vec<i32> {
    let signs = RECORD.with_borrow_mut(|record| core::mem::take(&mut record.signs));
    signs.into_iter().map(i32::from).collect()
}

/// Gives the bits that are spread next.
pub(crate) fn give_bits(bits: &[i32]) {
    let bits = bits.iter().map(|&bit| bit as Place).collect();
    RECORD.with_borrow_mut(|record| record.bits = bits);
}

/// Words that hold terms, `L` of 16 bits in a vector, or half as many of 32.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<const L: usize>;

/// Its first words count.
pub(crate) type Vector = [Place; 32];

/// A word of each of the first `lanes`.
pub(crate) fn each(lanes: usize, word: impl Fn(usize) -> Word) -> Vector {
    core::array::from_fn(|i| if i < lanes { place(word(i)) } else { 0 })
}

/// The signs of words.
pub(crate) fn signs(a: &[Place]) -> u32 {
    let signs: Vec<Place> = a.iter().map(|&a| place(Word::Sign(a))).collect();
    RECORD.with_borrow_mut(|record| record.signs.extend(signs));
    0
}

/// Words where bits that were given are set.
pub(crate) fn spread(value: &[Place]) -> Vector {
    let bits: Vec<Place> =
        RECORD.with_borrow_mut(|record| record.bits.drain(..value.len()).collect());
    each(value.len(), |i| Word::And([bits[i], value[i]]))
}

/// Returns the vector that was packed there.
pub(crate) fn unpack(from: &[u8]) -> Vector {
    RECORD.with_borrow(|record| record.packed[&from.as_ptr().addr()])
}

/// Notes a vector that is packed.
pub(crate) fn pack(to: &[u8], a: Vector) {
    RECORD.with_borrow_mut(|record| record.packed.insert(to.as_ptr().addr(), a));
}

impl<const L: usize> Terms<L> {
    fn each(word: impl Fn(usize) -> Word) -> Vector {
        each(L, word)
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
        match is_known(from) {
            true => core::array::from_fn(|i| if i < L { from[i] as Place } else { 0 }),
            false => Self::each(|i| Word::Constant(from[i].into())),
        }
    }

    fn store(self, to: &mut [i16], a: Vector) {
        register(&to[..L]);
        for (to, a) in to.iter_mut().zip(&a[..L]) {
            *to = *a as i16;
        }
    }

    fn splat(self, value: i16) -> Vector {
        Self::each(|_| Word::Constant(value.into()))
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
        core::array::from_fn(|i| sum(sums[i], &[2 * i, 2 * i + 1].map(|i| [a[i], b[i]])))
    }

    fn halves(self, even: Self::Sums, odd: Self::Sums) -> [Vector; 2] {
        let sum = |i: usize| [even, odd][i % 2][i / 2];
        [
            Self::each(|i| Word::Low(sum(i))),
            Self::each(|i| Word::High(sum(i))),
        ]
    }

    fn signs(self, a: Vector) -> u32 {
        signs(&a[..L])
    }

    fn spread(self, _bits: u32, value: Vector) -> Vector {
        spread(&value[..L])
    }

    fn unpack<const BITS: usize>(self, from: &[u8]) -> Vector {
        unpack(from)
    }

    fn pack<const BITS: usize>(self, to: &mut [u8], a: Vector) {
        pack(to, a);
    }

    fn sift_vartime(self, _from: &[u8], _to: &mut Sampled, _count: usize) -> usize {
        panic!("a time that depends on terms")
    }
}

/// Polynomials of these words.
pub(crate) fn polynomials(x: &[i32]) -> Vec<Polynomial> {
    let mut all = vec![Polynomial::ZERO; x.len() / COEFFICIENTS];
    register(&all);
    for (polynomial, x) in all.iter_mut().zip(x.as_chunks().0) {
        polynomial.0 = x.map(|x| x as i16);
    }
    all
}

/// The words of polynomials.
pub(crate) fn words(polynomials: &[Polynomial]) -> Vec<i32> {
    let all = polynomials.iter().flat_map(|polynomial| polynomial.0);
    all.map(i32::from).collect()
}

/// Records the terms of `work` for `count` polynomials; `run` is the same function of portable
/// words.
pub(crate) fn record(name: String, count: usize, work: Run, run: Run) -> Function {
    RECORD.set(Record {
        sums: vec![Vec::new()],
        ..Record::default()
    });
    // Memory that is nothing but zeros holds the number zero.
    place(Word::Constant(0));
    let inputs = (0..(count * COEFFICIENTS) as u16).map(|i| place(Word::Input(i)).into());
    let results = work(&inputs.collect::<Vec<i32>>());
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

/// Functions of vectors of 256 bits and of 512, each with a number that it is for, and how many
/// polynomials it takes.
macro_rules! functions {
    ($algorithm:literal: $($f:ident $of:literal $inputs:expr;)*) => {{
        use $crate::simd::words16::portable::PortableWords;
        use $crate::simd::words16::symbolic::{Run, Terms, record};
        let mut all = Vec::new();
        $(
            for (bits, work) in [
                (256, (|x| $f::<_, $of>(Terms::<16>, x)) as Run),
                (512, |x| $f::<_, $of>(Terms::<32>, x)),
            ] {
                let of = if $of == 0 { String::new() } else { format!(" {}", $of) };
                let name = format!("{}::{}{of}, {bits} bits", $algorithm, stringify!($f));
                all.push(record(name, $inputs, work, |x| $f::<_, $of>(PortableWords, x)));
            }
        )*
        all
    }};
}
pub(crate) use functions;
