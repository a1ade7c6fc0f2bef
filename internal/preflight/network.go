package preflight

import "slices"

// typeVNet is the type of SDN's VNets in the list of a host's bridges.
const typeVNet = "vnet"

// bridges judges the bridges and VNets of the machines' network cards.
func (j *judge) bridges() {
	for _, m := range j.work.machines {
		h := j.site.host(m.Host)
		if h.Bridges == nil {
			continue
		}

		for _, c := range m.cards() {
			switch b, found := h.bridge(c.bridge); {
			case !found:
				j.noBridge(m, c, h)
			case c.vlan == 0:
				j.fine(m.Host, "bridge %s", b.Name)
			case b.Type == typeVNet && b.VNetAware == 0:
				j.problem(m.Host, c.path+".vlan", nil, "is %d, and the VNet %s takes no VLANs: leave vlan out, or "+
					"switch on VLAN Aware of the VNet under Datacenter, SDN", c.vlan, b.Name)
			case b.Type == "bridge" && b.VLANAware == 0 && b.Ports == "":
				j.problem(m.Host, c.path+".vlan", nil, "is %d, and the bridge %s of %s has no port that Proxmox "+
					"could tag: switch on VLAN aware of the bridge (System, Network), "+
					"or give it a port", c.vlan, b.Name, m.Host)
			default:
				j.fine(m.Host, "bridge %s with VLAN %d", b.Name, c.vlan)
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

// noBridge is one that the host does not list; where the credentials may not see it, the rights say so.
func (j *judge) noBridge(m machine, c card, h *Host) {
	if j.site.Rights != nil && !j.site.Rights.Has("/sdn/zones/localnetwork/"+c.bridge, "SDN.Use", "SDN.Audit") {
		return
	}

	var names []string
	for _, b := range h.Bridges {
		names = append(names, b.Name)
	}

	slices.Sort(names)
	j.problem(m.Host, c.path+".bridge", c.bridge, "is not a bridge of %s (%s): correct the name, or make "+
		"the bridge there; a VNet needs SDN.Use on /sdn/zones/<zone>/%s",
		m.Host, thereAre(names), c.bridge)
}
