package operations

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/scripttest"
	"talos-proxmox/internal/talos"
)

// stateWithSecrets returns the state of a deployed stack with secrets, as `--show-secrets` shows it.
func stateWithSecrets(t *testing.T) []byte {
	t.Helper()

	ca, err := talos.TalosAuthority.New(time.Now())
	require.NoError(t, err)

	kubernetes, err := talos.KubernetesAuthority.New(time.Now())
	require.NoError(t, err)

	replacer := strings.NewReplacer(
		"OS-CERTIFICATE", encode(ca.Certificate), "OS-KEY", encode(ca.Key),
		"K8S-CERTIFICATE", encode(kubernetes.Certificate), "K8S-KEY", encode(kubernetes.Key),
	)

	return []byte(replacer.Replace(labState))
}

const labState = `{"version": 3, "deployment": {"resources": [
	{"type": "pulumi:pulumi:Stack", "urn": "urn:pulumi:lab::talos-proxmox::pulumi:pulumi:Stack::talos-proxmox-lab", "outputs": {
		"talosconfigs": {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270",
			"plaintext": "{\"lab\": \"the talosconfig\"}"},
		"kubeconfigs": {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270",
			"plaintext": "{\"lab\": \"the kubeconfig\"}"},
		"hosts": {"pve1": {"rebootRequired": false}, "pve2": {"rebootRequired": true}}}},
	{"type": "command:local:Command", "urn": "urn:pulumi:lab::p::t$command:local:Command::lab-cp-1-configuration", "delete": true,
		"inputs": {"stdin": "{\"machine\": {\"address\": \"127.20.1.10\"}, \"configuration\": \"of a machine that was replaced\"}"}},
	{"type": "command:local:Command", "urn": "urn:pulumi:lab::p::t$command:local:Command::lab-cp-1-configuration",
		"inputs": {"stdin": {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270",
			"plaintext": "\"{\\\"machine\\\": {\\\"address\\\": \\\"127.20.1.10\\\"}, \\\"configuration\\\": \\\"the configuration\\\"}\""}}},
	{"type": "talos:machine/secrets:Secrets", "urn": "urn:pulumi:lab::p::t$talos:machine/secrets:Secrets::lab-secrets", "outputs": {
		"machineSecrets": {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270",
			"plaintext": "{\"certs\": {\"os\": {\"cert\": \"OS-CERTIFICATE\", \"key\": \"OS-KEY\"}, \"k8s\": {\"cert\": \"K8S-CERTIFICATE\", \"key\": \"K8S-KEY\"}}}"}}},
	{"type": "talos-proxmox:stack:Record", "urn": "urn:pulumi:lab::p::talos-proxmox:stack:Record::record", "outputs": {"id": "9f86"}},
	{"type": "talos-proxmox:cluster:TalosCluster", "urn": "urn:pulumi:lab::p::talos-proxmox:cluster:TalosCluster::lab",
		"outputs": {"addresses": {"lab-cp-1": "127.20.1.10"}}}],
	"pending_operations": [{"type": "creating", "resource": {"type": "proxmoxve:index/virtualMachine:VirtualMachine",
		"urn": "urn:pulumi:lab::p::proxmoxve:index/virtualMachine:VirtualMachine::lab-gpu-1-vm"}}]}}`

// newStatus returns the stack of newBackups with a state, and a talosops with this output and exit status.
func newStatus(t *testing.T, printed string, status string) (s Status, lastRequest func() []string) {
	t.Helper()

	b, lastRequest := newBackups(t, nil)
	s = Status{Deployed: withState(t, b.Deployed), MaxAge: "48h"}

	folder := filepath.Dir(s.TalosOps)
	script := "#!/bin/sh\necho \"$*\" > " + folder + "/request\ncat >> " + folder + "/request\nprintf '%s' '" + printed +
		"'\nexit " + status + "\n"
	scripttest.Program(t, s.TalosOps, script)

	return s, lastRequest
}

// withState returns a stack whose CLI exports the state of a deployed stack.
func withState(t *testing.T, d Deployed) Deployed {
	t.Helper()

	cli, state := d.Pulumi, stateWithSecrets(t)
	d.Pulumi = func(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
		if strings.HasPrefix(strings.Join(args, " "), "stack export") {
			return state, nil
		}

		return cli(ctx, stdin, args...)
	}

	return d
}

func TestStatusRequest(t *testing.T) {
	t.Parallel()

	s, lastRequest := newStatus(t, `{"cluster": "lab", "status": "ok"}`, "0")

	var out bytes.Buffer

	status, err := s.Print(t.Context(), &out, false)
	require.NoError(t, err)
	assert.Zero(t, status)
	assert.Equal(t, "Cluster lab is healthy.\n\nNODE  ROLE  TALOS  SCHEMATIC  KUBELET  API SERVER  ETCD  READY  GPUS\n", out.String())

	call := lastRequest()
	assert.Equal(t, "status --json", call[0])

	var sent request.Status
	require.NoError(t, json.Unmarshal([]byte(call[1]), &sent))
	assert.Equal(t, "lab", sent.Cluster)
	assert.Equal(t, request.Clients{Talosconfig: "the talosconfig", Kubeconfig: "the kubeconfig"}, *sent.Users)
	assert.Equal(t, []string{"os:admin"}, clientRoles(t, sent.Talosconfig), "whatever became of the outputs")
	assert.Equal(t, []string{"os:reader"}, clientRoles(t, sent.Reader))

	_, err = talos.Kubeconfig(sent.Kubeconfig).Reissue(talos.Authority{}, time.Now())
	require.ErrorContains(t, err, "machine secrets", "it is a kubeconfig")
	assert.Len(t, sent.ControlPlanes, 3)
	assert.Len(t, sent.Workers, 3)
	assert.Len(t, sent.Versions, 6)
	assert.NotEmpty(t, sent.Versions[0].Schematic)
	assert.Len(t, sent.GPUs, 1)
	assert.Equal(t, map[string]string{"lab-cp-1": "the configuration"}, sent.Configurations)
	assert.Equal(t, []string{"pve2"}, sent.RebootPending)
	assert.Equal(
		t, request.BackupStatus{Directory: filepath.Join(s.Project, "backups"), Name: "lab-lab", MaxAge: "48h"}, *sent.Backup,
	)

	for problem, offSite := range map[string]*fakeOffSite{"": {}, "the bucket is away": {err: errors.New("the bucket is away")}} {
		s.OffSite = offSite
		_, err = s.Print(t.Context(), &out, false)
		require.NoError(t, err)

		var sent request.Status
		require.NoError(t, json.Unmarshal([]byte(lastRequest()[1]), &sent))
		assert.Equal(t, problem, sent.Backup.OffSite.Problem)
		assert.Equal(t, problem == "", sent.Backup.OffSite.Snapshot == "s3://bucket/lab-lab.age")
	}
}

func TestStatusExitStatus(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		printed, exit string
		want          int
		wantErr       string
	}{
		"something needs care":  {`{"status": "care"}`, "1", StatusAttention, ""},
		"no one answers":        {`{"status": "unknown"}`, "2", StatusUnknown, ""},
		"a talosops that fails": {"", "1", StatusUnknown, "cluster lab: talosops status did not succeed, see above"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s, _ := newStatus(t, test.printed, test.exit)
			status, err := s.Print(t.Context(), io.Discard, true)
			assert.Equal(t, test.want, status)

			if test.wantErr == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.wantErr)
			}
		})
	}
}

func TestDrift(t *testing.T) {
	t.Parallel()

	s, lastRequest := newStatus(
		t, `{"cluster": "lab", "drift": [{"node": "lab-cp-1", "configuration": ["machine.token"]}]}`, "1",
	)
	differences, err := s.Drift(t.Context())
	require.NoError(t, err)
	require.Len(t, differences, 1)
	assert.Equal(t, "status --json", lastRequest()[0])

	text, err := json.Marshal(differences)
	require.NoError(t, err)
	assert.JSONEq(t, `[{"cluster": "lab", "node": "lab-cp-1", "configuration": ["machine.token"]}]`, string(text))
}

func TestStatusOfAnUndeployedStack(t *testing.T) {
	t.Parallel()

	s, _ := newStatus(t, "", "0")
	s.Pulumi = recovery.Pulumi(func(context.Context, io.Reader, ...string) ([]byte, error) {
		return []byte(`{"version": 3, "deployment": null}`), nil
	})

	const missing = "stack lab has no machine secrets of cluster lab: bring it up once, then repeat"

	_, err := s.Print(t.Context(), io.Discard, false)
	require.EqualError(t, err, missing)

	o, err := s.Overview(t.Context())
	require.NoError(t, err)
	assert.Equal(t, request.StatusUnknown, o.Clusters[0].Status)
	assert.Equal(t, []string{"lab: " + missing}, o.Clusters[0].Care.Lines())
}

// TestOverview: what cannot be asked hides nothing of the rest.
func TestOverview(t *testing.T) {
	t.Parallel()

	s, _ := newStatus(t, `{"cluster": "lab", "status": "care", "care": [{"about": "lab-cp-1", "problem": "is away"}]}`, "1")
	o, err := s.Overview(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"lab-cp-1: is away"}, o.Clusters[0].Care.Lines())
	assert.Nil(t, o.Placement, "Proxmox was not asked")
	assert.Equal(t, []string{"creating lab-gpu-1-vm"}, o.Pending)

	_, err = s.Overview(t.Context(), "other")
	require.ErrorContains(t, err, `"other" is not a cluster of stack lab`)
	require.ErrorContains(t, s.CheckClusters([]string{"other"}), `"other" is not a cluster of stack lab`)

	unreadable := s
	unreadable.Pulumi = func(context.Context, io.Reader, ...string) ([]byte, error) {
		return nil, errors.New("no stack named lab")
	}
	o, err = unreadable.Overview(t.Context())
	require.NoError(t, err)
	assert.Equal(t, request.StatusUnknown, o.Clusters[0].Status)
	assert.Contains(t, o.Clusters[0].Care.Lines()[0], "no stack named lab")

	scripttest.Program(t, s.TalosOps, "#!/bin/sh\ncat > /dev/null\necho it crashed >&2\nexit 1\n")
	s.Progress = nil
	o, err = s.Overview(t.Context())
	require.NoError(t, err)
	assert.Contains(t, o.Clusters[0].Care.Lines()[0], "it crashed", "there is no terminal to see it on")
}
