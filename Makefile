# The two commands of the README are `make demo` and `make test`. Both need Go, make and git, nothing else.
SHELL := /bin/bash
GO ?= go
# RACE=1 runs the tests with the race detector (needs a C compiler).
RACEFLAG := $(if $(RACE),-race,)
# The linker leaves out a debugger's data, which costs a quarter of its time.
race_env := CGO_ENABLED=1 GOFLAGS=-ldflags=-w
racing := $(if $(RACE),$(race_env),)
# All else is compiled in one way, the control plane and the tools too: what two of them import is compiled once.
# test/kit/compile has the same flags, and says why. Stack traces have their lines all the same.
NOT_INLINED := github.com/aws/... github.com/google/gnostic-models/... github.com/stmcginnis/gofish/... github.com/vmware/govmomi/... k8s.io/api/... k8s.io/client-go/applyconfigurations/... k8s.io/client-go/informers/... k8s.io/client-go/kubernetes/... k8s.io/client-go/listers/... k8s.io/kubernetes/...
export GOFLAGS := $(strip $(GOFLAGS) -trimpath -buildvcs=false -gcflags=all=-dwarf=false $(foreach p,$(NOT_INLINED),'-gcflags=$(p)=-dwarf=false -l'))
export CGO_ENABLED := 0
# What the programs say of themselves. The linker is told: Go finds it out only where there is a repository.
VERSION ?= $(or $(shell git describe --tags --always --dirty 2>/dev/null),dev)

# The longest first: most tests wait for much of their time, and so three packages run at a time. make test leaves those
# to make check that need real nodes or play through manifests and pages, and most of the stories. The simulation and
# make interop run in their own way.
packages = $$($(GO) list ./test/integration ./test/deploy ./... | grep -v -e '/test/sim$$' -e '/test/interop$$' $(if $(ALL),,$(later)))
later = -e '/test/deploy' -e '/test/e2e' -e '/test/nodes' -e '/test/csi' -e '/test/walkthrough'
main_stories = $(root_stories)|$(user_stories)
# make fresh SHARE=1 plays one part as root, the other as an ordinary user. (They come to make as variables of the
# environment, where a dollar would begin a variable.)
root_stories = ^Test(PowerCut|Partition.*|ReturnInTheMiddle|LostZone)\b
user_stories = ^Test(ManualMarks|NooBaa|LonghornNodeDown|UpgradeInTheMiddle)\b
STORIES ?= $(if $(ALL),,$(main_stories))
# One that takes all of a small machine: the others' Leases would be lost beside it.
large_story = ^TestLargePodsEndNoController$$

# gotestsum runs tests, and test/verdict judges what gotestsum cannot: $(call tests,NAME,SKIPS). Tests and the control
# plane beside them live for minutes, and this machine has memory: they collect garbage less often.
tests = GOGC=$(test_gc) "$(CURDIR)/bin/gotestsum" --format pkgname-and-test-fails --format-icons text \
  --jsonfile "$(CURDIR)/out/$(1).json" --post-run-command '"$(CURDIR)/bin/verdict" -skips "$(2)"'
test_gc = 400
large: test_gc = 100 # its API server holds 500 pods of 1.5 MB
# make lint has vet's checks. Here they would read all packages that the tests import once more, for each kind of build.
no_vet = -vet=off
# Runs each failed test once more, alone. Only a story may pass that way.
again = --rerun-fails=1 --rerun-fails-max-failures 3 --rerun-fails-report out/$@.flaky

.PHONY: all builder compiled imported fresh race played chart large demo walkthrough gotestsum test check matrix alerts interop notes e2e sim explore mutants referee lint build controlplane runtimes fuzz image image-test release bench clean

all: build

# What builds all programs with a report of progress: forcefence and demo into bin/, others into the user's cache.
builder:
	@[ -e bin/controlplane ] || echo 'compiling what builds the programs, first: some seconds'
	@$(compiler) $(GO) build -o bin/controlplane ./test/cluster/cmd/build
# Compilers that collect less garbage take a fifth less time (test/cluster/binaries has the same).
compiler = GOGC=$(or $(GOGC),1000) GOMEMLIMIT=$(or $(GOMEMLIMIT),3GiB)
# The names of the program as a plugin of kubectl.
plugin = ln -sf forcefence bin/kubectl-forcefence && install -m 755 cmd/forcefence/kubectl_complete-forcefence bin/

build: builder ## the controller, in bin/, and its names as a plugin of kubectl: with bin/ in the PATH, kubectl forcefence
	@VERSION="$(VERSION)" bin/controlplane forcefence
	@$(plugin)

controlplane: builder ## etcd, kube-apiserver, kube-controller-manager and scheduler from their Go modules, kept in the user's cache; PROGRAMS="helm kubelet runc ..." builds others; KUBERNETES=1.35 that version, CONTROLPLANE=folder takes programs that are there
	@bin/controlplane $(PROGRAMS)

demo: builder ## a machine loses its power and its workloads come up elsewhere; KEEP=1 stays in the foreground, POWER=libvirt takes QEMU guests, POWER=ipmi QEMUs behind IPMI; INTEROP=nhc lets the real NodeHealthCheck ask for power-offs
	@VERSION="$(VERSION)" bin/controlplane forcefence demo etcd kube-apiserver kube-controller-manager kube-scheduler $(if $(INTEROP),helm kubectl $(INTEROP),)
	@$(plugin)
	@# not go run: a signal would end that and leave the demo behind
	@bin/demo -forcefence bin/forcefence -out out/demo $(if $(POWER),-power $(POWER),) $(if $(INTEROP),-interop $(INTEROP),) $(if $(KEEP),-keep,) $(DEMOFLAGS)

walkthrough: controlplane image ## types all that an operator types, from install to uninstall, on four real nodes with this image, and writes docs/reference/walkthrough.md and its pictures; Linux, as root, with chromium
	FORCEFENCE_REQUIRE_NODES=1 FORCEFENCE_REQUIRE_CHROMIUM=1 FORCEFENCE_IMAGE="$(CURDIR)/out/forcefence.oci.tar" $(GO) test -count=1 -timeout 20m -run '^TestWalkthrough$$' ./test/walkthrough

gotestsum:
	@$(compiler) $(GO) build -C test/gotestsum -o ../../bin/gotestsum gotest.tools/gotestsum
	@$(compiler) $(GO) build -o bin/verdict ./test/verdict

# Compiles all tests before one runs: some have deadlines, which bear three packages on two cores.
compiled:
	@$(compiler) $(racing) $(GO) list $(RACEFLAG) -test -export $(call packages) ./test/sim >/dev/null

# Compiles what the control plane, kubectl and Helm import. A program that is there keeps none of it in Go's build
# cache, which drops what five days did not use. A bare root begins without the programs.
imported:
	@$(compiler) $(GO) -C test/controlplane list -export -deps . k8s.io/kubernetes/cmd/kubectl >/dev/null
	@$(compiler) $(GO) -C test/helm list -export -deps helm.sh/helm/v4/cmd/helm >/dev/null

# Without the race detector for the simulation: its histories start no goroutines and share nothing, and ten times as many fit.
test: controlplane gotestsum compiled ## unit tests, simulation, and the main stories on the real control plane; ALL=1 all tests, STORIES=regexp others; RACE=1 with the race detector; SKIPS=- fails where a test is skipped
	@bin/controlplane kubectl helm
	@STORIES='$(STORIES)' $(racing) $(call tests,test,$(SKIPS)) $(again) --packages "$(call packages)" -- $(no_vet) $(RACEFLAG) -p 3 -timeout 75m $(TESTFLAGS)
	@$(call tests,sim,$(SKIPS)) --packages ./test/sim -- $(no_vet) -p 1 -timeout 75m $(TESTFLAGS) $(if $(SEEDS),-args -sim.seeds=$(SEEDS),)
	@cat out/test.json out/sim.json | bin/gotestsum tool slowest --num 20

# With the race detector: packages that start goroutines, those that make test leaves out, and those whose tests need
# more than a bare machine has. Of the stories, those that make test leaves out.
raced = $$($(GO) list ./test/integration $$(git grep -lE '^\s*go (func|[a-zA-Z_.]+\()|\.Go\(' -- '*.go' | \
  grep -vE '^(\.ci|test/(sim|interop|integration|deploy|controlplane|containerd|helm|alerts|browser|gotestsum|csi/attacher))/' | \
  sed 's,/[^/]*$$,,; s,^,./,' | sort -u) $(bare))
bare = ./cmd/forcefence-node ./kubelet-admit/install ./test/ipmisim
race: controlplane gotestsum ## with the race detector: what starts goroutines, the stories that make test leaves out, and the tests that need more than Go, make and git
	@bin/controlplane kubectl helm
	@$(race_env) $(compiler) $(GO) list -race -test -export $(raced) >/dev/null # compile all first, as for test
	@STORIES='-$(main_stories)|$(large_story)' $(race_env) $(call tests,race,) $(again) --packages "$(raced)" -- $(no_vet) -race -p 3 -timeout 75m $(TESTFLAGS)

played: gotestsum ## judges what the last make fresh and make race skipped together; SKIPS as for test
	@cat out/fresh/*.json out/race.json >out/played.json
	@GOTESTSUM_JSONFILE=out/played.json bin/verdict -skips '$(SKIPS)'

chart: controlplane gotestsum ## the Helm chart and its policies, on a real API server
	@bin/controlplane kubectl helm
	$(call tests,chart,$(SKIPS)) $(again) --packages ./test/deploy -- $(no_vet) -count=1 -timeout 40m $(TESTFLAGS)

large: controlplane gotestsum ## the controller beside 500 pods of 1.5 MB, within its own pod's memory limit
	@bin/controlplane kubectl
	STORIES='$(large_story)' $(call tests,large,$(SKIPS)) $(again) --packages ./test/integration -- -count=1 -timeout 30m

fresh: $(if $(COLD),,build controlplane compiled imported) ## README's two commands in a bare Debian root, as root and as an ordinary user; SHARE=1: each of them plays a half of the stories, and root the simulation; COLD=1 with an empty build cache, RECORD=1 writes the minutes for README; Linux, as root, with mmdebstrap
	@$(compiler) $(GO) build -o bin/fresh ./test/fresh
	bin/fresh -out out/fresh $(if $(COLD),-cold,) $(if $(SHARE),-env 'root:STORIES=$(root_stories)' -env 'user:STORIES=$(user_stories)' -env user:SEEDS=500,) $(if $(RECORD),-record test/fresh/minutes.json,) $(FRESHFLAGS)

check: ## all that a change must pass; as root it installs what is missing
	.ci/run

matrix: builder ## the stories and the admission policies on the four newest minor versions of Kubernetes; VERSIONS="1.34 1.35" these
	@for v in $(or $(VERSIONS),1.34 1.35 1.36 1.37); do \
	  export KUBERNETES=$${v%$(newest)}; echo "== Kubernetes $$v"; \
	  bin/controlplane && bin/controlplane kubectl helm && \
	  STORIES='$(STORIES)' $(GO) test -count=1 -timeout 60m ./test/integration && \
	  $(GO) test -count=1 -timeout 30m -run '^Test(Policies|Fence)$$' ./test/deploy || exit 1; done
# The version that test/controlplane's own go.mod has.
newest = $(shell sed -n 's,.*k8s.io/kubernetes v\([0-9]*\.[0-9]*\).*,\1,p' test/controlplane/go.mod)

alerts: ## the alerts on histories, and the queries of alerts and dashboard, by Prometheus' own library
	cd test/alerts && $(GO) vet ./... && $(GO) test -count=1 -timeout 10m ./... # what it reads is outside of its module, where Go looks for no changes

interop: controlplane gotestsum ## forcefence beside its neighbours' own controllers on the real control plane; RUN=regexp of tests
	@bin/controlplane helm kubectl $(if $(RUN),,nhc capi virt-controller harvester jobset kueue csi-addons csi-driver karpenter cnpg)
	FORCEFENCE_INTEROP=1 $(racing) $(call tests,interop,$(SKIPS)) $(again) --packages ./test/interop -- -count=1 -timeout 40m $(RACEFLAG) $(if $(RUN),-run '$(RUN)',)

notes: ## what CHANGELOG.md says of a version: VERSION=1.2.3
	@$(GO) run ./test/changelog "$(VERSION)"

e2e: controlplane gotestsum ## whole stories on real nodes (containerd, runc, CNI, kubelet, CSI) on this machine; Linux, as root; RUN=regexp of scenarios
	FORCEFENCE_E2E=1 FORCEFENCE_REQUIRE_NODES=1 $(call tests,e2e,-) --format standard-verbose $(again) \
	  --packages ./test/e2e -- -count=1 -timeout 40m -run 'TestE2E/nodes/($(or $(RUN),.))'

runtimes: builder gotestsum ## starts containerd 1.7.24 to 2.4 and CRI-O beside the hook, installs it for them, and boots their hosts; builds six versions first; Linux, as root, with conmon and runc
	@bin/controlplane containerd containerd-shim-runc-v2 ctr crio $(foreach v,1.7.24 1.7.26 2.0.5 2.1.4 2.2.1,containerd-$(v) containerd-$(v)-shim)
	FORCEFENCE_ALL_RUNTIMES=1 FORCEFENCE_REQUIRE_NODES=1 $(call tests,runtimes,-) --format standard-verbose --packages ./kubelet-admit/install -- -count=1 -timeout 20m -run '^TestReal'

sim: ## the simulation alone: SEEDS histories (1,000,000) from the seed FROM on, and SEARCHED (100,000) that look for new orders of decisions; prints cluster-years per day
	$(GO) test -count=1 -timeout 0 -v -run '^(TestHistories|TestSearch)$$' $(TESTFLAGS) ./test/sim -sim.seeds=$(or $(SEEDS),1000000) -sim.from=$(or $(FROM),0) -sim.searched=$(or $(SEARCHED),100000)

explore: ## every history of a small cluster with one fault, and those with two, nearest first, for 10 minutes
	$(GO) test -count=1 -timeout 30m -v -run '^(TestExplore|TestCounterExample)$$' $(TESTFLAGS) ./test/sim -sim.explore=10m

mutants: controlplane ## changes the source in one place at a time, each of which a test must notice: without SEED those of test/mutants/protocol.txt; SEED=n draws 300 generated ones; MUTANTSFLAGS="-only REGEXP -count N -time 10m"
	$(GO) run ./test/mutants $(if $(SEED),-seed $(SEED),) $(MUTANTSFLAGS)

bench: build controlplane ## measures what is promised, in out/bench; RUN=name runs one, RUN=peers the comparison with Kubernetes and other projects (70 minutes; needs fence_redfish), RUN=p99 ROUNDS=1000 the slowest of real fences (2 hours), as root with libvirt, QEMU and openipmi
	@$(GO) build -o bin/bench ./test/bench # not go run: a signal would end that and leave the bench behind
	bin/bench -forcefence bin/forcefence -out out/bench $(if $(RUN),-run $(RUN),) $(if $(ROUNDS),-rounds $(ROUNDS),) $(BENCHFLAGS)

referee: build controlplane ## judges bin/forcefence from outside, with faults between it, the API server and the devices; RUN=regexp of rows, SEED=n, BOUND=5m the short part, REFEREEFLAGS='-command ...' another binary; OF=system plays what docs/reference/measurements.md compares: forcefence, nhc-far, nhc-far-delete, kube-fencing, kube-fencing-taint, kueue, oos-by-hand or stock, ROUNDS=n times
	@$(GO) build -o bin/referee ./test/referee # not go run: a signal would end that and leave the cluster behind
	bin/referee -out out/referee $(if $(OF),-of $(OF),) $(if $(ROUNDS),-rounds $(ROUNDS),) $(if $(RUN),-run '$(RUN)',) $(if $(SEED),-seed $(SEED),) $(if $(BOUND),-bound $(BOUND),) $(REFEREEFLAGS)

lint: ## formatting, and golangci-lint at its pinned version, which has go vet's checks
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'run gofmt -w on these'; exit 1; }
	cd .ci/tools && $(GO) build -o ../../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	bin/golangci-lint run ./...
	bin/golangci-lint run --enable-only depguard,forbidigo --issues-exit-code 0 --show-stats=false --output.text.print-issued-lines=false \
	  --output.text.colors=false ./test/walls/testdata/bad/... | diff -u test/walls/testdata/bad.txt - # a rule that finds less than it did is none

fuzz: ## every fuzz test for FUZZTIME each
	@for p in $$($(GO) list ./...); do for f in $$($(GO) test -list '^Fuzz' $$p | grep ^Fuzz); do \
	  $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(or $(FUZZTIME),10s) $$p || exit 1; done; done

image: ## the image of both programs for linux/amd64 and linux/arm64, in out/forcefence.oci.tar, and its SBOMs; PUSH=registry.example.net/forcefence:v1 pushes it, too; AGENTS=1 makes one with fence agents as well, from Debian's packages (AGENTS_SOURCES=FILE: of these apt sources)
	$(IMAGE) -version "$(VERSION)" $(if $(PUSH),-push "$(PUSH)",)

release: ## all files of a release in out/release, from the tag of HEAD (CONTRIBUTING.md); VERSION=v1.2.3 names it, REHEARSAL=1 needs no tag, SIGN_KEY=FILE signs, PUSH=registry.example.net/forcefence pushes, AGENTS=1 as above
	$(IMAGE) -release -out out/release -version "$(if $(filter-out file,$(origin VERSION)),$(VERSION),)" \
	  $(if $(REHEARSAL),-rehearsal,) $(if $(SIGN_KEY),-key "$(abspath $(SIGN_KEY))",) $(if $(PUSH),-push "$(PUSH)",)

# With its paths: go-licenses takes all for Go's own library where the program does not know GOROOT.
IMAGE = GOFLAGS= $(GO) build -C .ci/image -o ../../bin/image . && bin/image $(if $(AGENTS),-agents $(if $(AGENTS_SOURCES),-agents-sources "$(abspath $(AGENTS_SOURCES))",),)

image-test: controlplane gotestsum ## makes the images, one of them twice, signs and verifies them as a release, and runs the one with fence agents as the manifests do, as root, with Debian's mmdebstrap, podman and openipmi
	$(MAKE) image AGENTS=1 VERSION=v0.0.0-test
	@bin/controlplane helm
	cd .ci/image && FORCEFENCE_IMAGE="$(CURDIR)/out/forcefence.oci.tar" FORCEFENCE_IMAGE_AGENTS="$(CURDIR)/out/forcefence-agents.oci.tar" \
	  GOFLAGS= $(call tests,image,$(SKIPS)) --packages ./... -- -count=1 -timeout 30m
	FORCEFENCE_AGENTS_IMAGE="$(CURDIR)/out/forcefence-agents.oci.tar" FORCEFENCE_REQUIRE_IPMI_SIM=1 \
	  $(call tests,agents,$(SKIPS)) --packages ./test/deploy -- $(no_vet) -count=1 -run '^TestAgents$$'

clean:
	rm -rf bin out
