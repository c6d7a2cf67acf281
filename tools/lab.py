"""Opens the workbook in JupyterLab on the reader's own copy: ``python -m tools.lab [JupyterLab options]``.

The copy in ``my/`` is the reader's: a chapter that stands there is never written over, a new one is added.
The server listens on this machine only, asks for a token, and talks to nobody: ``settings/overrides.json``
and the options below switch JupyterLab's news and update questions off.
"""

import os
import secrets
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START = "00_start_here.ipynb"


def add_chapters(source: Path, target: Path) -> list[str]:
    """Copies the notebooks that ``target`` lacks and returns their names."""
    target.mkdir(exist_ok=True)
    missing = [path for path in sorted(source.glob("*.ipynb")) if not (target / path.name).exists()]
    for path in missing:
        shutil.copyfile(path, target / path.name)
    return [path.name for path in missing]


def has_screen() -> bool:
    """Whether a browser opened here would be seen: not on a login node, not in CI."""
    if "CI" in os.environ or "SSH_CONNECTION" in os.environ:
        return False
    return sys.platform == "darwin" or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ


def options(folder: Path) -> list[str]:
    """What JupyterLab is started with; options that the reader adds come later and win."""
    return [
        f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url=/lab/tree/{START}",
        "--ServerApp.ip=127.0.0.1",
        f"--IdentityProvider.token={secrets.token_hex(16)}",
        f"--ServerApp.open_browser={has_screen()}",
        "--ServerApp.allow_root=True",
        "--ServerApp.answer_yes=True",  # one Ctrl-C ends it
        "--Application.log_level=WARN",
        f"--LabApp.app_settings_dir={ROOT / 'settings'}",
        f"--LabApp.workspaces_dir={folder / '.workspaces'}",
        "--LabApp.extension_manager=readonly",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]


def main(argv: list[str]) -> None:
    """Runs until Ctrl-C."""
    from jupyterlab.labapp import LabApp

    folder = ROOT / "my"
    added = add_chapters(ROOT / "notebooks", folder)
    print(f"Your copy: {folder}" + (f" (new: {', '.join(added)})" if added else ""), flush=True)
    server = LabApp.initialize_server([*options(folder), *argv])
    server.io_loop.add_callback(announce, server)  # queued behind the opening of the port
    server.start()


def announce(server) -> None:
    """Says where JupyterLab is, once it answers there."""
    address = server.local_url.partition("?")[0]  # its query shows dots for the token
    print(f"JupyterLab: {address}?token={server.identity_provider.token}")
    print(f"From another computer, first: ssh -L {server.port}:127.0.0.1:{server.port} {os.uname().nodename}")
    print("Ctrl-C ends it.", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
