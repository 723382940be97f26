//! That the formulas of points are the group law, and those of the ladder's step too: the products
//! of a function are found among its terms, and become polynomials in its operands.
//!
//! A product was proved on its own (`modular::mul`). Its terms are a template, which is found again
//! wherever a function multiplies. There its results become inputs of their own, so that what lies
//! between products is linear: each factor is a sum of products and operands, modulo the prime.

use std::collections::{BTreeMap, HashMap};

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

/// That of a product, or of another function of this name.
pub fn template(all: &[Function], name: &str) -> Template {
    let function = named(all, name);
    let (terms, results) = function.terms();
    let given = given(function);
    let known = ranges(&terms, &given).unwrap_or_else(|why| panic!("{name}: {why}"));
    let is_read = |i: &usize| {
        let input = |part: Place| terms.term(part) == Term::Input(*i as u32);
        terms
            .list
            .iter()
            .any(|term| parts(*term).into_iter().any(input))
    };
    Template {
        inputs: (0..limbs(&function.inputs)).filter(is_read).count(),
        by_rows: function.inputs.iter().any(|operand| operand.name == "row0"),
        limbs: results.iter().map(|&place| known[place as usize]).collect(),
        lifted: function.quotient,
        given,
        terms,
        results,
    }
}

fn is_product(term: &Term) -> bool {
    matches!(term, Term::Low(_) | Term::High(_) | Term::Short(_))
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
        let term = self.terms.term(template);
        match (known[template as usize], term) {
            (Some(known), _) => return (known == actual).then_some(()),
            (None, Term::Input(_)) => {}
            _ => {
                let (of, found) = (parts(term), parts(list[actual as usize]));
                let mut places = found.iter();
                let same = |part| places.next().copied().unwrap_or(part);
                if of.len() != found.len() || with(term, same) != list[actual as usize] {
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

    /// What its inputs were taken for.
    fn bound(&self, known: &[Option<Place>]) -> Option<Vec<Place>> {
        let input = |i: usize| {
            let is_it = |term: &Term| *term == Term::Input(i as u32);
            known[self.terms.list.iter().position(is_it)?]
        };
        (0..self.inputs).map(input).collect()
    }

    /// The inputs for which these are its results.
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

/// Which product it is, and its factors.
pub type Called = (usize, [Vec<Place>; 2]);

/// Terms without those of products, whose results become inputs from `first` on.
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
struct Given {
    at: usize,
    ranges: Vec<Range>,
    is_loose: bool,
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
        for factor in factors.chain([&results]) {
            let with_choices = factor.iter().flat_map(|&limb| match cut.term(limb) {
                Term::Select([_, set, clear]) => vec![limb, set, clear],
                _ => vec![limb],
            });
            for limb in with_choices.collect::<Vec<Place>>() {
                lows.insert(limb, cut.place(Term::And([limb, mask])));
            }
        }
        let known = ranges(&cut, &known_inputs)?;
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
        // The greatest values of results.
        let most = results.chunks(out).map(|limbs| {
            let (top, others) = limbs.split_last().expect("limbs");
            let most = |limb: &Place| known[*limb as usize].most;
            let others = others.iter().map(|limb| most(limb).min(i128::from(MASK)));
            number(others.chain([most(top)]))
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

    /// A form as a polynomial in those of symbols.
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

    /// Computes the products of a step, and compares what follows with what is expected.
    fn check(&self, step: &Step, bit: &dyn Fn(Bit) -> Option<bool>) -> Result<(), String> {
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
    fn write(&self, step: &Step, ring: &str, bit: &dyn Fn(Bit) -> Option<bool>) -> String {
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

/// Products of a function, and what they are if earlier ones are given. Texts are for Singular too.
struct Step {
    variables: &'static str,
    products: std::ops::Range<usize>,
    given: Vec<(Symbol, String)>,
    definitions: Vec<(&'static str, String)>,
    /// Names, results, and polynomials.
    expected: Vec<(String, Form, String)>,
}

/// What reads sums.
struct Reader<'a> {
    function: &'a Function,
    terms: &'a Terms,
    ranges: &'a [Range],
    n: &'a BigInt,
    inputs: &'a [usize],
    /// Those that are operands.
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
                open.extend(parts(self.terms.term(place)));
            }
        }
        let old: Vec<Place> = below.keys().copied().collect();
        let mut terms = Terms::default();
        for (i, place) in old.iter().enumerate() {
            below.insert(*place, i as Place);
            let term = self.terms.term(*place);
            terms.list.push(with(term, |part| below[&part]));
        }
        let known: Vec<Range> = old
            .iter()
            .map(|&place| self.ranges[place as usize])
            .collect();
        let sum = limbs.iter().enumerate();
        let sum = sum.map(|(i, limb)| (below[limb], BigInt::from(1) << (52 * i)));
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

/// The number of limbs, from the lowest.
fn number(limbs: impl DoubleEndedIterator<Item: Into<BigInt>>) -> BigInt {
    let limbs = limbs.rev();
    limbs.fold(BigInt::ZERO, |sum, limb| (sum << 52) + limb.into())
}

/// Polynomials of expressions such as `3*X^2-(Y+1)^4`, in which variables are letters.
struct Expressions<'a> {
    n: &'a BigInt,
    known: HashMap<String, Polynomial>,
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
    fn with(n: &'a BigInt, exponents: Vec<u8>) -> Self {
        let one = [(exponents, 1.into())].into();
        let known = HashMap::from([("1".to_owned(), one)]);
        Self { n, known }
    }

    /// A sum of products.
    fn read(&self, text: &str) -> Polynomial {
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
                match name.parse::<u32>() {
                    Ok(number) => add(&Polynomial::new(), &self.known["1"], &number.into(), self.n),
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

    fn define(&mut self, name: &str, text: &str) {
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

/// The coordinates of a result over z.
const COORDINATES: [(&str, &str); 3] = [("x", "A"), ("y", "B"), ("z", "D")];

/// What vanishes where both points of an addition are equal.
const DIFFERENCES: [(&str, &str); 2] = [("h", "H"), ("r", "N")];

impl Law {
    fn of(function: &Function) -> Self {
        match function.name.contains("double") {
            true => DOUBLING,
            false => ADDITION,
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

/// What was proved of formulas, and identities for another program.
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
    let a = operand(0, 5, (1 << 47) + (1 << 9) - 1, true);
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

/// The limbs of a modulus that is a constant.
fn constant_modulus(function: &Function) -> Result<(&[u64], BigInt), String> {
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
        let is_negative = count % size == 1 && random.word() & 1 == 1;
        if count % size == 1 {
            inputs[count - 1] = u64::from(is_negative);
        }
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
    let (_, curve) = function.name.split_once(", ").expect("a curve");
    law(all, function, terms, &COORDINATES, &bounds(curve))
}

/// That these results of a complete addition are the differences of its chord, and below R.
pub fn differences(
    all: &[Function],
    function: &Function,
    terms: &Terms,
    results: &[Place],
) -> Result<(), String> {
    // They are computed before what is chosen.
    let last = results.iter().max().ok_or("no differences")?;
    let mut chord = Terms::default();
    chord.list.extend(&terms.list[..=*last as usize]);
    let (_, n) = constant_modulus(function)?;
    let r = BigInt::from(1) << (52 * results.len() / 2);
    let bound = u64::try_from(r * 100_u32 / n).unwrap_or(u64::MAX);
    let terms = (chord, results.to_vec());
    law(all, function, terms, &DIFFERENCES, &[bound; 2]).map(drop)
}

/// That results are those of a law, and below these bounds in hundredths of p.
fn law(
    all: &[Function],
    function: &Function,
    terms: (Terms, Vec<Place>),
    stated: &[(&str, &str)],
    bounded: &[u64],
) -> Result<Formulas, String> {
    let (name, curve) = function.name.split_once(", ").expect("a curve");
    let (n_limbs, n) = constant_modulus(function)?;
    let size = n_limbs.len();
    let top = |hundredths: u64| {
        let top: BigInt = (&n * hundredths / 100_u32) >> (52 * (size - 1));
        u64::try_from(top).expect("a limb")
    };
    let [x, y, z] = bounds(curve).map(top);
    let templates = ["mul", "sqr"].map(|kind| template(all, &format!("modular::{kind}, {curve}")));
    let law = Law::of(function);
    let tops = match name.rsplit("::").next() {
        Some("double_times") => vec![x, y, z],
        Some("add_assign_mixed" | "add_assign_mixed_complete") => vec![x, y, z, top(101), top(101)],
        _ => vec![x, y, z, x, y, z, z, z],
    };
    let numbers = tops.iter().enumerate();
    let numbers = numbers.map(|(i, &top)| operand(i * size, size, top, i == 2 || i > 4));
    let numbers: Vec<Given> = numbers.collect();
    let negative = vec![Range::new(0, i128::from(MASK)); usize::from(tops.len() > 3)];
    let (program, most) = Program::read(function, terms, &templates, &numbers, &negative, size)?;
    for (i, (most, bound)) in most.iter().zip(bounded).enumerate() {
        if most * 100_u32 >= &n * *bound {
            let hundredths = most * 100_u32 / &n;
            return Err(format!(
                "result {i} may be {hundredths}/100·p, above {bound}/100·p"
            ));
        }
    }
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

/// The ladder: by induction over its steps. Before each, (A : B) and (C : D) are two points whose
/// difference is the one with x-coordinate U.
fn ladder(
    all: &[Function],
    function: &Function,
    terms: (Terms, Vec<Place>),
    lanes: &str,
) -> Result<Formulas, String> {
    let kinds = [
        "multiply, false",
        "multiply, true",
        "square, false",
        "square, true",
    ];
    let kinds = kinds.iter().map(|kind| format!("{kind}{lanes}"));
    let by_rows = lanes.is_empty().then(|| "multiply_by".to_owned());
    let templates = kinds.chain(by_rows);
    let templates = templates.map(|kind| template(all, &format!("curve25519::field::{kind}")));
    let templates: Vec<Template> = templates.collect();
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
    // Earlier products by their names, of which U is always one, and what products from `at` are.
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
