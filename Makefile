# Needs Python 3.11 or later, make and git. Everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow bench accuracy pictures clean

demo: $(VENV)/demo.done  ## compare the mechanisms, and draw the comparison
	@mkdir -p demo
	@$(BIN)/fedldp mechanisms --epsilon 1 --plot demo/mechanisms.png

test: $(VENV)/test.done  ## everything that must pass: tests, examples, style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n auto

test-slow: $(VENV)/test.done  ## what takes too long for every day
	$(BIN)/pytest -n auto -m slow

bench: $(VENV)/test.done  ## speed, as ratios measured in one run
	$(BIN)/python benchmarks/bench.py

accuracy: $(VENV)/demo.done  ## the error of means, against the paper's best
	$(BIN)/python benchmarks/accuracy.py

pictures: $(VENV)/demo.done  ## the pictures in the documentation
	$(BIN)/fedldp mechanisms --json --plot docs/images/mechanisms.png > /dev/null
	$(BIN)/fedldp mechanisms --inputs --epsilon 4 --json --plot docs/images/inputs.png > /dev/null
	$(BIN)/fedldp mechanisms --bits --epsilon 4 --json --plot docs/images/bits.png > /dev/null

clean:
	rm -rf $(VENV) demo

$(VENV)/pip.done:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "fedldp needs Python 3.11 or later: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/demo.done: $(VENV)/pip.done pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[cli,plots,parquet]'
	@touch $@

$(VENV)/test.done: $(VENV)/demo.done pyproject.toml
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@
