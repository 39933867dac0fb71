"""JSON that every reader reads."""

import json
import math
from typing import Any

import pytest

from hf_seq2seq.json_files import json_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"score": math.nan, "rows": [1, {"a": (-math.inf, "NaN")}]}, '{"score":null,"rows":[1,{"a":[null,"NaN"]}]}'),
        ({"a": "é", "b": [0.5, None, True]}, '{"a":"é","b":[0.5,null,true]}'),
    ],
)
def test_what_is_no_finite_number_is_null(value: Any, expected: str) -> None:
    written = json_of(value, ensure_ascii=False, separators=(",", ":"))
    assert written == expected
    json.loads(written, parse_constant=pytest.fail)
