package proposal

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"talos-proxmox/internal/errorhints"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/talos"
)

// Inventory is what a Proxmox cluster has.
type Inventory struct {
	Endpoint string
	// Release is such as 9.2; empty = unknown.
	Release string
	// Cluster is the fingerprint of the cluster's certificate authority; empty = unknown.
	Cluster string
	// Hosts are sorted by name.
	Hosts []Host
	// Machines are all VMs and containers, Guests those with the addresses in their configuration.
	Machines []proxmoxapi.Listed
	Guests   []preflight.Guest
	// Mappings are the names of PCI mappings.
	Mappings []string
	// Gaps say what could not be read, and which privilege is missing.
	Gaps []string
}

// Host is a host of the cluster. What could not be read is empty.
type Host struct {
	Name      string
	Online    bool
	Address   netip.Addr
	Cores     int
	MemoryMiB int
	Storages  []hostfacts.Storage
	Bridges   []Bridge
	DNS       []netip.Addr
	GPUs      []GPU
}

// Bridge is a bridge of a host.
type Bridge struct {
	preflight.Bridge

	CIDR    string `json:"cidr"` // the host's address in it, with the prefix length
	Gateway string `json:"gateway"`
}

// GPU is an NVIDIA GPU.
type GPU struct {
	PCI    string // 01:00
	Device string // 10de:27b0
	Name   string // AD104GL [RTX 4000 SFF Ada Generation]
	// Generation is empty if the name does not tell it.
	Generation string
	// User is what has it already, a PCI mapping or a guest; empty = nothing.
	User string
}

// title names a GPU in one line.
func (g GPU) title() string {
	if g.Name == "" {
		return g.Device
	}

	return g.Name
}

// isAt reports whether an address, such as 0000:01:00.0, is of the GPU.
func (g GPU) isAt(address string) bool {
	slot, _, _ := strings.Cut(strings.TrimPrefix(address, "0000:"), ".")

	return slot == g.PCI
}

// host returns a host by its name.
func (i *Inventory) host(name string) (Host, bool) {
	at := slices.IndexFunc(i.Hosts, func(h Host) bool { return h.Name == name })
	if at < 0 {
		return Host{}, false
	}

	return i.Hosts[at], true
}

// guestMemoryMiB returns the memory of the guests that run on a host, and how many they are.
func (i *Inventory) guestMemoryMiB(host string) (memory, count int) {
	for _, m := range i.Machines {
		if m.Host == host && m.Status == "running" {
			memory, count = memory+int(m.Memory>>20), count+1
		}
	}

	return memory, count
}

// inventoryReader reads an inventory.
type inventoryReader struct {
	proxmox *proxmoxapi.Machines
	rights  permissions.Granted

	mu        sync.Mutex // guards inventory
	inventory *Inventory
}

// Read reads what a Proxmox cluster has. The error says why the API does not answer or refuses the credentials, and
// what to do; what the credentials may not read is no error: [Inventory.Gaps] has it.
func Read(ctx context.Context, endpoint string, proxmox *proxmoxapi.Machines) (*Inventory, error) {
	r := &inventoryReader{proxmox: proxmox, inventory: &Inventory{Endpoint: endpoint}}

	var err error

	r.rights, err = preflight.ReadRights(ctx, proxmox)
	if err != nil && proxmoxapi.StatusCode(err) != http.StatusForbidden {
		return nil, connectionError(endpoint, err)
	}

	r.readCluster(ctx)

	var wg sync.WaitGroup

	for i := range r.inventory.Hosts {
		if r.inventory.Hosts[i].Online {
			wg.Go(func() { r.readHost(ctx, &r.inventory.Hosts[i]) })
		}
	}

	wg.Wait()
	r.readMappings(ctx)
	r.findUsers()
	r.noteFilters()
	slices.Sort(r.inventory.Gaps)

	return r.inventory, nil
}

// connectionError adds what to do to the error of the first request.
func connectionError(endpoint string, err error) error {
	if proxmoxapi.StatusCode(err) == http.StatusUnauthorized {
		return fmt.Errorf("%s refuses the credentials (%w): compare the token's id, its secret and its expiry with Datacenter, "+
			"Permissions; docs/getting-started.md#the-stack-from-what-is-there makes a token that can read", endpoint, err)
	}

	advice, known := errorhints.Advice(errorhints.Subject{Host: endpoint}, "read", err.Error())
	if !known {
		advice = "is that the address of a Proxmox host's API, with the port 8006, and does this computer reach it?"
	}

	return fmt.Errorf("unable to read Proxmox at %s: %w. What to do: %s", endpoint, err, advice)
}

// read reads a path. It records a gap if the credentials may not, or nothing answers.
func (r *inventoryReader) read(ctx context.Context, what, path string, into any) bool {
	err := r.proxmox.Get(ctx, path, into)
	if err != nil {
		r.gap("%s: %s", what, refusal(err))
	}

	return err == nil
}

// missingPrivilege matches Proxmox' error for a missing privilege.
var missingPrivilege = regexp.MustCompile(`Permission check failed \((/[^,]*), ([^)]+)\)`)

// refusal says in one line why a call was not answered.
func refusal(err error) string {
	if found := missingPrivilege.FindStringSubmatch(err.Error()); found != nil {
		return fmt.Sprintf("needs %s on %s", strings.ReplaceAll(found[2], "|", " or "), found[1])
	}

	return strings.Join(strings.Fields(err.Error()), " ")
}

func (r *inventoryReader) gap(format string, arguments ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.inventory.Gaps = append(r.inventory.Gaps, fmt.Sprintf(format, arguments...))
}

// readCluster reads what the cluster has as a whole.
func (r *inventoryReader) readCluster(ctx context.Context) {
	i := r.inventory

	var version struct {
		Release string `json:"release"`
	}

	if r.read(ctx, "the release of Proxmox VE", "/version", &version) {
		i.Release = version.Release
	}

	var err error
	if i.Cluster, err = r.proxmox.Cluster(ctx); err != nil {
		r.gap("the cluster's certificate authority: %s", refusal(err))
	}

	r.readHosts(ctx)

	if i.Machines, err = r.proxmox.List(ctx); err != nil {
		r.gap("the VMIDs that are taken: %s", refusal(err))
	}

	guests, unread := preflight.ReadGuests(ctx, r.proxmox, i.Machines)
	if i.Guests = guests; len(unread) > 0 {
		r.gap("the addresses of the guests %s: their configuration needs VM.Audit on /vms", strings.Join(unread, ", "))
	}
}

// readHosts reads the list of hosts, and their addresses.
func (r *inventoryReader) readHosts(ctx context.Context) {
	var hosts []struct {
		Name   string `json:"node"`
		Status string `json:"status"`
		Cores  int    `json:"maxcpu"`
		Memory int64  `json:"maxmem"`
	}

	if !r.read(ctx, "the hosts of the cluster", "/nodes", &hosts) {
		return
	}

	var members []struct {
		Type, Name, IP string
	}

	r.read(ctx, "the addresses of hosts", "/cluster/status", &members)

	for _, h := range hosts {
		host := Host{Name: h.Name, Online: h.Status != "offline", Cores: h.Cores, MemoryMiB: int(h.Memory >> 20)}

		for _, m := range members {
			if m.Type == "node" && m.Name == h.Name {
				host.Address, _ = netip.ParseAddr(m.IP) // invalid = unknown
			}
		}

		r.inventory.Hosts = append(r.inventory.Hosts, host)
	}

	slices.SortFunc(r.inventory.Hosts, func(a, b Host) int { return strings.Compare(a.Name, b.Name) })
}

// readHost reads what a host has.
func (r *inventoryReader) readHost(ctx context.Context, h *Host) {
	path := "/nodes/" + url.PathEscape(h.Name)

	r.read(ctx, "the storages of "+h.Name, path+"/storage", &h.Storages)
	r.read(ctx, "the bridges of "+h.Name, path+"/network?type=any_bridge", &h.Bridges)
	slices.SortFunc(h.Bridges, func(a, b Bridge) int { return strings.Compare(a.Name, b.Name) })

	local, servers := netip.MustParsePrefix("127.0.0.0/24"), map[string]string{}
	r.read(ctx, "the name servers of "+h.Name, path+"/dns", &servers)

	for _, key := range []string{"dns1", "dns2", "dns3"} {
		// A resolver on the host itself is none for machines.
		if address, err := netip.ParseAddr(servers[key]); err == nil && address.Is4() && !local.Contains(address) {
			h.DNS = append(h.DNS, address)
		}
	}

	var devices []pciDevice

	r.read(ctx, "the GPUs of "+h.Name, path+"/hardware/pci", &devices)

	for _, d := range devices {
		if d.Vendor == vendorNVIDIA && strings.HasPrefix(d.Class, classDisplay) {
			h.GPUs = append(h.GPUs, d.gpu())
		}
	}
}

// pciDevice is a PCI device in the list of a host.
type pciDevice struct {
	ID         string `json:"id"`
	Class      string `json:"class"`
	Vendor     string `json:"vendor"`
	Device     string `json:"device"`
	VendorName string `json:"vendor_name"`
	Name       string `json:"device_name"`
}

// The vendor and the class of NVIDIA's GPUs.
const (
	vendorNVIDIA = "0x10de"
	classDisplay = "0x03"
)

// gpu returns a device as a GPU with all of its functions.
func (d pciDevice) gpu() GPU {
	address, _, _ := strings.Cut(strings.TrimPrefix(d.ID, "0000:"), ".")

	return GPU{
		PCI: address, Device: strings.ReplaceAll(d.Vendor+":"+d.Device, "0x", ""), Name: d.Name,
		Generation: talos.GenerationOf(d.VendorName + " " + d.Name),
	}
}

// readMappings reads which names and GPUs PCI mappings have.
func (r *inventoryReader) readMappings(ctx context.Context) {
	var mappings []proxmoxapi.Mapping

	r.read(ctx, "the PCI mappings", proxmoxapi.PathPCIMappings, &mappings)

	for _, m := range mappings {
		r.inventory.Mappings = append(r.inventory.Mappings, m.Name)

		for i, h := range r.inventory.Hosts {
			for j, gpu := range h.GPUs {
				if m.Has(h.Name, gpu.PCI) {
					r.inventory.Hosts[i].GPUs[j].User = "the PCI mapping " + m.Name
				}
			}
		}
	}
}

// findUsers notes which GPUs guests have.
func (r *inventoryReader) findUsers() {
	for _, guest := range r.inventory.Guests {
		for i, h := range r.inventory.Hosts {
			for j, gpu := range h.GPUs {
				if guest.Host == h.Name && slices.ContainsFunc(guest.PCI, gpu.isAt) {
					r.inventory.Hosts[i].GPUs[j].User = guest.Title()
				}
			}
		}
	}
}

// noteFilters notes which lists are not complete: Proxmox leaves out what the credentials may not see.
func (r *inventoryReader) noteFilters() {
	if r.rights == nil {
		return
	}

	for _, list := range []struct {
		what, path string
		privileges []string
	}{
		{"cores and memory of hosts", "/nodes", []string{"Sys.Audit"}},
		{"storages", "/storage", []string{"Datastore.Audit", "Datastore.AllocateSpace"}},
		{"bridges", "/sdn/zones/localnetwork", []string{"SDN.Audit", "SDN.Use"}},
		{"VMs and containers, with their VMIDs and addresses,", "/vms", []string{"VM.Audit"}},
		{"PCI mappings", "/mapping/pci", []string{"Mapping.Audit", "Mapping.Use", "Mapping.Modify"}},
	} {
		if !r.rights.Has(list.path, list.privileges...) {
			r.gap("%s beyond those that the credentials may see: needs %s on %s", list.what, list.privileges[0], list.path)
		}
	}
}
