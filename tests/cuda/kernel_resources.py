# SPDX-License-Identifier: Apache-2.0
"""Compiles the hot kernels and reads the compiler's report: registers and spilled bytes.

usage: kernel_resources.py NVCC SOURCE_DIR ARCHITECTURE

Prints the worst kernel of each file; fails where a kernel of dense rows or elements spills more
than a few bytes, which is memory traffic that no source shows.
"""
import re
import subprocess
import sys

FILES = ["norm/cuda.cu", "softmax/softmax.cpp", "adamw/adamw.cpp"]
HOT = re.compile(r"DenseLine|Dense|Vector")
# The registers that a call of the compiler's division or square root saves.
MOST_SPILLED = 32


def report(nvcc, source, architecture, name):
    """Returns (spilled bytes, registers, mangled name) of each kernel of a file."""
    command = [nvcc, "-std=c++20", "--expt-relaxed-constexpr", "-diag-suppress=1835", "-O3",
               f"-arch=sm_{architecture}", f"-I{source}/include", f"-I{source}", "-DWEFT_WITH_CUDA",
               "-x", "cu", "-cubin", "-Xptxas=-v", "-o", "/dev/null",
               f"{source}/src/kernels/{name}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"nvcc failed on {name}:\n{done.stderr[-4000:]}")
    kernels = re.findall(r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, "
                         r"(\d+) bytes spill loads.*?Used (\d+) registers", done.stderr, re.DOTALL)
    if not kernels:
        sys.exit(f"nvcc reports no kernel of {name}.cu")
    return [(max(int(stores), int(loads)), int(registers), kernel)
            for kernel, stores, loads, registers in kernels]


def main():
    nvcc, source, architecture = sys.argv[1:4]
    too_many = []
    for name in FILES:
        kernels = report(nvcc, source, architecture, name)
        hot = [kernel for kernel in kernels if HOT.search(kernel[2])]
        spilled, registers, _ = max(kernels)
        print(f"{name}: {len(kernels)} kernels, at most {spilled} bytes spilled, "
              f"{max(k[1] for k in kernels)} registers; of {len(hot)} hot ones "
              f"{max((k[0] for k in hot), default=0)} bytes")
        too_many += [kernel for kernel in hot if kernel[0] > MOST_SPILLED]
    for spilled, registers, kernel in too_many:
        print(f"spills {spilled} bytes ({registers} registers): {kernel}")
    sys.exit(1 if too_many else 0)


main()
