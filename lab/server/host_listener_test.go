package server

import (
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

func dial(t *testing.T, address string) error {
	t.Helper()

	conn, err := net.DialTimeout("tcp", address, time.Minute)
	if err == nil {
		require.NoError(t, conn.Close())
	}

	return err
}

func TestHostListenerFollowsPower(t *testing.T) {
	t.Parallel()

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	d := NewHostListener(ln)
	accepted := make(chan error, 100)

	go func() {
		for {
			conn, err := d.Accept()
			accepted <- err

			if err != nil {
				return
			}

			_ = conn.Close()
		}
	}()

	require.NoError(t, dial(t, d.Addr().String()))
	require.NoError(t, <-accepted)

	d.Power(false)
	require.ErrorIs(t, dial(t, d.Addr().String()), syscall.ECONNREFUSED)

	d.Power(true)
	d.Power(true)
	require.NoError(t, dial(t, d.Addr().String()))
	require.NoError(t, <-accepted)

	d.Power(false)
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	require.ErrorIs(t, <-accepted, net.ErrClosed)
	d.open()
	assert.ErrorIs(t, dial(t, d.Addr().String()), syscall.ECONNREFUSED, "a closed listener stays closed")
}

func TestAHostRebootsWithItsListeners(t *testing.T) {
	t.Parallel()

	o := Options{Dir: t.TempDir(), Network: "127.183", Speed: 10000, Durations: datacentre.DefaultDurations()}
	o.Durations.BootHost = 8 * time.Hour

	lab, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, lab.Close()) })

	connection, err := lab.Connection()
	require.NoError(t, err)

	shell := net.JoinHostPort(connection.Hosts[0].Address, strconv.Itoa(connection.Hosts[0].Port))
	require.NoError(t, dial(t, shell))
	require.NoError(t, lab.Data.RebootHost("pve1"))

	for _, address := range []string{shell, "127.183.0.11:8006"} {
		// Until its listener is shut, a host on its way down resets connections.
		require.Eventually(
			t, func() bool { return errors.Is(dial(t, address), syscall.ECONNREFUSED) }, time.Minute, time.Millisecond,
		)
	}

	require.NoError(t, dial(t, "127.183.0.12:8006"), "the other host continues")
	require.NoError(t, lab.Close())

	// The lab starts again while the host boots.
	again, err := Open(o)
	require.NoError(t, err)

	lab = again

	require.Eventually(t, func() bool { return dial(t, shell) == nil }, time.Minute, 5*time.Millisecond)

	h, _ := lab.Data.Host("pve1")
	assert.False(t, h.Rebooting)
}

func TestTheShellTakesPort22WhereItIsFree(t *testing.T) {
	t.Parallel()

	const network, first, second = "127.184", "127.184.0.11", "127.184.0.12"

	// Another program's server on one of the hosts' addresses.
	taken, err := net.Listen("tcp", net.JoinHostPort(second, "22"))
	if err != nil {
		t.Skipf("listening on port 22 is not allowed here: %v", err)
	}

	t.Cleanup(func() { _ = taken.Close() })

	o := Options{Dir: t.TempDir(), Network: network}
	lab, err := Open(o)
	require.NoError(t, err)

	before, err := lab.Connection()
	require.NoError(t, err)
	assert.Equal(t, first, before.Hosts[0].Address)
	assert.Equal(t, 22, before.Hosts[0].Port)
	assert.Equal(t, second, before.Hosts[1].Address)
	assert.NotEqual(t, 22, before.Hosts[1].Port)
	require.NoError(t, lab.Close())

	// It keeps its former port, although port 22 is free now.
	require.NoError(t, taken.Close())

	lab, err = Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, lab.Close()) })

	after, err := lab.Connection()
	require.NoError(t, err)
	assert.Equal(t, before.Hosts, after.Hosts)
}
