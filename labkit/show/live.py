"""``live`` puts controls on a lab, ``still`` shows one setting; both carry the plotted numbers as text."""

import base64
from typing import Any

from traitlets import Dict, HasTraits, List, Unicode

from labkit.errors import InputRefused
from labkit.show.controls import GROUPS, Control
from labkit.show.engine import Picture, one_at_a_time
from labkit.show.lab import Lab


class Still:
    """A lab at one setting: picture, description and readout, without a kernel."""

    @one_at_a_time
    def __init__(self, lab: Lab, settings: dict[str, Any]):
        self.lab, self.values = lab, lab.settings(settings)
        self.picture = Picture(lab)
        try:
            result = lab.compute(**self.values)
            self.picture.draw(result)
            self.facts, self.alt = lab.readout(result), lab.describe(result)
        except InputRefused as refusal:
            self.picture.say(str(refusal))
            self.facts, self.alt = [str(refusal)], str(refusal)

    def __repr__(self):
        return "\n".join([self.lab.line(self.values), *self.facts])

    def _repr_mimebundle_(self, include=None, exclude=None, **kwargs):
        return bundle(repr(self), self.picture, self.alt)


class Live(HasTraits):
    """A lab with its controls: ``values`` and ``facts`` can be observed, ``set`` moves the controls."""

    values = Dict().tag(doc="the setting shown")
    facts = List().tag(doc="the readout: the plotted numbers in words")
    error = Unicode().tag(doc="why the last setting shows no picture; empty when it does")

    @one_at_a_time
    def __init__(self, lab: Lab, controls: dict[str, Control], fixed: dict[str, Any]):
        super().__init__()
        from labkit.show.page import Page

        self.lab = lab
        self._first = lab.settings({**{name: c.value for name, c in controls.items()}, **fixed})
        self.controls = dict(sorted(controls.items(), key=lambda item: GROUPS.index(item[1].group)))
        self.picture = Picture(lab)
        self.alt, self.kept = "", ""
        self._page = Page(self)
        self._quiet = False
        self._first |= self._page.values()
        self._show(dict(self._first), first=True)

    @one_at_a_time
    def set(self, **values: Any) -> "Live":
        """Moves the named controls, all at once; refuses a name or a value that the controls do not offer."""
        for name, value in values.items():
            if name not in self.controls:
                raise InputRefused(
                    f"{self.lab.name} has no control {name!r}; it has {', '.join(self.controls)}"
                )
            self.controls[name].check(value)
        self._quiet = True
        try:
            self._page.move(values)
        finally:
            self._quiet = False
        self.refresh()
        return self

    @one_at_a_time
    def refresh(self, _change=None) -> None:
        """Shows what the controls say now; the one callback of all of them."""
        if not self._quiet:
            self._show({**self._first, **self._page.values()})

    @one_at_a_time
    def reset(self, _button=None) -> None:
        """Back to the first setting, without the kept curve."""
        self.picture.forget()
        self.kept = ""
        self._page.show_kept("")
        self.set(**{name: self._first[name] for name in self.controls})

    @one_at_a_time
    def keep(self, _button=None) -> None:
        """Keeps the curve of the present setting in grey behind those to come."""
        if not self.error:
            self.picture.keep()
            self.kept = self.lab.line(self.values)
            self._page.show_kept(self.kept)
            self.refresh()

    def _show(self, values: dict[str, Any], first: bool = False) -> None:
        error = state = ""
        try:
            result = self.lab.compute(**values)
            png = self.picture.draw(result)
            facts, alt = list(self.lab.readout(result)), self.lab.describe(result)
        except InputRefused as refusal:
            state, error = "refused", str(refusal)
            alt = error
            png, facts = self.picture.say(error), [error]
        except Exception as failure:
            if first:
                raise
            state = "failed"
            error = f"This setting failed: {type(failure).__name__}: {failure}"
            png, facts, alt = None, [error], self.alt
        self.alt = alt
        self._page.show(png, facts, self.lab.line(values), alt, state)
        with self.hold_trait_notifications():
            self.values, self.facts, self.error = values, facts, error

    def __repr__(self):
        kept = [f"kept in grey: {self.kept}"] if self.kept else []
        return "\n".join([self.lab.line(self.values), *self.facts, *kept])

    def _repr_mimebundle_(self, include=None, exclude=None, **kwargs):
        data, metadata = bundle(repr(self), self.picture, self.alt)
        view = {"version_major": 2, "version_minor": 0, "model_id": self._page.box.model_id}
        return {"application/vnd.jupyter.widget-view+json": view, **data}, metadata


@one_at_a_time
def bundle(text: str, picture: Picture, alt: str) -> tuple[dict, dict]:
    """What a stored notebook keeps: the picture, its description and the text that says its numbers."""
    data = {"image/png": base64.b64encode(picture.stored()).decode("ascii"), "text/plain": text}
    return data, {"image/png": {"alt": alt, "width": picture.width, "height": picture.height}}


def live(lab: Lab, **controls: Any) -> Live:
    """The lab with the given controls; a keyword that is no control is a fixed setting.

    ``live(alpha_beta, n=linear("ranks N", 2, 64, 8), size=byte_size("message size S", 1024, 2**30, 2**20))``
    """
    given = {name: c for name, c in controls.items() if isinstance(c, Control)}
    return Live(lab, given, {name: value for name, value in controls.items() if name not in given})


def still(lab: Lab, **settings: Any) -> Still:
    """The lab at one setting, as a picture with its numbers; settings left out take the lab's defaults."""
    return Still(lab, settings)
