# Everything the project does, in one line each: `make help`.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The tag turns on DuckDB's Arrow interface; only the nested modules know it.
export GOFLAGS := -tags=duckdb_arrow
export GOWORK := off
# The linter's cache remembers paths, so each checkout has its own.
export GOLANGCI_LINT_CACHE := $(CURDIR)/.tools/cache

STRESS ?= 30s
PROVE ?= 2m
STORMS ?= 5
GOLANGCI := v2.12.2

tools := $(CURDIR)/.tools
lint := $(tools)/golangci-lint-$(GOLANGCI)
modules := $(shell find . -name go.mod -not -path '*/.*/*' -exec dirname {} \; | sort)

# The compiler and the linter spend up to a third of their time collecting garbage otherwise.
gogc := 400

# Go tells of every download and of every folder without tests; leave that out.
quiet = 2>&1 | { grep -vE '^go: downloading|no test files' || true; }

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# debug_bindings counts what DuckDB's C++ hands out, so that tests find leaks there too; invariants turns
# internal/invariant on. Without go vet, which make lint runs, and the debugger's symbols it takes minutes less.
.PHONY: test
test: export GOFLAGS := $(GOFLAGS),debug_bindings,invariants
test: export GOGC := $(gogc)
test: test-deps ## all tests of all modules, with the race detector
	@$(MAKE) -j3 -k -O GOFLAGS=$(GOFLAGS) $(modules:%=test-of/%)
	@GOFLAGS= go test -run Allocates ./reservoir # allocations are counted without the race detector and the invariants
	@cd internal/tools/bench && GOFLAGS= go test -run Allocates ./calls

# Three modules at a time: many have one package only, and wait for servers and browsers.
.PHONY: $(modules:%=test-of/%)
$(modules:%=test-of/%): test-of/%:
	@cd $* && go test -race -vet=off -ldflags=-w -timeout 600s ./... $(quiet)

.PHONY: lint
# One run over a workspace of all modules analyses what they depend on once. With the flags of make test, so
# that both need the same compiled packages.
lint: export GOFLAGS := $(GOFLAGS),debug_bindings,invariants -race
lint: export GOGC := $(gogc)
lint: deps $(lint) ## format and lint all modules, go vet included
	@unformatted=$$(gofmt -l $(modules)); [ -z "$$unformatted" ] || { echo "not gofmt'ed:"; echo "$$unformatted"; exit 1; }
	@cd $(tools) && export GOWORK=$(tools)/go.work && rm -f go.work* && go work init $(modules:%=$(CURDIR)/%) && \
		cd $(CURDIR) && $(lint) run --timeout 20m --config .golangci.yml $(modules:%=%/...)

.PHONY: release-check
release-check: export GOGC := $(gogc)
release-check: deps ## what a release would be, as its users get it: packed, got, built, its documents' programs run; SBOM=dir VERSION=v0.1.0, VULNDB=file://…; ONLY=programs or quick
	@.ci/deps initdb
	@cd internal/tools/release && go run . $(if $(SBOM),-sbom $(abspath $(SBOM))) $(if $(VULNDB),-db $(VULNDB)) $(if $(VERSION),-version $(VERSION)) $(if $(ONLY),-$(ONLY))

.PHONY: demo
demo: deps ## the pool at work on real data: parallel queries, a transaction, a cancelled query
	@echo "building (a few minutes the first time)"
	@mkdir -p bin && cd examples && go build -o ../bin/ ./demo $(quiet)
	@bin/demo

.PHONY: examples
examples: deps ## run the small example programs
	@mkdir -p bin && cd examples && go build -o ../bin/ ./quickstart ./concurrent ./transaction ./cancel ./export $(quiet)
	@for e in quickstart concurrent transaction cancel export; do echo "== $$e"; bin/$$e; done

.PHONY: observe
observe: deps ## a pool under load, its live page, and a real Prometheus that scrapes it, for OBSERVE (default 5m)
	@.ci/deps prometheus
	@mkdir -p bin && cd examples && go build -o ../bin/ ./observe $(quiet)
	@.ci/observe $(or $(OBSERVE),5m)

.PHONY: gateway
gateway: test-deps ## three real servers for two users, one of which is killed and comes back, ROUNDS times (default 1)
	@mkdir -p bin && cd examples/gateway && go build -o ../../bin/gateway . $(quiet)
	@bin/gateway -rounds $(or $(ROUNDS),1)

.PHONY: bench
bench: ## the pool and whole calls against their peers
	@cd internal/tools/bench && go run . && go run ./calls

.PHONY: bench-quick
bench-quick: ## the same within a minute, and whether a ratio has grown past its committed one (internal/tools/bench/guard)
	@cd internal/tools/bench && go build -o $(tools)/ . ./calls && $(tools)/bench -quick && $(tools)/calls -quick

.PHONY: stress
stress: export GOFLAGS := $(GOFLAGS),invariants
stress: test-deps ## the long tests, for STRESS (default 30s) each
	@STRESS=$(STRESS) go test -race -count=1 -timeout 24h -run Stress ./reservoir/... ./flightpool/... ./lease/... $(quiet)
	@cd flightpool/flightotel && STRESS=$(STRESS) go test -count=1 -timeout 24h -run Stress . $(quiet)
	@STORMS=$(STORMS) go test -count=1 -timeout 24h -run 'Exceed|OpensNever|NeverSilent' ./lease/fleet

.PHONY: prove
prove: deps ## random programs against models and peers, and mutants against the tests, for PROVE (default 2m) in all
	@.ci/prove $(PROVE)

.PHONY: validation
validation: deps ## ADBC's validation suite over the pool, and over ADBC's own driver beside it: passes per server
	@cd internal/tools/conformance && go test -count=1 -run TestADBCsValidationSuite -v . 2>&1 | grep -E '^(VALIDATION|--- FAIL: TestADBC|FAIL|ok)'

.PHONY: fleet
fleet: test-deps ## a fleet of DSQL pools beside its peers: bursts, expiries, drops, kills
	@FLEET_FIGURES=all go test -count=1 -v -run 'LeasesOfManyDead|LeasesCostLittle|AFleetThatStartsAtOnce|AShortFleetIsShared' ./lease/fleet | sed -nE 's/^ *[a-z_]+\.go:[0-9]+: (LEASE )/\1/p; /FAIL|Error|"seed/p'
	@cd internal/tools/fleetbench && go run . burst steady drop chaos
	@go test -count=1 -run TestAnOutageOfTheTable -v ./reservoir/dsql | sed -n 's/.*\(DSQL outage.*\)/\1 (simulated)/p'

# Python packages are pinned with their hashes; what is written in Java only comes with Java and Maven at hand.
interop := $(tools)/interop
jdbc := flight-sql-jdbc-driver-18.3.0.jar
javaservers := $(addsuffix /pom.xml,$(addprefix $(interop)/,derby dazzleduck))
sqliteserver := github.com/apache/arrow-go/v18/arrow/flight/flightsql/example/cmd/sqlite_flightsql_server
plain = 2>&1 | sed 's/\x1b\[[0-9;]*m//g' >&2
made = $$(ls -d $(interop)/$(1) 2>/dev/null || true)
.PHONY: interop
interop: deps $(interop)/requirements.txt $(if $(MORE),$(interop)/more/requirements.txt) ## clients and servers of other makers against ours (PyPI, Maven); MORE=1 adds heavy servers, WRITE=1 writes docs/servers.md
	@cd testserver/duckdb && go build -o $(interop)/ ./cmd/duckserver $(quiet)
	@cd cmd/flightpool && go build -o $(interop)/ . $(quiet)
	@if command -v java && command -v mvn; then $(MAKE) $(interop)/$(jdbc) $(javaservers); else echo "JDBC and the servers in Java are left out: they need java and mvn" >&2; fi >/dev/null
	@cd internal/tools/interop && go build -o $(interop)/ . ./drivers $(sqliteserver) $(quiet)
	@cd internal/tools/interop && $(interop)/interop -venv $(interop) -duckserver $(interop)/duckserver -flightpool $(interop)/flightpool -drivers $(interop)/drivers -sqlite $(interop)/$(notdir $(sqliteserver)) \
		-jdbc "$(call made,$(jdbc))" -derby "$(call made,derby)" -dazzleduck "$(call made,dazzleduck)" $(if $(MORE),-more $(interop)/more) $(if $(WRITE),-write)

$(interop)/requirements.txt: internal/tools/interop/clients/requirements.txt
$(interop)/more/requirements.txt: internal/tools/interop/servers/requirements.txt
$(interop)/requirements.txt $(interop)/more/requirements.txt:
	@python3 -c 'import ensurepip' 2>/dev/null || .ci/deps python3 python3-venv
	@echo "installing the Python packages, once"
	@python3 -m venv $(@D) && $(@D)/bin/pip install -q --disable-pip-version-check --require-hashes -r $<
	@cp $< $@

$(interop)/$(jdbc):
	@mvn -q -B dependency:copy -Dartifact=org.apache.arrow:$(jdbc:-18.3.0.jar=):18.3.0 -DoutputDirectory=$(interop) $(plain)
	@echo "3f418b46c880e263558c5de669bdbede2c5d4375527ced116fb29f795b03704c  $@" | sha256sum -c --quiet || { rm $@; false; }

# The jars that a server's pom.xml names, with those that they need.
$(javaservers): $(interop)/%/pom.xml: internal/tools/interop/servers/%/pom.xml
	@rm -rf $(@D) && mkdir -p $(@D)
	@mvn -q -B -f $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(abspath $(@D)) $(plain)
	@cp $< $@

.PHONY: sample-data
sample-data: deps ## make examples/data again from the full files in FROM
	@cd testserver/duckdb && go run ./cmd/sampledata -from $(abspath $(FROM)) -to $(CURDIR)/examples/data

.PHONY: clean
clean: ## remove what the other targets made
	rm -rf $(tools) bin

$(lint):
	@echo "building golangci-lint $(GOLANGCI), once"
	@GOFLAGS= GOBIN=$(tools) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI) $(quiet)
	@mv $(tools)/golangci-lint $@

# What Go modules cannot bring: a C++ compiler, for the race detector and the DuckDB test server; and for
# the tests a PostgreSQL, a MariaDB, tmux, a Prometheus, a Chromium with npm for what judges its pages, and Node for a
# DynamoDB stand-in (not with DYNAMODB_ENDPOINT set).
.PHONY: deps test-deps
deps:
	@.ci/deps gcc g++

test-deps: deps
	@.ci/deps initdb mariadbd tmux prometheus chromium npm $(if $(DYNAMODB_ENDPOINT),,node)
