"""The widgets of a live lab: controls above, picture, readout, buttons and the setting as one line.

No Output widget: a callback only sets the picture's bytes and the readout's text, so nothing collapses.
"""

import html
import math
from typing import Any

import ipywidgets
from traitlets import Unicode

from labkit.show.controls import Control

STYLE = """<style>
.labkit-lab { max-width: 920px; }
.labkit-lab .labkit-control { flex-wrap: wrap; height: auto; align-self: start; margin: 0 2px;
  overflow: visible; }
.labkit-lab .labkit-control > .widget-label { text-align: left; height: 20px; line-height: 20px; margin: 0; }
.labkit-lab .labkit-control .slider-container { margin-left: 8px; }
.labkit-lab .labkit-control > select { flex: 1; height: 26px; margin: 1px 0; font-size: 13px; }
.labkit-lab .labkit-control.widget-toggle-buttons { display: flex; }
.labkit-lab .labkit-control.widget-checkbox { padding-top: 20px; }
.labkit-lab .labkit-control .widget-toggle-button { height: 24px; line-height: 24px; padding: 0 10px; }
.labkit-lab .labkit-control :focus-visible { outline: 2px solid #0072b2; outline-offset: 2px; }
.labkit-lab .labkit-steps > .widget-readout { min-width: 26px; width: 26px; margin: 0; }
.labkit-lab .labkit-picture { height: auto; display: block; }
.labkit-lab .labkit-style { display: none; }
.labkit-lab .widget-html-content { min-width: 0; }
.labkit-readout { font-size: 14px; line-height: 20px; font-variant-numeric: tabular-nums; }
.labkit-readout.labkit-failed { color: #a12a0d; }
.labkit-readout.labkit-refused { color: transparent; }
.labkit-setting, .labkit-kept { font-size: 12px; line-height: 16px; white-space: nowrap; overflow: hidden;
  text-overflow: ellipsis; }
.labkit-setting code { user-select: all; }
.labkit-kept { color: #666; line-height: 28px; margin-left: 10px; }
</style>"""


class Image(ipywidgets.Image):
    """An Image whose tooltip works: the front end wants a description, which Image lacks (8.1.9)."""

    description = Unicode("").tag(sync=True)


class Page:
    """All widgets of one live lab; ``lab_view`` is the Live they answer to."""

    def __init__(self, lab_view):
        self._widgets = {name: widget(control) for name, control in lab_view.controls.items()}
        picture = lab_view.picture
        self.image = Image(format="png", width=str(picture.width), height=str(picture.height))
        self.image.layout = ipywidgets.Layout(max_width="100%", margin="2px 0", flex="0 0 auto")
        self.image.add_class("labkit-picture")
        self.readout, self.kept = ipywidgets.HTML(), ipywidgets.HTML()
        self.kept.layout = ipywidgets.Layout(flex="1 1 0", min_width="0")
        self._lines = 0
        reset = ipywidgets.Button(
            description="Reset", tooltip="Back to the first setting, without the kept curve"
        )
        keep = ipywidgets.Button(
            description="Keep this curve", tooltip="Leave the present curve in grey behind"
        )
        for button, width, click in ((reset, "80px", lab_view.reset), (keep, "130px", lab_view.keep)):
            button.layout = ipywidgets.Layout(width=width, flex="0 0 auto")
            button.on_click(click)
        self.reset, self.keep = reset, keep
        for control in self._widgets.values():
            control.observe(lab_view.refresh, "value")
        style = ipywidgets.HTML(STYLE)
        style.add_class("labkit-style")
        bar = ipywidgets.HBox([reset, keep, self.kept])
        self.box = ipywidgets.VBox([style, self._grid(lab_view.controls), self.image, self.readout, bar])
        self.box.add_class("labkit-lab")

    def _grid(self, controls: dict[str, Control]) -> ipywidgets.Widget:
        cells = []
        for name, control in controls.items():
            inner = self._widgets[name]
            if control.kind == "play":
                player = ipywidgets.Play(min=control.low, max=control.high, value=control.value, interval=900)
                player.show_repeat = False
                player.layout = ipywidgets.Layout(width="auto", flex="0 0 auto")
                ipywidgets.jslink((player, "value"), (inner, "value"))
                inner.layout.flex = "1 1 0"
                inner.add_class("labkit-steps")
                inner = ipywidgets.HBox(
                    [inner, player], layout=ipywidgets.Layout(align_items="flex-end", min_width="0")
                )
            cells.append(inner)
        rows = math.ceil(len(cells) / 3)
        columns = math.ceil(len(cells) / rows) if rows else 1
        # Fewer columns where the window is narrow.
        template = f"repeat(auto-fit, minmax(max(190px, calc(100% / {columns} - 12px)), 1fr))"
        return ipywidgets.GridBox(
            cells, layout=ipywidgets.Layout(grid_template_columns=template, grid_gap="2px 12px")
        )

    def values(self) -> dict[str, Any]:
        """What the controls say now: 0.06, though a browser counts 0.005 + 11 x 0.005 to a little more."""
        values = {name: control.value for name, control in self._widgets.items()}
        return {name: float(f"{v:.12g}") if isinstance(v, float) else v for name, v in values.items()}

    def move(self, values: dict[str, Any]) -> None:
        """Moves controls."""
        for name, value in values.items():
            self._widgets[name].value = value

    def show(self, png: bytes | None, facts: list[str], line: str, alt: str, state: str) -> None:
        """Puts picture (None: the last one stays), readout and setting on the page.

        ``state`` is "", "refused" (the sentence stands in the picture, the readout has it for screen readers)
        or "failed". The readout never gets shorter, so that nothing below it jumps.
        """
        if png is not None:
            with self.image.hold_sync():
                self.image.value, self.image.tooltip = png, alt
        self._lines = max(self._lines, len(facts))
        body = "".join(f"<div>{html.escape(fact)}</div>" for fact in facts)
        words = html.escape(line)
        # One widget for both: a message less for every step of a slider.
        self.readout.value = (
            f'<div class="labkit-readout{state and f" labkit-{state}"}" role="status" aria-live="polite" '
            f'style="min-height:{20 * self._lines}px">{body}</div>'
            f'<div class="labkit-setting" title="{words}"><code>{words}</code></div>'
        )

    def show_kept(self, line: str) -> None:
        """Says which setting stands in grey."""
        words = html.escape(line and f"in grey: {line}")
        self.kept.value = f'<div class="labkit-kept" title="{words}">{words}</div>'


def widget(control: Control) -> ipywidgets.Widget:
    """The widget of one control; every one works with the keyboard."""
    common = {"description": control.label, "tooltip": control.label, "style": {"description_width": "100%"}}
    common["layout"] = ipywidgets.Layout(width="auto", min_width="0")
    if control.kind in ("linear", "play"):
        whole = all(float(x).is_integer() for x in (control.low, control.high, control.step))
        bounds = {"min": control.low, "max": control.high, "step": control.step, "value": control.value}
        if whole:
            made = ipywidgets.IntSlider(**bounds, **common)
        else:
            decimals = len(f"{control.step:g}".partition(".")[2])
            made = ipywidgets.FloatSlider(**bounds, readout_format=f".{decimals}f", **common)
    elif control.kind == "slider":
        made = ipywidgets.SelectionSlider(options=control.options, value=control.value, **common)
    elif control.kind == "choice" and sum(24 + 8 * len(words) for words, _ in control.options) <= 260:
        # Few short options stand open, so that one key answers; a dropdown opens on Space (arrows are Lab's).
        common["style"]["button_width"] = "auto"
        made = ipywidgets.ToggleButtons(options=control.options, value=control.value, **common)
    elif control.kind == "choice":
        made = ipywidgets.Dropdown(options=control.options, value=control.value, **common)
    else:
        made = ipywidgets.Checkbox(value=control.value, indent=False, **common)
    made.add_class("labkit-control")
    return made
