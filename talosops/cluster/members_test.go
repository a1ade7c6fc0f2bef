package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/talosops/talosapi"
)

func TestServiceProblems(t *testing.T) {
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
			assert.Equal(t, test.want, ServiceProblems(test.services, NodeServices))
		})
	}
}
