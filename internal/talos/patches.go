package talos

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v4"
)

// kubePrismPort is where each node balances the Kubernetes API for its own pods; Cilium's values name it.
const kubePrismPort = 7445

// object is a YAML mapping; the encoder sorts its keys, so that patches are stable.
type object = map[string]any

// RolePatches returns the strategic-merge patches that all nodes of a role share, one document each. Give them to the
// generated configuration before [NodePatches]. They stay the same when nodes come and go.
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
			"kubelet":  object{"nodeIP": object{"validSubnets": ownSubnets(c)}},
		}},
		{"cluster": object{
			"network":   kubernetesNetwork(c),
			"discovery": discovery(c),
		}},
	}
	if machine := servers(c); len(machine) > 0 {
		docs = append(docs, object{"machine": machine})
	}

	if role == RoleControlPlane {
		docs = append(docs, object{"cluster": controlPlane(c)})
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

// NodePatches returns the strategic-merge patches of one node, one document each, for a configuration generated for
// contract (v1.12, or a full version). The user's patches come last: the cluster's, then the node's.
func NodePatches(c ClusterConfig, n NodeConfig, contract string) ([]string, error) {
	generation, err := ofContract(contract)
	if problems := errors.Join(checkRole(n.Role), checkCluster(c), checkNode(n), err); problems != nil {
		return nil, fmt.Errorf("machine configuration of %q: %w", n.Name, problems)
	}

	docs := []object{
		{"machine": object{"install": install(n.Install)}},
		hostname(n.Name, generation),
		{"machine": object{"network": object{"interfaces": interfaces(c, n)}}},
	}
	if own := n.Interfaces[0].Address; n.Role == RoleControlPlane && own.IsValid() {
		docs = append(docs, object{"cluster": object{"apiServer": object{"certSANs": []string{own.Addr().String()}}}})
	}

	docs = append(docs, gpuPatches(n)...)
	if marks := nodeMarks(n); len(marks) > 0 {
		docs = append(docs, object{"machine": marks})
	}

	for _, volume := range n.Volumes {
		docs = append(docs, userVolume(volume))
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

// ownSubnets excludes the VIP, which is an address of whichever node holds it: a node must never present it as its own.
func ownSubnets(c ClusterConfig) []string {
	subnets := make([]string, 0, len(c.Subnets)+1)
	for _, subnet := range c.Subnets {
		subnets = append(subnets, subnet.Masked().String())
	}

	if c.VIP.IsValid() {
		subnets = append(subnets, "!"+netip.PrefixFrom(c.VIP, c.VIP.BitLen()).String())
	}

	return subnets
}

// kubernetesNetwork leaves the CNI to whoever installs one. The lists of subnets take the place of the generated ones.
func kubernetesNetwork(c ClusterConfig) object {
	network := object{"cni": object{"name": "none"}}

	for key, subnet := range map[string]netip.Prefix{"podSubnets": c.PodCIDR, "serviceSubnets": c.ServiceCIDR} {
		if subnet.IsValid() {
			network[key] = []string{subnet.String()}
		}
	}

	return network
}

func servers(c ClusterConfig) object {
	machine := object{}
	if len(c.DNS) > 0 {
		machine["network"] = object{"nameservers": texts(c.DNS)}
	}

	if len(c.NTP) > 0 {
		machine["time"] = object{"servers": c.NTP}
	}

	return machine
}

func discovery(c ClusterConfig) object {
	service := object{"disabled": c.NoDiscoveryService}
	if c.DiscoveryEndpoint != "" && !c.NoDiscoveryService {
		service["endpoint"] = c.DiscoveryEndpoint
	}

	return object{
		"enabled":    !c.NoDiscoveryService,
		"registries": object{"kubernetes": object{"disabled": true}, "service": service},
	}
}

func controlPlane(c ClusterConfig) object {
	cluster := object{
		"proxy":                          object{"disabled": true},
		"etcd":                           object{"advertisedSubnets": ownSubnets(c)},
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

func install(i Install) object {
	disk := i.Disk
	if disk == "" {
		disk = DefaultInstallDisk
	}

	return object{"disk": disk, "image": i.Image, "wipe": i.Wipe}
}

// hostname is where the generated configuration has it.
func hostname(name string, generation Release) object {
	if generation.NamedInFirstDocument {
		return object{"machine": object{"network": object{"hostname": name}}}
	}

	// The encoder's choice of quotes has changed between its releases: a stack that runs must not see another text.
	off := &yaml.Node{Kind: yaml.ScalarNode, Value: "off", Style: yaml.DoubleQuotedStyle}

	return object{"apiVersion": "v1alpha1", "kind": "HostnameConfig", "auto": off, "hostname": name}
}

func interfaces(c ClusterConfig, n NodeConfig) []object {
	devices := make([]object, 0, len(n.Interfaces))
	for i, card := range n.Interfaces {
		selector := object{"hardwareAddr": strings.ToLower(card.MAC)}
		device := link(card.Link)

		device["deviceSelector"] = selector
		if i == 0 && n.Role == RoleControlPlane && c.VIP.IsValid() {
			device["vip"] = object{"ip": c.VIP.String()}
		}

		if len(card.VLANs) > 0 {
			// A VLAN link has its card's MAC and would be selected too.
			selector["physical"] = true
			device["vlans"] = vlans(card.VLANs)
		}

		devices = append(devices, device)
	}

	return devices
}

func vlans(list []VLAN) []object {
	tagged := make([]object, 0, len(list))
	for _, vlan := range list {
		fields := link(vlan.Link)
		fields["vlanId"] = vlan.ID
		tagged = append(tagged, fields)
	}

	return tagged
}

func link(l Link) object {
	fields := object{"dhcp": l.DHCP}
	if !l.DHCP && l.Address.IsValid() {
		fields["addresses"] = []string{l.Address.String()}
	}

	if l.Gateway.IsValid() {
		everywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if l.Gateway.Is6() {
			everywhere = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}

		fields["routes"] = []object{{"network": everywhere.String(), "gateway": l.Gateway.String()}}
	}

	if l.MTU > 0 {
		fields["mtu"] = l.MTU
	}

	return fields
}

// userVolume takes the whole of a disk of exactly its size. Two disks of one size serve two volumes: the second does
// not fit beside the first.
func userVolume(v Volume) object {
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

func texts[T fmt.Stringer](values []T) []string {
	out := make([]string, 0, len(values))
	for _, value := range values {
		out = append(out, value.String())
	}

	return out
}
