"""The run log as a CSV file (RFC 4180, UTF-8): a line a run, nouns and step times as JSON in their cells."""

import csv
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from labkit.errors import InputRefused
from labkit.evidence.runs_store import MOST_RUNS
from labkit.evidence.sweep_source import LARGEST


def write(path: str | os.PathLike, columns: Sequence[str], rows: Iterable[tuple]) -> None:
    """Write head and rows; the file is there whole or not at all."""
    target = _path(path)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    beside = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        if target.exists() and not (target.is_file() or target.is_dir()):
            raise InputRefused(f"{target} is a device or a pipe, which would be replaced; name a file")
        beside.write_text(text.getvalue(), encoding="utf-8", newline="")
        beside.replace(target)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise InputRefused(f"{target} cannot be written ({error.strerror}); name another file") from None


def read(path: str | os.PathLike, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row with the number of its last line. Refused: another head, and uneven rows.

    The last column may be missing, as in files of an older labkit; its cells are empty then.
    """
    source = _path(path)
    try:
        with source.open("rb") as file:
            data = file.read(LARGEST + 1)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputRefused(f"{source} is no text in UTF-8; write it with RunLog.to_csv") from None
    except OSError as error:
        raise InputRefused(f"{source} cannot be read ({error.strerror}); check the path") from None
    if len(data) > LARGEST:
        raise InputRefused(f"{source} has more than {LARGEST / 1e6:.0f} MB; cut it into several files")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        head = next(reader, [])
        if head not in (list(columns), list(columns[:-1])):
            raise InputRefused(
                f"{source}, line 1: these are not the columns of a run log ({', '.join(columns)}); write it "
                "with RunLog.to_csv"
            )
        for count, cells in enumerate(reader, 1):
            if count > MOST_RUNS:
                raise InputRefused(f"{source}, line {reader.line_num}: more than {MOST_RUNS:,} runs; cut it")
            if len(cells) != len(head):
                raise InputRefused(
                    f"{source}, line {reader.line_num}: {len(cells)} cells under {len(head)} heads; "
                    "a comma or a quote is missing"
                )
            yield reader.line_num, [*cells, *[""] * (len(columns) - len(head))]
    except csv.Error as error:
        raise InputRefused(
            f"{source}, line {reader.line_num}: {error}; write it with RunLog.to_csv"
        ) from None


def _path(path) -> Path:
    if not isinstance(path, str | os.PathLike) or not str(path).strip() or "\0" in str(path):
        raise InputRefused("a CSV file of the run log is named by its path; give one")
    return Path(path)
