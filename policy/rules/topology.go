package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
)

func topologyPolicies() []policy {
	return []policy{
		{
			Name:        "control-plane-count",
			Description: "A cluster has 1, 3 or 5 control planes.",
			Reason:      "etcd needs a majority: an even number tolerates no more failures than the odd number below it, and more than five slow down every write.",
			Stack:       controlPlaneCount,
		},
		{
			Name:        "control-plane-spread",
			Description: "Control planes of a cluster are spread over the hosts as evenly as the number of hosts allows.",
			Reason: "The failure of a host then loses etcd's majority only if that cannot be avoided. Hosts are those of `talos-proxmox:hosts` and those of " +
				"planned machines.",
			Stack: controlPlaneSpread,
		},
	}
}

func controlPlaneCount(p plan) problem.List {
	var found problem.List

	for _, c := range p.controlPlanes() {
		n := len(c.Machines)
		if !c.Complete || n == 1 || n == 3 || n == 5 {
			continue
		}

		found = append(found, violation(c.URN, "cluster "+c.Cluster, "%s", controlPlaneCountProblem(c.Machines)))
	}

	return found
}

// controlPlaneCountProblem describes a number of control planes that is not 1, 3 or 5, and suggests one.
func controlPlaneCountProblem(machines []machine) string {
	n := len(machines)
	if n == 0 {
		return "no control plane: plan one, or tag control planes with " + tagControlPlane
	}

	effect := fmt.Sprintf("tolerate no more failures than %d", n-1)
	if n%2 == 1 {
		effect = "slow down every write to etcd"
	}

	return fmt.Sprintf("%s (%s) %s: plan %d", problem.Count(n, "control plane"), names(machines), effect, min(n+1, 5))
}

func controlPlaneSpread(p plan) problem.List {
	hosts := p.hosts()

	var found problem.List

	for _, c := range p.controlPlanes() {
		byHost := map[string][]machine{}

		for _, m := range c.Machines {
			if m.Host.Known {
				byHost[m.Host.Value] = append(byHost[m.Host.Value], m)
			}
		}

		allowed := (len(c.Machines) + len(hosts) - 1) / max(len(hosts), 1)

		for _, host := range slices.Sorted(maps.Keys(byHost)) {
			if machines := byHost[host]; len(machines) > allowed {
				found = append(found, violation(c.URN, "cluster "+c.Cluster,
					"%s (%s) on host %s, where %d would do with the %s of the stack (%s): place them on other hosts",
					problem.Count(len(machines), "control plane"), names(machines), host, allowed, problem.Count(len(hosts), "host"), strings.Join(hosts, ", ")))
			}
		}
	}

	return found
}

// hosts returns all hosts that the plan knows, sorted.
func (p plan) hosts() []string {
	hosts := map[string]bool{}
	for name := range p.Hosts {
		hosts[name] = true
	}

	for _, m := range p.machines() {
		if m.Host.Known && m.Host.Value != "" {
			hosts[m.Host.Value] = true
		}
	}

	return slices.Sorted(maps.Keys(hosts))
}
