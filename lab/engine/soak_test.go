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

// How often the soak breaks each operation off, and how many first runs of a platform are killed; what random moments
// follow from. No rounds = the soak is skipped, no seed = one by the clock.
var (
	rounds = flag.Int("rounds", 0, "how often TestSoak breaks each operation off, and TestPlatformKills a first run")
	gap    = flag.Duration("gap", longestGap, "how long the API may be away in TestSoak; more on a machine with other work")
	seed   = flag.Uint64("seed", 0, "what random moments follow from; 0 = the time")
)

// longestGap is how long a user with three control planes may wait for the API while a machine is changed.
const longestGap = 15 * time.Second

// operation is a change of a cluster that runs, or several that lead back to where they begin.
type operation struct {
	name    string
	cluster cluster
	version string // of Talos
	// laps is how often a cluster can go through the steps, which are the same work then; 0 = for ever.
	laps int
	// begin prepares a cluster that was just made.
	begin func(b *bed)
	// first is the stack file that the cluster is made by, and steps are what becomes of it, one after the other.
	first func(b *bed) string
	steps []step
	// more are faults of its own.
	more []breakage
	// commands says that the user runs other commands than pulumi up.
	commands bool
}

// step is one change of a cluster that runs, by one run.
type step struct {
	name string
	file func(b *bed) string
	// before prepares the step, and check judges its end.
	before, check func(b *bed)
	// run is what the user runs, the same once more after it was interrupted; nil = pulumi up --refresh with these.
	run  func(b *bed) error
	opts func(b *bed) []optup.Option
	// voters is how many there have to be all the time; 0 = a majority of three. unwatched is a step without etcd.
	voters    int
	unwatched bool
	// away says that the API may be away for longer than with three control planes.
	away bool
	// controlPlanes and workers are how many there are afterwards.
	controlPlanes, workers int
}

// bed is a cluster that is soaked.
type bed struct {
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

// took is how long each step takes when nothing happens.
type took map[string]time.Duration

// TestSoak breaks changes of clusters on real etcd and Kubernetes off, at random moments and in each way there is, and
// has one more run bring what was asked for: `make test-engine RUN=TestSoak KUBERNETES=real ROUNDS=10`.
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

	for _, o := range operations() {
		for family, breakages := range map[string][]breakage{"kills": kills(o), "faults": faults(o)} {
			if len(breakages) == 0 {
				continue
			}

			t.Run(family+"/"+o.name, func(t *testing.T) {
				t.Parallel()

				known, clusters := took{}, 1
				random := rand.New(rand.NewPCG(begun, uint64(len(family+o.name)))) //nolint:gosec // moments, no secrets
				laps := *rounds

				if o.laps > 0 {
					laps, clusters = o.laps, (*rounds+len(o.steps)*o.laps-1)/(len(o.steps)*o.laps)
				}

				plan := strikes(random, breakages, clusters*laps*len(o.steps))

				for n := range clusters {
					t.Run(fmt.Sprint("cluster ", n+1), func(t *testing.T) {
						o.soak(t, known, random, plan[n*laps*len(o.steps):][:laps*len(o.steps)])
					})
				}
			})
		}
	}
}

// strike is a breakage and when it happens, as a part of the time that the step takes.
type strike struct {
	breakage

	at float64
}

// strikes spreads breakages over the whole of a step: each is at a random moment of its own share of the time.
func strikes(random *rand.Rand, breakages []breakage, count int) []strike {
	plan := make([]strike, count)

	for i, share := range random.Perm(count) {
		plan[i] = strike{breakages[i%len(breakages)], (float64(share) + random.Float64()) / float64(count)}
	}

	random.Shuffle(count, func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })

	return plan
}

// soak takes one cluster through its steps, the first time as they are, then interrupted.
func (o operation) soak(t *testing.T, known took, random *rand.Rand, plan []strike) {
	t.Helper()

	b := &bed{T: t, w: realWorld(t), random: random}
	b.s = stack{Network: b.w.network, Version: o.version, Clusters: []cluster{o.cluster}}
	b.drill, b.host = newDrill(t, b.w), b.w.languageHost()
	b.w.up(o.first(b))
	b.k = workloadOn(t, b.w)

	o.begin(b)
	b.openEtcd()

	for lap := 0; o.laps == 0 || lap < o.laps; lap++ {
		for _, s := range o.steps {
			name := s.name
			if o.laps > 0 { // each step is the same work
				name = o.name
			}

			if known[name] == 0 {
				known[name] = b.plain(s)

				continue
			}

			if len(plan) == 0 {
				return
			}

			b.broken(s, plan[0], known[name])
			plan = plan[1:]
		}
	}
}

// plain runs a step as it is, and returns how long it took.
func (b *bed) plain(s step) time.Duration {
	b.Helper()

	if s.before != nil {
		s.before(b)
	}

	users, votes := b.watch(s)
	began, before := time.Now(), b.w.requests()
	require.NoError(b, s.start(b), b.last())

	lasted, after := time.Since(began), b.w.requests()
	if votes != nil {
		after.talos -= float64(votes.asked.Load())
	}

	gap := b.unwatched(s, users, votes, true)
	b.judge(s)
	b.Logf("%s: took %s as it is, with %.0f requests to Proxmox and %.0f to Talos; %s", s.name, lasted.Round(time.Second),
		after.proxmox-before.proxmox, after.talos-before.talos, gap)

	return lasted
}

// broken breaks a step off, has it run once more, and judges the outcome.
func (b *bed) broken(s step, hit strike, lasts time.Duration) {
	b.Helper()

	if s.before != nil {
		s.before(b)
	}

	users, votes := b.watch(s)
	moment := time.Duration(hit.at * float64(lasts))

	ctx, over := context.WithCancel(b.Context())
	struck := make(chan string, 1)

	unused := func() {}
	if hit.program {
		unused = b.host.use()
	}

	go func() {
		what := ""

		defer func() { struck <- what }() // a strike that fails the test ends this

		select {
		case <-time.After(moment):
			what = hit.strike(ctx, b)
		case <-ctx.Done():
		}
	}()

	began, before := time.Now(), len(b.w.said())
	err := s.start(b)

	over()

	what, ended := <-struck, time.Since(began)

	unused()

	line := fmt.Sprintf("%s: %s at %s of %s", s.name, cmp.Or(what, hit.name+" came too late"),
		moment.Round(100*time.Millisecond), lasts.Round(time.Second))
	b.Logf("%s: the run ended after %s: %s", line, ended.Round(time.Second), b.outcome(err, b.w.said()[before:]))

	if hit.end != nil {
		hit.end(b)
	}

	if hit.engine && what != "" && s.run == nil {
		require.Error(b, err, "the run continues although its engine was killed")
		b.w.forgetRun()
		b.w.recover()
	}

	began = time.Now()
	err = s.start(b)
	require.NoError(b, err, "%s: one more run does not converge: %s", line, b.last())

	again := time.Since(began)

	gap := b.unwatched(s, users, votes, !hit.powerless)
	b.judge(s)
	b.Logf("%s: one more took %s; %s", line, again.Round(time.Second), gap)
}

// start is what the user runs.
func (s step) start(b *bed) error {
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

// outcome is how a run ended, by the errors that it said, or its last words.
func (b *bed) outcome(err error, said string) string {
	if err == nil {
		return "well"
	}

	_, diagnostics, found := strings.Cut(said, "Diagnostics:")
	if !found {
		return strings.Join(strings.Fields(said[max(0, len(said)-300):]), " ")
	}

	diagnostics, _, _ = strings.Cut(diagnostics, "\nOutputs:")
	lines := slices.DeleteFunc(strings.Split(diagnostics, "\n"), func(line string) bool {
		return strings.TrimSpace(line) == "" || strings.Contains(line, "warning: ")
	})

	return "\n" + strings.Join(lines, "\n")
}

// last is what was said last.
func (b *bed) last() string {
	const most = 5000

	said := b.w.said()

	return said[max(0, len(said)-most):]
}

// watch has users and a census look on.
func (b *bed) watch(s step) (*patrol, *census) {
	b.Helper()

	if s.unwatched {
		return nil, nil
	}

	var addresses []string
	for n := range max(b.s.Clusters[0].ControlPlanes, s.controlPlanes) {
		addresses = append(addresses, fmt.Sprintf("%s.1.%d", b.w.network, b.s.Clusters[0].FirstAddress+n))
	}

	return b.w.patrols(b.T), b.w.count(addresses)
}

// unwatched says what they saw: no write was lost, nor too many voters, and where all machines had power all the time
// the API was never away for long.
func (b *bed) unwatched(s step, users *patrol, votes *census, powered bool) string {
	b.Helper()

	if s.unwatched {
		return "unwatched"
	}

	users.finish()
	assert.Empty(b, users.lost)

	if powered && !s.away {
		assert.Less(b, users.gap, *gap, "the API was away")
	}

	return fmt.Sprintf("the API away for %s at most over %d writes; %s", users.gap.Round(100*time.Millisecond),
		users.writes, votes.report(cmp.Or(s.voters, majority(3)), powered))
}

// judge sees that a cluster is what was asked for, whole and in use, and that nothing is left to do.
func (b *bed) judge(s step) {
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
	b.k.eventually(func() bool { return b.k.ready() == len(names) }, "all nodes take pods")
	assert.Empty(b, b.k.cordoned())
	b.w.requireRunning(len(names))
	b.w.requireMembers(c.ControlPlanes)
	b.w.requireNodes(names...)
	b.w.requireHealth(b.T)

	if s.check != nil {
		s.check(b)
	}

	b.w.up(s.file(b), optup.Refresh(), optup.ExpectNoChanges())
	assert.Empty(b, b.w.plugins(), "plugins that work on")

	assert.Empty(b, b.w.commands("talosops"), "talosops works on")
}
