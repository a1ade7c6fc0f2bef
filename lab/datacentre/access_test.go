package datacentre_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

const ann = "ann@pve"

// accounts are ann, who is in the group ops, and two tokens of hers: a separated one and one with her rights.
func accounts(t *testing.T, rules ...datacentre.ACL) *datacentre.Datacentre {
	t.Helper()

	d := open(t, fastOptions(t))
	d.Put(datacentre.Users, ann, datacentre.Config{"password": "password"})
	d.Put(datacentre.Groups, "ops", datacentre.Config{"users": ann})
	d.Put(datacentre.Tokens, ann+"!own", datacentre.Config{"value": "s"})
	d.Put(datacentre.Tokens, ann+"!hers", datacentre.Config{"value": "s", "privsep": "0"})
	d.Put(datacentre.Tokens, root+"!own", datacentre.Config{"value": "s"})
	d.Put(datacentre.Pools, "talos", nil)
	ok(t, d)(d.CreateVM(root, "pve1", 100, basic(datacentre.Config{"pool": "talos"})))

	for _, r := range rules {
		require.NoError(t, d.SetACL(r))
	}

	return d
}

func rule(path, kind, id, role string) datacentre.ACL {
	return datacentre.ACL{Path: path, Kind: kind, ID: id, Role: role, Propagate: true}
}

func TestRules(t *testing.T) {
	t.Parallel()

	const role = "PVEVMUser"

	here := rule("/vms", "user", ann, role)
	here.Propagate = false

	mine, ops := rule("/vms", "user", ann, role), rule("/vms", "group", "ops", role)
	nothing := rule("/vms", "user", ann, "NoAccess")
	token, pool := rule("/vms", "token", ann+"!own", role), rule("/pool/talos", "user", ann, role)
	above, auditor := rule("/", "user", ann, role), rule("/vms", "user", ann, "PVEAuditor")
	deeper, none := rule("/vms/101", "user", ann, "PVEAuditor"), rule("/pool/talos", "user", ann, "NoAccess")
	admin, roots := rule("/vms", "user", ann, "PVEVMAdmin"), rule("/vms", "token", root+"!own", role)

	for name, test := range map[string]struct {
		rules      []datacentre.ACL
		user, path string
		allowed    bool
	}{
		"no one has anything without rules":           {nil, ann, "/vms/100", false},
		"root has everything":                         {nil, root, "/vms/100", true},
		"a rule holds below its path":                 {[]datacentre.ACL{above}, ann, "/vms/100", true},
		"a rule may hold on its path alone":           {[]datacentre.ACL{here}, ann, "/vms/100", false},
		"there it does":                               {[]datacentre.ACL{here}, ann, "/vms", true},
		"a deeper rule replaces one above":            {[]datacentre.ACL{above, deeper}, ann, "/vms/101", false},
		"a group's rule is its members'":              {[]datacentre.ACL{ops}, ann, "/vms/100", true},
		"a user's rule goes before his groups'":       {[]datacentre.ACL{ops, auditor}, ann, "/vms/100", false},
		"NoAccess goes before other roles":            {[]datacentre.ACL{mine, nothing}, ann, "/vms/100", false},
		"a pool's rule is that of its VMs":            {[]datacentre.ACL{pool}, ann, "/vms/100", true},
		"but of no others":                            {[]datacentre.ACL{pool}, ann, "/vms/101", false},
		"NoAccess on the pool takes a VM's away":      {[]datacentre.ACL{mine, none}, ann, "/vms/100", false},
		"a token has its user's rights":               {[]datacentre.ACL{mine}, ann + "!hers", "/vms/100", true},
		"a separated token has not":                   {[]datacentre.ACL{mine}, ann + "!own", "/vms/100", false},
		"nor what its user has not":                   {[]datacentre.ACL{token}, ann + "!own", "/vms/100", false},
		"what both have it has":                       {[]datacentre.ACL{admin, token}, ann + "!own", "/vms/100", true},
		"a separated token of root has its own alone": {nil, root + "!own", "/vms/100", false},
		"and that it has":                             {[]datacentre.ACL{roots}, root + "!own", "/vms/100", true},
		"a token there is not has nothing":            {[]datacentre.ACL{mine}, ann + "!none", "/vms/100", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := accounts(t, test.rules...).Authorise(test.user, test.path, "VM.PowerMgmt")
			if test.allowed {
				require.NoError(t, err)

				return
			}

			require.EqualError(t, err, "Permission check failed ("+test.path+", VM.PowerMgmt)")
		})
	}
}

// TestRightsToDevices are what nobody but root may put into a VM, whatever his privileges, and that no call of the
// recording meets.
func TestRightsToDevices(t *testing.T) {
	t.Parallel()

	d := accounts(t, rule("/", "user", ann, "Administrator"))

	for want, config := range map[string]datacentre.Config{
		"only root can set 'serial0' config for real devices":                                     {"serial0": "/dev/ttyS0"},
		"Parameter verification failed. map[hostpci0:only root@pam can set 'romfile' option]":     {"hostpci0": "mapping=gpu,romfile=x"},
		"Parameter verification failed. map[hookscript:script 'local:snippets/x' does not exist]": {"hookscript": "local:snippets/x"},
	} {
		require.EqualError(t, set(ann+"!hers", 100, config)(d), want)
	}
}

func TestAccounts(t *testing.T) {
	t.Parallel()

	d := accounts(
		t, rule("/vms", "user", ann, "PVEVMUser"), rule("/vms", "token", ann+"!own", "PVEVMUser"),
		rule("/vms", "group", "ops", "PVEVMUser"),
	)

	d.Put(datacentre.Users, "old@pve", datacentre.Config{"expire": "1"})
	d.Put(datacentre.Users, "off@pve", datacentre.Config{"enable": "0"})
	d.Put(datacentre.Tokens, ann+"!old", datacentre.Config{"value": "s", "expire": "1"})
	assert.False(t, d.CheckUser("old@pve"), "expired")
	assert.False(t, d.CheckUser("off@pve"), "disabled")
	assert.False(t, d.CheckToken(ann+"!old", "s"))
	assert.True(t, d.CheckToken(ann+"!own", "s"))

	require.EqualError(
		t, d.PutRole("r", "VM.Monitor"),
		"Parameter verification failed. map[privs:invalid format - invalid privilege 'VM.Monitor']",
	)
	require.EqualError(
		t, d.SetACL(rule("/nowhere", "user", ann, "PVEAdmin")),
		"Parameter verification failed. map[path:invalid ACL path '/nowhere']",
	)
	require.EqualError(t, d.SetACL(rule("/", "user", ann, "none")), "ACL update failed: role 'none' does not exist")

	d.Delete(datacentre.Users, ann)
	assert.Equal(
		t, []datacentre.ACL{rule("/vms", "group", "ops", "PVEVMUser")}, d.ACLs(),
		"a user takes his rules and his tokens' along",
	)
	assert.NotContains(t, d.Records(datacentre.Tokens), ann+"!own")
	d.Delete(datacentre.Groups, "ops")
	assert.Empty(t, d.ACLs())
}
