SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

# Settings a user may give: make fuzz T=10s, make bench OLD=main, ...
T ?= 1m
PKG ?= ./...
BENCH ?= .
COUNT ?= 6
ONCE ?=
UPDATE ?=
OLD ?=
# With STRICT=1, as in .ci/run, a dependency that cannot be downloaded or built is an error; otherwise its tests are skipped.
STRICT ?=
export STRICT

EXAMPLES := examples/ensembles
# Tests of allocation counts and memory have one of these words in their name:
# the race detector changes what they measure, so they run without it.
BUDGETS := Alloc|Budget

# The ensemble tests again, with all models at devices of checking drivers. Tests that have devices or processes of their own, or no
# server, are left out of it.
ENSEMBLES := ./pipeline/exec ./internal/repository ./cmd/tutti
NOT_ENSEMBLES := OnCheckingDriver|GPU|Pages?$$|^Test(Jobs?[A-Z]|Script|Mistakes|Worker|Temporal|WithoutCgo|PyTorch|Plans|ModelMemory|WrongModels|TimesOfSteps)
test_at_devices = TUTTI_TEST_AT_DEVICES=1 go test -json -short -vet=off -count=1 -timeout 60m -skip "$(NOT_ENSEMBLES)" $(ENSEMBLES)

# Exports where everything is that tests need and that scripts/prepare-tests made ready.
prepared = list=$$(scripts/prepare-tests $(1)); while IFS= read -r line; do export "$$line"; done <<<"$$list"

# The tests of tutti-temporal use its compiled packages: with the race detector all of Temporal would be compiled again.
test_temporal = go -C temporal test -json -vet=off -timeout 30m ./...

# Prints the path of a tool of tools/go.mod, built when it is not in the cache.
tool = $$(go -C tools tool -n $(1))

.PHONY: help
help: ## Print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/tutti
	go build -o bin/tutti ./cmd/tutti

.PHONY: man
man: ## Write the manual pages and the files for completion into bin/share, laid out as /usr/share
	CGO_ENABLED=0 go run ./internal/cli/manpages bin/share

# A module of its own: the server's users do not build Temporal's 180 modules.
.PHONY: temporal
temporal: ## Build bin/tutti-temporal, the Temporal server that serve --jobs starts (7 minutes of CPU time when cold)
	@scripts/prepare-temporal

.PHONY: runtime
runtime: build ## Fetch ONNX Runtime, and a Python with numpy for model.py, into .runtime/ (43 MB)
	bin/tutti runtime fetch onnxruntime
	bin/tutti runtime fetch python || [[ "$(STRICT)" != 1 ]]

.PHONY: runtime-pytorch
runtime-pytorch: build ## Fetch LibTorch into .runtime/ and compile its shim
	bin/tutti runtime fetch pytorch

# The runtimes of all other backends; archives are kept in the user's cache.
RUNTIMES := openvino tensorflow pytorch dali

.PHONY: runtimes
runtimes: runtime ## Fetch the runtimes of all backends into .runtime/ (1.2 GB)
	@for name in $(RUNTIMES); do bin/tutti runtime fetch "$$name"; done

# Status 3 means that the weights cannot be downloaded here; the examples that need them are left out.
.PHONY: examples
examples: ## Fetch and convert the models of the examples
	scripts/prepare-examples || [[ $$? == 3 ]]

.PHONY: demo
demo: runtime examples ## Serve the examples and send each a request; ONCE=1 ends after the responses
	bin/tutti demo $(if $(ONCE),--once) $(EXAMPLES)

# The timeouts allow for a machine under ten times the load. Each test has its own means to detect a hang.
.PHONY: test
test: ## Run the tests with every backend and Triton's clients, fetching what they need (2 GB; race detector on)
	@$(prepared); $(call tool,gotestsum) --format pkgname --format-hide-empty-pkg --raw-command -- \
		bash -c 'rc=0; go test -json -short -race -timeout 90m ./... || rc=$$?; \
		go -C bench test -json -short -race -timeout 30m ./... || rc=$$?; \
		$(test_temporal) || rc=$$?; \
		go test -json -short -vet=off -timeout 60m -run "$(BUDGETS)" ./... || rc=$$?; \
		$(test_at_devices) || rc=$$?; exit $$rc'

.PHONY: test-all
test-all: ## Run everything, long suites and ownership checks included
	@$(call prepared,all); $(call tool,gotestsum) --format pkgname --format-hide-empty-pkg --raw-command -- \
		bash -c 'rc=0; go test -json -race -timeout 6h ./... || rc=$$?; \
		go -C bench test -json -race -timeout 2h ./... || rc=$$?; \
		$(test_temporal) || rc=$$?; \
		go test -json -vet=off -timeout 2h -run "$(BUDGETS)" ./... || rc=$$?; \
		TUTTI_TEST_SEEDS=20 go test -json -count=1 -timeout 2h -run "OnCheckingDriver|TestDevices$$" ./cmd/tutti ./core/tensor/cuda ./internal/simdev || rc=$$?; \
		for seed in 1 2 3; do TUTTI_CUDA_CHECK_SEED=$$seed $(test_at_devices) ./conformance || rc=$$?; done; \
		go test -json -tags faults -count=1 -timeout 2h -run "TestFaults|TestSeed|TestNth" ./cmd/tutti ./internal/faults || rc=$$?; \
		go test -json -short -tags invariants -timeout 2h ./... || rc=$$?; exit $$rc'
	@$(MAKE) soak N=200000
	@if command -v npm >/dev/null; then $(MAKE) check-ui test-ui; \
		else echo "the dashboard is not tested: it takes Node 20 with npm and chromium, then make check-ui test-ui"; fi

# TRITON_TUTORIALS, TRITON_PYTHON_BACKEND, TRITON_CLIENT and TRITON_SERVER name checkouts whose files are served as they
# are, and whose clients run; without them the files are our own. NAME='Part_5 bls' takes a part; PYTHON names the
# interpreter of models and clients.
NAME ?=
.PHONY: test-real
test-real: runtimes examples ## Serve the repositories of Triton's tutorials and examples, and list the necessary changes of each; then run clients of OpenAI, Cohere, TEI and MCP
	@set +e; packages=$$(scripts/prepare-conformance real) || exit; \
		for name in onnxruntime openvino tensorflow pytorch; do \
			export "TUTTI_TEST_$${name^^}=$$(bin/tutti runtime fetch "$$name" 2>/dev/null)"; done; \
		provider=$$(scripts/prepare-providers) && export TUTTI_TEST_ONNXRUNTIME_OPENVINO="$$provider"; \
		PYTHONPATH="$$packages" "$${PYTHON:-python3}" -B conformance/real/run.py $(NAME); status=$$?; \
		packages=$$(scripts/prepare-conformance apis) || exit; \
		PYTHONPATH="$$packages" "$${PYTHON:-python3}" -B conformance/apis/run.py $(NAME) && exit $$status

# Triton's tests want Python 3.11 and the ports 8000 to 8002; PYTHON names another interpreter than python3.11. ARGS are
# options of conformance/triton/run.py: ARGS='--own-net --out FILE' has ports of its own, as root, and writes the results.
SRC ?=
ARGS ?=
.PHONY: test-triton
test-triton: ## Run the QA tests of Triton that Triton passes, from SRC=CHECKOUT; NAME='http grpc' for some
	@[[ -d "$(SRC)/qa" ]] || { echo "SRC is '$(SRC)', expected a checkout of Triton's repository server, branch r24.10. To fetch it:" >&2; \
		echo "  git clone --depth 1 --branch r24.10 https://github.com/triton-inference-server/server ../triton-server" >&2; \
		echo "  make test-triton SRC=../triton-server" >&2; exit 2; }
	@$(MAKE) runtime
	@set +e -f; export PYTHON="$${PYTHON:-$$(command -v python3.11 || echo python3)}"; \
		packages=$$(scripts/prepare-conformance triton) || exit; \
		TUTTI_PYTHON="$${TUTTI_PYTHON:-$$PYTHON}" PYTHONPATH="$$packages" "$$PYTHON" -B conformance/triton/run.py \
		--source "$(SRC)" --baseline conformance/triton/baseline.json $(ARGS) $(NAME)

.PHONY: test-collector
test-collector: ## Send traces to a real OpenTelemetry Collector (fetches 112 MB of modules)
	go -C tools/collector build -o ../../bin/collector .
	TUTTI_COLLECTOR=$(CURDIR)/bin/collector go test -count=1 -timeout 5m -run '^TestCollector$$' -v ./internal/tracing/otlp

# The programs that chaos harms besides the server; without them their events are left out, and the summary says so.
outside = -redis "$$(scripts/prepare-redis | tail -n 1)" -s3 "$$(scripts/prepare-cloud s3 | tail -n 1)"

.PHONY: bin/tutti-chaos
bin/tutti-chaos:
	@go -C bench build -o ../bin/tutti-chaos ./chaos

SEED ?= 0
LOAD ?= 0.8
.PHONY: test-chaos
test-chaos: bin/tutti-chaos runtime ## Harm a real server under load for T=30m, by the plan of SEED, and check every response and what is left
	bin/tutti-chaos -t $(if $(filter command environment,$(firstword $(origin T))),$(T),30m) -seed $(SEED) -load $(LOAD) $(outside) -out bin/chaos

N ?= 10000000
SOAK_TIME ?= 0
.PHONY: soak
soak: bin/tutti-chaos ## Send N=10000000 requests over the sockets, and as many through a graph, and check for leaks; SOAK_TIME=30m ends the first part
	bin/tutti-chaos -soak $(N) -soak-time $(SOAK_TIME) -out bin/soak
	go test -run '^TestSoakBudget$$' -timeout 60m -v ./pipeline/exec -args -requests $(N)

UI := internal/server/web/ui
# Node's packages, downloaded when the lock file changes.
$(UI)/node_modules/.package-lock.json: $(UI)/package-lock.json
	cd $(UI) && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

.PHONY: ui
ui: $(UI)/node_modules/.package-lock.json ## Build the dashboard into internal/server/web/dist (needs Node)
	cd $(UI) && npm run --silent build

.PHONY: check-ui
check-ui: $(UI)/node_modules/.package-lock.json ## Check the dashboard's types and units, and that the embedded files are up to date
	@cd $(UI); out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; npx tsc --noEmit; \
		UI_OUT="$$out" npx vite build --logLevel error; npx vitest run --silent; \
		diff -r "$$out" ../dist || { echo "internal/server/web/dist is not up to date: run make ui" >&2; exit 1; }

.PHONY: test-ui
test-ui: build runtime temporal examples $(UI)/node_modules/.package-lock.json ## Look at every page in a real browser under load; PICTURE=1 draws the pictures of docs/dashboard.md, PICTURES=update those that pages are compared with
	cd $(UI) && node browser/$(if $(PICTURES),pictures.mjs $(PICTURES),run.mjs $(if $(PICTURE),--picture))

.PHONY: picture
picture: build runtime examples $(UI)/node_modules/.package-lock.json ## Draw docs/dashboard.webp, the README's animation (needs chromium and img2webp)
	cd $(UI) && node browser/animation.mjs

.PHONY: site
site: ## Build README.md and docs/ as a site with search into bin/site, and check its links
	scripts/site

# The linters that need no types: the others would analyse all of Temporal, 10 minutes long.
without_types := funlen,godot,gochecknoinits,misspell,nolintlint,whitespace

.PHONY: lint
lint: check-generate ## Check style, formatting and generated code
	@lint=$(call tool,golangci-lint); echo "golangci-lint run ./..."; "$$lint" run ./...; \
		for module in tools bench; do (cd $$module; "$$lint" run --config ../.golangci.yml ./...); done; \
		go -C temporal vet ./...; \
		cd temporal; "$$lint" run --config ../.golangci.yml --enable-only $(without_types) ./...

.PHONY: vulncheck
vulncheck: ## Fail when the programs call Go code with a known weakness, or the dashboard's packages have one
	scripts/vulncheck
	@if ! command -v npm >/dev/null; then echo "the dashboard's packages are not audited: npm is missing"; else cd $(UI); \
		rc=0; out=$$(npm audit --audit-level=low 2>&1) || rc=$$?; case "$$out" in \
			*"audit endpoint returned an error"*) echo "the dashboard's packages are not audited: the registry has no audits" ;; \
			*) echo "$$out"; exit $$rc ;; esac; fi

.PHONY: fmt
fmt: ## Format the Go code
	@lint=$(call tool,golangci-lint); echo "golangci-lint fmt ./..."; "$$lint" fmt ./...

.PHONY: generate
generate: ## Write the Go code of proto/ and the PTX of the GPU kernels
	go -C tools run ./protogen
	scripts/generate-kernels

TO ?=
.PHONY: module-path
module-path: ## Change the module path everywhere: make module-path TO=example.com/x
	@scripts/module-path '$(TO)'

.PHONY: check-generate
check-generate: ## Fail when the Go code of proto/ or the PTX of the GPU kernels is not up to date
	go -C tools run ./protogen -check
	scripts/generate-kernels --check

# Only packages whose tests have the flag -update are run.
.PHONY: golden
golden: ## Regenerate the golden files
	@dirs=$$(grep -rlE --include='*_test.go' '^\s*"github.com/tutti-server/tutti/internal/goldentest"$$' . | xargs -r dirname | sort -u || true); \
		if [[ -n $$dirs ]]; then go test -short $$dirs -update; else echo "no package has golden files"; fi

.PHONY: fuzz
fuzz: ## Fuzz every target in turn for T=1m each; PKG=./core/config for one package
	@go list -f '{{.Dir}}' $(PKG) | while read -r dir; do \
		for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$$dir"/*_test.go 2>/dev/null | cut -c6- || true); do \
			echo "== $$dir $$f"; \
			go test -C "$$dir" -run '^$$' -fuzz "^$$f\$$" -fuzztime $(T) -fuzzminimizetime 100x . </dev/null; \
		done; \
	done

.PHONY: bench
bench: runtime examples bench-process ## Run the benchmarks (BENCH, PKG, COUNT); OLD=ref compares with a commit
	@mkdir -p bin/bench
	go test -short -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) $(PKG) | tee bin/bench/new.txt
	@if [[ -n '$(OLD)' ]]; then \
		old=$$(mktemp -d); trap 'git worktree remove --force "$$old"' EXIT; \
		git worktree add --detach "$$old" '$(OLD)'; \
		cp -r .runtime "$$old"/; (cd "$$old"; scripts/prepare-examples || true); \
		go -C "$$old" test -short -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) $(PKG) > bin/bench/old.txt || true; \
		$(call tool,benchstat) bin/bench/old.txt bin/bench/new.txt; \
	fi

# The benchmarks are a module of their own: users of the server do not build them.
.PHONY: bin/tutti-bench
bin/tutti-bench:
	@go -C bench build -o ../bin/tutti-bench .

.PHONY: bench-process
bench-process: bin/tutti-bench runtime examples ## Compare the server with net/http and with Python, process against process
	bin/tutti-bench -rounds $(COUNT)

# Peers that cannot be had here are left out. MATRIX='-scenarios text -peers triton -concurrency 8,32' measures a part;
# all of it takes an hour.
MATRIX ?=
.PHONY: bench-peers
bench-peers: bench-process ## Compare ensembles with Triton and with Python's servers (MATRIX for the bench's flags)
	bin/tutti-bench -only matrix -rounds 3 -profile bin/profiles $(MATRIX)

.PHONY: bench-agree
bench-agree: build bin/tutti-bench ## Compare tutti bench with perf_analyzer, and measure its CPU
	bin/tutti-bench -only agree -rounds 3

.PHONY: bench-wire
bench-wire: bin/tutti-bench build ## Compare HTTP and gRPC with bare echo servers on the same libraries
	bin/tutti-bench -only wire -rounds $(COUNT)

.PHONY: bench-steps
bench-steps: bin/tutti-bench ## Compare the native steps with the same work in Python, a thread each
	bin/tutti-bench -only steps -rounds $(COUNT)

.PHONY: bench-jpeg
bench-jpeg: bin/tutti-bench ## Compare the JPEG decoder with libjpeg-turbo's fastest path on files of 1080p, a thread each (fetches 90 MB, once)
	bin/tutti-bench -only jpeg -rounds $(COUNT)

.PHONY: bench-audio
bench-audio: bin/tutti-bench ## Compare the steps for audio with soundfile, librosa and transformers, a thread each (fetches 150 MB, once)
	bin/tutti-bench -only audio -rounds $(COUNT)

.PHONY: bench-backends
bench-backends: bin/tutti-bench runtimes ## Compare a call of each backend with the same call of its framework in Python, and of tritonlib (needs a C compiler) with one in the server; fails beyond a limit
	bin/tutti-bench -only backends -rounds $(COUNT)

.PHONY: bench-sched
bench-sched: bin/tutti-bench ## Measure what schedulers and the executor add to the models' work; fails beyond a limit
	bin/tutti-bench -only sched -rounds $(COUNT)

.PHONY: bench-goodput
bench-goodput: bin/tutti-bench runtime examples build ## Compare policies for deadlines with what any policy could do, in virtual time, then the server beside Triton; fails when a goal is missed
	bin/tutti-bench -only goodput,goodputlive,goodputtext,goodputshared

.PHONY: bench-streams
bench-streams: bin/tutti-bench build ## Measure the time to the first chunk through three decoupled steps
	bin/tutti-bench -only streams -rounds $(COUNT)

.PHONY: bench-jobs
bench-jobs: bin/tutti-bench runtime examples temporal ## Compare jobs with the same rows of a client, and measure what jobs cost online requests and what a remote step costs; fails beyond a limit
	bin/tutti-bench -only remote,jobs,jobsonline -rounds $(COUNT)

.PHONY: bench-ocr
bench-ocr: bin/tutti-bench runtime build ## Compare the example ocr with the same work in one Python model with BLS, 8 clients; fails below 3 times its throughput
	bin/tutti-bench -only ocr -rounds $(COUNT)

.PHONY: bench-router
bench-router: bin/tutti-bench build ## Compare an ensemble with KServe's router of an InferenceGraph (builds 1,200 packages of KServe, once)
	scripts/prepare-peers kserve
	bin/tutti-bench -only router -rounds $(COUNT)

.PHONY: bench-precision
bench-precision: bin/tutti-bench runtimes examples build ## Compare text in INT8 and BF16 with FP32: CPU, throughput and closeness; fails when a goal is missed
	bin/tutti runtime fetch quantizer
	bin/tutti-bench -only precision -rounds $(COUNT)

.PHONY: bench-embeddings
bench-embeddings: bin/tutti-bench runtime examples build ## Compare /v1/embeddings with v2 requests and with Infinity on the same model (fetches 3 GB, once); fails when a goal is missed
	bin/tutti-bench -only embeddings -rounds $(COUNT)

.PHONY: bench-tax
bench-tax: bin/tutti-bench runtime ## Compare ensembles with their slowest step alone, and with their models called directly; fails beyond a limit
	bin/tutti-bench -only tax -rounds $(COUNT)

# It does not look at wall time, so that it can run where other programs do. A clone without the reference's commit compares
# no CPU time.
.PHONY: bench-guard
bench-guard: ## Fail when a request allocates more than recorded, or computes more than at the reference's commit; UPDATE=1 records both
	reference= && $(if $(UPDATE),,reference=$$(scripts/prepare-guard) || [ $$? = 3 ] &&) \
		go -C bench test -count=1 -timeout 60m -run '^TestGuard$$' -v . -args -guard \
		$(if $(UPDATE),-guard-update "$$(git rev-parse HEAD)",-guard-reference "$$reference")

# Compiling for a profile takes as long as compiling everything anew.
.PHONY: bench-pgo
bench-pgo: bin/tutti-bench build runtime examples ## Tell what a build gains that a profile guides, and leave the profile in bin/tutti.pgo (10 minutes)
	bin/tutti-bench -only matrix -peers none -protocols json,binary,grpc -concurrency 8 -loops closed -rounds 1 -tax=false -profile bin/profiles
	bin/tutti-bench -only pgo -profile bin/profiles

.PHONY: bench-repo
bench-repo: ## Measure a repository of 1,000 models: loading, idle memory, polling, looking up
	go test -run '^$$' -bench '^BenchmarkRepository$$' -benchtime 0.5s -count $(COUNT) ./internal/repository

# The same measurements are part of the kit, for machines with a GPU and without Go. MODELS is the folder that
# deploy/gpu-kit/models.py wrote.
MODELS ?= bin/gpu-models
.PHONY: bench-gpu
bench-gpu: bin/tutti-bench build ## Measure edges between device steps on the checking driver, and ensembles on a GPU if there is one
	@$(prepared); go test -short -run '^$$' -bench '^BenchmarkDeviceEdge' -benchmem -count $(COUNT) ./scheduler/batch
	@if bin/tutti doctor | grep -q '^ *ok *gpu'; then bin/tutti-bench -only gpu -rounds 3 -gpu-models '$(MODELS)'; \
		else echo "no GPU on this machine: make gpu-kit packs the measurements for one that has it"; fi

.PHONY: gpu-kit
gpu-kit: ## Pack what a machine with a GPU needs to try the server: bin/gpu-kit.tar.xz
	scripts/gpu-kit

# PLATFORM=linux/arm64 builds one platform. CHECK=1 builds a second time, elsewhere, and fails if a byte differs.
PLATFORM ?=
CHECK ?=
.PHONY: dist
dist: ## Build the files of a release into dist/: archives, deb packages, wheels, checksums, SBOMs (30 minutes of CPU time when cold)
	@scripts/dist $(if $(CHECK),--check) $(PLATFORM)

.PHONY: test-dist
test-dist: dist ## Install and run what dist/ contains
	@$(prepared); export TUTTI_TEST_DIST="$(CURDIR)/dist"; go test -count=1 -timeout 60m -v -run '^Test(Dist|InstallPage)' ./deploy
	@scripts/new-user dist

.PHONY: test-image
test-image: ## Build the container image with buildah and serve models in it (root; apt-get install buildah debootstrap)
	scripts/test-image

# A mutant that no test notices is a missing test, or code that nothing needs. THRESHOLD=80 is the least percentage noticed.
BASE ?= main
THRESHOLD ?= 80
.PHONY: mutants
mutants: ## Run the tests against small changes of the lines changed since BASE=main, or of PKG=./internal/options
	BASE='$(BASE)' THRESHOLD='$(THRESHOLD)' scripts/mutants $(filter-out ./...,$(PKG))

.PHONY: cover
cover: runtime examples ## Print the share of statements that tests reach
	@mkdir -p bin
	go test -short -coverpkg ./... -coverprofile bin/cover.out ./...
	go tool cover -func bin/cover.out | tail -n 1

.PHONY: clean
clean: ## Remove build outputs; downloaded runtimes and models stay
	rm -rf bin dist
