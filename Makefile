# Belay's make targets. A fresh machine needs only Go, gcc, git and make: the tools are built from tools/go.mod, and
# scripts/need.sh installs the Debian packages that tests need. `make help` lists the targets.

define newline


endef

SHELL       := /bin/bash
.SHELLFLAGS := -o pipefail -ec
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help

# Variables for the command line: make simulate SEEDS=2000, make test-long LONG=30m, make run RUN_ARGS=-o=json, make
# bench BENCH_ARGS=-quick
RUN_ARGS   ?=
BENCH_ARGS ?=
SEEDS      ?= 200
LONG       ?= 10m
FUZZ       ?= 1m

# Without -trimpath, go compiles every package again in each folder that holds a clone.
export GOFLAGS := -trimpath $(GOFLAGS)

COMMIT  := $(shell git describe --always --dirty --tags 2>/dev/null || echo unknown)
BUILD   := CGO_ENABLED=0 go build -buildvcs=false -ldflags '-X main.commit=$(COMMIT)'
# go test would repeat, for each kind of build, checks of go vet that make vet carries out.
TEST    := go test -buildvcs=false -vet=off -json
RACE    := CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 $(TEST) -race -exec $(CURDIR)/scripts/detector.sh
CHAOS   := BELAY_TEST_REQUIRE=1 $(TEST) -count=1
REPORT  := bin/testreport

# The files of these tools have their versions in their names, so that make builds a tool again when tools/go.mod names
# a new version, and only then.
LINT_VERSION := $(shell sed -n 's|.*golangci/golangci-lint/v2 v\([0-9.]*\).*|\1|p' tools/go.mod)
LINT         := bin/golangci-lint-$(LINT_VERSION)
VULN_VERSION := $(shell sed -n 's|.*golang.org/x/vuln v\([0-9.]*\).*|\1|p' tools/go.mod)
VULN         := bin/govulncheck-$(VULN_VERSION)

# The packages whose tests are unit tests.
LISTED   = go list ./... | grep -v -e /internal/repo$$ -e /internal/simulation$$ -e /belay/test$$ -e /belay/test/
PACKAGES = $$($(LISTED))

# Code that make unit runs without the race detector: SQLite, which is C translated to Go and takes most of the time of
# every test that uses it. This is safe because the package has no generic function: the linker keeps one copy of a
# generic function that packages share, and a copy without the detector would report races that do not exist and hide
# real ones. make test-long runs SQLite with the detector too.
UNWATCHED := -gcflags=modernc.org/sqlite/lib=-race=false

# Tests that do less, or nothing, under the race detector, and that make unit therefore also runs without it: they
# process large amounts of data, or measure memory (internal/testkit/raced).
HEAVY := ReadersOfLogsShareTheirMemory ThousandWatchers ManyReadersOfAJob ManyLargeCheckpointsAreWritten

# Tests that make unit runs only without the race detector. In the conformance suite of a store one call follows the
# other (the tests beside it, engine, embedded and sdktest call stores concurrently, and run with the detector);
# TestHTTPSQLite combines two parts that TestHTTPMemory and TestSQLite run with the detector. TestPostgres runs the
# workers of TestSQLite on a store whose connections and hints the tests of engine and embedded use with the detector.
# TestWithoutRoot repeats tests as another user. TestHistoryWithDataIsBounded reads 40 MB, and
# TestBadRequestsAreRefused sends thousands, one after the other; the latter has shorter time limits, and a limit of
# memory, without the detector. The tests of package webui with hostile texts request one page after the other.
UNRACED := Store HTTPSQLite Postgres WithoutRoot HistoryWithDataIsBounded BadRequestsAreRefused HostileJobs HostileCheckpoints HostileTextOnAllPages HostileSchemas HostileKeysAndAudit

# The packages with tests in HEAVY or UNRACED, beginning with those that take longest.
SPARED := ./internal/store/postgres ./internal/testkit/sdktest ./internal/httpapi ./embedded ./internal/server ./internal/store/sqlite ./internal/store/memory ./internal/webui ./internal/peer

# Packages whose tests make unit runs without the race detector. Package machine starts no goroutines. Tests of process
# and workspace start thousands of processes of the test binary, which take up to 2.5 times as long with the detector
# and share no memory. The tests of workspace with concurrent goroutines (SHARING), and those of process in one kind of
# isolation (the parent's side is the same in all), run with the detector too, and so do internal/agent and
# internal/server, which start commands and prepare workspaces.
PLAIN   := ./internal/agent/process ./internal/agent/workspace ./internal/machine
SHARING := ConcurrentPrepares BaseIsLockedForCopyingOnly PrepareWaitsForItsPlace Quota RandomWorkComesBack PrepareCancelled FetchOverSSH Credentials GitRunsAsTheOwnerOfItsFiles Sweep Remove

# tests makes the pattern of the tests with the given names; heavy is the pattern of all tests that process much.
empty :=
tests  = ^Test($(subst $(empty) ,|,$(strip $(1))))$$
heavy := $(call tests,$(HEAVY))|^Test(HTTP)?Memory$$/^(Output|Waits)$$

# The packages whose tests take longest with the race detector, beginning with the longest. make unit starts them first,
# so that both processors have work until the end.
FIRST := ./internal/testkit/sdktest ./internal/httpapi ./embedded ./internal/engine ./internal/datadir ./internal/agent ./client

# The programs that unit tests need; with BELAY_TEST_REQUIRE a test fails if a program is missing.
NEEDED := git git-crypt curl initdb:postgresql pgbouncer rabbitmq-server
unit unit-long raced plain unraced: export BELAY_TEST_REQUIRE := 1

# Everything that one make test compiles without the race detector is compiled without cgo, as the programs that the tests
# build are: then go compiles each package once, and not a second time for the tests and the linters.
check unit simulation blackbox chaos chaos-short: export CGO_ENABLED := 0

# All modules: the patterns of the main module do not match packages of the others.
MODULES := . tools $(patsubst %/go.mod,%,$(wildcard bench/go.mod test/openai/go.mod test/openapi/go.mod))

# make test runs make check and the simulation beside the black-box tests, with the lowest priority: they compute and
# have no bound of time, and black-box tests often wait. make unit computes all the time; it runs first, so that the
# others find what it compiled. The chaos tests judge the times in which Belay notices a loss, so nothing runs beside
# them.
TIERS      := unit chaos-short blackbox+check,simulation
LONG_TIERS := check unit-long fuzz simulation-long blackbox-long chaos-long

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/belay
	@mkdir -p bin
	$(BUILD) -o bin/belay ./cmd/belay

.PHONY: install
install: ## install belay where go install puts programs
	@$(subst go build,go install -trimpath,$(BUILD)) ./cmd/belay
	@dir="$$(go env GOBIN)"; echo "installed $${dir:-$$(go env GOPATH)/bin}/belay"

.PHONY: run
run: build ## see Belay work: two workers, five steps on this repository, a kill -9 of one in the middle, and the other continues
	@./bin/belay demo --repo . $(RUN_ARGS)

.PHONY: recording
recording: build ## record the demo of make run again, as the picture in README.md
	@go -C tools build -buildvcs=false -o ../bin/record ./record
	@dir=$$(mktemp -d) && git clone -q . $$dir/belay && \
	  bin/record -o docs/demo.svg -C $$dir/belay -prompt 'belay demo --repo .' \
	  -title 'A recording of belay demo: a worker is killed, and another continues its execution' \
	  $(CURDIR)/bin/belay demo --repo .; status=$$?; rm -rf "$$dir"; exit $$status

# The steps of make survey: Belay examines this repository in a clone of its own and commits a report. Each line is a
# durable step. The job gets the Go caches of the user through the named environment variables, and nothing else.
define SURVEY
--step 'survey=go list ./... | tee packages.txt && wc -l $$(git ls-files "*.go") | sort -rn | head -6'
--step 'format=bad=$$(gofmt -l .); if [ -n "$$bad" ]; then echo not formatted: $$bad; exit 1; fi; echo every file is formatted'
--step 'rules=go test ./internal/machine'
--step 'engine=go test ./internal/store/memory ./internal/engine'
--step 'report=(date -u +%F; wc -l < packages.txt) > REPORT.txt && git add -A && git commit -qm "survey: report" && git show --stat HEAD'
endef

.PHONY: survey
survey: build ## do real work durably: a survey of this repository. Kill make, run it again: the survey continues where it was
	@export GOCACHE="$$(go env GOCACHE)" GOMODCACHE="$$(go env GOMODCACHE)" GOPROXY="$$(go env GOPROXY)" GOFLAGS="$$(go env GOFLAGS)"; \
	  ./bin/belay run --resume --repo . --timeout 15m --env GOCACHE,GOMODCACHE,GOPROXY,GOFLAGS $(RUN_ARGS) $(strip $(subst $(newline), ,$(SURVEY)))

.PHONY: quick
quick: $(LINT) $(REPORT) ## while you write: gofmt, vet, lint of changed files, all unit tests without the race detector, 200 simulated histories
	@$(MAKE) -k gofmt vet lint-changed unit-quick simulate

# A file has changed if it differs from the last commit. Tests of packages that did not change are not run again. Sweeps
# are short.
.PHONY: lint-changed unit-quick
lint-changed: $(LINT)
	@GOGC=200 $(LINT) run --new-from-rev=HEAD --whole-files ./...

unit-quick: $(REPORT)
	@$(TEST) -short -p 4 -timeout 10m $(PACKAGES) | $(REPORT)

.PHONY: test
test: $(LINT) $(VULN) $(REPORT) ## everything CI runs: check, unit, simulation, blackbox, chaos, and a summary at the end
	@scripts/tiers.sh $(TIERS)

.PHONY: test-long
test-long: $(REPORT) ## the same tiers in full: every crash point, $(LONG) of simulation
	@scripts/tiers.sh $(LONG_TIERS)

.PHONY: check
check: $(LINT) $(VULN) $(REPORT) ## gofmt, go mod tidy, go vet, golangci-lint, govulncheck, linters of the OpenAPI document and Prism, the alerting rules, and the repository's own tests (layers, docs, pins)
	@$(MAKE) -k gofmt tidy vet lint openapi rules vulnerabilities repository

.PHONY: gofmt tidy vet lint openapi rules vulnerabilities repository
gofmt:
	@bad=$$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0r ls -d 2>/dev/null | xargs -r gofmt -l); \
	  if [ -n "$$bad" ]; then printf 'not formatted (make fmt does it):\n%s\n' "$$bad"; exit 1; fi

# The differences that go mod tidy would make in go.mod and go.sum of each module.
tidy:
	@$(foreach m,$(MODULES),go -C $(m) mod tidy -diff;)

vet:
	@$(foreach m,$(MODULES),echo "vet $(m)"; go -C $(m) vet -buildvcs=false ./...;)

lint: $(LINT)
	@bad=; $(foreach m,$(MODULES),echo "lint $(m)"; (cd $(m) && GOGC=200 $(CURDIR)/$(LINT) run --config $(CURDIR)/.golangci.yml ./...) || bad="$$bad $(m)";) \
	  if [ -n "$$bad" ]; then echo "lint: findings in$$bad"; exit 1; fi

# Spectral and Redocly lint the OpenAPI document. They are installed again when their lock file changes, and run again when
# the document or their rules change.
OPENAPI := bin/openapi-npm

openapi: $(OPENAPI)/linted $(OPENAPI)/proxied

# Prism compares a session through every route with the document. It runs again when the document or the code of a route
# changes.
$(OPENAPI)/proxied: $(OPENAPI)/installed internal/httpapi/testdata/openapi.json \
  $(wildcard internal/httpapi/*.go internal/wire/*.go internal/agent/agentapi/*.go)
	@echo "compare a session through Prism with internal/httpapi/testdata/openapi.json"
	@BELAY_PRISM=$(CURDIR)/$(OPENAPI)/node_modules/.bin/prism go test -count=1 -timeout 5m -run '^TestPrismFindsNoViolation$$' \
	  ./internal/httpapi
	@touch $@

$(OPENAPI)/linted: $(OPENAPI)/installed internal/httpapi/testdata/openapi.json $(wildcard test/openapi-npm/*.yaml)
	@echo "lint internal/httpapi/testdata/openapi.json"
	@$(OPENAPI)/node_modules/.bin/spectral lint --quiet --ruleset test/openapi-npm/spectral.yaml --fail-severity warn \
	  internal/httpapi/testdata/openapi.json
	@REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true $(OPENAPI)/node_modules/.bin/redocly lint \
	  --config test/openapi-npm/redocly.yaml internal/httpapi/testdata/openapi.json 2>$(OPENAPI)/redocly.txt \
	  || { cat $(OPENAPI)/redocly.txt; exit 1; }
	@touch $@

$(OPENAPI)/installed: test/openapi-npm/package.json test/openapi-npm/package-lock.json
	@scripts/need.sh node:nodejs npm
	@echo "installing the linters of the OpenAPI document and Prism (once)"
	@mkdir -p $(OPENAPI)
	@cp test/openapi-npm/package.json test/openapi-npm/package-lock.json $(OPENAPI)
	@npm ci --prefix $(OPENAPI) --ignore-scripts --no-audit --no-fund --prefer-offline --silent
	@touch $@

rules: ## check the alerting rules for Prometheus, and test each rule at its threshold
	@scripts/need.sh bin/promtool:prometheus
	@promtool=$$(command -v promtool || echo bin/promtool); \
	  $$promtool check config --lint-fatal deploy/prometheus/prometheus.yml && $$promtool test rules deploy/prometheus/*.test.yml

# The known vulnerabilities that the product's code can reach; tools and benchmarks are not shipped.
vulnerabilities: $(VULN)
	@go -C tools build -buildvcs=false -o ../bin/vulncheck ./vulncheck
	@bin/vulncheck $(VULN) ./...

repository: $(REPORT)
	@$(TEST) -count=1 ./internal/repo | $(REPORT)
	@go -C tools test -buildvcs=false -json -count=1 ./testreport ./vulncheck ./record | $(REPORT)

.PHONY: unit raced plain unraced unit-long
unit: $(REPORT) ## unit and conformance tests, with the race detector where code runs concurrently
	@scripts/need.sh $(NEEDED)
	@scripts/inmemory.sh $(MAKE) -j2 raced plain unraced

raced:
	@$(RACE) $(UNWATCHED) -p 3 -count=1 -timeout 30m -skip '$(call tests,$(UNRACED))' $(FIRST) \
	  $$($(LISTED) $(foreach p,$(PLAIN),-e $(p:.%=%)$$)) | $(REPORT)

# One command follows the other here, because tests of one package may share users of the machine and their limits.
plain:
	@{ bad=; \
	  $(TEST) -p 2 -count=1 -timeout 30m $(PLAIN) || bad=1; \
	  $(RACE) $(UNWATCHED) -count=1 -timeout 30m -run '$(call tests,$(SHARING))' ./internal/agent/workspace || bad=1; \
	  $(RACE) $(UNWATCHED) -count=1 -timeout 30m -run '^Test/^subreaper$$' -skip '$(call tests,$(UNRACED))' ./internal/agent/process || bad=1; \
	  [ -z "$$bad" ]; } | $(REPORT)

unraced:
	@$(TEST) -p 1 -count=1 -timeout 30m -run '$(heavy)|$(call tests,$(UNRACED))' $(SPARED) | $(REPORT)

unit-long: export BELAY_TEST_LONG := 1
unit-long: $(REPORT)
	@scripts/need.sh $(NEEDED)
	@$(RACE) -p 4 -count=1 -timeout 1h $(PACKAGES) | $(REPORT)
	@$(TEST) -count=1 -timeout 1h -run '$(heavy)' ./embedded ./internal/testkit/sdktest ./internal/httpapi ./internal/server | $(REPORT)

.PHONY: fuzz
fuzz: ## every fuzz test for FUZZ=1m; failing inputs are kept in testdata and run in every later test
	@scripts/fuzz.sh $(FUZZ)

.PHONY: simulation
simulation: $(REPORT) ## SEEDS=200 simulated histories, and every planted bug caught
	@$(TEST) -count=1 -timeout 10m ./internal/simulation -args -seeds $(SEEDS) | $(REPORT) -v

.PHONY: simulation-long
simulation-long: $(REPORT)
	@$(TEST) -count=1 -timeout 2h ./internal/simulation -args -for $(LONG) | $(REPORT) -v

.PHONY: simulate
simulate: $(REPORT) ## SEEDS=n: n simulated histories, or SEED=n: the history whose seed a failure prints
	@$(TEST) -count=1 -timeout 0 $(if $(SEED),-run Simulation) ./internal/simulation -args $(if $(SEED),-seed $(SEED),-seeds $(SEEDS)) | $(REPORT) -v

.PHONY: screenshots
screenshots: ## take pictures of all pages of the web UI into bin/pages, and replace those that docs/pages has
	@scripts/need.sh git python3 node:nodejs npm chromium
	@rm -rf bin/pages && mkdir -p bin/pages
	@go test -count=1 -timeout 10m -vet=off -run '^TestEveryPageIsWellMade$$/^browser$$' ./test -args -shots $(CURDIR)/bin/pages
	@for f in docs/pages/*.png; do cp bin/pages/$${f##*/} $$f; done

.PHONY: blackbox
blackbox: build $(REPORT) ## real binaries, killed at seeded moments
	@scripts/need.sh git strace curl jq python3 node:nodejs npm chromium java:default-jre-headless initdb:postgresql rabbitmq-server bin/promtool:prometheus
	@BELAY_TEST_REQUIRE=1 scripts/inmemory.sh $(TEST) -parallel 4 -count=1 -timeout 1h ./test | $(REPORT)

.PHONY: blackbox-long
blackbox-long: build $(REPORT)
	@scripts/need.sh git strace curl jq python3 node:nodejs npm chromium java:default-jre-headless initdb:postgresql rabbitmq-server bin/promtool:prometheus
	@BELAY_TEST_REQUIRE=1 $(TEST) -count=1 -timeout 2h ./test -args -long | $(REPORT)

.PHONY: chaos
chaos: $(REPORT) ## three minutes of kills and partitions of real servers, workers and their stores: SEED=n for the plan of a verdict, FOR=1m for less, STORE=sqlite for one store
	@scripts/need.sh git bash initdb:postgresql strace pgbouncer mkfs.ext4:e2fsprogs setpriv:util-linux rabbitmq-server
	@$(CHAOS) -timeout 0 ./test/chaos -args -for $(or $(FOR),3m) $(if $(SEED),-seed $(SEED)) $(if $(STORE),-store $(STORE)) | $(REPORT) -v

.PHONY: chaos-short chaos-long
chaos-short: $(REPORT)
	@scripts/need.sh git bash initdb:postgresql strace pgbouncer mkfs.ext4:e2fsprogs setpriv:util-linux rabbitmq-server
	@$(CHAOS) -timeout 20m ./test/chaos -args -for 1m | $(REPORT) -v

chaos-long: $(REPORT)
	@scripts/need.sh git bash initdb:postgresql strace pgbouncer mkfs.ext4:e2fsprogs setpriv:util-linux rabbitmq-server
	@$(CHAOS) -timeout 2h ./test/chaos -args -for $(LONG) | $(REPORT) -v

.PHONY: bench
bench: ## Belay compared with River, DBOS, Temporal, git and the bare database, three quarters of an hour; BENCH_ARGS=-quick for one short round
	@cd bench && go run -buildvcs=false . $(BENCH_ARGS)

.PHONY: fmt
fmt: ## gofmt everything
	@gofmt -l -w $$(git ls-files --cached --others --exclude-standard '*.go')

.PHONY: clean
clean: ## remove the built programs (bin/); no data directory is touched
	rm -rf bin

$(LINT): tools/go.mod tools/go.sum
	@echo "building golangci-lint $(LINT_VERSION) (once)"
	@rm -f bin/golangci-lint-*
	@GOGC=400 CGO_ENABLED=0 go -C tools build -buildvcs=false -trimpath -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(VULN): tools/go.mod tools/go.sum
	@echo "building govulncheck $(VULN_VERSION) (once)"
	@rm -f bin/govulncheck-*
	@GOGC=400 CGO_ENABLED=0 go -C tools build -buildvcs=false -trimpath -o ../$@ golang.org/x/vuln/cmd/govulncheck

$(REPORT): $(wildcard tools/testreport/*.go)
	@go -C tools build -buildvcs=false -o ../$@ ./testreport
