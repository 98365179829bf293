# Everything runs in .venv, which the first target makes. PYTHON chooses the interpreter for it.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check format format-check lint types layers docs docs-check eval bench lock clean

demo: .venv/ready
	@$(BIN)/prompt-rag demo

test: .venv/ready
	$(BIN)/python -m pytest

check: .venv/ready format-check lint types layers docs-check test

# requirements.lock pins every package by hash; the project itself is linked, not copied.
.venv/ready: requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (hnswlib is compiled, half a minute) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

format-check: .venv/ready
	$(BIN)/ruff format --check .

lint: .venv/ready
	$(BIN)/ruff check .

types: .venv/ready
	$(BIN)/mypy

layers: .venv/ready
	$(BIN)/lint-imports

docs: .venv/ready
	$(BIN)/python docs/generate.py

docs-check: .venv/ready
	$(BIN)/python docs/generate.py --check

eval: .venv/ready
	$(BIN)/python -m pytest -m eval

lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes --extra dev \
	  --no-emit-index-url --no-header --quiet -o requirements.lock pyproject.toml requirements.build

clean:
	rm -rf .venv build *.egg-info
