"""Submissions for qr_v2 that go wrong or are unusual, and what the user is to read."""

import dataclasses

HONEST = "return torch.geqrf(data)"


@dataclasses.dataclass
class Case:
    """A submission and its verdict; words are regular expressions."""

    source: str
    fields: dict = dataclasses.field(default_factory=dict)
    state: str = "succeeded"
    # Words in the error; there is none where this is None.
    error: str | None = None
    # A kernel that the report holds, and one that it does not.
    captured: str | None = None
    absent: str | None = None
    # Streams that the report's launches are on, at least.
    streams: int = 1


def submission(body, head=""):
    indented = "\n    ".join(body.splitlines())
    return f"import torch\n{head}\ndef custom_kernel(data):\n    {indented}\n"


def inline(name, source, **options):
    """The head of a submission that compiles an inline extension as `module`."""
    given = "".join(f"    {key}={value!r},\n" for key, value in options.items())
    return f'''
import os
os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"
from torch.utils.cpp_extension import load_inline
module = load_inline(
    name="{name}",
    cuda_sources=r"""{source}""",
{given})
'''


def native(source, arch=""):
    """The head of a submission that compiles CUDA into a plain library and calls its function `launch`: `nvcc` needs seconds
    for that, since it reads no header of PyTorch. `launch` returns the text of an error, or nothing."""
    return f'''
import ctypes, pathlib, shutil, subprocess, tempfile
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "kernels.cu").write_text(r"""{source}""")
arch = "{arch}" or "".join(map(str, torch.cuda.get_device_capability()))
subprocess.run(
    [shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc", "-shared", "-Xcompiler", "-fPIC", "-gencode",
     f"arch=compute_{{arch}},code=sm_{{arch}}", "-o", folder / "kernels.so", folder / "kernels.cu"],
    check=True,
)
library = ctypes.CDLL(str(folder / "kernels.so"))
library.launch.restype = ctypes.c_char_p

def launch(x, *numbers):
    error = library.launch(ctypes.c_void_p(x.data_ptr()), *map(ctypes.c_long, numbers))
    if error:
        raise RuntimeError("CUDA error: " + error.decode())
'''


TOUCH = """
__global__ void touch_kernel(float *x, long offset) { x[offset + threadIdx.x] = 1.0f; }
extern "C" const char *launch(float *x, long offset) {
    touch_kernel<<<1, 32>>>(x, offset);
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
"""

INLINE_TOUCH = """
#include <torch/extension.h>
__global__ void touch_kernel(float *x) { x[threadIdx.x] = 1.0f; }
void touch(torch::Tensor x) { touch_kernel<<<1, 32>>>(x.data_ptr<float>()); }
"""

COOPERATIVE = """
#include <cooperative_groups.h>
__global__ void cooperative_kernel(float *x) {
    int all = gridDim.x * blockDim.x, at = blockIdx.x * blockDim.x + threadIdx.x;
    x[at] = at;
    cooperative_groups::this_grid().sync();
    x[all + at] = x[all - 1 - at];
}
extern "C" const char *launch(float *x) {
    void *arguments[] = {&x};
    cudaError_t error = cudaLaunchCooperativeKernel((const void *)cooperative_kernel, 64, 128, arguments, 0, 0);
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
"""

TRITON = """
import triton
import triton.language as tl

@triton.jit
def add_one(x, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) + 1)
"""

GRAPH = """
x = torch.zeros(4096, device='cuda')
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    x.add_(1)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    x.mul_(2)
graph.replay()
"""

STREAMS = """
streams = [torch.cuda.Stream() for _ in range(3)]
for stream in streams:
    with torch.cuda.stream(stream):
        torch.ones(4096, device='cuda').cos_()
torch.cuda.synchronize()
"""

# The evaluator's own process may not have children by multiprocessing: it is one, and a daemon.
CHILD = """
import subprocess, sys
subprocess.run([sys.executable, '-c', "import torch; torch.ones(8, device='cuda').cos_(); torch.cuda.synchronize()"], check=True)
"""

CASES = {
    # The long ones first: nothing waits for them at the end.
    "inline CUDA": Case(
        submission(
            "module.touch(torch.zeros(64, device='cuda'))\n" + HONEST,
            inline("good", INLINE_TOUCH, cpp_sources="void touch(torch::Tensor x);", functions=["touch"]),
        ),
        captured="touch_kernel",
    ),
    "child process with kernels of its own": Case(submission(CHILD + HONEST), captured="geqr2", absent="cos_kernel"),
    "kernels only in a child process": Case(
        submission(CHILD + "return data, torch.empty(data.shape[:2], device='cuda')"),
        state="failed",
        error="No kernel was captured: custom_kernel launched none",
    ),
    "honest": Case(submission(HONEST), captured="geqr2"),
    "import error": Case(submission(HONEST, "import no_such_module"), state="failed", error="ModuleNotFoundError"),
    "compile error": Case(
        # Without PyTorch's headers the compiler fails at once.
        submission(
            HONEST,
            inline("bad", "__global__ void k() { undefined_thing(); }", cpp_sources="", no_implicit_headers=True),
        ),
        state="failed",
        error=r"\.cu\(\d+\): error: identifier .undefined_thing. is undefined",
    ),
    "wrong answer": Case(
        submission("return torch.zeros_like(data), torch.zeros(data.shape[:2], device='cuda')"),
        error="The evaluator found the answer wrong",
        captured="FillFunctor|fill|vectorized_elementwise",
    ),
    "no kernel image": Case(
        submission("launch(torch.zeros(64, device='cuda'), 0)\n" + HONEST, native(TOUCH, arch="75")),
        state="failed",
        error="no kernel image",
    ),
    "illegal address": Case(
        submission("launch(torch.zeros(64, device='cuda'), 1 << 44)\ntorch.cuda.synchronize()\n" + HONEST, native(TOUCH)),
        state="failed",
        error="illegal memory access|illegal address",
    ),
    "GPU out of memory": Case(
        submission("torch.empty(400 << 30, dtype=torch.uint8, device='cuda')"), state="failed", error="CUDA out of memory"
    ),
    "host out of memory": Case(
        submission("hoard = bytearray(64 << 30)\nhoard[::4096] = b'x' * len(hoard[::4096])\nreturn hoard"),
        state="failed",
        error="memory limit of",
    ),
    "no kernel": Case(
        submission("return data, torch.empty(data.shape[:2], device='cuda')"),
        state="failed",
        error="No kernel was captured: custom_kernel launched none",
    ),
    "filter that matches nothing": Case(
        submission(HONEST), {"ncu_kernel_name": "no_such_kernel"}, state="failed", error="no_such_kernel"
    ),
    "filter": Case(submission(HONEST), {"ncu_kernel_name": "regex:geqr2", "ncu_launch_count": "1"}, captured="geqr2"),
    "Triton": Case(
        submission("x = torch.zeros(4096, device='cuda')\nadd_one[(4,)](x, BLOCK=1024)\n" + HONEST, TRITON),
        captured="add_one",
    ),
    "CUDA graph": Case(submission(GRAPH + HONEST), captured="MulFunctor|mul"),
    "several streams": Case(submission(STREAMS + HONEST), captured="cos", streams=4),
    "cooperative launch": Case(
        submission(
            "x = torch.zeros(2 * 64 * 128, device='cuda')\nlaunch(x)\ntorch.cuda.synchronize()\n"
            "values = x.cpu()\nassert bool((values[64 * 128:] == values[:64 * 128].flip(0)).all()), 'the grid did not wait'\n"
            + HONEST,
            native(COOPERATIVE),
        ),
        captured="cooperative_kernel",
    ),
    "half a million bytes of source, not ASCII": Case(submission(HONEST, "# κ" + "é" * 250_000), captured="geqr2"),
}
