# `make demo` and `make test` work in a fresh clone; both set up .venv first.
BIN := .venv/bin
TREES := topologies tilelink lowering examples tests docs/tutorials
QUICK := not slow and not gpu
SLOW := slow and not gpu
WHOLE := not gpu
SHARE := 1

.PHONY: demo test quick slow whole lint proportion planning format replay .venv

demo: .venv
	$(BIN)/tilelink demo

# first what fails soon, then slow tests: of those with many parameters one in SHARE, and of long ones a quarter; other ones for
# each commit. `make whole` runs all
test: lint proportion
	$(MAKE) quick
	$(MAKE) slow SHARE=10

quick: .venv
	$(BIN)/pytest -q -m "$(QUICK)" -n 2

slow: .venv
	COMMIT=$$(git rev-parse HEAD) $(BIN)/pytest -q -m "$(SLOW)" -n 2 --share $(SHARE)

whole: .venv
	$(BIN)/pytest -q -m "$(WHOLE)" -n 2

lint: .venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict $(wildcard $(TREES))
	$(BIN)/lint-imports

# what 300 emitted files are, in the working tree and in a commit: `make replay`, `make replay AGAINST=main ONLY=gemm_rs`
replay: .venv
	$(BIN)/python -m tests.replay --against "$(or $(AGAINST),HEAD)" --only "$(ONLY)"

# how many notions the schedule language has, how many lines each part, and what the design asks for
proportion: .venv
	$(BIN)/python lab/proportion.py

# how long the search, the schedule that is given out and its proof take: `make planning`, `make planning JSON=FILE`
planning: .venv
	$(BIN)/pytest -q -o addopts=--import-mode=importlib benchmarks/planning.py \
	    $(if $(JSON),--benchmark-json=$(JSON)) --benchmark-timer=time.process_time \
	    --benchmark-group-by=func --benchmark-columns=min,median,max,rounds --benchmark-sort=name

format: .venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv: .venv/installed

# the marker is written last, so an interrupted install is done again; bytecode is left to the first import of a module,
# since most modules of torch are never imported
.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || python3 -m venv .venv
	$(BIN)/pip install -q --no-compile -c constraints.txt -e '.[dev]'
	touch $@
