package cilium

import "math"

// Ports of Cilium on every node (pkg/defaults/defaults.go, install/kubernetes/cilium/values.yaml; the same in 1.18 to
// 1.20). Its BGP instances only connect to others, without a localPort.
const (
	healthPort    = 4240
	hubblePort    = 4244
	vxlanPort     = 8472
	genevePort    = 6081
	wireGuardPort = 51871
)

// Ports returns the ports that agents need on every node, from the values: TCP from nodes and pods, UDP from nodes.
func (s Settings) Ports() (tcp, udp []uint16) {
	values := s.Values()
	tcp = []uint16{portOf(values, "clusterHealthPort", healthPort)}

	if s.Hubble {
		tcp = append(tcp, hubblePort)
	}

	if mode, _ := lookup(values, "routingMode"); mode != "native" {
		tunnel := uint16(vxlanPort)
		if protocol, _ := lookup(values, "tunnelProtocol"); protocol == "geneve" {
			tunnel = genevePort
		}

		udp = append(udp, portOf(values, "tunnelPort", tunnel))
	}

	if encryption(values) == "wireguard" {
		udp = append(udp, wireGuardPort)
	}

	return tcp, udp
}

// UsesIPsec reports whether a user's values encrypt the traffic between nodes by IPsec, which has no ports.
func UsesIPsec(values map[string]any) bool { return encryption(values) == "ipsec" }

// encryption returns how traffic between nodes is encrypted; empty = it is not.
func encryption(values map[string]any) string {
	if enabled, _ := lookup(values, "encryption.enabled"); enabled != true {
		return ""
	}

	if kind, _ := lookup(values, "encryption.type"); kind != nil {
		text, _ := kind.(string)

		return text
	}

	return "ipsec" // the chart's default
}

// portOf returns the port at a path of values; 0 and none = the default.
func portOf(values map[string]any, path string, fallback uint16) uint16 {
	found, _ := lookup(values, path)

	var port float64

	switch found := found.(type) {
	case int:
		port = float64(found)
	case float64:
		port = found
	}

	if port < 1 || port > math.MaxUint16 {
		return fallback
	}

	return uint16(port)
}
