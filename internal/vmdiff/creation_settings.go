package vmdiff

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
)

// CreationSettings returns the settings that only new machines and clusters get, and the clusters' endpoints and shared
// addresses, by pool or cluster and key of the stack file. The keys have no indexes, which change when others are added
// or removed.
func CreationSettings(plan *spec.Plan) map[string]string {
	settings := map[string]string{}
	for _, cluster := range plan.Clusters {
		settings[cluster.Name+" podCidr"], settings[cluster.Name+
			" serviceCidr"] = cluster.PodCIDR.String(), cluster.ServiceCIDR.String()
		if cluster.PodCIDRIPv6.IsValid() {
			settings[cluster.Name+" podCidrIPv6"] = cluster.PodCIDRIPv6.String()
			settings[cluster.Name+" serviceCidrIPv6"] = cluster.ServiceCIDRIPv6.String()
		}

		settings[cluster.Name+" "+endpointKey] = cluster.Endpoint
		settings[AddressesOf(cluster.Name)] = addressesWithoutCards(cluster)

		if cluster.Proxmox != nil {
			settings[cluster.Name+" "+regionKey] = cluster.Proxmox.Region
		}
	}

	for _, m := range plan.Members() {
		pool := poolKey(m)
		settings[pool+" clone"] = map[bool]string{true: "linked", false: "full"}[m.Linked]

		if m.Machine != nil {
			settings[pool+" template"], settings[pool+" user"] = m.Template.Name, m.Machine.User
			settings[pool+" sshKeys"] = fingerprint(m.Machine.SSHKeys)
		}
	}

	return settings
}

// AddressesOf returns the key of a cluster's addresses that are no network card's in [CreationSettings]: its VIP, those
// for Services, and those of bonds and VLANs in its machines.
func AddressesOf(cluster string) string { return cluster + " addresses" }

func addressesWithoutCards(cluster spec.Cluster) string {
	var list []string
	if cluster.VIP.IsValid() {
		list = append(list, cluster.VIP.String())
	}

	if cluster.CNI != nil {
		for _, r := range cluster.CNI.LoadBalancer {
			list = append(list, r.First.String()+"-"+r.Last.String())
		}
	}

	for _, n := range cluster.Nodes() {
		n.ExtraNICs = slices.Clone(n.ExtraNICs)
		for i := range n.ExtraNICs {
			n.ExtraNICs[i].Address = netip.Prefix{}
		}

		for _, link := range n.LinkAddresses(cluster.NetworkOf(n)) {
			list = append(list, link.Address.Addr().String())
		}
	}

	return strings.Join(list, " ")
}

// poolKey returns a name of a machine's pool that is unique in the stack.
func poolKey(m spec.Member) string {
	if m.Machine != nil {
		return m.Pool
	}

	return m.Cluster + "-" + m.Pool
}

// regionKey is the key of the region in the provider IDs of a cluster's nodes.
const regionKey = "proxmox.region"

// endpointKey is the key of the URL of a cluster's Kubernetes API.
const endpointKey = "endpoint"

// endpointChanges warns of changed endpoints, which are the issuers of service account tokens.
func (j *checker) endpointChanges(last map[string]string) (warnings []string) {
	for _, cluster := range j.plan.Clusters {
		was := last[cluster.Name+" "+endpointKey]
		if was == "" || was == cluster.Endpoint || !j.runs(cluster) {
			continue
		}

		warnings = append(warnings, fmt.Sprintf("%s.%s: %s → %s: fetch kubeconfigs again, and keep the former one resolvable "+
			"for those that are in use. It is also the issuer of service account tokens: running pods lose access to the API until "+
			"their kubelets renew their tokens, within an hour, unless a patch accepts the former issuer for that time "+
			"(docs/networking.md#change-the-endpoint)", clusterPath(cluster), endpointKey, was, cluster.Endpoint))
	}

	return warnings
}

// runs reports whether a machine of a cluster exists.
func (j *checker) runs(cluster spec.Cluster) bool {
	return slices.ContainsFunc(cluster.Nodes(), func(n spec.Node) bool { return j.byName[n.Name].Name != "" })
}

// remedies describe how running machines get settings that only new ones get.
var remedies = map[string]string{
	"clone": "to recreate a worker, lower count and raise it again", "template": recreatePlainMachine,
	"user": recreatePlainMachine, "sshKeys": recreatePlainMachine,
}

const recreatePlainMachine = "to recreate the last one of a pool, lower count and raise it again"

// fingerprint returns a short text for public keys.
func fingerprint(keys []string) string {
	sum := sha256.Sum256([]byte(strings.Join(keys, "\n")))

	return fmt.Sprintf("%d keys (%x)", len(keys), sum[:3])
}

// checkImmutable reports clusters whose pod or service network or region changes.
func (j *checker) checkImmutable(last map[string]string) {
	settings := CreationSettings(j.plan)
	for _, cluster := range j.plan.Clusters {
		if !j.runs(cluster) {
			continue
		}

		path := clusterPath(cluster)

		was, is := last[cluster.Name+" podCidrIPv6"], settings[cluster.Name+" podCidrIPv6"]

		switch {
		case last[cluster.Name+" podCidr"] == "": // the last run recorded none
		case was == "" && is != "":
			j.reportf(path+".network.ipv6", nil, "is set, and cluster %s was created without it: Kubernetes gives its running "+
				"nodes no IPv6 network for pods; remove it, and create another cluster with it", cluster.Name)
		case was != "" && is == "":
			j.reportf(path+".network.ipv6", nil, "is missing, and cluster %s was created with it: the IPv6 addresses of its pods "+
				"and services are in use; set it again", cluster.Name)
		}

		for _, key := range []string{"podCidr", "serviceCidr", "podCidrIPv6", "serviceCidrIPv6"} {
			at := cluster.Name + " " + key
			if was, is := last[at], settings[at]; was != "" && is != "" && was != is {
				j.reportf(path+"."+key, is, "is not the network that cluster %s was created with, which cannot change: "+
					"its addresses are in use; set %s", cluster.Name, was)
			}
		}

		at := cluster.Name + " " + regionKey
		if was, is := last[at], settings[at]; was != "" && is != "" && was != is {
			j.reportf(path+"."+regionKey, is,
				"is not the region in the provider IDs of the nodes of cluster %s, which cannot change; set %s",
				cluster.Name, was)
		}
	}
}

// IgnoredChanges describes changes since the last run that do not affect running machines, with remedies. It skips
// settings that the last run did not record.
func IgnoredChanges(plan *spec.Plan, last map[string]string, machines []Machine) []string {
	runs := map[string]bool{}
	for _, m := range machines {
		runs[m.Name] = true
	}

	machinesByText := map[string][]string{}

	settings := CreationSettings(plan)
	for _, m := range plan.Members() {
		for _, key := range slices.Sorted(maps.Keys(remedies)) {
			was, is := last[poolKey(m)+" "+key], settings[poolKey(m)+" "+key]
			if !runs[m.Name] || was == "" || was == is {
				continue
			}

			text := fmt.Sprintf(
				"%s: %s → %s does not affect running machines (%%s), only new ones; %s", keyPath(m.VM, key), was, is, remedies[key],
			)
			machinesByText[text] = append(machinesByText[text], m.Name)
		}
	}

	var lines []string
	for _, text := range slices.Sorted(maps.Keys(machinesByText)) {
		lines = append(lines, strings.Replace(text, "%s", JoinNames(machinesByText[text]), 1))
	}

	return lines
}
