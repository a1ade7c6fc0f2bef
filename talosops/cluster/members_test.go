package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

func TestJudgeServices(t *testing.T) {
	t.Parallel()

	running := func(id string) talosapi.Service {
		return talosapi.Service{ID: id, State: "Running", Known: true, Healthy: true}
	}
	for name, test := range map[string]struct {
		services []talosapi.Service
		want     string
	}{
		"all run and are healthy": {[]talosapi.Service{running("apid"), running("kubelet"), running("udevd")}, ""},
		"a service without a health check": {
			[]talosapi.Service{running("apid"), running("kubelet"), {ID: "auditd", State: "Running"}}, "",
		},
		"a service that has done its work": {
			[]talosapi.Service{running("apid"), running("kubelet"), {ID: "init", State: "Finished"}, {ID: "dashboard", State: "Skipped"}},
			"",
		},
		"an extension that waits for configuration": {
			[]talosapi.Service{running("apid"), running("kubelet"), {ID: "ext-tailscale", State: "Waiting"}}, "",
		},
		"an extension that failed": {
			[]talosapi.Service{running("apid"), running("kubelet"), {ID: "ext-tailscale", State: "Failed"}}, "ext-tailscale is failed",
		},
		"a required service is missing": {[]talosapi.Service{running("apid")}, "kubelet is missing"},
		"a required service still starts": {
			[]talosapi.Service{running("apid"), {ID: "kubelet", State: "Preparing"}}, "kubelet is preparing",
		},
		"a service in no state": {[]talosapi.Service{running("apid"), running("kubelet"), {ID: "cri"}}, "cri is unknown"},
		"an unhealthy service with a reason": {
			[]talosapi.Service{running("apid"), {ID: "kubelet", State: "Running", Known: true, Message: "connection refused"}},
			"kubelet is not healthy (connection refused)",
		},
		"an unhealthy service without one": {
			[]talosapi.Service{running("apid"), running("kubelet"), {ID: "cri", State: "Running", Known: true}}, "cri is not healthy",
		},
		"everything wrong, in order": {
			[]talosapi.Service{{ID: "udevd", State: "Failed"}}, "apid is missing, kubelet is missing, udevd is failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, JudgeServices(test.services, NodeServices))
		})
	}
}

func TestJudgeMembers(t *testing.T) {
	t.Parallel()

	expected := []request.Node{{Name: "cp-1", Address: "127.0.9.1"}, {Name: "cp-2", Address: "127.0.9.2"}}

	for name, test := range map[string]struct {
		members []talosapi.Member
		want    string
	}{
		"exactly the expected ones": {[]talosapi.Member{{Hostname: "cp-2"}, {Hostname: "cp-1"}}, ""},
		"one is missing":            {[]talosapi.Member{{Hostname: "cp-1"}}, "member cp-2 is missing"},
		"none at all":               {nil, "member cp-1 is missing, member cp-2 is missing"},
		"an unexpected one": {
			[]talosapi.Member{{Hostname: "cp-1"}, {Hostname: "cp-2"}, {Hostname: "cp-3"}}, "member cp-3 is not expected",
		},
		"a learner": {
			[]talosapi.Member{{Hostname: "cp-1"}, {Hostname: "cp-2", Learner: true}}, "member cp-2 is still a learner",
		},
		"an old member of the same name": {
			[]talosapi.Member{{Hostname: "cp-1"}, {Hostname: "cp-2"}, {Hostname: "cp-2"}}, "member cp-2 is there twice",
		},
		"added but not started": {
			[]talosapi.Member{{Hostname: "cp-1"}, {PeerURLs: []string{"https://127.0.9.2:2380"}}}, "member cp-2 has not started",
		},
		"added but not started, elsewhere": {
			[]talosapi.Member{{Hostname: "cp-1"}, {PeerURLs: []string{"https://127.0.9.3:2380"}}},
			"member cp-2 is missing, member without a name at https://127.0.9.3:2380 is not expected",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			problems, surplus := CompareMembers(test.members, expected)
			for _, m := range surplus {
				problems = append(problems, fmt.Sprintf("member %s is not expected", m.Label()))
			}

			slices.Sort(problems)
			assert.Equal(t, test.want, strings.Join(problems, ", "))
		})
	}
}

func TestJudgeNode(t *testing.T) {
	t.Parallel()

	nodes := []kube.Node{
		{Name: "cp-1", Ready: true, Kubelet: "v1.35.0"}, {Name: "cp-2", Kubelet: "v1.34.0"}, {Name: "cp-3"},
	}

	for name, test := range map[string]struct{ node, version, want string }{
		"registered and Ready":     {node: "cp-1", version: "v1.35.0"},
		"registered without a CNI": {node: "cp-2"},
		"another version of kubelet": {
			node:    "cp-2",
			version: "v1.35.0",
			want:    "runs kubelet v1.34.0 instead of v1.35.0",
		},
		"no version of kubelet": {
			node:    "cp-3",
			version: "v1.35.0",
			want:    "runs kubelet of an unknown version instead of v1.35.0",
		},
		"not registered": {node: "w-1", version: "v1.35.0", want: "is not registered"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			assert.Equal(t, test.want, JudgeNode(nodes, test.node, test.version))
		})
	}
}
