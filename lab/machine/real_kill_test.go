package machine_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"talos-proxmox/lab/machine"
)

// Environment variables of a lab in its own process.
const (
	processDir    = "LAB_PROCESS_DIR"
	processPrefix = "LAB_PROCESS_PREFIX"
)

// saveDelay is how late the data centre writes changes of its disks, which a killed lab loses.
const saveDelay = 200 * time.Millisecond

// TestLabProcess is not a test but the lab that TestRealKills kills. It reads `on N` and `off N` from its input, and
// answers each with a line.
func TestLabProcess(t *testing.T) { //nolint:paralleltest // runs in its own process
	dir := os.Getenv(processDir)
	if dir == "" {
		t.Skip("TestRealKills starts it")
	}

	l := &lab{T: t, world: newWorld(), prefix: os.Getenv(processPrefix)}
	l.load(dir)

	o := l.options()
	o.Labkube = &machine.Labkube{Binary: os.Getenv("LABKUBE"), Dir: filepath.Join(dir, "machines")}
	l.machines = machine.New(l.world, o)

	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		verb, number, _ := strings.Cut(in.Text(), " ")
		n, _ := strconv.Atoi(number)

		if verb == "on" {
			l.machines.PowerOn(l.hardware(n))
		} else {
			l.machines.PowerOff(n)
		}

		fmt.Println("done")
	}

	require.NoError(t, l.machines.Close())
}

// load reads the volumes of an earlier process, and delays writes like the data centre.
func (w *world) load(dir string) {
	path := filepath.Join(dir, "volumes.json")

	if text, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(text, &w.volumes) // written atomically
	} else {
		for _, n := range []int{11, 12, 13, 21} {
			w.volumes[fmt.Sprintf("local:vm-%d-disk-0", n)] = disk()
		}
	}

	w.saved = func() {
		w.mu.Lock()
		text, _ := json.Marshal(w.volumes) // images always encode
		w.mu.Unlock()

		_ = os.WriteFile(path+".new", text, 0o600)
		_ = os.Rename(path+".new", path)
	}
}

// labProcess is a lab in its own process.
type labProcess struct {
	l   *lab
	dir string

	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
}

// start starts the lab and switches its machines on.
func (p *labProcess) start() {
	p.l.Helper()

	arguments := []string{"-test.run=^TestLabProcess$", "-test.timeout=0"}
	p.command = exec.CommandContext(p.l.Context(), os.Args[0], arguments...) //nolint:gosec // this test
	p.command.Env = append(os.Environ(), processDir+"="+p.dir, processPrefix+"="+p.l.prefix)
	p.command.Stderr = os.Stderr

	var err error

	p.in, err = p.command.StdinPipe()
	require.NoError(p.l.T, err)

	out, err := p.command.StdoutPipe()
	require.NoError(p.l.T, err)

	p.out = bufio.NewScanner(out)
	require.NoError(p.l.T, p.command.Start())

	for _, n := range []int{11, 12, 13, 21} {
		p.send("on", n)
	}
}

func (p *labProcess) send(verb string, n int) {
	p.l.Helper()

	_, err := fmt.Fprintln(p.in, verb, n)
	require.NoError(p.l.T, err)
	require.True(p.l.T, p.out.Scan())
	require.Equal(p.l.T, "done", p.out.Text())
}

// kill kills the process.
func (p *labProcess) kill() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait() // fails, as it was killed
}

// processes returns the running processes of labkube by machine and name.
func (p *labProcess) processes() map[string]int {
	found := map[string]int{}

	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		folder, err := os.Readlink(filepath.Join(entry, "cwd"))
		if err != nil || !strings.HasPrefix(folder, p.dir) {
			continue
		}

		text, _ := os.ReadFile(filepath.Join(entry, "cmdline")) //nolint:gosec // of a process
		arguments := strings.Split(string(text), "\x00")
		pid, _ := strconv.Atoi(filepath.Base(entry))

		if len(arguments) > 3 && arguments[1] == "--as" {
			found[filepath.Base(filepath.Dir(folder))+" "+arguments[3]] = pid
		}
	}

	return found
}

// objectWriter writes objects until it is stopped, and records those that an API server has confirmed.
type objectWriter struct {
	servers []kubeClient
	stopped chan struct{}

	mu        sync.Mutex
	confirmed []string
}

func (w *objectWriter) run() {
	for i := 0; ; i++ {
		select {
		case <-w.stopped:
			return
		case <-time.After(50 * time.Millisecond):
		}

		k, o := w.servers[i%len(w.servers)], &corev1.ConfigMap{}
		o.Name = fmt.Sprintf("note-%d", i)

		_, err := k.CoreV1().ConfigMaps("default").Create(k.l.context(), o, metav1.CreateOptions{})
		if err == nil {
			w.mu.Lock()
			w.confirmed = append(w.confirmed, o.Name)
			w.mu.Unlock()
		}
	}
}

// lost returns the confirmed objects that an API server does not have.
func (w *objectWriter) lost(k kubeClient) ([]string, error) {
	w.mu.Lock()
	missing := slices.Clone(w.confirmed)
	w.mu.Unlock()

	list, err := k.CoreV1().ConfigMaps("default").List(k.l.context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}

	have := map[string]bool{}
	for _, o := range list.Items {
		have[o.Name] = true
	}

	return slices.DeleteFunc(missing, func(name string) bool { return have[name] }), nil
}

// TestRealKills kills processes of labkube, machines and the lab at ten random moments: the cluster recovers with its
// nodes and every confirmed object. LAB_SEED repeats a run's choices.
func TestRealKills(t *testing.T) {
	t.Parallel()

	labkube(t)

	seed, err := strconv.ParseUint(os.Getenv("LAB_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64() //nolint:gosec // no secret
	}

	t.Logf("LAB_SEED=%d repeats this run's choices", seed)

	l := newLab(t)
	p := &labProcess{l: l, dir: t.TempDir()}
	p.start()
	t.Cleanup(p.kill)

	servers := l.clusterOfProcess()
	settled := func(w *objectWriter) {
		for _, k := range servers {
			for _, n := range []int{11, 12, 13, 21} {
				l.until(fmt.Sprintf("node %d is ready", n), func() bool { return k.condition(n) == "True" })
			}

			var lost []string

			l.until("an API server lists what was written", func() bool {
				var err error

				lost, err = w.lost(k)

				return err == nil
			})
			assert.Empty(t, lost, "of %d objects", len(w.confirmed))
		}
	}

	writer := &objectWriter{servers: servers, stopped: make(chan struct{})}
	settled(writer)

	uids := map[int]string{}
	for _, n := range []int{11, 12, 13, 21} {
		uids[n] = servers[0].uid(n)
	}

	var writing sync.WaitGroup

	writing.Go(writer.run)

	p.killTen(rand.New(rand.NewPCG(seed, 0)), func() { settled(writer) }) //nolint:gosec // no secret
	close(writer.stopped)
	writing.Wait()
	settled(writer)

	for n, uid := range uids {
		assert.Equal(t, uid, servers[0].uid(n), "the node is the one that was there")
	}

	l.until("three members vote", func() bool { return len(l.voters(11)) == 3 })
	t.Logf("%d objects were confirmed, none is lost", len(writer.confirmed))
}

// killTen kills six processes, three machines and the lab once, in random order at random moments, and checks the
// cluster after every fifth.
func (p *labProcess) killTen(chance *rand.Rand, check func()) {
	kinds := slices.Concat(slices.Repeat([]string{"part"}, 6), slices.Repeat([]string{"machine"}, 3),
		[]string{"lab"})
	chance.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })

	for i, kind := range kinds {
		time.Sleep(time.Duration(chance.Int64N(int64(4 * time.Second)))) // a random moment, on which no assertion depends

		choice := chance.IntN(1 << 20)

		switch kind {
		case "part":
			parts := p.processes()
			if len(parts) == 0 {
				p.l.Logf("%2d: no part runs", i+1)

				continue
			}

			name := slices.Sorted(maps.Keys(parts))[choice%len(parts)]
			p.l.Logf("%2d: kill -9 of %s", i+1, name)
			_ = syscall.Kill(parts[name], syscall.SIGKILL)
		case "machine":
			n := []int{11, 12, 13, 21}[choice%4]
			p.l.Logf("%2d: machine %d loses its power", i+1, n)
			p.send("off", n)
			p.send("on", n)
		default:
			p.l.Logf("%2d: kill -9 of the lab", i+1)
			p.kill()
			p.start()
		}

		if i%5 == 4 {
			check()
		}
	}
}

// clusterOfProcess brings up three control planes and a worker, and returns a client of each control plane.
func (l *lab) clusterOfProcess() []kubeClient {
	l.Helper()

	for n, role := range map[int]machinetype.Type{
		11: machinetype.TypeControlPlane, 12: machinetype.TypeControlPlane, 13: machinetype.TypeControlPlane,
		21: machinetype.TypeWorker,
	} {
		l.until(fmt.Sprintf("machine %d takes its configuration", n), func() bool {
			_, err := l.insecure(n).ApplyConfiguration(l.context(),
				&machineapi.ApplyConfigurationRequest{Data: l.configuration(role)})

			return err == nil
		})
	}

	c := l.waitForAPI(11)
	l.until("etcd is bootstrapped", func() bool { return c.Bootstrap(l.context(), &machineapi.BootstrapRequest{}) == nil })

	var kubeconfig []byte

	l.until("there is a kubeconfig", func() bool {
		var err error

		kubeconfig, err = c.Kubeconfig(l.context())

		return err == nil
	})

	var servers []kubeClient

	for _, n := range []int{11, 12, 13} {
		config := rest.CopyConfig(l.kubeFromConfig(kubeconfig).config)
		config.Host, config.Timeout = "https://"+l.address(n)+":6443", 10*time.Second
		servers = append(servers, l.newKubeClient(config))
	}

	return servers
}
