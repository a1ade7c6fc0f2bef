package components

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"proxmox-talos/components/recorder"
	"proxmox-talos/components/scripts"
	"proxmox-talos/internal/host"
	"proxmox-talos/internal/request"
	"proxmox-talos/internal/spec"
)

// prepArgs are those of a prepared host with a GPU that a machine has.
func prepArgs(facts *host.Facts) ProxmoxHostPrepArgs {
	gpu := spec.GPU{Name: "rtx4000", Host: "pve1", PCI: "0000:01:00", Generation: "ada"}
	args := ProxmoxHostPrepArgs{
		Host: spec.Host{
			Name: "pve1", Path: "hosts[0]", Address: netip.MustParseAddr("127.1.0.11"), SSH: spec.SSH{Port: 2222, User: "root", HostKey: "ssh-ed25519 AAAA"},
			Prep: &spec.Prep{IOMMU: true, Repositories: "keep", Reboot: "never"}, GPUs: []spec.GPU{gpu},
		},
		Needs: host.Needs{Nodes: []spec.Node{{Name: "one-gpu-1", Host: "pve1", GPUs: []spec.GPU{gpu}}}},
		Shell: HostShell{Address: netip.MustParseAddr("127.1.0.11"), SSH: spec.SSH{Port: 2222, User: "root", HostKey: "ssh-ed25519 AAAA"}, PrivateKey: pulumi.String("the-private-key")},
	}
	if facts != nil {
		document, err := json.Marshal(facts)
		if err != nil {
			panic(err)
		}
		args.Answer = HostAnswer{Facts: facts, Document: string(document)}
	}

	return args
}

// fresh is what a host says that was never prepared.
func fresh() *host.Facts {
	facts := recorder.Prepared("pve1")
	facts.Prep = host.Prep{Changes: []string{"/etc/kernel/cmdline", "reboot"}, Pending: []string{"the kernel runs without iommu=pt"}}

	return facts
}

func runPrep(t *testing.T, o recorder.Options, args ProxmoxHostPrepArgs) *recorder.Recorder {
	t.Helper()
	r, err := recorder.Run(o, func(ctx *pulumi.Context) error {
		prep, err := NewProxmoxHostPrep(ctx, "pve1", args)
		if err == nil && args.Needs.UsesGPUs() {
			assert.Equal(t, prep.verify, prep.Ready(), "what GPU machines wait for")
		}

		return err
	})
	require.NoError(t, err)

	return r
}

func TestProxmoxHostPrep(t *testing.T) {
	t.Parallel()
	r := runPrep(t, recorder.Options{Stack: "lab", Facts: map[string]*host.Facts{"pve1": fresh()}}, prepArgs(fresh()))

	require.Equal(t, []string{"pve1-apply"}, r.Names(recorder.RemoteCommand))
	apply := r.Of(recorder.RemoteCommand)["pve1-apply"]
	assert.Equal(t, "pve1", apply.Parent)
	assert.Equal(t, scripts.HostCommand("apply"), apply.Input("create").StringValue())
	assert.Equal(t, scripts.HostCommand("restore"), apply.Input("delete").StringValue())
	assert.True(t, apply.Input("triggers").IsNull(), "a trigger would restore the host before it is prepared again")
	for _, line := range []string{"revision='1'", "host='pve1'", "owner='talos-proxmox/lab'", "gpus='0000:01:00'", "iommu='1'", "arc='default'", "running='1'"} {
		assert.Contains(t, apply.Input("stdin").StringValue(), line+"\n")
	}
	assert.True(t, apply.Input("connection").IsSecret())
	assertPatience(t, apply.Input("connection").SecretValue().Element.ObjectValue())

	require.Equal(t, []string{"pve1-verify"}, r.Names(recorder.LocalCommand))
	verify := r.Of(recorder.LocalCommand)["pve1-verify"]
	assert.Equal(t, []string{"pve1-apply"}, verify.DependsOn())
	assert.Equal(t, "${TALOSOPS:-go run ./cmd/talosops} settle", verify.Input("create").StringValue())
	require.True(t, verify.Input("stdin").IsSecret())
	var request request.Settle
	require.NoError(t, json.Unmarshal([]byte(verify.Input("stdin").SecretValue().Element.StringValue()), &request))
	assert.Equal(t, "the-private-key", request.PrivateKey)
	assert.Equal(t, [][]string{{"0000:01:00"}}, request.Machines)
	assert.Equal(t, "1", request.Revision)
	assert.True(t, request.Required)
	assert.False(t, request.Reboot)

	outputs := r.Outputs("pve1").Mappable()
	assert.Equal(t, true, outputs["rebootRequired"])
	assert.Equal(t, []any{"/etc/kernel/cmdline", "reboot"}, outputs["changedFiles"])
	assert.Contains(t, outputs["report"], "a reboot has to complete: the kernel runs without iommu=pt")
}

func TestProxmoxHostPrepOfAHostThatIsAsWanted(t *testing.T) {
	t.Parallel()
	facts := recorder.Prepared("pve1")
	facts.Prep.Revision = 7
	stale := fresh() // what the command printed when it last ran
	r := runPrep(t, recorder.Options{Facts: map[string]*host.Facts{"pve1": stale}}, prepArgs(facts))

	assert.Contains(t, r.Of(recorder.RemoteCommand)["pve1-apply"].Input("stdin").StringValue(), "revision='7'\n", "the same as the last run's")
	outputs := r.Outputs("pve1").Mappable()
	assert.Equal(t, false, outputs["rebootRequired"], "the facts of the program's run are newer than the command's")
	assert.Equal(t, []any{
		"GPU rtx4000 at 0000:01:00: VGA compatible controller: NVIDIA Corporation AD104GL [RTX 4000 SFF Ada Generation], IOMMU group 12, alone in it, bound to vfio-pci",
	}, outputs["report"])
}

func TestProxmoxHostPrepRebootsWhereThatIsStated(t *testing.T) {
	t.Parallel()
	args := prepArgs(fresh())
	args.Host.Prep = &spec.Prep{IOMMU: true, Repositories: "keep", Reboot: "whenIdle"}
	r := runPrep(t, recorder.Options{}, args)

	require.Equal(t, []string{"pve1-reboot", "pve1-verify"}, r.Names(recorder.LocalCommand))
	assert.Equal(t, []string{"pve1-apply"}, r.Of(recorder.LocalCommand)["pve1-reboot"].DependsOn())
	assert.Equal(t, []string{"pve1-reboot"}, r.Of(recorder.LocalCommand)["pve1-verify"].DependsOn())

	args.Needs = host.Needs{}
	r = runPrep(t, recorder.Options{}, args)
	assert.Equal(t, []string{"pve1-reboot"}, r.Names(recorder.LocalCommand), "no machine has its GPUs")
}

// TestHostsRebootOneAfterTheOther has three hosts, of which the second is never rebooted: only the reboots are in a row.
func TestHostsRebootOneAfterTheOther(t *testing.T) {
	t.Parallel()
	r, err := recorder.Run(recorder.Options{}, func(ctx *pulumi.Context) error {
		var rebooted *ProxmoxHostPrep
		for _, name := range []string{"pve1", "pve2", "pve3"} {
			args := prepArgs(fresh())
			args.Host.Name, args.RebootAfter, args.Needs = name, rebooted, host.Needs{Clusters: []string{"one", "two"}}
			if name != "pve2" {
				args.Host.Prep = &spec.Prep{IOMMU: true, Repositories: "keep", Reboot: "whenIdle"}
			}
			prep, err := NewProxmoxHostPrep(ctx, name, args)
			if err != nil {
				return err
			}
			if name != "pve2" {
				rebooted = prep
			}
		}

		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"pve1-reboot", "pve3-reboot"}, r.Names(recorder.LocalCommand))
	assert.Equal(t, []string{"pve1-apply"}, r.Of(recorder.LocalCommand)["pve1-reboot"].DependsOn())
	assert.ElementsMatch(t, []string{"pve3-apply", "pve1-reboot"}, r.Of(recorder.LocalCommand)["pve3-reboot"].DependsOn())
	assert.Empty(t, r.Of(recorder.RemoteCommand)["pve3-apply"].DependsOn(), "files are changed at the same time")

	var request request.Settle
	require.NoError(t, json.Unmarshal([]byte(r.Of(recorder.LocalCommand)["pve3-reboot"].Input("stdin").SecretValue().Element.StringValue()), &request))
	assert.Contains(t, request.Host.Script, "host='pve3'\n")
	assert.Contains(t, request.Host.Script, "clusters='one two'\n")
	assert.Equal(t, "15m", request.WaitTimeout)
	assert.NotContains(t, r.Of(recorder.RemoteCommand)["pve3-apply"].Input("stdin").StringValue(), "clusters=", "a cluster more changes nothing on a host")
}

func TestProxmoxHostPrepInAPreviewOfAHostThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	r := runPrep(t, recorder.Options{Preview: true}, prepArgs(nil))

	assert.True(t, r.Of(recorder.RemoteCommand)["pve1-apply"].Input("stdin").IsComputed())
	verify := r.Of(recorder.LocalCommand)["pve1-verify"].Input("stdin")
	assert.True(t, verify.IsComputed() || (verify.IsSecret() && verify.SecretValue().Element.IsComputed()) || (verify.IsOutput() && !verify.OutputValue().Known))
}

func TestProxmoxHostPrepRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*ProxmoxHostPrepArgs)
		says   string
	}{
		"nothing to prepare": {func(a *ProxmoxHostPrepArgs) { a.Host.Prep = nil }, "state prep"},
		"no address":         {func(a *ProxmoxHostPrepArgs) { a.Shell.Address = netip.Addr{} }, "no address of host pve1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := prepArgs(fresh())
			test.change(&args)
			r, err := recorder.Run(recorder.Options{}, func(ctx *pulumi.Context) error {
				_, err := NewProxmoxHostPrep(ctx, "pve1", args)

				return err
			})
			require.ErrorContains(t, err, test.says)
			assert.Empty(t, r.Of(ProxmoxHostPrepType))
		})
	}
}
