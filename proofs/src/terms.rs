//! Questions about terms and their functions that all parts of the checker ask.

use std::collections::{BTreeMap, HashMap};

use lockstep_kernels::proved::{Function, Operand, Place, Term, Terms};

/// Questions about terms.
pub trait Look {
    /// The term at a place.
    fn term(&self, place: Place) -> Term;

    /// The number that a term is.
    fn constant(&self, place: Place) -> Option<u64> {
        match self.term(place) {
            Term::Constant(value) => Some(value),
            _ => None,
        }
    }

    fn is(&self, place: Place, value: u64) -> bool {
        self.constant(place) == Some(value)
    }

    /// The other operand of a number, and the number.
    fn beside(&self, [a, b]: [Place; 2]) -> Option<(Place, u64)> {
        let number = |a, b| Some((a, self.constant(b)?));
        number(a, b).or_else(|| number(b, a))
    }

    /// The term below a mask of the lowest bits, and how many these are.
    fn masked(&self, term: Term) -> Option<(Place, u32)> {
        let Term::And(both) = term else { return None };
        let (a, mask) = self.beside(both)?;
        (mask & mask.wrapping_add(1) == 0).then_some((a, mask.count_ones()))
    }

    /// These terms and all terms below them as a list of its own, with their old places and their
    /// new ones.
    fn below(&self, places: &[Place]) -> (Terms, Vec<Place>, Vec<Place>);

    /// The mask by which each limb of a number is chosen, and both numbers.
    fn choice(&self, number: &[Place]) -> Option<(Place, Vec<Place>, Vec<Place>)>;

    /// The same where some terms are taken for others, which come earlier, and where some places
    /// are then.
    fn redirected(&self, to: &HashMap<Place, Place>, places: &[Place]) -> (Terms, Vec<Place>);

    /// Inputs and results of the portable lanes.
    fn results(&self, inputs: &[u64], places: &[Place]) -> Vec<u64>;
}

impl Look for Terms {
    fn term(&self, place: Place) -> Term {
        self.list[place as usize]
    }

    fn below(&self, places: &[Place]) -> (Terms, Vec<Place>, Vec<Place>) {
        let mut below: BTreeMap<Place, Place> = BTreeMap::new();
        let mut open = places.to_vec();
        while let Some(place) = open.pop() {
            if below.insert(place, 0).is_none() {
                open.extend(parts(self.term(place)));
            }
        }
        let old: Vec<Place> = below.keys().copied().collect();
        let mut terms = Terms::default();
        for (i, place) in old.iter().enumerate() {
            below.insert(*place, i as Place);
            terms
                .list
                .push(with(self.term(*place), |part| below[&part]));
        }
        let places = places.iter().map(|place| below[place]).collect();
        (terms, old, places)
    }

    fn choice(&self, number: &[Place]) -> Option<(Place, Vec<Place>, Vec<Place>)> {
        let select = |&limb: &Place| match self.term(limb) {
            Term::Select(parts) => Some(parts),
            _ => None,
        };
        let limbs: Vec<[Place; 3]> = number.iter().map(select).collect::<Option<_>>()?;
        let [mask, ..] = *limbs.first()?;
        let of = |part: usize| limbs.iter().map(|limb| limb[part]).collect();
        let is_one = limbs.iter().all(|limb| limb[0] == mask);
        is_one.then(|| (mask, of(1), of(2)))
    }

    fn redirected(&self, to: &HashMap<Place, Place>, places: &[Place]) -> (Terms, Vec<Place>) {
        let mut terms = Terms::default();
        terms.tables.clone_from(&self.tables);
        let mut now: Vec<Place> = Vec::with_capacity(self.list.len());
        for (place, term) in self.list.iter().enumerate() {
            let term = terms.place(with(*term, |part| now[part as usize]));
            let other = to.get(&(place as Place));
            now.push(other.map_or(term, |&other| now[other as usize]));
        }
        let places = places.iter().map(|&place| now[place as usize]).collect();
        (terms, places)
    }

    fn results(&self, inputs: &[u64], places: &[Place]) -> Vec<u64> {
        let values = self.values(inputs);
        places.iter().map(|&place| values[place as usize]).collect()
    }
}

/// The places that a term has.
fn parts_mut(term: &mut Term) -> &mut [Place] {
    use Term::*;
    match term {
        Low(all) | High(all) | Short(all) | Select(all) | Ternary(_, all) => all,
        Add(both) | Sub(both) | And(both) | Or(both) | Xor(both) => both,
        AnyBit(both) | Equal(both) => both,
        Right(a, _) | Left(a, _) | Rotate(a, _) | LookUp(_, a) => std::slice::from_mut(a),
        Constant(_) | Input(_) => &mut [],
    }
}

/// The same operation on other parts.
pub fn with(mut term: Term, mut part: impl FnMut(Place) -> Place) -> Term {
    for place in parts_mut(&mut term) {
        *place = part(*place);
    }
    term
}

/// The parts of a term.
pub fn parts(mut term: Term) -> Vec<Place> {
    parts_mut(&mut term).to_vec()
}

/// Upper bound of a word, from the upper bounds of its parts: a compiler knows as much.
pub fn most(term: Term, of: impl Fn(Place) -> u64) -> u64 {
    let half = (1 << 32) - 1;
    match term {
        Term::Constant(value) => value,
        Term::Low([acc, ..]) | Term::High([acc, ..]) => of(acc).saturating_add((1 << 52) - 1),
        Term::Short([acc, a, b]) => of(acc).saturating_add(of(a).min(half) * of(b).min(half)),
        Term::Add([a, b]) => of(a).saturating_add(of(b)),
        Term::And([a, b]) => of(a).min(of(b)),
        Term::Right(a, count) => of(a) >> count,
        _ => u64::MAX,
    }
}

/// The function of a name.
pub fn named<'a>(all: &'a [Function], name: &str) -> &'a Function {
    let mut all = all.iter();
    all.find(|function| function.name == name)
        .unwrap_or_else(|| panic!("no function {name}"))
}

/// The limbs of operands.
pub fn limbs(operands: &[Operand]) -> usize {
    operands.iter().map(|operand| operand.limbs).sum()
}
