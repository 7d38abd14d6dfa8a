"""What ptxas and the disassembler report about the device kernels: no spills, no local memory, 16-byte accesses, every
kernel on every architecture. Usage: machine_code_test.py PTXAS_REPORT ARCHS. Exit status 77: skipped, with the reason.

Evidence of the kind `compiled`: it says what was built, not that it ran.
"""

import glob
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

# Kernels that move memory in bulk, with the accesses that their main loop must have.
WIDE = {
    "kvcts_generate_rows": ("STG",),
    "kvcts_check_rows": ("LDG",),
    "kvcts_write_poison": ("STG",),
    "kvcts_check_poison": ("LDG",),
    "kvcts_compare": ("LDG",),
    "kvcts_digest": ("LDG",),
    "kvcts_read": ("LDG",),
    "kvcts_relayout": ("LDG", "STG"),
    "kvcts_scatter": ("LDG", "STG"),
    "kvcts_gather": ("LDG", "STG"),
}
# Registers that a thread may use so that 1024 threads fit on a multiprocessor (65536 registers).
MOST_REGISTERS = 64
# Kernels that may use local memory, with the reason.
LOCAL_MEMORY_ALLOWED = {}


def fail(problems):
    print("\n".join(problems))
    sys.exit(1)


def kernel_names():
    """Names of kernels.cu and of the list that it includes."""
    with open(os.path.join(HERE, "kernel_list.hpp")) as f:
        names = re.findall(r"KERNEL\((kvcts_\w+),", f.read())
    with open(os.path.join(HERE, "kernels.cu")) as f:
        names += re.findall(r'extern "C" __global__ void (kvcts_\w+)\(', f.read())
    return sorted(names)


def ptxas_facts(path):
    """(arch, kernel) -> {stack, stores, loads, registers}."""
    facts, key = {}, None
    with open(path) as f:
        for line in f:
            if m := re.search(r"Compiling entry function '(\w+)' for '(sm_\w+)'", line):
                key = (m[2], m[1])
            elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
                facts[key] = dict(stack=int(m[1]), stores=int(m[2]), loads=int(m[3]))
            elif m := re.search(r"Used (\d+) registers", line):
                facts[key]["registers"] = int(m[1])
    return facts


def check_report(path, archs):
    facts, problems = ptxas_facts(path), []
    for arch in archs:
        for kernel in kernel_names():
            fact = facts.get((f"sm_{arch}", kernel))
            if fact is None:
                problems.append(f"sm_{arch}: ptxas says nothing of {kernel}")
                continue
            if any(fact[k] for k in ("stack", "stores", "loads")) and kernel not in LOCAL_MEMORY_ALLOWED:
                problems.append(
                    f"sm_{arch} {kernel}: {fact['stack']} bytes of stack, {fact['stores']} + {fact['loads']} bytes spilled"
                )
            if fact["registers"] > MOST_REGISTERS:
                problems.append(f"sm_{arch} {kernel}: {fact['registers']} registers, at most {MOST_REGISTERS} are wanted")
    if problems:
        fail(problems)
    registers = [facts[(f"sm_{a}", k)]["registers"] for a in archs for k in kernel_names()]
    print(
        f"{len(archs)} architectures, {len(kernel_names())} kernels each: no spills, no stack, {max(registers)} "
        f"registers at most"
    )


def tool(name):
    wheels = glob.glob(os.path.join(sys.prefix, "lib/python3*/site-packages/nvidia/cu13/bin", name))
    return shutil.which(name) or next(iter(wheels), None) or shutil.which(name, path="/usr/local/cuda/bin")


def accesses(sass):
    """kernel -> {"LDG": widths, "STG": widths, "local": count} of one disassembly."""
    found, kernel = {}, None
    for line in sass.splitlines():
        if m := re.search(r"(?:Function : |\.text\.)(kvcts_\w+)", line):
            kernel = found.setdefault(m[1], {"LDG": set(), "STG": set(), "local": 0})
        elif kernel is not None:
            for what, width in re.findall(r"\b(LDG|STG)\.E(?:\.\w+)*?\.(128|64)\b", line):
                kernel[what].add(int(width))
            if re.search(r"\b(LDL|STL)\b", line):
                kernel["local"] += 1
    return found


def check_machine_code(fatbin, archs):
    cuobjdump = tool("cuobjdump")
    if cuobjdump is None or tool("nvdisasm") is None:
        print("SKIPPED the disassembly: no cuobjdump and nvdisasm (packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm)")
        return
    os.environ["PATH"] = os.path.dirname(tool("nvdisasm")) + ":" + os.environ["PATH"]
    problems = []
    for arch in archs:
        ran = subprocess.run([cuobjdump, "-sass", "-arch", f"sm_{arch}", fatbin], capture_output=True, text=True)
        code = accesses(ran.stdout)
        if not code:
            problems.append(f"sm_{arch}: no machine code: {ran.stderr.strip()}")
        for kernel, wanted in WIDE.items():
            for what in wanted:
                if code and 128 not in code[kernel][what]:
                    problems.append(f"sm_{arch} {kernel}: no {what} of 128 bits")
        # Families 10 and 12 convert to fp4 with one instruction, on their `a` targets.
        if re.fullmatch(r"1\d\da", arch) and "E2M1" not in ran.stdout:
            problems.append(f"sm_{arch}: fp4 conversions in software")
        for kernel, found in code.items():
            if found["local"] and kernel not in LOCAL_MEMORY_ALLOWED:
                problems.append(f"sm_{arch} {kernel}: {found['local']} accesses to local memory")
    if problems:
        fail(problems)
    print(f"{len(archs)} disassemblies: 128-bit loads and stores where memory is moved in bulk, no local memory")


def main():
    report, archs = sys.argv[1], sys.argv[2].split(";")
    if not os.path.exists(report):
        print("SKIPPED: this build has no device kernels (no nvcc)")
        sys.exit(77)
    check_report(report, archs)
    check_machine_code(os.path.join(os.path.dirname(report), "kernels.fatbin"), archs)


if __name__ == "__main__":
    main()
