package datacentre_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

const ann = "ann@pve"

// accounts are ann, who is in the group ops, and two tokens of hers: a separated one and one with her rights.
func accounts(t *testing.T, rules ...datacentre.ACL) *datacentre.Datacentre {
	t.Helper()

	d := open(t, fastOptions())
	d.AddUser(ann, "password")
	d.PutGroup(datacentre.Group{ID: "ops", Users: []string{ann}})
	d.PutToken(datacentre.Token{ID: ann + "!own", Secret: "s", Separated: true})
	d.PutToken(datacentre.Token{ID: ann + "!hers", Secret: "s"})
	d.PutToken(datacentre.Token{ID: root + "!own", Secret: "s", Separated: true})
	require.NoError(t, d.AddPool(datacentre.Pool{ID: "talos", Storages: []string{"local"}}))
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

	here := rule("/vms", "user", ann, "PVEVMUser")
	here.Propagate = false

	for name, test := range map[string]struct {
		rules   []datacentre.ACL
		user    string
		path    string
		allowed bool
	}{
		"no one has anything without rules": {nil, ann, "/vms/100", false},
		"root has everything":               {nil, root, "/vms/100", true},
		"a rule holds below its path": {
			[]datacentre.ACL{rule("/", "user", ann, "PVEVMUser")}, ann, "/vms/100", true,
		},
		"a rule may hold on its path alone": {[]datacentre.ACL{here}, ann, "/vms/100", false},
		"there it does":                     {[]datacentre.ACL{here}, ann, "/vms", true},
		"a deeper rule replaces one above": {
			[]datacentre.ACL{rule("/", "user", ann, "PVEVMUser"), rule("/vms/101", "user", ann, "PVEAuditor")},
			ann, "/vms/101",
			false,
		},
		"a group's rule is its members'": {
			[]datacentre.ACL{rule("/vms", "group", "ops", "PVEVMUser")}, ann, "/vms/100", true,
		},
		"a user's rule goes before his groups'": {
			[]datacentre.ACL{rule("/vms", "group", "ops", "PVEVMUser"), rule("/vms", "user", ann, "PVEAuditor")},
			ann,
			"/vms/100", false,
		},
		"NoAccess goes before other roles": {
			[]datacentre.ACL{rule("/vms", "user", ann, "PVEVMUser"), rule("/vms", "user", ann, "NoAccess")},
			ann, "/vms/100",
			false,
		},
		"a pool's rule is that of its VMs": {
			[]datacentre.ACL{rule("/pool/talos", "user", ann, "PVEVMUser")}, ann, "/vms/100", true,
		},
		"but of no others": {
			[]datacentre.ACL{rule("/pool/talos", "user", ann, "PVEVMUser")}, ann, "/vms/101", false,
		},
		"NoAccess on the pool takes a VM's away": {
			[]datacentre.ACL{rule("/vms", "user", ann, "PVEVMUser"), rule("/pool/talos", "user", ann, "NoAccess")},
			ann,
			"/vms/100", false,
		},
		"a token has its user's rights": {
			[]datacentre.ACL{rule("/vms", "user", ann, "PVEVMUser")}, ann + "!hers", "/vms/100", true,
		},
		"a separated token has not": {
			[]datacentre.ACL{rule("/vms", "user", ann, "PVEVMUser")}, ann + "!own", "/vms/100", false,
		},
		"nor what its user has not": {
			[]datacentre.ACL{rule("/vms", "token", ann+"!own", "PVEVMUser")}, ann + "!own", "/vms/100", false,
		},
		"what both have it has": {
			[]datacentre.ACL{rule("/vms", "user", ann, "PVEVMAdmin"), rule("/vms", "token", ann+"!own", "PVEVMUser")},
			ann + "!own", "/vms/100", true,
		},
		"a separated token of root has its own alone": {nil, root + "!own", "/vms/100", false},
		"and that it has": {
			[]datacentre.ACL{rule("/vms", "token", root+"!own", "PVEVMUser")}, root + "!own", "/vms/100", true,
		},
		"a token there is not has nothing": {
			[]datacentre.ACL{rule("/vms", "user", ann, "PVEVMUser")}, ann + "!none", "/vms/100", false,
		},
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

func TestBuiltInRoles(t *testing.T) {
	t.Parallel()

	roles := map[string][]string{}

	for _, r := range open(t, fastOptions()).Roles() {
		require.True(t, r.Special)
		roles[r.ID] = r.Privileges
	}

	assert.Len(t, roles, 17)
	assert.Len(t, roles["Administrator"], 47)
	assert.Equal(t, datacentre.Privileges(), roles["Administrator"])
	assert.Equal(t, []string{"VM.Audit", "VM.Clone"}, roles["PVETemplateUser"])
	assert.Equal(t, []string{"Datastore.AllocateSpace", "Datastore.Audit"}, roles["PVEDatastoreUser"])
	assert.Equal(t, []string{"SDN.Audit", "SDN.Use"}, roles["PVESDNUser"])
	assert.Equal(t, []string{"Mapping.Audit", "Mapping.Use"}, roles["PVEMappingUser"])
	assert.Equal(
		t,
		[]string{
			"Datastore.Audit", "Mapping.Audit", "Pool.Audit", "SDN.Audit", "Sys.Audit", "VM.Audit", "VM.GuestAgent.Audit",
		},
		roles["PVEAuditor"],
	)
	assert.Empty(t, roles["NoAccess"])

	for _, p := range []string{"Mapping.Modify", "Sys.Modify", "Permissions.Modify"} {
		assert.False(t, slices.Contains(roles["PVEAdmin"], p), p)
	}
}

// TestRightsToAConfiguration tries what a token with some privileges may put into a VM.
func TestRightsToAConfiguration(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		privileges []string
		call       func(user string) call
		want       string
	}{
		"a VM needs its VMID": {
			nil, func(u string) call { return create(u, 200, datacentre.Config{"name": "x"}) }, "Permission check failed",
		},
		"and every field its own": {
			[]string{"VM.Allocate"},
			func(u string) call { return create(u, 200, datacentre.Config{"cores": "1"}) },
			"Permission check failed (/vms/200, VM.Config.CPU)",
		},
		"a disk needs its storage": {
			[]string{"VM.Allocate"},
			func(u string) call { return create(u, 200, datacentre.Config{"scsi0": "local-lvm:1"}) },
			"Permission check failed (/storage/local-lvm, Datastore.AllocateSpace)",
		},
		"a card needs its bridge": {
			[]string{"VM.Config.Network"},
			func(u string) call { return set(u, 100, datacentre.Config{"net1": "virtio,bridge=vmbr0"}) },
			"Permission check failed (/sdn/zones/localnetwork/vmbr0, SDN.Use)",
		},
		"a tagged one its VLAN": {
			[]string{"VM.Config.Network"},
			func(u string) call { return set(u, 100, datacentre.Config{"net1": "virtio,bridge=vmbr0,tag=7"}) },
			"Permission check failed (/sdn/zones/localnetwork/vmbr0/7, SDN.Use)",
		},
		"removing needs it too": {
			[]string{"VM.Config.Options"},
			func(u string) call { return set(u, 100, nil, "scsi0") },
			"Permission check failed (/vms/100, VM.Config.Disk)",
		},
		"startup changes the host": {
			[]string{"VM.Config.Options"},
			func(u string) call { return set(u, 100, datacentre.Config{"startup": "order=1"}) },
			"Permission check failed (/, Sys.Modify)",
		},
		"cloud-init's fields": {
			[]string{"VM.Config.Options"},
			func(u string) call { return set(u, 100, datacentre.Config{"nameserver": "1.1.1.1"}) },
			"Permission check failed (/vms/100, VM.Config.Cloudinit|VM.Config.Network)",
		},
		"its drive is one of CDs too": {
			[]string{"VM.Config.Cloudinit"},
			func(u string) call { return set(u, 100, datacentre.Config{"ide2": "local-lvm:cloudinit"}) },
			"Permission check failed (/vms/100, VM.Config.CDROM)",
		},
		"a mapped device": {
			[]string{"VM.Config.HWType"},
			func(u string) call { return set(u, 100, datacentre.Config{"hostpci0": "mapping=gpu"}) },
			"Permission check failed (/mapping/pci/gpu, Mapping.Use)",
		},
		"a raw one": {
			datacentre.Privileges(), func(u string) call { return set(u, 100, datacentre.Config{"hostpci0": "0000:01:00"}) },
			"only root can set 'hostpci0' config for non-mapped devices",
		},
		"a real serial port": {
			datacentre.Privileges(), func(u string) call { return set(u, 100, datacentre.Config{"serial0": "/dev/ttyS0"}) },
			"only root can set 'serial0' config for real devices",
		},
		"a ROM file": {
			datacentre.Privileges(),
			func(u string) call { return set(u, 100, datacentre.Config{"hostpci0": "mapping=gpu,romfile=x"}) },
			"Parameter verification failed. map[hostpci0:only root@pam can set 'romfile' option]",
		},
		"arguments": {
			datacentre.Privileges(), func(u string) call { return set(u, 100, datacentre.Config{"args": "-x"}) },
			"only root can set 'args' config",
		},
		"CPU affinity": {
			datacentre.Privileges(), func(u string) call { return set(u, 100, datacentre.Config{"affinity": "0"}) },
			"only root can set 'affinity' config",
		},
		"architecture": {
			datacentre.Privileges(), func(u string) call { return set(u, 100, datacentre.Config{"arch": "x86_64"}) },
			"only root can set 'arch' config",
		},
		"huge pages": {
			datacentre.Privileges(), func(u string) call { return set(u, 100, datacentre.Config{"hugepages": "2"}) },
			"only root can set 'hugepages' config",
		},
		"a hook script": {
			datacentre.Privileges(),
			func(u string) call { return set(u, 100, datacentre.Config{"hookscript": "local:snippets/x"}) },
			"Parameter verification failed. map[hookscript:script 'local:snippets/x' does not exist]",
		},
		"skipping locks": {
			datacentre.Privileges(), func(u string) call { return set(u, 100, datacentre.Config{"skiplock": "1"}) },
			"Parameter verification failed. map[skiplock:Only root may use this option.]",
		},
		"what one may": {
			[]string{"VM.Config.Memory"}, func(u string) call { return set(u, 100, datacentre.Config{"memory": "4096"}) }, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			d := accounts(t)
			require.NoError(t, d.AddRole("some", test.privileges...))
			require.NoError(t, d.SetACL(rule("/vms", "user", ann, "some")))

			if len(test.privileges) > 5 {
				require.NoError(t, d.SetACL(rule("/", "user", ann, "Administrator")))
			}

			err := test.call(ann + "!hers")(d)
			if test.want == "" {
				require.NoError(t, err)

				return
			}

			require.EqualError(t, err, test.want)
		})
	}
}

func TestAccounts(t *testing.T) {
	t.Parallel()

	d := accounts(
		t, rule("/vms", "user", ann, "PVEVMUser"), rule("/vms", "token", ann+"!own", "PVEVMUser"),
		rule("/vms", "group", "ops", "PVEVMUser"),
	)

	d.PutUser(datacentre.User{ID: "old@pve", Expire: 1})
	d.PutUser(datacentre.User{ID: "off@pve", Disabled: true})
	d.PutToken(datacentre.Token{ID: ann + "!old", Secret: "s", Expire: 1})
	require.EqualError(t, d.CheckUser("old@pve"), "user 'old@pve' access expired")
	require.EqualError(t, d.CheckUser("off@pve"), "user 'off@pve' is disabled")
	assert.False(t, d.CheckToken(ann+"!old", "s"))
	assert.True(t, d.CheckToken(ann+"!own", "s"))

	require.EqualError(
		t, d.AddRole("r", "VM.Monitor"),
		"Parameter verification failed. map[privs:invalid format - invalid privilege 'VM.Monitor']",
	)
	require.EqualError(t, d.SetRole("PVEAdmin", false), "auto-generated role 'PVEAdmin' cannot be modified")
	require.EqualError(
		t, d.SetACL(rule("/nowhere", "user", ann, "PVEAdmin")),
		"Parameter verification failed. map[path:invalid ACL path '/nowhere']",
	)
	require.EqualError(t, d.SetACL(rule("/", "user", ann, "none")), "ACL update failed: role 'none' does not exist")

	d.DeleteUser(ann)
	assert.Equal(
		t, []datacentre.ACL{rule("/vms", "group", "ops", "PVEVMUser")}, d.ACLs(),
		"a user takes his rules and his tokens' along",
	)
	assert.NotContains(t, d.Tokens(), ann+"!own")
	d.DeleteGroup("ops")
	assert.Empty(t, d.ACLs())
}
