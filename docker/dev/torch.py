"""Stands in for PyTorch on machines without a GPU, in so far as an evaluator needs it around a call: NVTX ranges, and waiting
for the GPU. Nothing computes here, and no value is a Tensor.
"""

import contextlib
import sys
import types

import standin_gpu


class Tensor:
    """What no value is."""


cuda = types.ModuleType("torch.cuda")
nvtx = types.ModuleType("torch.cuda.nvtx")


@contextlib.contextmanager
def _range(name):
    # Looked up at each use, as PyTorch does.
    nvtx.range_push(name)
    try:
        yield
    finally:
        nvtx.range_pop()


cuda.nvtx = nvtx
# A launch returns when its function has run.
cuda.synchronize = lambda: None
nvtx.range, nvtx.range_push, nvtx.range_pop = _range, standin_gpu.range_push, standin_gpu.range_pop
sys.modules["torch.cuda"], sys.modules["torch.cuda.nvtx"] = cuda, nvtx
