# Everything a person or a pipeline calls. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

STACK ?= lab
BIN := $(CURDIR)/.bin
PULUMI_VERSION := $(shell sed -n 's|^\tgithub.com/pulumi/pulumi/pkg/v3 \(v[0-9.]*\).*|\1|p' tools/go.mod)
GO_FILES := $(wildcard $(shell git ls-files --cached --others --exclude-standard '*.go' '*.sh' '*go.mod' '*go.sum' 2>/dev/null))
SHELL_FILES := $(shell git ls-files --cached --others --exclude-standard '*.sh' .ci/run 2>/dev/null)

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: up
up: tools ## Bring up stack `lab` on the embedded lab: three control planes, two workers, no hardware needed
	@$(BIN)/lab start
	@$(BIN)/lab up

.PHONY: down
down: tools ## Destroy stack `lab` and stop the lab
	@if $(BIN)/lab status --quiet; then $(BIN)/lab destroy; fi
	@$(BIN)/lab stop

.PHONY: preview
preview: tools ## Show what `up` would do: STACK=lab (default) on the lab, any other on its own Proxmox
ifeq ($(STACK),lab)
	@$(BIN)/lab start
	@$(BIN)/lab preview
else
	@$(BIN)/pulumi preview --stack $(STACK) --parallel 64
endif

.PHONY: report
report: ## Write what a stack will consist of, as Markdown and as a page: STACK=lab (default), into .report/
	@go run ./cmd/stackreport $(STACK)

.PHONY: test
test: tools ## Run every test: specification, Talos knowledge, mocks, and the engine against the lab
	go test ./...
	cd lab && go test -timeout 20m ./...
	cd lab/engine && go test -timeout 60m -args -providers=published

.PHONY: bench
bench: tools ## Measure and print the figures that docs/performance.md explains
	go test -run '^$$' -bench . -benchtime 1x ./internal/...
	cd lab && go test -timeout 60m -run '^$$' -bench . -benchtime 1x ./engine

.PHONY: lint
lint: $(BIN)/golangci-lint ## Check format, code and scripts
	$(BIN)/golangci-lint run ./...
	cd lab && $(BIN)/golangci-lint run --config ../.golangci.yaml ./...
	@command -v shellcheck >/dev/null || { echo 'shellcheck is missing: apt-get install shellcheck' >&2; exit 1; }
	shellcheck $(SHELL_FILES)

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## Format the Go code
	$(BIN)/golangci-lint fmt ./...
	cd lab && $(BIN)/golangci-lint fmt --config ../.golangci.yaml ./...

.PHONY: schema
schema: ## Write the JSON schema of the stack configuration anew
	go run ./cmd/specschema

.PHONY: tools
tools: $(BIN)/lab $(BIN)/talosops $(BIN)/talosctl $(BIN)/pulumi ## Build what is missing into .bin/

.PHONY: clean
clean: ## Remove what was built (.bin/); stops a running lab, keeps its data
	@if [ -x $(BIN)/lab ]; then $(BIN)/lab stop; fi
	rm -rf $(BIN)

$(BIN)/lab: $(GO_FILES)
	@mkdir -p $(BIN)
	cd lab && go build -o $@ ./cmd/lab

$(BIN)/talosops: $(GO_FILES)
	@mkdir -p $(BIN)
	go build -o $@ ./cmd/talosops

$(BIN)/talosctl: tools/go.mod
	@mkdir -p $(BIN)
	@echo 'building talosctl (a few minutes, once)'
	cd tools && go build -ldflags '-s -w' -o $@ github.com/siderolabs/talos/cmd/talosctl

# A fitting CLI on PATH is called instead of building one.
$(BIN)/pulumi: tools/go.mod
	@mkdir -p $(BIN)
	@have=$$(PULUMI_SKIP_UPDATE_CHECK=true pulumi version 2>/dev/null || true); \
	if [ -n "$$have" ] && [ "$$(printf '%s\n' "$(PULUMI_VERSION)" "$$have" | sort -V | head -n 1)" = "$(PULUMI_VERSION)" ]; then \
	  echo "using the Pulumi CLI on PATH ($$have)"; printf '#!/bin/sh\nexec "%s" "$$@"\n' "$$(command -v pulumi)" > $@; chmod +x $@; \
	else \
	  echo 'building the Pulumi CLI (a few minutes, once)'; \
	  cd tools && go build -ldflags '-s -w -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=$(PULUMI_VERSION)' -o $@ github.com/pulumi/pulumi/pkg/v3/cmd/pulumi; \
	fi

$(BIN)/golangci-lint: tools/go.mod
	@mkdir -p $(BIN)
	cd tools && go build -ldflags '-s -w' -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
