package running

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

		for _, n := range cluster.Nodes() {
			pool := n.Cluster + "-" + n.Pool
			making[pool+" clone"] = map[bool]string{true: "linked", false: "full"}[n.Linked]
		}
	}

	for _, m := range plan.Machines {
		making[m.Pool+" clone"] = map[bool]string{true: "linked", false: "full"}[m.Linked]
		making[m.Pool+" template"] = m.Template.Name
		making[m.Pool+" user"] = m.User
		making[m.Pool+" sshKeys"] = fingerprint(m.SSHKeys)
	}

	return making
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

		path := nodes[0].Path[:strings.LastIndex(nodes[0].Path, ".")]

		for _, key := range []string{"podCidr", "serviceCidr"} {
			at := cluster.Name + " " + key
			if was := last[at]; was != "" && was != making[at] {
				j.report(path+"."+key, fmt.Sprintf(
					"%q", making[at],
				), "is not the network that cluster %s was made with, which it has for its life: "+
					"addresses out of it are in use; set %s", cluster.Name, was)
			}
		}

		at := cluster.Name + " " + regionKey
		if was, is := last[at], making[at]; was != "" && is != "" && was != is {
			j.report(path+"."+regionKey, fmt.Sprintf(
				"%q", is,
			), "is not the region that the nodes of cluster %s have in their provider ids, which they keep for their lives; set %s",
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
	judge := func(pool string, n spec.VM) {
		for _, key := range slices.Sorted(maps.Keys(remedies)) {
			was, is := last[pool+" "+key], making[pool+" "+key]
			if !runs[n.Name] || was == "" || was == is {
				continue
			}

			text := fmt.Sprintf(
				"%s: %s → %s does nothing to machines that run (%%s): only new ones are made so; %s", pathOf(n, key), was, is,
				remedies[key],
			)
			concerned[text] = append(concerned[text], n.Name)
		}
	}

	for _, cluster := range plan.Clusters {
		for _, n := range cluster.Nodes() {
			judge(n.Cluster+"-"+n.Pool, n.VM)
		}
	}

	for _, m := range plan.Machines {
		judge(m.Pool, m.VM)
	}

	var lines []string
	for _, text := range slices.Sorted(maps.Keys(concerned)) {
		lines = append(lines, strings.Replace(text, "%s", Names(concerned[text]), 1))
	}

	return lines
}
