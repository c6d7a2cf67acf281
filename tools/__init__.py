"""What make runs: the environment, JupyterLab, the checks, the notebook builder and the notebook guard."""
