package engine_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Flags of TestSoak and TestPlatformKills; without rounds, the soak is skipped.
var (
	rounds = flag.Int("rounds", 0, "how often TestSoak interrupts each operation, and TestPlatformKills a first run")
	gap    = flag.Duration("gap", longestGap, "how long the API may be unavailable in TestSoak; more on a busy machine")
	seed   = flag.Uint64("seed", 0, "seed of the random moments; 0 = the time")
)

// longestGap is how long a user with three control planes may wait for the API while a machine is changed.
const longestGap = 15 * time.Second

// operation is a change of a running cluster, or several that lead back to the beginning.
type operation struct {
	name    string
	cluster cluster
	version string // of Talos
	// laps is how often a cluster can go through the steps, all of which are the same work then; 0 = for ever.
	laps int
	// prepare prepares a new cluster.
	prepare func(b *testbed)
	// initial is the stack file of the new cluster; steps change it one after the other.
	initial func(b *testbed) string
	steps   []step
	// extraFaults are faults of this operation only.
	extraFaults []disruption
	// ownCommands is set if the user runs other commands than pulumi up.
	ownCommands bool
}

// step is one change of a running cluster, by one run.
type step struct {
	name string
	file func(b *testbed) string
	// before prepares the step, and check checks its result.
	before, check func(b *testbed)
	// run is what the user runs, and repeats after an interruption; nil = pulumi up --refresh with these options.
	run  func(b *testbed) error
	opts func(b *testbed) []optup.Option
	// voters is the lowest number of voters at any time; 0 = a majority of three. unwatched is a step without etcd.
	voters    int
	unwatched bool
	// apiMayBeAway is set if the API may be unavailable for longer than with three control planes.
	apiMayBeAway bool
	// controlPlanes and workers are how many there are afterwards.
	controlPlanes, workers int
}

// testbed is a cluster under test.
type testbed struct {
	*testing.T

	w      *world
	s      stack
	k      workload
	drill  *drill
	host   *languageHost
	random *rand.Rand

	snapshot    string
	talosconfig string
	etcdTLS     *tls.Config
}

// durations are how long each step takes without disruptions.
type durations map[string]time.Duration

// TestSoak interrupts changes of clusters on real etcd and Kubernetes at random moments and in every way; one more run
// has to converge: `make test-engine RUN=TestSoak KUBERNETES=real ROUNDS=10`.
func TestSoak(t *testing.T) {
	if *rounds == 0 {
		t.Skip("it takes hours: make test-engine RUN=TestSoak KUBERNETES=real ROUNDS=10 runs it")
	}

	t.Parallel()

	begun := *seed
	if begun == 0 {
		begun = uint64(time.Now().UnixNano()) //nolint:gosec // any number will do
	}

	t.Logf("the random moments follow from -seed %d", begun)

	for _, o := range interruptedOperations() {
		for family, disruptions := range map[string][]disruption{"kills": killDisruptions(o), "faults": faultDisruptions(o)} {
			if len(disruptions) == 0 {
				continue
			}

			t.Run(family+"/"+o.name, func(t *testing.T) {
				t.Parallel()

				usual, clusters := durations{}, 1
				random := rand.New(rand.NewPCG(begun, uint64(len(family+o.name)))) //nolint:gosec // moments, no secrets
				laps := *rounds

				if o.laps > 0 {
					laps, clusters = o.laps, (*rounds+len(o.steps)*o.laps-1)/(len(o.steps)*o.laps)
				}

				plan := schedule(random, disruptions, clusters*laps*len(o.steps))

				for n := range clusters {
					t.Run(fmt.Sprint("cluster ", n+1), func(t *testing.T) {
						o.soak(t, usual, random, plan[n*laps*len(o.steps):][:laps*len(o.steps)])
					})
				}
			})
		}
	}
}

// scheduledDisruption is a disruption and its moment, as a fraction of the step's duration.
type scheduledDisruption struct {
	disruption

	at float64
}

// schedule spreads disruptions over a whole step: each happens at a random moment of its own share of the time.
func schedule(random *rand.Rand, disruptions []disruption, count int) []scheduledDisruption {
	plan := make([]scheduledDisruption, count)

	for i, share := range random.Perm(count) {
		plan[i] = scheduledDisruption{disruptions[i%len(disruptions)], (float64(share) + random.Float64()) / float64(count)}
	}

	random.Shuffle(count, func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })

	return plan
}

// soak takes one cluster through its steps, the first time uninterrupted, then interrupted.
func (o operation) soak(t *testing.T, usual durations, random *rand.Rand, plan []scheduledDisruption) {
	t.Helper()

	b := &testbed{T: t, w: realWorld(t), random: random}
	b.w.options.NeverKilled = false
	b.s = stack{Network: b.w.network, Version: o.version, Clusters: []cluster{o.cluster}}
	b.drill, b.host = newDrill(t, b.w), b.w.newLanguageHost()
	b.w.up(o.initial(b))
	b.k = newWorkload(t, b.w)

	o.prepare(b)
	b.openEtcd()

	for lap := 0; o.laps == 0 || lap < o.laps; lap++ {
		for _, s := range o.steps {
			name := s.name
			if o.laps > 0 { // each step is the same work
				name = o.name
			}

			if usual[name] == 0 {
				usual[name] = b.runUninterrupted(s)

				continue
			}

			if len(plan) == 0 {
				return
			}

			b.runInterrupted(s, plan[0], usual[name])
			plan = plan[1:]
		}
	}
}

// runUninterrupted runs a step, and returns how long it took.
func (b *testbed) runUninterrupted(s step) time.Duration {
	b.Helper()

	if s.before != nil {
		s.before(b)
	}

	users, votes := b.watch(s)
	began, before := time.Now(), b.w.requests()
	require.NoError(b, s.start(b), b.lastOutput())

	lasted, after := time.Since(began), b.w.requests()
	if votes != nil {
		after.talos -= float64(votes.requests.Load())
	}

	gap := b.stopWatching(s, users, votes, true)
	b.requireConverged(s)
	b.Logf("%s: took %s uninterrupted, with %.0f requests to Proxmox and %.0f to Talos; %s", s.name, lasted.Round(time.Second),
		after.proxmox-before.proxmox, after.talos-before.talos, gap)

	return lasted
}

// runInterrupted disrupts a step, runs it once more, and checks the outcome.
func (b *testbed) runInterrupted(s step, d scheduledDisruption, usual time.Duration) {
	b.Helper()

	if s.before != nil {
		s.before(b)
	}

	users, votes := b.watch(s)
	moment := time.Duration(d.at * float64(usual))

	ctx, over := context.WithCancel(b.Context())
	injected := make(chan string, 1)

	resetHost := func() {}
	if d.killsProgram {
		resetHost = b.host.use()
	}

	go func() {
		what := ""

		defer func() { injected <- what }() // even if the disruption fails the test

		select {
		case <-time.After(moment):
			what = d.inject(ctx, b)
		case <-ctx.Done():
		}
	}()

	began, before := time.Now(), len(b.w.output())
	err := s.start(b)

	over()

	what, ended := <-injected, time.Since(began)

	resetHost()

	line := fmt.Sprintf("%s: %s at %s of %s", s.name, cmp.Or(what, d.name+" came too late"),
		moment.Round(100*time.Millisecond), usual.Round(time.Second))
	b.Logf("%s: the run ended after %s: %s", line, ended.Round(time.Second), b.outcome(err, b.w.output()[before:]))

	if d.clear != nil {
		d.clear(b)
	}

	if d.killsEngine && what != "" && s.run == nil {
		require.Error(b, err, "the run succeeded although its engine was killed")
		b.w.forgetRun()
		b.w.recover()
	}

	began = time.Now()
	err = s.start(b)
	require.NoError(b, err, "%s: one more run does not converge: %s", line, b.lastOutput())

	again := time.Since(began)

	gap := b.stopWatching(s, users, votes, !d.losesPower)
	b.requireConverged(s)
	b.Logf("%s: one more took %s; %s", line, again.Round(time.Second), gap)
}

// start runs what the user runs.
func (s step) start(b *testbed) error {
	if s.run != nil {
		return s.run(b)
	}

	opts := []optup.Option{optup.Refresh()}
	if s.opts != nil {
		opts = append(opts, s.opts(b)...)
	}

	_, err := b.w.tryUp(b.Context(), s.file(b), opts...)

	return err
}

// outcome describes how a run ended: its errors, or the end of its output.
func (b *testbed) outcome(err error, output string) string {
	if err == nil {
		return "well"
	}

	_, diagnostics, found := strings.Cut(output, "Diagnostics:")
	if !found {
		return strings.Join(strings.Fields(output[max(0, len(output)-300):]), " ")
	}

	diagnostics, _, _ = strings.Cut(diagnostics, "\nOutputs:")
	lines := slices.DeleteFunc(strings.Split(diagnostics, "\n"), func(line string) bool {
		return strings.TrimSpace(line) == "" || strings.Contains(line, "warning: ")
	})

	return "\n" + strings.Join(lines, "\n")
}

// lastOutput returns the end of the output.
func (b *testbed) lastOutput() string {
	const most = 5000

	output := b.w.output()

	return output[max(0, len(output)-most):]
}

// watch starts an API probe and an etcd watch.
func (b *testbed) watch(s step) (*apiProbe, *etcdWatch) {
	b.Helper()

	if s.unwatched {
		return nil, nil
	}

	var addresses []string
	for n := range max(b.s.Clusters[0].ControlPlanes, s.controlPlanes) {
		addresses = append(addresses, fmt.Sprintf("%s.1.%d", b.w.network, b.s.Clusters[0].FirstAddress+n))
	}

	return b.w.probeAPI(b.T), b.w.watchEtcd(addresses)
}

// stopWatching ends them, and checks that no write was lost, that there were always enough voters and, if all machines
// had power all the time, that the API was never unavailable for long.
func (b *testbed) stopWatching(s step, users *apiProbe, votes *etcdWatch, powered bool) string {
	b.Helper()

	if s.unwatched {
		return "unwatched"
	}

	users.finish()
	assert.Empty(b, users.lostWrites)

	if powered && !s.apiMayBeAway {
		assert.Less(b, users.gap, *gap, "the API was unavailable")
	}

	return fmt.Sprintf("the API unavailable for %s at most over %d writes; %s", users.gap.Round(100*time.Millisecond),
		users.writes, votes.report(cmp.Or(s.voters, majority(3)), powered))
}

// requireConverged checks that a cluster is as requested, healthy and in use, and that nothing is left to do.
func (b *testbed) requireConverged(s step) {
	b.Helper()

	c := &b.s.Clusters[0]
	c.ControlPlanes, c.Workers = s.controlPlanes, s.workers

	var names []string

	for _, n := range b.w.plan(b.s).Clusters[0].Nodes() {
		names = append(names, n.Name)
	}

	var machines []string
	for name := range b.w.machines() {
		machines = append(machines, name)
	}

	require.ElementsMatch(b, names, machines)
	b.k.eventually(func() bool { return b.k.readyNodes() == len(names) }, "all nodes take pods")
	assert.Empty(b, b.k.cordonedNodes())
	b.w.requireRunning(len(names))
	b.w.requireMembers(c.ControlPlanes)
	b.w.requireNodes(names...)
	b.w.requireHealth(b.T)

	if s.check != nil {
		s.check(b)
	}

	b.w.up(s.file(b), optup.Refresh(), optup.ExpectNoChanges())
	assert.Empty(b, b.w.plugins(), "plugins still run")

	assert.Empty(b, b.w.processes("talosops"), "talosops still runs")
}
