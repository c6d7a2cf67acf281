"""Makes .venv and installs labkit into it: ``python3 tools/environment.py [test]``.

Runs under the system's Python before anything is installed, so it uses the standard library only and reads
under old Pythons, to be able to say that they are too old. A second call finds its stamp and returns at once.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "labkit-installed.json"


def wanted():
    """What an up-to-date environment was made from. The path counts: a moved or copied .venv is of no use."""
    files = [ROOT / "pyproject.toml", ROOT / "constraints.txt"]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return {"root": str(ROOT), "python": sys.version, "files": digest}


def installed():
    try:
        return json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {"extras": []}


def main(extras):
    if sys.version_info < (3, 11):  # noqa: UP036  (this file is what says so)
        version = sys.version.split()[0]
        sys.exit(
            f"Python 3.11 or newer is needed and this is {version}; name one: make PYTHON=python3.12 ..."
        )
    target, found = wanted(), installed()
    usable = all(found.get(key) == target[key] for key in ("root", "python"))
    target["extras"] = sorted({*extras, *(found["extras"] if usable else [])})
    if found == target:
        return
    print(f"Installing into {VENV} (the first time takes about a minute) ...", flush=True)
    if not usable:
        make_venv()
    STAMP.unlink(missing_ok=True)  # an interrupted install must not look finished
    project = ".[{}]".format(",".join(target["extras"])) if target["extras"] else "."
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.call([*pip, "--constraint", "constraints.txt", "--editable", project], cwd=ROOT):
        sys.exit(
            "The installation failed: pip's reason is above; run the same command again when it is mended."
        )
    STAMP.write_text(json.dumps(target, indent=1) + "\n")


def make_venv():
    try:
        import ensurepip  # noqa: F401  (Debian's python3 comes without it)
    except ImportError:
        sys.exit("This Python makes no virtual environments; on Debian and Ubuntu: apt install python3-venv")
    if subprocess.call([sys.executable, "-m", "venv", "--clear", str(VENV)]):
        sys.exit(f"No virtual environment could be made in {VENV}: the reason is above.")


if __name__ == "__main__":
    main(sys.argv[1:])
