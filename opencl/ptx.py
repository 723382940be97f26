"""Reads from the kernels, without a device, what they cost on GPUs of NVIDIA, and runs them.

    apt-get install clang-19 libclc-19 gcc
    pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm
    python opencl/ptx.py [--arch sm_80,sm_90] [--source DIRECTORY] [KERNEL ...]

clang compiles a kernel to PTX, NVIDIA's language for its assembler. A translation to C runs the PTX
for one item, whose result must be right; it counts how often each line runs. `ptxas` assembles the
PTX, and `nvdisasm` tells the line of each instruction. The sum is the instructions of one item.

The bound of a device: a multiprocessor has four schedulers. For 32 items, IMAD.WIDE and IMAD.HI
keep one busy for four cycles; other IMAD, and additions, moves and logic beside them, for two (CUDA
C++ Programming Guide, "Arithmetic Instructions"; Abdelkhalik et al., "Demystifying the Nvidia
Ampere Architecture", 2022, table V). The device's memory has to deliver what is read from tables.
"""

import argparse
import collections
import ctypes
import hashlib
import pathlib
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

# Multiprocessors, GHz, GB/s of memory, architecture.
DEVICES = {
    "H100": (132, 1.98, 3350, "sm_90"),
    "L40S": (142, 2.52, 864, "sm_89"),
    "RTX 4090": (128, 2.52, 1008, "sm_89"),
}
R = random.Random(7)
# The instructions that clang uses, in C.
PRELUDE = """
#include <stdint.h>
#define u32(a) (uint64_t)(uint32_t)(a)
#define mov(d, a) d = (typeof(d))(a)
#define cvt(d, a, type) d = (type)(a)
#define neg(d, a) d = -(a)
#define not(d, a) d = ~(a)
#define not_pred(d, a) d = !(a)
#define add(d, a, b) d = a + b
#define sub(d, a, b) d = a - b
#define and(d, a, b) d = a & b
#define or(d, a, b) d = a | b
#define xor(d, a, b) d = a ^ b
#define shl(d, a, b) d = b < 8 * sizeof d ? (typeof(d))(a) << b : 0
#define shr(d, a, b, type) d = (type)(a) >> (b < 8 * sizeof d ? b : 8 * sizeof d - 1)
#define clz(d, a) d = a ? __builtin_clz(a) : 32
#define bfe(d, a, b, c) d = (a) >> b & (((typeof(d))1 << c) - 1)
#define shf_l(d, a, b, c) d = (u32(b) << 32 | u32(a)) << (c & 31) >> 32
#define shf_r(d, a, b, c) d = (u32(b) << 32 | u32(a)) >> (c & 31)
#define selp(d, a, b, p) d = p ? a : b
#define mul_lo(d, a, b) d = (a) * (b)
#define mul_hi(d, a, b) d = u32(a) * u32(b) >> 32
#define mul_wide(d, a, b, type) d = (type)(a) * (typeof(d))(type)(b)
#define mad_lo(d, a, b, c) d = (a) * (b) + (c)
#define mad_wide(d, a, b, c, type) d = (type)(a) * (typeof(d))(type)(b) + c
#define sum(d, value) wide = value, d = wide
#define carry (wide >> 32 & 1)
"""


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stderr}{command[0]} failed")
    return done.stdout + done.stderr


def tool(name):
    """The path of a program of NVIDIA's wheels."""
    wheels = pathlib.Path(sysconfig.get_path("purelib"), "nvidia")
    found = shutil.which(name) or next(map(str, wheels.glob(f"*/bin/{name}")), None)
    return found or sys.exit(f"{name} is missing: see the head of this program")


def compiled(source, file, kernel, limbs, to, inline=True):
    """The PTX of one kernel, with all functions inlined, as NVIDIA's own compiler does it."""
    shared = ["montgomery.cl"] if limbs > 8 else ["montgomery.cl", "curve.cl"]
    texts = [source / name for name in [*shared, file]]
    text = "".join(path.read_text() for path in texts if path.exists())
    text = re.sub(r"(?m)^(?=(void|uint|bool|Point) \w+\()", "INLINED ", text)
    kernels = re.findall(r"(?ms)^__kernel void (\w+)\(.*?^}\n", text)
    for other in set(kernels) - {kernel}:
        text = re.sub(rf"(?ms)^__kernel void {other}\(.*?^}}\n", "", text)
    to.with_suffix(".cl").write_text(text)
    inlined = f"static inline{' __attribute__((always_inline))' * inline}"
    run("clang-19", "-w", "-x", "cl", "-cl-std=CL1.2", "-O3", "-S", "-target", "nvptx64--nvidiacl",
        "-march=sm_80", "-Xclang", "-mlink-builtin-bitcode", "-Xclang",
        "/usr/lib/clc/nvptx64--nvidiacl.bc", f"-DLIMBS={limbs}", "-DUNROLLED", "-Dasm=__asm__",
        "-D__NV_CL_C_VERSION=120", f"-DINLINED={inlined}",
        f"-DPOINT_WORDS={24 if file == 'p256.cl' else 32}", "-o", to, to.with_suffix(".cl"))
    # Loops stay loops, so that each instruction stands once.
    text = re.sub(r"(?m)^(\$L\w+:.*)$", r'\1 .pragma "nounroll";', to.read_text())
    to.write_text(text)
    return text


def translated(ptx, kernel):
    """The kernel in C, and for each line of PTX the number of its counter."""
    parameters = re.findall(rf"\.param \.([bus]\d+)\S* {kernel}_param_(\d+)", ptx)
    lines, counters, block = [], {}, 0
    text = re.sub(r"//.*|\{ \.reg \.b32 tmp; (.*) \}", r"\1", ptx).splitlines()
    parts = ((number, part.strip()) for number, line in enumerate(text, 1)
             for part in re.split(r"(?<=;)\s+(?=\w)", line.strip()))
    for number, line in parts:
        counters[number] = block
        if label := re.match(r"\$(L\w+):", line):
            block += 1
            counters[number] = block
            lines.append(f"{label[1]}: counts[{block}]++;")
        elif register := re.match(r"\.reg \.(\w+)\s+%(\w+)<(\d+)>", line):
            kind = {"pred": "uint32_t", "b64": "uint64_t"}.get(register[1], "uint32_t")
            names = ", ".join(f"{register[2]}{i}" for i in range(int(register[3])))
            lines.append(f"{kind} {names};")
        elif local := re.match(r"\.local .*\s(\w+)\[(\d+)\]", line):
            lines.append(f"uint64_t SP, SPL; _Alignas(16) char {local[1]}[{local[2]}];")
        elif found := re.match(r"(?:@(!?)%(p\d+)\s+)?([a-z][\w.]*)(?:\s+(.*))?;", line):
            negated, predicate, op, arguments = found.groups()
            lines.append((f"if ({negated}{predicate}) " if predicate else "")
                         + f"{{ {statement(op, arguments or '')}; }}")
            if op.startswith("bra"):
                block += 1
                lines.append(f"counts[{block}]++;")
        elif not re.match(r"[{}()]?$|\.(version|target|address|visible|param|reg.*%SP)", line):
            sys.exit(f"not known in PTX: {line}")
    head = ", ".join(f"uint{kind[1:]}_t {kernel}_param_{number}" for kind, number in parameters)
    head = f"uint64_t counts[{block + 1}]; void {kernel}({head}) {{"
    start = "uint64_t wide = 0; uint32_t tmp; counts[0]++;"
    return "\n".join([PRELUDE, head, start, *lines, "}"]), counters


def statement(op, arguments):
    """An instruction in C."""
    special = {"%tid.x": "0", "%ctaid.x": "0", "%ntid.x": "64", "%envreg3": "0"}
    for name, value in special.items():
        arguments = arguments.replace(name, value)
    arguments = arguments.replace("%", "").replace("$", "")
    base, *mods = op.split(".")
    kind = f"{'int' if mods and mods[-1][0] == 's' else 'uint'}{mods[-1][1:]}_t" if mods else ""
    if base in ("ret", "bra"):
        return "return" if base == "ret" else f"goto {arguments}"
    if base == "ld" and "param" in mods:
        return re.sub(r"(\S+),\s+\[(\w+)\]", r"\1 = \2", arguments)
    if base in ("ld", "st"):
        address = re.search(r"\[(.*)\]", arguments)[1]
        values = re.findall(r"\w+", arguments.replace(f"[{address}]", ""))
        places = [f"(({kind} *)({address}))[{i}]" for i in range(len(values))]
        pairs = zip(values, places) if base == "ld" else zip(places, values)
        return "; ".join(f"{to} = {of}" for to, of in pairs)
    if base == "mov" and "{" in arguments:
        words_of = re.fullmatch(r"\{(\w+), (\w+)\}, (\w+)", arguments)
        if not words_of:
            return re.sub(r"(\w+), \{(\w+), (\w+)\}", r"\1 = u32(\3) << 32 | \2", arguments)
        return "{0} = {2}; {1} = {2} >> 32".format(*words_of.groups())
    if base == "setp":
        sign = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}[mods[0]]
        out, a, b = arguments.split(", ")
        return f"{out} = ({kind})({a}) {sign} ({kind})({b})"
    if "cc" in mods or base in ("addc", "subc", "madc"):
        out, *terms = arguments.split(", ")
        if base[:3] == "mad":
            product = f"u32({terms[0]}) * u32({terms[1]})"
            terms = [f"({product} >> 32)" if "hi" in mods else product, terms[2]]
        sign = "-" if base[:3] == "sub" else "+"
        value = f"u32({terms[0]}) {sign} u32({terms[1]})" + f" {sign} carry" * (base[3:] == "c")
        # Without `cc` the flag stays, but no kernel uses it again.
        return f"sum({out}, {value})"
    name = base + "".join(f"_{mod}" for mod in mods if mod in ("lo", "hi", "wide", "l", "r"))
    if base in ("shr", "cvt") or "wide" in mods:
        arguments += f", {kind}"
    return f"{'not_pred' if op == 'not.pred' else 'mov' if base == 'cvta' else name}({arguments})"


class Item:
    """A kernel that runs for one item."""

    def __init__(self, c, counters, kernel, directory):
        (directory / "item.c").write_text(c)
        self.counters, self.parameters = counters, c.count(f"_t {kernel}_param_")
        library = tempfile.mktemp(".so", dir=directory)
        run("gcc", "-O1", "-w", "-shared", "-fPIC", "-o", library, directory / "item.c")
        self.library, self.kernel = ctypes.CDLL(library), kernel
        self.blocks = int(re.search(r"counts\[(\d+)\]", c)[1])

    def __call__(self, *arguments):
        ctypes.memset(self.counts(), 0, 8 * self.blocks)
        getattr(self.library, self.kernel)(*arguments)

    def counts(self):
        return (ctypes.c_uint64 * self.blocks).in_dll(self.library, "counts")


def words(*numbers, of):
    """An array of numbers of so many words."""
    number = sum(value << 32 * of * place for place, value in enumerate(numbers))
    array = (ctypes.c_uint32 * (of * len(numbers)))()
    array[:] = [number >> 32 * place & 0xFFFFFFFF for place in range(len(array))]
    return array


def value(array, start=0, of=None):
    return sum(word << 32 * i for i, word in enumerate(array[start : start + (of or len(array))]))


def odd(bits):
    """A random odd number with its highest bit."""
    return R.getrandbits(bits) | 1 << bits - 1 | 1


def key(n, limbs, *rest):
    """A row of the kernels' keys."""
    row = [*words(n, (1 << 64 * limbs) % n, of=limbs), -pow(n, -1, 1 << 32) % (1 << 32), *rest]
    return (ctypes.c_uint32 * len(row))(*row)


def half(item, limbs):
    """One half of an RSA signature."""
    p, d, c = odd(32 * limbs), R.getrandbits(32 * limbs), R.getrandbits(64 * limbs)
    row = key(p, limbs, *words(d, 0, of=limbs))
    tables, powers = words(0, of=16 * limbs), words(0, of=limbs)
    item(row, len(row), words(0, of=1), words(c, of=2 * limbs), tables, powers, 1)
    assert value(powers) == pow(c, d, p), "c^d mod p is wrong"


def public(item, limbs):
    """A check of an RSA signature, with the exponent 65537."""
    n = odd(32 * limbs)
    s, out = R.randrange(n), words(0, of=limbs)
    row = key(n, limbs, 65537)
    item(row, len(row), words(0, of=1), words(s, of=limbs), out, 1)
    assert value(out) == pow(s, 65537, n), "s^e mod n is wrong"


def agreement(item, _):
    """The first vector of RFC 7748, section 5.2."""
    k = "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"
    u = "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"
    expected = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    numbers = [int.from_bytes(bytes.fromhex(text), "little") for text in (k, u)]
    out = words(0, of=8)
    item(words(*numbers, of=8), out, 1)
    assert bytes(out).hex() == expected, "X25519 is wrong"


def verdict(item, claim, base):
    table = words(0, of=16 * 4 * 8)
    base(table)
    for change, expected in ((0, 1), (1, 0)):
        out, row = words(0, of=1), (ctypes.c_uint32 * 40)(*claim)
        row[16] ^= change
        item(row, table, words(0, of=16 * 4 * 8), out, 1)
        assert out[0] == expected, "a verdict is wrong"


def ed25519(item, _, base):
    """The first vector of RFC 8032, section 7.1."""
    key = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    signature = bytes.fromhex(
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b")
    digest = hashlib.sha512(signature[:32] + key).digest()
    verdict(item, memoryview(key + signature + digest).cast("I"), base)


def p256(item, _, base):
    """The vector of RFC 6979, section A.2.5, with SHA-256 and the message "sample"."""
    numbers = (
        0x60FED4BA255A9D31C961EB74C6356D68C049B8923B61FA6CE669622E60F29FB6,
        0x7903FE1008B8BC99A41AE9E95628BC64F2F1B20C2D7E9F5177A3C294D4462299,
        0xEFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716,
        0xF7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8,
        int.from_bytes(hashlib.sha256(b"sample").digest()),
    )
    verdict(item, words(*numbers, of=8), base)


# Name: file, kernel, words of a number, check, kernel of a table.
KERNELS = {
    "RSA-1024, a half": ("rsa.cl", "halves", 16, half, None),
    "RSA-2048, a half": ("rsa.cl", "halves", 32, half, None),
    "RSA-3072, a half": ("rsa.cl", "halves", 48, half, None),
    "RSA-4096, a half": ("rsa.cl", "halves", 64, half, None),
    "RSA-2048, public": ("rsa.cl", "power", 64, public, None),
    "X25519": ("curve25519.cl", "x25519", 8, agreement, None),
    "Ed25519 verification": ("curve25519.cl", "ed25519_verify", 8, ed25519, "ed25519_base"),
    "P-256 verification": ("p256.cl", "p256_verify", 8, p256, "p256_base"),
}


def executed(sass, counters, counts):
    """How often the instructions run for one item."""
    total, line = collections.Counter(), 0
    for text in sass.splitlines():
        if place := re.search(r'"\.nv_debug_ptx_txt", line (\d+)', text):
            line = int(place[1])
        if found := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", text):
            total[found[1]] += counts[counters[line]]
    return total


def groups(total):
    """Sums of instructions by what they cost."""
    out = collections.Counter()
    for op, count in total.items():
        base = op.split(".")[0]
        if op.startswith(("IMAD.WIDE", "IMAD.HI")):
            out["wide"] += count
        elif base == "IMAD":
            out["mad"] += count
        elif base in ("LDG", "STG", "LDL", "STL", "LD", "ST", "LDC", "LDS", "STS"):
            out["memory"] += count
            if op.startswith("LDG"):
                out["bytes"] += count * int((re.search(r"\.(64|128)", op) or [0, 32])[1]) // 8
        elif base not in ("NOP", "BRA", "EXIT", "BSSY", "BSYNC", "WARPSYNC", "CALL", "RET"):
            out["other"] += count
        out["all"] += count
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernels", nargs="*", help="parts of names")
    parser.add_argument("--arch", default="sm_80,sm_89,sm_90,sm_121")
    parser.add_argument("--source", type=pathlib.Path,
                        default=pathlib.Path(__file__).parent / "src/kernels")
    options = parser.parse_args()
    ptxas, nvdisasm = tool("ptxas"), tool("nvdisasm")
    print("| kernel | registers, spills, stack | IMAD.WIDE | IMAD | others | bytes read |",
          *(f"{name}: bound, memory, 60 % |" for name in DEVICES))
    print("|---" * (6 + len(DEVICES)) + "|")
    for name, (file, kernel, limbs, check, base) in KERNELS.items():
        if options.kernels and not any(part in name for part in options.kernels):
            continue
        with tempfile.TemporaryDirectory() as directory:
            directory = pathlib.Path(directory)

            def item(kernel):
                ptx = compiled(options.source, file, kernel, limbs, directory / f"{kernel}.ptx")
                return Item(*translated(ptx, kernel), kernel, directory)

            of_kernel = item(kernel)
            check(of_kernel, limbs, *([item(base)] if base else []))
            runs = of_kernel.counts()
            mixes, cells = {}, []
            for arch in options.arch.split(","):
                cubin = directory / f"{arch}.cubin"
                log = run(ptxas, f"-arch={arch}", "-v", "-lineinfo", directory / f"{kernel}.ptx",
                          "-o", cubin)
                used = re.search(r"Used (\d+) registers", log)[1]
                sizes = re.search(r"(\d+) bytes stack frame, (\d+) .*?, (\d+)", log).groups()
                stack, stores, loads = map(int, sizes)
                cells.append(f"{arch}: {used}, {stores + loads}, {stack}")
                sass = run(nvdisasm, "-gp", "-c", cubin)
                mixes[arch] = groups(executed(sass, of_kernel.counters, runs))
            times = 2 if "half" in name else 1
            mix = mixes.get("sm_90") or mixes[arch]
            row = [name, "<br>".join(cells)]
            row += [f"{mix[kind]:,}" for kind in ("wide", "mad", "other", "bytes")]
            for multiprocessors, clock, memory, arch in DEVICES.values():
                mix = mixes.get(arch) or mixes[options.arch.split(",")[-1]]
                cycles = max(4 * mix["wide"] + 2 * mix["mad"], 2 * mix["other"], mix["all"])
                bound = multiprocessors * clock * 1e9 * 4 * 32 / cycles / times
                by_memory = memory * 1e9 / max(mix["bytes"], 1) / times
                rates = (bound, by_memory, 0.6 * bound)
                row.append(", ".join(f"{rate / 1e6:.3g} M" for rate in rates))
            print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
