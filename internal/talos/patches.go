package talos

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v4"
)

// kubePrismPort is the port of each node's own load balancer for the Kubernetes API; Cilium's values contain it.
const kubePrismPort = 7445

// object is a YAML mapping; the encoder sorts its keys, so that patches are stable.
type object = map[string]any

// RolePatches returns the strategic-merge patches that all nodes of a role share, one document each. Apply them before
// [NodePatches]. They do not change when nodes are added or removed.
func RolePatches(c ClusterConfig, role string) ([]string, error) {
	if err := checkRole(role); err != nil {
		return nil, err
	}

	if err := checkCluster(c); err != nil {
		return nil, err
	}

	docs := []object{
		{"machine": object{
			"features": object{"kubePrism": object{"enabled": true, "port": kubePrismPort}},
			"kubelet":  object{"nodeIP": object{"validSubnets": nodeSubnets(c)}},
		}},
		{"cluster": object{
			"network":   networkConfig(c),
			"discovery": discoveryConfig(c),
		}},
	}
	if machine := serverConfig(c); len(machine) > 0 {
		docs = append(docs, object{"machine": machine})
	}

	if role == RoleControlPlane {
		docs = append(docs, object{"cluster": controlPlaneConfig(c)})
		if c.GPUs != nil {
			manifests, err := inlineManifests(c.GPUs)
			if err != nil {
				return nil, err
			}

			docs = append(docs, manifests)
		}
	}

	return encode(docs)
}

// NodePatches returns the strategic-merge patches of one node, one document each, for a configuration generated with a
// version contract (v1.12, or a full version). The user's patches come last: the cluster's, then the node's.
func NodePatches(c ClusterConfig, n NodeConfig, contract string) ([]string, error) {
	release, err := releaseOfContract(contract)
	if problems := errors.Join(checkRole(n.Role), checkCluster(c), checkNode(n), err); problems != nil {
		return nil, fmt.Errorf("machine configuration of %q: %w", n.Name, problems)
	}

	docs := []object{
		{"machine": object{"install": installConfig(n.Install)}},
		hostnamePatch(n.Name, release),
		{"machine": object{"network": object{"interfaces": interfaceConfigs(c, n)}}},
	}
	if own := n.Interfaces[0].Address; n.Role == RoleControlPlane && own.IsValid() {
		docs = append(docs, object{"cluster": object{"apiServer": object{"certSANs": []string{own.Addr().String()}}}})
	}

	docs = append(docs, gpuPatches(n)...)
	if marks := marksPatch(n); len(marks) > 0 {
		docs = append(docs, object{"machine": marks})
	}

	for _, volume := range n.Volumes {
		docs = append(docs, userVolumeConfig(volume))
	}

	patches, err := encode(docs)
	if err != nil {
		return nil, err
	}

	for _, list := range []struct {
		of    string
		texts []string
	}{{"the cluster", c.Patches}, {"the node", n.Patches}} {
		for i, text := range list.texts {
			documents, err := SplitPatch(text)
			if err != nil {
				return nil, fmt.Errorf("machine configuration of %q: patch %d of %s: %w", n.Name, i+1, list.of, err)
			}

			patches = append(patches, documents...)
		}
	}

	return patches, nil
}

func encode(docs []object) ([]string, error) {
	patches := make([]string, 0, len(docs))
	for _, doc := range docs {
		data, err := yaml.Marshal(doc)
		if err != nil {
			return nil, fmt.Errorf("unable to encode a machine-configuration patch: %w", err)
		}

		patches = append(patches, string(data))
	}

	return patches, nil
}

// nodeSubnets excludes the VIP: the node that holds it must not advertise it as its own address.
func nodeSubnets(c ClusterConfig) []string {
	subnets := make([]string, 0, len(c.Subnets)+1)
	for _, subnet := range c.Subnets {
		subnets = append(subnets, subnet.Masked().String())
	}

	if c.VIP.IsValid() {
		subnets = append(subnets, "!"+netip.PrefixFrom(c.VIP, c.VIP.BitLen()).String())
	}

	return subnets
}

// networkConfig disables Talos' own CNI. Its subnets replace the generated ones.
func networkConfig(c ClusterConfig) object {
	network := object{"cni": object{"name": "none"}}

	for key, subnet := range map[string]netip.Prefix{"podSubnets": c.PodCIDR, "serviceSubnets": c.ServiceCIDR} {
		if subnet.IsValid() {
			network[key] = []string{subnet.String()}
		}
	}

	return network
}

func serverConfig(c ClusterConfig) object {
	machine := object{}
	if len(c.DNS) > 0 {
		machine["network"] = object{"nameservers": toStrings(c.DNS)}
	}

	if len(c.NTP) > 0 {
		machine["time"] = object{"servers": c.NTP}
	}

	return machine
}

func discoveryConfig(c ClusterConfig) object {
	service := object{"disabled": c.NoDiscoveryService}
	if c.DiscoveryEndpoint != "" && !c.NoDiscoveryService {
		service["endpoint"] = c.DiscoveryEndpoint
	}

	return object{
		"enabled":    !c.NoDiscoveryService,
		"registries": object{"kubernetes": object{"disabled": true}, "service": service},
	}
}

func controlPlaneConfig(c ClusterConfig) object {
	cluster := object{
		"proxy":                          object{"disabled": true},
		"etcd":                           object{"advertisedSubnets": nodeSubnets(c)},
		"allowSchedulingOnControlPlanes": c.AllowSchedulingOnControlPlanes,
	}

	names := c.CertSANs
	if c.VIP.IsValid() {
		names = append([]string{c.VIP.String()}, names...)
	}

	if len(names) > 0 {
		cluster["apiServer"] = object{"certSANs": names}
	}

	return cluster
}

func installConfig(i Install) object {
	return object{"disk": cmp.Or(i.Disk, DefaultInstallDisk), "image": i.Image, "wipe": i.Wipe}
}

// hostnamePatch sets the host name where the generated configuration has it: Talos rejects a second place.
func hostnamePatch(name string, release Release) object {
	if release.HostnameInV1Alpha1 {
		return object{"machine": object{"network": object{"hostname": name}}}
	}

	// Releases of the encoder quote differently, and the patches of running stacks must not change.
	off := &yaml.Node{Kind: yaml.ScalarNode, Value: "off", Style: yaml.DoubleQuotedStyle}

	return object{"apiVersion": "v1alpha1", "kind": "HostnameConfig", "auto": off, "hostname": name}
}

func interfaceConfigs(c ClusterConfig, n NodeConfig) []object {
	devices := make([]object, 0, len(n.Interfaces))
	for i, card := range n.Interfaces {
		selector := object{"hardwareAddr": strings.ToLower(card.MAC)}
		device := linkConfig(card.Link)

		device["deviceSelector"] = selector
		if i == 0 && n.Role == RoleControlPlane && c.VIP.IsValid() {
			device["vip"] = object{"ip": c.VIP.String()}
		}

		if len(card.VLANs) > 0 {
			// A VLAN link has the MAC of its card and would match as well.
			selector["physical"] = true
			device["vlans"] = vlanConfigs(card.VLANs)
		}

		devices = append(devices, device)
	}

	return devices
}

func vlanConfigs(list []VLAN) []object {
	tagged := make([]object, 0, len(list))
	for _, vlan := range list {
		fields := linkConfig(vlan.Link)
		fields["vlanId"] = vlan.ID
		tagged = append(tagged, fields)
	}

	return tagged
}

func linkConfig(l Link) object {
	fields := object{"dhcp": l.DHCP}
	if !l.DHCP && l.Address.IsValid() {
		fields["addresses"] = []string{l.Address.String()}
	}

	if l.Gateway.IsValid() {
		defaultRoute := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if l.Gateway.Is6() {
			defaultRoute = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}

		fields["routes"] = []object{{"network": defaultRoute.String(), "gateway": l.Gateway.String()}}
	}

	if l.MTU > 0 {
		fields["mtu"] = l.MTU
	}

	return fields
}

// userVolumeConfig fills a disk of exactly its size, so two disks of the same size serve two volumes: the second does
// not fit beside the first.
func userVolumeConfig(v Volume) object {
	return object{
		"apiVersion": "v1alpha1",
		"kind":       "UserVolumeConfig",
		"name":       v.Name,
		"provisioning": object{
			"diskSelector": object{"match": fmt.Sprintf("!system_disk && disk.size == %du * GiB", v.SizeGiB)},
			"minSize":      fmt.Sprintf("%dMiB", v.SizeGiB*1024*9/10),
			"grow":         true,
		},
	}
}

func toStrings[T fmt.Stringer](values []T) []string {
	out := make([]string, 0, len(values))
	for _, value := range values {
		out = append(out, value.String())
	}

	return out
}
