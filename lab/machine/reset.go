package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"talos-proxmox/lab/image"
	"talos-proxmox/lab/machine/disks"
)

// performReset leaves etcd if the reset is graceful, wipes the requested partitions, and reboots or shuts down.
func (m *machine) performReset(ctx context.Context, a action) (outcome, bool) {
	m.cordonAndDrain(ctx, a, runtime.MachineStageResetting)

	m.ms.mu.Lock()
	graceful := a.reset.GetGraceful() && m.etcd != nil
	m.ms.mu.Unlock()

	var err error
	if graceful {
		err = m.leaveEtcd(ctx)
	}

	if err != nil {
		m.abortSequence(a, err)

		return outcome{}, false
	}

	if !m.sleep(ctx, m.durations().Reset) {
		return outcome{}, true
	}

	m.ms.mu.Lock()
	m.wipe(a.reset)
	m.ms.mu.Unlock()

	m.stopServices(a.actor)

	return outcome{off: !a.reset.GetReboot()}, true
}

// wipe wipes the whole disk or the requested partitions; the caller holds the lock.
func (m *machine) wipe(r *machineapi.ResetRequest) {
	if r.GetMode() == machineapi.ResetRequest_USER_DISKS || m.disks.Volume == "" {
		return
	}

	m.stopEtcd()

	if len(r.GetSystemPartitionsToWipe()) == 0 {
		m.logfLocked("[talos] wiped the system disk")

		if err := m.ms.world.WriteVolume(m.disks.Volume, image.Image{}); err != nil {
			m.logfLocked("[talos] unable to wipe the disk %s: %s", m.disks.Volume, err)
		}

		// Prevents further writes to the wiped disk.
		m.disks.Volume = ""

		return
	}

	for _, p := range r.GetSystemPartitionsToWipe() {
		if p.GetWipe() {
			m.wipePartition(p.GetLabel())
			m.logfLocked("[talos] wiped the partition %s", p.GetLabel())
		}
	}

	m.save()
}

// wipePartition removes the state on a partition; the caller holds the lock.
func (m *machine) wipePartition(label string) {
	delete(m.disk.Volumes, label)

	etcdApart := disks.IsDedicated(m.config, constants.EtcdDataVolumeID)

	switch label {
	case constants.StatePartitionLabel:
		m.disk.Configuration, m.disk.NodeID = "", ""
	case constants.EphemeralPartitionLabel:
		m.disk.KubeletRegistered = m.disk.KubeletRegistered && disks.IsDedicated(m.config, constants.KubeletDataVolumeID)

		if !etcdApart {
			m.disk.Etcd, m.disk.Data, m.disk.Kept = nil, "", nil
		} else {
			m.disk.preserve(true)
		}
	case constants.EtcdDataVolumeID:
		if etcdApart {
			m.disk.Etcd = nil
			m.disk.preserve(false)
		}
	case constants.KubeletDataVolumeID:
		m.disk.KubeletRegistered = m.disk.KubeletRegistered && !disks.IsDedicated(m.config, label)
	}
}

// checkWipeable returns why the requested disks or partitions cannot be wiped (Reset in
// internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go); the caller holds the lock.
func (m *machine) checkWipeable(r *machineapi.ResetRequest) error {
	for _, device := range r.GetUserDisksToWipe() {
		if err := m.disks.CheckWipeable(device); err != nil {
			return fmt.Errorf("reset user disk failed: %w", err)
		}
	}

	if r.GetMode() == machineapi.ResetRequest_USER_DISKS && len(r.GetSystemPartitionsToWipe()) > 0 {
		return errors.New(
			"reset failed: invalid input, wipe mode USER_DISKS doesn't support SystemPartitionsToWipe parameter",
		)
	}

	var wiped []string

	for _, p := range r.GetSystemPartitionsToWipe() {
		if p.GetWipe() {
			wiped = append(wiped, p.GetLabel())
		}
	}

	for _, p := range r.GetSystemPartitionsToWipe() {
		label := p.GetLabel()

		switch {
		case slices.Contains([]string{
			constants.StatePartitionLabel, constants.EphemeralPartitionLabel, constants.MetaPartitionLabel,
		}, label):
		case !slices.Contains(disks.NestedVolumeNames(m.release), label):
			return fmt.Errorf("failed to get volume status with label %q: resource "+
				"VolumeStatuses.block.talos.dev(runtime/%[1]s@undefined) doesn't exist", label)
		case disks.IsDedicated(m.config, label):
		case !m.release.Reads("VolumeConfig/" + label):
			return fmt.Errorf("failed to reset: volume %q is not located", label)
		case !slices.Contains(wiped, constants.EphemeralPartitionLabel):
			return fmt.Errorf("failed to reset: volume %q resides on volume %q, and therefore %[1]q cannot be wiped without wiping %[2]q",
				label, constants.EphemeralPartitionLabel)
		}
	}

	return nil
}
