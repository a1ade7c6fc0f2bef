package machine_test

import (
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cilium returns what Cilium's chart renders from settings that matter to Talos.
func cilium(host, port, capabilities, hostRoot, more string) string {
	api := fmt.Sprintf(
		"env: [{name: KUBERNETES_SERVICE_HOST, value: %q}, {name: KUBERNETES_SERVICE_PORT, value: %q}]", host, port,
	)

	return fmt.Sprintf(`apiVersion: apps/v1
kind: DaemonSet
metadata: {name: cilium, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: cilium}}
  updateStrategy: {rollingUpdate: {maxUnavailable: 100%%}}
  template:
    metadata: {labels: {k8s-app: cilium}}
    spec:
      hostNetwork: true
      tolerations: [{operator: Exists}]
      initContainers:
        - {name: config, image: "quay.io/cilium/cilium:v1.20.2", command: [cilium-dbg, build-config], %[1]s}
%[4]s        - name: clean-cilium-state
          image: quay.io/cilium/cilium:v1.20.2
          command: [/init-container.sh]
          securityContext: {capabilities: {add: [NET_ADMIN, %[2]s], drop: [ALL]}}
      containers:
        - name: cilium-agent
          image: quay.io/cilium/cilium:v1.20.2
          command: [cilium-agent]
          %[1]s
          volumeMounts: [{name: etc-cni-netd, mountPath: /host/etc/cni/net.d}]
      volumes:
        - {name: etc-cni-netd, hostPath: {path: /etc/cni/net.d, type: DirectoryOrCreate}}
        - {name: cilium-cgroup, hostPath: {path: %[3]s, type: DirectoryOrCreate}}
`, api, capabilities, hostRoot, more)
}

// cni: a node is not ready until a CNI with settings that work on Talos runs on it.
func cni(l *lab, k kubectl) {
	const (
		conditions = "get nodes -o jsonpath={range.items[*]}{.metadata.name}{.status.conditions[?(@.type==\"Ready\")].message};{end}"
		statuses   = "-n kube-system get pods -l k8s-app=cilium"
	)

	k.eventually("get nodes", "node-22")
	k.eventually(conditions, "cni plugin not initialized")
	k.eventually("-n kube-system get pods -l k8s-app=kube-dns", "Pending")

	for _, wrong := range []struct{ settings, pods, container, log, reason string }{
		{
			settings: cilium("", "", "SYS_ADMIN", "/sys/fs/cgroup", ""), pods: "Init:CrashLoopBackOff", container: "config",
			log: "dial tcp 10.96.0.1:443: i/o timeout",
		},
		{
			settings:  cilium("localhost", "6443", "SYS_ADMIN", "/sys/fs/cgroup", ""),
			pods:      "Init:CrashLoopBackOff",
			container: "config",
			log:       "dial tcp 127.0.0.1:6443: connect: connection refused",
		},
		{
			settings: cilium("localhost", "7445", "SYS_ADMIN", "/run/cilium/cgroupv2",
				"        - {name: mount-cgroup, image: \"quay.io/cilium/cilium:v1.20.2\", command: [sh, -ec, nsenter cilium-mount]}\n"),
			pods:      "Init:CrashLoopBackOff",
			container: "mount-cgroup",
			log:       "nsenter: failed to execute /opt/cni/bin/cilium-mount: Permission denied",
		},
		{
			settings: cilium("localhost", "7445", "SYS_MODULE", "/sys/fs/cgroup", ""), pods: "Init:CrashLoopBackOff",
			reason: "unable to apply caps: operation not permitted",
		},
		{
			settings:  cilium("localhost", "7445", "SYS_ADMIN", "/run/cilium/cgroupv2", ""),
			pods:      "CrashLoopBackOff",
			container: "cilium-agent",
			log:       "/run/cilium/cgroupv2 is no cgroup2 file system",
		},
	} {
		k.apply(wrong.settings)

		if wrong.log != "" {
			k.eventually("-n kube-system logs daemonset/cilium --all-pods=true -c "+wrong.container, wrong.log)
		} else {
			k.eventually(statuses+" -o json", wrong.reason)
		}

		k.eventually(statuses, wrong.pods)
		assert.NotContains(l.T, k.run("get nodes"), " Ready ", wrong.settings)
	}

	k.apply(cilium("localhost", "7445", "SYS_ADMIN", "/sys/fs/cgroup", ""))

	for _, n := range []int{11, 21, 22} {
		l.waitUntilReady(n)
	}

	k.run("-n kube-system rollout status daemonset/cilium --timeout=5m")
	k.run("-n kube-system rollout status deployment/coredns --timeout=5m")
}

// budget sets the minimum of available pods in web's disruption budget.
func (k kubectl) budget(least int) {
	k.l.Helper()

	out, err := k.try(fmt.Sprintf("spec: {minAvailable: %d}\n", least), "patch pdb web --patch-file /dev/stdin")
	require.NoError(k.l.T, err, out)
}

// drain: a disruption budget blocks evictions; evicted pods run on another node with one of its addresses.
func drain(l *lab, k kubectl) {
	k.run("delete pod --all --force")
	k.run("uncordon node-21")
	k.apply("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 3\n  selector: {matchLabels: {app: web}}\n" +
		"  template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers: [{name: web, image: example.org/web:v1}]\n---\n" +
		"apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec: {minAvailable: 3, selector: {matchLabels: {app: web}}}\n")
	k.run("rollout status deployment/web --timeout=5m")
	k.eventually("get pdb web -o jsonpath={.status.currentHealthy}", "3")

	node := strings.Fields(k.run("get pods -l app=web -o jsonpath={.items[*].spec.nodeName}"))[0]
	cidr := strings.TrimSuffix(k.run("get node "+node+" -o jsonpath={.spec.podCIDR}"), "0/24")
	assert.Contains(l.T, k.run("get pods -l app=web -o wide --field-selector spec.nodeName="+node), " "+cidr)

	k.fails("drain "+node+" --ignore-daemonsets --delete-emptydir-data --timeout=7s",
		"Cannot evict pod as it would violate the pod's disruption budget.")

	k.budget(2)
	k.run("drain " + node + " --ignore-daemonsets --delete-emptydir-data --timeout=5m")
	k.run("rollout status deployment/web --timeout=5m")
	assert.NotContains(l.T, k.run("get pods -l app=web -o wide"), node)
	assert.Contains(l.T, k.run("get nodes"), "Ready,SchedulingDisabled")
	k.run("uncordon " + node)
}

// drainedUpgrade: Talos cordons the node and waits for pods that a disruption budget keeps, with the machine unchanged;
// after the upgrade it removes its own cordon.
func drainedUpgrade(l *lab, k kubectl) {
	k.run("cordon node-22")
	k.run("delete pods -l app=web")
	k.run("rollout status deployment/web --timeout=5m")
	k.run("uncordon node-22")

	k.budget(3)
	k.eventually("get pdb web -o jsonpath={.status.disruptionsAllowed}", "0")

	before := l.status(21).Version
	_, err := l.client(21).UpgradeWithOptions(
		l.context(), client.WithUpgradeImage(installerImage("v1.12.7")),
	)
	require.NoError(l.T, err)
	k.eventually("get node node-21", "Ready,SchedulingDisabled")
	assert.Contains(l.T, k.run("get node node-21 -o yaml"), "talos.dev/cordoned")
	assert.Equal(l.T, 3, strings.Count(k.run("get pods -l app=web -o wide"), "node-21"))
	assert.Equal(l.T, before, l.status(21).Version)

	k.budget(0)
	l.until(
		"the new version runs", func() bool { return l.status(21).Version == "v1.12.7" && l.status(21).Stage == "running" },
	)
	l.until("Talos lifts its cordon", func() bool {
		out, err := k.try("", "get node node-21 -o yaml")

		return err == nil && !strings.Contains(out, "talos.dev/cordoned") && !strings.Contains(out, "unschedulable")
	})
	k.run("rollout status deployment/web --timeout=5m")
	assert.NotContains(l.T, k.run("get pods -l app=web -o wide"), "node-21")
	assert.NotContains(l.T, l.console(21), "failed to evict pod")

	k.run("cordon node-21")
	require.NoError(l.T, l.client(21).Reboot(l.context()))
	l.until("the machine is back", func() bool { return l.status(21).Stage == "running" })
	assert.Contains(l.T, k.run("get node node-21 -o yaml"), "unschedulable", "somebody's own cordon stays")
	k.run("uncordon node-21")
}
