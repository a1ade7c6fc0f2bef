package machine_test

import (
	"crypto/tls"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestForeignCertificateIsRefused(t *testing.T) {
	t.Parallel()

	l, other := newLab(t), newLab(t)
	l.cluster(1, 0)

	foreign, err := newSecrets()
	require.NoError(t, err)

	other.prefix, other.secrets = l.prefix, foreign
	_, err = other.client(11).Version(l.context())
	assert.Equal(t, codes.Unavailable, status.Code(err))

	_, err = l.insecure(11).Version(l.context())
	assert.Error(t, err, "a configured machine asks for a client certificate")
}

func TestWorkerGetsItsCertificateOnlyFromItsCluster(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.start(21, machinetype.TypeWorker)
	l.start(22, machinetype.TypeWorker, "machine:\n  token: aaaaaa.bbbbbbbbbbbbbbbb\n")

	l.until("the worker waits", func() bool { return l.serviceState(21, "apid") == "Waiting" })

	l.start(11, machinetype.TypeControlPlane)
	l.waitForAPI(11)

	l.until("the worker has its certificate", func() bool { return l.serviceState(21, "apid") == "Running" })
	assert.Equal(t, "Waiting", l.serviceState(22, "apid"), "another machine token is none of this cluster's")

	reply, err := l.client(11).Version(client.WithNodes(l.context(), l.address(21)))
	require.NoError(t, err)
	assert.Equal(t, l.address(21), reply.GetMessages()[0].GetMetadata().GetHostname())

	_, err = l.client(21).Version(client.WithNodes(l.context(), l.address(11)))
	assert.Equal(t, codes.PermissionDenied, status.Code(err), "a worker does not forward")

	err = l.client(21).Bootstrap(l.context(), &machineapi.BootstrapRequest{})
	assert.Equal(t, codes.FailedPrecondition, status.Code(err))
}

// holders counts the machines whose agent reports the address.
func holders(l *lab, address string) int {
	count := 0

	for _, s := range l.machines.Status() {
		interfaces, _ := l.machines.Agent(s.VMID)

		for _, i := range interfaces {
			for _, p := range i.Addresses {
				if p.Addr().String() == address {
					count++
				}
			}
		}
	}

	return count
}

func isServing(address string) bool {
	//nolint:gosec // only checks that it answers
	conn, err := tls.Dial("tcp", address+":6443", &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return false
	}

	return conn.Close() == nil
}

func TestEtcdMembers(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.cluster(3, 0)

	c := l.client(11)
	assert.ElementsMatch(t, []string{"node-11", "node-12", "node-13"}, l.voters(11))

	err := c.EtcdRemoveMemberByID(l.context(), &machineapi.EtcdRemoveMemberByIDRequest{MemberId: 1})
	assert.Equal(t, codes.NotFound, status.Code(err))
	l.removeMember(13)
	assert.Empty(t, l.status(13).EtcdMember)

	_, err = c.UpgradeWithOptions(
		l.context(), client.WithUpgradeImage("factory.talos.dev/nocloud-installer/unknown:v1.12.7"),
	)
	require.ErrorContains(t, err, "error validating installer image")

	_, err = c.UpgradeWithOptions(l.context(), client.WithUpgradeImage(installerImage("v1.12.7")))
	assert.ErrorContains(t, err, "etcd member count(2) is insufficient to maintain quorum if upgrade commences")

	require.NoError(t, l.client(12).EtcdLeaveCluster(l.context(), &machineapi.EtcdLeaveClusterRequest{}))
	assert.Equal(t, "Finished", l.serviceState(12, "etcd"))

	_, err = l.client(12).ServiceStart(l.context(), "etcd")
	require.NoError(t, err)
	l.until(
		"a member that left joins again",
		func() bool { return l.serviceState(12, "etcd") == "Running" && l.status(12).EtcdMember != "" },
	)
}
