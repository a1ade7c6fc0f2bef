package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// Services that a healthy node must run. All others that it runs must be healthy, too.
var (
	NodeServices         = []string{"apid", "kubelet"}
	ControlPlaneServices = []string{"apid", "etcd", "kubelet", "trustd"}
)

// ServiceProblems returns what is wrong with a node's services, or "".
func ServiceProblems(services []talosapi.Service, required []string) string {
	var problems []string

	found := map[string]bool{}
	for _, s := range services {
		found[s.ID] = true
		if problem := serviceProblem(s); problem != "" {
			problems = append(problems, problem)
		}
	}

	for _, id := range required {
		if !found[id] {
			problems = append(problems, id+" is missing")
		}
	}

	slices.Sort(problems)

	return strings.Join(problems, ", ")
}

func serviceProblem(s talosapi.Service) string {
	switch {
	case s.State == "Finished" || s.State == "Skipped":
		return ""
	// Extensions may wait for a configuration that is applied later.
	case s.State != "Running" && strings.HasPrefix(s.ID, "ext-") && s.State != "Failed":
		return ""
	case s.State != "Running":
		return fmt.Sprintf("%s is %s", s.ID, strings.ToLower(cmp.Or(s.State, "unknown")))
	case s.Known && !s.Healthy && s.Message != "":
		return fmt.Sprintf("%s is not healthy (%s)", s.ID, s.Message)
	case s.Known && !s.Healthy:
		return s.ID + " is not healthy"
	default:
		return ""
	}
}

// CompareMembers returns what is wrong with the expected members, and the members that are not expected.
func CompareMembers(members []talosapi.Member, expected []request.Node) (problems []string, surplus []talosapi.Member) {
	found := map[string]bool{}

	for _, m := range members {
		i := slices.IndexFunc(expected, m.RunsOn)
		if i < 0 {
			surplus = append(surplus, m)

			continue
		}

		name := expected[i].Name
		if found[name] {
			problems = append(problems, fmt.Sprintf("member %s is listed twice", name))
		}

		found[name] = true

		switch {
		case m.Learner:
			problems = append(problems, fmt.Sprintf("member %s is still a learner", name))
		case m.Hostname == "":
			problems = append(problems, fmt.Sprintf("member %s has not started", name))
		}
	}

	for _, n := range expected {
		if !found[n.Name] {
			problems = append(problems, fmt.Sprintf("member %s is missing", n.Name))
		}
	}

	return problems, surplus
}

// memberProblems returns what is wrong with a member of etcd, by its own status.
func memberProblems(ctx context.Context, talos talosapi.API, address netip.Addr) []string {
	status, err := talos.EtcdStatus(ctx, address)

	switch {
	case err != nil:
		return []string{"its member does not answer: " + talosapi.Cause(err)}
	case status.Learner:
		return []string{"its member is a learner"}
	case !status.HasLeader:
		return []string{"its member sees no leader"}
	default:
		return status.Errors
	}
}

// surplusProblems returns what is wrong with unexpected members. Healthy ones are tolerated: they leave at the end of
// the run.
func surplusProblems(ctx context.Context, talos talosapi.API, surplus []talosapi.Member) (problems []string) {
	for _, m := range surplus {
		prefix := fmt.Sprintf("member %s is not expected, and ", m.Label())

		switch addresses := m.Addresses(); {
		case m.Learner:
			problems = append(problems, prefix+"a learner")
		case m.Hostname == "" || len(addresses) == 0:
			problems = append(problems, prefix+"has not started")
		default:
			if wrong := memberProblems(ctx, talos, addresses[0]); len(wrong) > 0 {
				problems = append(problems, prefix+"not healthy: "+strings.Join(wrong, ", "))
			}
		}
	}

	return problems
}

// NodeProblem returns what is wrong with a node in Kubernetes apart from its readiness, or "".
func NodeProblem(nodes []kube.Node, name, version string) string {
	n, registered := kube.Find(nodes, name)

	switch {
	case !registered:
		return "is not registered"
	case version != "" && n.Kubelet != version:
		return fmt.Sprintf("runs kubelet %s instead of %s", cmp.Or(n.Kubelet, "of an unknown version"), version)
	default:
		return ""
	}
}
