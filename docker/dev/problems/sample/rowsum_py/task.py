from typing import TypedDict

input_t = list[list[float]]
output_t = list[float]


class TestSpec(TypedDict):
    rows: int
    columns: int
    case: str
    seed: int
