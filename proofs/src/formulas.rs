//! Proofs that the formulas of points and of the ladder's step are the group law. The products of a
//! function are found among its terms, and become polynomials in its operands.
//!
//! A product was proved on its own (`modular::mul`). Its terms are a template, which is found again
//! wherever a function multiplies. There its results become inputs of their own, so that all terms
//! between products are linear: each factor is a sum of products and operands, modulo the prime.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use lockstep_kernels::proved::{Function, Place, Reduced, Term, Terms};
use lockstep_testkit::Random;
use num_bigint::BigInt;

use crate::algebra::{Algebra, Atom};
use crate::claims::modulus;
use crate::proof::given;
use crate::ranges::{MASK, Range, ranges};
use crate::terms::{Look, limbs, named, parts, with};

/// The terms of a function that was proved, with its operands.
pub struct Template {
    terms: Terms,
    results: Vec<Place>,
    /// Number of limbs of the factors, one after the other; of a square, of its one factor.
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
pub type Symbol = usize;

/// A symbol, or it times a bit: a mask that is set, or a bit of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bit {
    None,
    Mask(Place),
    Of(Atom),
}

/// A sum of symbols. The last symbol is one.
pub type Form = BTreeMap<(Bit, Symbol), BigInt>;

/// A polynomial in variables: the exponents of a monomial.
pub type Polynomial = BTreeMap<Vec<u8>, BigInt>;

/// A function as products of sums.
pub struct Program {
    n: BigInt,
    pub operands: usize,
    pub products: Vec<[Form; 2]>,
    pub results: Vec<Form>,
    /// By the places of masks.
    pub terms: Terms,
}

/// The greatest value of a result by the low bits of its limbs and all of the uppermost, and where
/// its limbs lie.
pub struct Bound {
    value: BigInt,
    least: i128,
    limb: i128,
}

const ONE: Symbol = usize::MAX;

/// That of a product, or of another function of this name.
pub fn template(all: &[Function], name: &str) -> Template {
    let function = named(all, name);
    let (terms, results) = function.terms();
    let given = given(function);
    let known = ranges(&terms, &given).unwrap_or_else(|why| panic!("{name}: {why}"));
    Template {
        inputs: read_of(&terms),
        by_rows: function.inputs.iter().any(|operand| operand.name == "row0"),
        limbs: results.iter().map(|&place| known[place as usize]).collect(),
        lifted: function.quotient,
        given,
        terms,
        results,
    }
}

/// How many inputs are read: they are the first ones.
fn read_of(terms: &Terms) -> usize {
    let mut read = BTreeSet::new();
    for part in terms.list.iter().flat_map(|term| parts(*term)) {
        if let Term::Input(input) = terms.term(part) {
            read.insert(input);
        }
    }
    read.len()
}

fn is_product(term: &Term) -> bool {
    matches!(term, Term::Low(_) | Term::High(_) | Term::Short(_))
}

impl Template {
    /// That of a function of points, with a mask for the operand that says whether it subtracts.
    /// Of a complete addition these are the results that it chooses.
    pub fn call(all: &[Function], name: &str) -> Self {
        let function = named(all, name);
        let (mut terms, mut results) = function.terms();
        let inputs = limbs(&function.inputs);
        if function
            .inputs
            .last()
            .is_some_and(|last| last.name == "negative")
        {
            let negative = Term::Input(inputs as u32 - 1);
            let at = terms.list.iter().position(|term| *term == negative);
            let at = at.expect("an operand");
            for term in &mut terms.list {
                if matches!(*term, Term::AnyBit([of, _]) if of as usize == at) {
                    *term = negative;
                }
            }
            terms.list[at] = Term::Constant(0);
        }
        if name.contains("complete") {
            results.truncate(3 * results.len() / 13);
        }
        Self {
            inputs: read_of(&terms),
            terms,
            results,
            by_rows: false,
            given: Vec::new(),
            limbs: Vec::new(),
            lifted: None,
        }
    }

    /// Takes a term for one of the template, with all parts.
    fn unify(
        &self,
        list: &[Term],
        known: &mut [Option<Place>],
        template: Place,
        actual: Place,
    ) -> Option<()> {
        let mut open = vec![(template, actual)];
        while let Some((template, actual)) = open.pop() {
            let term = self.terms.term(template);
            match (known[template as usize], term) {
                (Some(known), _) if known == actual => continue,
                (Some(_), _) => return None,
                (None, Term::Input(_)) => {}
                _ => {
                    let (of, found) = (parts(term), parts(list[actual as usize]));
                    let mut places = found.iter();
                    let same = |part| places.next().copied().unwrap_or(part);
                    if of.len() != found.len() || with(term, same) != list[actual as usize] {
                        return None;
                    }
                    open.extend(of.into_iter().zip(found));
                }
            }
            known[template as usize] = Some(actual);
        }
        Some(())
    }

    /// Places that were taken for its inputs.
    fn bound(&self, known: &[Option<Place>]) -> Option<Vec<Place>> {
        let input = |i: usize| {
            let is_it = |term: &Term| *term == Term::Input(i as u32);
            known[self.terms.list.iter().position(is_it)?]
        };
        (0..self.inputs).map(input).collect()
    }

    /// Its results for these inputs, by the portable lanes.
    pub fn results_for(&self, inputs: &[u64]) -> Vec<u64> {
        self.terms.results(inputs, &self.results)
    }

    /// Its results for these inputs, as further terms.
    pub fn results_of(&self, terms: &mut Terms, inputs: &[Place]) -> Vec<Place> {
        let mut now: Vec<Place> = Vec::with_capacity(self.terms.list.len());
        for term in &self.terms.list {
            now.push(match *term {
                Term::Input(input) => inputs[input as usize],
                term => terms.place(with(term, |part| now[part as usize])),
            });
        }
        let results = self.results.iter();
        results.map(|&place| now[place as usize]).collect()
    }

    /// The inputs for which these are its results, or the first of them.
    pub fn inputs_of(&self, list: &[Term], results: &[Place]) -> Option<Vec<Place>> {
        let mut known = vec![None; self.terms.list.len()];
        for (template, actual) in self.results.iter().zip(results) {
            self.unify(list, &mut known, *template, *actual)?;
        }
        self.bound(&known)
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
            let is_bound = parts(*term)
                .iter()
                .all(|&part| known[part as usize].is_some());
            let bound = || with(*term, |part| known[part as usize].expect("bound"));
            match term {
                Term::Constant(_) => known[i] = places.get(term).copied(),
                Term::Input(_) => {}
                _ if is_bound => {
                    let place = *places.get(&bound())?;
                    known[i] = Some(place);
                    at = at.max(place as usize + 1);
                }
                // Parts of a factor were perhaps computed for another product.
                _ if !is_product(term) => {}
                _ => {
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
        let limbs = self.results.len();
        let inputs = self.bound(&known)?;
        let results = self.results.iter().map(|&place| known[place as usize]);
        let product = Product {
            start,
            // Of a square the one factor is both.
            factors: [
                inputs[..limbs].to_vec(),
                inputs[limbs % inputs.len()..].to_vec(),
            ],
            results: results.collect::<Option<_>>()?,
        };
        Some((product, at))
    }
}

/// The products among these terms, with their templates, in order.
fn products(terms: &Terms, templates: &[Template]) -> Vec<(Product, usize)> {
    let places = terms.list.iter().enumerate();
    let places: HashMap<Term, Place> = places.map(|(i, term)| (*term, i as Place)).collect();
    let (mut all, mut at) = (Vec::new(), 0);
    while at < terms.list.len() {
        let is_product = is_product(&terms.list[at]);
        let templates = templates.iter().enumerate().filter(|_| is_product);
        let mut found = templates.filter_map(|(which, template)| {
            let (product, end) = template.found(&terms.list, &places, at)?;
            Some((product, which, end))
        });
        let first = found.next();
        at += 1;
        if let Some((product, which, end)) = first {
            all.push((product, which));
            at = end.max(at);
        }
    }
    all
}

/// The results of each product of a function of points, in order.
pub fn results_of_products(
    all: &[Function],
    function: &Function,
    terms: &Terms,
) -> Vec<Vec<Place>> {
    let (_, curve) = function.name.split_once(", ").expect("a curve");
    let templates = ["mul", "sqr"].map(|kind| template(all, &format!("modular::{kind}, {curve}")));
    let products = products(terms, &templates).into_iter();
    products.map(|(product, _)| product.results).collect()
}

/// Which product it is, and its factors.
pub type Called = (usize, [Vec<Place>; 2]);

/// Removes the terms of products, whose results become inputs from `first` on.
pub fn without_products(
    all: &[Function],
    terms: &mut Terms,
    names: impl Iterator<Item = String>,
    first: usize,
) -> Vec<Called> {
    let templates: Vec<Template> = names.map(|name| template(all, &name)).collect();
    let found = products(terms, &templates);
    let results = found.iter().flat_map(|(product, _)| &product.results);
    for (i, place) in results.enumerate() {
        terms.list[*place as usize] = Term::Input((first + i) as u32);
    }
    let called = found
        .into_iter()
        .map(|(product, which)| (which, product.factors));
    called.collect()
}

/// Numbers that go in: where their limbs begin, their ranges, and whether only the low 52 bits of
/// each limb count.
pub struct Given {
    pub at: usize,
    pub ranges: Vec<Range>,
    pub is_loose: bool,
}

impl Program {
    /// Reads a function. `numbers` are its operands, `others` the ranges of further inputs, which
    /// come last, and `out` splits its results.
    pub fn read(
        function: &Function,
        (terms, results): (Terms, Vec<Place>),
        templates: &[Template],
        numbers: &[Given],
        others: &[Range],
        out: usize,
    ) -> Result<(Self, Vec<Bound>), String> {
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
        // Bounds of products, in order, from the bounds of their factors.
        let is_bounded = templates.iter().any(|template| template.lifted.is_some());
        let operands = numbers.len();
        if is_bounded {
            for (i, (product, which)) in products.iter().enumerate() {
                let mut before = Terms::default();
                before.list.extend(&cut.list[..product.start]);
                let known = ranges(&before, &known_inputs)?;
                let most = |limb: &Place| known[*limb as usize].low;
                let lifted = templates[*which].lifted.expect("a quotient");
                let [a, b] = [0, 1].map(|i| number(product.factors[i].iter().map(most)));
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
        let unmasked = results
            .iter()
            .map(|&limb| match cut.masked(cut.term(limb)) {
                Some((below, 52)) => below,
                _ => limb,
            });
        let unmasked: Vec<Place> = unmasked.collect();
        for factor in factors.chain([&results, &unmasked]) {
            let with_choices = factor.iter().flat_map(|&limb| match cut.term(limb) {
                Term::Select([_, set, clear]) => vec![limb, set, clear],
                _ => vec![limb],
            });
            for limb in with_choices.collect::<Vec<Place>>() {
                lows.insert(limb, cut.place(Term::And([limb, mask])));
            }
        }
        let known = ranges(&cut, &known_inputs)?;
        // The proof of a product is for factors within bounds.
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
            numbers,
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
                    let times = |(&key, c): (_, &BigInt)| (key, symmetric(&(c << (52 * row)), &n));
                    let expected: Form = b.iter().map(times).collect();
                    if reader.factor(limbs).map_err(name)? != expected {
                        return Err(format!("product {i}: a wrong row"));
                    }
                }
            }
            forms.push([a, b]);
        }
        let outs: Result<Vec<Form>, String> = results
            .chunks(out)
            .map(|limbs| reader.result(limbs))
            .collect();
        let most = results.chunks(out).map(|limbs| {
            let (top, others) = limbs.split_last().expect("limbs");
            let range = |limb: &Place| known[*limb as usize];
            let low = |limb| range(limb).most.min(i128::from(MASK));
            Bound {
                value: number(others.iter().map(low).chain([range(top).most])),
                least: limbs
                    .iter()
                    .map(|limb| range(limb).least)
                    .min()
                    .expect("limbs"),
                limb: limbs
                    .iter()
                    .map(|limb| range(limb).most)
                    .max()
                    .expect("limbs"),
            }
        });
        let most = most.collect();
        let program = Self {
            n,
            operands,
            products: forms,
            results: outs?,
            terms: cut,
        };
        Ok((program, most))
    }

    /// A form as a polynomial, given the polynomials of symbols.
    fn sum(
        &self,
        form: &Form,
        symbols: &HashMap<Symbol, Polynomial>,
        bit: &dyn Fn(Bit) -> Option<bool>,
    ) -> Result<Polynomial, String> {
        let mut sum = Polynomial::new();
        for ((of, symbol), times) in form {
            match (*of, bit(*of)) {
                (Bit::None, _) | (_, Some(true)) => {}
                (_, Some(false)) => continue,
                (other, None) => return Err(format!("a choice by {other:?}")),
            }
            let other = symbols.get(symbol).ok_or("a product of an earlier step")?;
            sum = add(&sum, other, times, &self.n);
        }
        Ok(sum)
    }

    /// Computes the products of a step, and compares the results with the expected ones.
    pub fn check(&self, step: &Step, bit: &dyn Fn(Bit) -> Option<bool>) -> Result<(), String> {
        let mut law = Expressions::new(&self.n, &step.variables.split(',').collect::<Vec<&str>>());
        let mut symbols = HashMap::from([(ONE, law.read("1"))]);
        symbols.extend(
            step.given
                .iter()
                .map(|(symbol, text)| (*symbol, law.read(text))),
        );
        for i in step.products.clone() {
            let [a, b] = &self.products[i];
            let (a, b) = (self.sum(a, &symbols, bit)?, self.sum(b, &symbols, bit)?);
            symbols.insert(self.operands + i, mul(&a, &b, &self.n));
        }
        for (name, text) in &step.definitions {
            law.define(name, text);
        }
        for (name, result, text) in &step.expected {
            if self.sum(result, &symbols, bit)? != law.read(text) {
                return Err(format!("{name} is not that of the law"));
            }
        }
        Ok(())
    }

    /// The same for Singular, in a ring of its own.
    pub fn write(&self, step: &Step, ring: &str, bit: &dyn Fn(Bit) -> Option<bool>) -> String {
        let text = |form: &Form| {
            let parts = form
                .iter()
                .filter(|((of, _), _)| *of == Bit::None || bit(*of) == Some(true));
            parts.fold("0".to_owned(), |sum, ((_, symbol), times)| match *symbol {
                ONE => format!("{sum}+({times})"),
                symbol => format!("{sum}+({times})*s{symbol}"),
            })
        };
        let mut lines = vec![format!("ring {ring}=0,({}),dp;", step.variables)];
        let given = step.given.iter();
        lines.extend(given.map(|(symbol, text)| format!("poly s{symbol}={text};")));
        for i in step.products.clone() {
            let [a, b] = [0, 1].map(|factor| text(&self.products[i][factor]));
            lines.push(format!("poly s{}=({a})*({b});", self.operands + i));
        }
        let definitions = step.definitions.iter();
        lines.extend(definitions.map(|(name, text)| format!("poly {name}={text};")));
        for (name, result, expected) in &step.expected {
            let result = text(result);
            lines.push(format!(
                "if (({result})-({expected})==0) {{ \"ok {name}\"; }} else {{ \"FAILED {name}\"; }};"
            ));
        }
        lines.join("\n") + "\n"
    }

    /// The form that is a product.
    fn product(&self, i: usize) -> Form {
        Form::from([((Bit::None, self.operands + i), 1.into())])
    }

    /// Whether a mask asks for the bit of `swaps` that belongs to a step: bits 63 and down of word
    /// 3, then of word 2 and so on.
    fn asks_for(&self, mask: Place, step: usize) -> bool {
        let Term::AnyBit([mut word, top]) = self.terms.term(mask) else {
            return false;
        };
        let mut doubled = 0;
        while let Term::Add([a, b]) = self.terms.term(word)
            && a == b
        {
            word = a;
            doubled += 1;
        }
        self.terms.is(top, 1 << 63)
            && self.terms.term(word) == Term::Input(3 - (step / 64) as u32)
            && doubled == step % 64
    }
}

/// Products of a function, and their values if earlier products are given. Texts are for Singular
/// too.
pub struct Step {
    pub variables: &'static str,
    pub products: std::ops::Range<usize>,
    pub given: Vec<(Symbol, String)>,
    pub definitions: Vec<(&'static str, String)>,
    /// Names, results, and polynomials.
    pub expected: Vec<(String, Form, String)>,
}

/// Reads sums.
struct Reader<'a> {
    function: &'a Function,
    terms: &'a Terms,
    ranges: &'a [Range],
    n: &'a BigInt,
    inputs: &'a [usize],
    /// The numbers that are operands.
    numbers: &'a [Given],
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
        let choice = |&limb: &Place| match self.terms.term(limb) {
            Term::Select(parts) => Some(parts),
            _ => None,
        };
        let chosen: Option<Vec<[Place; 3]>> = limbs.iter().map(choice).collect();
        let form = match chosen {
            Some(chosen) if self.is_mask_alone(chosen[0][0]) => {
                let mask = chosen[0][0];
                if chosen.iter().any(|[other, ..]| *other != mask) {
                    return Err("limbs are chosen by several masks".into());
                }
                let of = |i: usize| chosen.iter().map(|limb| limb[i]).collect::<Vec<Place>>();
                let (set, mut form) = (self.factor(&of(1))?, self.factor(&of(2))?);
                for (sign, all) in [(1, set), (-1, form.clone())] {
                    for ((bit, symbol), times) in all {
                        if bit != Bit::None {
                            return Err("a choice of choices".into());
                        }
                        *form.entry((Bit::Mask(mask), symbol)).or_default() += times * sign;
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
        !matches!(self.terms.term(mask), Term::AnyBit([a, _])
            if matches!(self.terms.term(a), Term::Input(_)))
            || self.function.name.starts_with("curve25519::")
    }

    /// Reads a result. All bits of the uppermost limb count; of columns, all bits of all limbs.
    fn result(&mut self, limbs: &[Place]) -> Result<Form, String> {
        let out = &self.function.outputs[0];
        if !out.loose && out.range[1] > MASK {
            let below = limbs
                .iter()
                .map(|&limb| self.terms.masked(self.terms.term(limb)));
            let below = below.map(|masked| masked.filter(|(_, count)| *count == 52));
            let below: Option<Vec<Place>> = below.map(|masked| Some(masked?.0)).collect();
            return match below {
                Some(below) => self.factor(&below),
                None => self.linear(limbs),
            };
        }
        let top = self.ranges[limbs[self.limbs - 1] as usize];
        let is_chosen = matches!(self.terms.term(limbs[0]), Term::Select(_));
        if is_chosen && top.least >= 0 && top.most <= i128::from(MASK) {
            return self.factor(limbs);
        }
        let mut lows: Vec<Place> = limbs.iter().map(|limb| self.lows[limb]).collect();
        lows[self.limbs - 1] = limbs[self.limbs - 1];
        self.linear(&lows)
    }

    /// The sum of symbols that a number is, modulo n.
    fn linear(&self, limbs: &[Place]) -> Result<Form, String> {
        let (terms, old, limbs) = self.terms.below(limbs);
        let known: Vec<Range> = old
            .iter()
            .map(|&place| self.ranges[place as usize])
            .collect();
        let sum = limbs.iter().enumerate();
        let sum = sum.map(|(i, limb)| (*limb, BigInt::from(1) << (52 * i)));
        let sum: Vec<(Place, BigInt)> = sum.collect();
        let rest = Algebra::new(self.function, &terms, &known, &[]).sum(&sum)?;
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
        let Term::Input(input) = self.terms.term(bits.of) else {
            return None;
        };
        let input = input as usize;
        let mut begins = self.inputs.iter();
        let symbol = begins.rposition(|&at| (at..at + self.limbs).contains(&input))?;
        let range = self.ranges[bits.of as usize];
        // All bits of a column count, also those above 2^52: low bits alone are another number.
        let counted = match self.numbers.get(symbol).is_some_and(|given| given.is_loose) {
            true => 52,
            false => 64,
        };
        let is_whole = bits.to <= counted && range.most_of(0, counted) == range.most_of(0, bits.to);
        (bits.from == 0 && is_whole).then(|| (symbol, input - self.inputs[symbol]))
    }
}

/// A number modulo n, next to zero.
pub fn symmetric(number: &BigInt, n: &BigInt) -> BigInt {
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

/// The number of limbs, from the lowest.
fn number(limbs: impl DoubleEndedIterator<Item: Into<BigInt>>) -> BigInt {
    let limbs = limbs.rev();
    limbs.fold(BigInt::ZERO, |sum, limb| (sum << 52) + limb.into())
}

/// Polynomials of expressions such as `3*X^2-(Y+1)^4`, in which variables are letters.
pub struct Expressions<'a> {
    n: &'a BigInt,
    pub known: HashMap<String, Polynomial>,
}

impl<'a> Expressions<'a> {
    fn new(n: &'a BigInt, variables: &[&str]) -> Self {
        let mut all = Self::with(n, vec![0; variables.len()]);
        for (i, name) in variables.iter().enumerate() {
            let mut exponents = vec![0; variables.len()];
            exponents[i] = 1;
            let variable = [(exponents, 1.into())].into();
            all.known.insert((*name).to_owned(), variable);
        }
        all
    }

    /// In which one has these exponents.
    pub fn with(n: &'a BigInt, exponents: Vec<u8>) -> Self {
        let one = [(exponents, 1.into())].into();
        let known = HashMap::from([("1".to_owned(), one)]);
        Self { n, known }
    }

    /// A sum of products.
    pub fn read(&self, text: &str) -> Polynomial {
        let mut rest = text;
        let sum = self.sum(&mut rest);
        assert!(rest.is_empty(), "{text}");
        sum
    }

    fn sum(&self, rest: &mut &str) -> Polynomial {
        let mut sum = Polynomial::new();
        loop {
            let sign = if take(rest, "-") { -1 } else { 1 };
            sum = add(&sum, &self.product(rest), &sign.into(), self.n);
            if !take(rest, "+") && !rest.starts_with('-') {
                return sum;
            }
        }
    }

    fn product(&self, rest: &mut &str) -> Polynomial {
        let mut product = self.known["1"].clone();
        loop {
            let factor = if take(rest, "(") {
                let sum = self.sum(rest);
                assert!(take(rest, ")"), "{rest}");
                sum
            } else {
                let name = word(rest);
                match name.parse() {
                    Ok(number) => add(&Polynomial::new(), &self.known["1"], &number, self.n),
                    Err(_) => self.known[name].clone(),
                }
            };
            let power = if take(rest, "^") { word(rest) } else { "1" };
            for _ in 0..power.parse().expect("an exponent") {
                product = mul(&product, &factor, self.n);
            }
            if !take(rest, "*") {
                return product;
            }
        }
    }

    pub fn define(&mut self, name: &str, text: &str) {
        let polynomial = self.read(text);
        self.known.insert(name.to_owned(), polynomial);
    }
}

/// Takes a sign off a text.
fn take(rest: &mut &str, sign: &str) -> bool {
    let after = rest.strip_prefix(sign);
    *rest = after.unwrap_or(rest);
    after.is_some()
}

/// Takes a name or a number off a text.
fn word<'a>(rest: &mut &'a str) -> &'a str {
    let end = rest.find(|c: char| !c.is_alphanumeric());
    let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
    *rest = after;
    word
}

/// A group law: definitions, and the results' coordinates x, y and z.
struct Law {
    variables: &'static str,
    /// Products that operands are, of variables.
    operands: &'static [&'static str],
    definitions: &'static [(&'static str, &'static str)],
}

/// P = (X/Z², Y/Z³) on y² = x³ − 3x + b; the tangent's slope is N/D, and 2P = (A/D², B/D³).
const DOUBLING: Law = Law {
    variables: "X,Y,Z",
    operands: &["X", "Y", "Z"],
    definitions: &[
        ("D", "2*Y*Z"),
        ("N", "3*X^2-3*Z^4"),
        ("A", "N^2-8*X*Y^2"),
        ("B", "4*N*X*Y^2-N*A-8*Y^4"),
    ],
};

/// Q = (x/w², ±y/w³); the chord's slope is N/D for P ≠ ±Q, and P ± Q = (A/D², B/D³).
const ADDITION: Law = Law {
    variables: "X,Y,Z,U,V,W",
    operands: &["X", "Y", "Z", "U", "V", "W", "W^2", "W^3"],
    definitions: &[
        ("M", "X*W^2"),
        ("H", "U*Z^2-M"),
        ("D", "W*Z*H"),
        ("N", "V*Z^3-Y*W^3"),
        ("A", "N^2-M*H^2-U*Z^2*H^2"),
        ("B", "N*M*H^2-N*A-Y*W^3*H^3"),
    ],
};

/// Z, of which the results are powers.
const POWERS: Law = Law {
    variables: "Z",
    operands: &["Z"],
    definitions: &[("S", "Z^2"), ("T", "Z^3")],
};

/// The coordinates of a result over z.
const COORDINATES: [(&str, &str); 3] = [("x", "A"), ("y", "B"), ("z", "D")];

/// The differences that vanish where both points of an addition are equal.
const DIFFERENCES: [(&str, &str); 2] = [("h", "H"), ("r", "N")];

impl Law {
    fn of(function: &Function) -> Self {
        match &function.name {
            name if name.contains("double") => DOUBLING,
            name if name.contains("Denominator") => POWERS,
            _ => ADDITION,
        }
    }

    /// Definitions for −Q if it is `negative`, and for w = 1 if Q has two coordinates only.
    fn definitions(&self, operands: usize, negative: bool) -> Vec<(&'static str, String)> {
        let definition = |&(name, text): &(&'static str, &str)| {
            let text = if negative {
                text.replace('V', "(-V)")
            } else {
                text.to_owned()
            };
            (
                name,
                if operands == 5 {
                    text.replace('W', "(1)")
                } else {
                    text
                },
            )
        };
        self.definitions.iter().map(definition).collect()
    }
}

/// A proof of formulas, and identities for another program.
pub struct Formulas {
    pub proved: String,
    pub identities: String,
}

/// An operand, of which the low bits of limbs count if it is `loose`.
fn operand(at: usize, limbs: usize, top: u64, loose: bool) -> Given {
    let range = |low: u64| Range {
        low,
        ..Range::new(0, i128::from(if loose { u64::MAX >> 1 } else { low }))
    };
    let mut ranges = vec![range(MASK); limbs];
    ranges[limbs - 1] = range(top);
    Given {
        at,
        ranges,
        is_loose: loose,
    }
}

/// The functions whose formulas are proved.
pub const NAMES: [&str; 18] = [
    "nist::point::double_times, P-256",
    "nist::point::add_assign_mixed, P-256",
    "nist::point::add_assign, P-256",
    "nist::point::double_times, P-384",
    "nist::point::add_assign_mixed, P-384",
    "nist::point::add_assign, P-384",
    "nist::point::Denominator, P-256",
    "nist::point::Denominator, P-384",
    "nist::point::odd_multiples of 8, P-256",
    "nist::point::odd_multiples of 8, P-384",
    "nist::point::odd_multiples of 16, P-256",
    "nist::point::odd_multiples of 16, P-384",
    "nist::compressed::root, P-256",
    "nist::compressed::root, P-384",
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
        return ladder(all, function, terms, lanes).map_err(|why| follows_order(&why, "ladder"));
    }
    if function.name.starts_with(ODD_MULTIPLES) {
        let proved = odd_multiples(all, function, terms);
        return proved.map_err(|why| follows_order(&why, "odd_multiples"));
    }
    if let Some(curve) = function.name.strip_prefix("nist::compressed::root, ") {
        return root(all, function, terms, curve);
    }
    match function.name.strip_prefix("curve25519::powers_for_root") {
        Some(lanes) => power_for_root(all, function, terms, lanes),
        None => point(all, function, terms),
    }
}

/// Adds to a failure that this proof breaks where the same products come in another order.
fn follows_order(why: &str, proof: &str) -> String {
    format!(
        "{why}; this proof counts products in the order of the source, so if only their order is \
         new, change the numbers in `{proof}` of proofs/src/formulas.rs"
    )
}

/// a^((p + 1)/4) modulo p of P-256 or P-384, in Montgomery form like a.
fn root(
    all: &[Function],
    function: &Function,
    terms: (Terms, Vec<Place>),
    curve: &str,
) -> Result<Formulas, String> {
    let templates = ["mul", "sqr"].map(|kind| template(all, &format!("modular::{kind}, {curve}")));
    let (n_limbs, n) = constant_modulus(function)?;
    // Bounds of a and of the result, in hundredths of p.
    let [a, out] = if curve == "P-256" {
        [240, 140]
    } else {
        [410, 201]
    };
    let a = operand(0, n_limbs.len(), top(&n, a, n_limbs.len()), true);
    let exponent: BigInt = (&n + 1) / 4;
    let (proved, bound) = chain(function, terms, &templates, a, &exponent)?;
    within(&n, &bound, &[(out, false)])?;
    Ok(proved)
}

/// a^(2^252 − 3).
fn power_for_root(
    all: &[Function],
    function: &Function,
    terms: (Terms, Vec<Place>),
    lanes: &str,
) -> Result<Formulas, String> {
    let templates = ["multiply, false", "square, false"]
        .map(|kind| template(all, &format!("curve25519::field::{kind}{lanes}")));
    let a = operand(0, 5, (1 << 47) + (1 << 9) - 1, true);
    let exponent = (BigInt::from(1) << 252) - 3;
    let (proved, _) = chain(function, terms, &templates, a, &exponent)?;
    Ok(proved)
}

/// A chain of products: by induction each is a power of the operand, and the last has this
/// exponent. Returns the bounds of the result, too.
fn chain(
    function: &Function,
    terms: (Terms, Vec<Place>),
    templates: &[Template],
    a: Given,
    exponent: &BigInt,
) -> Result<(Formulas, Vec<Bound>), String> {
    let limbs = a.ranges.len();
    let (program, bounds) = Program::read(function, terms, templates, &[a], &[], limbs)?;
    let mut exponents = vec![BigInt::from(1)];
    let exponent_of = |form: &Form, exponents: &[BigInt]| match form.iter().next() {
        Some((&(Bit::None, symbol), times)) if form.len() == 1 && *times == BigInt::from(1) => {
            exponents.get(symbol).cloned().ok_or("no power")
        }
        _ => Err("a factor is not a power"),
    };
    for [a, b] in &program.products {
        let sum = exponent_of(a, &exponents)? + exponent_of(b, &exponents)?;
        exponents.push(sum);
    }
    if exponent_of(&program.results[0], &exponents)? != *exponent {
        return Err("another power".into());
    }
    let proved = Formulas {
        proved: format!("{} products", program.products.len()),
        identities: String::new(),
    };
    Ok((proved, bounds))
}

/// The limbs of a modulus that is a constant.
pub fn constant_modulus(function: &Function) -> Result<(&[u64], BigInt), String> {
    match &function.reduced {
        Reduced::Constant(limbs) => Ok((limbs, number(limbs.iter().copied()))),
        _ => Err("no modulus".into()),
    }
}

/// Inputs for which a point is not that of the group law, by portable lanes.
pub fn refute(function: &Function, terms: &Terms, results: &[Place]) -> Option<Vec<u64>> {
    let (n_limbs, n) = constant_modulus(function).ok()?;
    let law = Law::of(function);
    let (size, count) = (n_limbs.len(), limbs(&function.inputs));
    let r = BigInt::from(1) << (52 * size);
    // 1/R, by Fermat.
    let r_inverse = r.modpow(&(&n - 2), &n);
    let value = |limbs: &[u64]| number(limbs.iter().map(|limb| limb & MASK)) * &r_inverse % &n;
    let mut random = Random(1);
    (0..30).find_map(|round| {
        let top = n_limbs[size - 1] / 2 + 1;
        let limb = |i: usize| match (i + 1) % size {
            0 => random.word() % top,
            _ if round % 3 == 0 => MASK,
            _ => random.word() & MASK,
        };
        let mut inputs: Vec<u64> = (0..count).map(limb).collect();
        let is_negative = count % size == 1 && inputs[count - 1] & 1 == 1;
        let mut law_of = Expressions::with(&n, Vec::new());
        for (name, limbs) in law.variables.split(',').zip(inputs.chunks_exact(size)) {
            let constant = [(Vec::new(), value(limbs))].into();
            law_of.known.insert(name.to_owned(), constant);
        }
        let value_of = |text: &str, law: &Expressions<'_>| {
            let value = law.read(text).values().next().cloned().unwrap_or_default();
            ((value % &n) + &n) % &n
        };
        if count / size == 8 {
            // The powers of W are operands.
            for (i, text) in [(6, "W^2"), (7, "W^3")] {
                let mut power = value_of(text, &law_of) * &r % &n;
                for limb in &mut inputs[i * size..(i + 1) * size] {
                    *limb = u64::try_from(&power & BigInt::from(MASK)).expect("52 bits");
                    power >>= 52;
                }
            }
        }
        for (name, text) in law.definitions(count / size, is_negative) {
            law_of.define(name, &text);
        }
        let found = terms.results(&inputs, results);
        let mut coordinates = COORDINATES.iter().zip(found.chunks(size));
        let is_wrong =
            coordinates.any(|((_, text), limbs)| value_of(text, &law_of) != value(limbs));
        is_wrong.then_some(inputs)
    })
}

/// Bounds of points, in hundredths of p: of X, Y and Z, as nist/point.rs promises them.
fn bounds(curve: &str) -> [u64; 3] {
    match curve {
        "P-256" => [111, 190, 263],
        _ => [1110, 790, 500],
    }
}

/// The uppermost limb of n·hundredths/100.
fn top(n: &BigInt, hundredths: u64, size: usize) -> u64 {
    let top: BigInt = (n * hundredths / 100_u32) >> (52 * (size - 1));
    u64::try_from(top).expect("a limb")
}

fn point(
    all: &[Function],
    function: &Function,
    terms: (Terms, Vec<Place>),
) -> Result<Formulas, String> {
    let (_, curve) = function.name.split_once(", ").expect("a curve");
    let [x, y, z] = bounds(curve);
    if function.name.contains("Denominator") {
        let powers = [("zz", "S"), ("zzz", "T")];
        return law(all, function, terms, &powers, &[(z, false); 2]);
    }
    let bounded = [(x, true), (y, true), (z, false)];
    law(all, function, terms, &COORDINATES, &bounded)
}

/// That these results of a complete addition are the differences of its chord, and below R.
pub fn differences(
    all: &[Function],
    function: &Function,
    terms: &Terms,
    results: &[Place],
) -> Result<(), String> {
    // They are computed before the candidates of the choice.
    let last = results.iter().max().ok_or("no differences")?;
    let mut chord = Terms::default();
    chord.list.extend(&terms.list[..=*last as usize]);
    let (_, n) = constant_modulus(function)?;
    let r = BigInt::from(1) << (52 * results.len() / 2);
    let bound = u64::try_from(r * 100_u32 / n).unwrap_or(u64::MAX);
    let terms = (chord, results.to_vec());
    law(all, function, terms, &DIFFERENCES, &[(bound, false); 2]).map(drop)
}

/// That results are below these bounds in hundredths of p, and have limbs that a product may read;
/// also a sum, where x and y are stated.
fn within(n: &BigInt, results: &[Bound], bounded: &[(u64, bool)]) -> Result<(), String> {
    for (i, (most, &(bound, is_tight))) in results.iter().zip(bounded).enumerate() {
        if &most.value * 100_u32 >= n * bound {
            let hundredths = &most.value * 100_u32 / n;
            return Err(format!(
                "result {i} may be {hundredths}/100·p, above {bound}/100·p"
            ));
        }
        let limb = if is_tight { MASK } else { u64::MAX >> 1 };
        if most.least < 0 || most.limb > i128::from(limb) {
            return Err(format!("a limb of result {i} is out of its bounds"));
        }
    }
    match results.len() == bounded.len() {
        true => Ok(()),
        false => Err("another number of results".into()),
    }
}

/// Proves that results are those of a law, and below these bounds in hundredths of p.
fn law(
    all: &[Function],
    function: &Function,
    terms: (Terms, Vec<Place>),
    stated: &[(&str, &str)],
    bounded: &[(u64, bool)],
) -> Result<Formulas, String> {
    let (name, curve) = function.name.split_once(", ").expect("a curve");
    let (n_limbs, n) = constant_modulus(function)?;
    let size = n_limbs.len();
    let top = |hundredths: u64| top(&n, hundredths, size);
    let [x, y, z] = bounds(curve).map(top);
    // A y that is a factor alone is perhaps one that `negate_if` left.
    let factor = if curve == "P-384" { top(1000) } else { y };
    let templates = ["mul", "sqr"].map(|kind| template(all, &format!("modular::{kind}, {curve}")));
    let law = Law::of(function);
    let tops = match name.rsplit("::").next() {
        Some("Denominator") => vec![z],
        Some("double_times") => vec![x, factor, z],
        Some("add_assign_mixed" | "add_assign_mixed_complete") => vec![x, y, z, top(101), top(101)],
        _ => vec![x, factor, z, x, factor, z, z, z],
    };
    let numbers = tops.iter().enumerate();
    let numbers =
        numbers.map(|(i, &top)| operand(i * size, size, top, i == 2 || i > 4 || tops.len() == 1));
    let numbers: Vec<Given> = numbers.collect();
    let negative = vec![Range::new(0, i128::from(MASK)); usize::from(tops.len() > 3)];
    let (program, most) = Program::read(function, terms, &templates, &numbers, &negative, size)?;
    within(&n, &most, bounded)?;
    let mut identities = String::new();
    for sign in 0..=u32::from(tops.len() > 3) {
        let operands = law.operands.iter().take(tops.len()).enumerate();
        let results = stated.iter().zip(&program.results);
        let step = Step {
            variables: law.variables,
            products: 0..program.products.len(),
            given: operands.map(|(i, text)| (i, (*text).to_owned())).collect(),
            definitions: law.definitions(tops.len(), sign == 1),
            expected: results
                .map(|((coordinate, text), result)| {
                    let name = format!("{}, {coordinate}, {sign}", function.name);
                    (name, result.clone(), (*text).to_owned())
                })
                .collect(),
        };
        let bit = |bit| match bit {
            Bit::Of(Atom::Bits(bits)) if bits.from == 0 && bits.to == 1 => {
                let is_negative = Term::Input(limbs(&function.inputs) as u32 - 1);
                (program.terms.term(bits.of) == is_negative).then_some(sign == 1)
            }
            _ => None,
        };
        program.check(&step, &bit)?;
        identities += &program.write(&step, &format!("r{sign}"), &bit);
    }
    let products = program.products.len();
    Ok(Formulas {
        proved: format!("{products} products, the group law, results in bounds"),
        identities,
    })
}

const ODD_MULTIPLES: &str = "nist::point::odd_multiples";

/// P, 3P, 5P and so on: by induction over the entries. Before each, (A, B) is the last of them and
/// (C, D) is 2P, over one denominator. At last each entry is scaled to the last denominator.
fn odd_multiples(
    all: &[Function],
    function: &Function,
    terms: (Terms, Vec<Place>),
) -> Result<Formulas, String> {
    let (_, curve) = function.name.split_once(", ").expect("a curve");
    let (n_limbs, n) = constant_modulus(function)?;
    let size = n_limbs.len();
    let count = function.outputs[0].limbs / (2 * size);
    let bounds = bounds(curve);
    let top = |hundredths: u64| top(&n, hundredths, size);
    let templates = ["mul", "sqr"].map(|kind| template(all, &format!("modular::{kind}, {curve}")));
    let numbers = [0, 1, 2].map(|i| operand(i * size, size, top(bounds[i]), i == 2));
    let (program, most) = Program::read(function, terms, &templates, &numbers, &[], size)?;
    let [x, y, z] = bounds;
    let coordinates = [(x, true), (y, true)].repeat(count);
    within(&n, &most, &[coordinates, vec![(z, false); 3]].concat())?;
    // A doubling and P over its denominator, the other entries, scaling, the denominator's powers.
    const FIRST: usize = 12;
    const OF_STEP: usize = 7;
    const OF_SCALING: usize = 5;
    let scaling = FIRST + OF_STEP * (count - 1);
    // The last step has two products of the first scaling.
    let end = scaling + OF_SCALING * (count - 1) - 3;
    if program.products.len() != end + 2 {
        return Err(format!("{} products", program.products.len()));
    }
    let factor = |product: usize, which: usize| program.products[product][which].clone();
    let is =
        |product: usize, factors: [&Form; 2]| match program.products[product].iter().eq(factors) {
            true => Ok(program.product(product)),
            false => Err(format!("product {product} has other factors")),
        };
    // Scaling: by the product of all later differences of x, squared and cubed. So each entry has
    // the last denominator if its own is that without these differences.
    let step = |entry: usize| FIRST + OF_STEP * (entry - 1);
    let difference = |entry: usize| factor(step(entry), 0);
    let last = &program.results[2 * count - 2..];
    let mut entries = vec![[last[0].clone(), last[1].clone()]];
    let mut ratio = difference(count - 1);
    for entry in (0..count - 1).rev() {
        let at = scaling + OF_SCALING * (count - 2 - entry) - 2;
        let [square, cube, x, y, next] = match entry == count - 2 {
            true => [
                step(count - 1),
                scaling,
                step(count - 1) + 2,
                scaling + 1,
                scaling + 2,
            ],
            false => [at, at + 1, at + 2, at + 3, at + 4],
        };
        let unscaled = [factor(x, 0), factor(y, 0)];
        let square = is(square, [&ratio, &ratio])?;
        let cube = is(cube, [&ratio, &square])?;
        let x = is(x, [&unscaled[0], &square])?;
        let y = is(y, [&unscaled[1], &cube])?;
        if program.results[2 * entry..2 * entry + 2] != [x, y] {
            return Err(format!("entry {entry} is not scaled"));
        }
        if entry > 0 {
            ratio = is(next, [&ratio, &difference(entry)])?;
        }
        entries.insert(0, unscaled);
    }
    let z = program.product(scaling - 1);
    let zz = is(end, [&z, &z])?;
    let zzz = is(end + 1, [&z, &zz])?;
    if last[2..] != [z, zz, zzz] {
        return Err("other powers of the denominator".into());
    }
    let mut identities = String::new();
    let mut check = |step: Step, ring: Option<&str>| {
        program.check(&step, &|_| None)?;
        identities += &ring.map_or(String::new(), |ring| program.write(&step, ring, &|_| None));
        Ok::<(), String>(())
    };
    let named = |what: &str, form: &Form, text: &str| {
        let name = format!("{}, {what}", function.name);
        (name, form.clone(), text.to_owned())
    };
    // 2P, and P over 2P's denominator, which is 2Y times its own.
    let twice = [factor(step(1) + 1, 0), factor(step(1) + 3, 0)];
    let first = Step {
        variables: DOUBLING.variables,
        products: 0..FIRST,
        given: (0..3)
            .map(|i| (i, DOUBLING.operands[i].to_owned()))
            .collect(),
        definitions: DOUBLING.definitions(3, false),
        expected: vec![
            named("x of 2P", &twice[0], "A"),
            named("y of 2P", &twice[1], "B"),
            named("x of P", &entries[0][0], "X*(2*Y)^2"),
            named("y of P", &entries[0][1], "Y*(2*Y)^3"),
            named("z", &factor(step(1) + 6, 0), "D"),
        ],
    };
    check(first, Some("r0"))?;
    let symbol = |product: usize| program.operands + product;
    for entry in 1..count {
        let at = step(entry);
        // Values of sums of products: two of each sum are free, the third is not.
        let (given, twice, z) = match entry {
            1 => {
                let given = [
                    (3, "E"),
                    (4, "C+4*E"),
                    (6, "F"),
                    (7, "D+2*F"),
                    (10, "A"),
                    (11, "B"),
                    (5, "W"),
                ];
                (given.to_vec(), twice.clone(), ("2*W", factor(at + 6, 0)))
            }
            _ => {
                let before = at - OF_STEP;
                let given = [
                    (1, "C"),
                    (2, "E"),
                    (3, "D"),
                    (4, "A+C+E"),
                    (5, "B+D"),
                    (6, "W"),
                ];
                let twice = [1, 3].map(|i| program.product(before + i));
                let given = given.map(|(i, text)| (before + i, text));
                (given.to_vec(), twice, ("W", program.product(before + 6)))
            }
        };
        let [x, y] = &entries[entry];
        let step = Step {
            variables: "A,B,C,D,E,F,W",
            products: at..at + OF_STEP,
            given: given
                .iter()
                .map(|(i, text)| (symbol(*i), (*text).to_owned()))
                .collect(),
            // The chord's slope is N/H over the denominator.
            definitions: [
                ("Z", z.0),
                ("H", "C-A"),
                ("N", "D-B"),
                ("U", "N^2-(A+C)*H^2"),
                ("V", "N*(A*H^2-U)-B*H^3"),
            ]
            .map(|(name, text)| (name, text.to_owned()))
            .to_vec(),
            expected: vec![
                named("x before", &entries[entry - 1][0], "A"),
                named("y before", &entries[entry - 1][1], "B"),
                named("x of 2P before", &twice[0], "C"),
                named("y of 2P before", &twice[1], "D"),
                named("z before", &z.1, "Z"),
                named("x", x, "U"),
                named("y", y, "V"),
                named("x of 2P", &program.product(at + 1), "C*H^2"),
                named("y of 2P", &program.product(at + 3), "D*H^3"),
                named("z", &program.product(at + 6), "Z*H"),
                named("the ratio", &difference(entry), "H"),
            ],
        };
        // All later steps have the same forms.
        check(step, ["r1", "r2"].get(entry - 1).copied())?;
    }
    Ok(Formulas {
        proved: format!(
            "{} products, {count} multiples over one denominator",
            end + 2
        ),
        identities,
    })
}

/// The products of the field of 2^255 − 19.
pub fn products_25519(all: &[Function], lanes: &str) -> Vec<Template> {
    let kinds = [
        "multiply, false",
        "multiply, true",
        "square, false",
        "square, true",
    ];
    let templates = kinds.map(|kind| template(all, &format!("curve25519::field::{kind}{lanes}")));
    templates.into()
}

/// The ladder: by induction over its steps. Before each, (A : B) and (C : D) are two points whose
/// difference is the one with x-coordinate U.
fn ladder(
    all: &[Function],
    function: &Function,
    terms: (Terms, Vec<Place>),
    lanes: &str,
) -> Result<Formulas, String> {
    let mut templates = products_25519(all, lanes);
    if lanes.is_empty() {
        templates.push(template(all, "curve25519::field::multiply_by"));
    }
    let u = operand(4, 5, (1 << 47) - 1, false);
    let swaps = Given {
        at: 0,
        ranges: vec![Range::new(0, i128::from(u64::MAX)); 4],
        is_loose: false,
    };
    let (program, _) = Program::read(function, terms, &templates, &[swaps, u], &[], 5)?;
    const STEPS: usize = 251;
    const OF_STEP: usize = 9;
    let count = program.products.len();
    if count != 4 + STEPS * OF_STEP + 12 {
        return Err(format!("{count} products"));
    }
    // Earlier products by their names (U is always one), and the expected values of products from
    // `at` on.
    let step = |at: usize, length: usize, names: &[(usize, &str)], are: &[(usize, String)]| Step {
        variables: "A,B,C,D,U",
        products: at..at + length,
        given: [(1, "U".to_owned())]
            .into_iter()
            .chain(
                names
                    .iter()
                    .map(|(i, name)| (program.operands + i, (*name).to_owned())),
            )
            .collect(),
        definitions: Vec::new(),
        expected: are
            .iter()
            .map(|(i, text)| {
                let name = format!("{}, product {} ({i} of its step)", function.name, at + i);
                (name, program.product(at + i), text.clone())
            })
            .collect(),
    };
    // Curve y² = x³ + 486662·x² + x: 2(x : z) = ((x² − z²)² : 4xz(x² + 486662·xz + z²)).
    let double = |[x, z]: [&str; 2]| {
        [
            format!("({x}^2-{z}^2)^2"),
            format!("4*{x}*{z}*({x}^2+486662*{x}*{z}+{z}^2)"),
        ]
    };
    let is_doubling =
        |at: usize, names: &[(usize, &str)], point, bit: &dyn Fn(Bit) -> Option<bool>| {
            let [x, z] = double(point);
            program.check(&step(at, 4, names, &[(2, x), (3, z)]), bit)
        };
    let after = |at: usize| [(at + 6, "A"), (at + 7, "B"), (at + 4, "C"), (at + 8, "D")];
    let asks = |bit, number| matches!(bit, Bit::Mask(mask) if program.asks_for(mask, number));
    let mut identities = String::new();
    // At first the point itself, U : 1, and its double.
    is_doubling(0, &[], ["U", "1"], &|_| None)?;
    for number in 0..STEPS {
        let at = 4 + number * OF_STEP;
        let (names, [c, d]) = match number {
            0 => (vec![(2, "A"), (3, "B")], ["U", "1"]),
            _ => (after(at - OF_STEP).to_vec(), ["C", "D"]),
        };
        for set in [false, true] {
            let [x, z] = double(if set { [c, d] } else { ["A", "B"] });
            let sum = format!("4*(A*{c}-B*{d})^2");
            let difference = format!("4*U*(A*{d}-B*{c})^2");
            let are = [(6, x), (7, z), (4, sum), (8, difference)];
            let step = step(at, OF_STEP, &names, &are);
            program.check(&step, &|bit| asks(bit, number).then_some(set))?;
            // All steps have the same forms.
            if number == 1 {
                let ring = format!("r{}", u32::from(set));
                identities += &program.write(&step, &ring, &|_| Some(set));
            }
        }
    }
    let end = 4 + STEPS * OF_STEP;
    for set in [false, true] {
        let point = if set { ["C", "D"] } else { ["A", "B"] };
        let bit = |bit| asks(bit, STEPS).then_some(set);
        is_doubling(end, &after(end - OF_STEP), point, &bit)?;
    }
    for at in [end + 4, end + 8] {
        is_doubling(at, &[(at - 2, "A"), (at - 1, "B")], ["A", "B"], &|_| None)?;
    }
    match program.results == [count - 2, count - 1].map(|i| program.product(i)) {
        true => Ok(Formulas {
            proved: format!("{count} products, {STEPS} steps and 4 doublings"),
            identities,
        }),
        false => Err("the results are not those of the last doubling".into()),
    }
}
