package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optrefresh"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/siderolabs/crypto/x509"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/server"
)

// testSpeed lets modelled minutes pass in seconds.
const testSpeed = 100

// project is the repository's root.
const project = "../.."

// networks gives every lab of this package a loopback network from 127.100 to 127.179, and skips those that another lab
// uses.
var networks atomic.Int32

// world is a test's lab, with the engine that runs on it and its output.
type world struct {
	t       testing.TB
	dir     string
	network string
	lab     *server.Server
	options engine.Options
	// configure changes what the lab adds to the stack's configuration.
	configure func(c *engine.Config)
	// trusted are authorities, as PEM, that runs trust beside the lab's.
	trusted []byte
	// swappedHosts gives the first two hosts each other's address and host key, as a user does who confuses them.
	swappedHosts bool
	// path is the PATH of the user's own commands; empty = this process's.
	path string

	// lastEngine is the engine of the last up, and lastOutputs caches its outputs.
	lastEngine  *engine.Engine
	lastOutputs auto.OutputMap

	mu     sync.Mutex
	log    bytes.Buffer
	events bytes.Buffer // every event of every run, as JSON
	times  *stopwatch   // of the last up
}

func newWorld(t testing.TB, speed float64) *world {
	t.Helper()

	return openWorld(t, server.Options{Speed: speed, Hosts: 2})
}

// openWorld opens a lab with these options on its own network.
func openWorld(t testing.TB, o server.Options) *world {
	t.Helper()

	//nolint:usetesting // removed after the lab has closed, which t.Cleanup's order needs
	dir, err := os.MkdirTemp("", "lab")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })

	w := &world{t: t, dir: dir}

	for err := server.ErrTaken; errors.Is(err, server.ErrTaken); {
		w.network = fmt.Sprintf("127.%d", 100+networks.Add(1)%80)
		err = w.tryOpen(o)
	}

	require.NotNil(t, w.lab)
	t.Cleanup(func() { require.NoError(t, w.lab.Close()) })

	cli, err := findCLI()
	require.NoError(t, err)

	require.FileExists(t, talosops, "`make tools` builds it")

	key, err := serviceAccountKey()
	require.NoError(t, err)

	program, err := os.Executable()
	require.NoError(t, err)

	_, measures := t.(*testing.B)

	w.options = engine.Options{
		StandIns:          program,
		NeverKilled:       !measures,
		ServiceAccountKey: key.KeyPEM,

		Dir:       dir,
		Project:   project,
		Stack:     "lab",
		Speed:     o.Speed,
		Providers: testProviders,
		CLI:       cli,
		TalosOps:  talosops,
		Out:       w,
		Err:       w,
	}

	return w
}

// serviceAccountKey is generated once for all tests.
var serviceAccountKey = sync.OnceValues(func() (*x509.RSAKey, error) { return x509.NewRSAKey() })

// findCLI finds the CLI once for all tests.
var findCLI = sync.OnceValues(func() (engine.CLI, error) {
	return engine.FindCLI(context.Background(), project)
})

// tryOpen opens the lab in the world's folder; if that fails, the world keeps its former lab.
func (w *world) tryOpen(o server.Options) error {
	o.Dir, o.Network = w.dir, w.network

	lab, err := server.Open(o)
	if err == nil {
		w.lab = lab
	}

	return err
}

// Write collects the CLI's output.
func (w *world) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.log.Write(p)
}

func (w *world) output() string {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.log.String()
}

// engine prepares a run of the stack; the caller closes it.
func (w *world) engine(stack string) *engine.Engine {
	w.t.Helper()

	connection, err := w.lab.Connection()
	require.NoError(w.t, err)

	if hosts := connection.Hosts; w.swappedHosts {
		hosts[0].Name, hosts[1].Name = hosts[1].Name, hosts[0].Name
	}

	o := w.options

	target, err := engine.NewTarget(o.Stack, []byte(stack), w.network, connection)
	require.NoError(w.t, err)

	for _, reservation := range target.Reservations() {
		w.lab.Data.Reserve(reservation.MAC, reservation.Address)
	}

	o.StackFile, o.Config, o.CA = target.File, target.Config, connection.CA
	if w.trusted != nil {
		o.CA = w.trust(connection.CA)
	}

	if w.configure != nil {
		w.configure(&o.Config)
	}

	w.copyNewStack()

	e, err := engine.New(w.t.Context(), o)
	require.NoError(w.t, err)

	w.keepNewStack()

	return e
}

// newStack has the files of a stack without resources, by path in the lab's folder. The first test's CLI makes it, and
// other tests copy it: a CLI's start and the passphrase's key take a second of processor time. newStackFiles are state,
// passphrase, and the stack file, which has the key's salt.
var (
	newStack      atomic.Pointer[map[string][]byte]
	newStackFiles = []string{
		"passphrase", "work/Pulumi.lab.yaml", "state/.pulumi/meta.yaml", "state/.pulumi/stacks/talos-proxmox/lab.json",
	}
)

// keepNewStack keeps the files of the first stack, whose engine has just made it.
func (w *world) keepNewStack() {
	w.t.Helper()

	if newStack.Load() != nil || w.options.Stack != "lab" {
		return
	}

	files := map[string][]byte{}

	for _, path := range newStackFiles {
		content, err := os.ReadFile(filepath.Join(w.dir, path))
		require.NoError(w.t, err)

		files[path] = content
	}

	newStack.Store(&files)
}

// copyNewStack makes the stack of a new world.
func (w *world) copyNewStack() {
	w.t.Helper()

	files := newStack.Load()
	if _, err := os.Stat(filepath.Join(w.dir, "passphrase")); files == nil || err == nil {
		return
	}

	for path, content := range *files {
		path = filepath.Join(w.dir, path)
		require.NoError(w.t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(w.t, os.WriteFile(path, content, 0o600))
	}
}

// trust returns a file with the lab's authority and those of the world.
func (w *world) trust(file string) string {
	w.t.Helper()

	authorities, err := os.ReadFile(file) //nolint:gosec // the lab's own
	require.NoError(w.t, err)

	both := filepath.Join(w.dir, "trusted.pem")
	require.NoError(w.t, os.WriteFile(both, append(authorities, w.trusted...), 0o600))

	return both
}

// steps are the operations of a run by resource name, without unchanged resources.
type steps map[string]string

// opFailed is the operation of a step that failed.
const opFailed = "failed"

// withOp returns the names of the resources with this operation, sorted.
func (s steps) withOp(op string) []string {
	var names []string

	for name, o := range s {
		if o == op {
			names = append(names, name)
		}
	}

	slices.Sort(names)

	return names
}

// watch collects the steps of a run from the engine's events; the returned function returns them after the run's end.
// Then no event is pending: the stream takes one at a time, and the Automation API returns when its receiver has ended.
// A run that never began leaves the stream open.
func (w *world) watch() (chan events.EngineEvent, func() steps) {
	ch, ended, done := make(chan events.EngineEvent), make(chan struct{}), make(chan steps)

	go func() {
		collected := steps{}

		for {
			select {
			case event, open := <-ch:
				if !open {
					done <- collected

					return
				}

				w.collect(collected, event)
			case <-ended:
				done <- collected

				return
			}
		}
	}()

	return ch, func() steps {
		close(ended)

		return <-done
	}
}

// collect records an event and its step.
func (w *world) collect(collected steps, event events.EngineEvent) {
	line, err := json.Marshal(event)
	assert.NoError(w.t, err)

	w.mu.Lock()
	w.events.Write(line)

	if w.times != nil {
		w.times.record(event)
	}

	w.mu.Unlock()

	if e := event.ResOutputsEvent; e != nil && e.Metadata.Op != "same" && e.Metadata.Op != "read" {
		collected[urnKey(e.Metadata.URN)] = string(e.Metadata.Op)
	}

	if e := event.ResOpFailedEvent; e != nil {
		collected[urnKey(e.Metadata.URN)] = opFailed
	}
}

// urnKey returns the last type of a URN without its package path, and the name: VirtualMachine lab-cp-1.
func urnKey(urn string) string {
	parts := strings.Split(urn, "::")
	kind := parts[len(parts)-2]

	return kind[strings.LastIndex(kind, ":")+1:] + " " + parts[len(parts)-1]
}

func (w *world) up(stack string, opts ...optup.Option) steps {
	w.t.Helper()

	done, err := w.tryUp(w.t.Context(), stack, opts...)
	require.NoError(w.t, err, w.output())

	return done
}

func (w *world) tryUp(ctx context.Context, stack string, opts ...optup.Option) (steps, error) {
	w.t.Helper()

	e := w.engine(stack)
	defer e.Close()

	w.lastEngine, w.lastOutputs, w.times = e, nil, newStopwatch()

	ch, collected := w.watch()
	err := e.Up(ctx, append(opts, optup.EventStreams(ch))...)

	return collected(), err
}

// outputs returns the stack's outputs after the last up.
func (w *world) outputs() auto.OutputMap {
	w.t.Helper()

	if w.lastOutputs == nil {
		outputs, err := w.lastEngine.Outputs(w.t.Context())
		require.NoError(w.t, err)

		w.lastOutputs = outputs
	}

	return w.lastOutputs
}

func (w *world) preview(stack string, opts ...optpreview.Option) (auto.PreviewResult, error) {
	w.t.Helper()

	e := w.engine(stack)
	defer e.Close()

	return e.Preview(w.t.Context(), opts...)
}

func (w *world) refresh(stack string) steps {
	w.t.Helper()

	e := w.engine(stack)
	defer e.Close()

	ch, collected := w.watch()
	_, err := e.Refresh(w.t.Context(), optrefresh.EventStreams(ch))
	require.NoError(w.t, err, w.output())

	return collected()
}

func (w *world) destroy(stack string) {
	w.t.Helper()

	e := w.engine(stack)
	defer e.Close()

	_, err := e.Destroy(w.t.Context(), optdestroy.EventStreams())
	require.NoError(w.t, err, w.output())
}

// state returns the stack's state as the Automation API exports it, with secrets in plain text; writtenFiles has what
// is in the backend.
func (w *world) state(stack string) string {
	w.t.Helper()

	e := w.engine(stack)
	defer e.Close()

	current := e.Stack()

	deployment, err := current.Export(w.t.Context())
	require.NoError(w.t, err)

	b, err := json.Marshal(deployment)
	require.NoError(w.t, err)

	return string(b)
}

// machines returns the VMIDs of the VMs that are not templates, by name.
func (w *world) machines() map[string]int {
	names := map[string]int{}

	for _, vm := range w.lab.Data.VMs() {
		if !vm.Template {
			names[vm.Name] = vm.ID
		}
	}

	return names
}

// outputOf returns what the CLI prints while run runs.
func (w *world) outputOf(run func()) string {
	before := len(w.output())

	run()

	return w.output()[before:]
}

// previewOutput returns the output of a preview, which has to succeed.
func (w *world) previewOutput(stack string) string {
	w.t.Helper()

	return w.outputOf(func() {
		_, err := w.preview(stack)
		require.NoError(w.t, err, w.output())
	})
}
