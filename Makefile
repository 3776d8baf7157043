# Belay's commands. On a fresh machine only Go, gcc, git and make are needed: tools are built from tools/go.mod, Debian
# packages that tests need are installed by scripts/need.sh. `make help` lists the targets.

define newline


endef

SHELL       := /bin/bash
.SHELLFLAGS := -o pipefail -ec
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help

# What a call may set: make simulate SEEDS=2000, make test-long LONG=30m, make run RUN_ARGS=-o=json, make bench BENCH_ARGS=-quick
RUN_ARGS   ?=
BENCH_ARGS ?=
SEEDS      ?= 200
LONG       ?= 10m
FUZZ       ?= 1m

COMMIT  := $(shell git describe --always --dirty --tags 2>/dev/null || echo unknown)
BUILD   := CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags '-X main.commit=$(COMMIT)'
TEST    := go test -buildvcs=false -json
RACE    := GORACE=atexit_sleep_ms=0 $(TEST) -race
CHAOS   := BELAY_TEST_REQUIRE=1 $(TEST) -count=1
REPORT  := bin/testreport

# The files of these tools carry their versions, so that a new version in tools/go.mod is built and an old one is built once.
LINT_VERSION := $(shell sed -n 's|.*golangci/golangci-lint/v2 v\([0-9.]*\).*|\1|p' tools/go.mod)
LINT         := bin/golangci-lint-$(LINT_VERSION)
VULN_VERSION := $(shell sed -n 's|.*golang.org/x/vuln v\([0-9.]*\).*|\1|p' tools/go.mod)
VULN         := bin/govulncheck-$(VULN_VERSION)

# The packages whose tests are unit tests.
LISTED   = go list ./... | grep -v -e /internal/repo$$ -e /internal/simulation$$ -e /belay/test$$ -e /belay/test/
PACKAGES = $$($(LISTED))

# Code that the race detector does not watch in make unit: SQLite, which is C translated to Go and takes most of the time of
# every test that uses it. It holds no generic function: the linker keeps one copy of those that packages share, and one that
# is not watched makes races of what is none, and none of what is one. It is watched in make test-long.
UNWATCHED := -gcflags=modernc.org/sqlite/lib=-race=false

# Tests that do less under the race detector, or nothing, and that make unit runs without it as well: they carry much, or
# measure memory (internal/raced).
HEAVY := ReadersOfLogsShareTheirRoom ThousandWatchers ManyReadersOfAJob ManyLargeCheckpointsAreWritten

# Tests that make unit runs without it alone. In the conformance suite of a store one call follows the other (the tests beside
# it, engine, embedded and sdktest call stores at the same time, and are watched); TestHTTPSQLite puts two halves together
# that TestHTTPMemory and TestSQLite show under it; TestWithoutRoot repeats tests as another user.
UNRACED := Store HTTPSQLite WithoutRoot

# Packages that make unit tests without it. Nothing in machine runs beside anything. Tests of process and workspace start
# thousands of processes of the test binary, which take up to 2.5 times as long under it and share no memory. It watches the
# tests of workspace in which goroutines meet (SHARING) and those of process in one kind of isolation (the parent's side is
# the same in all), and internal/agent and internal/server start commands and prepare workspaces under it.
PLAIN   := ./internal/machine ./internal/agent/process ./internal/agent/workspace
SHARING := ConcurrentPrepares BaseIsLockedForCopyingOnly PrepareWaitsForItsPlace Quota RandomWorkComesBack PrepareCancelled FetchOverSSH Credentials GitRunsAsTheOwnerOfItsFiles Sweep Remove

# The pattern of tests by the names in these lists, and that of all that is heavy.
empty :=
tests  = ^Test($(subst $(empty) ,|,$(strip $(1))))$$
heavy := $(call tests,$(HEAVY))|^Test(HTTP)?Memory$$/^Output$$

# What unit tests need; with BELAY_TEST_REQUIRE a test that lacks something fails.
NEEDED := git git-crypt curl initdb:postgresql pgbouncer
unit unit-long raced plain: export BELAY_TEST_REQUIRE := 1

# Modules beside the main one; the patterns of the main module do not reach into them.
MODULES := . tools $(patsubst %/go.mod,%,$(wildcard bench/go.mod test/openai/go.mod))

TIERS      := check+simulation unit blackbox chaos-short
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
	@$(subst go build,go install,$(BUILD)) ./cmd/belay
	@dir="$$(go env GOBIN)"; echo "installed $${dir:-$$(go env GOPATH)/bin}/belay"

.PHONY: run
run: build ## see it work: two workers, five steps on this repository, a kill -9 in the middle, and the other goes on
	@./bin/belay demo --repo . $(RUN_ARGS)

# What make survey does: this repository looks itself over in a clone of its own and commits a report. Each line is a durable
# step. The job shares the Go caches of whoever runs it by name, and nothing else.
define SURVEY
--step 'survey=go list ./... | tee packages.txt && wc -l $$(git ls-files "*.go") | sort -rn | head -6'
--step 'format=bad=$$(gofmt -l .); if [ -n "$$bad" ]; then echo not formatted: $$bad; exit 1; fi; echo every file is formatted'
--step 'rules=go test ./internal/machine'
--step 'engine=go test ./internal/store/memory ./internal/engine'
--step 'report=(date -u +%F; wc -l < packages.txt) > REPORT.txt && git add -A && git commit -qm "survey: report" && git show --stat HEAD'
endef

.PHONY: survey
survey: build ## do real work durably: a survey of this repository. Kill it, type it again: it goes on where it was
	@export GOCACHE="$$(go env GOCACHE)" GOMODCACHE="$$(go env GOMODCACHE)" GOPROXY="$$(go env GOPROXY)" GOFLAGS="$$(go env GOFLAGS)"; \
	  ./bin/belay run --resume --repo . --timeout 15m --env GOCACHE,GOMODCACHE,GOPROXY,GOFLAGS $(RUN_ARGS) $(strip $(subst $(newline), ,$(SURVEY)))

.PHONY: quick
quick: $(LINT) $(REPORT) ## the loop of writing: format, vet, lint of what changed, all unit tests without the race detector, 200 simulated histories
	@$(MAKE) -k gofmt vet lint-changed unit-quick simulate

# What changed is what differs from the last commit. Tests whose packages did not change are not run again. Sweeps are short.
.PHONY: lint-changed unit-quick
lint-changed: $(LINT)
	@GOGC=200 $(LINT) run --new-from-rev=HEAD --whole-files ./...

unit-quick: $(REPORT)
	@$(TEST) -short -p 4 -timeout 10m $(PACKAGES) | $(REPORT)

.PHONY: test
test: $(REPORT) ## everything CI runs: check, unit, simulation, blackbox, chaos, and a summary at the end
	@scripts/tiers.sh $(TIERS)

.PHONY: test-long
test-long: $(REPORT) ## the same tiers in full: every crash point, $(LONG) of simulation
	@scripts/tiers.sh $(LONG_TIERS)

.PHONY: check
check: $(LINT) $(VULN) $(REPORT) ## gofmt, go mod tidy, go vet, golangci-lint, govulncheck, and the repository's own tests (layers, docs, pins)
	@$(MAKE) -k gofmt tidy vet lint vulnerabilities repository

.PHONY: gofmt tidy vet lint vulnerabilities repository
gofmt:
	@bad=$$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0r ls -d 2>/dev/null | xargs -r gofmt -l); \
	  if [ -n "$$bad" ]; then printf 'not formatted (make fmt does it):\n%s\n' "$$bad"; exit 1; fi

# What go.mod and go.sum of each module lack or have too much of; go mod tidy puts it right.
tidy:
	@$(foreach m,$(MODULES),go -C $(m) mod tidy -diff;)

vet:
	@$(foreach m,$(MODULES),echo "vet $(m)"; go -C $(m) vet -buildvcs=false ./...;)

lint: $(LINT)
	@bad=; $(foreach m,$(MODULES),echo "lint $(m)"; (cd $(m) && GOGC=200 $(CURDIR)/$(LINT) run --config $(CURDIR)/.golangci.yml ./...) || bad="$$bad $(m)";) \
	  if [ -n "$$bad" ]; then echo "lint: findings in$$bad"; exit 1; fi

# What the product's code can reach of the known vulnerabilities; tools and benchmarks are not shipped.
vulnerabilities: $(VULN)
	@go -C tools build -buildvcs=false -o ../bin/vulncheck ./vulncheck
	@bin/vulncheck $(VULN) ./...

repository: $(REPORT)
	@$(TEST) -count=1 ./internal/repo | $(REPORT)
	@go -C tools test -buildvcs=false -json -count=1 ./testreport ./vulncheck | $(REPORT)

.PHONY: unit raced plain unit-long
unit: $(REPORT) ## unit and conformance tests, with the race detector where anything runs beside anything
	@scripts/need.sh $(NEEDED)
	@$(MAKE) -j2 raced plain

raced:
	@{ bad=; \
	  $(RACE) $(UNWATCHED) -p 3 -count=1 -timeout 15m -skip '$(call tests,$(UNRACED))' $$($(LISTED) $(foreach p,$(PLAIN),-e $(p:.%=%)$$)) || bad=1; \
	  $(RACE) $(UNWATCHED) -count=1 -timeout 15m -run '$(call tests,$(SHARING))' ./internal/agent/workspace || bad=1; \
	  $(RACE) $(UNWATCHED) -count=1 -timeout 15m -run '^Test/^subreaper$$' -skip '$(call tests,$(UNRACED))' ./internal/agent/process || bad=1; \
	  [ -z "$$bad" ]; } | $(REPORT)

plain:
	@{ bad=; \
	  $(TEST) -p 2 -count=1 -timeout 15m $(PLAIN) || bad=1; \
	  $(TEST) -p 2 -count=1 -timeout 15m -run '$(heavy)|$(call tests,$(UNRACED))' ./embedded ./internal/sdktest ./internal/httpapi ./internal/server ./internal/store/... || bad=1; \
	  [ -z "$$bad" ]; } | $(REPORT)

unit-long: export BELAY_TEST_LONG := 1
unit-long: $(REPORT)
	@scripts/need.sh $(NEEDED)
	@$(RACE) -p 4 -count=1 -timeout 1h $(PACKAGES) | $(REPORT)
	@$(TEST) -count=1 -timeout 1h -run '$(heavy)' ./embedded ./internal/sdktest ./internal/httpapi ./internal/server | $(REPORT)

.PHONY: fuzz
fuzz: ## every fuzz test for FUZZ=1m; what it finds is kept in testdata and runs in every test from then on
	@scripts/fuzz.sh $(FUZZ)

.PHONY: simulation
simulation: $(REPORT) ## ten seconds of simulation, and every planted bug caught
	@$(TEST) -count=1 -timeout 10m ./internal/simulation | $(REPORT) -v

.PHONY: simulation-long
simulation-long: $(REPORT)
	@$(TEST) -count=1 -timeout 2h ./internal/simulation -args -for $(LONG) | $(REPORT) -v

.PHONY: simulate
simulate: $(REPORT) ## SEEDS=n: n simulated histories, or SEED=n: the one that a failure names
	@$(TEST) -count=1 -timeout 0 $(if $(SEED),-run Simulation) ./internal/simulation -args $(if $(SEED),-seed $(SEED),-seeds $(SEEDS)) | $(REPORT) -v

.PHONY: blackbox
blackbox: build $(REPORT) ## real binaries, killed at seeded moments
	@scripts/need.sh git strace curl jq python3 node:nodejs npm initdb:postgresql
	@BELAY_TEST_REQUIRE=1 $(TEST) -parallel 4 -count=1 -timeout 15m ./test | $(REPORT)

.PHONY: blackbox-long
blackbox-long: build $(REPORT)
	@scripts/need.sh git strace curl jq python3 node:nodejs npm initdb:postgresql
	@BELAY_TEST_REQUIRE=1 $(TEST) -count=1 -timeout 2h ./test -args -long | $(REPORT)

.PHONY: chaos
chaos: $(REPORT) ## three minutes of kills and partitions of real servers, workers and their stores: SEED=n for those of a verdict, FOR=1m for less, STORE=sqlite for one store
	@scripts/need.sh git bash initdb:postgresql strace pgbouncer mkfs.ext4:e2fsprogs setpriv:util-linux
	@$(CHAOS) -timeout 0 ./test/chaos -args -for $(or $(FOR),3m) $(if $(SEED),-seed $(SEED)) $(if $(STORE),-store $(STORE)) | $(REPORT) -v

.PHONY: chaos-short chaos-long
chaos-short: $(REPORT)
	@scripts/need.sh git bash initdb:postgresql strace pgbouncer mkfs.ext4:e2fsprogs setpriv:util-linux
	@$(CHAOS) -timeout 10m ./test/chaos -args -for 1m | $(REPORT) -v

chaos-long: $(REPORT)
	@scripts/need.sh git bash initdb:postgresql strace pgbouncer mkfs.ext4:e2fsprogs setpriv:util-linux
	@$(CHAOS) -timeout 2h ./test/chaos -args -for $(LONG) | $(REPORT) -v

.PHONY: bench
bench: ## Belay beside River, DBOS, Temporal, git and the bare database, three quarters of an hour; BENCH_ARGS=-quick for a look
	@cd bench && go run -buildvcs=false . $(BENCH_ARGS)

.PHONY: fmt
fmt: ## gofmt everything
	@gofmt -l -w $$(git ls-files --cached --others --exclude-standard '*.go')

.PHONY: clean
clean: ## remove what was built (bin/); a data directory is never touched
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
