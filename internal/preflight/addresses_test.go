package preflight_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/vmdiff"
)

// addressPlan has a machine with an address and one more network card, a VIP, and addresses for Services.
func addressPlan() *spec.Plan {
	vm := spec.VM{
		Name: "one-cp-1", Path: "clusters[0].controlPlane", Host: "pve1", VMID: 2000,
		Address:   netip.MustParsePrefix("10.0.0.40/24"),
		ExtraNICs: []spec.NIC{{Bridge: "vmbr1", VLAN: 7, Address: netip.MustParsePrefix("10.1.0.40/24")}},
		VLANs:     []spec.VLAN{{ID: 30, Address: netip.MustParsePrefix("10.2.0.40/24")}},
	}

	return &spec.Plan{Clusters: []spec.Cluster{{
		Name: "one", Network: spec.Network{Bridge: "vmbr0"}, VIP: netip.MustParseAddr("10.0.0.20"),
		CNI: &spec.CNI{LoadBalancer: []spec.AddressRange{
			{First: netip.MustParseAddr("10.0.0.100"), Last: netip.MustParseAddr("10.0.0.110")},
		}},
		ControlPlanes: []spec.Node{{VM: vm}},
	}}}
}

// guestsOfOthers are the guests of a Proxmox, by VMID, and their configurations.
const guestsOfOthers = `[
	{"type": "qemu", "vmid": 101, "name": "db", "node": "pve2", "status": "running"},
	{"type": "lxc", "vmid": 102, "name": "dns", "node": "pve2", "status": "running"},
	{"type": "qemu", "vmid": 103, "name": "old", "node": "pve2", "status": "stopped"},
	{"type": "qemu", "vmid": 104, "name": "iso", "node": "pve2", "status": "running"},
	{"type": "qemu", "vmid": 105, "name": "tpl", "node": "pve2", "status": "stopped", "template": 1},
	{"type": "qemu", "vmid": 106, "name": "secret", "node": "pve2", "status": "running"},
	{"type": "qemu", "vmid": 107, "name": "left", "node": "pve2", "status": "running"},
	{"type": "qemu", "vmid": 108, "name": "theirs", "node": "pve2", "status": "running"},
	{"type": "qemu", "vmid": 2000, "name": "one-cp-1", "node": "pve1", "status": "running"}]`

var configurationsOfOthers = map[int]string{ //nolint:gochecknoglobals // a table
	101: `{"net0": "virtio=02:00:00:00:00:01,bridge=vmbr0", "ipconfig0": "ip=10.0.0.40/24,gw=10.0.0.1", "ipconfig1": "ip=10.0.0.20/24"}`,
	102: `{"net0": "name=eth0,bridge=vmbr0,hwaddr=02:00:00:00:00:02,ip=10.0.0.105/24,type=veth", "lxc": [["a", "b"]]}`,
	103: `{"net0": "virtio=02:00:00:00:00:03,bridge=vmbr0", "ipconfig0": "ip=10.0.0.20/16"}`,
	104: `{"net0": "virtio=02:00:00:00:00:04,bridge=vmbr0,tag=20", "ipconfig0": "gw=10.0.0.1,ip=10.0.0.40/24",
		"net1": "virtio=02:00:00:00:00:05,bridge=vmbr1,tag=7", "ipconfig1": "ip=dhcp,ip6=auto"}`,
	107: fmt.Sprintf(`{"net0": "virtio=02:00:00:00:00:06,bridge=vmbr0", "ipconfig0": "ip=10.0.0.40/24", "description": %q}`,
		ownership.Node(ownership.Owner{Name: "talos-proxmox/prod", ID: "0123456789abcdef"}, "")),
	108: fmt.Sprintf(`{"net1": "virtio=02:00:00:00:00:07,bridge=vmbr1,tag=7", "ipconfig1": "ip=10.1.0.40/24", "description": %q}`,
		ownership.Node(ownership.Owner{Name: "talos-proxmox/dev", ID: "fedcba9876543210"}, "")),
}

// TestAddressesOfOtherGuests: planned addresses are compared with all other guests' as soon as one of them is new, and
// not a single guest is read otherwise.
func TestAddressesOfOtherGuests(t *testing.T) {
	t.Parallel()

	own := vmdiff.Machine{Name: "one-cp-1", VMID: 2000, Host: "pve1", Address: "10.0.0.40"}
	moved := own
	moved.Address = "10.0.0.39"

	const shared = "one addresses"

	same := vmdiff.CreationSettings(addressPlan())

	for name, test := range map[string]struct {
		machines map[int]vmdiff.Machine
		settings map[string]string
		read     bool
	}{
		"a new machine":                     {read: true},
		"a machine with another address":    {machines: map[int]vmdiff.Machine{2000: moved}, read: true},
		"another VIP":                       {map[int]vmdiff.Machine{2000: own}, map[string]string{shared: "10.0.0.21 10.0.0.100-10.0.0.110"}, true},
		"a new VLAN":                        {map[int]vmdiff.Machine{2000: own}, map[string]string{shared: "10.0.0.20 10.0.0.100-10.0.0.110"}, true},
		"nothing new":                       {map[int]vmdiff.Machine{2000: own}, same, false},
		"nothing new, of an earlier record": {map[int]vmdiff.Machine{2000: own}, map[string]string{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var (
				mu   sync.Mutex
				read []string
			)

			api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				path := strings.TrimPrefix(r.URL.Path, "/api2/json")

				switch {
				case path == "/cluster/resources":
					_, _ = fmt.Fprintf(w, `{"data": %s}`, guestsOfOthers)
				case strings.HasSuffix(path, "/config"):
					mu.Lock()

					read = append(read, path)

					mu.Unlock()

					for vmid, config := range configurationsOfOthers {
						if strings.Contains(path, fmt.Sprintf("/%d/", vmid)) {
							_, _ = fmt.Fprintf(w, `{"data": %s}`, config)

							return
						}
					}

					w.WriteHeader(http.StatusForbidden)
				default:
					_, _ = w.Write([]byte(`{"data": null}`))
				}
			}))
			defer api.Close()

			setting := func(key string) string {
				return map[string]string{"endpoint": api.URL, "apiToken": "pulumi@pve!talos=uuid"}[key]
			}
			plan, stack := addressPlan(), preflight.Stack{
				Project: "talos-proxmox", Name: "prod", ID: "0123456789abcdef", Machines: test.machines, Settings: test.settings,
				Image: func(spec.Template) string { return "" },
			}
			site := preflight.Read(t.Context(), preflight.Sources{
				Plan: plan, Stack: stack, Endpoint: api.URL,
				Proxmox: proxmoxapi.NewMachines(setting, api.Client().Transport),
				Factory: talos.Factory{URL: api.URL}, Transport: api.Client().Transport,
			})

			mu.Lock()
			defer mu.Unlock()

			read = slices.DeleteFunc(read, func(path string) bool { return strings.Contains(path, "/2000/") })
			found := preflight.Check(plan, stack, site)

			if !test.read {
				assert.Empty(t, read)
				assert.NotContains(t, strings.Join(found.Errors().Lines(), "\n"), " would have ")

				return
			}

			slices.Sort(read)
			assert.Equal(t, []string{
				"/nodes/pve2/lxc/102/config", "/nodes/pve2/qemu/101/config", "/nodes/pve2/qemu/103/config", "/nodes/pve2/qemu/104/config",
				"/nodes/pve2/qemu/106/config", "/nodes/pve2/qemu/107/config", "/nodes/pve2/qemu/108/config",
			}, read)

			const remedy = "; choose another address, or change that of the guest"

			assert.Equal(t, []string{
				"clusters[0].controlPlane.firstAddress: one-cp-1 would have 10.0.0.40, which VM 101 (db on pve2) has" + remedy,
				"clusters[0].cni.loadBalancer.addresses[0]: the load balancer of one would have 10.0.0.105, which container 102 (dns on pve2) " +
					"has" + remedy,
				"clusters[0].controlPlane.extraNICs[0].firstAddress: one-cp-1 would have 10.1.0.40, which VM 108 (theirs on pve2) of the " +
					"stack talos-proxmox/dev (id=fedcba9876543210) has" + remedy,
			}, linesAbout(found.Errors().Lines(), " would have 10"))
			assert.Equal(t, []string{
				"clusters[0].network.vip: the VIP of one would have 10.0.0.20, which VM 103 (old on pve2) has, and is off: they must not " +
					"run at the same time" + remedy,
				"clusters[0].controlPlane.firstAddress: one-cp-1 would have 10.0.0.40, which VM 104 (iso on pve2) has on vmbr0 with VLAN 20, " +
					"which matters if that is the same network" + remedy,
				"which addresses other guests have is unknown, and is not compared with the plan: the configurations of 106 cannot be read",
			}, append(linesAbout(found.Warnings().Lines(), " would have 10"), linesAbout(found.Warnings().Lines(), "which addresses")...))
		})
	}
}

func linesAbout(lines []string, text string) []string {
	return slices.DeleteFunc(lines, func(line string) bool { return !strings.Contains(line, text) })
}
