"""Measures a device of OpenCL: one command on a machine that has one, in a clone of the repository.

    python opencl/day.py [--device opencl:0] [--price USD] [--peer NAME=COMMAND ...] [--short]

It looks for OpenCL's loader and the device, runs the tests of crate `opencl` there, and measures
each operation on the device, on the threads of the CPU and on both, over numbers of items, while
`nvidia-smi` tells the power. CGBN of NVlabs runs beside it, if there is `nvcc`; the command of a
peer runs another program, such as gECC. The JSON document is the record from which `cargo xtask
figures` renders docs/benchmarks/devices.md.
"""

import argparse
import ctypes
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Of `lockstep-bench bulk`.
OPERATIONS = "rsa2048-sign rsa4096-sign x25519 p256-verify ed25519-verify".split()
LIBRARIES = {
    "libOpenCL.so.1": "apt-get install ocl-icd-libopencl1",
    "libnvidia-opencl.so.1": "it is a part of NVIDIA's driver: libnvidia-opencl1 in Debian, "
    "libnvidia-compute-VERSION in Ubuntu, of the version that nvidia-smi tells. A container has it "
    "from its host with NVIDIA_DRIVER_CAPABILITIES=compute,utility, and needs its name in "
    "/etc/OpenCL/vendors/nvidia.icd",
}
CGBN = """git clone -q --depth 1 https://github.com/NVlabs/CGBN {0} && cd {0}/perf_tests &&
nvcc -O3 -I../include -arch=native xmp_tester.cu -o xmp_tester -lgmp && ./xmp_tester"""


def run(*command, **environment):
    print("$", *command, file=sys.stderr, flush=True)
    environment = {**os.environ, **environment}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    return done.stdout if done.returncode == 0 else sys.exit(f"{command[0]} failed")


def with_power(gpu, *command):
    """What a command prints, and the watts: the mean of the upper quarter of the samples."""
    with tempfile.TemporaryFile("w+") as samples:
        query = ["nvidia-smi", f"--id={gpu}", "--query-gpu=power.draw", "--loop-ms=100",
                 "--format=csv,noheader,nounits"]
        sampler = shutil.which(query[0]) and subprocess.Popen(query, stdout=samples)
        text = run(*command)
        if sampler:
            sampler.kill()
            sampler.wait()
        samples.seek(0)
        watts = sorted(map(float, re.findall(r"(?m)^[\d.]+$", samples.read())))
        upper = watts[-(len(watts) // 4 + 1) :]
        return text, sum(upper) / len(upper) if upper else None


def peer(name, command):
    """The output of another program, or why there is none."""
    print("$", command, file=sys.stderr, flush=True)
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    if done.returncode:
        print(f"{name} is left out: {done.stderr.strip()[-300:]}", file=sys.stderr)
    output = (done.stderr if done.returncode else done.stdout).splitlines()
    return {"name": name, "command": command, "failed": done.returncode != 0, "output": output}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="opencl:0")
    parser.add_argument("--gpu", default="0", help="its number at nvidia-smi")
    parser.add_argument("--price", type=float, help="US dollars for an hour of the machine")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--short", action="store_true", help="few items: a trial of this program")
    parser.add_argument("--bench", type=pathlib.Path, help="`lockstep-bench` [default: built]")
    parser.add_argument("--json", type=pathlib.Path, help="the record [default: where it belongs]")
    options = parser.parse_args()
    for library, remedy in LIBRARIES.items():
        try:
            ctypes.CDLL(library)
        except OSError:
            print(f"{library} is missing: {remedy}.", file=sys.stderr)

    if not options.bench:
        run("cargo", "build", "--release", "--locked", "-p", "lockstep-bench")
    built = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release/lockstep-bench"
    bench = options.bench or built
    parts = re.split(r"(?m)^(?=opencl:)", run(bench, "devices"))
    listed = {part.split()[0]: part for part in parts if part}
    if options.device not in listed:
        sys.exit(f"OpenCL has no {options.device}. It has: {' '.join(listed)}")
    pattern = r"\S+ +(.*) \([^()]*, (.*)\)\n +(\d+) units, .* driver (.*)"
    product, platform, units, driver = re.match(pattern, listed[options.device]).groups()
    some = ["--test", "curves"] if options.short else []
    tests = run("cargo", "test", "--locked", "-p", "lockstep-opencl", *some,
                LOCKSTEP_TEST_DEVICE=options.device)
    idle = with_power(options.gpu, "sleep", "3")[1]
    rates = run(bench, "devices", "--rates").split(f"{options.device} ")[1].split("opencl:")[0]
    rates = re.findall(r"(?m)^ *(\w\S+) +([\d,.]+) +([\d,.]+) +(never|[\d,.]+) *$", rates)
    sizes, seconds = (["64"], "0.05") if options.short else (["64", "1000", "10000", "200000"], "5")
    calls = []
    for op in OPERATIONS:
        for items in sizes:
            text, watts = with_power(options.gpu, bench, "bulk", op, "--device", options.device,
                                     "--items", items, "--threads", "all", "--seconds", seconds,
                                     "--json")
            document = json.loads(text)
            rows = {row["impl"]: row for row in document["rows"]}
            calls.append({"op": op, "items": rows["lockstep"]["items"], "watts": watts,
                          "threads": rows["lockstep"]["ops_per_s"],
                          "both": rows["lockstep+device"]["ops_per_s"]})
    peers = [peer(*text.split("=", 1)) for text in options.peer]
    if shutil.which("nvcc"):
        with tempfile.TemporaryDirectory() as directory:
            peers.append(peer("CGBN", CGBN.format(f"{directory}/cgbn")))
    else:
        print("CGBN is left out: there is no nvcc.", file=sys.stderr)
    today = datetime.date.today().isoformat()
    record = {
        "date": today, "commit": run("git", "rev-parse", "HEAD").strip(), "short": options.short,
        "machine": document["machine"], "product": product, "platform": platform,
        "units": int(units), "driver": driver, "idle_watts": idle,
        "tests": sum(map(int, re.findall(r"(\d+) passed", tests))),
        "price_per_hour": options.price, "calls": calls, "peers": peers,
        "rates": [{"op": op, "device": float(own.replace(",", "")),
                   "threads": float(threads.replace(",", "")), "pays_from": pays.removesuffix(".0")}
                  for op, own, threads, pays in rates],
    }
    name = f"{today}-{re.sub(r'[^a-z0-9]+', '-', product.lower()).strip('-')}"
    path = options.json or ROOT / "docs/benchmarks/record" / name / "device.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
