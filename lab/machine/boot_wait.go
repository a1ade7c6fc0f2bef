package machine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

const (
	// bootTimeout is how long Talos waits for all services during boot before it reboots.
	bootTimeout = 70 * time.Minute
	// bootReminder is the interval between log lines about the services that a boot waits for.
	bootReminder = 15 * time.Second
)

// revertUpgrade makes the next boot start the previous system if the first boot after an upgrade failed.
func (m *machine) revertUpgrade() {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.disk.Upgraded && m.disk.Previous != nil {
		m.disk.Upgraded = false
		m.logfLocked("[talos] the upgrade has failed: reverting to the previous installation (%s)", m.disk.Previous.Version)
		m.replaceSystem(*m.disk.Previous)
	}
}

// upgradeFails reports whether a fault keeps an upgraded system from its first boot.
func (m *machine) upgradeFails() bool {
	if !m.ms.world.IsReverting(m.hw.VMID) {
		return false
	}

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	return m.disk.Upgraded && m.disk.Previous != nil
}

// awaitServices logs the services that the boot waits for, and reboots the machine after a timeout.
func (m *machine) awaitServices(ctx context.Context) {
	for waited := time.Duration(0); waited < bootTimeout; waited += bootReminder {
		m.ms.mu.Lock()
		names := m.services.WaitingExtensions()

		if len(names) > 0 {
			texts := make([]string, 0, len(names))
			for _, name := range names {
				texts = append(texts, fmt.Sprintf("service %q to be \"up\"", name))
			}

			m.logfLocked("[talos] task startAllServices (1/1): %s", strings.Join(texts, ", "))
		}

		m.ms.mu.Unlock()

		if len(names) == 0 || !m.sleep(ctx, bootReminder) {
			return
		}
	}

	m.Logf("[talos] task startAllServices (1/1): failed: context deadline exceeded")
	m.Logf("[talos] boot sequence: failed")
	m.revertUpgrade()

	_ = m.request(action{kind: actReboot, actor: uuid.NewString()}) // else a running sequence ends the boot
}
