# Needs Python 3.11 or later, make and git. Everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Bytecode is kept, whatever the shell says: the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

# PyTorch has a build for each kind of hardware: make test-torch TORCH='torch --index-url ...'
TORCH ?= torch==2.13.0

# The versions of Flower that are supported: make test-flower
FLOWER ?= 1.41 1.42

# The tests that run with the oldest dependencies and with another Python: what those may break.
SELECTED ?= tests/test_golden.py tests/test_vectors.py tests/test_randomness.py \
	tests/plan/test_plan_json.py tests/plan/test_report.py tests/counting/test_counts.py \
	tests/results/test_tally.py tests/results/test_estimate.py tests/budget/test_ledger.py tests/coders tests/mechanisms/test_optimal_cache.py \
	tests/schema/test_frames.py tests/schema/test_quality.py tests/schema/test_rows.py tests/counting/test_shards.py \
	tests/contracts/test_estimators.py tests/learn/test_estimators.py tests/learn/test_model.py \
	tests/learn/test_optimizer.py \
	tests/cli/test_collection.py tests/cli/test_help.py

PYTEST := $(BIN)/pytest -n auto --dist worksteal

.PHONY: demo test test-busy test-fleet test-tools test-reproduction test-vehicle test-c test-c-full coverage-c figures-c test-minimum test-python test-slow test-torch test-simulation \
	test-accountant test-deploy test-faults test-chaos test-hostile test-flower test-vss test-engines test-mqtt test-postgres test-browser test-site test-monitor test-public test-city \
	bench bench-growth bench-scale bench-engines bench-peers bench-docs bench-gpu bench-reproduce bench-fleet bench-flower bench-mqtt bench-fleet-costs ten-million bench-distributions bench-regression bench-compare \
	accuracy flights references networks city reproduce reproduce-quick paper-map pictures live-page man page page-vehicle docs notebooks dist solutions mutation clean

demo: $(VENV)/demo.done  ## a fleet of flights learns to predict delays, at several epsilons
	@$(BIN)/fedldp demo --output demo

test: $(VENV)/test.done  ## everything that must pass: tests, examples, style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST)

test-fleet: $(VENV)/test.done  ## the deployment: the distribution fleet/
	cd fleet && PYTHONPATH=. ../$(BIN)/lint-imports
	$(PYTEST) fleet

test-busy: $(VENV)/test.done  ## the tests of the library beside eight busy processes and a busy disk
	$(BIN)/python tools/busy.py $(PYTEST)

test-tools: $(VENV)/docs.done  ## tools, benchmarks, examples, and the commands in the documentation
	$(PYTEST) tests/tools tools/minimum.py

# Old packages use what newer ones beside them are about to drop.
test-minimum: .venv-minimum/test.done  ## with the oldest dependencies that are supported
	.venv-minimum/bin/python -m pytest -n auto --dist worksteal -W ignore::DeprecationWarning $(SELECTED)

# make test-python PYTHON=/path/to/python3.13
OTHER = .venv-python/$(shell $(PYTHON) -c 'import platform; print(platform.python_version())')
test-python: $(OTHER)/test.done  ## with another Python than that of the first environment
	$(OTHER)/bin/python -m pytest -n auto --dist worksteal $(SELECTED)

test-reproduction: $(VENV)/test.done  ## the reproduction of the paper, and its data sets
	$(BIN)/pytest -n auto --dist loadfile reproduction

test-vehicle: $(VENV)/test.done  ## the distribution without dependencies: its wheel alone, and its ledgers
	$(BIN)/pytest vehicle/tests

# The tests of targets whose tools are missing are skipped, and say what to install: everything with
# apt-get install gcc g++ clang libclang-rt-dev cppcheck musl-tools nodejs qemu-user qemu-system-arm gcc-arm-none-eabi \
#   libnewlib-arm-none-eabi gcc-aarch64-linux-gnu gcc-riscv64-linux-gnu gcc-s390x-linux-gnu \
#   libc6-dev-arm64-cross libc6-dev-riscv64-cross libc6-dev-s390x-cross
test-c: $(VENV)/wasm.done  ## the vehicle in C: vectors, random plans, ledgers, on all targets at hand
	$(BIN)/pytest -n auto --dist worksteal clients/c/tests

test-c-full: $(VENV)/wasm.done  ## the same with 100,000 random plans, every power cut, and a long fuzzing
	$(BIN)/pytest -n auto --dist worksteal -m full clients/c/tests

coverage-c: $(VENV)/test.done  ## the lines of the vehicle in C that its tests execute: all of them
	$(BIN)/python clients/c/coverage.py

figures-c: $(VENV)/test.done  ## the figures in clients/c/README.md: needs make test-c-full before
	$(BIN)/python clients/c/figures.py clients/c/README.md

test-slow: $(VENV)/test.done  ## what takes too long for every day
	$(BIN)/pytest -n auto -m slow

test-torch: $(VENV)/torch.done  ## neural networks
	$(BIN)/pytest -n auto -m torch

test-accountant: $(VENV)/accountant.done  ## bounds of many answers, against dp-accounting
	$(BIN)/pytest -m accountant tests/budget/test_composition.py

test-simulation: $(VENV)/simulation.done  ## apps in Flower's simulation, on Ray
	$(BIN)/pytest -m simulation fleet/tests/flower

test-faults: $(VENV)/test.done  ## processes, networks, disks and clocks of a fleet fail: needs root
	$(BIN)/pytest -m 'faults and not postgresql' fleet

# An hour. Smaller: make test-chaos CHAOS_VEHICLES=300 CHAOS_KILLS=4 CHAOS_MINUTES=2
test-chaos: export CHAOS_VEHICLES ?= 10000
test-chaos: export CHAOS_KILLS ?= 50
test-chaos: export CHAOS_MINUTES ?= 55
test-chaos: export CHAOS_SUMMARY ?= chaos.json
test-chaos: $(VENV)/test.done  ## every part of a fleet of 10,000 vehicles is killed 50 times: needs mosquitto, nginx, PostgreSQL
	$(BIN)/pytest -m chaos fleet

# The units run in a systemd that is booted for them: apt-get install systemd-container
test-hostile: $(VENV)/test.done  ## a fleet in its systemd units, whose accounts are kept apart: needs root
	$(BIN)/pytest -m hostile fleet/tests/test_units.py

test-deploy: $(VENV)/deploy.done build/deploy/compose.done  ## the files in deploy: systemd, hadolint, helm, the schemas of Compose and Kubernetes
	$(BIN)/pytest -m deploy fleet/tests/test_deploy.py

# The deployment runs behind nginx: apt-get install nginx-light
test-flower: $(FLOWER:%=.venv-flower/%.done)  ## private Flower apps, and the road over Flower, on every supported version of Flower
	@for version in $(FLOWER); do \
	  echo "Flower $$version"; \
	  .venv-flower/$$version/bin/python -m pytest -n auto --dist loadfile fleet/tests/flower \
	    && .venv-flower/$$version/bin/python -m pytest -m slow fleet/tests/flower || exit 1; \
	done

test-vss: $(VENV)/test.done .venv-vss/vss.done  ## signals of a real VSS catalog, and of today's VSS tools
	$(BIN)/pytest -m vss tests/schema/test_vss.py

test-mqtt: $(VENV)/test.done  ## the MQTT road with a real broker, which is killed: needs mosquitto
	@PATH="$$PATH:/usr/sbin" command -v mosquitto > /dev/null \
	  || { echo "make test-mqtt needs mosquitto: apt-get install mosquitto"; exit 1; }
	$(BIN)/pytest -m mqtt fleet/tests -rA

# PostgreSQL does not run as root: there, the tests start it as the account postgres.
test-postgres: $(VENV)/deploy.done  ## the store of a fleet in a real PostgreSQL, which is killed
	@test -n "$$(ls /usr/lib/postgresql/*/bin/postgres 2> /dev/null; command -v postgres)" \
	  || { echo "make test-postgres needs PostgreSQL: apt-get install postgresql"; exit 1; }
	@PATH="$$PATH:/usr/sbin" command -v nginx > /dev/null \
	  || { echo "make test-postgres needs nginx: apt-get install nginx-light"; exit 1; }
	$(BIN)/pytest -m postgresql fleet

# Spark needs Java 17 or later: apt-get install openjdk-17-jre-headless
test-engines: .venv-engines/engines.done  ## Dask, Spark, Beam and DuckDB, with killed workers and an object store
	.venv-engines/bin/python -m pytest -m engines tests/counting/engines

# SUMO takes 530 MB, in an environment of its own.
test-city: .venv-city/city.done  ## the example of a city, with traffic that SUMO simulates
	.venv-city/bin/python -m pytest -m city tests/tools/test_city.py

test-browser: $(VENV)/test.done  ## the interactive page and the live page, in Chromium
	$(BIN)/pytest -m browser tests/tools/test_playground_browser.py tests/tools/test_playground_proof.py \
	  tests/tools/test_playground_vehicle.py \
	  fleet/tests/test_page.py

test-monitor: $(VENV)/test.done  ## alert rules, in a real Prometheus that scrapes a real fleet
	@command -v promtool > /dev/null \
	  || { echo "needs prometheus and promtool: apt-get install prometheus"; exit 1; }
	$(BIN)/pytest -m monitor fleet/tests/test_monitoring.py

solutions: $(VENV)/test.done  ## solve again the linear programs whose solutions come with the library
	$(BIN)/python tools/solutions.py

# make mutation MUTATE='--area report --sample 0' makes all changes of one area of tools/mutation.toml.
mutation: $(VENV)/mutation.done  ## small changes to the code that no test notices: takes hours
	$(BIN)/python tools/mutation.py $(MUTATE)

bench: $(VENV)/test.done  ## speed and size, as ratios measured in one run; BENCH='--json FILE' keeps it
	$(BIN)/python benchmarks/bench.py $(BENCH)

# make bench-compare BENCH='--base COMMIT' compares with any commit.
bench-compare: $(VENV)/test.done  ## costs beside those of the last release; fails if one is over 10% higher: twenty minutes
	$(BIN)/python benchmarks/compare.py $(BENCH)

bench-growth: $(VENV)/test.done  ## how cost grows with vehicles, dimensions and outputs
	$(BIN)/python benchmarks/growth.py $(BENCH)

# make bench-scale BENCH='--packets 100000000 --folder /data' needs 4 GB there.
bench-scale: $(VENV)/test.done  ## what it costs to count many packets, in memory and in Parquet files
	$(BIN)/python benchmarks/scale.py $(BENCH)

# make bench-engines BENCH='--packets 100000000 --folder /data' needs 4 GB there.
bench-engines: .venv-engines/engines.done  ## what it costs to count packets on each engine, and how Dask grows
	.venv-engines/bin/python benchmarks/engines.py $(BENCH)

bench-peers: $(VENV)/test.done  ## beside other libraries, each in an environment under .venv-peers
	$(BIN)/python benchmarks/peers/run.py $(BENCH)

bench-docs: $(VENV)/test.done  ## all three, into docs/benchmarks.md
	$(BIN)/python benchmarks/bench.py --write docs/benchmarks.md --plot docs/images/bench.png
	$(BIN)/python benchmarks/growth.py --write docs/benchmarks.md --plot docs/images/growth.png
	$(BIN)/python benchmarks/peers/run.py --write docs/benchmarks.md

bench-gpu: $(VENV)/torch.done  ## vehicles a second that a GPU simulates: needs one, and TORCH for it
	$(BIN)/python benchmarks/gpu.py $(BENCH)

bench-reproduce: $(VENV)/reproduction.done  ## what a run of the experiments costs, on one core and on two
	$(BIN)/python reproduction/benchmark.py

bench-fleet: $(VENV)/test.done  ## what answers over HTTPS cost the server, beside a bare handler, and an agent of many
	$(BIN)/python benchmarks/fleet.py --write docs/operations.md $(BENCH)

bench-mqtt: $(VENV)/test.done  ## bytes that a vehicle sends and receives over MQTT: needs mosquitto
	$(BIN)/python benchmarks/mqtt.py $(BENCH)

bench-fleet-costs: $(VENV)/test.done  ## what a vehicle's answer costs server, database and proxy: needs PostgreSQL and nginx
	$(BIN)/python benchmarks/fleet_costs.py $(BENCH)

ten-million: $(VENV)/test.done  ## what a job of ten million vehicles costs, from what bench-fleet-costs measured
	$(BIN)/python benchmarks/ten_million.py --write docs/scale.md

bench-distributions: $(VENV)/test.done  ## distributions of the flights: bins beside square wave and EM
	$(BIN)/python benchmarks/distributions.py $(BENCH)

bench-regression: $(VENV)/test.done  ## bias and fit of linear regression on targets of many shapes: minutes
	$(BIN)/python benchmarks/regression.py --write docs/learning.md

bench-flower: $(VENV)/test.done  ## an app with LDPMod beside the same app with Flower's LocalDpMod
	$(BIN)/python benchmarks/flower_mods.py --write docs/flower-mod.md

accuracy: $(VENV)/demo.done  ## the error of means, against the paper's best
	$(BIN)/python benchmarks/accuracy.py

# More or other seeds: make flights SEEDS='--seeds 10 --first 2000'
SEEDS ?= --seeds 40 --first 1000
flights: $(VENV)/demo.done  ## what each improvement of training gains, in vehicles
	$(BIN)/python benchmarks/flights.py $(SEEDS) --write docs/learning.md

# DIAMONDS='--diamonds FILE' (diamonds.csv of the package plotnine) and WISDM='--path FILE' add rows.
references: $(VENV)/reproduction.done  ## what solvers reach that hold all data, beside default trainings
	$(BIN)/python benchmarks/references.py linear $(DIAMONDS) --write docs/learning.md
	$(BIN)/python benchmarks/references.py features $(DIAMONDS) $(WISDM) --write docs/networks.md

# Both take OUT=FOLDER, PUBLISH=PAGE (empty: none) and more options of fedldp-reproduce:
# make reproduce REPRODUCE='--data wisdm=FILE --data vehicle=FILE'
reproduce: OUT ?= reproduction/output
reproduce: PUBLISH ?= docs/reproduction.md
reproduce: $(VENV)/reproduction.done  ## the paper's figures, tables and claims, into docs/reproduction.md: two hours
	$(BIN)/fedldp-reproduce --output $(OUT) $(PUBLISH:%=--publish %) $(REPRODUCE)

reproduce-quick: OUT ?= reproduction/output-quick
reproduce-quick: $(VENV)/reproduction.done  ## the same with less data and fewer folds, published nowhere: minutes
	$(BIN)/fedldp-reproduce --quick --output $(OUT) $(PUBLISH:%=--publish %) $(REPRODUCE)

paper-map: $(VENV)/reproduction.done  ## docs/paper-map.md, from the list of the paper's items
	$(BIN)/python -m fedldp_reproduction.items docs/paper-map.md

# On a GPU with PyTorch it takes minutes. NETWORKS='--path FILE' is for WISDM 2019.
networks: $(VENV)/demo.done  ## what networks and softmax reach, with 20 trainings each: hours on a CPU
	$(BIN)/python benchmarks/networks.py --plot docs/images/networks.png $(NETWORKS)

# make city CITY='--picture docs/images/city.png' makes the picture of the documentation.
city: .venv-city/city.done  ## a city of cars that SUMO simulates: its map, true and private, in minutes
	nice .venv-city/bin/python examples/city $(CITY)

pictures: $(VENV)/demo.done  ## the pictures in the documentation
	$(BIN)/fedldp mechanisms --json --plot docs/images/mechanisms.png > /dev/null
	$(BIN)/fedldp mechanisms --inputs --epsilon 4 --json --plot docs/images/inputs.png > /dev/null
	$(BIN)/fedldp mechanisms --bits --epsilon 4 --json --plot docs/images/bits.png > /dev/null
	$(BIN)/fedldp demo --json --output docs/images > /dev/null
	$(BIN)/python tools/journey.py docs/images

# Both generators read mkdocs.yml. If one breaks, build with the other: make docs GENERATOR=mkdocs
# make docs VERSION=0.3 builds versions/0.3, beside the versions that are there.
docs: GENERATOR ?= zensical
docs: VERSION =
docs: export SITE_DIR = $(if $(VERSION),versions/$(VERSION),site)
docs: $(VENV)/docs.done build/docs/notebooks.done  ## the documentation, in site/; a warning is an error
	$(BIN)/python tools/site/reference.py build/docs
	PYTHONPATH=tools/site $(BIN)/$(GENERATOR) build --clean --strict --config-file $(if $(VERSION),mkdocs-version.yml,mkdocs.yml)
	$(BIN)/python tools/site/check.py mkdocs.yml $(SITE_DIR)
	$(if $(VERSION),$(BIN)/python tools/site/versions.py versions)

test-site: docs  ## every page of the documentation in Chromium: desktop and phone, light and dark
	$(BIN)/pytest -m browser tests/tools/test_site_browser.py tests/tools/test_site_versions.py

notebooks: $(VENV)/docs.done  ## the notebooks of the documentation, executed
	$(BIN)/python tools/site/notebooks.py docs/notebooks build/docs
	@touch build/docs/notebooks.done

build/docs/notebooks.done: $(VENV)/docs.done tools/site/notebooks.py $(wildcard docs/notebooks/*.ipynb) $(shell find src -name '*.py')
	@$(MAKE) --no-print-directory notebooks

man: $(VENV)/test.done  ## the manual page, man/fedldp.1, from the helps of all commands
	$(BIN)/python tools/manual.py man/fedldp.1

live-page: $(VENV)/test.done  ## the pictures of a fleet's live page: needs Chromium
	$(BIN)/python tools/live_page.py docs/images

page: $(VENV)/demo.done  ## the numbers of the interactive page, docs/playground/index.html
	$(BIN)/python tools/playground.py

page-vehicle: $(VENV)/wasm.done  ## the vehicle in C on the interactive page, docs/playground/c-vehicle.js
	$(BIN)/python clients/c/browser/build.py docs/playground/c-vehicle.js

dist: $(VENV)/test.done  ## sdist, wheel and SBOM, built twice and compared, and tried out in an environment of their own
	$(BIN)/python -m pip install --quiet --group release
	$(BIN)/python tools/release.py dist
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/pyroma --min=8 dist/*.tar.gz
	$(BIN)/pytest -m dist tests/tools/test_dist.py tests/tools/test_installs.py

test-public: $(VENV)/test.done  ## the files for a public repository, by the schemas of those who read them, and the conda recipe
	$(BIN)/python -m pip install --quiet --group public
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/pre-commit validate-config .pre-commit-config.yaml
	$(BIN)/pytest -m public tests/tools/test_conda_recipe.py

clean:
	rm -rf .cache/solved $(VENV) .venv-dist .venv-flower .venv-minimum .venv-peers .venv-python .venv-vss .venv-engines .venv-city demo site versions dist

$(VENV)/pip.done:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "fedldp needs Python 3.11 or later: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/demo.done: $(VENV)/pip.done pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[cli,plots,parquet]'
	@touch $@

$(VENV)/reproduction.done: $(VENV)/demo.done pyproject.toml fleet/pyproject.toml reproduction/pyproject.toml vehicle/pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[learn]' --editable './fleet[server]' --editable ./reproduction --editable ./vehicle
	@touch $@

$(VENV)/test.done: $(VENV)/reproduction.done pyproject.toml fleet/pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[learn]' --editable './fleet[flower,postgresql,server]' --group dev
	@touch $@

# An environment that has a version of Flower and finds all else in the first one. Without
# dependencies: 1.42 needs a certifi that is not published yet.
.venv-flower/%.done: $(VENV)/test.done
	$(PYTHON) -m venv --clear .venv-flower/$*
	.venv-flower/$*/bin/python -m pip install --quiet --no-deps 'flwr==$*.*'
	@printf '%s\n' "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
	  "$(CURDIR)/src" "$(CURDIR)/fleet" "$(CURDIR)/vehicle" > "$$(echo .venv-flower/$*/lib/python3.*/site-packages)/all-else.pth"
	.venv-flower/$*/bin/python -c \
	  'import importlib.metadata as m, sys; sys.exit(not m.version("flwr").startswith("$*."))'
	@touch $@

.venv-minimum/test.done: pyproject.toml tools/minimum.py
	$(PYTHON) -m venv --clear .venv-minimum
	.venv-minimum/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(PYTHON) tools/minimum.py pyproject.toml > .venv-minimum/constraints.txt
	.venv-minimum/bin/python -m pip install --quiet --constraint .venv-minimum/constraints.txt \
	  --editable '.[cli,learn,parquet,plots]' --group test
	@touch $@

.venv-python/%/test.done: pyproject.toml
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(@D)/bin/python -m pip install --quiet --editable '.[cli,learn,parquet,plots]' --group test
	@touch $@

# The package vss is old and needs old packages; only its catalog is read.
.venv-vss/vss.done:
	$(PYTHON) -m venv --clear .venv-vss
	.venv-vss/bin/python -m pip install --quiet 'vss-tools>=6,<7'
	.venv-vss/bin/python -m pip install --quiet --no-deps vss==1.0.5
	@touch $@


.venv-city/city.done: pyproject.toml fleet/pyproject.toml
	$(PYTHON) -m venv --clear .venv-city
	.venv-city/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	.venv-city/bin/python -m pip install --quiet --editable '.[cli,learn,parquet,plots]' --editable './fleet[server]' \
	  --group test eclipse-sumo==1.28.0
	@touch $@

# All engines in one environment of 1.6 GB, apart from the first one.
.venv-engines/engines.done: pyproject.toml
	$(PYTHON) -m venv --clear .venv-engines
	.venv-engines/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	.venv-engines/bin/python -m pip install --quiet --editable '.[dask,spark,beam,duckdb]' --group engines
	@touch $@

$(VENV)/docs.done: $(VENV)/test.done pyproject.toml
	$(BIN)/python -m pip install --quiet --group docs
	@touch $@

# zig, which compiles C to WebAssembly.
$(VENV)/wasm.done: $(VENV)/test.done pyproject.toml
	$(BIN)/python -m pip install --quiet --group wasm
	@touch $@

$(VENV)/deploy.done: $(VENV)/test.done pyproject.toml
	$(BIN)/python -m pip install --quiet --group deploy
	@touch $@

# A linter that ships the schema of the Compose specification.
build/deploy/compose.done:
	@mkdir -p build/deploy
	cd build/deploy && tar -xzf "$$(npm pack --silent dclint@3.1.0)" package/schemas/compose.schema.json
	@touch $@

$(VENV)/mutation.done: $(VENV)/test.done
	$(BIN)/python -m pip install --quiet cosmic-ray==8.7.0
	@touch $@

$(VENV)/accountant.done: $(VENV)/test.done
	$(BIN)/python -m pip install --quiet 'dp-accounting==0.6.0'
	@touch $@

$(VENV)/torch.done: $(VENV)/test.done
	$(BIN)/python -m pip install --quiet $(TORCH)
	@touch $@

$(VENV)/simulation.done: $(VENV)/torch.done
	$(BIN)/python -m pip install --quiet 'flwr[simulation]'
	@touch $@
