package preflight

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/vmdiff"
)

// Guest is a VM or container that is not the stack's, with what its configuration says.
type Guest struct {
	proxmoxapi.Listed

	Description string
	Addresses   []GuestAddress // without those by DHCP and from routers
	// PCI are the addresses of passed-through devices, without those of mappings.
	PCI []string
}

// GuestAddress is an address of a network device.
type GuestAddress struct {
	Address netip.Addr
	Bridge  string
	VLAN    string // empty = untagged
}

// plannedAddress is an address, or a range, that the plan gives to something.
type plannedAddress struct {
	owner, host, path string // the host is empty for a cluster's
	first, last       netip.Addr
	bridge            string
	vlan              int
}

// plannedAddresses returns the addresses of machines, VIPs and load balancers.
func plannedAddresses(plan *spec.Plan, machines []machine) (list []plannedAddress) {
	for _, m := range machines {
		add := func(address netip.Addr, path, bridge string, vlan int) {
			if address.IsValid() {
				list = append(list, plannedAddress{m.Name, m.Host, path, address, address, bridge, vlan})
			}
		}
		add(m.Address.Addr(), cmp.Or(m.OverridePaths["address"], m.Path+".firstAddress"), m.Network.Bridge, m.Network.VLAN)
		add(m.AddressIPv6.Addr(), fmt.Sprintf("%s.nodes.%d.addressIPv6", m.Path, m.Index+1), m.Network.Bridge, m.Network.VLAN)

		for _, link := range m.LinkAddresses(m.Network) {
			add(link.Address.Addr(), link.Path+".firstAddress", link.Bridge, link.VLAN)
		}
	}

	for i, cluster := range plan.Clusters {
		at, network := fmt.Sprintf("clusters[%d].", i), cluster.Network
		if cluster.VIP.IsValid() && len(cluster.ControlPlanes) > 0 {
			own := cluster.NetworkOf(cluster.ControlPlanes[0])
			list = append(list, plannedAddress{
				"the VIP of " + cluster.Name, "", at + "network.vip", cluster.VIP, cluster.VIP, own.Bridge, own.VLAN,
			})
		}

		if cluster.CNI == nil {
			continue
		}

		for j, r := range cluster.CNI.LoadBalancer {
			list = append(list, plannedAddress{
				"the load balancer of " + cluster.Name, "", fmt.Sprintf("%scni.loadBalancer.addresses[%d]", at, j), r.First, r.Last,
				network.Bridge, network.VLAN,
			})
		}
	}

	return list
}

// newAddresses reports whether the plan has an address that the last run did not give to the same machine or cluster.
func (r *reader) newAddresses() bool {
	changed := func(m machine) bool {
		last := r.Stack.Machines[m.VMID]

		return m.Address.IsValid() && (m.new || !m.Network.DHCP && last.Address != m.Address.Addr().String()) ||
			m.AddressIPv6.IsValid() && last.AddressIPv6 != m.AddressIPv6.String()
	}
	if slices.ContainsFunc(r.planned.machines, changed) {
		return true
	}

	settings := vmdiff.CreationSettings(r.Plan)

	return slices.ContainsFunc(r.Plan.Clusters, func(c spec.Cluster) bool {
		was, known := r.Stack.Settings[vmdiff.AddressesOf(c.Name)]

		return known && was != settings[vmdiff.AddressesOf(c.Name)]
	})
}

// guestRequests is how many configurations of guests are requested at once.
const guestRequests = 16

// readGuests reads the configurations of all guests that are not the stack's, one request each: no list has their
// addresses. It sends none unless the plan has new addresses.
func (r *reader) readGuests(ctx context.Context) {
	if !r.newAddresses() {
		return
	}

	machines, err := r.Proxmox.List(ctx)
	if err != nil {
		return // readMachines reports it
	}

	own := r.ownVMIDs()

	guests, unread := ReadGuests(ctx, r.Proxmox, slices.DeleteFunc(slices.Clone(machines), func(m proxmoxapi.Listed) bool {
		return own[m.VMID]
	}))
	r.record("", nil, func(s *Site) { s.Guests = guests })

	if len(unread) > 0 {
		r.record("which addresses other guests have", fmt.Errorf("the configurations of %s cannot be read",
			strings.Join(unread, ", ")), nil)
	}
}

// ReadGuests reads the configurations of machines that are not templates, and returns the VMIDs of those that it cannot
// read. The guests are sorted by VMID.
func ReadGuests(
	ctx context.Context, proxmox *proxmoxapi.Machines, machines []proxmoxapi.Listed,
) (guests []Guest, unread []string) {
	var (
		group errgroup.Group
		mu    sync.Mutex
	)

	group.SetLimit(guestRequests)

	for _, m := range machines {
		if m.Template == 1 {
			continue
		}

		group.Go(func() error {
			var config proxmoxapi.Config

			err := proxmox.Get(ctx, fmt.Sprintf("/nodes/%s/%s/%d/config", url.PathEscape(m.Host), m.Type, m.VMID), &config)

			mu.Lock()
			defer mu.Unlock()

			if err != nil {
				unread = append(unread, fmt.Sprintf("%d", m.VMID))
			} else {
				guests = append(guests, Guest{m, string(config["description"]), guestAddresses(m.Type, config), guestPCI(config)})
			}

			return nil
		})
	}

	_ = group.Wait() // unread has what failed

	slices.SortFunc(guests, func(a, b Guest) int { return cmp.Compare(a.VMID, b.VMID) })
	slices.Sort(unread)

	return guests, unread
}

// guestAddresses returns the addresses in a configuration: ipconfigN of a VM belongs to its netN, and netN of a
// container has its own.
func guestAddresses(kind string, config proxmoxapi.Config) (list []GuestAddress) {
	guest := proxmoxapi.Machine{Config: config}

	for device := range config {
		number, found := strings.CutPrefix(device, "net")
		if !found {
			continue
		}

		at := device
		if kind != "lxc" {
			at = "ipconfig" + number
		}

		for _, option := range []string{"ip", "ip6"} {
			text, _ := guest.Option(at, option)
			if prefix, err := netip.ParsePrefix(text); err == nil {
				bridge, _ := guest.Option(device, "bridge")
				vlan, _ := guest.Option(device, "tag")
				list = append(list, GuestAddress{prefix.Addr(), bridge, vlan})
			}
		}
	}

	return list
}

// guestPCI returns the addresses of the PCI devices in a configuration: hostpci0: 0000:01:00,pcie=1.
func guestPCI(config proxmoxapi.Config) (list []string) {
	for key, value := range config {
		if !strings.HasPrefix(key, "hostpci") {
			continue
		}

		devices, _, _ := strings.Cut(string(value), ",")
		for device := range strings.SplitSeq(strings.TrimPrefix(devices, "host="), ";") {
			if !strings.Contains(device, "=") {
				list = append(list, device)
			}
		}
	}

	return list
}

// checkAddresses finds planned addresses that other guests have. Those of a guest that is off, or in another network,
// are warnings: the two may never meet.
func (c *checker) checkAddresses() {
	planned := plannedAddresses(c.plan, c.planned.machines)

	for _, guest := range c.site.Guests {
		owner, made := ownership.OwnerOf(guest.Description)
		if owner.Matches(c.stack.owner()) {
			continue // what an interrupted run of this stack left
		}

		whose := ""
		if made {
			whose = " of the stack " + owner.String()
		}

		for _, found := range guest.Addresses {
			for _, p := range planned {
				if found.Address.Less(p.first) || p.last.Less(found.Address) {
					continue
				}

				severity, remark := problem.Error, ""

				switch {
				case found.Bridge != p.bridge || found.VLAN != strings.TrimPrefix(fmt.Sprint(p.vlan), "0"):
					severity, remark = problem.Warning, " on "+networkName(found.Bridge, found.VLAN)+", which matters if that is the same network"
				case guest.Status == "stopped":
					severity, remark = problem.Warning, ", and is off: they must not run at the same time"
				}

				c.add(severity, p.host, p.path, nil, "%s would have %s, which %s%s has%s; choose another address, or change that of the guest",
					p.owner, found.Address, guest.Title(), whose, remark)
			}
		}
	}
}

// Title names a guest for messages: VM 105 (db on pve2).
func (g Guest) Title() string {
	kind := "VM"
	if g.Type == "lxc" {
		kind = "container"
	}

	return fmt.Sprintf("%s %d (%s on %s)", kind, g.VMID, g.Name, g.Host)
}

func networkName(bridge, vlan string) string {
	if vlan == "" {
		return bridge
	}

	return bridge + " with VLAN " + vlan
}
