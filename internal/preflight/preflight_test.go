package preflight_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/vmdiff"
)

// fixture is a plan with its stack and site: a control plane on pve1 and a GPU worker on pve2. Nothing is created yet,
// and the site has all that the plan needs.
type fixture struct {
	plan  *spec.Plan
	stack preflight.Stack
	site  *preflight.Site
	// created: templates and images exist.
	created bool
}

func (s *fixture) worker() *spec.Node               { return &s.plan.Clusters[0].Workers[0] }
func (s *fixture) host(name string) *preflight.Host { return s.site.Hosts[name] }

func (s *fixture) storage(host, name string) *hostfacts.Storage {
	for i := range s.host(host).Storages {
		if s.host(host).Storages[i].Name == name {
			return &s.host(host).Storages[i]
		}
	}

	return nil
}

// replicated returns a change to a worker whose disks on the ZFS pool fast of pve2 are copied to pve1.
func replicated(change func(s *fixture)) func(s *fixture) {
	return func(s *fixture) {
		s.worker().HA = &spec.HA{
			MaxRestart: 1, MaxRelocate: 1, Hosts: []string{"pve1", "pve2"}, Replication: &spec.Replication{Schedule: "*/15"},
		}
		s.storage("pve2", "fast").Type = "zfspool"
		change(s)
	}
}

// addMachine adds a node to the stack's machines.
func (s *fixture) addMachine(n spec.Node) {
	s.stack.Machines[n.VMID] = vmdiff.Machine{Name: n.Name, VMID: n.VMID, Host: n.Host}
}

// addForeignVM adds a VM to the site.
func (s *fixture) addForeignVM(vm proxmoxapi.Listed, description string) {
	s.site.Machines = append(s.site.Machines, vm)
	s.site.Descriptions[vm.VMID] = description
}

func newFixture() *fixture {
	template := func(host string, vmid int) spec.Template {
		return spec.Template{
			Key:    "talos",
			Class:  "talos",
			Name:   "talos-v1.12.6-talos",
			Host:   host,
			VMID:   vmid,
			Source: spec.SourceImage,
			Talos: spec.Talos{
				Version: "v1.12.6", Platform: "nocloud", Extensions: []string{"siderolabs/qemu-guest-agent"},
			},
			Datastore: "disks", ImageDatastore: "local", DiskGiB: 5, Bridge: "vmbr0",
		}
	}
	gpu := template("pve2", 952)
	gpu.Key, gpu.Driver = "talos-nvidia-open-lts", spec.Driver{Flavour: "open", Track: "lts"}
	card := spec.Device{Name: "rtx", Host: "pve2", PCI: "0000:01:00"}
	s := &fixture{
		plan: &spec.Plan{
			Hosts: []spec.Host{
				{Name: "pve1", Path: "hosts[0]", Address: netip.MustParseAddr("10.0.0.1")},
				{Name: "pve2", Path: "hosts[1]", Address: netip.MustParseAddr("10.0.0.2"), GPUs: []spec.Device{card}},
			},
			Templates: []spec.Template{template("pve1", 901), gpu},
			Clusters: []spec.Cluster{{
				Name: "one", Network: spec.Network{Bridge: "vmbr0"},
				ControlPlanes: []spec.Node{
					{
						VM: spec.VM{
							Name:      "one-cp-1",
							Path:      "clusters[0].controlPlane",
							Host:      "pve1",
							VMID:      2000,
							Template:  template("pve1", 901),
							Cores:     2,
							DiskGiB:   20,
							Datastore: "disks",
						},
					},
				},
				Workers: []spec.Node{{
					VM: spec.VM{
						Name:      "one-gpu-1",
						Path:      "clusters[0].gpuWorkers[0]",
						Host:      "pve2",
						VMID:      4000,
						Template:  gpu,
						Cores:     4,
						DiskGiB:   40,
						Datastore: "fast",
					},
					GPUs: []spec.Device{card},
				}},
			}},
		},
		site: &preflight.Site{
			Endpoint:     "https://10.0.0.1:8006/",
			Identity:     "pulumi@pve!talos",
			Version:      "9.1",
			Hosts:        map[string]*preflight.Host{},
			Descriptions: map[int]string{},
			Mappings:     map[string]string{},
			Factory:      "https://factory.test",
			Releases:     []string{"v1.11.0", "v1.12.5", "v1.12.6", "v1.13.0-beta.0", "v1.13.0", "v1.13.1"},
			Extensions:   map[string][]string{"v1.12.6": {"siderolabs/qemu-guest-agent"}}, Rights: permissions.Granted{},
		},
	}

	places := permissions.Places{
		Images: []string{"local"}, Disks: []string{"disks", "fast", "x", "slow", "fats"}, Volumes: []string{"fast", "slow"},
		Mappings: []string{"rtx"},
	}

	for _, role := range permissions.Roles() {
		for _, n := range role.Needs {
			for _, path := range places.Paths(n.Path) {
				if s.site.Rights[path] == nil {
					s.site.Rights[path] = map[string]bool{}
				}

				s.site.Rights[path][n.Privilege] = permissions.Propagates(path)
			}
		}
	}

	storage := func(name, content string) hostfacts.Storage {
		return hostfacts.Storage{
			Name: name, Type: "lvmthin", Content: content, Active: 1, Enabled: 1, Total: 1 << 40, Free: 1 << 40,
		}
	}
	for _, name := range []string{"pve1", "pve2"} {
		s.site.Hosts[name] = &preflight.Host{
			Status: "online",
			Bridges: []preflight.Bridge{
				{Name: "vmbr0", Type: "bridge", Ports: "eno1"}, {Name: "inner", Type: "bridge"}, {Name: "tenant", Type: "vnet"},
			},
			Storages: []hostfacts.Storage{storage("local", "iso,backup"), storage("disks", "images"), storage("fast", "images")},
		}
	}

	s.stack = preflight.Stack{
		Project:    "talos-proxmox",
		Name:       "prod",
		Machines:   map[int]vmdiff.Machine{},
		Image:      func(t spec.Template) string { return t.Version },
		Downloaded: func(spec.Template) bool { return s.created }, Built: func(spec.Template) bool { return s.created },
	}

	return s
}

// addMachineOn makes everything exist, the control plane on this host.
func (s *fixture) addMachineOn(host string) {
	s.created, s.site.Releases = true, nil

	node := s.plan.Clusters[0].ControlPlanes[0]
	s.addMachine(*s.worker())
	s.stack.Mappings = []string{"/mapping/pci/rtx"}
	s.stack.Machines[node.VMID] = vmdiff.Machine{Name: node.Name, VMID: node.VMID, Host: host}
}

// importTemplates makes the templates through the API.
func importTemplates(s *fixture) {
	for i := range s.plan.Templates {
		s.plan.Templates[i].Source = spec.SourceImport
	}

	for _, host := range s.site.Hosts {
		host.Storages[0].Content = "iso,backup,import"
	}
}

// nodeDescription returns the description of a node of a stack.
func nodeDescription(stack string) string {
	return ownership.Node(ownership.Of("organization", "talos-proxmox", stack, ""), "Talos worker")
}

// addAccounts gives the cluster's software accounts on Proxmox, and a storage class on a datastore.
func addAccounts(datastore string) func(*fixture) {
	return func(s *fixture) {
		cluster := &s.plan.Clusters[0]
		cluster.Proxmox = &spec.Proxmox{
			Region: "homelab", CSI: &spec.Identity{Account: "talos-csi"}, CloudController: &spec.Identity{Account: "talos-ccm"},
			StorageClasses: []spec.StorageClass{
				{Path: "clusters[0].proxmox.csi.storageClasses[0]", Name: "class", Datastore: datastore},
			},
		}

		for _, nodes := range [][]spec.Node{cluster.ControlPlanes, cluster.Workers} {
			for i := range nodes {
				nodes[i].Cluster = cluster.Name
			}
		}
	}
}

// addAutoscaler has karpenter@pve add machines to a pool on pve1, with what an administrator prepares for it.
func addAutoscaler(s *fixture) {
	t := &s.plan.Templates[0]
	t.ClonedBy = []string{"karpenter@pve"}
	s.plan.Clusters[0].Autoscaled = []spec.AutoscaledPool{{
		Name: "burst", Template: t.Name, Hosts: []string{t.Host}, ResourcePool: "autoscaled", Datastore: "disks",
		User: "karpenter@pve", Path: "clusters[0].workers[0].autoscale",
	}}

	rights := permissions.Granted{}
	s.site.Roles, s.site.Autoscalers = map[string][]string{}, map[string]permissions.Granted{"karpenter@pve": rights}
	s.site.Pools = []string{"autoscaled"}

	for _, role := range permissions.AutoscalerRoles() {
		s.site.Roles[role.ID] = role.Privileges()

		for _, n := range role.Needs {
			path := strings.NewReplacer("<pool>", "autoscaled", "<images>", "local", "<disks>", "disks").Replace(n.Path)
			if rights[path] == nil {
				rights[path] = map[string]bool{}
			}

			rights[path][n.Privilege] = true
		}
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		change             func(s *fixture)
		problems, warnings []string
	}{
		"everything is there": {change: func(*fixture) {}},
		"everything is made":  {change: func(s *fixture) { s.created = true; s.site.Releases = nil }},
		"nothing is known":    {change: func(s *fixture) { s.site = &preflight.Site{} }},
		"Proxmox VE 8": {
			change: func(s *fixture) { s.site.Version = "8.4"; s.site.Rights["/vms"]["VM.Monitor"] = true },
		},
		"the role of 9 on 8": {
			change:   func(s *fixture) { s.site.Version = "8.4" },
			problems: []string{"proxmoxve:apiToken: pulumi@pve!talos may not VM.Monitor on /vms/2000, /vms/4000: as root"},
		},
		"Proxmox VE 7": {change: func(s *fixture) {
			s.site.Version = "7.4"
			delete(s.site.Rights["/vms"], "x")
			s.site.Rights["/vms"]["VM.Monitor"] = true
		}, problems: []string{"proxmoxve:endpoint: answers with Proxmox VE 7.4; upgrade it to 8 or 9: pve7to8 --full"}},
		"Proxmox VE 10": {
			change:   func(s *fixture) { s.site.Version = "10.0" },
			warnings: []string{"proxmoxve:endpoint: answers with Proxmox VE 10.0, which is newer"},
		},
		"an import": {change: importTemplates},
		"an import on Proxmox VE 8.3": {
			change: func(s *fixture) {
				importTemplates(s)
				s.site.Version = "8.3"
				s.site.Rights["/vms"]["VM.Monitor"] = true
			},
			problems: []string{`templates.talos.source: "import" needs Proxmox VE 8.4, and 8.3 answers: upgrade it, or set source: image or source: iso`},
		},
		"an import to a datastore without the content type": {
			change: func(s *fixture) {
				importTemplates(s)
				s.storage("pve1", "local").Content = "iso,backup"
			},
			problems: []string{`templates.talos.imageDatastore: "local" takes no content of type import on pve1: choose another of none, or ` +
				"`pvesm set local --content iso,backup,import`"},
		},
		"an import without the privileges on its VM": {
			change: func(s *fixture) {
				importTemplates(s)
				delete(s.site.Rights["/vms"], "VM.Config.HWType")
			},
			problems: []string{"proxmoxve:apiToken: pulumi@pve!talos may not VM.Config.HWType on /vms/2000, /vms/4000, /vms/901 and 1 more paths"},
		},
		"a refused token": {
			change:   func(s *fixture) { s.site.LoginError = errors.New("Proxmox answers 401 Authentication failed!") },
			problems: []string{"proxmoxve:apiToken: is refused (Proxmox answers 401 Authentication failed!): compare its id"},
		},
		"a refused password": {change: func(s *fixture) {
			s.site.Identity, s.site.LoginError = "root@pam", errors.New("Proxmox answers 401 authentication failure")
		}, problems: []string{"proxmoxve:username: is refused (Proxmox answers 401"}},
		"no one answers": {change: func(s *fixture) {
			s.site = &preflight.Site{Endpoint: "https://x/", Unreachable: errors.New("no route to host")}
		}, warnings: []string{"Proxmox at https://x/ does not answer, so that rights, hosts, datastores, bridges and VMIDs are not compared with the plan: no route to host"}},
		"an authority that this computer does not trust": {change: func(s *fixture) {
			s.site = &preflight.Site{Endpoint: "https://x/", Unreachable: errors.New("x509: certificate signed by unknown authority")}
		}, warnings: []string{
			"x509: certificate signed by unknown authority. What to do: this computer does not trust the Proxmox cluster's own " +
				"certificate authority: copy /etc/pve/pve-root-ca.pem from a host, compare its fingerprint with the one on the host's " +
				"console, and name the copy in SSL_CERT_FILE (docs/trust.md)",
		}},
		"what was not answered": {
			change:   func(s *fixture) { s.site.Unknown = []string{"the version of Proxmox is unknown"} },
			warnings: []string{"the version of Proxmox is unknown"},
		},

		"a machine on a host that the plan does not have": {
			change: func(s *fixture) {
				s.addMachineOn("pve3")
				s.site.Hosts["pve3"] = &preflight.Host{Status: "online"}
			},
			warnings: []string{
				"hosts: the host pve3 is not there, and one-cp-1 on it: what is planned stays there, and nothing is checked or prepared on " +
					"that host; set it again, or move its machines (nodes.<n>.host)",
			},
		},
		"a machine on a host that is offline, and that the plan does not have": {
			change: func(s *fixture) {
				s.addMachineOn("pve3")
				s.site.Machines = append(s.site.Machines, proxmoxapi.Listed{
					VMID: 2000, Name: "one-cp-1", Host: "pve3", Type: "qemu",
				})
				s.site.Hosts["pve3"] = &preflight.Host{Status: "offline"}
			},
			problems: []string{
				"hosts: the host pve3 is not there, and is offline, with one-cp-1 on it, which can be neither read nor changed: set it " +
					"again and bring it back, or remove it from Proxmox first (docs/recovery.md#a-host-is-lost)",
			},
		},
		"a machine whose configuration was removed from a host that is offline": {
			change: func(s *fixture) {
				s.addMachineOn("pve3")
				s.site.Machines = []proxmoxapi.Listed{}
				s.site.Hosts["pve3"] = &preflight.Host{Status: "offline"}
			},
			warnings: []string{
				"hosts: the host pve3 is not there, and is offline, and Proxmox no longer has one-cp-1 on it: " +
					"`talos-proxmox replace prod --host pve3`",
			},
		},
		"a machine on a host that is gone": {
			change: func(s *fixture) { s.addMachineOn("pve3") },
			warnings: []string{
				"hosts: the host pve3 is neither there nor in Proxmox' cluster, and the state has one-cp-1 on it: " +
					"`talos-proxmox replace prod --host pve3`",
			},
		},
		"a machine that would move off a host that is offline": {
			change: func(s *fixture) {
				s.addMachineOn("pve3")
				s.plan.Clusters[0].ControlPlanes[0].HostPinned = true
				s.site.Hosts["pve3"] = &preflight.Host{Status: "offline"}
			},
			problems: []string{
				`clusters[0].controlPlane.nodes.1.host: "pve1" would move one-cp-1 off pve3, which is offline: bring that host back first`,
			},
		},
		"a machine that moves off a host that the plan does not have": {
			change: func(s *fixture) {
				s.addMachineOn("pve3")
				s.plan.Clusters[0].ControlPlanes[0].HostPinned = true
				s.site.Hosts["pve3"] = &preflight.Host{Status: "online"}
			},
		},
		"the stack's own template on a host that is offline": {
			change: func(s *fixture) {
				s.site.Machines = append(s.site.Machines, proxmoxapi.Listed{VMID: 901, Name: "talos-v1.12.5-talos", Host: "pve1"})
				s.host("pve1").Status = "offline"
			},
			problems: []string{`hosts[0].name: "pve1" is offline, and`},
			warnings: []string{"hosts: 1 of the 2 hosts of Proxmox' cluster are offline"},
		},
		"a machine of somebody on a host that is offline": {
			change: func(s *fixture) {
				s.site.Machines = append(s.site.Machines, proxmoxapi.Listed{VMID: 2000, Name: "unknown", Host: "pve3"})
				s.site.Hosts["pve3"] = &preflight.Host{Status: "offline"}
			},
			problems: []string{
				"clusters[0].controlPlane: one-cp-1 would get VMID 2000, which unknown on pve3 has: that host is offline, so that nobody " +
					"knows whose it is: bring it back, or set a free VMID for one-cp-1 alone (nodes.1.vmid)",
			},
		},

		"Proxmox' firewall": {change: func(s *fixture) {
			s.plan.Clusters[0].Firewall = &spec.Firewall{Proxmox: &spec.ProxmoxFirewall{SecurityGroups: []string{"web"}}}
			s.site.Firewall, s.site.SecurityGroups = new(true), []proxmoxapi.SecurityGroup{{Name: "web"}}
		}},
		"Proxmox' firewall, where the data centre's is off": {
			change: func(s *fixture) {
				s.plan.Clusters[0].Firewall = &spec.Firewall{Proxmox: &spec.ProxmoxFirewall{SecurityGroups: []string{"web"}}}
				s.site.Firewall, s.site.SecurityGroups = new(false), []proxmoxapi.SecurityGroup{}
			},
			problems: []string{`clusters[0].firewall.proxmox.securityGroups[0]: "web" does not exist; use one that`},
			warnings: []string{"clusters[0].firewall.proxmox: has no effect, because the firewall of the data centre is off"},
		},
		"Proxmox' firewall, without the privilege to see the data centre's": {
			change: func(s *fixture) {
				s.plan.Clusters[0].Firewall = &spec.Firewall{Proxmox: &spec.ProxmoxFirewall{}}
				s.site.Rights["/"] = map[string]bool{}
			},
			problems: []string{
				"may not Sys.Audit on /: as root on a host, `pveum acl modify / --users pulumi@pve --tokens 'pulumi@pve!talos' --roles " +
					"TalosProxmoxFirewall --propagate 0`",
			},
		},

		"a role without a privilege": {change: func(s *fixture) {
			delete(s.site.Rights["/vms"], "VM.PowerMgmt")
			delete(s.site.Rights["/vms"], "VM.Clone")
		}, problems: []string{
			"proxmoxve:apiToken: pulumi@pve!talos may not VM.Clone, VM.PowerMgmt on /vms/901, /vms/952, /vms/2000 and 1 more paths: as root on a host, " +
				"`pveum acl modify /vms --users pulumi@pve --tokens 'pulumi@pve!talos' --roles TalosProxmox` gives it the role TalosProxmox (a separated token may only what its user may, too)",
		}},
		"a role that is there without privileges": {change: func(s *fixture) {
			delete(s.site.Rights["/vms"], "VM.PowerMgmt")
			delete(s.site.Rights["/vms"], "VM.Clone")

			s.site.Roles = map[string][]string{"TalosProxmox": {"VM.Allocate"}}
		}, problems: []string{
			"proxmoxve:apiToken: pulumi@pve!talos may not VM.Clone, VM.PowerMgmt on /vms/901, /vms/952, /vms/2000 and 1 more paths: as root on a host, " +
				"`pveum role modify TalosProxmox --append 1 --privs \"VM.Clone VM.PowerMgmt\"` gives the role what it lacks; docs/permissions.md",
		}},
		"a role that is there with one of two privileges": {change: func(s *fixture) {
			delete(s.site.Rights["/vms"], "VM.PowerMgmt")
			delete(s.site.Rights["/vms"], "VM.Clone")

			s.site.Roles = map[string][]string{"TalosProxmox": {"VM.Clone"}}
		}, problems: []string{
			"`pveum role modify TalosProxmox --append 1 --privs \"VM.PowerMgmt\"` gives the role what it lacks, and " +
				"`pveum acl modify /vms --users pulumi@pve --tokens 'pulumi@pve!talos' --roles TalosProxmox` gives it the role TalosProxmox",
		}},
		"a rule that is missing": {change: func(s *fixture) {
			delete(s.site.Rights["/vms"], "VM.PowerMgmt")

			s.site.Roles = map[string][]string{"TalosProxmox": {"VM.PowerMgmt"}}
		}, problems: []string{
			"as root on a host, `pveum acl modify /vms --users pulumi@pve --tokens 'pulumi@pve!talos' --roles TalosProxmox` gives it the role",
		}},
		"a role that is not there": {change: func(s *fixture) {
			delete(s.site.Rights["/vms"], "VM.PowerMgmt")

			s.site.Roles = map[string][]string{"Administrator": {"VM.PowerMgmt"}}
		}, problems: []string{"` makes the role, which is not there, and `pveum acl modify /vms "}},
		"a user without a privilege": {change: func(s *fixture) {
			s.site.Identity = "pulumi@pve"
			delete(s.site.Rights, "/storage/local")
		}, problems: []string{
			"proxmoxve:username: pulumi@pve may not Datastore.AllocateSpace, Datastore.AllocateTemplate on /storage/local: as root on a host, " +
				"`pveum acl modify /storage/local --users pulumi@pve --roles TalosProxmox` gives it the role TalosProxmox; docs/permissions.md",
		}},
		"the rules of earlier versions": {
			change: func(s *fixture) {
				addAccounts("fast")(s)

				for path := range s.site.Rights {
					if strings.HasPrefix(path, "/storage/") || strings.HasPrefix(path, "/mapping/") {
						delete(s.site.Rights, path)
					}
				}

				s.site.Rights["/storage"] = map[string]bool{
					"Datastore.Allocate": true, "Datastore.AllocateSpace": true, "Datastore.AllocateTemplate": true,
					"Datastore.Audit": true,
				}
				s.site.Rights["/mapping/pci"] = map[string]bool{"Mapping.Modify": true, "Mapping.Use": true}
			},
			warnings: []string{
				"pulumi@pve!talos may make itself Administrator, or root on the hosts, by Datastore.Allocate on /storage, Mapping.Modify on " +
					"/mapping/pci: give it only the roles of docs/permissions.md, on their paths, with `--propagate 0` where stated. " +
					"`talos-proxmox permissions prod --narrow` prints the commands for pulumi@pve!talos",
			},
		},
		"rights that only new machines need": {change: func(s *fixture) {
			s.created = true
			s.addMachine(s.plan.Clusters[0].ControlPlanes[0])
			s.addMachine(*s.worker())

			s.stack.Mappings = []string{"/mapping/pci/rtx"}
			for _, p := range []string{"VM.Clone", "VM.Allocate"} {
				delete(s.site.Rights["/vms"], p)
			}

			delete(s.site.Rights["/storage/local"], "Datastore.AllocateTemplate")
			delete(s.site.Rights, "/nodes")
		}},
		"rights that make their holder Administrator": {change: func(s *fixture) {
			s.site.Rights["/"]["Sys.Modify"] = true
		}, warnings: []string{"proxmoxve:apiToken: pulumi@pve!talos may make itself Administrator, or root on the hosts, by Sys.Modify on /: give it only the roles of docs/permissions.md"}},
		"rights that nothing needs": {change: func(s *fixture) {
			s.site.Rights["/vms"]["VM.Console"], s.site.Rights["/"]["Sys.Audit"] = true, true
		}, warnings: []string{
			"proxmoxve:apiToken: pulumi@pve!talos has privileges that the program does not need: VM.Console on /vms; give it only",
		}},
		"rights by a resource pool": {change: func(s *fixture) {
			s.worker().ResourcePool, s.site.Pools = "gpus", []string{"gpus"}
			s.site.Rights["/pool/gpus"], s.site.Rights["/vms/4000"] = s.site.Rights["/vms"], map[string]bool{}
		}},
		"rights to VLANs": {change: func(s *fixture) {
			s.plan.Clusters[0].Network.VLAN = 42
			s.site.Rights["/sdn/zones/localnetwork"] = map[string]bool{}
			s.site.Rights["/sdn/zones/localnetwork/vmbr0"] = map[string]bool{"SDN.Use": false}
			s.site.Rights["/sdn/zones/localnetwork/vmbr0/42"] = map[string]bool{"SDN.Use": true}
		}},
		"rights to a VLAN alone": {change: func(s *fixture) {
			s.plan.Clusters[0].Network.VLAN = 42
			s.site.Rights["/sdn/zones/localnetwork"] = map[string]bool{}
			s.site.Rights["/sdn/zones/localnetwork/vmbr0/42"] = map[string]bool{"SDN.Use": true}
		}, problems: []string{"may not SDN.Use on /sdn/zones/localnetwork/vmbr0: as root on a host, `pveum acl modify /sdn/zones/localnetwork "}},
		"rights to a VLAN alone, of machines that exist": {change: func(s *fixture) {
			s.created = true
			s.addMachine(s.plan.Clusters[0].ControlPlanes[0])
			s.addMachine(*s.worker())

			s.stack.Mappings = []string{"/mapping/pci/rtx"}
			s.plan.Clusters[0].Network.VLAN = 42
			s.site.Rights["/sdn/zones/localnetwork"] = map[string]bool{}
			s.site.Rights["/sdn/zones/localnetwork/vmbr0/42"] = map[string]bool{"SDN.Use": true}
		}},
		"no right to make a mapping": {
			change: func(s *fixture) { delete(s.site.Rights, "/mapping/pci") },
			problems: []string{"may not Mapping.Modify on /mapping/pci: as root on a host, `pveum acl modify /mapping/pci --users pulumi@pve " +
				"--tokens 'pulumi@pve!talos' --roles TalosProxmoxMappings --propagate 0`"},
		},
		"no right to make a mapping, which exists": {change: func(s *fixture) {
			delete(s.site.Rights, "/mapping/pci")
			s.stack.Mappings = []string{"/mapping/pci/rtx"}
		}},
		"no right to delete a mapping": {
			change: func(s *fixture) {
				delete(s.site.Rights, "/mapping/pci")
				s.stack.Mappings = []string{"/mapping/pci/rtx", "/mapping/pci/old"}
			},
			problems: []string{"may not Mapping.Modify on /mapping/pci: as root"},
		},
		"no right to use a mapping": {
			change:   func(s *fixture) { delete(s.site.Rights, "/mapping/pci/rtx") },
			problems: []string{"may not Mapping.Use on /mapping/pci/rtx: as root on a host, `pveum acl modify /mapping/pci/rtx "},
		},
		"a USB device without the rights": {
			change: func(s *fixture) {
				s.plan.Hosts[0].Devices = []spec.Device{{
					Name: "zigbee", Host: "pve1", Kind: spec.USBDevice, USB: spec.USB{ID: "10c4:ea60"},
				}}
			},
			problems: []string{
				"may not Mapping.Use on /mapping/usb/zigbee: as root on a host, `pveum acl modify /mapping/usb/zigbee ",
				"may not Mapping.Modify on /mapping/usb: as root on a host, `pveum acl modify /mapping/usb --users pulumi@pve " +
					"--tokens 'pulumi@pve!talos' --roles TalosProxmoxMappings --propagate 0`",
			},
		},
		"no right to move": {change: func(s *fixture) {
			s.created = true
			s.stack.Machines[4000] = vmdiff.Machine{Name: "one-gpu-1", VMID: 4000, Host: "pve1"}
			s.worker().HostPinned = true
			delete(s.site.Rights["/vms"], "VM.Migrate")
		}, problems: []string{"may not VM.Migrate on /vms/4000: as root on a host, `pveum acl modify /vms --users pulumi@pve --tokens 'pulumi@pve!talos' --roles TalosProxmoxMove`"}},

		"an unknown host": {
			change:   func(s *fixture) { delete(s.site.Hosts, "pve2") },
			problems: []string{`hosts[1].name: "pve2" is not a host of this Proxmox cluster (there are pve1): correct the name`},
		},
		"a host that is away": {
			change: func(s *fixture) { s.host("pve2").Status = "offline" },
			problems: []string{
				`hosts[1].name: "pve2" is offline, and one-gpu-1, template talos-nvidia-open-lts are to be created there`,
			},
			warnings: []string{"hosts: 1 of the 2 hosts of Proxmox' cluster are offline"},
		},
		"an idle host that is away": {
			change:   func(s *fixture) { s.created = true; s.addMachine(*s.worker()); s.host("pve2").Status = "offline" },
			warnings: []string{`hosts[1].name: "pve2" is offline: what is on it`, "hosts: 1 of the 2"},
		},
		"a host that does not report its status": {
			change:   func(s *fixture) { s.host("pve2").Status = "unknown" },
			warnings: []string{`hosts[1].name: "pve2" has not reported its status lately: ` + "`systemctl restart pvestatd` there"},
		},
		"no quorum": {
			change:   func(s *fixture) { s.site.NoQuorum = true },
			problems: []string{"hosts: Proxmox' cluster has no quorum, so that nothing can be made"},
		},
		"more cores than a host": {
			change: func(s *fixture) { s.host("pve2").Cores = 2 },
			problems: []string{
				"clusters[0].gpuWorkers[0].cores: gives one-gpu-1 4 cores, and pve2 has 2: Proxmox does not start such a machine",
			},
		},
		"a template that starts has more cores than its host": {
			change: func(s *fixture) {
				s.host("pve2").Cores = 4
				t := &s.plan.Templates[1]
				t.System, t.Cores = &spec.System{}, 6
			},
			problems: []string{
				"templates.talos.cores: 6 cores are more than the 4 of pve2, and the template starts there while it is built",
			},
		},
		"one of Talos does not start": {
			change: func(s *fixture) { s.host("pve2").Cores = 4; s.plan.Templates[1].Cores = 6 },
		},
		"the plan knows the cores": {change: func(s *fixture) { s.host("pve2").Cores = 2; s.plan.Hosts[1].Cores = 8 }},

		"no such datastore": {change: func(s *fixture) { s.worker().Datastore = "slow" }, problems: []string{`clusters[0].gpuWorkers[0].datastore: "slow" is not a storage of pve2 (for images there are disks, fast): correct the name`}},
		"a misspelt datastore": {change: func(s *fixture) { s.worker().Datastore = "fats" }, problems: []string{
			`clusters[0].gpuWorkers[0].datastore: "fats" is not a storage of pve2 (for images there are disks, fast): ` +
				"did you mean fast? Otherwise add it with `pvesm add`",
		}},
		"the template's, once": {change: func(s *fixture) {
			s.plan.Templates[0].Datastore = "x"
			n := &s.plan.Clusters[0].ControlPlanes[0]
			n.Datastore, n.Template.Datastore = "x", "x"
			n.OverridePaths = map[string]string{"datastore": "templates.talos.datastore"}
		}, problems: []string{`templates.talos.datastore: "x" is not a storage of pve1`}},
		"backup jobs without the right to see them": {
			change: func(s *fixture) {
				s.plan.Machines = []spec.Machine{{VM: s.worker().VM, Network: spec.Network{Bridge: "vmbr0"}, Backup: true}}
				s.site.Rights["/"] = map[string]bool{}
			},
			problems: []string{
				"may not Sys.Audit on /: as root on a host, `pveum acl modify / --users pulumi@pve --tokens 'pulumi@pve!talos' --roles " +
					"TalosProxmoxBackup --propagate 0`",
			},
		},
		"high availability on a datastore of one host": {
			change: func(s *fixture) {
				s.worker().HA = &spec.HA{MaxRestart: 1, MaxRelocate: 1}
				s.site.Rights["/"] = map[string]bool{"Sys.Audit": false}
			},
			problems: []string{
				"may not Sys.Console on /: as root on a host, `pveum acl modify / --users pulumi@pve --tokens 'pulumi@pve!talos' --roles " +
					"TalosProxmoxHA --propagate 0`",
				`clusters[0].gpuWorkers[0].datastore: "fast" is of pve2 alone, and one-gpu-1 has ha: another host could not start it; use a ` +
					"datastore that all hosts share",
			},
		},
		"volumes of pods that another host does not have": {
			change: func(s *fixture) {
				s.worker().HA = &spec.HA{MaxRestart: 1, MaxRelocate: 1}
				s.storage("pve2", "fast").Shared = 1
				s.site.Rights["/"] = map[string]bool{"Sys.Audit": false, "Sys.Console": false}
				s.plan.Clusters[0].Proxmox = &spec.Proxmox{StorageClasses: []spec.StorageClass{
					{Name: "shared", Datastore: "fast", Path: "clusters[0].proxmox.csi.storageClasses[0]"},
					{Name: "quick", Datastore: "local", Path: "clusters[0].proxmox.csi.storageClasses[1]"},
				}}
			},
			warnings: []string{
				`clusters[0].proxmox.csi.storageClasses[1].datastore: "local" is not shared by the hosts, and one-gpu-1 has ha: with a volume ` +
					"of the class quick attached, Proxmox cannot start it on another host",
			},
		},
		"replication of disks that are not on ZFS": {change: replicated(func(s *fixture) { s.storage("pve2", "fast").Type = "lvmthin" }), problems: []string{
			`clusters[0].gpuWorkers[0].datastore: "fast" is of type lvmthin, and Proxmox replicates disks of ZFS pools (zfspool) alone: ` +
				"use one, or a datastore that all hosts share, or remove ha",
		}},
		"replication to a host without the pool": {change: replicated(func(*fixture) {}), problems: []string{
			`clusters[0].gpuWorkers[0].datastore: "fast" is no ZFS pool on pve1, to which ha.replication copies the disks of one-gpu-1`,
		}},
		"replication of shared disks": {change: replicated(func(s *fixture) { s.storage("pve2", "fast").Shared = 1 }), problems: []string{
			"clusters[0].gpuWorkers[0].ha.replication: has nothing to copy: all hosts share the datastores of one-gpu-1; remove it",
		}},
		"replication without the right to it": {
			change: replicated(func(s *fixture) {
				s.storage("pve1", "fast").Type = "zfspool"
				delete(s.site.Rights["/vms"], "VM.Replicate")
			}),
			problems: []string{
				"may not VM.Replicate on /vms/4000: as root on a host, `pveum acl modify /vms --users pulumi@pve --tokens 'pulumi@pve!talos' " +
					"--roles TalosProxmoxReplication`",
			},
		},
		"replication": {change: replicated(func(s *fixture) { s.storage("pve1", "fast").Type = "zfspool" })},
		"high availability before there were rules": {
			change: func(s *fixture) {
				s.worker().HA, s.site.Version = &spec.HA{MaxRestart: 1, MaxRelocate: 1}, "8.4.14"
				s.site.Rights["/"] = map[string]bool{"Sys.Audit": false, "Sys.Console": false}
			},
			problems: []string{
				"may not VM.Monitor on /vms/2000, /vms/4000",
				"clusters[0].gpuWorkers[0].ha: needs Proxmox VE 9, whose high availability has rules, and 8.4.14 answers: upgrade it, or remove ha",
			},
		},
		"high availability of a single host": {
			change: func(s *fixture) {
				s.worker().HA, s.worker().Host = &spec.HA{MaxRestart: 1, MaxRelocate: 1}, "pve1"
				s.site.Rights["/"] = map[string]bool{"Sys.Audit": false, "Sys.Console": false}
				delete(s.site.Hosts, "pve2")
			},
			problems: []string{
				`hosts[1].name: "pve2" is not a host of this Proxmox cluster`,
				"clusters[0].gpuWorkers[0].ha: needs a Proxmox cluster, and pve1 is a host of its own: remove ha, or join it to a cluster",
			},
		},
		"a disabled datastore": {
			change: func(s *fixture) { s.storage("pve2", "fast").Enabled = 0 },
			problems: []string{
				`clusters[0].gpuWorkers[0].datastore: "fast" is disabled on pve2, or kept to other hosts: ` +
					"`pvesm set fast --disable 0` and `--nodes` change it; or choose another of disks",
			},
		},
		"a datastore for others": {
			change: func(s *fixture) { s.storage("pve2", "fast").Content = "backup" },
			problems: []string{
				`"fast" takes no content of type images on pve2: choose another of disks, or ` +
					"`pvesm set fast --content backup,images`",
			},
		},
		"an image's datastore": {
			change: func(s *fixture) { s.storage("pve1", "local").Content = "" },
			problems: []string{
				`templates.talos.imageDatastore: "local" takes no content of type iso on pve1: choose another of none, or ` +
					"`pvesm set local --content iso`",
			},
		},
		"an inactive datastore": {
			change:   func(s *fixture) { s.storage("pve2", "fast").Active = 0 },
			problems: []string{`"fast" is not active on pve2: ` + "`pvesm status` there says why"},
		},
		"an inactive one in use": {
			change:   func(s *fixture) { s.created = true; s.addMachine(*s.worker()); s.storage("pve2", "fast").Active = 0 },
			warnings: []string{`"fast" is not active on pve2`},
		},
		"a datastore no one may see": {
			change: func(s *fixture) {
				s.worker().Datastore = "slow"
				delete(s.site.Rights, "/storage/slow")
			},
			problems: []string{
				"may not Datastore.AllocateSpace, Datastore.Audit on /storage/slow: as root on a host, `pveum acl modify /storage/slow --users " +
					"pulumi@pve --tokens 'pulumi@pve!talos' --roles TalosProxmoxDisks`",
				`clusters[0].gpuWorkers[0].datastore: "slow" is not a storage of pve2 that pulumi@pve!talos may see (for images there are disks, ` +
					"fast): correct the name, or add it with `pvesm add`, or give pulumi@pve!talos its roles on it",
			},
		},
		"a full datastore": {change: func(s *fixture) { s.storage("pve2", "fast").Free = 0 }, problems: []string{`clusters[0].gpuWorkers[0].datastore: "fast" is full on pve2: 0.0 GiB free, and 40.0 GiB are new there (one-gpu-1 is to be created there); make room`}},
		"a thin one that is small": {
			change:   func(s *fixture) { s.storage("pve2", "fast").Free = 10 << 30 },
			warnings: []string{`"fast" has 10.0 GiB free on pve2, and 40.0 GiB are new there`},
		},
		"a thick one that is small": {
			change:   func(s *fixture) { s.storage("pve2", "fast").Free, s.storage("pve2", "fast").Type = 10<<30, "lvm" },
			problems: []string{`"fast" is full on pve2: 10.0 GiB free, and 40.0 GiB are new there`},
		},
		"a full one that is in use": {
			change: func(s *fixture) { s.created = true; s.addMachine(*s.worker()); s.storage("pve2", "fast").Free = 0 },
		},
		"one that tells no size": {
			change: func(s *fixture) { s.storage("pve2", "fast").Free, s.storage("pve2", "fast").Total = 0, 0 },
		},
		"a shared one, for all hosts": {change: func(s *fixture) {
			s.worker().Datastore = "disks"
			for _, h := range []string{"pve1", "pve2"} {
				s.storage(h, "disks").Shared, s.storage(h, "disks").Free = 1, 50<<30
			}
		}, warnings: []string{`templates.talos.datastore: "disks" has 50.0 GiB free on pve1, and 70.0 GiB are new there (template talos, template talos-nvidia-open-lts, one-cp-1, … are to be created there)`}},

		"no such bridge": {
			change: func(s *fixture) { s.plan.Clusters[0].Network.Bridge = "vmbr9" },
			problems: []string{
				`clusters[0].network.bridge: "vmbr9" is not a bridge of pve1 (there are inner, tenant, vmbr0)`,
				`clusters[0].network.bridge: "vmbr9" is not a bridge of pve2`,
			},
		},
		"a host without bridges": {
			change: func(s *fixture) { s.host("pve2").Bridges = []preflight.Bridge{} },
			problems: []string{
				`clusters[0].network.bridge: "vmbr0" is not a bridge of pve2 (there are none)`,
			},
		},
		"another card's bridge": {
			change:   func(s *fixture) { s.worker().ExtraNICs = []spec.NIC{{Bridge: "vmbr9"}} },
			problems: []string{`clusters[0].gpuWorkers[0].extraNICs[0].bridge: "vmbr9" is not a bridge of pve2`},
		},
		"a VLAN that is tagged": {change: func(s *fixture) { s.plan.Clusters[0].Network.VLAN = 42 }},
		"a VLAN without a port": {
			change:   func(s *fixture) { s.worker().ExtraNICs = []spec.NIC{{Bridge: "inner", VLAN: 7}} },
			problems: []string{"clusters[0].gpuWorkers[0].extraNICs[0].vlan: is 7, and the bridge inner of pve2 has no port that Proxmox could tag"},
		},
		"a VLAN of an aware one": {change: func(s *fixture) {
			s.worker().ExtraNICs = []spec.NIC{{Bridge: "inner", VLAN: 7}}
			s.host("pve2").Bridges[1].VLANAware = 1
		}},
		"a VLAN on a VNet": {
			change:   func(s *fixture) { s.worker().ExtraNICs = []spec.NIC{{Bridge: "tenant", VLAN: 7}} },
			problems: []string{"extraNICs[0].vlan: is 7, and the VNet tenant takes no VLANs"},
		},
		"a VNet, with its own right": {change: func(s *fixture) {
			s.worker().ExtraNICs = []spec.NIC{{Bridge: "tenant"}}
			s.site.Rights["/sdn/zones/localnetwork/tenant"] = map[string]bool{"SDN.Audit": true}
		}},

		"a machine of someone": {change: func(s *fixture) { s.addForeignVM(proxmoxapi.Listed{VMID: 4000, Name: "db", Host: "pve1"}, "") }, problems: []string{"clusters[0].gpuWorkers[0]: one-gpu-1 would get a VMID that is taken: VM 4000 is db on pve1, and no stack made it: leave it, and set a free VMID for one-gpu-1 alone"}},
		"a machine of another stack": {change: func(s *fixture) {
			s.addForeignVM(proxmoxapi.Listed{VMID: 4000, Name: "one-gpu-1", Host: "pve1"}, nodeDescription("dev"))
		}, problems: []string{"VM 4000 is one-gpu-1 on pve1, and belongs to the stack organization/talos-proxmox/dev"}},
		"an interrupted run's": {change: func(s *fixture) {
			s.addForeignVM(proxmoxapi.Listed{VMID: 4000, Name: "one-gpu-1", Host: "pve2"}, nodeDescription("prod"))
		}, problems: []string{
			"an interrupted run of this stack left VM 4000 on pve2: `talos-proxmox recover prod --vmid 4000` removes it",
		}},
		"a machine of this stack whose state is blank": {change: func(s *fixture) {
			s.stack.Empty = true
			s.addForeignVM(proxmoxapi.Listed{VMID: 4000, Name: "one-gpu-1", Host: "pve2"}, nodeDescription("prod"))
		}, problems: []string{"this state does not have it: the state was lost, or this is another backend"}},
		"a machine of another backend's stack of this name": {change: func(s *fixture) {
			s.stack.ID = "9f86"
			s.addForeignVM(
				proxmoxapi.Listed{VMID: 4000, Name: "one-gpu-1", Host: "pve2"},
				ownership.Node(ownership.Of("organization", "talos-proxmox", "prod", "1d2c"), "Talos worker"),
			)
		}, problems: []string{
			"of the stack organization/talos-proxmox/prod (id=1d2c), and this state does not have it: the state was lost",
		}},
		"an interrupted run's, by its id": {change: func(s *fixture) {
			s.stack.ID = "9f86"
			s.addForeignVM(
				proxmoxapi.Listed{VMID: 4000, Name: "one-gpu-1", Host: "pve2"},
				ownership.Node(ownership.Of("acme", "talos-proxmox", "prod", "9f86"), "Talos worker"),
			)
		}, problems: []string{"an interrupted run of this stack left VM 4000 on pve2"}},
		"the stack's own": {change: func(s *fixture) {
			s.addMachine(*s.worker())
			s.addForeignVM(proxmoxapi.Listed{VMID: 4000, Name: "one-gpu-1", Host: "pve2"}, nodeDescription("prod"))
		}},
		"a template's VMID": {
			change: func(s *fixture) { s.addForeignVM(proxmoxapi.Listed{VMID: 901, Name: "db", Host: "pve2"}, "") },
			problems: []string{
				"templates.talos.firstVmid: gives the template on pve1 the VMID 901, which db on pve2 has: leave that machine",
			},
		},
		"an interrupted build's": {change: func(s *fixture) {
			s.addForeignVM(
				proxmoxapi.Listed{VMID: 901, Name: "talos", Host: "pve1"},
				"talos-proxmox-template owner=talos-proxmox/prod provenance=x",
			)
		}},
		"a template that is built": {
			change: func(s *fixture) {
				s.created = true
				s.addForeignVM(proxmoxapi.Listed{VMID: 901, Name: "x", Host: "pve1"}, "")
			},
		},
		"a name that is taken": {change: func(s *fixture) {
			s.addForeignVM(proxmoxapi.Listed{VMID: 77, Name: "one-gpu-1", Host: "pve1"}, nodeDescription("dev"))
		}, warnings: []string{"clusters[0].gpuWorkers[0]: one-gpu-1 would have the name of VM 77 on pve1 as well, and it belongs to the stack organization/talos-proxmox/dev"}},

		"its own machine's name": {change: func(s *fixture) {
			s.stack.Machines[77] = vmdiff.Machine{Name: "one-gpu-1", VMID: 77, Host: "pve1"}
			s.addForeignVM(proxmoxapi.Listed{VMID: 77, Name: "one-gpu-1", Host: "pve1"}, nodeDescription("prod"))
		}},

		"someone's mapping": {
			change:   func(s *fixture) { s.site.Mappings["/mapping/pci/rtx"] = "mine" },
			problems: []string{`hosts[1].gpus.name: "rtx" is a PCI mapping that no stack made: give the device another name`},
		},
		"another stack's mapping": {
			change: func(s *fixture) {
				s.site.Mappings["/mapping/pci/rtx"] = ownership.Mapping(ownership.Owner{Name: "a/talos-proxmox/dev"})
			},
			problems: []string{`"rtx" is a PCI mapping of the stack a/talos-proxmox/dev`},
		},
		"an interrupted run's mapping": {
			change: func(s *fixture) {
				s.site.Mappings["/mapping/pci/rtx"] = ownership.Mapping(ownership.Owner{Name: "a/talos-proxmox/prod"})
			},
			problems: []string{"`talos-proxmox recover prod` removes it"},
		},
		"the stack's own mapping": {
			change: func(s *fixture) {
				s.site.Mappings["/mapping/pci/rtx"] = "x"
				s.stack.Mappings = []string{"/mapping/pci/rtx"}
			},
		},
		"no such pool": {change: func(s *fixture) { s.worker().ResourcePool = "gpus"; s.site.Pools = []string{} }, problems: []string{`clusters[0].gpuWorkers[0].resourcePool: "gpus" is not a resource pool (there are none): correct the name, or make it with ` + "`pvesh create /pools --poolid gpus`"}},

		"accounts of a cluster": {change: addAccounts("fast")},
		"accounts on another datastore than all hosts have": {
			change: func(s *fixture) {
				addAccounts("fast")(s)
				s.storage("pve1", "fast").Enabled = 0
			},
			warnings: []string{`clusters[0].proxmox.csi.storageClasses[0].datastore: "fast" is not on pve1, where cluster one has ` +
				"machines: pods there get no volume of storage class class"},
		},
		"accounts on no datastore": {
			change: addAccounts("slow"),
			problems: []string{`clusters[0].proxmox.csi.storageClasses[0].datastore: "slow" is not a storage of any host of ` +
				"cluster one (pve1, pve2; for images pve1 has disks, fast): correct the name, or add it with `pvesm add`"},
		},
		"a storage class beside machines of others": {
			change: func(s *fixture) {
				addAccounts("fast")(s)
				s.site.ForeignVolumes = map[string][]int{"fast": {300, 101}, "disks": {7}}
			},
			warnings: []string{`clusters[0].proxmox.csi.storageClasses[0].datastore: "fast" holds volumes of machines that are not this ` +
				"stack's (101 300), which the CSI plugin's token may delete: give the class a datastore of its own"},
		},
		"a machine with the number of the CSI plugin's volumes": {
			change: func(s *fixture) {
				addAccounts("fast")(s)
				s.site.Machines = append(s.site.Machines, proxmoxapi.Listed{VMID: 9999, Name: "scratch", Host: "pve9"})
			},
			warnings: []string{"clusters[0].proxmox.csi: is used, and Proxmox has a VM 9999 (scratch on pve9), for whose disks it takes " +
				"the volumes of the CSI plugin"},
		},
		"volumes that go with a machine": {
			change: func(s *fixture) {
				s.site.LostVolumes = map[string][]string{"one-old-1": {"disks:vm-300-disk-1", "disks:vm-300-disk-7"}}
			},
			warnings: []string{"one-old-1 is deleted with volumes that the stack file does not name: disks:vm-300-disk-1, " +
				"disks:vm-300-disk-7. Proxmox counts them to its VMID"},
		},
		"accounts without the group": {
			change: func(s *fixture) { addAccounts("fast")(s); s.site.Groups = []string{"others"} },
			problems: []string{"clusters[0].proxmox: needs the group talos-kubernetes on Proxmox, which its accounts are in: as root " +
				"on a host, `pveum group add talos-kubernetes` makes it"},
		},
		"accounts without the roles that are there": {
			change: func(s *fixture) {
				addAccounts("fast")(s)
				delete(s.site.Rights, "/access")
				s.plan.Clusters[0].Proxmox.ExistingRoles = true
				s.site.Roles = map[string][]string{
					"TalosCSIMachines": {"VM.Audit"}, "TalosCCMMachines": {"VM.Audit"},
					"TalosCSIStorage": {"Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.Audit"},
				}
			},
			problems: []string{`clusters[0].proxmox.roles: "existing" needs the role TalosCSIMachines with VM.Config.Disk on Proxmox: ` +
				"as root on a host, `pveum role add TalosCSIMachines --privs \"VM.Audit VM.Config.Disk\"` makes it"},
		},
		"an autoscaler": {change: addAutoscaler},
		"an autoscaler without a role and without its pool": {
			change: func(s *fixture) {
				addAutoscaler(s)
				delete(s.site.Roles, "TalosAutoscalerTemplates")
				s.site.Pools = []string{"talos"}
			},
			problems: []string{
				`clusters[0].workers[0].autoscale.resourcePool: "autoscaled" is not a resource pool (there are talos): correct the name, or ` +
					"make it with `pvesh create /pools --poolid autoscaled`",
				"clusters[0].workers[0].autoscale: needs the role TalosAutoscalerTemplates with VM.Audit, VM.Clone on Proxmox: as root on a " +
					"host, `pveum role add TalosAutoscalerTemplates --privs \"VM.Audit VM.Clone\"` makes it",
			},
		},
		"an autoscaler whose user may too little": {
			change: func(s *fixture) {
				addAutoscaler(s)

				rights := s.site.Autoscalers["karpenter@pve"]
				delete(rights["/pool/autoscaled"], "VM.Audit")
				delete(rights["/pool/autoscaled"], "VM.PowerMgmt")
				delete(rights, "/storage/disks")
				delete(rights, "/storage/local")
				rights["/nodes/pve1"] = map[string]bool{"Sys.Modify": true}
			},
			problems: []string{
				`clusters[0].workers[0].autoscale.user: "karpenter@pve" may not VM.Audit, VM.PowerMgmt on /pool/autoscaled: as root on a host, ` +
					"`pveum acl modify /pool/autoscaled --users karpenter@pve --roles TalosAutoscalerMachines` gives it the role " +
					"TalosAutoscalerMachines; docs/permissions.md#autoscalers has all of them",
				`"karpenter@pve" may not Sys.Audit on /nodes/pve1: as root on a host, ` +
					"`pveum acl modify /nodes --users karpenter@pve --roles TalosAutoscalerHosts`",
				`"karpenter@pve" may not Datastore.AllocateSpace, Datastore.Audit on /storage/disks: as root`,
				`"karpenter@pve" may not Datastore.Allocate, Datastore.AllocateTemplate, Datastore.Audit on /storage/local: as root`,
			},
		},
		"an autoscaler of which the program sees nothing": {
			change: func(s *fixture) {
				addAutoscaler(s)
				s.site.Roles, s.site.Pools, s.site.Autoscalers = nil, nil, nil
			},
		},
		"templates that the program may not let an autoscaler clone": {
			change: func(s *fixture) {
				addAutoscaler(s)
				s.addMachineOn("pve1")
				delete(s.site.Rights["/vms"], "VM.Allocate")
			},
			problems: []string{"pulumi@pve!talos may not VM.Allocate on /vms/901: as root"},
		},
		"accounts without the rights to make them": {
			change: func(s *fixture) {
				addAccounts("fast")(s)
				delete(s.site.Rights, "/access")
				delete(s.site.Rights["/"], "Sys.Modify")
				delete(s.site.Rights, "/access/groups/talos-kubernetes")
				delete(s.site.Rights["/storage/fast"], "Datastore.Audit")
				s.site.Rights["/storage/fast"]["Datastore.Allocate"] = true
			},
			problems: []string{
				"pulumi@pve!talos may not User.Modify on /access/groups/talos-kubernetes: as root on a host, `pveum acl modify " +
					"/access/groups/talos-kubernetes --users pulumi@pve --tokens 'pulumi@pve!talos' --roles TalosProxmoxAccounts` gives it",
				"pulumi@pve!talos may not Datastore.Audit on /storage/fast: as root on a host, `pveum acl modify /storage/fast --users pulumi@pve " +
					"--tokens 'pulumi@pve!talos' --roles TalosProxmoxAccounts,TalosProxmoxDisks`",
				"pulumi@pve!talos may not Sys.Modify on /access: as root on a host",
			},
		},

		"a release that is not": {change: func(s *fixture) { s.plan.Templates[0].Version = "v1.12.7" }, problems: []string{`templates.talos.version: "v1.12.7" is not a release that the Image Factory at https://factory.test has: use v1.12.6 or v1.13.0 or v1.13.1`}},
		"a release to come": {
			change: func(s *fixture) { s.plan.Templates[0].Version = "v1.14.0" }, problems: []string{"use v1.13.1"},
		},
		"an extension that is not": {change: func(s *fixture) { s.plan.Templates[0].Extensions = []string{"siderolabs/magic"} }, problems: []string{"templates.talos.extensions: siderolabs/magic: the Image Factory at https://factory.test has no such extension for Talos v1.12.6"}},
		"an image that is there":   {change: func(s *fixture) { s.created = true; s.plan.Templates[0].Version = "v1.12.7" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := newFixture()
			tc.change(s)
			found := preflight.Check(s.plan, s.stack, s.site)
			assertLines(t, tc.problems, strings.Split(found.Errors().Error(), "\n"))
			assertLines(t, tc.warnings, found.Warnings().Lines())
			assert.NotContains(t, problem.Report(found, nil), "%!")
		})
	}
}

// assertLines wants one line for each text, in order, and no others.
func assertLines(t *testing.T, want, lines []string) {
	t.Helper()

	if len(lines) == 1 && lines[0] == "" {
		lines = nil
	}

	if assert.Len(t, lines, len(want), strings.Join(lines, "\n")) {
		for i := range want {
			assert.Contains(t, lines[i], want[i])
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()

	s := newFixture()
	s.created, s.site.Releases = true, nil
	s.addMachine(s.plan.Clusters[0].ControlPlanes[0])
	s.host("pve2").Status = "offline"
	s.host("pve2").Storages, s.host("pve2").Bridges = nil, nil
	assert.Equal(t, `  warning  hosts: 1 of the 2 hosts of Proxmox' cluster are offline, so that it may have no quorum and nothing can be made or changed: `+"`pvecm status`"+` on a host shows it
  ok       Proxmox VE 9.1 answers at https://10.0.0.1:8006/
  ok       pulumi@pve!talos may do what the plan needs
  ok       pulumi@pve!talos can become root by Sys.Modify on /, Sys.Modify on /access, Mapping.Modify on /mapping/pci, Mapping.Modify on /mapping/pci/rtx (docs/permissions.md#what-the-holder-can-do): remove the rules that no setting and no new mapping needs

pve1
  ok       is online
  ok       storage disks: 1024.0 GiB free
  ok       bridge vmbr0

pve2
  PROBLEM  hosts[1].name: "pve2" is offline, and one-gpu-1 is to be created there: bring it back (`+"`pvecm status` and `systemctl status pve-cluster corosync`"+` there), or place them elsewhere
`, problem.Report(preflight.Check(s.plan, s.stack, s.site), nil))
}

// TestJudgeStorages of a host's facts, without Proxmox' API.
func TestJudgeStorages(t *testing.T) {
	t.Parallel()

	s := newFixture()
	s.storage("pve2", "fast").Free = 10 << 30

	found := preflight.CheckStorages(s.plan, s.stack, "pve2", s.host("pve2").Storages)
	assertLines(t, []string{`"fast" has 10.0 GiB free on pve2, and 40.0 GiB are new there`}, found.Warnings().Lines())
	assert.Len(t, found, 1, "what is fine is left out")
	assert.Empty(t, preflight.CheckStorages(s.plan, s.stack, "pve2", nil), "the host's storages are unknown")
}
