//! `cargo xtask lint-asm`: the compiler's output for the kernels, checked.
//!
//! Lane code is fast only while everything between the feature boundary and an intrinsic is inlined
//! and the limbs stay in registers, and safe only while no secret reaches a division or a gather.
//! Both are properties of the machine code, so they are checked there: on every function of the
//! kernels that the release module keeps as a symbol.

mod listing;

use std::fmt::Write as _;
use std::path::Path;

use crate::command::{Failure, Outcome};
use listing::{Function, listing, parse};

/// Lanes that the lint looks for.
const LANES: &[Lanes] = &[
    Lanes {
        name: "Avx512Ifma",
        multiply: "vpmadd52",
        entries: ENTRIES,
        written_out: true,
        curves: &[CURVES_25519, NIST_CURVES],
        spills: None,
    },
    Lanes {
        name: "Avx512Ifma256",
        multiply: "vpmadd52",
        entries: ENTRIES,
        written_out: false,
        curves: &[CURVES_25519, NIST_CURVES],
        spills: None,
    },
    // The other order of work, of functions that are written out. The compiler merges equal
    // functions.
    Lanes {
        name: "Avx512Ifma<After>",
        multiply: "vpmadd52",
        entries: &[],
        written_out: true,
        curves: &[],
        spills: None,
    },
    Lanes {
        name: "Avx2",
        multiply: "vpmuludq",
        entries: &[],
        written_out: false,
        curves: &[HALVES_25519],
        spills: None,
    },
    // Blocks of AES-GCM.
    Lanes {
        name: "Vaes512",
        multiply: "vpclmul",
        entries: &[],
        written_out: false,
        curves: &[AES_GCM],
        spills: None,
    },
    // Sixteen registers hold eight states of AES and as many blocks to hash in part only; messages
    // that end in a vector come through memory.
    Lanes {
        name: "Vaes256",
        multiply: "vpclmul",
        entries: &[],
        written_out: false,
        curves: &[AES_GCM],
        spills: Some(1.3),
    },
];

/// The differences between lanes.
struct Lanes {
    name: &'static str,
    /// The start of the name of their multiply instruction.
    multiply: &'static str,
    /// Functions of RSA that must be there, `#` for the lanes.
    entries: &'static [&'static str],
    /// Whether they have the functions of [`WRITTEN_OUT`].
    written_out: bool,
    /// The curves that they have functions of.
    curves: &'static [&'static [Curve]],
    /// Stack accesses of whole vectors for each multiply that any multiply loop may hold, where the
    /// numbers of [`STACK_ACCESSES`] cannot be met.
    spills: Option<f64>,
}

/// The functions of lanes that multiply in place.
const ENTRIES: &[&str] = &["multiply_long<#>", "square_long<#>"];

/// More functions that must be there: the lengths that are written out on the main lanes.
const WRITTEN_OUT: &[&str] = &[
    "multiply<#, 10>",
    "multiply<#, 20>",
    "square<#, 10>",
    "square<#, 20>",
];

/// Functions that a module with a curve in it must have: a part of the names of all functions of
/// the curve, and the short names, `#` for the lanes.
type Curve = (&'static str, &'static [&'static str]);

const CURVES_25519: &[Curve] = &[
    (
        "curve25519::x25519::",
        &[
            "multiple_of_u<#>",
            "multiple_of_base<#>",
            "add_entry<#>",
            "invert_all<#>",
        ],
    ),
    (
        "curve25519::ed25519::",
        &[
            "multiple_of_base<#>",
            "add_entry<#>",
            "subtract_digit<#, true>",
            "subtract_digit<#, false>",
            "<Point<#>>::double_assign",
        ],
    ),
];

/// On lanes that call their products.
const HALVES_25519: &[Curve] = &[
    (
        "curve25519::x25519::",
        &[
            "multiple_of_u<#>",
            "multiply_call<#, false>",
            "multiply_call<#, true>",
            "square_call<#, false>",
            "square_call<#, true>",
        ],
    ),
    ("curve25519::ed25519::", &["multiple_of_base<#>"]),
];

/// The outlined additions and doublings, of which the operations of both curves consist.
const NIST_CURVES: &[Curve] = &[
    (
        "nist::p256::",
        &[
            "add_assign<#, P256, 5>",
            "add_assign_mixed<#, P256, 5>",
            "double_times<#, P256, 5>",
        ],
    ),
    (
        "nist::p384::",
        &[
            "add_assign<#, P384, 8>",
            "add_assign_mixed<#, P384, 8>",
            "double_times<#, P384, 8>",
        ],
    ),
];

/// No curve, but a family of functions of which a module has all or none.
const AES_GCM: &[Curve] = &[(
    "aes_gcm::counter::",
    &[
        "encrypt<#>",
        "decrypt<#>",
        "absorb<#>",
        "prepare<#>",
        "finish<#>",
    ],
)];

/// Number of stack accesses of whole vectors that the multiply loops of a function may hold
/// together, by the end of its short name, `#` for the lanes; zero for all functions that are not
/// listed. Each number was counted on a build whose speed had been measured.
const STACK_ACCESSES: &[(&str, usize)] = &[
    // Twenty sums, a block of limbs and a multiplier take 31 registers.
    ("square<#, 20>", 2),
    // Ten halves of a factor and a sum take most of sixteen registers; the other factor is in
    // memory.
    ("multiply_call<Avx2, false>", 57),
    ("multiply_call<Avx2, true>", 62),
    ("square_call<Avx2, false>", 42),
    ("square_call<Avx2, true>", 44),
    // Between calls of those everything is in memory.
    ("multiple_of_u<Avx2>", 477),
    ("multiple_of_base<Avx2>", 472),
    ("combine<Avx2, 5, true>", 78),
    ("steps<Avx2>", 12),
    ("mul_outlined<Avx2, Order, 5>", 299),
    // Ten columns, ten limbs and four coordinates do not fit into 32 registers: a point waits in
    // memory while another is multiplied. Most of these are operands of a multiply or an addition.
    ("multiple_of_u<#>", 111),
    ("multiple_of_base<#>", 167),
    // No loop, but one round of that of its caller.
    ("add_entry<#>", 68),
    ("are_equal<#>", 32),
    // Once for a multiple. It wipes the entry that it has looked up.
    ("first_multiple<#>", 21),
    // Of the table's making, once.
    ("<Affine<#>>::limbs", 4),
    ("subtract_digit<#, true>", 132),
    ("subtract_digit<#, false>", 132),
    ("<Point<#>>::double_assign", 48),
    ("<Point<#>>::add_assign", 96),
    // The same with coordinates of five and of eight limbs.
    ("add_assign<#, P256, 5>", 56),
    ("add_assign<#, P384, 8>", 257),
    ("add_assign_mixed<#, P256, 5>", 43),
    ("add_assign_mixed<#, P384, 8>", 216),
    ("double_times<#, P256, 5>", 58),
    ("double_times<#, P384, 8>", 137),
    // Not in a loop: once a batch, or in the rare case that needs the complete formulas.
    ("odd_multiples<#, P256, 5>", 177),
    ("add_assign_complete<#, P256, 5>", 366),
    ("add_assign_mixed_complete<#, P256, 5>", 316),
];

/// How many multiplies of a function may read a factor from memory, by the end of its short name:
/// on some cores such a multiply is slower. Each number was counted in the code of commit
/// `4a29f60`, whose speed was measured on one of them.
const MEMORY_FACTORS: &[(&str, usize)] = &[
    ("multiply<Avx512Ifma<After>, 10>", 0),
    ("multiply<Avx512Ifma<After>, 20>", 0),
    ("square<Avx512Ifma<After>, 10>", 9),
    ("square<Avx512Ifma<After>, 20>", 19),
];

/// Code size of each family of kernels on all hardware lanes together, in bytes, with parts of the
/// names of its functions; the first family has all others. The portable oracle does not count.
const CODE_SIZES: &[(&str, &[&str], u64)] = &[
    ("RSA", &[], 384 * 1024),
    // 198 KiB on the lanes with IFMA, of both widths, and 90 KiB on the lanes of AVX2; the rest are
    // the keys, whose memory may be refused.
    ("curve25519", &["curve25519", "sha512"], 360 * 1024),
    ("the NIST curves", &["nist", "P256", "P384"], 640 * 1024),
    ("AES-GCM", &["aes_gcm"], 48 * 1024),
    // The functions of polynomials; all others are the same for all lanes.
    ("ML-DSA", &["mldsa"], 32 * 1024),
];

/// Part of the demangled name of every function of the kernels.
const OURS: &str = "lockstep_kernels";

/// Instructions whose time or address depends on their operands, by the start of their names.
const FORBIDDEN: &[&str] = &[
    "div",
    "idiv",
    "vdiv",
    "sqrt",
    "vsqrt",
    "vpgather",
    "vgather",
    "vpscatter",
    "vscatter",
    "vpcompress",
    "vcompress",
    "vpexpand",
    "vexpand",
];

/// Where one of them may be: a part of the name of a function whose operands are public, and the
/// start of the instruction's name.
const ON_PUBLIC_DATA: &[(&str, &str)] = &[
    // ML-KEM's matrix.
    ("sample_vartime", "vpcompress"),
    // The hash of a signature of Ed25519.
    ("euclid_vartime", "vdiv"),
    ("euclid_vartime", "div"),
    ("choose_vartime", "div"),
];

/// A function that divides by a secret in a module with fault points, which must be found.
const PLANTED: &str = "divide_by_secret: div";

/// Checks a module; returns a report.
pub fn check(module: &Path) -> Outcome<String> {
    judge(&kernels(module)?)
}

/// Whether the defect of a module with fault points is found.
pub fn find_planted(module: &Path) -> Outcome {
    match judge(&kernels(module)?) {
        Err(failure) if failure.to_string().contains(PLANTED) => Ok(()),
        _ => Err(Failure::new("the planted division is not found")),
    }
}

/// The names of all functions of a module.
pub fn names(module: &Path) -> Outcome<Vec<String>> {
    let functions = parse(&listing(module)?).into_iter();
    Ok(functions.map(|function| function.name).collect())
}

fn kernels(module: &Path) -> Outcome<Vec<Function>> {
    let mut functions = parse(&listing(module)?);
    functions.retain(|function| function.name.contains(OURS));
    Ok(functions)
}

/// The functions that must be there, with their lanes.
fn wanted(functions: &[Function]) -> impl Iterator<Item = (&'static Lanes, String)> + use<> {
    let has = |part: &str| {
        functions
            .iter()
            .any(|function| function.name.contains(part))
    };
    let curves = LANES.iter().flat_map(|lanes| lanes.curves.concat());
    let missing: Vec<&str> = curves
        .map(|(curve, _)| curve)
        .filter(|curve| !has(curve))
        .collect();
    LANES.iter().flat_map(move |lanes| {
        let written_out: &[&str] = if lanes.written_out { WRITTEN_OUT } else { &[] };
        let of_curves: Vec<&str> = lanes
            .curves
            .concat()
            .iter()
            .filter(|(curve, _)| !missing.contains(curve))
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let names: Vec<String> = [lanes.entries, written_out, &of_curves]
            .concat()
            .iter()
            .map(|name| name.replace('#', lanes.name))
            .collect();
        names.into_iter().map(move |name| (lanes, name))
    })
}

fn judge(functions: &[Function]) -> Outcome<String> {
    let mut report = String::new();
    let mut broken = Vec::new();
    if functions.is_empty() {
        broken.push(format!(
            "no symbol contains {OURS}: was the module stripped?"
        ));
    }
    for (lanes, name) in wanted(functions) {
        let is_it = |f: &&Function| f.short_name().ends_with(&name) && f.has(lanes.multiply);
        if !functions.iter().any(|function| is_it(&function)) {
            let multiply = lanes.multiply;
            broken.push(format!("{name}: no such symbol with {multiply} in it"));
        }
    }
    let mut sizes = [0; CODE_SIZES.len()];
    for function in functions {
        let name = function.short_name();
        let lanes = LANES
            .iter()
            .rfind(|lanes| function.name.contains(lanes.name));
        judge_instructions(function, &name, &mut broken);
        if function.multiplies() > 0 {
            report += &judge_multiplies(function, &name, lanes, &mut broken);
        }
        if function.multiplies() > 0 || lanes.is_some() {
            sizes[function.family()] += function.size();
        }
    }
    for (size, (family, _, allowed)) in sizes.into_iter().zip(CODE_SIZES) {
        let _ = writeln!(
            report,
            "lint-asm: {family}: {size} bytes on hardware lanes, {allowed} allowed"
        );
        if size > *allowed {
            broken.push(format!(
                "the kernels of {family} take {size} bytes of code, {allowed} are allowed"
            ));
        }
    }
    if broken.is_empty() {
        return Ok(report);
    }
    // A function that calls another one, which should be a part of it, often does so many times.
    broken.sort();
    broken.dedup();
    Err(Failure::new(format!("{report}{}", broken.join("\n"))).remedy(
        "keep limbs out of LLVM's sight (kernels/src/simd.rs says how); the numbers that are allowed \
         are in xtask/src/disassembly.rs",
    ))
}

/// Finds instructions that no function may have.
fn judge_instructions(function: &Function, name: &str, broken: &mut Vec<String>) {
    for (mnemonic, operands) in &function.instructions {
        let is_public = ON_PUBLIC_DATA
            .iter()
            .any(|(of, start)| name.contains(of) && mnemonic.starts_with(start));
        if !is_public && FORBIDDEN.iter().any(|start| mnemonic.starts_with(start)) {
            broken.push(format!("{name}: {mnemonic} {operands}"));
        }
        // The function itself: lanes are also among the parameters of the kernels' functions.
        if mnemonic == "call" && operands.contains(" <core::core_arch") {
            broken.push(format!("{name}: an intrinsic was not inlined: {operands}"));
        }
    }
}

/// Finds accesses to memory that a function with multiplies may not have, and returns a line about
/// it.
fn judge_multiplies(
    function: &Function,
    name: &str,
    lanes: Option<&Lanes>,
    broken: &mut Vec<String>,
) -> String {
    let in_memory = function.memory_factors();
    let allowed = MEMORY_FACTORS.iter().find(|(end, _)| name.ends_with(end));
    if let Some((_, allowed)) = allowed.filter(|(_, allowed)| in_memory > *allowed) {
        broken.push(format!(
            "{name}: {in_memory} multiplies read memory, {allowed} may"
        ));
    }
    let multiplies = function.multiplies();
    let spills = function.stack_accesses_in_multiply_loops();
    let allowed = match lanes.and_then(|lanes| lanes.spills) {
        Some(share) => (share * multiplies as f64) as usize,
        None => STACK_ACCESSES
            .iter()
            .find(|(end, _)| {
                LANES
                    .iter()
                    .any(|lanes| name.ends_with(&end.replace('#', lanes.name)))
            })
            .map_or(0, |(_, allowed)| *allowed),
    };
    if spills > allowed {
        broken.push(format!(
            "{name}: {spills} stack accesses in multiply loops, {allowed} allowed"
        ));
    }
    format!(
        "lint-asm: {name}: {} bytes, {multiplies} multiplies, {spills} stack accesses in multiply \
         loops, {allowed} allowed\n",
        function.size(),
    )
}

impl Function {
    /// The name without the paths of our modules; of a closure that runs behind the feature
    /// boundary, the name of the function that it is the body of.
    fn short_name(&self) -> String {
        let name = match self.name.split_once("::with_features::<") {
            Some((_, rest)) => {
                let body = rest.split_once(", ").map_or(rest, |(_, body)| body);
                body.rsplit_once("::{closure")
                    .map_or(body, |(body, _)| body)
            }
            None => &self.name,
        };
        let is_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let mut short = String::with_capacity(name.len());
        for part in name.split_inclusive(|c: char| !is_of_path(c)) {
            let path = part.trim_end_matches(|c| !is_of_path(c));
            let word = path.trim_end_matches("::");
            short.push_str(match word.rsplit_once("::") {
                Some((modules, last)) if !modules.is_empty() => last,
                _ => word,
            });
            short.push_str(&part[path.len()..]);
        }
        short
    }

    /// In bytes, the last instruction counted as one.
    fn size(&self) -> u64 {
        match (self.addresses.first(), self.addresses.last()) {
            (Some(first), Some(last)) => last - first + 1,
            _ => 0,
        }
    }

    /// The place in [`CODE_SIZES`].
    fn family(&self) -> usize {
        CODE_SIZES
            .iter()
            .position(|(_, parts, _)| parts.iter().any(|part| self.name.contains(part)))
            .unwrap_or(0)
    }

    /// Whether it has an instruction with such a name.
    fn has(&self, start: &str) -> bool {
        self.instructions
            .iter()
            .any(|(mnemonic, _)| mnemonic.starts_with(start))
    }

    fn multiplies(&self) -> usize {
        self.instructions
            .iter()
            .filter(|(mnemonic, _)| is_multiply(mnemonic))
            .count()
    }

    /// Multiplies with a factor in memory.
    fn memory_factors(&self) -> usize {
        self.instructions
            .iter()
            .filter(|(mnemonic, operands)| is_multiply(mnemonic) && operands.contains('['))
            .count()
    }

    /// Loads and stores of whole vectors on the stack, inside the innermost loops that multiply, or
    /// anywhere if the multiplies stand in no loop (unrolled code).
    fn stack_accesses_in_multiply_loops(&self) -> usize {
        let is_in = |range: &std::ops::RangeInclusive<u64>, test: fn(&str, &str) -> bool| {
            self.addresses
                .iter()
                .zip(&self.instructions)
                .filter(|(address, (mnemonic, operands))| {
                    range.contains(address) && test(mnemonic, operands)
                })
                .count()
        };
        let loops = self.loops();
        let multiply_loops: Vec<_> = loops
            .iter()
            .filter(|outer| is_in(outer, |mnemonic, _| is_multiply(mnemonic)) > 0)
            .filter(|outer| {
                !loops.iter().any(|inner| {
                    inner != *outer && outer.contains(inner.start()) && outer.contains(inner.end())
                })
            })
            .collect();
        match multiply_loops.is_empty() {
            true => is_in(&(0..=u64::MAX), |_, operands| is_stack_vector(operands)),
            false => multiply_loops
                .iter()
                .map(|range| is_in(range, |_, operands| is_stack_vector(operands)))
                .sum(),
        }
    }

    /// Where a jump goes back to, and the jump.
    fn loops(&self) -> Vec<std::ops::RangeInclusive<u64>> {
        let start = self.addresses.first().copied().unwrap_or_default();
        self.addresses
            .iter()
            .zip(&self.instructions)
            .filter(|(_, (mnemonic, _))| mnemonic.starts_with('j'))
            .filter_map(|(&from, (_, operands))| {
                let to = u64::from_str_radix(operands.split(' ').next()?, 16).ok()?;
                (start..=from).contains(&to).then_some(to..=from)
            })
            .collect()
    }
}

fn is_multiply(mnemonic: &str) -> bool {
    LANES
        .iter()
        .any(|lanes| mnemonic.starts_with(lanes.multiply))
}

/// Whether an instruction with these operands moves a whole vector to or from the stack.
fn is_stack_vector(operands: &str) -> bool {
    (operands.contains("zmm") || operands.contains("ymm"))
        && (operands.contains("[rsp") || operands.contains("[rbp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str =
        "lockstep_kernels::montgomery::multiply::<lockstep_kernels::simd::a::Lanes, 20>";
    const BEHIND: &str = "<lockstep_kernels::simd::a::Lanes as lockstep_kernels::simd::Simd>::enter\
        ::with_features::<(), <lockstep_kernels::modexp::Power<lockstep_kernels::simd::a::Lanes, 40>>\
        ::multiply_by_entry::{closure#0}>";

    /// A loop that multiplies, with one spill inside it and one outside.
    const SPILLING: &str = "
0000000000001000 <lockstep_kernels::multiply>:
    1000:\tvmovdqa64 ZMMWORD PTR [rsp+0x40],zmm1
    1008:\tvpmadd52luq zmm0,zmm1,zmm2
    100e:\tvmovdqa64 zmm3,ZMMWORD PTR [rsp]
    1014:\tdec    rax
    1016:\tjne    1008 <lockstep_kernels::multiply+0x8>
    1018:\tret
    1019:\tnop    DWORD PTR [rax+0x0]
";

    /// Every function that must be there, without a spill.
    fn good() -> String {
        let mut listing = String::new();
        for (lanes, name) in wanted(&[]) {
            listing += &SPILLING
                .replace(
                    "lockstep_kernels::multiply",
                    &format!("lockstep_kernels::{name}"),
                )
                .replace("vpmadd52luq", lanes.multiply);
        }
        listing.replace("[rsp]", "[rdi]")
    }

    #[test]
    fn names_lose_their_paths() {
        let short = |name: &str| {
            Function {
                name: name.to_owned(),
                addresses: vec![],
                instructions: vec![],
            }
            .short_name()
        };
        assert_eq!(short(PLAIN), "multiply<Lanes, 20>");
        assert_eq!(short(BEHIND), "<Power<Lanes, 40>>::multiply_by_entry");
    }

    #[test]
    fn spills_count_inside_multiply_loops_only() {
        let functions = parse(SPILLING);
        assert_eq!(functions.len(), 1);
        assert_eq!(functions[0].size(), 0x19);
        assert_eq!(functions[0].multiplies(), 1);
        assert_eq!(functions[0].stack_accesses_in_multiply_loops(), 1);
    }

    #[test]
    fn unrolled_code_counts_everywhere() {
        let functions = parse(&SPILLING.replace("jne    1008", "jne    1019"));
        assert_eq!(functions[0].stack_accesses_in_multiply_loops(), 2);
    }

    #[test]
    fn each_bad_instruction_is_found() {
        assert!(judge(&parse(&good())).is_ok());
        for bad in [
            "div    rcx",
            "vpgatherqq zmm0,[rax+zmm1*8]",
            "call   50 <core::core_arch::x>",
        ] {
            let listing = good().replacen("dec    rax", bad, 1);
            assert!(judge(&parse(&listing)).is_err(), "{bad}");
        }
        assert!(
            judge(&parse(&good().replacen("[rdi]", "[rsp]", 1))).is_err(),
            "a spill"
        );
        assert!(
            judge(&parse(&good().replacen("vpmadd52", "vpaddq", 1))).is_err(),
            "no multiply"
        );
        assert!(judge(&[]).is_err(), "no symbols");
    }

    #[test]
    fn code_that_outgrows_its_family_is_found() {
        for (index, (family, parts, allowed)) in CODE_SIZES.iter().enumerate() {
            let functions = parse(&good());
            let of_family = functions
                .iter()
                .filter(|function| function.family() == index);
            let left = allowed - of_family.map(Function::size).sum::<u64>();
            // With a function more, of the lanes and of the size in bytes.
            let judged = |lanes: &str, size: u64| {
                let module = parts.first().unwrap_or(&"rsa");
                let last = 0x10_0000 + size - 1;
                let listing = format!(
                    "0000000000100000 <{OURS}::{module}::grown<{lanes}>>:\n  100000:\tret\n  {last:x}:\tret\n"
                );
                judge(&parse(&(good() + &listing))).map_err(|failure| failure.to_string())
            };
            assert!(judged("Avx512Ifma", left).is_ok(), "{family}");
            let broken = judged("Avx512Ifma", left + 1).unwrap_err();
            let expected = format!(
                "the kernels of {family} take {} bytes of code, {allowed} are allowed",
                allowed + 1
            );
            assert!(broken.contains(&expected), "{broken}");
            assert!(
                judged("Portable", allowed + 1).is_ok(),
                "{family}: the oracle"
            );
        }
    }
}
