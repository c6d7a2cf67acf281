"""Bytes from outside as text that can be searched: decoded, its line ends and colours put right."""

import re


def decoded(data: bytes) -> str:
    """UTF-16 where a byte-order mark says so, else UTF-8; what is neither becomes marks."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    return data.decode(encoding, errors="replace")


def cleaned(text: str) -> str:
    """The text with line feeds alone, without colour codes and byte-order mark.

    >>> cleaned("\\x1b[31mone\\x1b[0m\\r\\ntwo")
    'one\\ntwo'
    """
    text = text.lstrip("\ufeff").replace("\r\n", "\n")
    text = text if "\n" in text else text.replace("\r", "\n")
    return re.sub(r"\x1b\[[0-9;?]{0,20}[A-Za-z]", "", text).replace("\u00a0", " ")


def is_binary(text: str) -> bool:
    """Whether more than one in twenty letters is none that a log has."""
    start = text[:100_000]
    odd = sum(mark in "\x00\ufffd" or (mark < " " and mark not in "\t\n\r\f\x1b") for mark in start)
    return odd > 0.05 * len(start)
