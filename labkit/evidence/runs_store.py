"""The file of the run log: an SQLite database that several notebooks write to, on a network home too.

Rollback journal and full synchronisation: the other journal of SQLite shares memory between processes, which
a network file system cannot do ("Write-Ahead Logging" and "How To Corrupt An SQLite Database File",
sqlite.org). Each use opens the file anew and each write is one short transaction: a process that is killed
leaves a journal from which the next one restores the last commit.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from labkit.errors import InputRefused
from labkit.evidence.logged_run import COLUMNS

MOST_RUNS = 20_000
_VERSION = 2  # form 1 had no column "profiled", the last
_APPLICATION = 0x6C61626B  # "labk", in the head of the file: PRAGMA application_id
_LONGEST = 1_000_000  # bytes of a row
_TABLE = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    recorded TEXT NOT NULL,
    model TEXT NOT NULL,
    cluster TEXT NOT NULL,
    plan TEXT NOT NULL,
    step_times TEXT NOT NULL,
    predicted TEXT,
    notes TEXT NOT NULL,
    profiled TEXT
)
"""
_NAMES = ", ".join(COLUMNS)
_OLD_NAMES = ", ".join((*COLUMNS[:-1], "NULL"))


class RunStore:
    """Rows of text in ``path``; ``wait``: seconds to be patient while another process writes."""

    def __init__(self, path: Path, wait: float):
        self.path, self.wait = path, wait

    def add(self, rows: Sequence[tuple]) -> list[int]:
        """Commit all rows at once, those left out whose key stands there; the numbers of the new ones."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputRefused(
                f"the folder of the run log, {self.path.parent}, cannot be made ({error.strerror}); set "
                "LABKIT_HOME to a folder that you can write to"
            ) from None
        marks = ", ".join("?" * len(COLUMNS))
        added = []
        with self._open("rwc") as file:
            file.execute("PRAGMA journal_mode = DELETE")
            file.execute("PRAGMA synchronous = FULL")
            with _transaction(file):
                form = self._form(file)
                if form == 0:
                    file.execute(_TABLE)
                    file.execute(f"PRAGMA application_id = {_APPLICATION}")
                elif form == 1:
                    file.execute(f"ALTER TABLE runs ADD COLUMN {COLUMNS[-1]} TEXT")
                if form != _VERSION:
                    file.execute(f"PRAGMA user_version = {_VERSION}")
                for row in rows:
                    done = file.execute(f"INSERT OR IGNORE INTO runs ({_NAMES}) VALUES ({marks})", row)
                    if done.rowcount:
                        added.append(done.lastrowid)
        return added

    def rows(self) -> list[tuple]:
        """Every row, its number first; none where there is no file yet."""
        try:
            if not self.path.exists():
                return []
        except OSError as error:
            raise InputRefused(f"{self.path} cannot be read ({error.strerror}); check the path") from None
        with self._open("rw") as file:  # reading may have to undo what a killed process left
            form = self._form(file)
            if form == 0:
                return []
            names = _OLD_NAMES if form == 1 else _NAMES
            found = file.execute(f"SELECT id, {names} FROM runs ORDER BY id LIMIT ?", (MOST_RUNS + 1,))
            rows = found.fetchall()
        if len(rows) > MOST_RUNS:
            raise InputRefused(
                f"{self.path} has more than {MOST_RUNS:,} runs; move it away, and a new one is begun"
            )
        return rows

    @contextmanager
    def _open(self, mode: str) -> Iterator[sqlite3.Connection]:
        """The database, closed again in any case; whatever SQLite says becomes one sentence."""
        file = None
        try:
            folder = self.path.is_dir()
        except OSError as error:  # as with a name that is too long
            raise InputRefused(f"{self.path} cannot be used ({error.strerror}); name another file") from None
        if folder:
            raise InputRefused(f"{self.path} is a folder; name the file of the run log in it")
        try:
            where = f"{self.path.absolute().as_uri()}?mode={mode}"
            file = sqlite3.connect(where, uri=True, timeout=self.wait, isolation_level=None)
            file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
            file.execute("PRAGMA trusted_schema = OFF")
            yield file
        except sqlite3.Error as error:
            raise InputRefused(self._sentence(error)) from None
        finally:
            if file is not None:
                file.close()

    def _form(self, file: sqlite3.Connection) -> int:
        """The form of the table, 0 without one; refused: another program's database, a newer labkit's."""
        (application,), (version,) = (
            file.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
        )
        if application == 0 == version and not file.execute("SELECT 1 FROM sqlite_schema").fetchone():
            return 0
        if application != _APPLICATION:
            raise InputRefused(f"{self.path} is another program's database; name another file for the log")
        if version > _VERSION:
            raise InputRefused(
                f"{self.path} was written by a newer labkit (form {version}, this one knows {_VERSION}); "
                "update labkit, or set LABKIT_HOME to another folder"
            )
        return version

    def _sentence(self, error: sqlite3.Error) -> str:
        name = getattr(error, "sqlite_errorname", "") or ""
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL", "SQLITE_NOLFS")):
            return (
                f"the lock of {self.path} could not be had in {self.wait:g} s: another process is writing, "
                "or this file system gives no locks; try again, or set LABKIT_HOME to a local folder"
            )
        if "LOCK" in name:
            return f"the file system of {self.path} gives no locks; set LABKIT_HOME to a local folder"
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            return (
                f"{self.path} cannot be written, nor can its folder; give yourself the right to, or set "
                "LABKIT_HOME to a folder of your own"
            )
        if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
            return (
                f"{self.path} is no run log or is damaged; move it away, and a new one is begun (from_csv "
                "reads a copy back)"
            )
        if name == "SQLITE_FULL":
            return f"the disk of {self.path} is full; nothing was written, make room and record it again"
        return f"{self.path} cannot be used as a run log ({str(error)[:100]}); name another file"


@contextmanager
def _transaction(file: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, and nobody else writes meanwhile."""
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if file.in_transaction:
            file.execute("ROLLBACK")
        raise
    file.execute("COMMIT")
