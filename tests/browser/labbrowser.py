"""JupyterLab in a real browser, for tests and the slider benchmark: a private server, a notebook, its labs.

Nothing of the user's is touched: home, settings, workspaces and the served folder are temporary; a notebook
is opened as a copy. Needs Playwright's Python package and a Chromium of the system; no browser is downloaded.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "labkit-test"
_READY = """async () => { const w = window.jupyterapp.shell.currentWidget;
  const ready = async () => { await w.context.ready; await w.sessionContext.ready;
    await w.sessionContext.session.kernel.info; };
  const late = new Promise((_, no) =>
    setTimeout(() => no(new Error('no kernel: does the notebook name one?')), 60000));
  await Promise.race([ready(), late]); }"""
_RAN = r"""() => { const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')];
  const p = prompts.map(e => e.textContent.trim());
  const failed = document.querySelector('[data-mime-type="application/vnd.jupyter.error"]');
  return failed || (p.length && p.every(x => /^\[\d+\]:$/.test(x))); }"""
_WIDGETS = """() => [...document.querySelectorAll(
  '.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.widget-view+json"]')]
  .every(e => e.querySelector('.jupyter-widgets'))"""
# What only the kernel can change: a slider's own number moves before the kernel has answered.
_STATE = """box => box.querySelector('img.labkit-picture').src
  + ['setting', 'readout'].map(c => box.querySelector('.labkit-' + c).innerText).join()"""
# Picture, setting and readout have been at rest for a moment, and are not the ones before.
_SETTLED = """([box, before, limit]) => new Promise((done, fail) => { let last = '', since = 0;
  const img = box.querySelector('img.labkit-picture'), start = performance.now();
  const words = () => ['setting', 'readout'].map(c => box.querySelector('.labkit-' + c).innerText).join();
  const look = () => { const now = performance.now(), state = img.src + words();
    if (now - start > limit) return fail(new Error('the lab did not answer'));
    if (state !== last) { last = state; since = now; }
    if (last !== before && img.complete && img.naturalWidth > 0 && now - since > 250) done(true);
    else requestAnimationFrame(look); };
  look(); })"""


def chromium() -> str | None:
    """The path of a system Chromium, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def jupyterlab(folder: Path):
    """A JupyterLab that serves ``folder/work`` on 127.0.0.1; yields its address."""
    home, work = folder / "home", folder / "work"
    settings = folder / "settings" / "@jupyterlab"
    for name, value in {
        "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
        "notebook-extension/tracker": {"windowingMode": "none"},  # cells off screen keep their widgets
        "docmanager-extension/plugin": {"autosave": False},
    }.items():
        file = settings / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value))
    home.mkdir()
    work.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("JUPYTER", "IPYTHON"))},
        "HOME": str(home),
        "LABKIT_HOME": str(home / "labkit"),
        "MPLCONFIGDIR": str(home / "matplotlib"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root",
        "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={work}",
        "--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    log = (folder / "server.log").open("w")
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=work)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/api?token={TOKEN}", server, folder / "server.log")
        yield address
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
        log.close()


def _wait_for(url: str, server: subprocess.Popen, log: Path, seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2)
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start: {log.read_text()[-2000:]}")


@contextmanager
def browser(folder: Path, width: int = 1280, height: int = 800):
    """A headless Chromium with its own profile; yields a Playwright browser context."""
    from playwright.sync_api import sync_playwright

    quiet = [
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ]
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(folder / "profile"),
            executable_path=chromium(),
            headless=True,
            viewport={"width": width, "height": height},
            args=["--no-sandbox", "--disable-gpu", "--disable-quic", *quiet],
        )
        try:
            yield context
        finally:
            context.close()


class NotebookPage:
    """One notebook in JupyterLab."""

    def __init__(self, context, address: str, work: Path, path: Path):
        self.context, self.address = context, address
        self.name = path.name
        shutil.copy(path, work / self.name)
        self.page = context.new_page()
        self._console: list[str] = []
        self.page.on("pageerror", lambda error: self._console.append(str(error)))
        self.page.on("console", lambda m: self._console.append(m.text) if m.type == "error" else None)
        self.page.goto(f"{address}/lab/workspaces/{path.stem}/tree/{self.name}?token={TOKEN}&reset")
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=90_000)
        self.page.evaluate(f"({_READY})()")

    def run_all(self, seconds: float = 180) -> None:
        """Runs every cell and waits until each has its number, or one has failed (``errors`` says how)."""
        for item in ("Run", "Run All Cells"):
            self.page.get_by_role("menuitem", name=item, exact=True).click()
        self.page.wait_for_function(_RAN, timeout=1000 * seconds)
        self.page.wait_for_function(_WIDGETS, timeout=30_000)
        for lab in self.labs():
            lab.settle()

    def labs(self) -> list["LabOnPage"]:
        """The live labs, from top to bottom."""
        found = self.page.locator(".jp-OutputArea-output .labkit-lab")
        return [LabOnPage(self.page, found.nth(i)) for i in range(found.count())]

    def errors(self) -> list[str]:
        """What went wrong: JavaScript, cells that raised, widgets that did not come, labs that failed."""
        texts = self.page.locator(
            ".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.error'], "
            ".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr'], "
            ".jupyter-widgets-error-widget, .labkit-failed"
        ).all_inner_texts()
        return [*self._console, *texts]

    def close(self) -> None:
        """Stops the kernel and closes the page."""
        self.page.evaluate(
            "async () => await window.jupyterapp.shell.currentWidget.sessionContext.shutdown()"
        )
        self.page.close()


class LabOnPage:
    """One live lab in the page."""

    def __init__(self, page, box):
        self.page, self.box = page, box
        self.image = box.locator("img.labkit-picture")

    def labels(self) -> list[str]:
        """The labels of the controls, in reading order."""
        found = self.box.locator(".labkit-control")
        return [" ".join(text.split("\n")[0].split()) for text in found.all_inner_texts()]

    def control(self, label: str):
        """The control with this label; what to focus in it is ``_target``."""
        return self.box.locator(".labkit-control").filter(has_text=label).first

    def press(self, label: str, key: str = "ArrowRight", times: int = 1) -> None:
        """Presses a key on a slider (or Space on a tick box) and waits until the lab answered and rests."""
        before = self._state()
        self.focus(label)
        for _ in range(times):
            self.page.keyboard.press(key)
        self.settle(before)

    def focus(self, label: str) -> None:
        """Puts the keyboard on a control."""
        self.control(label).locator(".noUi-handle, select, button, input[type=checkbox]").first.focus()

    def choose(self, label: str, words: str) -> None:
        """Chooses the option that reads ``words``, with the keyboard, and waits for the picture."""
        control, before = self.control(label), self._state()
        button = control.get_by_role("button", name=words, exact=True)
        if button.count():
            button.focus()
            self.page.keyboard.press("Space")
        else:
            options = self._options(control)
            select = control.locator("select")
            way = options.index(words) - select.evaluate("e => e.selectedIndex")
            select.focus()
            self.page.keyboard.press("Space")  # opens the list; without it, Lab takes the arrows for itself
            for _ in range(abs(way)):
                self.page.wait_for_timeout(60)
                self.page.keyboard.press("ArrowDown" if way > 0 else "ArrowUp")
            self.page.wait_for_timeout(60)
            self.page.keyboard.press("Enter")
        self.settle(before)

    def _options(self, control) -> list[str]:
        return [" ".join(text.split()) for text in control.locator("option").all_inner_texts()]

    def nudge(self, label: str) -> None:
        """Moves a control of any kind by one step, with the keyboard, and waits for a new picture."""
        control = self.control(label)
        if control.locator(".noUi-handle").count():
            now, most = (
                float(control.locator(".noUi-handle").get_attribute(f"aria-value{end}"))
                for end in ("now", "max")
            )
            self.press(label, "ArrowLeft" if now >= most else "ArrowRight")
        elif control.locator("input[type=checkbox]").count():
            self.press(label, "Space")
        elif control.locator("select").count():
            options, chosen = (
                self._options(control),
                control.locator("select").evaluate("e => e.selectedIndex"),
            )
            self.choose(label, options[(chosen + 1) % len(options)])
        else:
            options = control.locator("button").all_inner_texts()
            chosen = control.locator("button.mod-active").inner_text()
            self.choose(label, options[(options.index(chosen) + 1) % len(options)])

    def click(self, button: str) -> None:
        """Clicks a button (Reset, Keep this curve) and waits for the lab to answer."""
        before = self._state()
        self.box.get_by_role("button", name=button, exact=True).click()
        self.settle(before)

    def _state(self) -> str:
        return self.box.evaluate(_STATE)

    def settle(self, before: str = "", seconds: float = 20) -> None:
        """Waits until picture and text are not those of ``before`` and have been at rest for 0.25 s."""
        self.image.wait_for(state="visible", timeout=1000 * seconds)
        self.page.evaluate(_SETTLED, [self.box.element_handle(), before, 1000 * seconds])

    def image_src(self) -> str:
        """The address of the picture shown now; it changes with every picture."""
        return self.image.get_attribute("src") or ""

    def readout_text(self) -> str:
        """The numbers under the picture, or the sentence that stands in for them."""
        return self.box.locator(".labkit-readout").inner_text()

    def setting(self) -> str:
        """The setting as one copyable line."""
        return self.box.locator(".labkit-setting code").inner_text()

    def watch(self) -> None:
        """Starts to note the height of the lab and of its picture in every frame."""
        self.page.evaluate(
            """([box, img]) => { window.__heights = []; window.__watching = true;
              const look = () => { if (!window.__watching) return;
                window.__heights.push([box, img].map(e => e.getBoundingClientRect().height));
                requestAnimationFrame(look); }; look(); }""",
            [self.box.element_handle(), self.image.element_handle()],
        )

    def heights(self) -> list[list[float]]:
        """Stops watching; the pairs (height of the lab, height of the picture), a frame each."""
        return self.page.evaluate("() => { window.__watching = false; return window.__heights; }")
