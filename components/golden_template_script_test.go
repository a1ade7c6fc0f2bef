package components

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/systems"
)

// scriptHost is a Proxmox host made of stub commands, on which the build script runs.
type scriptHost struct {
	t       *testing.T
	folder  string
	stackID string
}

func newScriptHost(t *testing.T) *scriptHost {
	t.Helper()
	h := &scriptHost{t: t, folder: t.TempDir()}
	h.setName("pve1", "pve1")

	return h
}

// newHostWithTemplate returns a host with the template and an empty log of calls.
func newHostWithTemplate(t *testing.T) *scriptHost {
	t.Helper()
	h := newScriptHost(t)
	h.mustRun(actionBuild, scriptTemplate())
	h.write("log", "")

	return h
}

// setName sets the host's own name and its node name in Proxmox.
func (h *scriptHost) setName(own, node string) {
	h.t.Helper()
	h.write("hostname", own+"\n")
	local := filepath.Join(h.folder, "etc/pve/local")
	require.NoError(h.t, os.MkdirAll(filepath.Dir(local), 0o750))
	require.NoError(h.t, os.RemoveAll(local))

	if node != "" {
		require.NoError(h.t, os.Symlink("nodes/"+node, local))
	}
}

func scriptTemplate() GoldenTemplateArgs {
	return GoldenTemplateArgs{
		Name:      "talos-v1.12.6-talos",
		Host:      "pve1",
		VMID:      901,
		Source:    SourceImage,
		Talos:     &Talos{Version: "v1.12.6", Platform: "nocloud"},
		Datastore: "local-lvm", ImageDatastore: "local", Bridge: "vmbr0", Cores: 4, Memory: 4096, DiskSize: 20,
	}
}

// owner is the stack that owns the templates.
const owner = "talos-proxmox/lab"

// command returns the command that runs the script like the program does: the command in the host's shell, everything
// else on standard input.
func (h *scriptHost) command(action string, t GoldenTemplateArgs) *exec.Cmd {
	h.t.Helper()

	stubs, err := filepath.Abs("testdata/bin")
	require.NoError(h.t, err)

	own := ""
	if t.System != nil && t.System.Definition().Format != systems.Backup {
		own = "local:iso/image.img"
	}

	cmd := exec.CommandContext(
		h.t.Context(), "bash", "-c", strings.ReplaceAll(hostCommand(action, t.VMID, lockSeconds), "/run/lock", h.folder),
	)

	r := newRecipe(t, owner)
	r.unhashed = append(r.unhashed, scripts.Parameter{Name: "stack_id", Value: h.stackID})
	cmd.Stdin = strings.NewReader(r.script(own, t.Host))

	cmd.Env = append(os.Environ(), "PATH="+stubs+":"+os.Getenv("PATH"), "FAKE="+h.folder, "HOST_ROOT="+h.folder)

	return cmd
}

func (h *scriptHost) run(action string, t GoldenTemplateArgs) (string, error) {
	h.t.Helper()
	output, err := h.command(action, t).CombinedOutput()

	return string(output), err
}

func (h *scriptHost) mustRun(action string, t GoldenTemplateArgs) string {
	h.t.Helper()
	output, err := h.run(action, t)
	require.NoError(h.t, err, output)

	return output
}

// start starts a command in a process group of its own, and returns its output.
func (h *scriptHost) start(cmd *exec.Cmd) *bytes.Buffer {
	h.t.Helper()

	var output bytes.Buffer

	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout, cmd.Stderr = &output, &output // Wait waits for all processes that write there
	require.NoError(h.t, cmd.Start())

	return &output
}

// runKilled runs a build that hangs at a call, sends a signal to its process group, and returns its output.
func (h *scriptHost) runKilled(t GoldenTemplateArgs, at string, signal syscall.Signal) string {
	h.t.Helper()
	h.write("hang", at)

	cmd := h.command(actionBuild, t)
	output := h.start(cmd)
	h.waitFor("hanging")
	require.NoError(h.t, syscall.Kill(-cmd.Process.Pid, signal))
	require.Error(h.t, cmd.Wait())
	require.NoError(h.t, os.Remove(filepath.Join(h.folder, "hang")))

	return output.String()
}

func (h *scriptHost) write(name, text string) {
	h.t.Helper()
	require.NoError(h.t, os.WriteFile(filepath.Join(h.folder, name), []byte(text), 0o600))
}

func (h *scriptHost) read(name string) string {
	h.t.Helper()

	text, err := os.ReadFile(filepath.Join(h.folder, name))
	if os.IsNotExist(err) {
		return ""
	}

	require.NoError(h.t, err)

	return string(text)
}

// changes returns the calls that change something.
func (h *scriptHost) changes() []string {
	var changes []string

	for line := range strings.Lines(h.read("log")) {
		if !strings.HasPrefix(line, "config") {
			changes = append(changes, strings.TrimSpace(line))
		}
	}

	return changes
}

func TestBuildScriptCreatesATemplate(t *testing.T) {
	t.Parallel()
	h := newScriptHost(t)
	assert.Contains(t, h.mustRun(actionBuild, scriptTemplate()), "template talos-v1.12.6-talos (VM 901) is made")

	config := h.read("901.conf")
	for _, line := range []string{
		"name: talos-v1.12.6-talos", "machine: q35", "bios: ovmf", "scsihw: virtio-scsi-pci", "serial0: socket",
		"ostype: l26", "balloon: 0", "cores: 4",
		"memory: 4096", "size: 20G", "template: 1", "boot: order=scsi0", "net0: virtio,bridge=vmbr0",
		"efidisk0: local-lvm:1,efitype=4m,pre-enrolled-keys=0,format=raw",
		"scsi0: local-lvm:0,import-from=/var/lib/vz/template/iso/talos-v1.12.6-376567988ad3-nocloud-amd64.img,format=raw,discard=on,ssd=1,aio=io_uring",
	} {
		assert.Contains(t, config, line+"\n")
	}

	assert.Contains(t, config, "description: talos-proxmox-template owner=talos-proxmox/lab provenance=")
	assert.Contains(
		t, config,
		" state=ready (Talos v1.12.6, amd64, schematic 376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba)",
	)
}

func TestBuildScriptRunsAgain(t *testing.T) {
	t.Parallel()

	other := scriptTemplate()

	other.Name, other.Talos.Version = "talos-v1.12.7-talos", "v1.12.7"
	for name, test := range map[string]struct {
		// what is at the VMID, with PROVENANCE for the template's own; empty = a template made by an earlier run
		before   string
		template GoldenTemplateArgs
		fails    bool
		says     string
		rebuilt  bool
	}{
		"a finished template is left untouched": {template: scriptTemplate(), says: "is there already"},
		"a finished template of another provenance gives way": {
			template: other, says: "replaces the former one", rebuilt: true,
		},
		"a foreign VM is never touched": {
			before: "name: db\ndescription: the database\nmemory: 4096\n", template: scriptTemplate(),
			fails: true, says: "VM 901 exists and is not a template of talos-proxmox/lab: it is left alone; state another",
		},
		"a VM without a description is foreign": {
			before: "lock: create\n", template: scriptTemplate(), fails: true, says: "is left alone",
		},
		"a template of another stack is foreign": {
			before:   "description: talos-proxmox-template owner=talos-proxmox/lab2 provenance=PROVENANCE state=ready (Talos)\ntemplate: 1\n",
			template: scriptTemplate(), fails: true, says: "is left alone",
		},
		"a clone of the template carries its description and is foreign": {
			before:   "description: talos-proxmox-template owner=talos-proxmox/lab provenance=PROVENANCE state=ready (Talos)\nmemory: 4096\n",
			template: scriptTemplate(), fails: true, says: "is left alone",
		},
		"a half-made template of a killed run is recreated": {
			before:   "description: talos-proxmox-template owner=talos-proxmox/lab provenance=PROVENANCE state=building (Talos)\nlock: clone\n",
			template: scriptTemplate(), says: "half-made template of an earlier run", rebuilt: true,
		},
		"a template whose last step is missing is recreated": {
			before:   "description: talos-proxmox-template owner=talos-proxmox/lab provenance=PROVENANCE state=building (Talos)%0A\ntemplate: 1\n",
			template: scriptTemplate(), says: "half-made", rebuilt: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := newHostWithTemplate(t)
			provenance := provenanceOf(newRecipe(test.template, owner).parameters)

			if test.before != "" {
				h.write("901.conf", strings.ReplaceAll(test.before, "PROVENANCE", provenance))
			}

			before := h.read("901.conf")

			output, err := h.run(actionBuild, test.template)

			assert.Contains(t, output, test.says)

			if test.fails {
				require.Error(t, err)
			} else {
				require.NoError(t, err, output)
			}

			if !test.rebuilt {
				assert.Equal(t, before, h.read("901.conf"))
				assert.Empty(t, h.changes())

				return
			}

			assert.Contains(t, h.read("901.conf"), "provenance="+provenance+" state=ready")
			assert.Contains(t, h.changes(), "destroy --purge 1")
		})
	}
}

// TestBuildScriptAdoptsTemplatesWithTheStackID: a template of an earlier version of the program gets the id and is not
// rebuilt, and neither is one with another id but the same provenance. Any other template with another id is foreign:
// it may belong to another backend.
func TestBuildScriptAdoptsTemplatesWithTheStackID(t *testing.T) {
	t.Parallel()

	h := newHostWithTemplate(t)
	assert.NotContains(t, h.read("901.conf"), "id=")

	h.stackID = "9f86"
	assert.Contains(t, h.mustRun(actionBuild, scriptTemplate()), "is there already")
	assert.Contains(t, h.read("901.conf"), " state=ready id=9f86 (Talos v1.12.6")
	assert.Len(t, h.changes(), 1, "its description alone")

	h.write("log", "")
	h.mustRun(actionBuild, scriptTemplate())
	assert.Empty(t, h.changes(), "it has it")

	h.stackID = "1d2c"
	other := scriptTemplate()
	other.DiskSize++

	for action, template := range map[string]GoldenTemplateArgs{actionBuild: other, actionRemove: scriptTemplate()} {
		output, err := h.run(action, template)
		assert.Contains(t, output, "left alone", action)
		assert.Equal(t, action == actionBuild, err != nil)
		assert.Empty(t, h.changes())
	}

	h.mustRun(actionBuild, scriptTemplate())
	assert.Contains(t, h.read("901.conf"), " state=ready id=1d2c (Talos v1.12.6")
	assert.Len(t, h.changes(), 1, "its description alone")

	h.mustRun(actionRemove, scriptTemplate())
	assert.Contains(t, h.changes(), "destroy --purge 1")

	h.mustRun(actionBuild, scriptTemplate())
	assert.Contains(t, h.read("901.conf"), " state=ready id=1d2c (Talos v1.12.6")
}

func TestBuildScriptLeavesNothingBehindAfterAFailure(t *testing.T) {
	t.Parallel()

	for _, call := range []string{
		"create", "set --efidisk0", "set --scsi0", "set --boot", "resize", "template", "set --description",
	} {
		t.Run("the call "+call+" fails", func(t *testing.T) {
			t.Parallel()
			h := newScriptHost(t)
			h.write("fail", call)

			output, err := h.run(actionBuild, scriptTemplate())

			require.Error(t, err)
			assert.Contains(t, output, "the call fails as asked")
			assert.NoFileExists(t, filepath.Join(h.folder, "901.conf"))

			require.NoError(t, os.Remove(filepath.Join(h.folder, "fail")))
			h.mustRun(actionBuild, scriptTemplate())
			assert.Contains(t, h.read("901.conf"), "state=ready")
		})
	}

	t.Run("the image is not there, and the former template stays", func(t *testing.T) {
		t.Parallel()
		h := newHostWithTemplate(t)
		before := h.read("901.conf")
		moved := scriptTemplate()
		moved.ImageDatastore = "nowhere"

		output, err := h.run(actionBuild, moved)

		require.Error(t, err)
		assert.Contains(t, output, "unable to find the image nowhere:iso/")
		assert.Equal(t, before, h.read("901.conf"))
	})
}

func TestBuildScriptCleansUpWhenItIsKilled(t *testing.T) {
	t.Parallel()

	for name, signal := range map[string]syscall.Signal{
		"terminated": syscall.SIGTERM, "hung up": syscall.SIGHUP, "interrupted": syscall.SIGINT,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newScriptHost(t)
			output := h.runKilled(scriptTemplate(), "set --scsi0", signal)
			assert.NoFileExists(t, filepath.Join(h.folder, "901.conf"), output)
		})
	}
}

func TestBuildScriptsOfOneTemplateAreSerialized(t *testing.T) {
	t.Parallel()
	h := newScriptHost(t)
	h.write("hang", "set --scsi0")
	first, second := h.command(actionBuild, scriptTemplate()), h.command(actionBuild, scriptTemplate())
	h.start(first)
	h.waitFor("hanging")
	require.NoError(t, os.Remove(filepath.Join(h.folder, "hang")))
	output := h.start(second)

	require.NoError(t, syscall.Kill(-first.Process.Pid, syscall.SIGKILL))

	require.Error(t, first.Wait())
	require.NoError(t, second.Wait(), output.String())
	assert.Contains(t, output.String(), "half-made template of an earlier run")
	assert.Contains(t, h.read("901.conf"), "state=ready")
}

func (h *scriptHost) waitFor(name string) {
	h.t.Helper()

	for range 30000 { // five minutes: a safety net
		if _, err := os.Stat(filepath.Join(h.folder, name)); err == nil {
			return
		}

		time.Sleep(10 * time.Millisecond)
	}

	require.FailNow(h.t, "the script never came to the call that hangs")
}

func TestRemoveScript(t *testing.T) {
	t.Parallel()

	other := scriptTemplate()

	other.DiskSize = 30
	for name, test := range map[string]struct {
		made   *GoldenTemplateArgs // nil = nothing
		config string              // instead of a template
		says   string
		stays  bool
	}{
		"its own template goes":                  {made: new(scriptTemplate()), says: "is removed"},
		"nothing there is fine":                  {says: "is gone already"},
		"a template of another provenance stays": {made: &other, says: "it is left alone", stays: true},
		"a foreign VM stays":                     {config: "name: db\n", says: "it is left alone", stays: true},
		"a half-made template of the same stack goes too": {
			config: "description: talos-proxmox-template owner=talos-proxmox/lab provenance=1 state=building (Talos)\n",
			says:   "is removed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := newScriptHost(t)
			if test.made != nil {
				h.mustRun(actionBuild, *test.made)
			}

			if test.config != "" {
				h.write("901.conf", test.config)
			}

			assert.Contains(t, h.mustRun(actionRemove, scriptTemplate()), test.says)
			assert.Equal(t, test.stays, h.read("901.conf") != "")
		})
	}

	t.Run("a template with linked clones stays", func(t *testing.T) {
		t.Parallel()
		h := newHostWithTemplate(t)
		before := h.read("901.conf")
		h.write("volumes", "Volid\nlocal:901/base-901-disk-1.raw/302/vm-302-disk-0.qcow2 qcow2 images 1 302\n")

		output, err := h.run(actionRemove, scriptTemplate())
		require.Error(t, err)
		assert.Contains(t, output, "linked clones of it are the VMs 302; remove them")
		assert.Equal(t, before, h.read("901.conf"))
	})

	t.Run("without quorum nothing goes", func(t *testing.T) {
		t.Parallel()
		h := newHostWithTemplate(t)
		before := h.read("901.conf")
		h.write("fail", "set --description")

		_, err := h.run(actionRemove, scriptTemplate())
		require.Error(t, err)
		assert.Equal(t, before, h.read("901.conf"))
		assert.NotContains(t, h.changes(), "destroy --purge 1")
	})

	t.Run("a template whose removal broke off, perhaps without its disks, is made anew", func(t *testing.T) {
		t.Parallel()
		h := newHostWithTemplate(t)
		h.write("fail", "destroy")

		output, err := h.run(actionBuild, other)
		require.Error(t, err)
		assert.Contains(t, output, "unable to remove the former template, VM 901")
		require.NoError(t, os.Remove(filepath.Join(h.folder, "fail")))

		assert.Contains(
			t, h.mustRun(actionBuild, scriptTemplate()), "is a half-made template of an earlier run: it is made anew",
		)
		assert.Contains(t, h.read("901.conf"), "state=ready")
	})
}

func TestBuildScriptRefusesAnotherHost(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ own, node, says string }{
		"another host": {
			"pve2", "pve2",
			"this is not pve1: the host's own name is pve2, and Proxmox VE knows it as pve2; nothing was changed on it",
		},
		"a host that was renamed": {
			"pve1", "old", "this is not pve1: the host's own name is pve1, and Proxmox VE knows it as old",
		},
		"a host of the same node name": {
			"spare", "pve1", "this is not pve1: the host's own name is spare, and Proxmox VE knows it as pve1",
		},
		"a host without a node's name":   {"pve1", "", "this host, pve1, is no node of Proxmox VE now"},
		"a host whose name begins alike": {"pve11", "pve11", "this is not pve1: the host's own name is pve11"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHostWithTemplate(t)
			before := h.read("901.conf")
			h.setName(test.own, test.node)

			other := scriptTemplate()

			other.DiskSize = 30
			for _, action := range []string{actionBuild, actionRemove} {
				output, err := h.run(action, other)
				require.Error(t, err)
				assert.Contains(t, output, test.says)
			}

			assert.Empty(t, h.read("log"), "nothing was even asked")
			assert.Equal(t, before, h.read("901.conf"))
		})
	}

	t.Run("a host with its domain is the same host", func(t *testing.T) {
		t.Parallel()
		h := newScriptHost(t)
		h.setName("pve1.example.org", "pve1")
		h.mustRun(actionBuild, scriptTemplate())
	})
}
