package datacentre_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

const ann = "ann@pve"

// openWithAccounts has user ann in group ops, with two tokens: "own" with privilege separation, "hers" without.
func openWithAccounts(t *testing.T, rules ...datacentre.ACL) *datacentre.Datacentre {
	t.Helper()

	d := open(t, fastOptions(t))
	d.Put(datacentre.Users, ann, datacentre.Config{"password": "password"})
	d.Put(datacentre.Groups, "ops", datacentre.Config{"users": ann})
	d.Put(datacentre.Tokens, ann+"!own", datacentre.Config{"value": "s"})
	d.Put(datacentre.Tokens, ann+"!hers", datacentre.Config{"value": "s", "privsep": "0"})
	d.Put(datacentre.Tokens, root+"!own", datacentre.Config{"value": "s"})
	d.Put(datacentre.Pools, "talos", nil)
	requireOK(t, d)(d.CreateVM(root, "pve1", 100, basicVM(datacentre.Config{"pool": "talos"})))

	for _, r := range rules {
		require.NoError(t, d.SetACL(r))
	}

	return d
}

func acl(path, kind, id, role string) datacentre.ACL {
	return datacentre.ACL{Path: path, Kind: kind, ID: id, Role: role, Propagate: true}
}

func TestACLs(t *testing.T) {
	t.Parallel()

	const role = "PVEVMUser"

	here := acl("/vms", "user", ann, role)
	here.Propagate = false

	mine, ops := acl("/vms", "user", ann, role), acl("/vms", "group", "ops", role)
	nothing := acl("/vms", "user", ann, "NoAccess")
	token, pool := acl("/vms", "token", ann+"!own", role), acl("/pool/talos", "user", ann, role)
	above, auditor := acl("/", "user", ann, role), acl("/vms", "user", ann, "PVEAuditor")
	deeper, none := acl("/vms/101", "user", ann, "PVEAuditor"), acl("/pool/talos", "user", ann, "NoAccess")
	admin, roots := acl("/vms", "user", ann, "PVEVMAdmin"), acl("/vms", "token", root+"!own", role)

	for name, test := range map[string]struct {
		rules      []datacentre.ACL
		user, path string
		allowed    bool
	}{
		"nothing is allowed without an ACL":            {nil, ann, "/vms/100", false},
		"root is allowed everything":                   {nil, root, "/vms/100", true},
		"an ACL applies below its path":                {[]datacentre.ACL{above}, ann, "/vms/100", true},
		"without propagation it does not":              {[]datacentre.ACL{here}, ann, "/vms/100", false},
		"but on its own path":                          {[]datacentre.ACL{here}, ann, "/vms", true},
		"a deeper ACL replaces one above":              {[]datacentre.ACL{above, deeper}, ann, "/vms/101", false},
		"a group's ACL applies to its members":         {[]datacentre.ACL{ops}, ann, "/vms/100", true},
		"a user's ACL replaces those of groups":        {[]datacentre.ACL{ops, auditor}, ann, "/vms/100", false},
		"NoAccess excludes other roles":                {[]datacentre.ACL{mine, nothing}, ann, "/vms/100", false},
		"a pool's ACL applies to its VMs":              {[]datacentre.ACL{pool}, ann, "/vms/100", true},
		"but not to others":                            {[]datacentre.ACL{pool}, ann, "/vms/101", false},
		"NoAccess on the pool excludes the VM's roles": {[]datacentre.ACL{mine, none}, ann, "/vms/100", false},
		"a token has its user's privileges":            {[]datacentre.ACL{mine}, ann + "!hers", "/vms/100", true},
		"a separated token does not":                   {[]datacentre.ACL{mine}, ann + "!own", "/vms/100", false},
		"nor what its user lacks":                      {[]datacentre.ACL{token}, ann + "!own", "/vms/100", false},
		"it has what both have":                        {[]datacentre.ACL{admin, token}, ann + "!own", "/vms/100", true},
		"a separated token of root has only its own":   {nil, root + "!own", "/vms/100", false},
		"and it has those":                             {[]datacentre.ACL{roots}, root + "!own", "/vms/100", true},
		"an unknown token has nothing":                 {[]datacentre.ACL{mine}, ann + "!none", "/vms/100", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := openWithAccounts(t, test.rules...).Authorise(test.user, test.path, "VM.PowerMgmt")
			if test.allowed {
				require.NoError(t, err)

				return
			}

			require.EqualError(t, err, "Permission check failed ("+test.path+", VM.PowerMgmt)")
		})
	}
}

// TestRootOnlyDevices tries what only root may configure, whatever the caller's privileges, and no call of the
// recording covers.
func TestRootOnlyDevices(t *testing.T) {
	t.Parallel()

	d := openWithAccounts(t, acl("/", "user", ann, "Administrator"))

	for want, config := range map[string]datacentre.Config{
		"only root can set 'affinity' config":                                                     {"affinity": "0-3"},
		"only root can set 'hugepages' config":                                                    {"hugepages": "2"},
		"only root can set 'serial0' config for real devices":                                     {"serial0": "/dev/ttyS0"},
		"Parameter verification failed. map[hostpci0:only root@pam can set 'romfile' option]":     {"hostpci0": "mapping=gpu,romfile=x"},
		"Parameter verification failed. map[hookscript:script 'local:snippets/x' does not exist]": {"hookscript": "local:snippets/x"},
	} {
		require.EqualError(t, set(ann+"!hers", 100, config)(d), want)
	}
}

func TestAccounts(t *testing.T) {
	t.Parallel()

	d := openWithAccounts(
		t, acl("/vms", "user", ann, "PVEVMUser"), acl("/vms", "token", ann+"!own", "PVEVMUser"),
		acl("/vms", "group", "ops", "PVEVMUser"),
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
		t, d.SetACL(acl("/nowhere", "user", ann, "PVEAdmin")),
		"Parameter verification failed. map[path:invalid ACL path '/nowhere']",
	)
	require.EqualError(t, d.SetACL(acl("/", "user", ann, "none")), "ACL update failed: role 'none' does not exist")

	d.Delete(datacentre.Users, ann)
	assert.Equal(
		t, []datacentre.ACL{acl("/vms", "group", "ops", "PVEVMUser")}, d.ACLs(),
		"a user's ACLs and those of their tokens are deleted too",
	)
	assert.NotContains(t, d.Records(datacentre.Tokens), ann+"!own")
	d.Delete(datacentre.Groups, "ops")
	assert.Empty(t, d.ACLs())
}
