"""Device kernels for sm_70, which nvcc 13 no longer supports: compiles the same source with NVRTC 12.9 (package
nvidia-cuda-nvrtc-cu12).

Usage: nvrtc.py --out FILE.cubin | --check. --check compiles and compares the result with the list of kernels. Exit
status 77: NVRTC is not installed. The library is found in this interpreter's packages; its headers are not needed."""

import argparse
import ctypes
import glob
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

# The kernels use only these names of the standard library; NVRTC has no standard headers.
HEADERS = {
    "cstdint": """namespace std { using int8_t = signed char; using uint8_t = unsigned char; using int16_t = short;
      using uint16_t = unsigned short;
using int32_t = int; using uint32_t = unsigned int; using int64_t = long; using uint64_t = unsigned long; }""",
    "span": "namespace std { template <class T> class span; }",
    "string_view": "namespace std { class string_view; }",
}


def library():
    found = glob.glob(os.path.join(sys.prefix, "lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"))
    return found[0] if found else None


def compile_cubin(path, arch):
    rtc = ctypes.CDLL(path)
    rtc.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(name, *args):
        status = getattr(rtc, name)(*args)
        if status != 0:
            raise RuntimeError(f"{name}: {rtc.nvrtcGetErrorString(status).decode()}")

    def text(size_of, get):
        size = ctypes.c_size_t()
        call(size_of, program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        call(get, program, buffer)
        return buffer.raw

    with open(os.path.join(HERE, "kernels.cu"), "rb") as f:
        source = f.read()
    names = (ctypes.c_char_p * len(HEADERS))(*(n.encode() for n in HEADERS))
    bodies = (ctypes.c_char_p * len(HEADERS))(*(b.encode() for b in HEADERS.values()))
    program = ctypes.c_void_p()
    call("nvrtcCreateProgram", ctypes.byref(program), source, b"kernels.cu", len(HEADERS), bodies, names)
    options = [
        f"--gpu-architecture={arch}",
        "--std=c++20",
        "--device-as-default-execution-space",
        f"-I{ROOT}",
        f"-I{ROOT}/harness",
        "-w",
    ]
    raw = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    if rtc.nvrtcCompileProgram(program, len(options), raw) != 0:
        raise RuntimeError(text("nvrtcGetProgramLogSize", "nvrtcGetProgramLog").decode())
    return text("nvrtcGetCUBINSize", "nvrtcGetCUBIN")


def kernel_names():
    with open(os.path.join(HERE, "kernel_list.hpp")) as f:
        names = re.findall(r"KERNEL\((kvcts_\w+),", f.read())
    with open(os.path.join(HERE, "kernels.cu")) as f:
        return names + re.findall(r'extern "C" __global__ void (kvcts_\w+)\(', f.read())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--arch", default="sm_70")
    options = parser.parse_args()
    path = library()
    if path is None:
        print("SKIPPED: NVRTC 12 is not installed (package nvidia-cuda-nvrtc-cu12==12.9.86): no kernels for sm_70")
        sys.exit(77)
    cubin = compile_cubin(path, options.arch)
    if options.out:
        with open(options.out, "wb") as f:
            f.write(cubin)
    if options.check:
        missing = [n for n in kernel_names() if b".text." + n.encode() + b"\0" not in cubin]
        assert not missing, f"not in the cubin: {missing}"
        print(f"{len(kernel_names())} kernels for {options.arch}, {len(cubin)} bytes")


if __name__ == "__main__":
    main()
