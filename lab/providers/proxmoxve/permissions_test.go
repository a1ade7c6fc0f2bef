package proxmoxve

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/providers/providertest"
	labserver "talos-proxmox/lab/server"
)

// programInputs returns a VM and the image of its template, as the program registers them for stack lab.
func programInputs(t *testing.T, agentTimeout string) (machine, image object) {
	t.Helper()

	for resource, inputs := range providertest.Registered(t, "../../../stacks/testdata/registered/lab-up.json") {
		switch {
		case resource == typeVirtualMachine+" lab-cp-1-vm":
			machine = fromMap(inputs)
		case strings.HasPrefix(resource, typeDownloadFile) && strings.HasSuffix(resource, "-pve1-local"):
			image = fromMap(inputs)
		}
	}

	delete(image, "decompressionAlgorithm") // the lab's images are not compressed

	return with(machine, object{
		"agent": with(machine["agent"].(object), object{"enabled": true, "timeout": agentTimeout}),
		"clone": with(machine["clone"].(object), object{"vmId": 900.0}),
	}), image
}

// declaration is a resource with its inputs, and those of an update; nil = no update.
type declaration struct {
	token       string
	in, changed object
}

// run makes the calls of an up, a refresh, an up with changes, and a destroy.
func (r testProvider) run(ctx context.Context, program []declaration) error {
	deletions := make([]p.DeleteRequest, 0, len(program))

	for _, s := range program {
		in := r.check(s.token, s.in)

		created, err := r.p.Create(ctx, p.CreateRequest{Urn: urn(s.token), Properties: in})
		if err != nil {
			return err
		}

		read, err := r.p.Read(
			ctx, p.ReadRequest{ID: created.ID, Urn: urn(s.token), Properties: created.Properties, Inputs: in},
		)
		if err != nil {
			return err
		}

		state := created.Properties

		if s.changed != nil {
			next, err := r.p.Update(ctx, p.UpdateRequest{
				ID: created.ID, Urn: urn(s.token), State: read.Properties, Inputs: r.check(s.token, s.changed),
				IgnoreChanges: []string{ignoredSpeed},
			})
			if err != nil {
				return err
			}

			state = next.Properties
		}

		deletions = append(deletions, p.DeleteRequest{ID: created.ID, Urn: urn(s.token), Properties: state})
	}

	for _, deletion := range slices.Backward(deletions) {
		if err := r.p.Delete(ctx, deletion); err != nil {
			return err
		}
	}

	return nil
}

// accounts returns the accounts of a cluster's software.
func accounts() []declaration {
	const user = "talos-one-csi@pve"

	rule := func(path, role, holder, id string) declaration {
		return declaration{typeACL, object{holder: id, "path": path, "roleId": role, "propagate": false}, nil}
	}

	return []declaration{
		{typeRole, object{"roleId": "machines", "privileges": toList(permissions.CSIMachines().Privileges())}, nil},
		{typeRole, object{"roleId": "storage", "privileges": toList(permissions.CSIStorage().Privileges())}, nil},
		{typeUser, object{"userId": user, "comment": "c", "groups": []any{permissions.Group}}, nil},
		{typeToken, object{"userId": user, "tokenName": "kubernetes-1", "comment": "c"}, nil},
		rule("/storage/local-lvm", "storage", "userId", user),
		rule("/storage/local-lvm", "storage", "tokenId", user+"!kubernetes-1"),
		rule("/vms/2000", "machines", "userId", user),
		rule("/vms/2000", "machines", "tokenId", user+"!kubernetes-1"),
	}
}

// shortTimeout is the timeout of the guest agent: nothing runs in the VM that could respond.
const shortTimeout = "20ms"

// runProgram runs the program with changed roles, and returns the first refusal.
func runProgram(
	t *testing.T, change func(*datacentre.Datacentre), more extra, agentTimeout string,
) (refusal, error) {
	t.Helper()

	dc, endpoint := newLab(t)
	addTemplate(t, dc)
	dc.Put(datacentre.Pools, "talos", nil)
	require.NoError(t, labserver.GrantProgram(dc, "secret"))
	change(dc)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	w := startProxy(t, endpoint, cancel)
	r := testProvider{t, Provider(testPoll, nil)}
	require.NoError(t, r.p.Configure(t.Context(), p.ConfigureRequest{Args: property.NewMap(map[string]property.Value{
		"endpoint": property.New(w.endpoint),
		"apiToken": property.New(permissions.Token + "=secret"),
		"insecure": property.New("true"),
	})}))

	machine, image := programInputs(t, agentTimeout)
	disk, ok := machine["disks"].([]any)[0].(object)
	require.True(t, ok)

	changed := with(machine, object{
		"memory": object{"dedicated": 8192.0, "floating": 0.0, "shared": 0.0},
		"disks":  []any{with(disk, object{"size": 30.0})},
	})

	err := r.run(ctx, append(slices.Clone(more.before), []declaration{
		{typeDownloadFile, image, nil}, {typeVirtualMachine, machine, with(changed, more.change)},
	}...))

	if err == nil && more.after != nil {
		err = more.after(ctx, newAPI(apiOptions{
			base: strings.TrimSuffix(w.endpoint, "/") + "/api2/json", token: permissions.Token + "=secret", insecure: true,
		}))
	}

	return w.firstRefusal(), err
}

// extra is what a stack needs an additional role for: a change of its machine, resources that are created before it,
// and what talosops does with it afterwards.
type extra struct {
	change object
	before []declaration
	after  func(ctx context.Context, a *api) error
}

// manageHA has Proxmox' high availability manage the machine.
func manageHA(ctx context.Context, a *api) error {
	const path = "/cluster/ha/resources"

	resource := multiForm{"sid": {"vm:2000"}}

	return cmp.Or(a.call(ctx, http.MethodGet, path, nil, nil), a.call(ctx, http.MethodPost, path, resource, nil))
}

// replicate has talosops copy the machine's disks to another host.
func replicate(ctx context.Context, a *api) error {
	const path = "/cluster/replication"

	job := multiForm{"id": {"2000-0"}, "type": {"local"}, "target": {"pve2"}}

	return cmp.Or(a.call(ctx, http.MethodGet, path, nil, nil), a.call(ctx, http.MethodPost, path, job, nil))
}

// seeFirewall has talosops see whether the data centre's firewall is on.
func seeFirewall(ctx context.Context, a *api) error {
	return a.call(ctx, http.MethodGet, "/cluster/firewall/options", nil, nil)
}

// seeBackupJobs has the program see which machines backup jobs include.
func seeBackupJobs(ctx context.Context, a *api) error {
	return a.call(ctx, http.MethodGet, "/cluster/backup", nil, nil)
}

func extras() map[string]extra {
	gpuName := permissions.Example().Mappings[0]
	gpu := []any{object{"id": "10de:27b0", "node": "pve1", "path": "0000:01:00.0"}}

	stickName := permissions.Example().USBMappings[0]
	stick := []any{object{"id": "10c4:ea60", "node": "pve1"}}

	mapped := extra{
		change: object{
			"hostpcis": []any{object{"device": "hostpci0", "mapping": gpuName, "pcie": true}},
			"usbs":     []any{object{"mapping": stickName}},
		},
		before: []declaration{
			{typeMapping, object{"name": gpuName, "maps": gpu}, object{"name": gpuName, "maps": gpu, "comment": "changed"}},
			{
				typeUSBMapping,
				object{"name": stickName, "maps": stick},
				object{"name": stickName, "maps": stick, "comment": "changed"},
			},
		},
	}

	return map[string]extra{
		"TalosProxmoxDisks": {},
		"TalosProxmoxGPU":   mapped, "TalosProxmoxMappings": mapped,
		"TalosProxmoxAccounts":    {before: accounts()},
		"TalosProxmoxRoles":       {before: accounts()},
		"TalosProxmoxBackup":      {after: seeBackupJobs},
		"TalosProxmoxFirewall":    {after: seeFirewall},
		"TalosProxmoxHA":          {after: manageHA},
		"TalosProxmoxReplication": {after: replicate},
		"TalosProxmoxMove":        {change: object{"nodeName": "pve2", "migrate": true}},
		"TalosProxmoxPool":        {change: object{"poolId": "talos"}},
		"TalosProxmoxStartup":     {change: object{"startup": object{"order": 1.0}}},
	}
}

// commonRolesOnly deletes the roles that only some stacks need.
func commonRolesOnly(dc *datacentre.Datacentre) {
	for _, role := range permissions.Roles() {
		if role.For != "" {
			dc.Delete(datacentre.Roles, role.ID)
		}
	}
}

func TestTheCommonRolesAreEnough(t *testing.T) {
	t.Parallel()

	refused, err := runProgram(t, commonRolesOnly, extra{}, shortTimeout)
	require.NoError(t, err)
	assert.Empty(t, refused)
}

// withoutNeed takes a privilege from a role, or where the role has it on several paths, the role from the need's path;
// other roles with the same need are taken away. The lab keeps volumes of storage classes beside disks, whose role has
// some of their privileges.
func withoutNeed(t *testing.T, dc *datacentre.Datacentre, role permissions.Role, need permissions.Need, rest []string) {
	t.Helper()

	const datastore = "/storage/local-lvm"

	remove := map[string][]string{} // roles by path
	if need.Path == permissions.OnVolumes {
		remove[datastore] = []string{"TalosProxmoxDisks"}
	}

	if len(role.Privileges()) < len(role.Needs) {
		remove[permissions.Example().Paths(need.Path)[0]] = []string{role.ID}
	} else {
		require.NoError(t, dc.PutRole(role.ID, rest...))
	}

	for _, other := range permissions.Roles() {
		isSame := func(n permissions.Need) bool { return n.Path == need.Path && n.Privilege == need.Privilege }
		if other.ID != role.ID && slices.ContainsFunc(other.Needs, isSame) {
			remove[need.Path] = append(remove[need.Path], other.ID)
		}
	}

	for _, rule := range dc.ACLs() {
		if slices.Contains(remove[rule.Path], rule.Role) {
			require.NoError(t, dc.DeleteACL(rule))
		}
	}
}

// TestNoPrivilegeIsSuperfluous removes one privilege at a time: Proxmox then refuses the call in the table, with the
// message in the table.
func TestNoPrivilegeIsSuperfluous(t *testing.T) {
	t.Parallel()

	for i, role := range permissions.Roles() {
		more, known := extras()[role.ID]
		require.Equal(t, i > 0, known, "a role that no test needs: %s", role.ID)

		for _, need := range role.Needs {
			t.Run(fmt.Sprintf("%s without %s on %s", role.ID, need.Privilege, need.Path), func(t *testing.T) {
				t.Parallel()

				rest, agentTimeout := need.Lesser, shortTimeout
				if strings.Contains(need.Refusal, "GuestAgent") { // the refusal ends the wait
					agentTimeout = "10m"
				}

				for _, other := range role.Privileges() {
					if other != need.Privilege {
						rest = append(rest, other)
					}
				}

				refused, err := runProgram(t, func(dc *datacentre.Datacentre) {
					if role.For == "" {
						commonRolesOnly(dc)
					}

					withoutNeed(t, dc, role, need, rest)
				}, more, agentTimeout)

				assert.Equal(t, need.Refusal, refused.reason, "%s: %v", refused.call, err)
				assert.Regexp(
					t, "^"+regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(need.Call), `.+`)+"$", refused.call,
				)
			})
		}
	}
}

func TestRolesForSettingsAreEnough(t *testing.T) {
	t.Parallel()

	for _, role := range permissions.Roles()[1:] {
		t.Run(role.ID, func(t *testing.T) {
			t.Parallel()

			refused, err := runProgram(t, func(*datacentre.Datacentre) {}, extras()[role.ID], shortTimeout)
			assert.Empty(t, refused, "%v", err)
		})
	}
}
