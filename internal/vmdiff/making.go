package vmdiff

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
)

// Making is how a plan makes new machines and clusters, by the key of the stack file that says so and what runs does
// not follow; for each pool or cluster, and without indexes, which change when others come and go.
func Making(plan *spec.Plan) map[string]string {
	making := map[string]string{}
	for _, cluster := range plan.Clusters {
		making[cluster.Name+" podCidr"], making[cluster.Name+
			" serviceCidr"] = cluster.PodCIDR.String(), cluster.ServiceCIDR.String()
		if cluster.Proxmox != nil {
			making[cluster.Name+" "+regionKey] = cluster.Proxmox.Region
		}
	}

	for _, m := range plan.Members() {
		pool := poolOf(m)
		making[pool+" clone"] = map[bool]string{true: "linked", false: "full"}[m.Linked]

		if m.Machine != nil {
			making[pool+" template"], making[pool+" user"] = m.Template.Name, m.Machine.User
			making[pool+" sshKeys"] = fingerprint(m.Machine.SSHKeys)
		}
	}

	return making
}

// poolOf names the pool of a machine among all.
func poolOf(m spec.Member) string {
	if m.Machine != nil {
		return m.Pool
	}

	return m.Cluster + "-" + m.Pool
}

// regionKey is what the provider ids of a cluster's nodes are made with.
const regionKey = "proxmox.region"

// remedies say how a running machine gets what only new ones get.
var remedies = map[string]string{
	"clone": "a worker is recreated where count goes down and up again", "template": again, "user": again,
	"sshKeys": again,
}

// again is how a machine of no cluster is recreated.
const again = "the last one of a pool is recreated where count goes down and up again"

// fingerprint is a short text for public keys.
func fingerprint(keys []string) string {
	sum := sha256.Sum256([]byte(strings.Join(keys, "\n")))

	return fmt.Sprintf("%d keys (%x)", len(keys), sum[:3])
}

// kept reports clusters that are to have other networks of their own, or another region, than they were made with.
func (j *judgement) kept(last map[string]string) {
	making := Making(j.plan)
	for _, cluster := range j.plan.Clusters {
		nodes := cluster.Nodes()
		if !slices.ContainsFunc(nodes, func(n spec.Node) bool { return j.byName[n.Name].Name != "" }) {
			continue
		}

		path := clusterPath(cluster)

		for _, key := range []string{"podCidr", "serviceCidr"} {
			at := cluster.Name + " " + key
			if was := last[at]; was != "" && was != making[at] {
				j.report(path+"."+key, making[at], "is not the network that cluster %s was made with, which it has for its life: "+
					"addresses out of it are in use; set %s", cluster.Name, was)
			}
		}

		at := cluster.Name + " " + regionKey
		if was, is := last[at], making[at]; was != "" && is != "" && was != is {
			j.report(path+"."+regionKey, is,
				"is not the region that the nodes of cluster %s have in their provider ids, which they keep for their lives; set %s",
				cluster.Name, was)
		}
	}
}

// Unfollowed says which changes since the last run do nothing to the machines that it left, and what would. Of what the
// last run did not record nothing is said.
func Unfollowed(plan *spec.Plan, last map[string]string, machines []Machine) []string {
	runs := map[string]bool{}
	for _, m := range machines {
		runs[m.Name] = true
	}

	concerned := map[string][]string{} // machines by what is said

	making := Making(plan)
	for _, m := range plan.Members() {
		for _, key := range slices.Sorted(maps.Keys(remedies)) {
			was, is := last[poolOf(m)+" "+key], making[poolOf(m)+" "+key]
			if !runs[m.Name] || was == "" || was == is {
				continue
			}

			text := fmt.Sprintf(
				"%s: %s → %s does nothing to machines that run (%%s): only new ones are made so; %s", pathOf(m.VM, key), was, is,
				remedies[key],
			)
			concerned[text] = append(concerned[text], m.Name)
		}
	}

	var lines []string
	for _, text := range slices.Sorted(maps.Keys(concerned)) {
		lines = append(lines, strings.Replace(text, "%s", Names(concerned[text]), 1))
	}

	return lines
}
