package proxmoxve

import (
	"context"
	"fmt"
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

// programInputs are a VM and the image of its template, as the program registers them for stack lab.
func programInputs(t *testing.T, patience string) (machine, image object) {
	t.Helper()

	for resource, inputs := range providertest.Registered(t, "../../../stacks/testdata/registered/lab-up.json") {
		switch {
		case resource == typeVirtualMachine+" lab-cp-1-vm":
			machine = fromMap(inputs)
		case strings.HasPrefix(resource, typeDownloadFile) && strings.HasSuffix(resource, "-pve1-local"):
			image = fromMap(inputs)
		}
	}

	delete(image, "decompressionAlgorithm") // the lab's fetcher gives plain images

	return with(machine, object{
		"agent": with(machine["agent"].(object), object{"enabled": true, "timeout": patience}),
		"clone": with(machine["clone"].(object), object{"vmId": 900.0}),
	}), image
}

// program drives the provider as an up, a refresh, a second up with changes and a destroy do.
type program struct {
	t *testing.T
	p p.Provider
}

func (d program) inputs(token string, in object) property.Map {
	d.t.Helper()

	resp, err := d.p.Check(
		d.t.Context(), p.CheckRequest{Urn: urn(token), Inputs: toProperties(in)},
	)
	require.NoError(d.t, err)
	require.Empty(d.t, resp.Failures)

	return resp.Inputs
}

func (d program) run(ctx context.Context, machine, image, changed object) error {
	mapped := func() error { return nil }

	if _, accounts := changed[accountsKey]; accounts {
		delete(changed, accountsKey)

		if err := d.accounts(ctx); err != nil {
			return err
		}
	}

	if _, gpu := changed["hostpcis"]; gpu {
		made, err := d.mapGPU(ctx)
		if err != nil {
			return err
		}

		mapped = func() error {
			return d.p.Delete(ctx, p.DeleteRequest{ID: made.ID, Urn: urn(typeMapping), Properties: made.Properties})
		}
	}

	file, err := d.p.Create(
		ctx, p.CreateRequest{Urn: urn(typeDownloadFile), Properties: d.inputs(typeDownloadFile, image)},
	)
	if err != nil {
		return err
	}

	in := d.inputs(typeVirtualMachine, machine)

	vm, err := d.p.Create(ctx, p.CreateRequest{Urn: urn(typeVirtualMachine), Properties: in})
	if err != nil {
		return err
	}

	read, err := d.p.Read(
		ctx, p.ReadRequest{ID: vm.ID, Urn: urn(typeVirtualMachine), Properties: vm.Properties, Inputs: in},
	)
	if err != nil {
		return err
	}

	next, err := d.p.Update(ctx, p.UpdateRequest{
		ID:            vm.ID,
		Urn:           urn(typeVirtualMachine),
		State:         read.Properties,
		Inputs:        d.inputs(typeVirtualMachine, changed),
		IgnoreChanges: []string{ignoredSpeed},
	})
	if err != nil {
		return err
	}

	if err := d.p.Delete(
		ctx, p.DeleteRequest{ID: vm.ID, Urn: urn(typeVirtualMachine), Properties: next.Properties},
	); err != nil {
		return err
	}

	if err := d.p.Delete(
		ctx, p.DeleteRequest{ID: file.ID, Urn: urn(typeDownloadFile), Properties: file.Properties},
	); err != nil {
		return err
	}

	return mapped()
}

// mapGPU makes the mapping of the host's GPU, as the program does before a machine that has it.
func (d program) mapGPU(ctx context.Context) (p.CreateResponse, error) {
	in := d.inputs(
		typeMapping, object{"name": "gpu", "maps": []any{object{"id": "10de:27b0", "node": "pve1", "path": "0000:01:00.0"}}},
	)

	made, err := d.p.Create(ctx, p.CreateRequest{Urn: urn(typeMapping), Properties: in})
	if err != nil {
		return made, err
	}

	_, err = d.p.Read(ctx, p.ReadRequest{ID: made.ID, Urn: urn(typeMapping), Properties: made.Properties, Inputs: in})

	return made, err
}

// accountsKey says that the program makes accounts for the software of a cluster.
const accountsKey = "accounts"

// accounts makes and deletes what the software of a cluster gets, in the program's order.
func (d program) accounts(ctx context.Context) error {
	type made struct {
		token string
		p.CreateResponse
	}

	var all []made

	const user = "talos-one-csi@pve"

	rule := func(path, role string, holder object) object {
		return with(holder, object{"path": path, "roleId": role, "propagate": false})
	}

	for _, one := range []struct {
		token string
		in    object
	}{
		{typeRole, object{"roleId": "machines", "privileges": toList(permissions.CSIMachines().Privileges())}},
		{typeRole, object{"roleId": "storage", "privileges": toList(permissions.CSIStorage().Privileges())}},
		{typeUser, object{"userId": user, "comment": "c", "groups": []any{permissions.Group}}},
		{typeToken, object{"userId": user, "tokenName": "kubernetes-1", "comment": "c"}},
		{typeACL, rule("/storage/local-lvm", "storage", object{"userId": user})},
		{typeACL, rule("/storage/local-lvm", "storage", object{"tokenId": user + "!kubernetes-1"})},
		{typeACL, rule("/vms/2000", "machines", object{"userId": user})},
		{typeACL, rule("/vms/2000", "machines", object{"tokenId": user + "!kubernetes-1"})},
	} {
		in := d.inputs(one.token, one.in)

		created, err := d.p.Create(ctx, p.CreateRequest{Urn: urn(one.token), Properties: in})
		if err != nil {
			return err
		}

		read := p.ReadRequest{ID: created.ID, Urn: urn(one.token), Properties: created.Properties, Inputs: in}
		if _, err := d.p.Read(ctx, read); err != nil {
			return err
		}

		all = append(all, made{one.token, created})
	}

	slices.Reverse(all)

	for _, one := range all {
		gone := p.DeleteRequest{ID: one.ID, Urn: urn(one.token), Properties: one.Properties}
		if err := d.p.Delete(ctx, gone); err != nil {
			return err
		}
	}

	return nil
}

// briefly is how long the agent is waited for: nothing runs in the VM that could answer.
const briefly = "20ms"

// attempt runs the program with the roles as they are after the change, and returns the first refusal.
func attempt(
	t *testing.T, change func(*datacentre.Datacentre), alter func(object) object, patience string,
) (refusal, error) {
	t.Helper()

	dc, endpoint := newLab(t)
	addTemplate(t, dc)
	dc.Put(datacentre.Pools, "talos", nil)
	require.NoError(t, labserver.GrantProgram(dc, "secret"))
	change(dc)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	w := watch(t, endpoint, cancel)
	d := program{t, Provider(testPoll)}
	require.NoError(t, d.p.Configure(t.Context(), p.ConfigureRequest{Args: property.NewMap(map[string]property.Value{
		"endpoint": property.New(w.endpoint),
		"apiToken": property.New(permissions.Token + "=secret"),
		"insecure": property.New("true"),
	})}))

	machine, image := programInputs(t, patience)
	disk, ok := machine["disks"].([]any)[0].(object)
	require.True(t, ok)

	changed := alter(with(machine, object{
		"memory": object{"dedicated": 8192.0, "floating": 0.0, "shared": 0.0},
		"disks":  []any{with(disk, object{"size": 30.0})},
	}))

	err := d.run(ctx, machine, image, changed)

	return w.seen(), err
}

func unchanged(in object) object { return in }

// extras are what a stack states that needs one of the roles beside the main one.
func extras() map[string]func(object) object {
	return map[string]func(object) object{
		"TalosProxmoxGPU": func(in object) object {
			return with(in, object{"hostpcis": []any{object{"device": "hostpci0", "mapping": "gpu", "pcie": true}}})
		},
		"TalosProxmoxAccounts": func(in object) object { return with(in, object{accountsKey: true}) },
		"TalosProxmoxRoles":    func(in object) object { return with(in, object{accountsKey: true}) },
		"TalosProxmoxMove":     func(in object) object { return with(in, object{"nodeName": "pve2", "migrate": true}) },
		"TalosProxmoxPool":     func(in object) object { return with(in, object{"poolId": "talos"}) },
		"TalosProxmoxStartup":  func(in object) object { return with(in, object{"startup": object{"order": 1.0}}) },
	}
}

// mainRoleOnly takes the other roles away.
func mainRoleOnly(dc *datacentre.Datacentre) {
	for _, role := range permissions.Roles()[1:] {
		dc.Delete(datacentre.Roles, role.ID)
	}
}

func TestTheMainRoleIsEnough(t *testing.T) {
	t.Parallel()

	seen, err := attempt(t, mainRoleOnly, unchanged, briefly)
	require.NoError(t, err)
	assert.Empty(t, seen)
}

// TestNoPrivilegeIsSuperfluous takes one privilege away at a time: the call that the table names is then refused in the
// table's words.
func TestNoPrivilegeIsSuperfluous(t *testing.T) {
	t.Parallel()

	for i, role := range permissions.Roles() {
		alter := unchanged
		if i > 0 {
			alter = extras()[role.ID]
			require.NotNil(t, alter, "a role that no test needs: %s", role.ID)
		}

		for _, need := range role.Needs {
			t.Run(fmt.Sprintf("%s without %s", role.ID, need.Privilege), func(t *testing.T) {
				t.Parallel()

				rest, patience := need.Lesser, briefly
				if strings.Contains(need.Refusal, "GuestAgent") { // the refusal ends the wait
					patience = "10m"
				}

				for _, other := range role.Privileges() {
					if other != need.Privilege {
						rest = append(rest, other)
					}
				}

				seen, err := attempt(t, func(dc *datacentre.Datacentre) {
					if i == 0 {
						mainRoleOnly(dc)
					}

					require.NoError(t, dc.PutRole(role.ID, rest...))
				}, alter, patience)

				assert.Equal(t, need.Refusal, seen.reason, "%s: %v", seen.call, err)
				assert.Regexp(
					t, "^"+regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(need.Call), `.+`)+"$", seen.call,
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

			seen, err := attempt(t, func(*datacentre.Datacentre) {}, extras()[role.ID], briefly)
			assert.Empty(t, seen, "%v", err)
		})
	}
}
