package machine_test

import (
	"fmt"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/machine/nodes"
)

// TestScenario runs a cluster's life cycle on the model and on real etcd and Kubernetes, so that the two do not
// diverge.
func TestScenario(t *testing.T) {
	t.Parallel()

	t.Run("model", func(t *testing.T) {
		t.Parallel()

		l := newLab(t)
		scenario(l)
		l.machines.PowerOff(12)
		l.until("without quorum nobody serves the address", func() bool {
			return holders(l, l.address(100)) == 0 && !isServing(l.address(100))
		})
	})

	t.Run("real", func(t *testing.T) {
		t.Parallel()
		scenario(realLab(t))
	})
}

// scenario brings up three control planes behind a virtual IP and a worker, cuts power, removes a member, and switches
// everything off and on.
func scenario(l *lab) {
	vip := l.address(100)
	l.patches = []string{fmt.Sprintf("cluster:\n  controlPlane:\n    endpoint: https://%s:6443\n", vip)}

	for _, n := range []int{11, 12, 13} {
		l.start(n, machinetype.TypeControlPlane, fmt.Sprintf(
			"machine:\n  network:\n    interfaces:\n      - {deviceSelector: {hardwareAddr: \"02:00:00:00:00:%02x\"}, vip: {ip: %s}}\n",
			n, vip))
	}

	l.start(21, machinetype.TypeWorker,
		"machine:\n  nodeLabels: {zone: a}\n  kubelet:\n    extraConfig:\n"+
			"      registerWithTaints: [{key: gpu, value: \"true\", effect: NoSchedule}]\n")

	c := l.waitForAPI(11)
	assert.False(l.T, isServing(vip), "the address does not exist before etcd")
	l.bootstrap()

	nodes := []int{11, 12, 13, 21}
	for _, n := range nodes {
		l.waitUntilReady(n)
	}

	l.until("three members vote", func() bool { return len(l.voters(11)) == 3 })
	assert.Equal(l.T, 1, holders(l, vip))

	content, err := c.Kubeconfig(l.context())
	require.NoError(l.T, err)

	k := l.kubeFromConfig(content)
	uids := map[int]string{}

	for _, n := range nodes {
		uids[n] = k.uid(n)
	}

	assert.Equal(l.T, "a", k.node(21).Labels["zone"])
	assert.Contains(l.T, fmt.Sprint(k.node(21).Spec.Taints), "gpu")
	assert.Contains(l.T, k.node(11).Labels, "node-role.kubernetes.io/control-plane")
	assert.Contains(l.T, fmt.Sprint(k.node(11).Spec.Taints), "node-role.kubernetes.io/control-plane")

	for _, n := range []int{11, 13} {
		l.until("a control plane has its static pods", func() bool {
			list, err := safe.StateListAll[*k8s.StaticPodStatus](l.context(), l.client(n).COSI)

			return err == nil && list.Len() == 3
		})
	}

	const worker = "machine:\n  nodeLabels: {zone: a}\n"

	l.applyRunning(21, machinetype.TypeWorker, worker+"  nodeTaints: {dedicated: \"db:NoSchedule\"}\n")
	l.waitForConsole(21, `nodes "node-21" is forbidden: node "node-21" is not allowed to modify taints`)
	l.applyRunning(21, machinetype.TypeWorker, worker)

	require.NoError(l.T, k.patch(21, `{"metadata":{"labels":{"kept":"yes"}}}`))

	l.cutPower(k, vip)
	l.removeMember(13)

	for _, n := range nodes {
		l.machines.PowerOff(n)
	}

	for _, n := range []int{11, 12, 21} {
		l.machines.PowerOn(l.hardware(n))
	}

	for _, n := range []int{11, 12, 21} {
		l.waitUntilReady(n)
		assert.Equal(l.T, uids[n], k.uid(n), "the node is the one that was there")
	}

	assert.Equal(l.T, "yes", k.node(21).Labels["kept"])
	assert.NotContains(l.T, fmt.Sprint(k.node(21).Spec.Taints), "dedicated")
}

// cutPower switches a control plane off: the others serve the virtual IP, and its node is not ready until it is back.
func (l *lab) cutPower(k kubeClient, vip string) {
	l.Helper()

	l.machines.PowerOff(13)
	l.until("the others serve the address", func() bool { return holders(l, vip) == 1 && isServing(vip) })
	l.until("the node is missed", func() bool { return k.condition(13) == "Unknown" })

	l.machines.PowerOn(l.hardware(13))
	l.waitUntilReady(13)
	l.until("the node is back", func() bool { return k.condition(13) == "True" })
	l.until("three members vote", func() bool { return len(l.voters(11)) == 3 })
}

// removeMember removes a control plane's member from etcd.
func (l *lab) removeMember(n int) {
	l.Helper()

	for _, m := range l.members(11) {
		if m.GetHostname() != fmt.Sprintf("node-%d", n) {
			continue
		}

		l.until("etcd lets the member go", func() bool { // it refuses for some seconds after another change of members
			return l.client(11).EtcdRemoveMemberByID(l.context(),
				&machineapi.EtcdRemoveMemberByIDRequest{MemberId: m.GetId()}) == nil
		})
	}

	l.until("two members vote", func() bool { return len(l.voters(11)) == 2 })
	l.until("the member's service has ended", func() bool { return l.serviceState(n, "etcd") == "Failed" })
}

// waitUntilReady waits until a machine has booted and its node is ready.
func (l *lab) waitUntilReady(n int) {
	l.Helper()
	l.until(fmt.Sprintf("machine %d is ready", n),
		func() bool { return l.status(n).Ready && l.status(n).Stage == "running" })
}

func (l *lab) members(n int) []*machineapi.EtcdMember {
	l.Helper()

	list, err := l.client(n).EtcdMemberList(l.context(), &machineapi.EtcdMemberListRequest{})
	require.NoError(l.T, err)

	return list.GetMessages()[0].GetMembers()
}

// voters returns the names of the voting members.
func (l *lab) voters(n int) []string {
	l.Helper()

	var names []string

	for _, m := range l.members(n) {
		if !m.GetIsLearner() {
			names = append(names, m.GetHostname())
		}
	}

	return names
}

// uid returns the UID of a machine's Node object.
func (k kubeClient) uid(n int) string {
	k.l.Helper()

	uid := ""

	k.l.until(fmt.Sprintf("the API shows node %d", n), func() bool {
		node, ok := k.getNode(n)
		if ok {
			uid = string(node.UID)
		}

		return ok
	})

	return uid
}

// condition returns the status of the Ready condition of a machine's Node object.
func (k kubeClient) condition(n int) string {
	node, ok := k.getNode(n)
	if !ok {
		return ""
	}

	return string(nodes.Ready(&node.Status).Status)
}
