"""Warm calls: `custom_kernel` is called before the call that is captured.

An evaluator calls the submission exactly once, inside an NVTX range of the submission's name, and a capture looks into that
range and nowhere else. So the first call steps out of the range, calls the submission with copies of its input, steps back
in, and goes on as the evaluator meant it.

The runner puts this file beside the submission, which it has call `warmed` in its last lines. It is a module of its own so
that no name that a submission has redefined (`range`, say) is used here.
"""

import functools
import sys
import threading

try:
    import torch
    from torch.cuda import nvtx
except ImportError:
    # The range is opened with PyTorch; without it there is none to step out of.
    torch = None

RANGE = "custom_kernel"


def warmed(custom_kernel, calls):
    """`custom_kernel`, called `calls` times more on its first call in a process."""
    if torch is None or not callable(custom_kernel):
        return custom_kernel
    ranges, left = OpenRanges(), calls

    @functools.wraps(custom_kernel)
    def call(*args, **kwargs):
        nonlocal left
        # Gone before the first warm call: a submission may call itself by its name.
        times, left = left, 0
        if times:
            warm_up(custom_kernel, times, args, kwargs, ranges.give_back())
        return custom_kernel(*args, **kwargs)

    return call


def warm_up(custom_kernel, calls, args, kwargs, is_in_range):
    """Calls it so many times outside of the range; the copies are made there too."""
    is_outside = False
    try:
        # What the evaluator launched in the range so far (a copy of the input) also runs in it.
        torch.cuda.synchronize()
        if is_in_range:
            nvtx.range_pop()
            is_outside = True
        for _ in range(calls):
            custom_kernel(*cloned(args), **cloned(kwargs))
            torch.cuda.synchronize()
    except Exception as error:
        # The call that counts is made all the same. If it fails too, the evaluator says so in its own way.
        print(f"ncu-service: a warm call failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        if is_outside:
            nvtx.range_push(RANGE)


def cloned(value):
    """A copy in which every tensor is one of its own; what is no tuple, list or dictionary of them is passed as it is."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, list):
        return [cloned(item) for item in value]
    if isinstance(value, dict):
        return {key: cloned(item) for key, item in value.items()}
    if type(value) is tuple:
        return tuple(cloned(item) for item in value)
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(cloned(item) for item in value)
    return value


class OpenRanges:
    """Notes the push/pop ranges that are opened from now on, since NVTX does not tell which are open.

    What a profiler makes of a pop without a push, and what it returns for one, is its own affair. So a range is left only
    where one of the right name was seen to be entered. `torch.cuda.nvtx.range` looks these two functions up when it is used.
    """

    def __init__(self):
        self.push, self.pop = nvtx.range_push, nvtx.range_pop
        self.names = {}  # by thread, as NVTX has them
        nvtx.range_push, nvtx.range_pop = self.noted_push, self.noted_pop

    def noted_push(self, msg):
        self.names.setdefault(threading.get_ident(), []).append(msg)
        return self.push(msg)

    def noted_pop(self):
        names = self.names.get(threading.get_ident())
        if names:
            names.pop()
        return self.pop()

    def give_back(self):
        """Ends the noting; whether this thread's innermost range is the evaluator's."""
        nvtx.range_push, nvtx.range_pop = self.push, self.pop
        return self.names.get(threading.get_ident(), [])[-1:] == [RANGE]
