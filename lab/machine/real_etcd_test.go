package machine_test

import (
	"bytes"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// TestRealEtcd tests Talos' operations on real etcd: maintenance, members that leave and join again, snapshots and
// recovery.
func TestRealEtcd(t *testing.T) {
	t.Parallel()

	l := realLab(t)
	c := l.talosctl()

	for _, n := range []int{11, 12, 13} {
		l.start(n, machinetype.TypeControlPlane)
	}

	l.bootstrap()

	for _, n := range []int{11, 12, 13} {
		l.waitUntilReady(n)
	}

	l.until("three members vote", func() bool { return len(l.voters(11)) == 3 })

	for _, part := range []struct { //nolint:paralleltest // as below
		name string
		test func(*lab, talosctl)
	}{
		{"health", health},
		{"care", etcdCare},
		{"leaving", etcdLeave},
		{"a graceful reset", gracefulReset},
		{"damaged data", etcdDamage},
		{"a write that is lost", etcdLostWrite},
		{"recovery", etcdRecovery},
	} {
		t.Run(part.name, func(t *testing.T) { //nolint:paralleltest // one world, one after another
			inner := *l
			inner.T = t
			part.test(&inner, talosctl{&inner, c.binary, c.config})
		})
	}
}

// health: talosctl health, on both sides, checks the pods of the API server.
func health(l *lab, c talosctl) {
	for _, side := range []string{
		"health --wait-timeout 2m", "health --wait-timeout 2m --server=false --control-plane-nodes #11,#12,#13",
	} {
		out := c.run(11, strings.ReplaceAll(side, "#", l.prefix))

		for _, check := range []string{
			"all control plane components to be ready", "kube-proxy to report ready", "coredns to report ready",
		} {
			assert.Contains(l.T, out, "waiting for "+check+": OK", side)
		}
	}

	k := l.kubectl(11)
	k.run("-n kube-system scale deployment coredns --replicas=0")
	k.eventually("-n kube-system get pods -l k8s-app=kube-dns", "No resources found")

	out, err := c.try(11, "health --wait-timeout 3s")
	require.Error(l.T, err)
	assert.Contains(l.T, out, `waiting for coredns to report ready: no pods found for namespace "kube-system" and label selector "k8s-app=kube-dns"`)
	k.run("-n kube-system scale deployment coredns --replicas=2")
}

// etcdCare tests status, alarms, defragmentation and forfeited leadership.
func etcdCare(l *lab, c talosctl) {
	assert.Contains(l.T, c.run(11, "etcd status"), "3.6.")
	assert.NotContains(l.T, c.run(11, "etcd alarm list"), "NOSPACE")

	l.raiseAlarm(11)
	assert.Contains(l.T, c.run(12, "etcd alarm list"), "NOSPACE")
	assert.Contains(l.T, c.run(12, "etcd alarm disarm"), "NOSPACE")
	assert.NotContains(l.T, c.run(11, "etcd alarm list"), "NOSPACE")
	c.run(11, "etcd defrag")

	leader := l.leader()
	c.run(leader, "etcd forfeit-leadership")
	l.until("another member leads", func() bool {
		next := l.leader()

		return next != 0 && next != leader
	})
}

// leader returns the machine whose member leads; 0 while none does.
func (l *lab) leader() int {
	l.Helper()

	for _, n := range []int{11, 12, 13} {
		st, err := l.client(n).EtcdStatus(l.context())
		if err != nil {
			continue
		}

		if m := st.GetMessages()[0].GetMemberStatus(); m.GetLeader() == m.GetMemberId() {
			return n
		}
	}

	return 0
}

// raiseAlarm raises the alarm that a member is out of space.
func (l *lab) raiseAlarm(n int) {
	l.Helper()

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(l.secrets.Certs.Etcd)
	require.NoError(l.T, err)

	pair, err := x509.NewKeyPair(ca, x509.CommonName("test"), x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}))
	require.NoError(l.T, err)

	encoded := x509.NewCertificateAndKeyFromKeyPair(pair)
	certificate, err := tls.X509KeyPair(encoded.Crt, encoded.Key)
	require.NoError(l.T, err)

	conn, err := grpc.NewClient(l.address(n)+":2379", grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true, //nolint:gosec // a test's own etcd
	})))
	require.NoError(l.T, err)

	defer func() { _ = conn.Close() }()

	care := etcdserverpb.NewMaintenanceClient(conn)
	st, err := care.Status(l.context(), &etcdserverpb.StatusRequest{})
	require.NoError(l.T, err)

	_, err = care.Alarm(l.context(), &etcdserverpb.AlarmRequest{
		Action:   etcdserverpb.AlarmRequest_ACTIVATE,
		MemberID: st.GetHeader().GetMemberId(),
		Alarm:    etcdserverpb.AlarmType_NOSPACE,
	})
	require.NoError(l.T, err)
}

// etcdLeave: a member leaves with its data, and joins again as a learner that is promoted.
func etcdLeave(l *lab, c talosctl) {
	c.run(13, "etcd leave")
	l.until("the others know", func() bool {
		out, err := c.try(11, "etcd members")

		return err == nil && !strings.Contains(out, "node-13")
	})
	assert.Equal(l.T, "Finished", l.serviceState(13, "etcd"))

	c.run(13, "service etcd start")
	l.until("three members vote", func() bool { return len(l.voters(11)) == 3 })
	l.waitUntilReady(13)
}

// gracefulReset: pods are evicted and the member leaves before its data is wiped, and a new one joins.
func gracefulReset(l *lab, c talosctl) {
	before := l.members(11)

	k := l.kubectl(11)
	k.apply("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: moving}\nspec:\n" +
		"  selector: {matchLabels: {app: moving}}\n  template:\n    metadata: {labels: {app: moving}}\n    spec:\n" +
		"      nodeSelector: {kubernetes.io/hostname: node-13}\n" +
		"      tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]\n" +
		"      containers: [{name: moving, image: example.org/moving:v1}]\n")
	k.run("rollout status deployment/moving --timeout=5m")

	c.run(13, "reset --system-labels-to-wipe EPHEMERAL --reboot --wait=false")
	l.until("the machine has a new member", func() bool {
		return len(l.voters(11)) == 3 && slices.ContainsFunc(l.members(11), func(m *machineapi.EtcdMember) bool {
			return !slices.ContainsFunc(before, func(o *machineapi.EtcdMember) bool { return o.GetId() == m.GetId() })
		})
	})
	l.waitUntilReady(13)
	assert.NotContains(l.T, l.console(13), "failed to evict pod")
	k.run("delete deployment moving")
}

// etcdLostWrite: a killed lab has not saved the state of a member, which continues with its data.
func etcdLostWrite(l *lab, _ talosctl) {
	before := l.members(11)

	l.machines.PowerOff(13)

	l.mu.Lock()
	volume := l.volumes["local:vm-13-disk-0"]
	state := map[string]json.RawMessage{}
	require.NoError(l.T, json.Unmarshal(volume.State, &state))
	require.Contains(l.T, state, "etcd")
	delete(state, "etcd")

	text, err := json.Marshal(state)
	require.NoError(l.T, err)

	volume.State = text
	l.volumes["local:vm-13-disk-0"] = volume
	l.mu.Unlock()

	l.machines.PowerOn(l.hardware(13))
	l.waitUntilReady(13)
	l.until("its etcd runs", func() bool { return l.serviceState(13, "etcd") == "Running" })

	for _, m := range l.members(11) {
		assert.True(l.T, slices.ContainsFunc(before, func(o *machineapi.EtcdMember) bool {
			return o.GetId() == m.GetId()
		}), "%s is another member", m.GetHostname())
	}
}

// etcdDamage: a member with damaged data reports what to do while the others continue; after a wipe it joins again.
func etcdDamage(l *lab, c talosctl) {
	l.machines.PowerOff(13)

	files, err := filepath.Glob(filepath.Join(l.files, "*vm-13-disk-0", "*", "etcd", "member", "snap", "db"))
	require.NoError(l.T, err)
	require.Len(l.T, files, 1)
	require.NoError(l.T, os.WriteFile(files[0], bytes.Repeat([]byte("damaged"), 10000), 0o600))

	l.machines.PowerOn(l.hardware(13))
	l.waitForConsole(13, "the member's data is damaged: replace the machine")
	assert.Len(l.T, l.voters(11), 3)

	l.waitForAPI(13)
	c.run(13, "reset --graceful=false --system-labels-to-wipe EPHEMERAL --reboot --wait=false")
	l.until("the machine is ready again", func() bool { return l.status(13).Ready && l.status(13).EtcdMember != "" })
	l.until("three members vote", func() bool { return len(l.voters(11)) == 3 })
}

// etcdRecovery: all members lose their data; one recovers it from a snapshot, and the others join.
func etcdRecovery(l *lab, c talosctl) {
	k := l.kubectl(11)
	k.run("create namespace kept")

	file := filepath.Join(l.TempDir(), "etcd.db")
	assert.Contains(l.T, c.run(12, "etcd snapshot "+file), "snapshot info:")
	k.run("create namespace lost")

	// One after the other with the others off, since two remaining members would let a wiped one join again.
	l.machines.PowerOff(12)
	l.machines.PowerOff(13)

	// Without the others etcd has no quorum, so the node cannot be cordoned; only a forced shutdown skips that.
	require.NoError(l.T, l.client(11).Shutdown(l.context()))
	l.waitForConsole(11, "shutdown failed: the node was not cordoned")
	assert.Equal(l.T, "running", l.status(11).Stage)

	for _, n := range []int{11, 12, 13} {
		if n != 11 {
			l.machines.PowerOn(l.hardware(n))
			l.until(fmt.Sprintf("machine %d answers", n), func() bool {
				_, err := l.client(n).Version(l.context())

				return err == nil
			})
		}

		c.run(n, "reset --graceful=false --system-labels-to-wipe EPHEMERAL --reboot --wait=false")
		l.until(fmt.Sprintf("machine %d waits for a bootstrap", n), func() bool {
			st := l.status(n)

			return st.EtcdMember == "" && l.serviceState(n, "etcd") == "Preparing"
		})
	}

	garbage := strings.NewReader("no snapshot")
	_, err := l.client(11).EtcdRecover(l.context(), garbage)
	require.NoError(l.T, err)
	require.NoError(l.T, l.client(11).Bootstrap(l.context(), &machineapi.BootstrapRequest{RecoverEtcd: true}))
	l.until("etcd cannot recover", func() bool { return l.serviceState(11, "etcd") == "Failed" })
	assert.Contains(l.T, l.console(11), "error verifying snapshot")

	c.run(11, "reboot --wait=false")
	l.until("a reboot has lost the request", func() bool { return l.serviceState(11, "etcd") == "Preparing" })

	// A power cut during a restore loses the request but not the snapshot; incomplete data is discarded.
	snapshot, err := os.Open(file) //nolint:gosec // of this test
	require.NoError(l.T, err)
	_, err = l.client(11).EtcdRecover(l.context(), snapshot)
	require.NoError(l.T, err)
	require.NoError(l.T, l.client(11).Bootstrap(l.context(), &machineapi.BootstrapRequest{RecoverEtcd: true}))

	folders, err := filepath.Glob(filepath.Join(l.files, "*vm-11-disk-0", "*"))
	require.NoError(l.T, err)
	require.Len(l.T, folders, 1)
	l.until("the restore has begun", func() bool {
		_, begun := os.Stat(filepath.Join(folders[0], "etcd.recovered"))
		_, over := os.Stat(filepath.Join(folders[0], "etcd"))

		return begun == nil || over == nil
	})
	l.machines.PowerOff(11)

	_, err = os.Stat(filepath.Join(folders[0], "etcd"))
	restored := err == nil

	l.machines.PowerOn(l.hardware(11))
	l.waitForAPI(11)

	if !restored { // where the restore was over before the power was cut, the member has its data
		l.until("the machine waits for a bootstrap", func() bool { return l.serviceState(11, "etcd") == "Preparing" })
		assert.Contains(l.T, c.run(11, "bootstrap --recover-from "+file), "recovering from snapshot")
	}

	l.until("three members vote", func() bool {
		list, err := l.client(11).EtcdMemberList(l.context(), &machineapi.EtcdMemberListRequest{})

		return err == nil && len(list.GetMessages()[0].GetMembers()) == 3 && len(l.voters(11)) == 3
	})

	for _, n := range []int{11, 12, 13} {
		l.waitUntilReady(n)
	}

	k.run("get namespace kept")

	k.fails("get namespace lost", `namespaces "lost" not found`)
	k.run("-n kept create configmap written --from-literal=a=b")

	out, err := c.try(11, "bootstrap")
	require.Error(l.T, err)
	assert.Contains(l.T, out, "etcd data directory is not empty")
}
