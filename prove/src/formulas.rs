//! That the formulas of points are the group law, and those of the ladder's step too: the products
//! of a function are found among its terms, and become polynomials in its operands.
//!
//! A product was proved on its own (`modular::mul`). Its terms are a template, which is found again
//! wherever a function multiplies. There its results become inputs of their own, so that what lies
//! between products is linear: each factor is a sum of products and operands, modulo the prime.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use lockstep_kernels::proved::{Function, Place, Reduced, Term, Terms};
use num_bigint::BigInt;

use crate::algebra::{Algebra, Atom};
use crate::claims::modulus;
use crate::proof::given;
use crate::ranges::{MASK, Range, ranges};

/// The terms of a product with its operands.
struct Template {
    terms: Terms,
    results: Vec<Place>,
    /// Limbs of the factors, one after the other; of a square those of one.
    inputs: usize,
    /// 2^(52·i) times the second factor is row i.
    by_rows: bool,
    /// Bounds of the factors' limbs and of the results'.
    given: Vec<Range>,
    limbs: Vec<Range>,
    /// By how many multiples of n a product may be above a·b/R.
    lifted: Option<u64>,
}

/// A product of a function.
struct Product {
    /// Where its terms begin.
    start: usize,
    factors: [Vec<Place>; 2],
    results: Vec<Place>,
}

/// A number in a function: an operand or a product.
type Symbol = usize;

/// A symbol, or it times a bit: a mask that is set, or a bit of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Bit {
    None,
    Mask(Place),
    Of(Atom),
}

/// A sum of symbols. The last symbol is one.
type Form = BTreeMap<(Bit, Symbol), BigInt>;

/// A polynomial in variables: the exponents of a monomial.
type Polynomial = BTreeMap<Vec<u8>, BigInt>;

/// A function as products of sums.
struct Program {
    n: BigInt,
    operands: usize,
    products: Vec<[Form; 2]>,
    results: Vec<Form>,
    /// By the places of masks.
    terms: Terms,
}

const ONE: Symbol = usize::MAX;

fn template(all: &[Function], name: &str) -> Template {
    let function = all.iter().find(|function| function.name == name);
    let function = function.unwrap_or_else(|| panic!("no template {name}"));
    let (terms, results) = function.terms();
    let given = given(function);
    let known = ranges(&terms, &given);
    let known = known.unwrap_or_else(|_| panic!("no bounds of {name}"));
    let used = |i: &usize| terms.list.iter().any(|term| reads_input(&terms, term, *i));
    let all: usize = function.inputs.iter().map(|operand| operand.limbs).sum();
    Template {
        inputs: (0..all).filter(used).count(),
        by_rows: function.inputs.iter().any(|operand| operand.name == "row0"),
        limbs: results.iter().map(|&place| known[place as usize]).collect(),
        lifted: function.quotient,
        given,
        terms,
        results,
    }
}

fn parts(term: &Term) -> Vec<Place> {
    match *term {
        Term::Low(all) | Term::High(all) | Term::Short(all) | Term::Select(all) => all.to_vec(),
        Term::Ternary(_, all) => all.to_vec(),
        Term::Add(both)
        | Term::Sub(both)
        | Term::And(both)
        | Term::Or(both)
        | Term::Xor(both)
        | Term::AnyBit(both)
        | Term::Equal(both) => both.to_vec(),
        Term::Right(a, _) | Term::Left(a, _) | Term::Rotate(a, _) | Term::LookUp(_, a) => vec![a],
        Term::Constant(_) | Term::Input(_) => Vec::new(),
    }
}

/// The same operation on other parts.
fn with(term: &Term, parts: &[Place]) -> Term {
    let two = || [parts[0], parts[1]];
    let three = || [parts[0], parts[1], parts[2]];
    match *term {
        Term::Low(_) => Term::Low(three()),
        Term::High(_) => Term::High(three()),
        Term::Short(_) => Term::Short(three()),
        Term::Select(_) => Term::Select(three()),
        Term::Ternary(table, _) => Term::Ternary(table, three()),
        Term::Add(_) => Term::Add(two()),
        Term::Sub(_) => Term::Sub(two()),
        Term::And(_) => Term::And(two()),
        Term::Or(_) => Term::Or(two()),
        Term::Xor(_) => Term::Xor(two()),
        Term::AnyBit(_) => Term::AnyBit(two()),
        Term::Equal(_) => Term::Equal(two()),
        Term::Right(_, count) => Term::Right(parts[0], count),
        Term::Left(_, count) => Term::Left(parts[0], count),
        Term::Rotate(_, count) => Term::Rotate(parts[0], count),
        Term::LookUp(table, _) => Term::LookUp(table, parts[0]),
        Term::Constant(_) | Term::Input(_) => *term,
    }
}

fn reads_input(terms: &Terms, term: &Term, input: usize) -> bool {
    let is_it = |place: Place| terms.list[place as usize] == Term::Input(input as u32);
    parts(term).into_iter().any(is_it)
}

impl Template {
    /// Takes a term for one of the template, with all parts.
    fn unify(
        &self,
        list: &[Term],
        known: &mut [Option<Place>],
        template: Place,
        actual: Place,
    ) -> Option<()> {
        let term = &self.terms.list[template as usize];
        match (known[template as usize], term) {
            (Some(known), _) => return (known == actual).then_some(()),
            (None, Term::Input(_)) => {}
            _ => {
                let (of, found) = (parts(term), parts(&list[actual as usize]));
                if of.len() != found.len() || with(term, &found) != list[actual as usize] {
                    return None;
                }
                for (part, found) in of.into_iter().zip(found) {
                    self.unify(list, known, part, found)?;
                }
            }
        }
        known[template as usize] = Some(actual);
        Some(())
    }

    /// The product whose terms begin at `start`, and where they end.
    fn found(
        &self,
        list: &[Term],
        places: &HashMap<Term, Place>,
        start: usize,
    ) -> Option<(Product, usize)> {
        let mut at = start;
        let mut known: Vec<Option<Place>> = vec![None; self.terms.list.len()];
        for (i, term) in self.terms.list.iter().enumerate() {
            let is_product = matches!(term, Term::Low(_) | Term::High(_) | Term::Short(_));
            let of = parts(term);
            let bound: Option<Vec<Place>> = of.iter().map(|&part| known[part as usize]).collect();
            match (term, bound) {
                (Term::Constant(_), _) => known[i] = places.get(term).copied(),
                (Term::Input(_), _) => {}
                (_, Some(bound)) => {
                    let place = *places.get(&with(term, &bound))?;
                    known[i] = Some(place);
                    at = at.max(place as usize + 1);
                }
                // Parts of a factor were perhaps computed for another product.
                (_, None) if !is_product => {}
                (_, None) => {
                    while matches!(
                        list.get(at)?,
                        Term::Constant(_) | Term::And(_) | Term::Right(..)
                    ) {
                        at += 1;
                    }
                    self.unify(list, &mut known, i as Place, at as Place)?;
                    at += 1;
                }
            }
        }
        let input = |i: usize| {
            let is_it = |term: &Term| *term == Term::Input(i as u32);
            let place = self.terms.list.iter().position(is_it)?;
            known[place]
        };
        let limbs = self.results.len();
        let inputs: Vec<Place> = (0..self.inputs).map(input).collect::<Option<_>>()?;
        let results = self.results.iter().map(|&place| known[place as usize]);
        Some((
            Product {
                start,
                factors: match inputs.len() == limbs {
                    true => [inputs.clone(), inputs],
                    false => [inputs[..limbs].to_vec(), inputs[limbs..].to_vec()],
                },
                results: results.collect::<Option<_>>()?,
            },
            at,
        ))
    }
}

/// The products among these terms, with their templates, in order.
fn products(terms: &Terms, templates: &[Template]) -> Vec<(Product, usize)> {
    let places = terms.list.iter().enumerate();
    let places: HashMap<Term, Place> = places.map(|(i, term)| (*term, i as Place)).collect();
    let (mut all, mut at) = (Vec::new(), 0);
    while at < terms.list.len() {
        let mut found = templates
            .iter()
            .enumerate()
            .filter_map(|(which, template)| {
                let is_product = matches!(
                    terms.list[at],
                    Term::Low(_) | Term::High(_) | Term::Short(_)
                );
                let (product, end) = is_product
                    .then(|| template.found(&terms.list, &places, at))
                    .flatten()?;
                Some((product, which, end))
            });
        match found.next() {
            Some((product, which, end)) => {
                all.push((product, which));
                at = end.max(at + 1);
            }
            None => at += 1,
        }
    }
    all
}

/// Numbers that go in: where their limbs begin, and their ranges.
struct Given {
    at: usize,
    ranges: Vec<Range>,
}

impl Program {
    /// Reads a function. `numbers` are its operands, `others` the ranges of further inputs, which
    /// come last, and `out` splits its results.
    fn read(
        function: &Function,
        (terms, results): (Terms, Vec<Place>),
        templates: &[Template],
        numbers: &[Given],
        others: &[Range],
        out: usize,
    ) -> Result<(Self, Vec<BigInt>), String> {
        let n = modulus(function, &[]).ok_or("no modulus")?;
        let products = products(&terms, templates);
        let limbs = out;
        let mut cut = terms.clone();
        let mut known_inputs: Vec<Range> = numbers.iter().flat_map(|n| n.ranges.clone()).collect();
        known_inputs.extend(others);
        // The inputs of each symbol.
        let mut inputs: Vec<usize> = numbers.iter().map(|number| number.at).collect();
        for (product, which) in &products {
            inputs.push(known_inputs.len());
            for (&place, range) in product.results.iter().zip(&templates[*which].limbs) {
                cut.list[place as usize] = Term::Input(known_inputs.len() as u32);
                known_inputs.push(*range);
            }
        }
        // Bounds of products, in order, from those of their factors.
        let is_bounded = templates.iter().any(|template| template.lifted.is_some());
        let operands = numbers.len();
        if is_bounded {
            for (i, (product, which)) in products.iter().enumerate() {
                let mut before = Terms::default();
                before.list.extend(&cut.list[..product.start]);
                let known = ranges(&before, &known_inputs)
                    .map_err(|unbounded| format!("term {}: {}", unbounded.place, unbounded.why))?;
                let most = |limbs: &[Place]| {
                    let limb = |&limb: &Place| BigInt::from(known[limb as usize].low);
                    let limbs = limbs.iter().map(limb).rev();
                    limbs.fold(BigInt::ZERO, |sum, limb| (sum << 52) + limb)
                };
                let lifted = templates[*which].lifted.expect("a quotient");
                let [a, b] = [0, 1].map(|i| most(&product.factors[i]));
                let top = (((a * b) >> (52 * limbs)) + &n * lifted) >> (52 * (limbs - 1));
                let top = i128::try_from(top).expect("a limb");
                let last = &mut known_inputs[inputs[operands + i] + limbs - 1];
                *last = Range::new(last.least, last.most.min(top));
            }
        }
        // The low bits of factors are terms.
        let mask = cut.place(Term::Constant(MASK));
        let mut lows = HashMap::new();
        let factors = products.iter().flat_map(|(product, _)| &product.factors);
        for factor in factors.chain([&results]) {
            let with_choices = factor
                .iter()
                .flat_map(|&limb| match cut.list[limb as usize] {
                    Term::Select([_, set, clear]) => vec![limb, set, clear],
                    _ => vec![limb],
                });
            for limb in with_choices.collect::<Vec<Place>>() {
                lows.insert(limb, cut.place(Term::And([limb, mask])));
            }
        }
        let known = ranges(&cut, &known_inputs)
            .map_err(|unbounded| format!("term {}: {}", unbounded.place, unbounded.why))?;
        // What was proved of a product was proved for factors within bounds.
        for (i, (product, which)) in products.iter().enumerate() {
            let template = &templates[*which];
            let limbs = product.factors.iter().flatten();
            for (limb, given) in limbs.zip(&template.given[..template.inputs]) {
                let known = known[*limb as usize];
                if known.least < given.least || known.most > given.most || known.low > given.low {
                    return Err(format!("product {i}: a factor is out of its bounds"));
                }
            }
        }
        let mut reader = Reader {
            function,
            terms: &cut,
            ranges: &known,
            n: &n,
            inputs: &inputs,
            limbs,
            lows: &lows,
            read: HashMap::new(),
        };
        let mut forms = Vec::new();
        for (i, (product, which)) in products.iter().enumerate() {
            let name = |why| format!("product {i}: {why}");
            let a = reader.factor(&product.factors[0]).map_err(name)?;
            let b = reader.factor(&product.factors[1][..limbs]).map_err(name)?;
            if templates[*which].by_rows {
                for (row, limbs) in product.factors[1].chunks(limbs).enumerate() {
                    let times = BigInt::from(1) << (52 * row);
                    let times = |(&key, c): (_, &BigInt)| (key, symmetric(&(c * &times), &n));
                    let expected: Form = b.iter().map(times).collect();
                    if reader.factor(limbs).map_err(name)? != expected {
                        return Err(format!("product {i}: a wrong row"));
                    }
                }
            }
            forms.push([a, b]);
        }
        let mut outs = Vec::new();
        for limbs in results.chunks(out) {
            outs.push(reader.result(limbs)?);
        }
        // The greatest values of results.
        let most = results.chunks(out).map(|limbs| {
            let (top, others) = limbs.split_last().expect("limbs");
            let others = others.iter().rev();
            others.fold(BigInt::from(known[*top as usize].most), |sum, &limb| {
                (sum << 52) + known[limb as usize].most.min(i128::from(MASK))
            })
        });
        let most = most.collect();
        Ok((
            Self {
                n,
                operands,
                products: forms,
                results: outs,
                terms: cut,
            },
            most,
        ))
    }

    /// A form as a polynomial in those of symbols.
    fn sum(
        &self,
        form: &Form,
        symbols: &HashMap<Symbol, Polynomial>,
        bit: &dyn Fn(Bit) -> bool,
    ) -> Result<Polynomial, String> {
        let mut sum = Polynomial::new();
        for ((of, symbol), times) in form {
            if *of != Bit::None && !bit(*of) {
                continue;
            }
            let other = symbols.get(symbol).ok_or("a product of an earlier step")?;
            sum = add(&sum, other, times, &self.n);
        }
        Ok(sum)
    }

    /// The polynomials of products.
    fn expand(
        &self,
        products: std::ops::Range<usize>,
        symbols: &mut HashMap<Symbol, Polynomial>,
        bit: &dyn Fn(Bit) -> bool,
    ) -> Result<(), String> {
        for i in products {
            let [a, b] = &self.products[i];
            let (a, b) = (self.sum(a, symbols, bit)?, self.sum(b, symbols, bit)?);
            symbols.insert(self.operands + i, mul(&a, &b, &self.n));
        }
        Ok(())
    }
}

/// What reads sums.
struct Reader<'a> {
    function: &'a Function,
    terms: &'a Terms,
    ranges: &'a [Range],
    n: &'a BigInt,
    inputs: &'a [usize],
    limbs: usize,
    lows: &'a HashMap<Place, Place>,
    read: HashMap<Vec<Place>, Form>,
}

impl Reader<'_> {
    /// A factor, of which the low 52 bits of each limb count.
    fn factor(&mut self, limbs: &[Place]) -> Result<Form, String> {
        if let Some(known) = self.read.get(limbs) {
            return Ok(known.clone());
        }
        let chosen: Option<Vec<[Place; 3]>> = limbs
            .iter()
            .map(|&limb| match self.terms.list[limb as usize] {
                Term::Select(parts) => Some(parts),
                _ => None,
            })
            .collect();
        let form = match chosen {
            Some(chosen) if self.is_mask_alone(chosen[0][0]) => {
                let mask = chosen[0][0];
                if chosen.iter().any(|[other, ..]| *other != mask) {
                    return Err("limbs are chosen by several masks".into());
                }
                let of = |i: usize| chosen.iter().map(|limb| limb[i]).collect::<Vec<Place>>();
                let (set, mut form) = (self.factor(&of(1))?, self.factor(&of(2))?);
                for (i, form_i) in [(1, set), (-1, form.clone())] {
                    for ((bit, symbol), times) in form_i {
                        if bit != Bit::None {
                            return Err("a choice of choices".into());
                        }
                        *form.entry((Bit::Mask(mask), symbol)).or_default() += times * i;
                    }
                }
                form.retain(|_, times| *times != BigInt::ZERO);
                form
            }
            _ => {
                let lows: Vec<Place> = limbs.iter().map(|limb| self.lows[limb]).collect();
                self.linear(&lows)?
            }
        };
        self.read.insert(limbs.to_vec(), form.clone());
        Ok(form)
    }

    /// Whether a mask is a bit that the algebra does not know.
    fn is_mask_alone(&self, mask: Place) -> bool {
        !matches!(self.terms.list[mask as usize], Term::AnyBit([a, _])
            if matches!(self.terms.list[a as usize], Term::Input(_)))
            || self.limbs == 5 && self.function.name.contains("ladder")
    }

    /// A result, of which all bits of the uppermost limb count.
    fn result(&mut self, limbs: &[Place]) -> Result<Form, String> {
        let mut lows: Vec<Place> = limbs.iter().map(|limb| self.lows[limb]).collect();
        lows[self.limbs - 1] = limbs[self.limbs - 1];
        self.linear(&lows)
    }

    /// The sum of symbols that a number is, modulo n.
    fn linear(&self, limbs: &[Place]) -> Result<Form, String> {
        // The terms below alone, as a list of its own.
        let mut below: BTreeMap<Place, Place> = BTreeMap::new();
        let mut open = limbs.to_vec();
        while let Some(place) = open.pop() {
            if below.insert(place, 0).is_none() {
                open.extend(parts(&self.terms.list[place as usize]));
            }
        }
        let old: Vec<Place> = below.keys().copied().collect();
        let mut terms = Terms::default();
        let mut known = Vec::new();
        for (i, place) in old.iter().enumerate() {
            below.insert(*place, i as Place);
            let term = &self.terms.list[*place as usize];
            let of: Vec<Place> = parts(term).iter().map(|part| below[part]).collect();
            terms.list.push(with(term, &of));
            known.push(self.ranges[*place as usize]);
        }
        let sum: Vec<(Place, BigInt)> = limbs
            .iter()
            .enumerate()
            .map(|(i, limb)| (below[limb], BigInt::from(1) << (52 * i)))
            .collect();
        let rest = Algebra::new(self.function, &terms, &known, &[]).sum(&sum);
        let mut form = Form::new();
        let mut of_limbs: BTreeMap<(Bit, Symbol), Vec<BigInt>> = BTreeMap::new();
        for (monomial, times) in rest {
            let times = symmetric(&times, self.n);
            if times == BigInt::ZERO {
                continue;
            }
            let mut bit = Bit::None;
            let mut limb = None;
            for mut atom in monomial.into_iter().flatten() {
                if let Atom::Bits(bits) = &mut atom {
                    bits.of = old[bits.of as usize];
                }
                match self.limb(&atom) {
                    Some(known) if limb.is_none() => limb = Some(known),
                    _ if bit == Bit::None => bit = Bit::Of(atom),
                    _ => return Err(format!("a sum has {atom:?}")),
                }
            }
            match limb {
                Some((symbol, i)) => {
                    let limbs = of_limbs.entry((bit, symbol)).or_default();
                    limbs.resize(self.limbs, BigInt::ZERO);
                    limbs[i] += times;
                }
                None if bit == Bit::None => {
                    form.insert((bit, ONE), times);
                }
                None => return Err(format!("a sum has {bit:?}")),
            }
        }
        for (key, limbs) in of_limbs {
            let lowest = limbs[0].clone();
            for (i, times) in limbs.iter().enumerate() {
                if symmetric(&(times - (&lowest << (52 * i))), self.n) != BigInt::ZERO {
                    return Err("a sum has some limbs of a number".into());
                }
            }
            form.insert(key, lowest);
        }
        Ok(form)
    }

    /// The symbol of which an atom is a limb, and which.
    fn limb(&self, atom: &Atom) -> Option<(Symbol, usize)> {
        let Atom::Bits(bits) = atom else { return None };
        let Term::Input(input) = self.terms.list[bits.of as usize] else {
            return None;
        };
        let input = input as usize;
        let symbol = self
            .inputs
            .iter()
            .rposition(|&at| (at..at + self.limbs).contains(&input))?;
        let whole = self.ranges[bits.of as usize].most_of(bits.from, 64);
        let is_whole = bits.to >= 52 || whole == self.ranges[bits.of as usize].most_of(0, bits.to);
        (bits.from == 0 && is_whole).then(|| (symbol, input - self.inputs[symbol]))
    }
}

/// A number modulo n, next to zero.
fn symmetric(number: &BigInt, n: &BigInt) -> BigInt {
    let rest = ((number % n) + n) % n;
    if &rest * 2 > *n { rest - n } else { rest }
}

fn add(a: &Polynomial, b: &Polynomial, times: &BigInt, n: &BigInt) -> Polynomial {
    let mut sum = a.clone();
    for (monomial, by) in b {
        let entry = sum.entry(monomial.clone()).or_default();
        *entry = symmetric(&(&*entry + by * times), n);
        if *entry == BigInt::ZERO {
            sum.remove(monomial);
        }
    }
    sum
}

fn mul(a: &Polynomial, b: &Polynomial, n: &BigInt) -> Polynomial {
    let mut product = Polynomial::new();
    for (x, by) in a {
        for (y, times) in b {
            let monomial: Vec<u8> = x.iter().zip(y).map(|(x, y)| x + y).collect();
            *product.entry(monomial).or_default() += by * times;
        }
    }
    for times in product.values_mut() {
        *times = symmetric(times, n);
    }
    product.retain(|_, times| *times != BigInt::ZERO);
    product
}

/// Polynomials of expressions such as `3*X^2 - Z^4`, in which variables are letters.
struct Expressions<'a> {
    n: &'a BigInt,
    known: HashMap<String, Polynomial>,
}

impl Expressions<'_> {
    /// A sum of products: words of signs, numbers and names with exponents.
    fn read(&self, text: &str) -> Polynomial {
        let (mut sum, mut sign) = (Polynomial::new(), 1);
        for word in text.split(' ') {
            match word {
                "+" => sign = 1,
                "-" => sign = -1,
                product => {
                    let mut all = self.known["1"].clone();
                    let mut times = BigInt::from(sign);
                    for factor in product.split('*') {
                        let (name, power) = factor.split_once('^').unwrap_or((factor, "1"));
                        if let Ok(number) = name.parse::<u32>() {
                            times *= number;
                            continue;
                        }
                        for _ in 0..power.parse::<u32>().expect("an exponent") {
                            all = mul(&all, &self.known[name], self.n);
                        }
                    }
                    sum = add(&sum, &all, &times, self.n);
                }
            }
        }
        sum
    }

    fn define(&mut self, name: &str, text: &str) {
        let polynomial = self.read(text);
        self.known.insert(name.to_owned(), polynomial);
    }
}

/// A group law: definitions, and identities between them and the results x, y and z.
struct Law {
    variables: &'static [&'static str],
    /// Products that operands are, of variables.
    operands: &'static [&'static str],
    definitions: &'static [(&'static str, &'static str)],
    identities: &'static [(&'static str, &'static str)],
}

/// P = (X/Z², Y/Z³) on y² = x³ − 3x + b; the tangent's slope is N/D, and 2P = (A/D², B/D³).
const DOUBLING: Law = Law {
    variables: &["X", "Y", "Z"],
    operands: &["X", "Y", "Z"],
    definitions: &[
        ("D", "2*Y*Z"),
        ("N", "3*X^2 - 3*Z^4"),
        ("A", "N^2 - 8*X*Y^2"),
        ("B", "4*N*X*Y^2 - N*A - 8*Y^4"),
    ],
    identities: &[("x", "A"), ("y", "B"), ("z", "D")],
};

/// Q = (x/w², ±y/w³); the chord's slope is N/D for P ≠ ±Q, and P ± Q = (A/D², B/D³).
const ADDITION: Law = Law {
    variables: &["X", "Y", "Z", "U", "V", "W"],
    operands: &["X", "Y", "Z", "U", "V", "W", "W^2", "W^3"],
    definitions: &[
        ("M", "X*W^2"),
        ("H", "U*Z^2 - M"),
        ("D", "W*Z*H"),
        ("N", "V*Z^3 - Y*W^3"),
        ("A", "N^2 - M*H^2 - U*Z^2*H^2"),
        ("B", "N*M*H^2 - N*A - Y*W^3*H^3"),
    ],
    identities: &[("x", "A"), ("y", "B"), ("z", "D")],
};

/// What was proved of formulas, and identities for another program.
pub struct Formulas {
    pub proved: String,
    pub identities: String,
}

/// An operand, of which the low bits of limbs count if it is `loose`.
fn number(at: usize, limbs: usize, top: u64, loose: bool) -> Given {
    let range = |low: u64| Range {
        low,
        ..Range::new(0, i128::from(if loose { u64::MAX >> 1 } else { low }))
    };
    let mut ranges = vec![range(MASK); limbs];
    ranges[limbs - 1] = range(top);
    Given { at, ranges }
}

/// The functions whose formulas are proved.
pub const NAMES: [&str; 10] = [
    "nist::point::double_times, P-256",
    "nist::point::add_assign_mixed, P-256",
    "nist::point::add_assign, P-256",
    "nist::point::double_times, P-384",
    "nist::point::add_assign_mixed, P-384",
    "nist::point::add_assign, P-384",
    "curve25519::ladder",
    "curve25519::ladder, halves",
    "curve25519::powers_for_root",
    "curve25519::powers_for_root, halves",
];

/// Proves the formulas of one of [`NAMES`], of which these are the terms.
pub fn prove(
    all: &[Function],
    function: &Function,
    terms: (Terms, Vec<Place>),
) -> Result<Formulas, String> {
    if let Some(lanes) = function.name.strip_prefix("curve25519::ladder") {
        return ladder(all, function, terms, lanes);
    }
    match function.name.strip_prefix("curve25519::powers_for_root") {
        Some(lanes) => chain(all, function, terms, lanes),
        None => point(all, function, terms),
    }
}

/// A chain of products: by induction each is a power of the operand, and the last is a^(2^252 − 3).
fn chain(
    all: &[Function],
    function: &Function,
    terms: (Terms, Vec<Place>),
    lanes: &str,
) -> Result<Formulas, String> {
    let templates = ["multiply, false", "square, false"]
        .map(|kind| template(all, &format!("curve25519::field::{kind}{lanes}")));
    let a = number(0, 5, (1 << 47) + (1 << 9) - 1, true);
    let (program, _) = Program::read(function, terms, &templates, &[a], &[], 5)?;
    let mut exponents = vec![BigInt::from(1)];
    let exponent = |form: &Form, exponents: &[BigInt]| match form.iter().next() {
        Some((&(Bit::None, symbol), times)) if form.len() == 1 && *times == BigInt::from(1) => {
            exponents.get(symbol).cloned().ok_or("no power")
        }
        _ => Err("a factor is not a power"),
    };
    for [a, b] in &program.products {
        let sum = exponent(a, &exponents)? + exponent(b, &exponents)?;
        exponents.push(sum);
    }
    if exponent(&program.results[0], &exponents)? != (BigInt::from(1) << 252) - 3 {
        return Err("another power".into());
    }
    Ok(Formulas {
        proved: format!("{} products", program.products.len()),
        identities: String::new(),
    })
}

/// Inputs for which a point is not that of the group law, by portable lanes.
pub fn refute(function: &Function, terms: &Terms, results: &[Place]) -> Option<Vec<u64>> {
    let n = modulus(function, &[]).expect("a modulus");
    let law = if function.name.contains("double") {
        DOUBLING
    } else {
        ADDITION
    };
    let Reduced::Constant(n_limbs) = &function.reduced else {
        return None;
    };
    let limbs = n_limbs.len();
    let count: usize = function.inputs.iter().map(|operand| operand.limbs).sum();
    // 1/R, by Fermat.
    let two: BigInt = (&n + 1) / 2;
    let r_inverse = two.modpow(&BigInt::from(52 * limbs), &n);
    let number = |limbs: &[u64]| {
        let sum = limbs.iter().rev();
        let sum = sum.fold(BigInt::ZERO, |sum, limb| (sum << 52) + (limb & MASK));
        sum * &r_inverse % &n
    };
    let mut random = lockstep_testkit::Random(1);
    (0..30).find_map(|round| {
        let mut inputs: Vec<u64> = (0..count)
            .map(|i| match i % limbs + 1 == limbs {
                true => random.word() % (n_limbs[limbs - 1] / 2 + 1),
                false if round % 3 == 0 => MASK,
                false => random.word() & MASK,
            })
            .collect();
        let is_negative = count % limbs == 1 && random.word() & 1 == 1;
        let one = [(Vec::new(), BigInt::from(1))].into();
        let mut known = HashMap::from([("1".to_owned(), one)]);
        if count % limbs == 1 {
            inputs[count - 1] = u64::from(is_negative);
        }
        let constant = |value: BigInt| Polynomial::from([(Vec::new(), value)]);
        for (i, name) in law.variables.iter().enumerate() {
            let value = match inputs.get(i * limbs..(i + 1) * limbs) {
                Some(limbs) => number(limbs),
                None => BigInt::from(1),
            };
            known.insert((*name).to_owned(), constant(value));
        }
        let mut law_of = Expressions { n: &n, known };
        if is_negative {
            law_of.define("V", "0 - V");
        }
        if count / limbs == 8 {
            // The powers of W are operands.
            for (i, text) in [(6, "W^2"), (7, "W^3")] {
                let power = law_of.read(text);
                let power = power.values().next().cloned().unwrap_or_default();
                let mut power = ((power << (52 * limbs)) % &n + &n) % &n;
                for limb in &mut inputs[i * limbs..(i + 1) * limbs] {
                    *limb = u64::try_from(&power & BigInt::from(MASK)).expect("52 bits");
                    power >>= 52;
                }
            }
        }
        for (name, text) in law.definitions {
            law_of.define(name, text);
        }
        let values = terms.values(&inputs);
        let is_wrong = law.identities.iter().enumerate().any(|(i, (_, expected))| {
            let places = &results[i * limbs..(i + 1) * limbs];
            let found: Vec<u64> = places.iter().map(|&place| values[place as usize]).collect();
            let expected = law_of.read(expected);
            let expected = expected.values().next().cloned().unwrap_or_default();
            symmetric(&(number(&found) - expected), &n) != BigInt::ZERO
        });
        is_wrong.then_some(inputs)
    })
}

/// Bounds of points, in hundredths of p: of X, Y and Z, as nist/point.rs promises them. There it
/// says 2.4 for Z of P-256, which follows for Y below 1.3 only.
fn bounds(curve: &str) -> [u64; 3] {
    match curve {
        "P-256" => [110, 190, 263],
        _ => [1110, 790, 500],
    }
}

fn point(
    all: &[Function],
    function: &Function,
    terms: (Terms, Vec<Place>),
) -> Result<Formulas, String> {
    let (name, curve) = function.name.split_once(", ").expect("a curve");
    let Reduced::Constant(n_limbs) = &function.reduced else {
        return Err("no modulus".into());
    };
    let limbs = n_limbs.len();
    let top = |hundredths: u64| {
        let n = modulus(function, &[]).expect("a modulus");
        let top: BigInt = (n * hundredths / 100_u32) >> (52 * (limbs - 1));
        u64::try_from(top).expect("a limb")
    };
    let [x, y, z] = bounds(curve).map(top);
    let templates = ["mul", "sqr"].map(|kind| template(all, &format!("modular::{kind}, {curve}")));
    let (law, tops) = match name.rsplit("::").next() {
        Some("double_times") => (DOUBLING, vec![x, y, z]),
        Some("add_assign_mixed") => (ADDITION, vec![x, y, z, top(101), top(101)]),
        _ => (ADDITION, vec![x, y, z, x, y, z, z, z]),
    };
    let numbers: Vec<Given> = tops
        .iter()
        .enumerate()
        .map(|(i, &top)| number(i * limbs, limbs, top, i == 2 || i > 4))
        .collect();
    let negative = vec![Range::new(0, i128::from(MASK)); usize::from(tops.len() > 3)];
    let (program, most) = Program::read(function, terms, &templates, &numbers, &negative, limbs)?;
    for (i, (most, bound)) in most.iter().zip(bounds(curve)).enumerate() {
        if most * 100_u32 >= &program.n * bound {
            let hundredths = most * 100_u32 / &program.n;
            return Err(format!(
                "result {i} may be {hundredths}/100·p, above {bound}/100·p"
            ));
        }
    }
    let mut identities = String::new();
    for sign in [false, true] {
        if law.variables.len() == 3 && sign {
            continue;
        }
        let mut known = HashMap::new();
        for (i, name) in law.variables.iter().enumerate() {
            let mut exponents = vec![0; law.variables.len()];
            known.insert("1".to_owned(), [(exponents.clone(), 1.into())].into());
            exponents[i] = 1;
            known.insert((*name).to_owned(), [(exponents, 1.into())].into());
        }
        let mut law_of = Expressions {
            n: &program.n,
            known,
        };
        if tops.len() == 5 {
            law_of.define("W", "1");
        }
        let mut symbols = HashMap::from([(ONE, law_of.known["1"].clone())]);
        for (symbol, text) in law.operands.iter().take(tops.len()).enumerate() {
            symbols.insert(symbol, law_of.read(text));
        }
        if sign {
            law_of.define("V", "0 - V");
        }
        let bit = |_| sign;
        program.expand(0..program.products.len(), &mut symbols, &bit)?;
        for (name, text) in law.definitions {
            law_of.define(name, text);
        }
        for ((name, text), result) in law.identities.iter().zip(&program.results) {
            if program.sum(result, &symbols, &bit)? != law_of.read(text) {
                return Err(format!("{name} is not that of the group law"));
            }
        }
        write_identities(&mut identities, function, &program, &law, sign, tops.len())
            .expect("a text");
    }
    Ok(Formulas {
        proved: format!(
            "{} products, the group law, results in bounds",
            program.products.len()
        ),
        identities,
    })
}

/// Writes the program and the law for Singular, over the rational numbers.
fn write_identities(
    out: &mut String,
    function: &Function,
    program: &Program,
    law: &Law,
    sign: bool,
    operands: usize,
) -> Result<(), std::fmt::Error> {
    let variables = law.variables.join(",");
    writeln!(out, "ring r{}=0,({variables}),dp;", u32::from(sign))?;
    for (i, text) in law.operands.iter().take(operands).enumerate() {
        writeln!(out, "poly s{i}={text};")?;
    }
    let bit = |_| sign;
    program.write(out, 0..program.products.len(), &bit)?;
    for (name, definition) in law.definitions {
        let mut definition = (*definition).to_owned();
        if sign {
            definition = definition.replace('V', "(-V)");
        }
        if operands == 5 {
            definition = definition.replace('W', "(1)");
        }
        writeln!(out, "poly {name}={definition};")?;
    }
    for ((name, expected), result) in law.identities.iter().zip(&program.results) {
        let of = format!("{}, {name}, {}", function.name, u32::from(sign));
        write_identity(out, &program.text(result, &bit), expected, &of)?;
    }
    Ok(())
}

fn write_identity(
    out: &mut String,
    left: &str,
    right: &str,
    of: &str,
) -> Result<(), std::fmt::Error> {
    writeln!(
        out,
        "if (({left})-({right})==0) {{ \"ok {of}\"; }} else {{ \"FAILED {of}\"; }};"
    )
}

/// The ladder: by induction over its steps. Before each, (A : B) and (C : D) are two points whose
/// difference is the one with x-coordinate U.
fn ladder(
    all: &[Function],
    function: &Function,
    terms: (Terms, Vec<Place>),
    lanes: &str,
) -> Result<Formulas, String> {
    let mut templates: Vec<Template> = [
        "multiply, false",
        "multiply, true",
        "square, false",
        "square, true",
    ]
    .iter()
    .map(|kind| template(all, &format!("curve25519::field::{kind}{lanes}")))
    .collect();
    if lanes.is_empty() {
        templates.push(template(all, "curve25519::field::multiply_by"));
    }
    let swaps = vec![Range::new(0, i128::from(u64::MAX)); 4];
    let u = number(4, 5, (1 << 47) - 1, false);
    let swaps = Given {
        at: 0,
        ranges: swaps,
    };
    let (program, _) = Program::read(function, terms, &templates, &[swaps, u], &[], 5)?;
    const STEPS: usize = 251;
    const OF_STEP: usize = 9;
    let count = program.products.len();
    if count != 4 + STEPS * OF_STEP + 12 {
        return Err(format!("{count} products"));
    }
    let mut known = HashMap::new();
    for (i, name) in ["A", "B", "C", "D", "U"].into_iter().enumerate() {
        let mut exponents = vec![0; 5];
        known.insert("1".to_owned(), [(exponents.clone(), 1.into())].into());
        exponents[i] = 1;
        known.insert(name.to_owned(), [(exponents, 1.into())].into());
    }
    let mut law = Expressions {
        n: &program.n,
        known,
    };
    let product = |i: usize| program.operands + i;
    let symbols_of = |law: &Expressions<'_>, names: &[(Symbol, &str)]| {
        let mut symbols = HashMap::from([(ONE, law.read("1")), (1, law.read("U"))]);
        symbols.extend(names.iter().map(|(symbol, name)| (*symbol, law.read(name))));
        symbols
    };
    // Curve y² = x³ + 486662·x² + x: 2(x : z) = ((x² − z²)² : 4xz(x² + 486662·xz + z²)).
    let double = |law: &Expressions<'_>, x: &str, z: &str| {
        let x_text = format!("{x}^4 - 2*{x}^2*{z}^2 + {z}^4");
        let z_text = format!("4*{x}^3*{z} + 1946648*{x}^2*{z}^2 + 4*{x}*{z}^3");
        [law.read(&x_text), law.read(&z_text)]
    };
    let is_doubling = |at: usize,
                       symbols: &mut HashMap<Symbol, Polynomial>,
                       bit: &dyn Fn(Bit) -> bool,
                       expected: [Polynomial; 2]|
     -> Result<(), String> {
        program.expand(at..at + 4, symbols, bit)?;
        let found = [at + 2, at + 3].map(|i| symbols[&product(i)].clone());
        match found == expected {
            true => Ok(()),
            false => Err(format!("products from {at} are not a doubling")),
        }
    };
    let mut identities = String::new();
    // At first the point itself, U : 1, and its double.
    let mut symbols = symbols_of(&law, &[]);
    law.define("E", "1");
    is_doubling(0, &mut symbols, &|_| false, double(&law, "U", "E"))?;
    for step in 0..STEPS {
        let at = 4 + step * OF_STEP;
        let (mut names, mut sum) = (vec![(product(2), "A"), (product(3), "B")], ["U", "E"]);
        if step > 0 {
            let last = at - OF_STEP;
            names = [(6, "A"), (7, "B"), (4, "C"), (8, "D")]
                .map(|(i, name)| (product(last + i), name))
                .to_vec();
            sum = ["C", "D"];
        }
        let name = |why: String| format!("step {step}: {why}");
        for set in [false, true] {
            let mut symbols = symbols_of(&law, &names);
            let bit = |bit: Bit| match bit {
                Bit::Mask(mask) => set && program.asks_for(mask, step),
                _ => false,
            };
            program
                .expand(at..at + OF_STEP, &mut symbols, &bit)
                .map_err(name)?;
            let [x, z] = match set {
                true => sum,
                false => ["A", "B"],
            };
            let [c, d] = sum;
            let chord = format!("A*{c} - B*{d}");
            let other = format!("A*{d} - B*{c}");
            let square = |text: &str, by: &str| {
                let root = law.read(text);
                let product = mul(&mul(&root, &root, &program.n), &law.read(by), &program.n);
                add(&Polynomial::new(), &product, &4.into(), &program.n)
            };
            let expected = [
                (6, double(&law, x, z)[0].clone()),
                (7, double(&law, x, z)[1].clone()),
                (4, square(&chord, "E")),
                (8, square(&other, "U")),
            ];
            for (i, expected) in expected {
                if symbols[&product(at + i)] != expected {
                    return Err(format!("step {step}: product {i} is not that of the law"));
                }
            }
            if step == 1 {
                program
                    .write_step(&mut identities, function, at, &names, set)
                    .expect("a text");
            }
        }
    }
    let last = 4 + (STEPS - 1) * OF_STEP;
    for (i, end) in [0, 4, 8].into_iter().enumerate() {
        for set in [false, true] {
            let at = last + OF_STEP + end;
            let names: Vec<(Symbol, &str)> = match i {
                0 => [(6, "A"), (7, "B"), (4, "C"), (8, "D")]
                    .map(|(i, name)| (product(last + i), name))
                    .to_vec(),
                _ => vec![(product(at - 2), "A"), (product(at - 1), "B")],
            };
            let mut symbols = symbols_of(&law, &names);
            let bit = |bit: Bit| match bit {
                Bit::Mask(mask) => set && program.asks_for(mask, STEPS),
                _ => false,
            };
            let [x, z] = if set && i == 0 {
                ["C", "D"]
            } else {
                ["A", "B"]
            };
            is_doubling(at, &mut symbols, &bit, double(&law, x, z))?;
        }
    }
    let ends = [count - 2, count - 1].map(|i| Form::from([((Bit::None, product(i)), 1.into())]));
    match program.results == ends {
        true => Ok(Formulas {
            proved: format!("{count} products, {STEPS} steps and 4 doublings"),
            identities,
        }),
        false => Err("the results are not those of the last doubling".into()),
    }
}

impl Program {
    /// A form for Singular.
    fn text(&self, form: &Form, bit: &dyn Fn(Bit) -> bool) -> String {
        let parts = form
            .iter()
            .filter(|((of, _), _)| *of == Bit::None || bit(*of));
        parts.fold("0".to_owned(), |sum, ((_, symbol), times)| match *symbol {
            ONE => format!("{sum}+({times})"),
            symbol => format!("{sum}+({times})*s{symbol}"),
        })
    }

    /// Products for Singular.
    fn write(
        &self,
        out: &mut String,
        products: std::ops::Range<usize>,
        bit: &dyn Fn(Bit) -> bool,
    ) -> std::fmt::Result {
        for i in products {
            let [a, b] = [0, 1].map(|factor| self.text(&self.products[i][factor], bit));
            writeln!(out, "poly s{}=({a})*({b});", self.operands + i)?;
        }
        Ok(())
    }

    /// A step of the ladder for Singular; all steps have the same forms.
    fn write_step(
        &self,
        out: &mut String,
        function: &Function,
        at: usize,
        names: &[(Symbol, &str)],
        set: bool,
    ) -> std::fmt::Result {
        writeln!(out, "ring r{}=0,(A,B,C,D,U),dp;", u32::from(set))?;
        for (symbol, name) in names.iter().chain([&(1, "U")]) {
            writeln!(out, "poly s{symbol}={name};")?;
        }
        self.write(out, at..at + 9, &|_| set)?;
        let [x, z] = if set { ["C", "D"] } else { ["A", "B"] };
        for (i, expected) in [
            (6, format!("({x}^2-{z}^2)^2")),
            (7, format!("4*{x}*{z}*({x}^2+486662*{x}*{z}+{z}^2)")),
            (4, "4*(A*C-B*D)^2".to_owned()),
            (8, "4*U*(A*D-B*C)^2".to_owned()),
        ] {
            let of = format!("{}, {i}, {}", function.name, u32::from(set));
            write_identity(out, &format!("s{}", self.operands + at + i), &expected, &of)?;
        }
        Ok(())
    }

    /// Whether a mask asks for the bit of `swaps` that belongs to a step: bits 63 and down of word
    /// 3, then of word 2 and so on.
    fn asks_for(&self, mask: Place, step: usize) -> bool {
        let Term::AnyBit([mut word, top]) = self.terms.list[mask as usize] else {
            return false;
        };
        let mut doubled = 0;
        while let Term::Add([a, b]) = self.terms.list[word as usize]
            && a == b
        {
            word = a;
            doubled += 1;
        }
        self.terms.list[top as usize] == Term::Constant(1 << 63)
            && self.terms.list[word as usize] == Term::Input(3 - (step / 64) as u32)
            && doubled == step % 64
    }
}
