package engine

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/spec"
	"talos-proxmox/lab/server"
)

// connection is that of a lab on 127.77 with these hosts.
func connection(names ...string) server.Connection {
	c := server.Connection{
		Endpoint:   "https://127.77.0.11:8006/",
		APIToken:   "talos@pve!lab=secret",
		FactoryURL: "http://127.77.0.2:8080",
		PrivateKey: "key",
	}
	for i, name := range names {
		c.Hosts = append(c.Hosts, server.HostConnection{
			Name:    name,
			Address: fmt.Sprintf("127.77.0.%d", 11+i),
			Port:    2222,
			HostKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILlByXKFwQc6EoBa6IxHEFoDJoHnTHBqM2c9mLxLUO/U",
		})
	}

	return c
}

const twoNetworks = `encryptionsalt: v1:abc=
config:
  proxmoxve:endpoint: https://192.0.2.2:8006/
  proxmoxve:apiToken: {secure: v1:aaaa}
  talos:imageFactoryToken: {secure: v1:bbbb}
  talos-proxmox:proxmoxCluster: AB:CD
  talos-proxmox:hosts:
    - {name: pve1, address: 192.0.2.2, ssh: {user: admin, hostKey: ssh-ed25519 AAAA}, capacity: {cores: 12}}
    - {name: big-9, address: 192.0.2.3}
  talos-proxmox:templates:
    talos: {version: v1.14.4}
  talos-proxmox:clusters:
    - name: one
      podCidr: 10.42.0.0/16
      network: {cidr: 192.0.2.64/26, gateway: 192.0.2.65, vip: 192.0.2.70, dns: [192.0.2.65, 203.0.113.53], ntp: [198.51.100.7]}
      controlPlane: {count: 1, extraNICs: [{bridge: vmbr1, cidr: 198.51.100.0/24}], nodes: {"1": {address: 192.0.2.99}}}
      patches:
        - "machine: {registries: {mirrors: {docker.io: {endpoints: ['http://192.0.2.3:5000', 'http://127.0.0.1:5000']}}}}"
        - "cluster: {network: {dnsDomain: cluster.example}}"
        - {secure: v1:cccc}
    - name: two
      network: {cidr: 203.0.113.0/24, gateway: 203.0.113.1}
      controlPlane: {count: 1, firstVmid: 2100}
`

func TestNewTargetMapsEveryAddress(t *testing.T) {
	t.Parallel()

	target, err := NewTarget("test", []byte(twoNetworks), "127.77", connection("pve1", "pve2", "big-9"))
	require.NoError(t, err)
	require.Len(t, target.Plan.Clusters, 2)

	one, two := target.Plan.Clusters[0], target.Plan.Clusters[1]
	assert.Equal(t, "big-9 127.77.0.13", fmt.Sprint(target.Plan.Hosts[0].Name, " ", target.Plan.Hosts[0].Address))
	assert.Equal(
		t, spec.SSH{Port: 2222, User: "root", HostKey: connection("pve1").Hosts[0].HostKey}, target.Plan.Hosts[1].SSH,
	)
	assert.Equal(t, 12, target.Plan.Hosts[1].Cores)
	assert.Equal(
		t, "127.77.1.64/26 127.77.1.65 127.77.1.70", fmt.Sprint(one.Network.CIDR, " ", one.Network.Gateway, " ", one.VIP),
	)
	assert.Equal(t, "[127.77.1.65 127.77.2.53] [127.77.3.7]", fmt.Sprint(one.Network.DNS, " ", one.Network.NTP))
	assert.Equal(t, "127.77.1.99/26", one.ControlPlanes[0].Address.String())
	assert.Equal(t, "127.77.3.10/24", one.ControlPlanes[0].ExtraNICs[0].Address.String())
	assert.Contains(t, one.Patches[0], "'http://127.77.0.13:5000', 'http://127.0.0.1:5000'")
	assert.Equal(t, "10.42.0.0/16", one.PodCIDR.String(), "the pods' network is the cluster's own")
	assert.Equal(t, "127.77.2.0/24 127.77.2.1", fmt.Sprint(two.Network.CIDR, " ", two.Network.Gateway))

	assert.Equal(t, "https://127.77.0.11:8006/", target.Config.Values["proxmoxve:endpoint"])
	assert.Equal(t, map[string]string{
		"proxmoxve:apiToken":                   "talos@pve!lab=secret",
		"talos-proxmox:sshPrivateKey":          "key",
		"talos:imageFactoryToken":              standInSecret,
		"talos-proxmox:clusters[0].patches[2]": standInPatch,
	}, target.Config.Secrets)
	assert.NotContains(t, string(target.File), "encryptionsalt")
	assert.NotContains(t, string(target.File), "secure")
	assert.NotContains(t, string(target.File), "proxmoxCluster", "the lab takes the place of the stack's own Proxmox")
}

// TestNeedsOfStacks: the lab has what other people's stack files name.
func TestNeedsOfStacks(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "Pulumi.case.yaml"), []byte(`config:
  talos-proxmox:hosts:
    - {name: alpha, gpus: [{name: gpu-1, pci: "41:00"}, {name: gpu-1, pci: "61:00"}, {name: arc, pci: "03:00"}]}
    - {name: beta, devices: [{name: igpu, pci: "00:02.0"}]}
  talos-proxmox:templates: {talos: {datastore: nvme0}}
  talos-proxmox:clusters: [{workers: [{network: {bridge: vmbr1}}]}]
`), 0o600))

	needs, err := ReadNeeds(folder)
	require.NoError(t, err)
	assert.Equal(t, Needs{
		Hosts: []string{"alpha", "beta"}, Datastores: []string{"nvme0"}, Bridges: []string{"vmbr1"},
		Mappings: []string{"arc", "gpu-1", "igpu"},
	}, needs)
}

// TestCommittedStacksOnALab plans every delivered stack for a lab: the same machines as on its own network, and no
// address that is not the lab's.
func TestCommittedStacksOnALab(t *testing.T) {
	t.Parallel()

	const delivered = "../../stacks/testdata"

	paths, err := filepath.Glob(filepath.Join(delivered, "Pulumi.*.yaml"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(paths), 3)

	needs, err := ReadNeeds(delivered)
	require.NoError(t, err)
	assert.Contains(t, needs.Hosts, "pve3")
	assert.Contains(t, needs.Datastores, "local-zfs")

	for _, path := range paths {
		stack := regexp.MustCompile(`Pulumi\.(.*)\.yaml`).FindStringSubmatch(path)[1]
		t.Run(stack, func(t *testing.T) {
			t.Parallel()

			file, err := ReadStack(delivered, stack)
			require.NoError(t, err)

			target, err := NewTarget(stack, file, "127.77", connection(needs.Hosts...))
			require.NoError(t, err)
			require.NotEmpty(t, target.Plan.Clusters)

			var document struct {
				Config map[string]yaml.Node `yaml:"config"`
			}
			require.NoError(t, yaml.Unmarshal(target.File, &document))

			for key, value := range document.Config {
				if _, set := target.Config.Values[key]; set {
					continue
				}

				visitValues(&value, func(n *yaml.Node) {
					if network, err := netip.ParsePrefix(n.Value); err == nil && network.Bits() < networkBits {
						return // a firewall admits it; nobody connects to it
					}

					for _, found := range addressText.FindAllString(n.Value, -1) {
						address, _, ok := parse(found)
						assert.True(t, ok && netip.MustParsePrefix("127.77.0.0/16").Contains(address), "%s: %s", key, n.Value)
					}
				})
			}
		})
	}
}

func TestNewTargetRefusesStacks(t *testing.T) {
	t.Parallel()

	head := "config:\n  talos-proxmox:templates: {talos: {version: v1.14.4, source: iso}}\n"

	for name, test := range map[string]struct{ stack, message string }{
		"a host that the lab has not": {
			"  talos-proxmox:hosts: [{name: far1, address: 192.0.2.2}]\n  talos-proxmox:clusters: [{name: a, network: {cidr: 192.0.2.0/24}, controlPlane: {}}]\n",
			"the lab has no host far1 (it has pve1): stop and start it",
		},
		"a network wider than the lab's": {
			"  talos-proxmox:hosts: [{name: pve1, address: 192.0.2.2}]\n  talos-proxmox:clusters: [{name: a, network: {cidr: 10.0.0.0/16}, controlPlane: {}}]\n",
			"cluster a has network 10.0.0.0/16, and the lab stands in for networks of up to 256 addresses (/24)",
		},
		"a card in a network wider than the lab's": {
			"  talos-proxmox:hosts: [{name: pve1, address: 192.0.2.2}]\n" +
				"  talos-proxmox:clusters: [{name: a, network: {cidr: 192.0.2.0/24}, controlPlane: {extraNICs: [{bridge: vmbr1, cidr: 10.0.0.0/16}]}}]\n",
			"a link of node a-cp-1 has address 10.0.0.10, which is not the lab's: run this stack with pulumi on its own Proxmox",
		},
		"objects as text are mapped too": {
			"  talos-proxmox:hosts: '[{\"name\": \"far1\", \"address\": \"192.0.2.2\"}]'\n  talos-proxmox:clusters: [{name: a, network: {cidr: 192.0.2.0/24}, controlPlane: {}}]\n",
			"the lab has no host far1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := NewTarget("test", []byte(head+test.stack), "127.77", connection("pve1"))
			assert.ErrorContains(t, err, test.message)
		})
	}
}

func TestAnAddressThatIsNotTheLabsIsRefused(t *testing.T) {
	t.Parallel()

	far, loopback := netip.MustParsePrefix("192.0.2.7/24"), netip.MustParsePrefix("127.77.1.7/24")
	plan := func(host netip.Addr, network, node netip.Prefix, gateway, vip netip.Addr) *spec.Plan {
		return &spec.Plan{
			Hosts: []spec.Host{{Name: "pve1", Address: host}},
			Clusters: []spec.Cluster{{
				Name:    "a",
				VIP:     vip,
				Network: spec.Network{CIDR: network, Gateway: gateway},
				Workers: []spec.Node{{VM: spec.VM{Name: "a-w-1", Address: node}}},
			}},
		}
	}

	for subject, p := range map[string]*spec.Plan{
		"":                            plan(loopback.Addr(), loopback, loopback, loopback.Addr(), netip.Addr{}),
		"host pve1":                   plan(far.Addr(), loopback, loopback, loopback.Addr(), loopback.Addr()),
		"the network of cluster a":    plan(loopback.Addr(), far, loopback, loopback.Addr(), loopback.Addr()),
		"node a-w-1":                  plan(loopback.Addr(), loopback, far, loopback.Addr(), loopback.Addr()),
		"the gateway of cluster a":    plan(loopback.Addr(), loopback, loopback, far.Addr(), loopback.Addr()),
		"the virtual IP of cluster a": plan(loopback.Addr(), loopback, loopback, loopback.Addr(), far.Addr()),
	} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()

			err := (&Target{Plan: p}).requireLoopback()
			if subject == "" {
				require.NoError(t, err)

				return
			}

			require.ErrorContains(t, err, subject+" has address 192.0.2.7, which is not the lab's")
		})
	}
}

// TestStandInForAnAgeKey: the stand-in for a key that the lab cannot decrypt is a valid age key.
func TestStandInForAnAgeKey(t *testing.T) {
	t.Parallel()

	file := strings.Replace(twoNetworks, "      podCidr:",
		"      cni: {kind: cilium}\n      gitops: {url: https://git.example.org/fleet.git, age: {secure: v1:dddd}}\n      podCidr:", 1)

	target, err := NewTarget("test", []byte(file), "127.77", connection("pve1", "pve2", "big-9"))
	require.NoError(t, err)
	require.Len(t, target.Plan.Clusters, 2, "it is planned, and its addresses are the lab's")
	assert.NoError(t, backup.CheckIdentities(target.Config.Secrets["talos-proxmox:clusters[0].gitops.age"]))
}

// TestAdmitThisComputer: firewalls with keys admit this computer once; those with rules of their own are not changed.
func TestAdmitThisComputer(t *testing.T) {
	t.Parallel()

	const file = `config:
  talos-proxmox:clusters:
    - name: a
      firewall:
        kubernetesApi: [192.0.2.0/24]
    - name: b
      firewall:
        ingress: accept
    - name: c
`

	once, err := AdmitThisComputer([]byte(file))
	require.NoError(t, err)
	assert.YAMLEq(t, strings.Replace(file, "[192.0.2.0/24]\n", "[192.0.2.0/24]\n        admin: [127.0.0.0/16]\n", 1), string(once))

	again, err := AdmitThisComputer(once)
	require.NoError(t, err)
	assert.Equal(t, string(once), string(again))
}
