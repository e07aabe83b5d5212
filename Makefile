# Every task of a developer. .ci/run runs the same targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
BUF_VERSION := 1.75.0
BUF_HOME := .cache/buf
BUF := $(BUF_HOME)/node_modules/.bin/buf
GRPCURL_VERSION := v1.9.3
GRPCURL := .cache/go/bin/grpcurl
CONSOLE := clients/console/node_modules/.package-lock.json
REPORT ?= target/bench/report.json
# How the program is built and run; CI says that its tests have built it.
BUILD ?= $(CARGO) build --locked --quiet
# The tests have tokio with its clock of tests. The demo has it as well, so `make test` compiles only what has other features again.
RUN ?= $(CARGO) run --locked --quiet --no-default-features --features tokio/test-util --

.PHONY: help demo recording test replicas torture hostile soak vectors vectors-refresh lint words fmt proto proto-baseline proto-publish bench bench-docs bench-compare bench-dig bench-scale counts counts-record build-cost pure doc docs lab yaml fuzz fuzz-replay release dist clients-python clients-go own-scheduler clients-kubescheduler compare-kubescheduler e2e walk deploy supply features advisories release-check cross clients-generate module-path console browser ci rust clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-22s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: rust ## Start a server, load small clusters, show and check each result of the README, then end
	@$(RUN) demo

recording: rust ## Record the demo as docs/pictures/demo.svg (PUMICE_BIN: another program)
	$(if $(PUMICE_BIN),,$(CARGO) build --locked)
	.ci/record.py --shown "pumice demo" docs/pictures/demo.svg $(or $(PUMICE_BIN),target/debug/pumice) demo

test: rust ## Run all tests, with those in the documentation
	$(CARGO) test --locked --workspace

replicas: rust ## Run three servers on a real etcd, or API server (STORE=kubernetes), built here: failures, and histories checked by a model (SECONDS=20 MEMBERS=1 SEED=1)
	@$(BUILD)
	@programs="$$(clients/go/kubescheduler/e2e/control-plane.sh)" && PUMICE_ETCD="$$programs/etcd" PUMICE_KUBE_APISERVER="$$programs/kube-apiserver" \
	  PUMICE_REPLICAS_STORE="$(or $(STORE),etcd)" PUMICE_TORTURE_SECONDS="$(or $(SECONDS),20)" \
	  PUMICE_TORTURE_MEMBERS="$(or $(MEMBERS),1)" PUMICE_TORTURE_SEED="$(or $(SEED),1)" CARGO="$(CARGO)" .ci/replicas $(ONLY)

torture: rust replicas ## Damage what keeps promises for long: replicas on both stores with one and three members, 100 kills, 500 first starts, 20,000 schedules, 10,000 scripts of an API server (KILLS, STARTS, SCHEDULES, SCRIPTS; SECONDS of each store)
	@$(MAKE) --no-print-directory replicas STORE=kubernetes
	@$(MAKE) --no-print-directory replicas MEMBERS=3 ONLY=torture::servers_keep_every_promise
	@$(MAKE) --no-print-directory replicas STORE=kubernetes MEMBERS=3 ONLY=torture::servers_keep_every_promise
	PUMICE_TORTURE=$(or $(KILLS),100) $(CARGO) test --locked --workspace --test durable -- ledger::storm --nocapture
	PUMICE_FIRST_STARTS=$(or $(STARTS),500) $(CARGO) test --locked --workspace --test durable -- ledger::first_start --nocapture
	PUMICE_MODEL_SCHEDULES=$(or $(SCHEDULES),20000) $(CARGO) test --locked --workspace --lib -- shuttle_tests
	PUMICE_LIVE_SCRIPTS=$(or $(SCRIPTS),10000) $(CARGO) test --locked --workspace --lib -- tests::a_watch_survives_random_scripts

hostile: rust ## Attack and overload an optimised server; print times and memory meanwhile (HOSTILE=N: percent of the full attacks; PUMICE_BIN: another program)
	@[ -n "$(PUMICE_BIN)" ] || $(CARGO) build --release --locked --quiet --bin pumice
	@PUMICE_BIN=$(or $(PUMICE_BIN),$(CURDIR)/target/release/pumice) PUMICE_HOSTILE=$(or $(HOSTILE),100) $(CARGO) test --locked --quiet --test hostile -- hostile::measure::attacks hostile::overload::overload --exact --ignored --nocapture --test-threads 1

soak: rust ## Mixed load for 20 minutes with TLS, roles, durable state and audit; memory, threads, files and latencies have to be steady (SECONDS=N; PUMICE_BIN: another program)
	@[ -n "$(PUMICE_BIN)" ] || $(CARGO) build --release --locked --quiet --bin pumice
	@PUMICE_BIN=$(or $(PUMICE_BIN),$(CURDIR)/target/release/pumice) SECONDS_TO_SOAK=$(or $(SECONDS),1200) $(CARGO) test --locked --quiet --test operations -- security::soak::the_server_is_steady_under_mixed_load --exact --ignored --nocapture

vectors: rust ## Compare decisions with the recorded ones (PUMICE_VECTORS=DIR: those of a directory)
	@$(CARGO) test --locked --quiet -p pumice --test recorded -- vectors::run --exact --nocapture 2>&1 | \
	  awk '!closed; /^[0-9]+ passed, [0-9]+ failed$$/ { closed = 1 }'

vectors-refresh: ## Replace the recordings (FROM=DIR: a directory of plain .json files)
	@[ -d "$(FROM)" ] || { echo "FROM names no directory: make vectors-refresh FROM=DIR" >&2; exit 1; }
	@for file in "$(FROM)"/*.json; do \
	  gzip -9 --no-name --stdout "$$file" >"tests/vectors/$${file##*/}.gz"; \
	done

words: ## Check the vocabulary (names of types, summaries, coined words), and that drawn pictures and the table of the dashboard are current
	@.ci/words.py --self-test
	@.ci/words.py --figures
	@.ci/pictures.py --check
	@.ci/dashboard.py --check

lint: rust proto words ## Check format, lints, protocol files and the vocabulary
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

fmt: rust ## Format the code
	$(CARGO) fmt

proto: $(BUF) ## Lint the protocol files and compare them with the baseline
	$(BUF) lint proto
	$(BUF) breaking proto --against proto/baseline.binpb

proto-baseline: $(BUF) ## Take today's protocol files as the baseline (before a release only)
	$(BUF) build proto -o proto/baseline.binpb

proto-publish: $(BUF) ## Publish the protocol files under the name in proto/buf.yaml (BUF_TOKEN: who publishes)
	$(BUF) push proto --label "$$(sed -n 's/^version = "\(.*\)"$$/v\1/p' Cargo.toml | head -1)" --git-metadata

bench: rust ## Measure engine, wire and memory, into target/bench/report.json (QUICK=1: in seconds, roughly)
	@mkdir -p target/bench
	@$(CARGO) run --locked --release --package pumice-counts --features portable -- time $(if $(QUICK),5,150) >target/bench/portable.txt
	@$(CARGO) bench --locked --bench report -- $(if $(QUICK),--quick) --portable $(abspath target/bench/portable.txt) --out $(abspath $(REPORT))

bench-docs: $(if $(MEASURED),,bench) ## Measure, then write the measurements into docs/internals/performance.md and its drawing (MEASURED=1: those of the last report)
	@$(CARGO) bench --locked --quiet --bench report -- page $(abspath $(REPORT))

bench-compare: ## Compare two reports (OLD=FILE NEW=FILE)
	@benches/compare.sh "$(OLD)" "$(or $(NEW),$(REPORT))"

bench-dig: rust ## Measure single operations at length (BENCH=admission|cards|fairness|place)
	$(CARGO) bench --locked --bench $(or $(BENCH),place)

bench-scale: rust ## Repeat KAI's scale tests as decisions, and write docs/internals/scale.md (NODES=50: quickly, written nowhere; PUMICE_BIN: another program)
	@[ -n "$(PUMICE_BIN)" ] || $(CARGO) build --release --locked --quiet --bin pumice
	benches/scale.py $(or $(PUMICE_BIN),target/release/pumice) $(if $(NODES),--nodes $(NODES) --runs 1,--write)

lab: rust ## Repeat published experiments on shared devices, into target/lab (FGD=DIR: all of a directory; PUMICE_LAB_BIN: another program)
	@mkdir -p target/lab/packed
	@cd crates/lab/tests/data && gunzip -c nodes.csv.gz >$(CURDIR)/target/lab/packed/openb_node_list_gpu_node.csv && \
	  for name in default gpuspec33; do gunzip -c $$name.csv.gz >$(CURDIR)/target/lab/packed/openb_pod_list_$$name.csv; done && \
	  gunzip -c published.csv.gz >$(CURDIR)/target/lab/packed/published.csv
	@$(or $(PUMICE_LAB_BIN),$(CARGO) run --locked --quiet --release --package pumice-lab-program --) reproduce $(or $(FGD),target/lab/packed --seed 42) \
	  --bound --csv target/lab/lab.csv --svg target/lab/lab.svg

counts: rust ## Count the instructions of the hot paths under valgrind, compare with benches/counts.txt
	@benches/counts.sh check

build-cost: rust ## Build a commit cold and print what it costs (COMMITS="OLD NEW": two in turn, PAIRS=3; RUN=COMMAND)
	@.ci/build-cost.py $(or $(COMMITS),HEAD) --pairs $(or $(PAIRS),1) $(if $(RUN),--run "$(RUN)")

counts-record: rust ## Record these counts in benches/counts.txt
	@benches/counts.sh record

pure: rust ## Prove that the engine has no I/O: build it alone, and compare what it depends on with the list
	$(CARGO) check --locked --package pumice-engine
	@.ci/pure

doc: rust ## Build the reference, warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps

docs: rust $(GRPCURL) ## Run the commands of the pages and compare their output
	@$(CARGO) test --locked --quiet -p pumice --test operations -- docs::commands::commands_do_what_the_pages_say --exact --ignored --nocapture

yaml: rust ## Compare the reader of YAML with gopkg.in/yaml.v2 over 20,000 mutated documents (needs Go)
	@cd tests/yaml && go build -o ../../.cache/yaml-v2 .
	@PUMICE_YAML_V2="$(CURDIR)/.cache/yaml-v2" $(CARGO) test --locked --quiet -p pumice --test recorded -- yaml_reader --ignored --nocapture

fuzz: rust ## Feed every decoder with mutated bytes under libFuzzer, and compare fast with plain code: 20 seconds a target (TARGET=NAME; SECONDS=N or RUNS=N; MERGE=1: keep inputs; needs Go and a C++ compiler)
	@TARGET="$(TARGET)" FUZZ_SECONDS="$(or $(SECONDS),20)" RUNS="$(RUNS)" MERGE="$(MERGE)" crates/fuzz/run.sh

fuzz-replay: rust ## Replay the inputs of the fuzzer, those beside programs of Go, too
	@crates/fuzz/go.sh
	@$(CARGO) test --locked --quiet --workspace --test replay -- --include-ignored

release: rust ## Build target/release/pumice
	$(CARGO) build --locked --release

dist: rust ## Build target/dist/pumice: optimised across crates, stripped
	$(CARGO) build --locked --profile dist

clients-python: rust ## Check the Python client with a real server
	@$(BUILD)
	@clients/python/check.sh

clients-go: rust ## Check the Go client with a real server
	@$(BUILD)
	@clients/go/check.sh

own-scheduler: rust ## Build the schedulers in Rust, Java and C++, and run them with a real server
	@$(BUILD)
	@python3 examples/own-scheduler/check.py

clients-kubescheduler: rust ## Check the plugin of kube-scheduler with its framework and a real server
	@$(BUILD)
	@clients/go/kubescheduler/check.sh

compare-kubescheduler: rust ## Compare decisions with kube-scheduler's own modules, two releases (CLUSTERS=N under each configuration)
	@$(BUILD)
	@PUMICE_COMPARE_CLUSTERS="$(or $(CLUSTERS),1440)" clients/go/kubescheduler/check.sh compare

e2e: rust ## Schedule pods with etcd, an API server and kube-scheduler with its plugin, all built here (minutes the first time)
	@$(BUILD)
	@clients/go/kubescheduler/e2e/run.sh

walk: rust ## Walk through a Volcano cluster with etcd, an API server and vc-scheduler with the adapter (VOLCANO=DIR: its source)
	@$(BUILD)
	@VOLCANO="$(VOLCANO)" clients/go/volcano/walk/run.sh $(STEPS)

deploy: rust ## Check images, chart, manifests, unit, dashboard and alerts, with a real API server and Prometheus (needs root)
	@$(BUILD)
	@deploy/check/run.sh

supply: rust ## Check licences, bans and duplicates of dependencies, and the file of their licences
	@"$$(deploy/supply/tools.sh cargo-deny)" check licenses bans sources
	@python3 deploy/supply/licences.py --check
	@! grep -nE 'uses: ' .github/workflows/*.yml | grep -vE '@[0-9a-f]{40} # v' || { echo "pin each action by the SHA of a commit, with its version as a comment" >&2; exit 1; }

features: rust ## Compile the program with each set of its features
	@for set in "" etcd kubernetes opentelemetry; do \
	  echo "features: $${set:-none}"; \
	  $(CARGO) clippy --locked --quiet --package pumice --lib --bins --no-default-features --features "$$set" -- -D warnings || exit 1; \
	done

advisories: rust ## Look for known vulnerabilities in what the program and its clients depend on; writes docs/reference/supply-chain.md
	@clients/python/check-versions.sh
	@.cache/python-highest/bin/python -m pip install --quiet --disable-pip-version-check PyYAML
	@CARGO_DENY="$$(deploy/supply/tools.sh cargo-deny)" GOVULNCHECK="$$(deploy/supply/tools.sh govulncheck)" .cache/python-highest/bin/python deploy/supply/advisories.py

release-check: rust ## Make a release from a clean clone of the last commit and use its files (PROFILE=dev: quickly; VERSION: the version it must have; OUT=DIR: keep the files)
	@PROFILE=$(or $(PROFILE),dist) VERSION=$(VERSION) OUT=$(abspath $(OUT)) deploy/release/check.sh

cross: rust ## Build for the other architecture and run it under an emulator: demo and kube-scheduler (VECTORS=1: recorded decisions, too)
	@VECTORS=$(VECTORS) deploy/release/cross.sh

clients-generate: rust ## Generate the clients' messages again, after a change of the protocol
	@PUMICE_BLESS=1 $(CARGO) test --locked --quiet --package pumice-generator
	@[ -x .cache/python/bin/python ] || python3 -m venv .cache/python
	@.cache/python/bin/python -m pip install --quiet --disable-pip-version-check --requirement clients/python/requirements-dev.txt
	@.cache/python/bin/python clients/python/tools/generate.py
	@.cache/python/bin/python clients/python/tools/blocking.py
	@clients/go/generate.sh

module-path: ## Rename the Go modules everywhere (NEW=host.example/group/pumice/clients/go)
	@clients/go/module-path.sh "$(NEW)"

console: $(CONSOLE) ## Check, test and build the pages under /console/, into clients/console/dist (needs Node.js; other targets use that output)
	@cd clients/console && npm run --silent check && npm run --silent test && npm run --silent build
	@clients/console/size.sh

browser: $(CONSOLE) ## Walk the console in Chromium: what it shows, how fast, for whom; writes docs/pictures (PICTURES=DIR; PUMICE_BIN, CHROME: other programs; SLACK=N: longer bounds)
	@cd clients/console && PICTURES="$(PICTURES)" PUMICE_BIN="$(PUMICE_BIN)" CARGO="$(CARGO)" SLACK="$(or $(SLACK),1)" npm run --silent browser

ci: ## Run every check, as a build machine does
	@.ci/run

clean: ## Remove everything that was built
	rm -rf target .cache

# The compiler is the developer's own choice, so that this target asks for it and does not install it.
rust:
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust with rustup (https://rustup.rs), then run make again" >&2; exit 1; }

# The protocol checker, at one exact version; it brings its binary as a package of the same version.
$(BUF): Makefile
	@command -v npm >/dev/null || { echo "npm is missing: install Node.js, which carries the protocol checker" >&2; exit 1; }
	@mkdir -p $(BUF_HOME)
	@npm install --prefix $(BUF_HOME) --no-save --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error @bufbuild/buf@$(BUF_VERSION)
	@touch $(BUF)

# A client of any gRPC server, for the pages' examples; built by Go, whose own checksums guard it.
$(GRPCURL): Makefile
	@command -v go >/dev/null || { echo "go is missing: install Go (https://go.dev/dl), which builds grpcurl for the commands of the pages" >&2; exit 1; }
	@mkdir -p $(@D)
	@GOBIN=$(CURDIR)/$(@D) GOFLAGS=-mod=mod go install github.com/fullstorydev/grpcurl/cmd/grpcurl@$(GRPCURL_VERSION)
	@touch $@

# The packages of the console, at the exact versions of its lock file. None of them runs a script of its own.
$(CONSOLE): clients/console/package-lock.json
	@command -v npm >/dev/null || { echo "npm is missing: install Node.js 20.19 or newer, which builds the console" >&2; exit 1; }
	@npm ci --prefix clients/console --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@
