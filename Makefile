# Each of demo, test, check, figures, docs and bench sets up what it needs: a virtual environment with pinned versions.
#   PYTHON=python3.12   another interpreter (3.11 or newer)
#   TORCH=skip          keep the torch that this interpreter already has (a CUDA build, say)
#   DATA=DIR            folder of GLUE's official TSV files, for figures, bench and study
#   TREC=DIR            folder of TREC's official files, for study

PYTHON ?= python3
VENV ?= .venv
DATA ?= ../shared/data/glue
TREC ?= ../shared/data/trec
TORCH ?= pinned
BIN := $(VENV)/bin
GALLERY := glue/cola@dev glue/mrpc@dev glue/rte@dev glue/sst2@dev

ifeq ($(TORCH),skip)
VENV_OPTIONS := --system-site-packages
CONSTRAINTS := $(VENV)/constraints.txt
else
VENV_OPTIONS :=
CONSTRAINTS := constraints.txt
endif

.PHONY: demo test check figures docs bench study clean

demo: $(VENV)/demo.installed
	$(BIN)/cls-analysis demo --out demo

test: $(VENV)/dev.installed
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

check: $(VENV)/dev.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

figures: $(VENV)/demo.installed
	@test -d "$(DATA)" || { echo "make figures: no folder $(DATA); give DATA=DIR, the folder of GLUE's official TSV files" >&2; exit 2; }
	$(BIN)/cls-analysis extract embedded $(GALLERY) --data-dir $(DATA) --out $(VENV)/gallery --overwrite
	$(BIN)/cls-analysis figures $(VENV)/gallery --out figures --format png

docs: $(VENV)/demo.installed
	$(BIN)/cls-analysis diagnose --list-rules > docs/rules.md

bench: $(VENV)/bench.installed
	$(BIN)/python benchmarks/extraction.py --data $(DATA)
	$(BIN)/python benchmarks/moments.py
	$(BIN)/python benchmarks/tables.py
	$(BIN)/python benchmarks/normalization.py
	$(BIN)/python benchmarks/heads.py
	$(BIN)/python benchmarks/similarity.py

# Heads on frozen vectors, then whole encoders, two to three hours each on two cores; resumes where it was stopped.
STUDY := $(BIN)/cls-analysis finetune embedded --data-dir $(DATA)
WHOLE := $(STUDY) trec:$(TREC) --jobs 2

study: $(VENV)/demo.installed
	for grid in head-adamw head-sgd; do \
	  $(STUDY) glue/cola glue/rte glue/mrpc glue/sst2 trec:$(TREC) --grid docs/study/$$grid.toml --out study/$$grid || exit 1; \
	done
	$(WHOLE) glue/sst2 --grid docs/study/pilot.toml --out study/pilot
	$(WHOLE) glue/sst2 --grid docs/study/full.toml --rates-from study/pilot --out study/full
	$(WHOLE) --grid docs/study/unclipped.toml --rates-from study/pilot --out study/unclipped
	$(WHOLE) --grid docs/study/stock.toml --out study/stock

clean:
	rm -rf $(VENV) demo dist

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "make: Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1 || echo missing)." \
	       "Name another with PYTHON=python3.12 (Debian: apt-get install python3)" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "make: $(PYTHON) cannot make virtual environments (Debian: apt-get install python3-venv)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV_OPTIONS) $(VENV)

$(VENV)/constraints.txt: constraints.txt $(VENV)/bin/python
	grep -v '^torch==' constraints.txt > $@

$(VENV)/demo.installed: EXTRAS := demo
$(VENV)/dev.installed: EXTRAS := demo,hub,dev
$(VENV)/bench.installed: EXTRAS := demo,bench
$(VENV)/%.installed: $(VENV)/bin/python pyproject.toml $(CONSTRAINTS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[$(EXTRAS)]'
	@touch $@
