import math
import random

from task import input_t, output_t
from utils import first_difference, floats


def generate_input(rows: int, columns: int, case: str, seed: int) -> input_t:
    generator = random.Random(seed)
    matrix = [floats(generator, columns) for _ in range(rows)]
    if case == "wide":
        for row in matrix:
            row[generator.randrange(columns)] *= 1000.0
    return matrix


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    message = first_difference([math.fsum(row) for row in data], output)
    return not message, message
