"""What the sample problems share."""

import random


def set_seed(seed):
    random.seed(seed)


def floats(generator, count):
    """`count` floats between -1 and 1."""
    return [generator.uniform(-1.0, 1.0) for _ in range(count)]


def first_difference(expected, actual, tolerance=1e-6):
    """Where `actual` is not the list `expected`, in words; "" where it is."""
    if not isinstance(actual, list):
        return f"a list is expected, not {type(actual).__name__}"
    if len(actual) != len(expected):
        return f"{len(expected)} values are expected, not {len(actual)}"
    for index, (wanted, found) in enumerate(zip(expected, actual)):
        # Negated so that nan is a difference too.
        if not abs(found - wanted) <= tolerance * max(1.0, abs(wanted)):
            return f"mismatch at index {index}: {found} is not {wanted}"
    return ""
