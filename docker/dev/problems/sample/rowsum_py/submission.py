#!POPCORN leaderboard rowsum-sample

import standin_gpu
from task import input_t, output_t

BLOCK = 256


def sum_pairs(rows):
    """Halves each row by adding its two halves."""
    for row in rows:
        middle = (len(row) + 1) // 2
        for index in range(middle, len(row)):
            row[index - middle] += row[index]
        del row[middle:]


def custom_kernel(data: input_t) -> output_t:
    rows = [list(row) for row in data]
    while len(rows[0]) > 1:
        standin_gpu.launch("void reduce_rows_kernel<float>(float *, int, int)", (len(rows), 1), BLOCK, sum_pairs, rows)
    out = []
    standin_gpu.launch("gather_kernel(const float *, float *, int)", 1, BLOCK, lambda: out.extend(row[0] for row in rows))
    return out
