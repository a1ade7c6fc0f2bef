package components

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
)

// prepArgs returns the arguments of a host with a GPU that a machine uses.
func prepArgs(facts *hostfacts.Facts) ProxmoxHostPrepArgs {
	args := ProxmoxHostPrepArgs{
		Host: "pve1", GPUs: []HostGPU{{Name: "rtx4000", PCI: "0000:01:00"}}, Machines: [][]string{{"0000:01:00"}},
		Shell: HostShell{
			Address: netip.MustParseAddr("127.1.0.11"), Port: 2222, HostKey: "ssh-ed25519 AAAA", PrivateKey: pulumi.String("the-private-key"),
		},
	}

	if facts != nil {
		document, err := json.Marshal(facts)
		if err != nil {
			panic(err)
		}

		args.Facts = pulumi.String(document)
	}

	return args
}

// unpreparedFacts are the facts of a host that was never prepared.
func unpreparedFacts() *hostfacts.Facts {
	facts := enginetest.PreparedHost("pve1")
	facts.Prep = hostfacts.Prep{
		Changes: []string{"/etc/kernel/cmdline", "reboot"}, Pending: []string{"the kernel runs without iommu=pt"},
	}

	return facts
}

func registerPrep(t *testing.T, o enginetest.Options, args ProxmoxHostPrepArgs) *enginetest.Recorder {
	t.Helper()

	r, err := enginetest.Run(o, func(ctx *pulumi.Context) error {
		_, err := NewProxmoxHostPrep(ctx, "pve1", args)

		return err
	})
	require.NoError(t, err)

	return r
}

func TestProxmoxHostPrep(t *testing.T) {
	t.Parallel()

	facts := map[string]*hostfacts.Facts{"pve1": unpreparedFacts()}
	r := registerPrep(t, enginetest.Options{Stack: "lab", Facts: facts}, prepArgs(unpreparedFacts()))

	apply := r.ByType(tokens.RemoteCommand)["pve1-apply"]
	assert.True(t, apply.Input("triggers").IsNull(), "a trigger would restore the host before it is prepared again")

	for _, line := range []string{
		"revision='1'", "host='pve1'", "owner='talos-proxmox/lab'", "gpus='0000:01:00'", "iommu='1'", "arc='default'",
		"running='1'",
	} {
		assert.Contains(t, apply.Input("stdin").StringValue(), line+"\n")
	}

	assert.True(t, apply.Input("connection").IsSecret())
	assertDialLimits(t, apply.Input("connection").SecretValue().Element.ObjectValue())

	request := enginetest.RequestOf[request.Settle](t, r.ByType(tokens.LocalCommand)["pve1-verify"])
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

func TestProxmoxHostPrepOfAPreparedHost(t *testing.T) {
	t.Parallel()

	facts := enginetest.PreparedHost("pve1")
	facts.Prep.Revision = 7
	stale := unpreparedFacts() // from the command's last run
	r := registerPrep(t, enginetest.Options{Facts: map[string]*hostfacts.Facts{"pve1": stale}}, prepArgs(facts))

	assert.Contains(
		t, r.ByType(tokens.RemoteCommand)["pve1-apply"].Input("stdin").StringValue(), "revision='7'\n",
		"the same as the last run's",
	)
	outputs := r.Outputs("pve1").Mappable()
	assert.Equal(t, false, outputs["rebootRequired"], "the facts of the program's run are newer than the command's")
	assert.Equal(t, []any{
		"GPU rtx4000 at 0000:01:00: VGA compatible controller: NVIDIA Corporation AD104GL [RTX 4000 SFF Ada Generation], IOMMU group 12, alone in it, bound to vfio-pci",
	}, outputs["report"])
}

// TestProxmoxHostPrepRebootsOneHostAtATime has three hosts, of which the second is never rebooted. Only the reboots are
// serialized.
func TestProxmoxHostPrepRebootsOneHostAtATime(t *testing.T) {
	t.Parallel()

	r, err := enginetest.Run(enginetest.Options{}, func(ctx *pulumi.Context) error {
		var rebooted pulumi.StringInput

		for _, name := range []string{"pve1", "pve2", "pve3"} {
			args := prepArgs(unpreparedFacts())

			args.Host, args.RebootAfter, args.Machines, args.Clusters = name, rebooted, nil, []string{"one", "two"}
			if name != "pve2" {
				args.Reboot = RebootWhenIdle
			}

			prep, err := NewProxmoxHostPrep(ctx, name, args)
			if err != nil {
				return err
			}

			if name != "pve2" {
				rebooted = prep.Settled
			}
		}

		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"pve1-reboot", "pve3-reboot"}, r.Names(tokens.LocalCommand))
	assert.Equal(t, []string{"pve1-apply"}, r.ByType(tokens.LocalCommand)["pve1-reboot"].DependsOn())
	assert.ElementsMatch(
		t, []string{"pve3-apply", "pve1-reboot"}, r.ByType(tokens.LocalCommand)["pve3-reboot"].DependsOn(),
	)
	assert.Empty(t, r.ByType(tokens.RemoteCommand)["pve3-apply"].DependsOn(), "files are changed in parallel")

	request := enginetest.RequestOf[request.Settle](t, r.ByType(tokens.LocalCommand)["pve3-reboot"])
	assert.Contains(t, request.Host.Parameters, "host='pve3'\n")
	assert.Contains(t, request.Host.Parameters, "clusters='one two'\n")
	assert.Equal(t, "15m", request.WaitTimeout)
	assert.NotContains(
		t, r.ByType(tokens.RemoteCommand)["pve3-apply"].Input("stdin").StringValue(), "clusters=",
		"another cluster changes nothing on a host",
	)
}

func TestProxmoxHostPrepQueriesFacts(t *testing.T) {
	t.Parallel()

	facts := enginetest.PreparedHost("pve1")
	facts.Prep.Revision = 7
	args := prepArgs(nil)
	r := registerPrep(t, enginetest.Options{Facts: map[string]*hostfacts.Facts{"pve1": facts}}, args)
	assert.Contains(t, r.ByType(tokens.RemoteCommand)["pve1-apply"].Input("stdin").StringValue(), "revision='7'\n")
	require.Len(t, r.Calls(enginetest.LocalRun), 1)

	silent := map[string]*hostfacts.Facts{"pve1": nil}
	r = registerPrep(t, enginetest.Options{Preview: true, Facts: silent}, args)
	assert.True(t, r.ByType(tokens.RemoteCommand)["pve1-apply"].Input("stdin").IsComputed())
	assert.Contains(
		t, r.Warnings()[0], "pve1 cannot be queried, so that this preview does not know what will change on it: ",
	)

	_, err := enginetest.Run(enginetest.Options{Facts: silent}, func(ctx *pulumi.Context) error {
		_, err := NewProxmoxHostPrep(ctx, "pve1", args)

		return err
	})
	require.ErrorContains(t, err, "pve1 cannot be queried: ")
}

func TestProxmoxHostPrepPreviewOfAnUnreachableHost(t *testing.T) {
	t.Parallel()

	args := prepArgs(nil)
	args.Facts = unknownString()
	r := registerPrep(t, enginetest.Options{Preview: true}, args)

	assert.True(t, r.ByType(tokens.RemoteCommand)["pve1-apply"].Input("stdin").IsComputed())
	verify := r.ByType(tokens.LocalCommand)["pve1-verify"].Input("stdin")
	assert.True(
		t,
		verify.IsComputed() || (verify.IsSecret() && verify.SecretValue().Element.IsComputed()) || (verify.IsOutput() &&
			!verify.OutputValue().Known),
	)
}

func TestProxmoxHostPrepRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()

	args := func() ProxmoxHostPrepArgs { return prepArgs(unpreparedFacts()) }
	assertRefused(t, args, NewProxmoxHostPrep, map[string]invalidCase[ProxmoxHostPrepArgs]{
		"no host":    {func(a *ProxmoxHostPrepArgs) { a.Host = "" }, "host: is missing; set the Proxmox host"},
		"no address": {func(a *ProxmoxHostPrepArgs) { a.Shell.Address = netip.Addr{} }, "shell.address: is missing; set the host's, such as 10.0.0.2"},
		"a cache of less than nothing": {
			func(a *ProxmoxHostPrepArgs) { a.ZFSArcMaxGiB = new(-1.0) }, "zfsArcMaxGiB: -1 is less than ZFS accepts (64 MiB)",
		},
		"everything at once": {
			func(a *ProxmoxHostPrepArgs) { a.Repositories, a.Reboot = "all", "now" },
			"repositories: \"all\" is none of keep, no-subscription and enterprise; choose one\nreboot: \"now\" is neither never nor whenIdle; choose one",
		},
	})
}
