"""What the driver says of a GPU, asked through NVML: a question takes a millisecond where nvidia-smi starts up for each."""

import ctypes

UTILISATION = 1  # NVML_GPU_UTILIZATION_SAMPLES
MAX_PROCESSES = 64
MIB = 1 << 20


class Memory(ctypes.Structure):
    # nvmlMemory_v2_t: what the driver reserves for itself is not in `used`.
    _fields_ = [("version", ctypes.c_uint), *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used"))]


class Process(ctypes.Structure):
    # nvmlProcessInfo_t of version 3 of the call.
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used_memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Sample(ctypes.Structure):
    # The value is a union of eight bytes; utilisation is an unsigned int.
    _fields_ = [("microseconds", ctypes.c_ulonglong), ("value", ctypes.c_uint), ("rest", ctypes.c_uint)]


class Gpu:
    def __init__(self, number):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        self.call("nvmlInit_v2")
        self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(number)), ctypes.byref(self.device))

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise OSError(f"{name} returned {code}")

    def memory_mib(self):
        memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)
        self.call("nvmlDeviceGetMemoryInfo_v2", self.device, ctypes.byref(memory))
        return memory.used // MIB

    def processes(self):
        """How many compute on it."""
        count = ctypes.c_uint(MAX_PROCESSES)
        found = (Process * MAX_PROCESSES)()
        self.call("nvmlDeviceGetComputeRunningProcesses_v3", self.device, ctypes.byref(count), found)
        return count.value

    def utilisation(self):
        """[(time at its end, percent)] of the samples that the driver has kept."""
        kind, count = ctypes.c_int(), ctypes.c_uint(0)
        since = ctypes.c_ulonglong(0)
        ask = lambda samples: self.call(
            "nvmlDeviceGetSamples", self.device, UTILISATION, since, ctypes.byref(kind), ctypes.byref(count), samples
        )
        ask(None)
        samples = (Sample * max(1, count.value))()
        ask(samples)
        return [(sample.microseconds / 1e6, sample.value) for sample in samples[: count.value]]
