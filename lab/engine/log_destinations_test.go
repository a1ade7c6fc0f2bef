package engine_test

import (
	"bufio"
	"encoding/json"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// logServer is a destination of logs, as an aggregator listens for JSON lines.
type logServer struct {
	net.Listener

	mu sync.Mutex
	// nodes have sent a line of a service.
	nodes map[string]bool
	// kernel reports whether there was a line of a kernel.
	kernel bool
}

func newLogServer(t *testing.T) *logServer {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // until the test ends
	require.NoError(t, err)

	s := &logServer{Listener: listener, nodes: map[string]bool{}}

	t.Cleanup(func() { _ = listener.Close() })

	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}

			go s.read(connection)
		}
	}()

	return s
}

func (s *logServer) read(connection net.Conn) {
	for lines := bufio.NewScanner(connection); lines.Scan(); {
		var record struct {
			Node     string `json:"node"`
			Service  string `json:"talos-service"`
			Facility string `json:"facility"`
		}
		if json.Unmarshal(lines.Bytes(), &record) != nil {
			continue
		}

		s.mu.Lock()

		if record.Service == "machined" {
			s.nodes[record.Node] = true
		} else if record.Facility != "" {
			s.kernel = true
		}

		s.mu.Unlock()
	}
}

// hasHeard reports whether services of all nodes were heard, and a kernel.
func (s *logServer) hasHeard(nodes ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.kernel && !slices.ContainsFunc(nodes, func(name string) bool { return !s.nodes[name] })
}

// TestLogDestinations: machines send the logs of services, with their names, and of the kernel; a destination that is
// added is used without a restart.
func TestLogDestinations(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)
	w.up(s.yaml(t))

	booted, server := w.bootTimes(), newLogServer(t)
	s.Clusters[0].YAML = "logDestinations: [tcp://" + server.Addr().String() + "]"

	w.up(s.yaml(t))

	for !server.hasHeard("one-cp-1", "one-general-1") { // as long as the test may take
		time.Sleep(20 * time.Millisecond)
	}

	assert.Equal(t, booted, w.bootTimes(), "no machine restarted")
	w.up(s.yaml(t), optup.ExpectNoChanges())
}
