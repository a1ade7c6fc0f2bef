package engine_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve"
	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components"
	"talos-proxmox/internal/permissions"
	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/server"
)

// policyRunner previews plans one after the other on one stack.
type policyRunner struct {
	mu     sync.Mutex
	engine *engine.Engine
	draft  func(*draft)
}

// newPolicyRunner prepares a stack for plans; name decides whether it is a production stack.
func newPolicyRunner(t *testing.T, w *world, name string, policy engine.Policy) *policyRunner {
	t.Helper()

	connection, err := w.lab.Connection()
	require.NoError(t, err)

	target, err := engine.NewTarget(
		name, []byte(w.stack(1, 0).yaml(t)), w.network, connection,
	)
	require.NoError(t, err)

	j := &policyRunner{}
	o := w.options
	o.Dir, o.Stack, o.StackFile, o.Config, o.Policy = t.TempDir(), name, target.File, target.Config, policy
	o.Program = func(ctx *pulumi.Context) error {
		d := &draft{ctx: ctx}
		j.draft(d)

		return d.err
	}

	j.engine, err = engine.New(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(j.engine.Close)

	return j
}

// policyPack returns the path of the built pack.
func policyPack(t testing.TB) string {
	t.Helper()

	policy, err := engine.FindPolicy(filepath.Join(project, ".bin"), "")
	require.NoError(t, err)

	return policy.Pack
}

// policyResult is what the policies report about a plan.
type policyResult struct {
	mandatory, advisory []string // names, sorted
	messages            string
	remediated          []events.EngineEvent
	err                 error
}

// preview returns what the policies report about a plan.
func (j *policyRunner) preview(ctx context.Context, draft func(*draft), opts ...optpreview.Option) policyResult {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.draft = draft
	ch, done := make(chan events.EngineEvent), make(chan policyResult)

	go func() {
		var r policyResult

		for event := range ch {
			if event.PolicyRemediationEvent != nil {
				r.remediated = append(r.remediated, event)
			}

			e := event.PolicyEvent
			if e == nil {
				continue
			}

			r.messages += e.Message + "\n"
			if e.EnforcementLevel == "mandatory" {
				r.mandatory = append(r.mandatory, e.PolicyName)
			} else {
				r.advisory = append(r.advisory, e.PolicyName)
			}
		}

		done <- r
	}()

	_, err := j.engine.Preview(ctx, append(opts, optpreview.EventStreams(ch))...)
	r := <-done
	r.err = err

	for _, names := range []*[]string{&r.mandatory, &r.advisory} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}

	return r
}

func TestPoliciesRefuseBadPlans(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	pack := engine.Policy{Pack: policyPack(t)}
	stacks := map[bool][]*policyRunner{
		false: {newPolicyRunner(t, w, "lab", pack), newPolicyRunner(t, w, "test", pack)},
		true:  {newPolicyRunner(t, w, "prod", pack)},
	}

	t.Run("plans", func(t *testing.T) {
		for i, name := range slices.Sorted(maps.Keys(badPlans())) {
			plan := badPlans()[name]
			j := stacks[plan.production][i%len(stacks[plan.production])]

			t.Run(name, func(t *testing.T) {
				t.Parallel()

				var opts []optpreview.Option

				if plan.config != "" {
					file := filepath.Join(t.TempDir(), "config.json")
					require.NoError(t, os.WriteFile(file, []byte(plan.config), 0o600))

					opts = append(opts, optpreview.PolicyPackConfigs(file))
				}

				r := j.preview(t.Context(), plan.draft, opts...)
				slices.Sort(plan.policies)
				assert.Equal(t, plan.policies, r.mandatory, "%s %v", r.messages, r.err)
				require.ErrorContains(t, r.err, "exit status", "the engine ends the preview")
				assert.Contains(t, r.messages, plan.message)

				for _, secret := range []string{planToken, "hunter2", "947e717a-ab18-4ee2-8123-6adba4f62f9a"} {
					assert.NotContains(t, r.messages, secret)
				}
			})
		}
	})

	fired := map[string]bool{}

	for _, plan := range badPlans() {
		for _, name := range plan.policies {
			fired[name] = true
		}
	}

	page, err := os.ReadFile(filepath.Join(project, "docs", "policies.md"))
	require.NoError(t, err)

	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(line, "## "); ok && strings.TrimSpace(name) != "required-tags" {
			assert.True(t, fired[strings.TrimSpace(name)], "no plan of the catalogue is refused by %s", name)
		}
	}
}

func TestAGoodPlanPassesEveryPolicy(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	j := newPolicyRunner(t, w, "lab", engine.Policy{Pack: policyPack(t)})

	r := j.preview(t.Context(), func(d *draft) {
		d.cp("pve1")
		d.cp("pve2")
		d.cp("pve1")
		d.worker("pve2")
		d.mapping("gpu", "pve1", "pve2")
		d.gpu("pve1", "gpu")
		d.gpu("pve2", "gpu")
		d.other("pve1", asTemplate, vmid(901))
		d.secrets("v1.12")
		d.configuration("c", "10.0.0.1", installer("factory.talos.dev/nocloud-installer/ab:v1.14.4"))
		d.download("debian-13.1.img", "https://example.org/debian.img", checksum)
		d.role(permissions.Roles()[0].Privileges()...)
		d.token(nil)
		d.rule("TalosProxmox", "/vms", &proxmoxve.AclArgs{UserId: pulumi.String("pulumi@pve")})
		d.rule("PVEAuditor", "/", &proxmoxve.AclArgs{TokenId: pulumi.String("pulumi@pve!talos")})
		d.command(
			&local.CommandArgs{
				Create:      pulumi.String("true"),
				Environment: pulumi.StringMap{"DB_PASSWORD": pulumi.ToSecret(pulumi.String("hunter2")).(pulumi.StringOutput)},
			},
		)
	})
	require.NoError(t, r.err, w.output())
	assert.Empty(t, r.messages)
	assert.Empty(t, r.remediated)

	r = j.preview(t.Context(), func(d *draft) {
		d.machine(
			2000, "pve1", nil,
			[]pulumi.ResourceOption{pulumi.Parent(d.component(components.TalosNodeType, "node"))}, nil,
		)
	})
	require.Len(t, r.remediated, 1, "missing tags are added")
	assert.Equal(t, []any{"talos"}, r.remediated[0].PolicyRemediationEvent.After["tags"])
}

// TestStacksOfTheProjectPassEveryPolicy previews them on the lab, with their policy configuration.
func TestStacksOfTheProjectPassEveryPolicy(t *testing.T) {
	t.Parallel()

	// The stacks as delivered; users edit those in the project's folder.
	delivered := filepath.Join(project, "stacks", "testdata")

	needs, err := engine.ReadNeeds(delivered)
	require.NoError(t, err)

	w := openWorld(t, server.Options{Speed: testSpeed, Hosts: 2, HostNames: needs.Hosts, Datastores: needs.Datastores})

	folder, err := filepath.Abs(filepath.Join(project, "policy"))
	require.NoError(t, err)

	for name, policy := range map[string]engine.Policy{
		"lab":  {Pack: policyPack(t)},
		"dev":  {Pack: policyPack(t), Config: filepath.Join(folder, "policy-config.dev.json")},
		"prod": {Pack: policyPack(t), Config: filepath.Join(folder, "policy-config.prod.json")},

		"hardened": {Pack: policyPack(t)}, // its stack file says that it is a production stack
		"edge":     {Pack: policyPack(t)},
	} {
		file, err := engine.ReadStack(delivered, name)
		require.NoError(t, err)

		connection, err := w.lab.Connection()
		require.NoError(t, err)

		target, err := engine.NewTarget(name, file, w.network, connection)
		require.NoError(t, err)

		o := w.options
		o.Dir = t.TempDir()
		o.Stack = name
		o.StackFile = target.File
		o.Config = target.Config
		o.Policy = policy
		o.Program = nil

		e, err := engine.New(t.Context(), o)
		require.NoError(t, err)
		t.Cleanup(e.Close)

		r := (&policyRunner{engine: e}).preview(t.Context(), nil)
		require.NoError(t, r.err, w.output())
		assert.Empty(t, r.messages, name)
		assert.Empty(t, r.remediated, name)
	}
}

func TestMisspeltNamesInTheConfigurationOfPoliciesAreRefused(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"host-capcity": "disabled", "host-capacity": {"ratio": 1}}`), 0o600))

	_, err := engine.FindPolicy(filepath.Join(project, ".bin"), file)
	require.EqualError(t, err, file+": host-capacity.ratio: the policy has no such option; choose from coreRatio, enforcementLevel, hosts, memoryRatio, storageRatio\n"+
		file+": host-capcity: there is no such policy; did you mean host-capacity?")

	_, err = engine.FindPolicy(filepath.Join(project, ".bin"), file+"x")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestPoliciesJudgeUpdates has a command print what another command gets as its password.
func TestPoliciesJudgeUpdates(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	j := newPolicyRunner(t, w, "lab", engine.Policy{Pack: policyPack(t)})
	file := filepath.Join(t.TempDir(), "made")

	leak := func(d *draft) {
		first, err := local.NewCommand(d.ctx, "first", &local.CommandArgs{Create: pulumi.String("printf hunter2")})
		d.record(err)

		if d.err == nil {
			d.command(
				&local.CommandArgs{
					Create: pulumi.String("touch '" + file + "'"), Environment: pulumi.StringMap{"DB_PASSWORD": first.Stdout},
				},
			)
		}
	}

	r := j.preview(t.Context(), leak)
	require.NoError(t, r.err, w.output())
	assert.Empty(t, r.messages, "the preview does not know")

	require.Error(t, j.engine.Up(t.Context()))
	assert.Contains(t, w.output(), "command: environment.DB_PASSWORD has the name of a secret and is not marked secret")
	assert.NotRegexp(t, "(?i)password.*hunter2", w.output())
	assert.NoFileExists(t, file, "refused before it runs")

	// The preview of an update refuses what the whole plan shows, before anything is created.
	j.draft = func(d *draft) {
		d.command(&local.CommandArgs{Create: pulumi.String("touch '" + file + "'")})
		d.cp("pve1")
		d.cp("pve2")
	}
	require.Error(t, j.engine.Up(t.Context()))
	assert.Contains(t, w.output(), "control-plane-count")
	assert.NoFileExists(t, file)
}
