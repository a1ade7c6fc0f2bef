package engine_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/server"
)

// TestHostsRebootOneAfterTheOther prepares three hosts that may be rebooted: never more than one of them is down, and
// the cluster keeps its quorum. The second one waits for a task to end.
func TestHostsRebootOneAfterTheOther(t *testing.T) {
	t.Parallel()

	w := openWorld(t, server.Options{Speed: testSpeed, Hosts: 3})
	hosts := []string{"pve1", "pve2", "pve3"}
	prep := ", prep: {reboot: whenIdle}"
	text := w.stackWithPrep(t, prep, prep)
	text = strings.Replace(
		text, "  talos-proxmox:templates:",
		fmt.Sprintf("    - {name: pve3, address: %s.0.13%s}\n  talos-proxmox:templates:", w.network, prep), 1,
	)

	var (
		mutex    sync.Mutex
		down     = map[string]bool{}
		order    []string
		together int
		quorate  = true
	)

	for _, host := range hosts {
		w.lab.Data.OnHostPower(host, func(on bool) {
			hasQuorum := w.lab.Data.Quorate()

			mutex.Lock()
			defer mutex.Unlock()

			quorate = quorate && hasQuorum

			if on {
				delete(down, host)

				return
			}

			down[host], order = true, append(order, host)
			together = max(together, len(down))
		})
	}

	w.addFault(datacentre.Fault{Task: "qmcreate", VMID: 800, Delay: 1000 * time.Hour})
	upid, err := w.lab.Data.CreateVM(labRoot, "pve2", 800, datacentre.Config{"name": "theirs", "memory": "512"})
	require.NoError(t, err)

	const waits = "pve2 waits to be rebooted: the task qmcreate 800 runs on it"

	go func() {
		for deadline := time.Now().Add(within); !strings.Contains(w.output(), waits) && time.Now().Before(deadline); {
			time.Sleep(50 * time.Millisecond)
		}

		w.lab.Data.StopTask(upid)
	}()

	w.up(text)

	mutex.Lock()
	defer mutex.Unlock()

	assert.Equal(t, hosts, order)
	assert.Equal(t, 1, together, "hosts were down at the same time")
	assert.True(t, quorate, "the Proxmox cluster lost its quorum")
	assert.Contains(t, w.output(), waits)
	w.requireRunning(1)

	done := w.up(text, optup.ExpectNoChanges())
	assert.Empty(t, done)
}
