package cilium

import (
	"net/netip"
	"slices"
)

// BGP is how the nodes announce the addresses of Services to routers. The settings of sessions are those of all
// routers.
type BGP struct {
	// The autonomous system number of the nodes.
	LocalASN int `pulumi:"localAsn"`
	// The routers that every node connects to.
	Peers []BGPPeer `pulumi:"peers"`
	// The number of hops to routers outside the nodes' network that are external peers (eBGP). Default: 0, directly
	// connected.
	Multihop int `pulumi:"multihop,optional"`
	// How long routers keep the routes of a silent node, in seconds; nodes announce themselves three times as often.
	// Default: 90.
	HoldTimeSeconds int `pulumi:"holdTimeSeconds,optional"`
	// The password of the sessions (TCP MD5, RFC 2385). Default: none.
	Password string `pulumi:"password,optional" provider:"secret"`
}

// BGPPeer is a router that the nodes connect to.
type BGPPeer struct {
	// The router's address.
	Address netip.Addr `pulumi:"address" provider:"type=go@1:netip:text"`
	// The router's autonomous system number; the nodes' own for an internal peer (iBGP).
	ASN int `pulumi:"asn"`
}

// Kinds of Cilium's BGP control plane, at the version that its charts have had since 1.18.
const (
	bgpVersion                            = "cilium.io/v2"
	bgpCluster, bgpPeerConfig, bgpAdverts = "CiliumBGPClusterConfig", "CiliumBGPPeerConfig", "CiliumBGPAdvertisement"
)

// The Secret of the sessions' password, where Cilium looks for it by default (bgpControlPlane.secretsNamespace).
const bgpSecret, bgpSecretNamespace = "talos-proxmox-bgp", "kube-system" //nolint:gosec // names

// defaultHoldTime is Cilium's hold time of BGP sessions, in seconds.
const defaultHoldTime = 90

// objects returns the nodes' instance, the settings of its sessions, and what is advertised. Routers keep the routes
// while an agent restarts (graceful restart).
func (b *BGP) objects(pool []AddressRange) []map[string]any {
	const label = "talos-proxmox/advertise"

	hold := b.HoldTimeSeconds
	if hold == 0 {
		hold = defaultHoldTime
	}

	var families []any

	for _, family := range []string{"ipv4", "ipv6"} {
		if slices.ContainsFunc(pool, func(r AddressRange) bool { return r.First.Is6() == (family == "ipv6") }) {
			families = append(families, object{
				"afi": family, "safi": "unicast", "advertisements": object{"matchLabels": object{label: objectName}},
			})
		}
	}

	session := object{
		"timers":          object{"holdTimeSeconds": hold, "keepAliveTimeSeconds": max(hold/3, 1)},
		"gracefulRestart": object{"enabled": true, "restartTimeSeconds": 120},
		"families":        families,
	}
	if b.Multihop > 0 {
		session["ebgpMultihop"] = b.Multihop
	}

	var objects []map[string]any

	if b.Password != "" {
		session["authSecretRef"] = bgpSecret
		objects = append(objects, map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": bgpSecret, "namespace": bgpSecretNamespace},
			"stringData": object{"password": b.Password},
		})
	}

	peers := make([]any, 0, len(b.Peers))
	for _, peer := range b.Peers {
		peers = append(peers, object{
			"name": peer.Address.String(), "peerAddress": peer.Address.String(), "peerASN": peer.ASN,
			"peerConfigRef": object{"name": objectName},
		})
	}

	return append(objects,
		map[string]any{
			"apiVersion": bgpVersion, "kind": bgpAdverts,
			"metadata": object{"name": objectName, "labels": object{label: objectName}},
			"spec": object{"advertisements": []any{object{
				"advertisementType": "Service", "service": object{"addresses": []any{"LoadBalancerIP"}},
				"selector": object{}, // all Services; without a selector it would be none
			}}},
		},
		map[string]any{
			"apiVersion": bgpVersion, "kind": bgpPeerConfig, "metadata": object{"name": objectName}, "spec": session,
		},
		map[string]any{
			"apiVersion": bgpVersion, "kind": bgpCluster, "metadata": object{"name": objectName},
			"spec": object{"bgpInstances": []any{object{"name": objectName, "localASN": b.LocalASN, "peers": peers}}},
		},
	)
}

// absent returns the objects of earlier settings, in the order in which they can go.
func (b *BGP) absent() []ObjectName {
	secret := ObjectName{"v1", "Secret", bgpSecretNamespace, bgpSecret}

	switch {
	case b == nil:
		return []ObjectName{
			{bgpVersion, bgpCluster, "", objectName},
			{bgpVersion, bgpPeerConfig, "", objectName},
			{bgpVersion, bgpAdverts, "", objectName},
			secret,
		}
	case b.Password == "":
		return []ObjectName{secret}
	default:
		return nil
	}
}
