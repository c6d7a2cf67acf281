# The two commands a reader needs are `make lab` and `make test`; both build the same .venv first.
PYTHON ?= python3
RUN = .venv/bin/python -m

.PHONY: help lab test notebooks bench lint format clean

help:
	@echo "make lab              open the workbook (your own copy, in my/); LAB_ARGS='--port=9000 --no-browser' passes options on"
	@echo "make test             every check"
	@echo "make notebooks        run the notebooks and store their outputs; CHECK=1 only compares"
	@echo "make bench            the benchmark table"
	@echo "make lint, format     ruff: report, or repair"
	@echo "make clean            remove .venv and caches; my/ stays"

lab:
	@$(PYTHON) tools/environment.py
	@$(RUN) tools.lab $(LAB_ARGS)

test:
	@$(PYTHON) tools/environment.py test
	@$(RUN) tools.check

notebooks:
	@$(PYTHON) tools/environment.py test
	@$(RUN) tools.notebooks $(if $(filter-out 0,$(CHECK)),--check)

bench:
	@$(PYTHON) tools/environment.py test
	@$(RUN) benchmarks.run

lint:
	@$(PYTHON) tools/environment.py test
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .

format:
	@$(PYTHON) tools/environment.py test
	@$(RUN) ruff check --fix .
	@$(RUN) ruff format .

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis
	find labkit tests tools benchmarks -name __pycache__ -prune -exec rm -rf {} +
