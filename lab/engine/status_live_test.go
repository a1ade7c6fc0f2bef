package engine_test

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/scripttest"
	"talos-proxmox/lab/datacentre"
)

// program is a started talos-proxmox, with what it has printed.
type program struct {
	t   testing.TB
	cmd *exec.Cmd

	mu     sync.Mutex
	output strings.Builder
}

// Write implements io.Writer.
func (p *program) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.output.Write(text)
}

func (p *program) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.output.String()
}

// prints waits until it has printed all texts.
func (p *program) prints(texts ...string) {
	p.t.Helper()

	for _, text := range texts {
		printed := func() bool { return strings.Contains(p.printed(), text) }
		require.Eventually(p.t, printed, within, 100*time.Millisecond, text)
	}
}

// start starts talos-proxmox.
func (w *world) start(arguments ...string) *program {
	w.t.Helper()

	p := &program{t: w.t, cmd: w.command(arguments...)}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	require.NoError(w.t, p.cmd.Start())

	return p
}

// interrupt is Ctrl-C, which ends a status well.
func (p *program) interrupt() {
	p.t.Helper()

	require.NoError(p.t, p.cmd.Process.Signal(os.Interrupt))
	require.NoError(p.t, p.cmd.Wait(), p.printed())
}

// livePage is a page of talos-proxmox status --serve.
type livePage struct {
	*program

	address string
}

func (w *world) servePage() livePage {
	w.t.Helper()

	p := livePage{program: w.start("status", w.options.Stack, "--serve", "--interval", "1s")}
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`)

	require.Eventually(w.t, func() bool {
		p.address = address.FindString(p.printed())

		return p.address != ""
	}, within, 50*time.Millisecond, "no address")

	return p
}

// parts returns what the page shows.
func (p livePage) parts() string {
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.address+"parts", nil)
	require.NoError(p.t, err)

	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close() //nolint:errcheck

	text, err := io.ReadAll(bufio.NewReader(answer.Body))
	require.NoError(p.t, err)

	return html.UnescapeString(string(text))
}

// shows waits until the page shows all texts.
func (p livePage) shows(texts ...string) {
	p.t.Helper()

	deadline := time.Now().Add(within)

	for _, text := range texts {
		for !strings.Contains(p.parts(), text) {
			if time.Now().After(deadline) {
				p.t.Fatalf("the page does not show %q, but %s\n%s", text, p.parts(), p.printed())
			}

			time.Sleep(200 * time.Millisecond)
		}
	}
}

// TestDeployOnThePage: while talos-proxmox deploy creates a stack, the page and the watch show which step waits for
// what; afterwards, the machines with their versions and states, and what happens to them; never a secret.
func TestDeployOnThePage(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)

	pulumi := filepath.Join(t.TempDir(), "pulumi")
	scripttest.Program(t, pulumi, fmt.Sprintf("#!/bin/sh\ncase $1 in up|preview) set -- \"$@\" --client=%s;; esac\nexec %s \"$@\"\n",
		w.newLanguageHost().address, w.options.CLI.Path))
	w.options.CLI.Path = pulumi

	s := w.stack(1, 2)

	w.lastEngine = w.engine(s.yaml(t)) // which writes the stack's file
	defer w.lastEngine.Close()

	page := w.servePage()
	page.shows("Cluster one does not answer:", "No run of this stack was logged in this folder.", "<h3>one-general-2</h3>")

	boot := w.addFault(datacentre.Fault{Hangs: true, VMID: 3001})
	deploy := w.start("deploy", w.options.Stack, "--yes", "--directory", t.TempDir())

	page.shows("An up is in progress for ", "<span>create one-cp-1-vm</span>", `aria-label="running"`, "waiting for one-general-2 (VM 3001 on ",
		"a run is in progress, which changes that")

	watch := w.start("status", w.options.Stack, "--watch", "--interval", "1s")

	watch.prints(" running")

	boot()
	require.NoError(t, deploy.cmd.Wait(), deploy.printed())

	page.shows("The last up ended at ", "<h2 class=\"ok state\">Cluster one is healthy.</h2>", "running, no CNI", "Talos v1.14.4 · kubelet v1.37.2",
		"etcd: leader", `<p class="ok">online</p>`)
	watch.prints("Z up: ended: ", "Cluster one is healthy.\n")
	watch.interrupt()

	log, err := os.ReadFile(w.dir + "/work/.run/" + w.options.Stack + ".json")
	require.NoError(t, err)

	for name, secret := range w.secrets(w.talosconfig(), w.kubeconfig()) {
		assert.NotContains(t, page.parts()+watch.printed()+string(log), secret, name)
	}

	vm := w.vm("one-general-2")
	w.stopVM(vm.ID)
	page.shows("Cluster one needs care:", "one-general-2: Talos does not answer on ", `<p class="care">stopped, not Ready</p>`)

	// Without Proxmox, the page says so, and goes on.
	for _, host := range []string{"pve1", "pve2"} {
		w.addFault(datacentre.Fault{Offline: true, Host: host})
	}

	page.shows("Not asked: where machines are, and whether their hosts are online: ")
	page.interrupt()
}
