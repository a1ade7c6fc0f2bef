package machine_test

import (
	"errors"
	"io"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheEtcdDataDirectoryTellsWhoHoldsTheCluster(t *testing.T) {
	t.Parallel()

	l := newLab(t)

	for _, n := range []int{11, 12} {
		l.boot(n)
		l.apply(n, l.configuration(machinetype.TypeControlPlane))
	}

	first, second := l.answers(11), l.answers(12)
	assert.Empty(t, l.etcdData(first))
	require.NoError(t, first.Bootstrap(l.context(), &machineapi.BootstrapRequest{}))
	assert.Equal(t, []string{"member"}, l.etcdData(first))

	l.until("the second one has joined", func() bool { return l.status(12).EtcdMember != "" })
	assert.Equal(t, []string{"member"}, l.etcdData(second))
}

// etcdData lists etcd's data directory; one that is not there is empty.
func (l *lab) etcdData(c *client.Client) []string {
	l.Helper()

	stream, err := c.LS(l.context(), &machineapi.ListRequest{Root: constants.EtcdDataPath})
	require.NoError(l.T, err)

	var names []string

	for {
		file, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return names
		}

		if err != nil {
			require.ErrorContains(l.T, err, "no such file or directory")

			return nil
		}

		if file.GetRelativeName() != "." {
			names = append(names, file.GetRelativeName())
		}
	}
}
