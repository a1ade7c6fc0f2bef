package preflight

import "slices"

// typeVNet is the type of SDN's VNets in the list of a host's bridges.
const typeVNet = "vnet"

// checkBridges checks the bridges and VNets of the machines' network cards.
func (c *checker) checkBridges() {
	for _, m := range c.planned.machines {
		h := c.site.host(m.Host)
		if h.Bridges == nil {
			continue
		}

		for _, nic := range m.cards() {
			switch b, found := h.bridge(nic.bridge); {
			case !found:
				c.reportMissingBridge(m, nic, h)
			case nic.vlan == 0:
				c.fine(m.Host, "bridge %s", b.Name)
			case b.Type == typeVNet && b.VNetAware == 0:
				c.problem(m.Host, nic.path+".vlan", nil, "is %d, and the VNet %s takes no VLANs: leave vlan out, or "+
					"switch on VLAN Aware of the VNet under Datacenter, SDN", nic.vlan, b.Name)
			case b.Type == "bridge" && b.VLANAware == 0 && b.Ports == "":
				c.problem(m.Host, nic.path+".vlan", nil, "is %d, and the bridge %s of %s has no port that Proxmox "+
					"could tag: switch on VLAN aware of the bridge (System, Network), "+
					"or give it a port", nic.vlan, b.Name, m.Host)
			default:
				c.fine(m.Host, "bridge %s with VLAN %d", b.Name, nic.vlan)
			}
		}
	}
}

func (h *Host) bridge(name string) (Bridge, bool) {
	i := slices.IndexFunc(h.Bridges, func(b Bridge) bool { return b.Name == name })
	if i < 0 {
		return Bridge{}, false
	}

	return h.Bridges[i], true
}

// reportMissingBridge reports a bridge that the host does not list, unless the credentials may not see it: checkRights
// reports that.
func (c *checker) reportMissingBridge(m machine, nic card, h *Host) {
	if c.site.Rights != nil && !c.site.Rights.Has("/sdn/zones/localnetwork/"+nic.bridge, "SDN.Use", "SDN.Audit") {
		return
	}

	var names []string
	for _, b := range h.Bridges {
		names = append(names, b.Name)
	}

	slices.Sort(names)
	c.problem(m.Host, nic.path+".bridge", nic.bridge, "is not a bridge of %s (%s): correct the name, or make "+
		"the bridge there; a VNet needs SDN.Use on /sdn/zones/<zone>/%s",
		m.Host, available(names), nic.bridge)
}
