"""What a line of text is: when it is blank, and how a text becomes one line."""

import re


# The characters without ink, as ranges for `re` and for Arrow's regular expressions: white space, control characters,
# and those with Unicode's property Default_Ignorable_Code_Point, such as the zero-width space, the byte-order mark and
# the soft hyphen (https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point).
_WITHOUT_INK = (
    r"\x00-\x20\x7f-\xa0\xad"
    "\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
BLANK_PATTERN = f"^[{_WITHOUT_INK}]*$"
_BLANK = re.compile(f"[{_WITHOUT_INK}]*")

# What `str.splitlines` and other readers take for the end of a line.
LINE_ENDS = "\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"
_LINE_ENDS_TO_SPACES = dict.fromkeys(map(ord, LINE_ENDS), " ")


def is_blank(text: str) -> bool:
    """Returns whether a text has nothing to see: no character, or only white space and invisible characters."""
    return _BLANK.fullmatch(text) is not None


def as_one_line(text: str) -> str:
    """Returns a text with a space for each character that ends a line for some reader."""
    return text.translate(_LINE_ENDS_TO_SPACES)
