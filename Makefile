# Targets that build and test (`make help` lists them). The commands for stacks are those of .bin/talos-proxmox.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Some modules need a newer Go than the program does; Go's container images disable the download of toolchains.
export GOTOOLCHAIN := auto
# Pulumi's language host builds the program with this: with it everywhere, a first preview finds what was compiled here.
export GOFLAGS := $(GOFLAGS) -trimpath
# The Kubernetes of the lab's clusters: model (default) or real.
KUBERNETES ?=
# `make lint` already vets, and test binaries need no symbols: together they would cost a tenth of the CPU time.
GO_TEST := go test -vet=off -ldflags '-s -w'
# Engine tests: a pattern of their names, and the provider plugins to use: standin or published.
RUN ?=
PROVIDERS ?= standin
# Tests that interrupt at random moments: the number of rounds, the seed of the moments, and the pause between rounds.
ROUNDS ?=
SEED ?= 0
GAP ?=
BIN := $(CURDIR)/.bin
# The policy pack, as a program that needs no language host.
POLICY := $(BIN)/pulumi-analyzer-policy-go
# The plugin that provides the components to other languages.
SERVED := $(BIN)/pulumi-resource-talos-proxmox
PULUMI_VERSION := $(shell sed -n 's|^\tgithub.com/pulumi/pulumi/pkg/v3 \(v[0-9.]*\).*|\1|p' tools/go.mod)
# Modules that are separate because their libraries are too large for the program, with the same versions of what they share.
HELPERS := talosops
# All Go modules except lab/kubernetes and those of lab/platform, whose versions are pinned.
MODULES := . lab $(HELPERS) tools
GO_FILES := $(filter-out lab/kubernetes/% lab/platform/% $(addsuffix /%,$(HELPERS)),$(wildcard $(shell git ls-files --cached --others --exclude-standard '*.go' '*.sh' '*go.mod' '*go.sum' 2>/dev/null)))
LABKUBE_FILES := $(wildcard lab/kubernetes/*.go lab/kubernetes/go.*)
# Flux' controllers, which the lab's kubelets run, and the chart of the Flux operator.
FLUX_CONTROLLERS := $(addprefix $(BIN)/,source-controller kustomize-controller helm-controller)
FLUX_OPERATOR := $(BIN)/flux-operator
# Cilium's operator, which the lab's kubelets also run.
CILIUM_OPERATOR := $(BIN)/operator-generic
# The charts that the lab serves, packaged from Go modules, and the CRDs of the Gateway API.
CHARTS := $(BIN)/charts
PLATFORM_TOOLS := $(FLUX_CONTROLLERS) $(FLUX_OPERATOR) $(CILIUM_OPERATOR) $(CHARTS)
FLUX_OPERATOR_MODULE := github.com/controlplaneio-fluxcd/flux-operator
SHELL_FILES := $(shell git ls-files --cached --others --exclude-standard '*.sh' .ci/run 2>/dev/null)

# What previews need; RELEASED is what stacks on real hosts need besides the Pulumi CLI.
PLAN_TOOLS := $(addprefix $(BIN)/,talos-proxmox talosops pulumi) $(POLICY)
RELEASED := $(filter-out $(BIN)/pulumi,$(PLAN_TOOLS)) $(BIN)/gitopscheck

# The programs of a goal that are not there yet.
MISSING := $(filter-out $(wildcard $(BIN)/*),$(if $(filter stack-tools,$(MAKECMDGOALS)),$(RELEASED) $(BIN)/pulumi $(BIN)/program,$(PLAN_TOOLS) $(BIN)/lab))
# $(call build,REMARK,COMMAND) builds a program: it says which, of how many that are missing, for the first time with the remark,
# and hides the list of downloads. Without Go it says so.
build = command -v go >/dev/null || { echo "Go is missing: install Go $$(sed -n 's/^go //p' go.mod) or newer, then repeat" >&2; exit 1; }; \
  mkdir -p $(BIN); number=; for program in $(MISSING); do number=$$((number + 1)); [ $$program != $@ ] || break; done; \
  echo "$(if $(filter $@,$(MISSING)),$$number of $(words $(MISSING)): )building $(@F)$(if $1,$$([ -e $@ ] || echo ' ($1)'))"; \
  $2 2> >(sed '/^go: downloading /d' >&2)

.PHONY: help
help: ## start: Show this list
	@awk -F ':.*## ' -v groups='start,develop' ' \
	  /^[a-z0-9%-]+:.*## / { split($$2, help, ": "); list[help[1]] = list[help[1]] sprintf("  %-16s %s\n", $$1, substr($$2, length(help[1]) + 3)) } \
	  END { count = split(groups, order, ","); for (i = 1; i <= count; i++) printf "%s%s\n%s", (i > 1 ? "\n" : ""), order[i], list[order[i]] }' $(firstword $(MAKEFILE_LIST))
	@printf '%s\n' '' variables '  KUBERNETES=real      real etcd and Kubernetes in place of the lab'"'"'s model: up, test-engine' \
	  '  PROVIDERS=published  the published plugins in place of the stand-ins: test-engine, which installs them' \
	  '  RUN=…                a pattern of tests'"'"' names: test-engine, test-platform' \
	  '  ROUNDS=10            how often a test interrupts at random moments (TestSoak takes hours); SEED= repeats them, GAP=60s waits between'

.PHONY: up
up: tools $(if $(filter real,$(KUBERNETES)),$(BIN)/labkube) ## start: Bring up stack `lab` on the embedded lab: a whole cluster, no hardware needed
	@$(BIN)/lab start $(if $(KUBERNETES),--kubernetes=$(KUBERNETES))
	@$(BIN)/lab up --policy

.PHONY: down
down: tools ## start: Destroy stack `lab` and stop the lab
	@if $(BIN)/lab status --quiet; then $(BIN)/lab destroy; fi
	@$(BIN)/lab stop

# The tests of components/scripts start thousands of shells.
.PHONY: test-unit
test-unit: ## develop: Run the tests that need neither the lab nor shells, in under a minute
	$(GO_TEST) $$(go list ./... | grep -v /components/scripts)

# What engine tests run besides the program itself; the last two are for the commands of docs/getting-started.md.
ENGINE_TOOLS := tools $(SERVED) $(BIN)/talosctl $(BIN)/gitopscheck $(BIN)/sops
.PHONY: real-tools
real-tools: $(BIN)/labkube $(PLATFORM_TOOLS)

.PHONY: test-engine
test-engine: $(if $(RUN),$(ENGINE_TOOLS) $(if $(filter real,$(KUBERNETES)),$(BIN)/labkube)) ## develop: Run engine tests on the lab: RUN=TestProtection [PROVIDERS=] [KUBERNETES=] [ROUNDS=]
	@if [ -z '$(value RUN)' ]; then echo 'say which: RUN=TestProtection, or RUN=TestTraps/shrink for one case' >&2; exit 1; fi
	$(if $(filter published,$(PROVIDERS)),cd lab && PATH="$(BIN):$$PATH" go run ./providers/install)
	cd lab/engine && $(if $(filter real,$(KUBERNETES)),LABKUBE=$(BIN)/labkube )$(GO_TEST) -count 1 -v -timeout $(if $(ROUNDS),24h,60m) $(if $(filter real,$(KUBERNETES)),-parallel 3) -run '$(value RUN)' . -args -providers=$(PROVIDERS) $(if $(ROUNDS),-rounds $(ROUNDS) -seed $(SEED)) $(if $(GAP),-gap $(GAP))

# Trades memory for CPU time: garbage collection takes a tenth of it by default.
.PHONY: test
test: export GOGC = 400
test: $(ENGINE_TOOLS) ## develop: Run all tests except test-slow and those of real Kubernetes and Flux
	$(GO_TEST) -timeout 30m ./...
	@for module in $(HELPERS); do (cd $$module && $(GO_TEST) ./...) || exit 1; done
	cd lab && $(GO_TEST) -timeout 60m -parallel 8 ./...

.PHONY: bench
bench: tools ## develop: Measure and print the figures that docs/dev/performance.md explains
	$(GO_TEST) -run '^$$' -bench . -benchtime 1x ./internal/...
	cd lab && $(GO_TEST) -timeout 60m -run '^$$' -bench . -benchtime 1x ./engine

.PHONY: lint
lint: $(BIN)/golangci-lint $(BIN)/actionlint ## develop: Check format, code, scripts, workflows and that every go.mod is tidy
	@for module in $(MODULES) lab/kubernetes; do (cd $$module && go mod tidy -diff) || { echo "$$module/go.mod is not tidy: go mod tidy" >&2; exit 1; }; done
	$(BIN)/golangci-lint run ./...
	cd lab && $(BIN)/golangci-lint run --config ../.golangci.yaml ./...
	@for module in $(HELPERS); do (cd $$module && $(BIN)/golangci-lint run --config $(CURDIR)/.golangci.yaml ./...) || exit 1; done
	@command -v shellcheck >/dev/null || { echo 'shellcheck is missing: apt-get install shellcheck' >&2; exit 1; }
	shellcheck $(SHELL_FILES)
	$(BIN)/actionlint

SBOM := .report/sbom
# The modules with code of this project; in tools that is secretsimport.
SCANNED := . lab lab/kubernetes $(HELPERS) tools

.PHONY: scan
scan: $(BIN)/govulncheck $(BIN)/gitleaks $(BIN)/go-licenses $(SBOM) ## develop: Look for vulnerabilities, forbidden licences and secrets; write bills of materials to .report/sbom/
	$(BIN)/gitleaks git --no-banner --redact .
	@found=; for module in $(SCANNED); do echo "$$module:"; \
	  (cd $$module && $(BIN)/go-licenses check --ignore talos-proxmox --include_tests=false --disallowed_types=forbidden,restricted ./... && \
	    $(BIN)/govulncheck ./...) || found="$$found $$module"; done; \
	[ -z "$$found" ] || { echo "scan failed in:$$found" >&2; exit 1; }

# Made from a copy of the tracked files: a module's hash covers its whole folder, which here includes .bin and .lab.
$(SBOM): $(BIN)/cyclonedx-gomod $(addsuffix /go.sum,$(SCANNED))
	@rm -rf $@ $@.new $@.sources && mkdir -p $@.new
	@git checkout-index --all --prefix=$@.sources/
	@for module in $(SCANNED); do name=$$(echo "$$module" | tr / -); [ "$$module" != . ] || name=program; \
	  $(BIN)/cyclonedx-gomod mod -json -licenses -output "$@.new/$$name.json" "$@.sources/$$module" || exit 1; done
	@rm -rf $@.sources && mv $@.new $@

# The files of a release: the programs that a stack needs besides the Pulumi CLI, and the bills of materials.
.PHONY: .release
.release: $(RELEASED) $(SBOM)
	@rm -rf $@ && mkdir $@
	@tar --create --gzip --directory $(BIN) --file $@/talos-proxmox-linux-amd64.tar.gz $(notdir $(RELEASED))
	@tar --create --gzip --directory .report --file $@/sbom.tar.gz sbom

.PHONY: test-slow
test-slow: $(ENGINE_TOOLS) ## develop: Test secretsimport, compile the TypeScript SDK (npm downloads 130 MB), and look for data races
	cd tools/secretsimport && $(GO_TEST) ./...
	cd lab && $(GO_TEST) -count 1 -v -run TestTypeScript ./sdktest -args -npm
	$(GO_TEST) -race $$(go list ./... | grep -v /components/scripts)
	cd talosops && $(GO_TEST) -race ./...
	cd lab && $(GO_TEST) -race $$(go list ./... | grep -v /lab/engine)
	cd lab && $(GO_TEST) -race -timeout 30m -run 'TestControlPlanesLeave$$' ./engine

.PHONY: platform
platform: $(BIN)/labkube $(PLATFORM_TOOLS) tools ## develop: Show a platform from nothing: real Kubernetes, one `up`, and Flux reconciling gitops/clusters/lab
	cd lab && LABKUBE=$(BIN)/labkube $(GO_TEST) -count 1 -timeout 30m -v -run 'TestPlatform$$' ./engine

.PHONY: test-platform
test-platform: $(BIN)/labkube $(PLATFORM_TOOLS) $(ENGINE_TOOLS) ## develop: Run the tests of the platform, with the real controllers of Flux [RUN=Kills] [ROUNDS=]
	cd lab/engine && LABKUBE=$(BIN)/labkube $(GO_TEST) -count 1 -timeout 90m -v -parallel 3 -run 'TestPlatform$(value RUN)' . -args -rounds $(or $(ROUNDS),1) -seed $(SEED)

.PHONY: test-kubernetes
test-kubernetes: $(BIN)/labkube $(BIN)/talosctl tools ## develop: Run the tests of labkube, and those of the lab on real etcd and Kubernetes [RUN=TestRealRestore]
	cd lab/kubernetes && $(GO_TEST) ./...
	cd lab && LABKUBE=$(BIN)/labkube $(GO_TEST) -count 1 -timeout 60m -p 1 -parallel 3 -run '$(or $(value RUN),TestScenario/real|TestReal)' ./machine ./engine

# Not `all`: it also resolves imports of files for newer Go versions, which this version's standard library may lack.
.PHONY: update
update: ## develop: Raise dependencies to their newest patch versions, except the pinned ones of lab/kubernetes
	@for module in $(MODULES); do (cd $$module && go get -u=patch -t ./... tool && go mod tidy); done
	@$(ALIGN)

# The lab's dependencies may raise versions that it shares with the program; the program must ship what was tested.
ALIGN = go get $$(awk 'NR == FNR { shared[$$1]; next } $$2 ~ /^v[0-9]/ && $$1 in shared { print $$1 "@" $$2 }' go.mod lab/go.mod) && \
  for module in . $(HELPERS) lab; do (cd $$module && go mod tidy) || exit 1; done

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## develop: Format the Go code, and align the versions that the program shares with the lab
	$(BIN)/golangci-lint fmt ./...
	@for module in lab $(HELPERS); do (cd $$module && $(BIN)/golangci-lint fmt --config $(CURDIR)/.golangci.yaml ./...) || exit 1; done
	@$(ALIGN)

.PHONY: schema
schema: ## develop: Generate the schemas of stack files and components, and their reference documents
	go run ./internal/gendocs

.PHONY: tools
tools: plan-tools $(BIN)/lab ## start: Build what stack `lab` needs into .bin/, unless it is up to date

.PHONY: stack-tools
stack-tools: $(RELEASED) $(BIN)/pulumi $(BIN)/program ## start: Build what stacks on real hosts need: .bin/talos-proxmox and what it and `pulumi up` call

.PHONY: plan-tools
plan-tools: $(PLAN_TOOLS)

build-%: $(BIN)/% ## develop: Build one program of .bin: build-labkube (five minutes, once), build-talosctl, …
	@:

.PHONY: clean
clean: ## develop: Remove what was built (.bin/); stops a running lab, keeps its data
	@if [ -x $(BIN)/lab ]; then $(BIN)/lab stop; fi
	rm -rf $(BIN)

$(BIN)/lab: $(GO_FILES)
	@$(call build,,go build -C lab -o $@ ./cmd/lab)

$(BIN)/labkube: $(LABKUBE_FILES)
	@$(call build,etcd and Kubernetes: some five minutes,go build -C lab/kubernetes -ldflags '-s -w' -o $@ .)
	@ln -sf labkube $(BIN)/kubectl

# source-controller has its own module because it needs an older version of a library than the others.
$(BIN)/source-controller: MODULE := lab/platform/source
$(BIN)/source-controller: $(wildcard lab/platform/source/go.*)
$(BIN)/kustomize-controller $(BIN)/helm-controller: MODULE := lab/platform
$(BIN)/kustomize-controller $(BIN)/helm-controller: $(wildcard lab/platform/go.*)
$(FLUX_CONTROLLERS):
	@$(call build,of Flux: some minutes,go build -C $(MODULE) -ldflags '-s -w' -o $@ github.com/fluxcd/$(@F))
	@touch $@

# The operator reads the manifests of Flux' versions from a folder next to it. Its module does not include the web pages that
# it embeds, and a module in the cache is read-only: the build uses a copy with a placeholder page.
$(FLUX_OPERATOR): $(wildcard lab/platform/operator/go.* lab/platform/operator/chart/*.go)
	@mkdir -p $(BIN)
	@echo 'building the operator of Flux (some minutes, once)'
	@cd lab/platform/operator && go mod download $(FLUX_OPERATOR_MODULE) && \
	  module=$$(go list -m -f '{{.Dir}}' $(FLUX_OPERATOR_MODULE)) && \
	  version=$$(go list -m -f '{{.Version}}' $(FLUX_OPERATOR_MODULE)) && \
	  rm -rf $@-source && cp -r "$$module" $@-source && chmod -R u+w $@-source && mkdir -p $@-source/web/dist && \
	  echo 'The lab has no pages of the operator.' > $@-source/web/dist/index.html && \
	  cp go.mod $@.mod && cp go.sum $@.sum && go mod edit -replace=$(FLUX_OPERATOR_MODULE)=$@-source $@.mod && \
	  go build -modfile $@.mod -ldflags "-s -w -X main.VERSION=$$version" -o $@.new $(FLUX_OPERATOR_MODULE)/cmd/operator && \
	  rm -rf $@-data && mv $@-source/config/data $@-data && go run ./chart $@-source "$${version#v}" $@.tgz && \
	  rm -rf $@-source $@.mod $@.sum && mv $@.new $@

# Named as in its container image.
$(CILIUM_OPERATOR): lab/platform/cilium/go.mod lab/platform/cilium/go.sum
	@$(call build,Cilium: some minutes,go build -C lab/platform/cilium -tags ipam_provider_operator -ldflags '-s -w' -o $@ github.com/cilium/cilium/operator)
	@touch $@

# Reproducible archives, without times and owners. The CRDs of the Prometheus operator become a chart of their own, as in the
# community's repository.
$(CHARTS): lab/platform/cilium/go.mod lab/platform/cilium/go.sum
	@rm -rf $@ $@.new $(BIN)/gateway-api-crds
	@mkdir -p $@.new/prometheus-operator-crds/crds $(BIN)/gateway-api-crds
	@set -e; cd lab/platform/cilium; \
	  source() { go mod download "$$1"; go list -m -f '{{.Dir}}' "$$1"; }; \
	  pack() { tar --create --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
	    --directory "$$1" "$$2" | gzip --no-name > $@.new/$$2.tgz; }; \
	  cilium=$$(source github.com/cilium/cilium); \
	  pack "$$cilium/install/kubernetes" cilium; \
	  gateway=$$(source sigs.k8s.io/gateway-api); \
	  cp --no-preserve=mode "$$gateway"/config/crd/standard/gateway.*.yaml $(BIN)/gateway-api-crds/; \
	  prometheus=$$(source github.com/prometheus-operator/prometheus-operator); \
	  cp --no-preserve=mode "$$prometheus"/example/prometheus-operator-crd/*.yaml $@.new/prometheus-operator-crds/crds/; \
	  version=$$(cat "$$prometheus/VERSION"); \
	  printf 'apiVersion: v2\nname: prometheus-operator-crds\nversion: %s\ndescription: packed by the lab\n' "$$version" \
	    > $@.new/prometheus-operator-crds/Chart.yaml; \
	  pack $@.new prometheus-operator-crds; \
	  rm -r $@.new/prometheus-operator-crds; mv $@.new $@

# cmd/talosops builds it the same way.
$(BIN)/talosops: $(GO_FILES) $(wildcard talosops/*.go talosops/*/*.go talosops/go.*)
	@$(call build,with the libraries of Helm and of the upgrade of Kubernetes: a few minutes,go build -C talosops -ldflags '-s -w' -o $@ .)

$(BIN)/gitopscheck: $(GO_FILES) $(wildcard talosops/gitopscheck/*.go talosops/charts/*.go talosops/go.*)
	@$(call build,with the libraries of Flux and of the API server: a minute or two,go build -C talosops -ldflags '-s -w' -o $@ ./gitopscheck)

$(BIN)/talos-proxmox: $(GO_FILES)
	@$(call build,a few minutes,go build -o $@ ./cmd/talos-proxmox)

# What Pulumi's language host builds before each run, with its flags: it links only what has changed.
$(BIN)/program: $(GO_FILES)
	@$(call build,,go build -buildvcs=false -ldflags '-w -s' -o $@ .)

$(BIN)/secretsimport: tools/go.mod tools/secretsimport/main.go
	@$(call build,with the SOPS library: a few minutes,go build -C tools -ldflags '-s -w' -o $@ ./secretsimport)

$(POLICY): $(GO_FILES)
	@$(call build,,go build -o $@ ./policy)

$(SERVED): $(GO_FILES) $(wildcard cmd/pulumi-resource-talos-proxmox/*.json)
	@$(call build,,go build -o $@ ./cmd/pulumi-resource-talos-proxmox)

# Uses the Pulumi CLI on PATH if it is new enough, instead of building one.
$(BIN)/pulumi: tools/go.mod
	@have=$$(PULUMI_SKIP_UPDATE_CHECK=true pulumi version 2>/dev/null || true); \
	if [ -n "$$have" ] && [ "$$(printf '%s\n' "$(PULUMI_VERSION)" "$$have" | sort -V | head -n 1)" = "$(PULUMI_VERSION)" ]; then \
	  mkdir -p $(BIN); echo "using the Pulumi CLI on PATH ($$have)"; printf '#!/bin/sh\nexec "%s" "$$@"\n' "$$(command -v pulumi)" > $@; chmod +x $@; \
	else \
	  $(call build,a few minutes,go build -C tools -ldflags '-s -w -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=$(PULUMI_VERSION)' -o $@ github.com/pulumi/pulumi/pkg/v3/cmd/pulumi); \
	fi

$(BIN)/cyclonedx-gomod: TOOL := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
$(BIN)/gitleaks: TOOL := github.com/zricethezav/gitleaks/v8
$(BIN)/go-licenses: TOOL := github.com/google/go-licenses/v2
$(BIN)/golangci-lint: TOOL := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(BIN)/govulncheck: TOOL := golang.org/x/vuln/cmd/govulncheck
$(BIN)/sops: TOOL := github.com/getsops/sops/v3/cmd/sops
$(BIN)/talosctl: TOOL := github.com/siderolabs/talos/cmd/talosctl
TOOLS := $(addprefix $(BIN)/,cyclonedx-gomod gitleaks go-licenses golangci-lint govulncheck sops talosctl)
$(TOOLS): tools/go.mod
	@$(call build,at most a few minutes,go build -C tools -ldflags '-s -w' -o $@ $(TOOL))
	@touch $@

# Not in the module tools: it does not compile with the version of go.yaml.in/yaml/v4 that talosctl requires.
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
$(BIN)/actionlint: Makefile
	@mkdir -p $(BIN)
	GOBIN=$(BIN) go install -ldflags '-s -w' $(ACTIONLINT)
	@touch $@
