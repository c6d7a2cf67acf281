"""An environment in which nothing of the user's own set-up shows: for the checks and for stored outputs."""

import os
from pathlib import Path


def quiet_environment(folder: str | Path) -> dict[str, str]:
    """os.environ, but LABKIT_HOME and the settings of IPython, Jupyter and Matplotlib lie in ``folder``."""
    leave_out = {"MPLBACKEND", "PYTHONSTARTUP", "PYTHONPATH", "JUPYTER_PATH", "JUPYTER_CONFIG_PATH"}
    kept = {name: value for name, value in os.environ.items() if name not in leave_out}
    own = {
        "LABKIT_HOME": "labkit",
        "IPYTHONDIR": "ipython",
        "JUPYTER_CONFIG_DIR": "jupyter-config",
        "JUPYTER_DATA_DIR": "jupyter-data",
        "JUPYTER_RUNTIME_DIR": "jupyter-runtime",
        "MPLCONFIGDIR": "matplotlib",
    }
    for name, part in own.items():
        path = Path(folder, part)
        path.mkdir(parents=True, exist_ok=True)
        kept[name] = str(path)
    return kept
