"""The text of a log, from wherever it is given, and the sentence that refuses one."""

import os
import re
from pathlib import Path
from typing import BinaryIO, NoReturn

from labkit.errors import InputRefused
from labkit.evidence.plain_text import cleaned, decoded, is_binary
from labkit.evidence.sweep_text import Table

LARGEST = 50_000_000  # bytes; a log with every debug line of a 1000-rank run is smaller

_OTHER_TOOLS = [
    (r"time:avg\(us\)|nccom-test", "a table of AWS Neuron nccom-test"),
    (r"# OSU |OSU MPI", "a table of the OSU micro-benchmarks"),
    (r"#bytes\s+#iterations", "a table of perftest (ib_write_bw and the like)"),
    (r"Intel\(R\) MPI Benchmarks|#bytes\s+#repetitions", "a table of the Intel MPI Benchmarks"),
    (r"Initializing MSCCL\+\+", "a table of mscclpp-test"),
    (r"Memory type:\s+\w+\s+Datatype:", "a table of ucc_perftest"),
    (r"nvbandwidth [Vv]ersion", "output of nvbandwidth"),
    (r"\biperf|\[ ID\] Interval", "output of iperf"),
]


def text_of(source: str | os.PathLike, what: str = "a sweep") -> tuple[str, str]:
    """The cleaned text of a log and its path ("" for text); ``what`` names in a refusal what is read.

    Line ends become line feeds; colour codes and byte-order mark go; bytes that are no UTF-8 become marks.
    Raises InputRefused when there is nothing to read.
    """
    if isinstance(source, str) and ("\n" in source or "\r" in source or source.lstrip()[:1] == "{"):
        if len(source) > LARGEST:
            raise InputRefused(
                f"the text has {len(source) / 1e6:.0f} million characters; cut out the part that matters"
            )
        return cleaned(source), ""
    if not isinstance(source, str | os.PathLike):
        raise InputRefused(f"{what} is read from a path or from text, not from {type(source).__name__}")
    if not str(source).strip():
        raise InputRefused("the name of the file is empty; give a path, or a text with its line ends")
    path = Path(source)
    shown = str(path) if len(str(path)) < 200 else str(path)[:80] + "..."
    try:
        if path.is_dir():
            raise InputRefused(f"{shown} is a directory; name the file inside it")
        if not (path.is_file() or path.is_fifo() or path.is_char_device()):
            raise InputRefused(f"there is no file {shown!r}; check the path (a text needs its line ends)")
        if path.stat().st_size > LARGEST:
            raise InputRefused(
                f"{shown} has {path.stat().st_size / 1e6:.0f} MB; cut out the part that matters"
            )
        with path.open("rb") as file:
            text = read_text_of(file, shown)
    except InputRefused:
        raise
    except (OSError, ValueError) as error:
        raise InputRefused(f"{shown!r} cannot be read ({getattr(error, 'strerror', '') or error})") from None
    return cleaned(text), str(path)


def read_text_of(file: BinaryIO, name: str) -> str:
    """The text of an open binary file, of a pipe too; refused above ``LARGEST`` bytes."""
    data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise InputRefused(f"{name} has more than {LARGEST / 1e6:.0f} MB; cut out the part that matters")
    return decoded(data)


def check_readable(text: str, name: str, wanted: str) -> None:
    """Refuses a text that is empty or binary; ``wanted`` says what to give instead."""
    if not text.strip():
        raise InputRefused(f"{name} is empty; give {wanted}")
    if is_binary(text):
        packed = ", packed with gzip" if text.startswith("\x1f") else ""
        raise InputRefused(f"{name} is binary data{packed}; give {wanted} as text")


def refuse(text: str, path: str, tables: list[Table]) -> NoReturn:
    """Raise InputRefused with one sentence on what a text is that has no readable row."""
    what = path or "the text"
    if not text.strip():
        raise InputRefused(f"{what} is empty; give the log of an nccl-tests run")
    for pattern, tool in _OTHER_TOOLS:
        if re.search(pattern, text):
            raise InputRefused(f"{what} is {tool}, not an nccl-tests log; run one of the nccl-tests programs")
    if is_binary(text):
        raise InputRefused(f"{what} is binary data, not the text of an nccl-tests run")
    troubles = [trouble for table in tables for trouble in table.troubles]
    trouble = f"; the log reports trouble: {troubles[0]}" if troubles else ""
    if text.lstrip()[:1] == "{":
        raise InputRefused(f"{what} is JSON, but no report of nccl-tests -J with a readable result")
    skipped = sorted(entry for table in tables for entry in table.skipped)
    heads = any(table.header or table.devices for table in tables)
    if skipped and (heads or any("piece of a row" not in why for _, why in skipped)):
        line, why = next((entry for entry in skipped if "size 0" not in entry[1]), skipped[0])
        kind = "row with a size above 0" if "size 0" in why else "row that can be read whole"
        more = f" and {len(skipped) - 1} more" if len(skipped) > 1 else ""
        raise InputRefused(
            f"{what} is a piece of an nccl-tests log without a {kind}: line {line} ({why}){more}{trouble}"
        )
    if any(table.header for table in tables):
        raise InputRefused(
            f"{what} has the head of an nccl-tests table but no row of numbers under it{trouble}"
        )
    if any(table.devices for table in tables):
        raise InputRefused(f"{what} is the beginning of an nccl-tests log: it ends before the table{trouble}")
    if "NCCL INFO" in text or "NCCL WARN" in text:
        raise InputRefused(f"{what} holds NCCL's own messages but no table of nccl-tests{trouble}")
    raise InputRefused(
        f"{what} is not an nccl-tests or rccl-tests log: it has no table of sizes and times{trouble}"
    )
