"""Text that a stranger wrote, and that stands in a terminal, a table or a page of ours."""

import unicodedata

# Controls, what reorders the text around it, half characters, and ends of lines.
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
# Scripts and pictures are joined by these.
_JOINERS = "\u200c\u200d"


def is_line(text: str, most: int) -> bool:
    r"""Whether a text is one line of at most so many characters, all of which can be seen.

    Examples
    --------
    >>> is_line("Ada Lovelace", 20), is_line("Ada\x1b[2J", 20), is_line("Ada Lovelace", 5)
    (True, False, False)
    """
    return len(text) <= most and not any(map(_is_hidden, text))


def as_line(text: str, most: int) -> str:
    r"""Make a text one line that `is_line` takes: what cannot be seen is escaped, the rest cut off.

    Examples
    --------
    >>> as_line("a bug\nof \x1b[31mmine", 40)
    'a bug of \\x1b[31mmine'
    """
    # No more than could be left of it is looked at.
    words = " ".join(text[: 2 * most].split())
    shown = (ascii(letter)[1:-1] if _is_hidden(letter) else letter for letter in words)
    return "".join(shown)[:most]


def _is_hidden(letter: str) -> bool:
    return unicodedata.category(letter) in _HIDDEN and letter not in _JOINERS
