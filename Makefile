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
STORMS ?= 5
GOLANGCI := v2.12.2

tools := $(CURDIR)/.tools
lint := $(tools)/golangci-lint-$(GOLANGCI)
modules := $(shell find . -name go.mod -not -path '*/.*/*' -exec dirname {} \; | sort)

# Go tells of every download and of every folder without tests; leave that out.
quiet = 2>&1 | { grep -vE '^go: downloading|no test files' || true; }

# $(call each,COMMAND,NAME): run COMMAND in the folder of every module, stop at the first failure.
each = for m in $(modules); do (cd $$m && { $(1); }) || { echo "FAILED in $$m: $(strip $(2))"; exit 1; }; done

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# debug_bindings counts what DuckDB's C++ hands out, so that tests find leaks there too.
.PHONY: test
test: export GOFLAGS := $(GOFLAGS),debug_bindings
test: test-deps ## all tests of all modules, with the race detector
	@$(call each,go test -race -timeout 300s ./... $(quiet),tests)
	@go test -run Allocates ./reservoir # allocations are counted without the race detector

.PHONY: lint
lint: deps $(lint) ## format, vet and lint all modules
	@unformatted=$$(gofmt -l $(modules)); [ -z "$$unformatted" ] || { echo "not gofmt'ed:"; echo "$$unformatted"; exit 1; }
	@$(call each,go vet ./... $(quiet),vet)
	@$(call each,$(lint) run --config $(CURDIR)/.golangci.yml ./...,lint)

.PHONY: demo
demo: deps ## the pool at work on real data: parallel queries, a transaction, a cancelled query
	@echo "building (a few minutes the first time)"
	@mkdir -p bin && cd examples && go build -o ../bin/ ./demo $(quiet)
	@bin/demo

.PHONY: examples
examples: deps ## run the small example programs
	@mkdir -p bin && cd examples && go build -o ../bin/ ./quickstart ./concurrent ./transaction ./cancel $(quiet)
	@for e in quickstart concurrent transaction cancel; do echo "== $$e"; bin/$$e; done

.PHONY: bench
bench: ## the pool and whole calls against their peers
	@cd internal/bench && go run . && go run ./calls

.PHONY: stress
stress: test-deps ## the long tests, for STRESS (default 30s) each
	@STRESS=$(STRESS) go test -race -count=1 -timeout 24h -run Stress ./reservoir/... ./flightpool/... ./lease/... $(quiet)
	@STORMS=$(STORMS) go test -count=1 -timeout 24h -run 'NeverExceed|OpensNever' ./lease/dynamolease

.PHONY: fleet
fleet: deps ## DSQL pools of a fleet against their peers, for FLEET_SECONDS each
	@cd internal/fleetbench && go run . burst steady chaos

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
# the tests a PostgreSQL, a MariaDB, and Node for a DynamoDB stand-in (not with DYNAMODB_ENDPOINT set).
.PHONY: deps test-deps
deps:
	@.ci/deps gcc g++

test-deps: deps
	@.ci/deps initdb mariadbd $(if $(DYNAMODB_ENDPOINT),,node npm)
