package talos

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v4"
)

// object is a YAML mapping; the encoder sorts its keys, so that patches are stable.
type object = map[string]any

// ownPatches returns the program's own patches of a node's configuration, one document each, for a configuration that
// was generated with a version contract (v1.12, or a full version). Those that all nodes of a role share come first.
func ownPatches(c ClusterConfig, n NodeConfig, contract string) ([]string, error) {
	release, err := releaseOfContract(contract)
	if problems := errors.Join(checkRole(n.Role), checkNode(n), err); problems != nil {
		return nil, fmt.Errorf("machine configuration of %q: %w", n.Name, problems)
	}

	form := release.form()

	docs := append(form.cluster(c, n), c.Registries.documents()...)
	if n.Role == RoleControlPlane {
		docs = append(docs, form.apiServer(c.APIServer)...)
	}

	if n.Role == RoleControlPlane && c.GPUs != nil {
		text, err := gpuManifest(c.GPUs)
		if err != nil {
			return nil, err
		}

		docs = append(docs, form.manifest(gpuManifestName, text))
	}

	if len(c.CertSANs) > 0 {
		docs = append(docs, object{"machine": object{"certSANs": c.CertSANs}})
	}

	docs = slices.Concat(docs, c.Tailscale.service(n), logDestinations(n.Name, c.LogDestinations))

	docs = append(docs,
		form.install(n.Install),
		hostnamePatch(n.Name, release),
		object{"machine": object{"network": object{"interfaces": interfaceConfigs(c, n)}}},
	)
	if own := n.Interfaces[0].addresses(); n.Role == RoleControlPlane && len(own) > 0 {
		docs = append(docs, form.certificateNames(own))
	}

	if n.GPUs != nil {
		docs = append(docs, gpuModules(), form.labels(gpuLabels(n)))
	}

	docs = append(docs, form.marks(n)...)
	docs = append(docs, n.Encryption.systemVolumes()...)
	docs = append(docs, c.firewall(n.Role)...)

	for _, volume := range n.Volumes {
		docs = append(docs, userVolumeConfig(volume))
	}

	return encode(docs)
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
func nodeSubnets(c ClusterConfig, n NodeConfig) []string {
	subnets := []string{n.Subnet.Masked().String()}
	if c.VIP.IsValid() {
		subnets = append(subnets, "!"+netip.PrefixFrom(c.VIP, c.VIP.BitLen()).String())
	}

	return subnets
}

// kubeletSubnets are those and the node's IPv6 address, which no other address of its network stands in for, such as
// one from a router's announcements.
func kubeletSubnets(c ClusterConfig, n NodeConfig) []string {
	subnets := nodeSubnets(c, n)
	if own := n.Interfaces[0].AddressIPv6; own.IsValid() {
		return slices.Insert(subnets, 1, netip.PrefixFrom(own.Addr(), own.Addr().BitLen()).String())
	}

	return subnets
}

// addresses returns the link's known addresses without their prefix lengths.
func (l Link) addresses() (list []string) {
	for _, prefix := range []netip.Prefix{l.Address, l.AddressIPv6} {
		if prefix.IsValid() {
			list = append(list, prefix.Addr().String())
		}
	}

	return list
}

// logDestinations sends the logs of services, with the node's name, and of the kernel to URLs. The kernel's have no
// tags.
func logDestinations(node string, urls []string) []object {
	if len(urls) == 0 {
		return nil
	}

	var services, kernel []object

	for i, destination := range urls {
		services = append(services, object{
			"endpoint": destination, "format": constants.LoggingFormatJSONLines, "extraTags": object{"node": node},
		})
		kernel = append(kernel, document("KmsgLogConfig", object{
			"name": fmt.Sprintf("destination-%d", i+1), "url": destination,
		}))
	}

	return append([]object{{"machine": object{"logging": object{"destinations": services}}}}, kernel...)
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
	devices := make([]object, 0, len(n.Interfaces)+len(n.Bonds))
	for i, card := range n.Interfaces {
		if card.Bond != "" {
			continue
		}

		selector := object{"hardwareAddr": strings.ToLower(card.MAC)}
		if card.MAC == "" {
			selector = object{"physical": true}
		}

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

	for _, bond := range n.Bonds {
		devices = append(devices, bondConfig(bond, n.Interfaces))
	}

	return devices
}

// bondConfig selects a bond's cards by their permanent addresses: Linux gives all of them the MAC of the first.
func bondConfig(bond Bond, cards []Interface) object {
	var selectors []object

	for _, card := range cards {
		if card.Bond == bond.Name {
			selectors = append(selectors, object{"permanentAddr": strings.ToLower(card.MAC)})
		}
	}

	settings := object{"deviceSelectors": selectors, "mode": bond.Mode, "miimon": bond.MIIMon}
	if bond.XmitHashPolicy != "" {
		settings["xmitHashPolicy"] = bond.XmitHashPolicy
	}

	if bond.LACPRate != "" {
		settings["lacpRate"] = bond.LACPRate
	}

	device := linkConfig(bond.Link)

	device["interface"], device["bond"] = bond.Name, settings
	if len(bond.VLANs) > 0 {
		device["vlans"] = vlanConfigs(bond.VLANs)
	}

	return device
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

	var addresses []string
	if !l.DHCP && l.Address.IsValid() {
		addresses = append(addresses, l.Address.String())
	}

	if l.AddressIPv6.IsValid() {
		addresses = append(addresses, l.AddressIPv6.String())
	}

	if len(addresses) > 0 {
		fields["addresses"] = addresses
	}

	if l.DHCP && l.RouteMetric > 0 {
		fields["dhcpOptions"] = object{"routeMetric": l.RouteMetric}
	}

	if routes := routeConfigs(l); len(routes) > 0 {
		fields["routes"] = routes
	}

	if l.MTU > 0 {
		fields["mtu"] = l.MTU
	}

	return fields
}

// routeConfigs returns the default route, then the others.
func routeConfigs(l Link) (routes []object) {
	for _, gateway := range []netip.Addr{l.Gateway, l.GatewayIPv6} {
		switch {
		case gateway.Is4():
			routes = append(routes, object{"network": "0.0.0.0/0", "gateway": gateway.String()})
		case gateway.Is6():
			routes = append(routes, object{"network": "::/0", "gateway": gateway.String()})
		}
	}

	for _, r := range l.Routes {
		route := object{"network": r.Destination.String(), "gateway": r.Gateway.String()}
		if r.Metric > 0 {
			route["metric"] = r.Metric
		}

		routes = append(routes, route)
	}

	return routes
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
