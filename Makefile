# Everything a person or a pipeline calls. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

STACK ?= lab
# Modules may ask for a newer Go than the program; images and pipelines with Go in them switch off what fetches it.
export GOTOOLCHAIN := auto
# Where a stack is planned: on the lab's stand-ins, or on its own Proxmox.
ON ?= $(if $(filter lab,$(STACK)),lab,own)
# What the guard may let go: names of resources, and labels of a pull request.
APPROVE ?=
PUSH ?= $(if $(filter dev,$(STACK)),true,false)
LABELS ?=
export APPROVE LABELS
# The Pulumi CLI writes every property to a log at each run and cannot be told not to; by default the logs may take 500 MB.
export PULUMI_LOG_ROTATION_MAX_TOTAL_MB ?= 50
# The CLI, its plugins and the program live for seconds: to collect garbage less often saves a fifth of their processor time, for twice the memory.
PULUMI = GOGC=$${GOGC:-400} $(BIN)/pulumi
# What `recover` removes although no creation of it is pending, and whether it asks. CONFIRM names a machine that may be in use.
VMID ?=
YES ?=
# Which cluster of a stack; all, or the only one, where it is empty.
CLUSTER ?=
# What `restore` reads; SKIP_HASH_CHECK=1 takes a database that was copied from a disk.
SNAPSHOT ?=
IDENTITIES ?=
CONFIRM ?=
SKIP_HASH_CHECK ?=
# What `reseal` reads.
STATE ?=
SECRETS ?=
# Further options of `status` and `secrets-import`.
FLAGS ?=
# The lab's stack has its state, its passphrase and its addresses in .lab.
LAB_STATE = $(if $(filter lab,$(STACK)),PULUMI_BACKEND_URL=file://$(CURDIR)/.lab/state PULUMI_CONFIG_PASSPHRASE_FILE=$(CURDIR)/.lab/passphrase)
LAB_PROJECT = $(if $(filter lab,$(STACK)),--project .lab/work)
BACKUP = $(LAB_STATE) $(BIN)/backup $(LAB_PROJECT)
STATUS = $(LAB_STATE) $(BIN)/stackstatus $(LAB_PROJECT)
# What the lab's clusters run on: model (default), or real.
KUBERNETES ?=
# Engine tests: a pattern of their names, and who does the work: standin or published.
RUN ?=
PROVIDERS ?= standin
BACKUPS ?= $(HOME)/.pulumi-backups
BIN := $(CURDIR)/.bin
# The policy pack, by the name under which Pulumi finds it without its language host for Go.
POLICY := $(BIN)/pulumi-analyzer-policy-go
# The plugin that serves the components to other languages.
SERVED := $(BIN)/pulumi-resource-talos-proxmox
POLICY_CONFIG := $(wildcard policy/policy-config.$(STACK).json)
# Pulumi passes over what a misspelt name in the configuration was to change; the lab checks by itself.
POLICY_CHECK := $(POLICY) check $(POLICY_CONFIG)
POLICY_FLAGS := --policy-pack $(POLICY) $(addprefix --policy-pack-config ,$(POLICY_CONFIG))
PULUMI_VERSION := $(shell sed -n 's|^\tgithub.com/pulumi/pulumi/pkg/v3 \(v[0-9.]*\).*|\1|p' tools/go.mod)
# The Go modules, but lab/kubernetes and those of lab/platform, whose versions are pinned. Examples have the versions of the program, and so have the helpers of talosops.
EXAMPLES := examples/one-node
# What talosops calls, and gitopscheck: programs whose libraries are too large for the others.
HELPERS := cmd/gitopscheck cmd/kubeupgrade cmd/platform
MODULES := . lab $(HELPERS) cmd/gitopscheck/schemas tools tools/ci tools/secretsimport $(EXAMPLES)
HELPER_FILES := $(wildcard internal/command/*.go internal/request/*.go internal/talos/*.go)
GO_FILES := $(filter-out lab/kubernetes/% lab/platform/% $(addsuffix /%,$(HELPERS)),$(wildcard $(shell git ls-files --cached --others --exclude-standard '*.go' '*.sh' '*go.mod' '*go.sum' 2>/dev/null)))
LABKUBE_FILES := $(wildcard lab/kubernetes/*.go lab/kubernetes/go.*)
# The controllers of Flux, which the lab's kubelets run, and the chart of Flux' operator.
FLUX_CONTROLLERS := $(addprefix $(BIN)/,source-controller kustomize-controller helm-controller)
FLUX_OPERATOR := $(BIN)/flux-operator
# Cilium's operator, which they run as well.
CILIUM_OPERATOR := $(BIN)/operator-generic
# The charts that the lab serves, packed of modules, and the definitions of the Gateway API.
CHARTS := $(BIN)/charts
FLUX_OPERATOR_MODULE := github.com/controlplaneio-fluxcd/flux-operator
SHELL_FILES := $(shell git ls-files --cached --others --exclude-standard '*.sh' .ci/run 2>/dev/null)

# Stacks whose clusters have a GitOps path are told first what their machines lack of what it needs.
GITOPS_CHECK = if grep -qE '^[^\#]*\bgitops:' Pulumi.$(STACK).yaml; then $(MAKE) --no-print-directory gitops-check; fi
# Where the repository of the clusters' GitOps paths is.
REPOSITORY ?= .

.PHONY: help
help: ## start: Show this list
	@awk -F ':.*## ' -v groups='start,deploy,look,day 2,develop' ' \
	  /^[a-z0-9-]+:.*## / { split($$2, said, ": "); list[said[1]] = list[said[1]] sprintf("  %-14s %s\n", $$1, substr($$2, length(said[1]) + 3)) } \
	  END { count = split(groups, order, ","); for (i = 1; i <= count; i++) printf "%s%s\n%s", (i > 1 ? "\n" : ""), order[i], list[order[i]] }' $(firstword $(MAKEFILE_LIST))

.PHONY: up
up: tools $(if $(filter real,$(KUBERNETES)),$(BIN)/labkube) ## start: Bring up stack `lab` on the embedded lab: three control planes, two workers, a GPU worker, two machines of Debian, no hardware needed; KUBERNETES=real on real etcd and Kubernetes
	@$(BIN)/lab start $(if $(KUBERNETES),--kubernetes=$(KUBERNETES))
	@$(BIN)/lab up --policy

.PHONY: down
down: tools ## start: Destroy stack `lab` and stop the lab
	@if $(BIN)/lab status --quiet; then $(BIN)/lab destroy; fi
	@$(BIN)/lab stop

.PHONY: preview
preview: tools ## start: Show what `up` would do: STACK=lab (default) on the lab, any other on its own Proxmox
ifeq ($(STACK),lab)
	@$(BIN)/lab start
	@$(BIN)/lab preview --policy $(addprefix --policy-config ,$(POLICY_CONFIG))
else
	@$(GITOPS_CHECK)
	@$(POLICY_CHECK)
	@$(PULUMI) preview --stack $(STACK) --parallel 64 $(POLICY_FLAGS)
endif

.PHONY: deploy
deploy: stack-tools ## deploy: Bring up STACK on its own Proxmox without asking, judged by the policies: what the pipeline does after `guard`
	@if [ '$(STACK)' = lab ]; then echo 'stack lab has no Proxmox of its own: make up brings it up; say STACK=' >&2; exit 1; fi
	@$(GITOPS_CHECK)
	@$(POLICY_CHECK)
	@$(PULUMI) up --stack $(STACK) --yes --non-interactive --refresh --parallel 64 $(POLICY_FLAGS) || \
	  { echo 'Was this run, or one before it, killed? make recover STACK=$(STACK) removes what it left; then make deploy STACK=$(STACK) resumes. Would it create machines that run already? Then the state was lost, or is in another backend: docs/recovery.md.' >&2; exit 1; }

.PHONY: recover
recover: $(if $(filter lab,$(STACK)),tools,plan-tools) ## day 2: Make STACK usable after a killed run: unlock it, remove what the run left, clear pending operations; VMID=3000 after a create that failed; YES=1 does not ask; CONFIRM=name for a machine that may be in use
ifeq ($(STACK),lab)
	@$(BIN)/lab start
	@$(BIN)/lab recover $(addprefix --vmid ,$(VMID)) $(addprefix --confirm ,$(CONFIRM))
else
	@$(BIN)/recover $(if $(YES),--yes) $(addprefix --vmid ,$(VMID)) $(addprefix --confirm ,$(CONFIRM)) $(STACK)
endif

# The exit status goes into the plan, as its events do not have it.
PLAN_FAILED = { echo "{\"exitStatus\": $$?}" >> .plan/$(STACK).json; echo 'the preview failed; guard and comment say why' >&2; }

.PHONY: plan
plan: $(if $(filter lab,$(ON)),tools,plan-tools) $(BIN)/planreview ## deploy: Write what `up` would do to .plan/STACK.json, for guard and comment; ON=lab plans any stack on the lab's stand-ins
	@mkdir -p .plan
ifeq ($(ON),lab)
	@$(BIN)/lab start
	@$(BIN)/lab preview --stack $(STACK) --json --policy $(addprefix --policy-config ,$(POLICY_CONFIG)) $(PLAN_FLAGS) > .plan/$(STACK).json || $(PLAN_FAILED)
else
	@$(GITOPS_CHECK)
	@$(POLICY_CHECK)
	@PULUMI_ENABLE_STREAMING_JSON_PREVIEW=true $(PULUMI) preview --stack $(STACK) --non-interactive --json --show-sames --parallel 64 $(POLICY_FLAGS) $(PLAN_FLAGS) > .plan/$(STACK).json \
	  || $(PLAN_FAILED)
endif

.PHONY: guard
guard: plan ## deploy: Fail when `up` would lose a control plane, secrets, the bootstrap, data or a template's clones; APPROVE=name,name lets those go
	@$(BIN)/planreview guard --approve "$$APPROVE" --labels "$$LABELS" .plan/$(STACK).json

.PHONY: comment
comment: $(BIN)/planreview ## deploy: Write all plans of .plan/ as Markdown; PULL=number posts it on that pull request
	@$(BIN)/planreview comment --approve "$$APPROVE" --labels "$$LABELS" $(if $(PULL),--post --pull '$(PULL)') .plan/*.json

.PHONY: drift
drift: PLAN_FLAGS := --refresh
drift: plan $(BIN)/stackstatus $(BIN)/talosops $(BIN)/pulumi ## look: Fail when machines, nodes or files of hosts are not what the state and the stack file say
	@$(STATUS) drift $(STACK) >> .plan/$(STACK).json
	@$(BIN)/planreview guard --expect-no-changes .plan/$(STACK).json

# Whoever opens a pull request decides what its preview runs, with the secrets of the stack.
PREVIEW_PRS ?= false

.PHONY: deployments
deployments: $(BIN)/pulumi ## deploy: Set up Pulumi Deployments for STACK: REPO=owner/name POOL=id of a runner pool of yours; PUSH=true brings it up on every push; PREVIEW_PRS=true previews pull requests, of a stack without `protect`
	@if [ '$(PREVIEW_PRS)' != false ] && { [ ! -r Pulumi.$(STACK).yaml ] || grep -E '^[^#]*talos-proxmox:protect' Pulumi.$(STACK).yaml | grep -qv false; }; then \
	  echo 'PREVIEW_PRS: Pulumi.$(STACK).yaml has protect: true, or cannot be read. A pull request runs its own code with the secrets of the stack that it previews: name a stack without protect, with a Proxmox token and a runner pool of its own (docs/pipelines.md#pulumi-deployments)' >&2; exit 1; fi
	@$(BIN)/pulumi deployment settings edit --stack '$(STACK)' --github-repo '$(REPO)' --branch main --folder . --runner-pool '$(POOL)' --preview-prs=$(PREVIEW_PRS) \
	  --push-to-deploy=$(PUSH) --pre-run-command 'make guard STACK=$(STACK) PLAN_FLAGS=--refresh' --env PULUMI_PARALLEL=64

.PHONY: hooks
hooks: $(BIN)/golangci-lint $(BIN)/gitleaks $(BIN)/actionlint ## develop: Install the hooks of .pre-commit-config.yaml
	@command -v pre-commit >/dev/null || { echo 'pre-commit is missing: apt-get install pre-commit, or pipx install pre-commit' >&2; exit 1; }
	pre-commit install

.PHONY: backup
backup: plan-tools ## day 2: Export the state of STACK to BACKUPS (default ~/.pulumi-backups); its secrets stay encrypted
	@umask 077; mkdir -p '$(BACKUPS)'; file='$(BACKUPS)/$(STACK)-'$$(date -u +%Y%m%dT%H%M%SZ).json; \
	$(BIN)/pulumi stack export --stack $(STACK) --file "$$file"; echo "$$file"

.PHONY: backup-etcd
backup-etcd: $(BIN)/backup $(BIN)/talosops $(BIN)/pulumi ## day 2: Keep an encrypted snapshot of etcd of STACK's clusters (backup: in the stack file); CLUSTER=name for one
	@$(BACKUP) etcd $(STACK) $(CLUSTER)

.PHONY: export-secrets
export-secrets: $(BIN)/backup $(BIN)/pulumi ## day 2: Export the machine secrets of STACK's clusters, encrypted (backup.secretsRecipients in the stack file); CLUSTER=name for one
	@$(BACKUP) secrets $(STACK) $(CLUSTER)

.PHONY: reseal
reseal: $(BIN)/backup $(BIN)/pulumi ## day 2: Continue STACK whose passphrase is lost: STATE=file of `backup`, SECRETS='cluster=file …' of `export-secrets`, IDENTITIES=file of the secret key
	@$(BACKUP) reseal $(STACK) '$(STATE)' $(SECRETS) $(addprefix --identities ,$(IDENTITIES))

.PHONY: rotate-ca
rotate-ca: $(BIN)/backup $(BIN)/talosops $(BIN)/pulumi ## day 2: Replace the certificate authority of the Talos API of a cluster of STACK, CLUSTER=name, or that of Kubernetes, CA=kubernetes; may be interrupted and repeated; then bring the stack up
	@$(BACKUP) rotate-ca $(STACK) $(addprefix --cluster ,$(CLUSTER)) $(addprefix --authority ,$(CA))

.PHONY: restore
restore: $(BIN)/backup $(BIN)/talosops $(BIN)/pulumi ## day 2: Restore etcd of a cluster that lost it: STACK=, SNAPSHOT=file, IDENTITIES=file of the secret key, CLUSTER=name; CONFIRM=name does not ask; SKIP_HASH_CHECK=1 for a database copied from a disk; UNSEALED=1 for a snapshot that does not say which cluster it is of; DISCARD_SURVIVORS=1 wipes what cannot be kept
	@$(BACKUP) restore $(STACK) '$(SNAPSHOT)' $(addprefix --cluster ,$(CLUSTER)) $(addprefix --identities ,$(IDENTITIES)) $(addprefix --confirm ,$(CONFIRM)) $(if $(SKIP_HASH_CHECK),--skip-hash-check) $(if $(UNSEALED),--unsealed) $(if $(DISCARD_SURVIVORS),--discard-survivors)

.PHONY: status
status: $(BIN)/stackstatus $(BIN)/talosops $(BIN)/pulumi ## look: Say how STACK's clusters are: etcd, versions, certificates, GPUs, last backup; CLUSTER=name for one, FLAGS=--json; fails where something needs care
	@$(STATUS) status $(STACK) $(CLUSTER) $(FLAGS)

.PHONY: facts
facts: tools ## look: Ask hosts what they are and whether the plan fits them: HOST=pve1 (default: all), STACK=lab (default), KEY=file of a private key (default: the SSH agent)
ifeq ($(STACK),lab)
	@$(BIN)/lab start
	@$(BIN)/lab host facts $(HOST)
else
	@go run ./cmd/hostreport --talosops $(BIN)/talosops $(if $(KEY),--private-key-file $(KEY)) $(STACK) $(HOST)
endif

.PHONY: check
check: $(if $(filter lab,$(STACK)),tools,$(BIN)/pulumi) ## look: Compare STACK with what its Proxmox and the Image Factory have, host by host, without changing anything: STACK=lab (default) on the lab
ifeq ($(STACK),lab)
	@$(BIN)/lab start
	@$(BIN)/lab check
else
	@go run ./cmd/sitecheck $(STACK)
endif

.PHONY: gitops-check
gitops-check: $(BIN)/gitopscheck ## look: Judge gitops/ offline, and say what STACK's machines lack of what its clusters' GitOps paths need; REPOSITORY=folder of another repository
	@$(BIN)/gitopscheck tree '$(REPOSITORY)'
	@$(BIN)/gitopscheck stack --repository '$(REPOSITORY)' $(STACK)

.PHONY: report
report: ## look: Write what a stack will consist of, as Markdown and as a page: STACK=lab (default), into .report/
	@go run ./cmd/stackreport $(STACK)

# The scripts' tests start some thousand shells.
.PHONY: test-unit
test-unit: ## develop: Run the tests that need neither the lab nor shells, in under a minute
	go test $$(go list ./... | grep -v /components/scripts)

.PHONY: test-debian
test-debian: ## develop: Boot a Debian from its mirror in QEMU with the seed of templates, and judge what it leaves; needs root, installs packages, emulates a processor (half an hour)
	internal/systems/test-debian.sh

.PHONY: record-proxmox
record-proxmox: ## develop: Ask a real Proxmox VE the calls that the lab is held against, and keep its answers: ENDPOINT=https://HOST:8006 and TOKEN=FILE with a token of root@pam (or PROXMOX_VE_API_TOKEN), five minutes; NODE=, FILES=, IMAGES=, BRIDGE= name what it has, AMONG_MACHINES=1 records where machines are, REMOVE=1 removes what an interrupted recording left
	@cd lab/proxmox/recording && go run ./record -endpoint '$(ENDPOINT)' $(if $(TOKEN),-token '$(abspath $(TOKEN))') \
	  $(if $(NODE),-node '$(NODE)') $(if $(FILES),-files '$(FILES)') $(if $(IMAGES),-images '$(IMAGES)') \
	  $(if $(BRIDGE),-bridge '$(BRIDGE)') $(if $(AMONG_MACHINES),-among-machines) $(if $(REMOVE),-remove)

.PHONY: test-host
test-host: ## develop: Boot a Debian from its mirror in QEMU, with GRUB and with systemd-boot, and prepare it as a Proxmox host, over real reboots; needs root, installs packages, emulates a processor (twenty minutes)
	components/scripts/test-host.sh

.PHONY: test-engine
test-engine: $(if $(RUN),tools $(SERVED) $(BIN)/backup $(BIN)/stackstatus) ## develop: Run the engine tests that RUN names, on the lab: RUN=TestProtection; PROVIDERS=published runs them with the published plugins
	@if [ -z '$(RUN)' ]; then echo 'say which: RUN=TestProtection, or RUN=TestTraps/shrink for one case' >&2; exit 1; fi
	cd lab/engine && go test -count 1 -v -timeout 60m -run '$(RUN)' . -args -providers=$(PROVIDERS)

# The engine's tests wait more than they work. Memory is given for processor time: a tenth of it is garbage collection.
.PHONY: test
test: export GOGC = 400
test: tools $(SERVED) $(BIN)/backup $(BIN)/stackstatus ## develop: Run every test but those of secrets-import, of SDKs that npm installs and of real Kubernetes: specification, Talos knowledge, mocks, and the engine against the lab
	go test -timeout 30m ./...
	cd cmd/gitopscheck && go test -ldflags "-s -w" ./...
	cd lab && go test -timeout 30m -parallel 8 ./...
	cd lab/engine && go test -timeout 60m -args -providers=published

.PHONY: bench
bench: tools ## develop: Measure and print the figures that docs/performance.md explains
	go test -run '^$$' -bench . -benchtime 1x ./internal/...
	cd lab && go test -timeout 60m -run '^$$' -bench . -benchtime 1x ./engine

.PHONY: lint
lint: $(BIN)/golangci-lint $(BIN)/actionlint ## develop: Check format, code, scripts, workflows and that every go.mod is tidy
	@for module in $(MODULES) lab/kubernetes; do (cd $$module && go mod tidy -diff) || { echo "$$module/go.mod is not tidy: go mod tidy" >&2; exit 1; }; done
	$(BIN)/golangci-lint run ./...
	cd lab && $(BIN)/golangci-lint run --config ../.golangci.yaml ./...
	@for module in $(HELPERS); do (cd $$module && $(BIN)/golangci-lint run --config $(CURDIR)/.golangci.yaml ./...) || exit 1; done
	@for module in $(EXAMPLES); do (cd $$module && $(BIN)/golangci-lint fmt --diff --config $(CURDIR)/.golangci.yaml ./... && go vet ./...) || exit 1; done
	@command -v shellcheck >/dev/null || { echo 'shellcheck is missing: apt-get install shellcheck' >&2; exit 1; }
	shellcheck $(SHELL_FILES)
	$(BIN)/actionlint

.PHONY: scan
scan: $(BIN)/govulncheck $(BIN)/gitleaks $(BIN)/go-licenses ## develop: Look for known vulnerabilities, for secrets in the files and their history, and for licences that forbid the use
	$(BIN)/govulncheck ./...
	$(BIN)/gitleaks git --no-banner --redact .
	$(BIN)/go-licenses check --ignore talos-proxmox --include_tests=false --disallowed_types=forbidden,restricted ./...

.PHONY: sbom
sbom: $(BIN)/cyclonedx-gomod ## develop: Write the bill of materials of the program to .report/sbom.json
	@mkdir -p .report
	$(BIN)/cyclonedx-gomod mod -json -licenses -output .report/sbom.json .

.PHONY: secrets-import
secrets-import: $(BIN)/pulumi $(BIN)/secretsimport ## day 2: Store the secrets of a SOPS file in STACK: FILE=secrets.enc.yaml, FLAGS='--map path=key'
	@$(BIN)/secretsimport --pulumi $(BIN)/pulumi --stack $(STACK) $(FLAGS) '$(FILE)'

.PHONY: test-secrets
test-secrets: $(BIN)/pulumi ## develop: Run the tests of secrets-import, which build the SOPS library with all its key services
	cd tools/secretsimport && go test ./...

.PHONY: test-typescript
test-typescript: ## develop: Compile the SDK for TypeScript and its example, and run the example with a mocked engine; npm downloads 130 MB
	cd lab && go test -count 1 -v -run TestTypeScript ./sdktest -args -npm

.PHONY: kubeupgrade
kubeupgrade: $(BIN)/kubeupgrade ## day 2: Build what upgrades Kubernetes (kubernetesVersion) into .bin/kubeupgrade: Talos' own library, a few minutes, once; deploy does it by itself

.PHONY: labkube
labkube: $(BIN)/labkube ## develop: Build the lab's etcd, Kubernetes control plane and kubectl into .bin/labkube (some five minutes, once); .bin/kubectl is a part of it

.PHONY: platform-tools
platform-tools: $(FLUX_CONTROLLERS) $(FLUX_OPERATOR) $(CILIUM_OPERATOR) $(CHARTS) ## develop: Build the controllers of Flux, its operator and that of Cilium for the lab's real Kubernetes, and pack the charts that it serves (some fifteen minutes, once)

.PHONY: platform
platform: $(BIN)/labkube platform-tools $(BIN)/platform tools ## develop: Show a platform from nothing: a lab with real Kubernetes, one `up`, and the real controllers of Flux reconciling gitops/clusters/lab from a Git server on loopback
	cd lab && LABKUBE=$(BIN)/labkube go test -count 1 -timeout 30m -v -run 'TestPlatform$$' ./engine

.PHONY: test-platform
test-platform: $(BIN)/labkube platform-tools $(BIN)/platform tools ## develop: Run the tests of the platform: from a bare lab to what Flux reconciles, by its real controllers; ROUNDS=10 kills more runs than one, SEED= repeats them, RUN=Kills runs no more than that
	cd lab/engine && LABKUBE=$(BIN)/labkube go test -count 1 -timeout 90m -v -parallel 3 -run 'TestPlatform$(RUN)' . -args -rounds $(or $(ROUNDS),1) -seed $(or $(SEED),0)

.PHONY: test-kubernetes
test-kubernetes: $(BIN)/labkube $(BIN)/backup $(BIN)/kubeupgrade $(BIN)/stackstatus tools ## develop: Run the tests of labkube and those of the lab on real etcd and Kubernetes
	cd lab/kubernetes && go test ./...
	cd cmd/kubeupgrade && go test ./...
	cd lab && LABKUBE=$(BIN)/labkube go test -count 1 -timeout 60m -p 1 -parallel 3 -run 'TestScenario/real|TestReal' ./machine ./engine

# It takes some two minutes of two cores for each round of each operation.
.PHONY: soak
soak: $(BIN)/labkube $(BIN)/backup $(BIN)/kubeupgrade $(BIN)/stackstatus tools ## develop: Interrupt changes of running clusters at random moments, on real etcd and Kubernetes, and see one more up converge: ROUNDS=10 of each, SEED= repeats one, GAP=60s on a machine with other work, RUN=kills/talos or RUN=faults for some
	cd lab/engine && LABKUBE=$(BIN)/labkube go test -count 1 -v -timeout 24h -parallel 3 -run '^TestSoak$$$(if $(RUN),/$(RUN))' . -args -rounds $(or $(ROUNDS),10) -seed $(or $(SEED),0) $(if $(GAP),-gap $(GAP))

# The pattern `all` would also resolve the imports of files that a newer Go compiles, and this Go's standard library may lack them.
.PHONY: update
update: ## develop: Bring all dependencies to their newest patch versions, but those of lab/kubernetes, which are pinned
	@for module in $(filter-out $(EXAMPLES),$(MODULES)); do (cd $$module && go get -u=patch -t ./... tool && go mod tidy); done
	@$(MAKE) --no-print-directory align

# The lab's own dependencies may raise what it shares with the program, which ships what its tests ran on.
.PHONY: align
align: ## develop: Give the program the versions that the lab has of the modules they share, and the examples those of the program
	@go get $$(awk 'NR == FNR { shared[$$1]; next } $$2 ~ /^v[0-9]/ && $$1 in shared { print $$1 "@" $$2 }' go.mod lab/go.mod)
	@for module in . $(EXAMPLES) $(HELPERS) lab; do (cd $$module && go mod tidy); done

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## develop: Format the Go code
	$(BIN)/golangci-lint fmt ./...
	@for module in lab $(HELPERS) $(EXAMPLES); do (cd $$module && $(BIN)/golangci-lint fmt --config $(CURDIR)/.golangci.yaml ./...) || exit 1; done

.PHONY: schema
schema: ## develop: Generate the schemas of stack files and of the served components, and the references of both
	go run ./cmd/specschema

.PHONY: tools
tools: $(BIN)/lab $(BIN)/talosops $(BIN)/recover $(POLICY) $(BIN)/talosctl $(BIN)/pulumi ## start: Build what is missing into .bin/

.PHONY: stack-tools
stack-tools: plan-tools $(BIN)/kubeupgrade $(BIN)/platform ## deploy: Build what a stack on its own Proxmox needs: tools without the lab and talosctl

.PHONY: plan-tools
plan-tools: $(BIN)/talosops $(BIN)/recover $(POLICY) $(BIN)/planreview $(BIN)/backup $(BIN)/stackstatus $(BIN)/pulumi

.PHONY: clean
clean: ## develop: Remove what was built (.bin/); stops a running lab, keeps its data
	@if [ -x $(BIN)/lab ]; then $(BIN)/lab stop; fi
	rm -rf $(BIN)

$(BIN)/lab: $(GO_FILES)
	@mkdir -p $(BIN)
	cd lab && go build -o $@ ./cmd/lab

$(BIN)/labkube: $(LABKUBE_FILES)
	@mkdir -p $(BIN)
	@echo 'building labkube: etcd and Kubernetes (some five minutes, once)'
	cd lab/kubernetes && go build -ldflags '-s -w' -o $@ .
	@ln -sf labkube $(BIN)/kubectl

# source-controller is a module of its own: it takes a library in an older version than the others do.
$(BIN)/source-controller: MODULE := lab/platform/source
$(BIN)/source-controller: $(wildcard lab/platform/source/go.*)
$(BIN)/kustomize-controller $(BIN)/helm-controller: MODULE := lab/platform
$(BIN)/kustomize-controller $(BIN)/helm-controller: $(wildcard lab/platform/go.*)
$(FLUX_CONTROLLERS):
	@mkdir -p $(BIN)
	@echo 'building $(@F) of Flux (some minutes, once)'
	cd $(MODULE) && go build -trimpath -ldflags '-s -w' -o $@ github.com/fluxcd/$(@F)
	@touch $@

# The operator reads the manifests of Flux' versions from a folder beside it. Its module lacks the pages that it serves, and
# Go embeds nothing into a module's own folder: a copy of it has a page that says so.
$(FLUX_OPERATOR): $(wildcard lab/platform/operator/go.* lab/platform/operator/chart/*.go)
	@mkdir -p $(BIN)
	@echo 'building the operator of Flux (some minutes, once)'
	@cd lab/platform/operator && module=$$(go list -m -f '{{.Dir}}' $(FLUX_OPERATOR_MODULE)) && \
	  version=$$(go list -m -f '{{.Version}}' $(FLUX_OPERATOR_MODULE)) && \
	  rm -rf $@-source && cp -r "$$module" $@-source && chmod -R u+w $@-source && mkdir -p $@-source/web/dist && \
	  echo 'The lab has no pages of the operator.' > $@-source/web/dist/index.html && \
	  cp go.mod $@.mod && cp go.sum $@.sum && go mod edit -replace=$(FLUX_OPERATOR_MODULE)=$@-source $@.mod && \
	  go build -modfile $@.mod -trimpath -ldflags "-s -w -X main.VERSION=$$version" -o $@.new $(FLUX_OPERATOR_MODULE)/cmd/operator && \
	  rm -rf $@-data && mv $@-source/config/data $@-data && go run ./chart $@-source "$${version#v}" $@.tgz && \
	  rm -rf $@-source $@.mod $@.sum && mv $@.new $@

# The name is that of its image.
$(CILIUM_OPERATOR): lab/platform/cilium/go.mod lab/platform/cilium/go.sum
	@mkdir -p $(BIN)
	@echo 'building the operator of Cilium (some minutes, once)'
	cd lab/platform/cilium && go build -trimpath -tags ipam_provider_operator -ldflags '-s -w' -o $@ github.com/cilium/cilium/operator
	@touch $@

# Equal archives of equal sources: neither times nor owners are in them. The definitions of Prometheus' operator are a chart
# of their own, as its community publishes them.
$(CHARTS): $(foreach folder,charts cilium,lab/platform/$(folder)/go.mod lab/platform/$(folder)/go.sum)
	@rm -rf $@ $@.new $(BIN)/gateway-api-crds
	@mkdir -p $@.new/prometheus-operator-crds/crds $(BIN)/gateway-api-crds
	@set -e; cd lab/platform/charts; \
	  source() { go mod download "$$1"; go list -m -f '{{.Dir}}' "$$1"; }; \
	  pack() { tar --create --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
	    --directory "$$1" "$$2" | gzip --no-name > $@.new/$$2.tgz; }; \
	  cilium=$$(cd ../cilium && source github.com/cilium/cilium); \
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

$(BIN)/talosops: $(GO_FILES)
	@mkdir -p $(BIN)
	go build -o $@ ./cmd/talosops

$(BIN)/kubeupgrade: $(HELPER_FILES) $(wildcard cmd/kubeupgrade/*.go cmd/kubeupgrade/go.*)
	@mkdir -p $(BIN)
	@echo 'building kubeupgrade with the upgrade library of Talos (a few minutes, once)'
	cd cmd/kubeupgrade && go build -ldflags '-s -w' -o $@ .

$(BIN)/platform: $(HELPER_FILES) $(wildcard cmd/platform/*.go cmd/platform/go.*)
	@mkdir -p $(BIN)
	@echo 'building platform with the library of Helm (a few minutes, once)'
	cd cmd/platform && go build -ldflags '-s -w' -o $@ .

$(BIN)/gitopscheck: $(GO_FILES) $(wildcard cmd/gitopscheck/*.go cmd/gitopscheck/go.*)
	@mkdir -p $(BIN)
	@echo 'building gitopscheck with the libraries of Flux and of the API server (a minute or two, once)'
	cd cmd/gitopscheck && go build -ldflags '-s -w' -o $@ .

$(BIN)/recover: $(GO_FILES)
	@mkdir -p $(BIN)
	go build -o $@ ./cmd/recover

$(BIN)/backup: $(GO_FILES)
	@mkdir -p $(BIN)
	go build -o $@ ./cmd/backup

$(BIN)/stackstatus: $(GO_FILES)
	@mkdir -p $(BIN)
	go build -o $@ ./cmd/stackstatus

$(BIN)/planreview: $(GO_FILES)
	@mkdir -p $(BIN)
	go build -o $@ ./cmd/planreview

$(BIN)/secretsimport: tools/secretsimport/go.mod tools/secretsimport/main.go
	@mkdir -p $(BIN)
	@echo 'building secretsimport with the SOPS library (a few minutes, once)'
	cd tools/secretsimport && go build -ldflags '-s -w' -o $@ .

$(POLICY): $(GO_FILES)
	@mkdir -p $(BIN)
	go build -o $@ ./policy

$(SERVED): $(GO_FILES) $(wildcard cmd/pulumi-resource-talos-proxmox/*.json)
	@mkdir -p $(BIN)
	go build -o $@ ./cmd/pulumi-resource-talos-proxmox

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

# Tools of the pipeline are their own module: a new one of them does not rebuild the Pulumi CLI.
$(BIN)/actionlint: TOOL := github.com/rhysd/actionlint/cmd/actionlint
$(BIN)/cyclonedx-gomod: TOOL := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
$(BIN)/gitleaks: TOOL := github.com/zricethezav/gitleaks/v8
$(BIN)/go-licenses: TOOL := github.com/google/go-licenses/v2
$(BIN)/govulncheck: TOOL := golang.org/x/vuln/cmd/govulncheck
$(BIN)/actionlint $(BIN)/cyclonedx-gomod $(BIN)/gitleaks $(BIN)/go-licenses $(BIN)/govulncheck: tools/ci/go.mod
	@mkdir -p $(BIN)
	cd tools/ci && go build -ldflags '-s -w' -o $@ $(TOOL)
