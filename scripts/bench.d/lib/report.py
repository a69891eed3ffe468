"""A report that deflates like a real one: tables of counters under long names, and listings of instructions.

Nothing in it can be opened; it is for measuring what handles reports as bytes. Real ones of one H200 deflated to about an eighth.
"""

import random
import struct

BLOCK_BYTES = 16 << 20
UNITS = ["sm", "smsp", "l1tex", "lts", "dram", "fbpa", "gpc", "idc"]
COUNTERS = ["inst_executed", "thread_inst_executed", "warps_active", "cycles_elapsed", "sectors_op_read", "t_requests_pipe_lsu",
            "average_warps_issue_stalled_long_scoreboard", "data_bank_conflicts_pipe_lsu", "throughput"]
ROLLUPS = ["sum", "avg", "max", "min", "sum.per_second", "avg.pct_of_peak_sustained_elapsed"]
OPCODES = ["LDG.E.128.CONSTANT", "STG.E.64", "FFMA", "HMMA.16816.F32", "IMAD.MOV.U32", "ISETP.GE.AND", "BAR.SYNC.DEFER_BLOCKING",
           "SHFL.BFLY", "LDS.U.128", "MUFU.RSQ"]


def block(seed=1):
    """16 MiB of it. Deflate looks back 32 KiB, so that repeating a block is no easier for it than another one."""
    draw = random.Random(seed)
    parts, size = [], 0
    while size < BLOCK_BYTES:
        part = counters(draw) if draw.random() < 0.6 else instructions(draw)
        parts.append(part)
        size += len(part)
    return b"".join(parts)[:BLOCK_BYTES]


def counters(draw):
    """Metrics of one launch: a tag, a name, a type and a double each."""
    records = []
    for _ in range(200):
        name = f"{draw.choice(UNITS)}__{draw.choice(COUNTERS)}.{draw.choice(ROLLUPS)}".encode()
        value = float(draw.randrange(1 << 10)) if draw.random() < 0.85 else draw.random() * 1e6
        records.append(struct.pack("<BB", 10, len(name)) + name + struct.pack("<BBd", 17, 1, value))
    return b"".join(records)


def instructions(draw):
    """A part of a kernel's listing, with samples for each instruction."""
    lines, address = [], draw.randrange(1 << 20) * 16
    for _ in range(200):
        registers = tuple(draw.randrange(40) for _ in range(3))
        text = f"{draw.choice(OPCODES)} R{registers[0]}, R{registers[1]}, R{registers[2]}".encode()
        samples = [draw.randrange(8) if draw.random() < 0.1 else 0 for _ in range(16)]
        lines.append(struct.pack("<BQB", 8, address, len(text)) + text + struct.pack("<16I", *samples))
        address += 16
    return b"".join(lines)


def write(path, size_bytes):
    """Writes a report of that size."""
    piece = block()
    with open(path, "ab") as file:
        left = size_bytes
        while left > 0:
            file.write(piece[:left])
            left -= len(piece)
