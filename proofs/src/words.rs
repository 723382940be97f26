//! Statements about words of 16 and of 32 bits: transforms, products, reductions and codings.
//!
//! A word that depends on one or two other words is tried for all their values, which is exact. All
//! other words are sums, and forms in the inputs modulo q. The form of a result must be the row of
//! the matrix by which a standard defines a transform.

use std::collections::{BTreeMap, HashMap, HashSet};

use lockstep_kernels::proved::words::{Function, Place, Word};

/// Length of words, and their modulus.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Modulus {
    pub bits: u32,
    pub q: i64,
}

/// A sum of products of at most two inputs modulo q: the key of an input is its number and one.
pub type Form = Vec<(u32, i64)>;

/// A word's least and greatest value.
pub type Range = [i64; 2];

/// An input, or a sum or difference of two: which inputs, times 1 or −1.
pub type Cut = Vec<(usize, i64)>;

/// A function of cuts, and of the number that a function of words is for.
type Stated = fn(&[i64], i64) -> i64;

/// The statement of a result.
pub enum Expected {
    /// It is this modulo q, and at least and at most so much.
    Form(Form, Range),
    /// A function of these.
    Of(Vec<Cut>, Stated),
}

/// The statement of a function.
pub struct Statement {
    pub modulus: Modulus,
    /// The number that it is for.
    pub of: i64,
    /// Of the inputs.
    pub ranges: Vec<Range>,
    /// Of each result.
    pub expected: Vec<Expected>,
    /// There are more results, of which some are −1 and not 0 if this function of a cut is, of any.
    pub refused: Option<(Vec<Cut>, Stated)>,
}

impl Modulus {
    pub fn power(self, base: i64, exponent: i64) -> i64 {
        let (mut power, mut base) = (1, base % self.q);
        for bit in 0..63 {
            if exponent >> bit & 1 == 1 {
                power = power * base % self.q;
            }
            base = base * base % self.q;
        }
        power
    }

    /// The range of any word.
    pub fn any(self) -> Range {
        let end = 1 << (self.bits - 1);
        [-end, end - 1]
    }

    /// The word with these lowest bits.
    pub fn word(self, a: i64) -> i64 {
        a << (64 - self.bits) >> (64 - self.bits)
    }

    fn unsigned(self, a: i64) -> i64 {
        a & ((1 << self.bits) - 1)
    }

    /// The sum of terms.
    pub fn form(self, terms: impl IntoIterator<Item = (u32, i64)>) -> Form {
        let mut sum = BTreeMap::new();
        for (key, times) in terms {
            let by: &mut i64 = sum.entry(key).or_default();
            *by = (*by + times).rem_euclid(self.q);
        }
        sum.into_iter().filter(|(_, times)| *times != 0).collect()
    }

    fn scaled(self, form: &Form, by: i64) -> Form {
        let by = by.rem_euclid(self.q);
        self.form(form.iter().map(|&(key, times)| (key, times * by)))
    }

    fn product(self, a: &Form, b: &Form) -> Option<Form> {
        let is_linear = |form: &Form| form.iter().all(|(key, _)| key >> 16 == 0);
        let times = |(i, x), (j, y)| (u32::min(i, j) << 16 | u32::max(i, j), x * y % self.q);
        let products = a.iter().flat_map(|&a| b.iter().map(move |&b| times(a, b)));
        (is_linear(a) && is_linear(b)).then(|| self.form(products))
    }

    /// An operation without its operands.
    pub fn apply(self, word: &Word, a: i64, b: i64) -> i64 {
        self.word(match *word {
            Word::Add(_) => a + b,
            Word::Sub(_) => a - b,
            Word::MulLow(_) => a.wrapping_mul(b),
            Word::MulHigh(_) => a.wrapping_mul(b) >> self.bits,
            Word::MulRound(_) => (a.wrapping_mul(b) + (1 << 14)) >> 15,
            Word::MulShort(_, count) => a.wrapping_mul(b) >> count,
            Word::And(_) => a & b,
            Word::Or(_) => a | b,
            Word::Min(_) => self.unsigned(a).min(self.unsigned(b)),
            Word::Left(_, count) => a << count,
            Word::Right(_, count) => self.unsigned(a) >> count,
            Word::Sign(_) => a >> 63,
            Word::Constant(value) => value.into(),
            Word::Input(_) | Word::Low(_) | Word::High(_) => unreachable!("no operation"),
        })
    }
}

/// The operands of an operation.
fn operands_mut(word: &mut Word) -> &mut [Place] {
    use Word::*;
    match word {
        Add(both) | Sub(both) | And(both) | Or(both) | Min(both) => both,
        MulLow(both) | MulHigh(both) | MulRound(both) | MulShort(both, _) => both,
        Left(a, _) | Right(a, _) | Sign(a) => std::slice::from_mut(a),
        Constant(_) | Input(_) | Low(_) | High(_) => &mut [],
    }
}

/// The same; of one word it is both.
pub fn operands(mut word: Word) -> Option<[Place; 2]> {
    let all = operands_mut(&mut word);
    Some([*all.first()?, *all.last()?])
}

/// How a word is computed from others: operations on words, the first of which are those.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Program {
    modulus: Modulus,
    steps: Vec<Word>,
    result: Place,
}

/// Values that are tried at once, and how many at most where nothing is stated of a word.
const CHUNK: usize = 1024;
const FEW: i64 = 1 << 22;

impl Program {
    /// Calls `take` with all values in these ranges, and with the result.
    fn each(
        &self,
        ranges: &[Range],
        mut take: impl FnMut(&[i64], i64) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        let inputs = ranges.len();
        let mut columns = vec![[0; CHUNK]; inputs + self.steps.len()];
        let [first, second] = [0, 1].map(|i| ranges.get(i).copied().unwrap_or([0, 0]));
        for y in second[0]..=second[1] {
            for x in (first[0]..=first[1]).step_by(CHUNK) {
                let count = CHUNK.min((first[1] + 1 - x) as usize);
                for (column, (start, step)) in columns[..inputs].iter_mut().zip([(x, 1), (y, 0)]) {
                    *column = core::array::from_fn(|i| start + step * i as i64);
                }
                for (i, step) in self.steps.iter().enumerate() {
                    let (before, column) = columns.split_at_mut(inputs + i);
                    self.apply(step, before, &mut column[0][..count])?;
                }
                let results = &columns[usize::from(self.result)][..count];
                for (i, result) in results.iter().enumerate() {
                    take(&[x + i as i64, y][..inputs], *result)?;
                }
            }
        }
        Ok(())
    }

    fn apply(&self, step: &Word, before: &[[i64; CHUNK]], to: &mut [i64]) -> Result<(), Wrong> {
        let Some(both) = operands(*step) else {
            to.fill(self.modulus.apply(step, 0, 0));
            return Ok(());
        };
        let [a, b] = both.map(|place| &before[usize::from(place)][..to.len()]);
        if let Word::MulShort(_, count) = step {
            let short = 0..1 << (15 + count / 16);
            if !a.iter().chain(b).all(|a| short.contains(a)) {
                return Err("a factor is too long".into());
            }
        }
        for (to, (a, b)) in to.iter_mut().zip(a.iter().zip(b)) {
            *to = self.modulus.apply(step, *a, *b);
        }
        Ok(())
    }
}

/// Why a statement is not shown, and values of cuts for which it may be false.
pub struct Wrong {
    pub why: String,
    pub at: (Vec<Cut>, Vec<i64>),
}

impl<T: Into<String>> From<T> for Wrong {
    fn from(why: T) -> Self {
        let why = why.into();
        let at = Default::default();
        Wrong { why, at }
    }
}

/// A word's range, and c and d if it is c·x + d modulo q for each x in the range of its base.
type Tried = (Range, Option<[i64; 2]>);

/// Words that were tried for all values in some ranges. Other functions' words like them need no
/// trial.
#[derive(Default)]
pub struct Trials {
    tried: HashMap<(Program, Vec<Range>), Tried>,
    shown: HashSet<(Program, Vec<Range>, Stated, i64)>,
}

struct Words<'a> {
    function: &'a Function,
    statement: &'a Statement,
    modulus: Modulus,
    trials: &'a mut Trials,
    /// The word that alone determines this one; itself if there is none. Nothing for numbers.
    base: Vec<Option<Place>>,
    /// Ranges of the bases. The fields below are of bases, too.
    ranges: Vec<Range>,
    forms: Vec<Option<Form>>,
    cuts: HashMap<Cut, Place>,
}

impl<'a> Words<'a> {
    fn new(
        function: &'a Function,
        statement: &'a Statement,
        trials: &'a mut Trials,
    ) -> Result<Self, Wrong> {
        let mut all = Self {
            function,
            statement,
            modulus: statement.modulus,
            trials,
            base: Vec::new(),
            ranges: Vec::new(),
            forms: Vec::new(),
            cuts: HashMap::new(),
        };
        for place in 0..function.list.len() as Place {
            all.add(place).map_err(|mut wrong| {
                wrong.why = format!("word {place}: {}", wrong.why);
                wrong
            })?;
        }
        Ok(all)
    }

    fn word(&self, place: Place) -> Word {
        self.function.list[usize::from(place)]
    }

    fn number(&self, place: Place) -> Option<i64> {
        match self.word(place) {
            Word::Constant(value) => Some(value.into()),
            _ => None,
        }
    }

    fn add(&mut self, place: Place) -> Result<(), Wrong> {
        let word = self.word(place);
        let (mut base, mut range, mut form) = (Some(place), self.modulus.any(), None);
        match word {
            Word::Constant(value) => {
                base = None;
                range = [value.into(); 2];
                form = Some(self.modulus.form([(0, value.into())]));
            }
            Word::Input(i) => {
                range = self.statement.ranges[usize::from(i)];
                form = Some(vec![(u32::from(i) + 1, 1)]);
                self.cuts.insert(vec![(usize::from(i), 1)], place);
            }
            Word::Low(_) => {}
            Word::High(sum) => {
                range = self.sum(sum)?.map(|sum| sum >> self.modulus.bits);
                if self.is_multiple_of_r(sum) {
                    form = self.by_r(sum)?;
                }
            }
            _ => {
                let [a, b] = operands(word).expect("an operation");
                match [a, b].map(|place| self.base[usize::from(place)]) {
                    [None, other] | [other, None] => base = other,
                    [a, b] if a == b => base = a,
                    _ => (range, form) = self.of_two(&word, [a, b])?,
                }
                let sign = if matches!(word, Word::Add(_)) { 1 } else { -1 };
                if let (Word::Add(_) | Word::Sub(_), Word::Input(a), Word::Input(b)) =
                    (word, self.word(a), self.word(b))
                {
                    let mut cut = vec![(usize::from(a), 1), (usize::from(b), sign)];
                    cut.sort_unstable();
                    self.cuts.insert(cut, place);
                }
            }
        }
        self.base.push(base);
        self.ranges.push(range);
        self.forms.push(form);
        Ok(())
    }

    /// How a word is computed from these and from numbers.
    fn program(&self, place: Place, from: &[Place]) -> Option<Program> {
        let mut locals = from.iter().copied().zip(0..).collect();
        let mut steps = Vec::new();
        let result = self.step(place, from.len(), &mut locals, &mut steps)?;
        Some(Program {
            modulus: self.modulus,
            steps,
            result,
        })
    }

    fn step(
        &self,
        place: Place,
        inputs: usize,
        locals: &mut HashMap<Place, Place>,
        steps: &mut Vec<Word>,
    ) -> Option<Place> {
        if let Some(local) = locals.get(&place) {
            return Some(*local);
        }
        let mut word = self.word(place);
        match operands(word) {
            Some(both) => {
                for place in both {
                    self.step(place, inputs, locals, steps)?;
                }
            }
            None => _ = self.number(place)?,
        }
        for place in operands_mut(&mut word) {
            *place = locals[place];
        }
        steps.push(word);
        let local = (inputs + steps.len() - 1) as Place;
        locals.insert(place, local);
        Some(local)
    }

    /// Tries a program for all values.
    fn tried(&mut self, program: Program, ranges: Vec<Range>) -> Result<Tried, Wrong> {
        let key = (program, ranges);
        if let Some(tried) = self.trials.tried.get(&key) {
            return Ok(*tried);
        }
        let (mut range, q) = ([i64::MAX, i64::MIN], self.modulus.q);
        let (mut before, mut line): (Vec<i64>, Option<[i64; 2]>) = (Vec::new(), Some([0; 2]));
        key.0.each(&key.1, |x, value| {
            range = [range[0].min(value), range[1].max(value)];
            let x = x.first().copied().unwrap_or(0);
            match before[..] {
                [] => line = Some([0, value]),
                [first] => line = Some([value - first, first - (value - first) * (x - 1)]),
                _ => {}
            }
            if before.len() < 2 {
                before.push(value);
            }
            line = line.filter(|[c, d]| (value - c * x - d) % q == 0);
            Ok(())
        })?;
        let tried = (range, line.map(|line| line.map(|x| x.rem_euclid(q))));
        self.trials.tried.insert(key, tried);
        Ok(tried)
    }

    /// The range of a word, unless there are too many values to try, and its form if it has one.
    fn known(&mut self, place: Place) -> Result<(Option<Range>, Option<Form>), Wrong> {
        let (at, base) = (usize::from(place), self.base[usize::from(place)]);
        if base == Some(place) || self.number(place).is_some() {
            return Ok((Some(self.ranges[at]), self.forms[at].clone()));
        }
        let from: Vec<Place> = base.into_iter().collect();
        let within = self.ranges_of(&from);
        if within.iter().any(|[least, most]| most - least > FEW) {
            return Ok((None, None));
        }
        let program = self.program(place, &from).expect("a base");
        let (range, line) = self.tried(program, within)?;
        let one = vec![(0, 1)];
        let form = base.map_or(Some(&one), |base| self.forms[usize::from(base)].as_ref());
        let form = form.zip(line).map(|(form, [c, d])| {
            let form = form.iter().map(|&(key, times)| (key, times * c));
            self.modulus.form(form.chain([(0, d)]))
        });
        Ok((Some(range), form))
    }

    fn ranges_of(&self, places: &[Place]) -> Vec<Range> {
        let places = places.iter();
        places
            .map(|&place| self.ranges[usize::from(place)])
            .collect()
    }

    /// A sum, a difference, or the reduction of a sum of products.
    fn of_two(&mut self, word: &Word, [a, b]: [Place; 2]) -> Result<(Range, Option<Form>), Wrong> {
        let sign = match word {
            Word::Add(_) => 1,
            Word::Sub(_) => -1,
            _ => return Ok((self.modulus.any(), None)),
        };
        let any = self.modulus.any();
        let ((Some([least, most]), left), (Some([less, more]), right)) =
            (self.known(a)?, self.known(b)?)
        else {
            return Ok((any, None));
        };
        let range = match sign {
            1 => [least + less, most + more],
            _ => [least - more, most - less],
        };
        if range[0] < any[0] || range[1] > any[1] {
            return Err(format!("a sum is from {} to {}", range[0], range[1]).into());
        }
        // R·(high − f(low)) is sum − low − R·f(low), of which the latter two must vanish.
        if let (Word::Sub(_), Word::High(sum), Some(low)) =
            (word, self.word(a), self.base[usize::from(b)])
            && self.word(low) == Word::Low(sum)
        {
            let program = self.program(b, &[low]).expect("a base");
            let (q, by) = (self.modulus.q, self.modulus.q - self.r_inverse());
            // The lower half is without a sign: it has R more than the word where that is negative.
            let (_, above) = self.tried(program.clone(), vec![[0, any[1]]])?;
            let (_, below) = self.tried(program, vec![[any[0], -1]])?;
            let is_reduced = [above, below] == [Some([by, 0]), Some([by, q - 1])];
            let form = is_reduced.then(|| self.by_r(sum)).transpose()?;
            return Ok((range, form.flatten()));
        }
        let form = left.zip(right).map(|(left, right)| {
            let right = right.into_iter().map(|(key, times)| (key, sign * times));
            self.modulus.form(left.into_iter().chain(right))
        });
        Ok((range, form))
    }

    fn r_inverse(&self) -> i64 {
        self.modulus
            .power(1 << self.modulus.bits, self.modulus.q - 2)
    }

    fn products(&self, sum: u32) -> &'a [[Place; 2]] {
        &self.function.sums[sum as usize]
    }

    /// Whether the lower half of a sum is zero, by Montgomery: it ends with a multiple m of k times
    /// the rest, and 1 + k·m is one of R; or k is times a factor of the rest, of which the other
    /// one is b, and b + k·m is one of R.
    fn is_multiple_of_r(&self, sum: u32) -> bool {
        let is_multiple = || {
            let (&[quotient, m], rest) = self.products(sum).split_last()?;
            let Word::MulLow([of, k]) = self.word(quotient) else {
                return None;
            };
            let km = self.number(k)?.wrapping_mul(self.number(m)?);
            let b = match self.word(of) {
                Word::Low(before) if self.products(before) == rest => 1,
                _ => match rest {
                    &[[a, b]] if a == of => self.number(b)?,
                    _ => return None,
                },
            };
            Some(self.modulus.word(b.wrapping_add(km)) == 0)
        };
        is_multiple().unwrap_or(false)
    }

    /// The form of a sum by R.
    fn by_r(&mut self, sum: u32) -> Result<Option<Form>, Wrong> {
        let mut form = Form::new();
        for [a, b] in self.products(sum) {
            let (a, b) = (self.known(*a)?.1, self.known(*b)?.1);
            // A multiple of q, of whatever.
            if [&a, &b].contains(&&Some(Form::new())) {
                continue;
            }
            let product = a.zip(b).and_then(|(a, b)| self.modulus.product(&a, &b));
            let Some(product) = product else {
                return Ok(None);
            };
            form.extend(product);
        }
        let form = self.modulus.form(form);
        Ok(Some(self.modulus.scaled(&form, self.r_inverse())))
    }

    /// The least and the greatest value of a sum of products, which must have as many bits.
    fn sum(&mut self, sum: u32) -> Result<Range, Wrong> {
        let mut range = [0_i128; 2];
        for [a, b] in self.products(sum) {
            let any = self.modulus.any();
            let [a, b] = [self.known(*a)?.0, self.known(*b)?.0].map(|range| range.unwrap_or(any));
            let corners = a.map(|a| b.map(|b| i128::from(a) * i128::from(b)));
            range[0] += corners.as_flattened().iter().min().expect("four");
            range[1] += corners.as_flattened().iter().max().expect("four");
        }
        let end = 1 << (2 * self.modulus.bits - 1);
        match range.iter().all(|sum| (-end..end).contains(sum)) {
            true => Ok(range.map(|sum| sum as i64)),
            false => Err("a sum of products has too many bits".into()),
        }
    }

    /// Proves the statements of all results.
    fn check(&mut self) -> Result<(), Wrong> {
        let (results, statement) = (&self.function.results, self.statement);
        let (results, others) = results
            .split_at_checked(statement.expected.len())
            .ok_or("too few results")?;
        for (i, (&place, expected)) in results.iter().zip(&statement.expected).enumerate() {
            let outcome = match expected {
                Expected::Form(form, range) => self.has_form(place, form, range),
                Expected::Of(cuts, f) => self.is_function(place, false, cuts, *f),
            };
            outcome.map_err(|mut wrong| {
                wrong.why = format!("result {i}: {}", wrong.why);
                wrong
            })?;
        }
        match &statement.refused {
            Some((cuts, f)) => self.refuses(others, cuts, *f),
            None if others.is_empty() => Ok(()),
            None => Err("too many results".into()),
        }
    }

    fn has_form(&mut self, place: Place, form: &Form, within: &Range) -> Result<(), Wrong> {
        let (range, known) = self.known(place)?;
        if known.as_ref() != Some(form) {
            return Err("another form".into());
        }
        match range.ok_or("too many values")? {
            [least, most] if least >= within[0] && most <= within[1] => Ok(()),
            range => Err(format!("it is from {} to {}", range[0], range[1]).into()),
        }
    }

    /// Proves that a word, or its sign, is this function of cuts.
    fn is_function(
        &mut self,
        place: Place,
        is_sign: bool,
        cuts: &[Cut],
        f: Stated,
    ) -> Result<(), Wrong> {
        let places = cuts.iter().map(|cut| self.cuts.get(cut).copied());
        let places: Vec<Place> = places.collect::<Option<_>>().ok_or("no such sum")?;
        let program = self.program(place, &places);
        let mut program = program.ok_or("it depends on other words")?;
        if is_sign {
            program.steps.push(Word::Sign(program.result));
            program.result = (places.len() + program.steps.len() - 1) as Place;
        }
        let of = self.statement.of;
        let key = (program, self.ranges_of(&places), f, of);
        if self.trials.shown.contains(&key) {
            return Ok(());
        }
        key.0.each(&key.1, |x, value| match f(x, of) == value {
            true => Ok(()),
            false => Err(Wrong {
                why: format!("another value for {x:?}"),
                at: (cuts.to_vec(), x.to_vec()),
            }),
        })?;
        self.trials.shown.insert(key);
        Ok(())
    }

    /// Proves that some results are −1 if f is of any cut. The sign of a disjunction is that of one
    /// of its parts; each cut must be among them, and nothing else.
    fn refuses(&mut self, results: &[Place], cuts: &[Cut], f: Stated) -> Result<(), Wrong> {
        let mut parts = Vec::new();
        for &result in results {
            match self.word(result) {
                Word::Sign(a) => parts.push(a),
                Word::Constant(0) => {}
                _ => return Err("no sign".into()),
            }
        }
        let mut missing: HashMap<Option<Place>, &Cut> = HashMap::new();
        for cut in cuts {
            missing.insert(Some(*self.cuts.get(cut).ok_or("no such sum")?), cut);
        }
        while let Some(part) = parts.pop() {
            let base = self.base[usize::from(part)];
            match self.word(part) {
                Word::Or(both) if base == Some(part) => parts.extend(both),
                Word::Constant(0) => {}
                _ => {
                    let cut = missing.remove(&base).ok_or("a sign of another word")?;
                    self.is_function(part, true, std::slice::from_ref(cut), f)?;
                }
            }
        }
        match missing.is_empty() {
            true => Ok(()),
            false => Err("a number is not asked".into()),
        }
    }
}

/// Proves the statement of a function.
pub fn attempt(
    function: &Function,
    statement: &Statement,
    trials: &mut Trials,
) -> Result<String, Wrong> {
    if statement.ranges.iter().any(|[least, most]| least > most) {
        return Err("an input has no values".into());
    }
    Words::new(function, statement, trials)?.check()?;
    Ok(format!("{} words", function.list.len()))
}
