package datacentre

import (
	"context"
	"time"
)

// Durations is the one table of how long things take, in modelled time: see Clock.
type Durations struct {
	DownloadImage, CreateVM, ConvertTemplate, ConfigVM, ResizeDisk, StartVM, StopVM, DeleteVM time.Duration
	// AllocateVolume and FreeVolume are what a storage needs for making (a linked clone too) or removing a volume; it is
	// locked meanwhile, as PVE locks it.
	AllocateVolume, FreeVolume time.Duration
	// StorageThroughput is how many bytes a storage copies in a second, all copies on it together: full clones, imports,
	// moves.
	StorageThroughput int64
	// BootMaintenance is from power-on to the Talos API of maintenance mode; BootConfigured to the API of a configured
	// machine.
	BootMaintenance, BootConfigured time.Duration
	// BootSystem is from power-on to cloud-init in a system other than Talos that a seed sets up; InstallPackages is what
	// its packages take.
	BootSystem, InstallPackages time.Duration
	// Install is what an ISO boot needs to write the disk; ApplyConfiguration what a machine booted from a disk image
	// needs between the configuration and a running API.
	Install, ApplyConfiguration time.Duration
	// EtcdBootstrap, EtcdJoin: until a member votes. KubernetesAPI: from etcd to readyz. NodeRegister: from a running
	// kubelet and API to a Ready node.
	EtcdBootstrap, EtcdJoin, KubernetesAPI, NodeRegister time.Duration
	// Reboot, Upgrade, Reset are the machine's own operations.
	Reboot, Upgrade, Reset time.Duration
	// StopHost is what a host's services take to end, BootHost what its firmware and system take to start; Initramfs and
	// BootLoader are update-initramfs and a refresh of the boot loader.
	StopHost, BootHost, Initramfs, BootLoader time.Duration
}

// DefaultDurations are those of a small server with NVMe storage and a 1 Gbit/s line.
func DefaultDurations() Durations {
	return Durations{
		DownloadImage:   15 * time.Second,
		CreateVM:        time.Second,
		ConvertTemplate: time.Second,
		ConfigVM:        100 * time.Millisecond,
		ResizeDisk:      time.Second,
		StartVM:         2 * time.Second, StopVM: 2 * time.Second, DeleteVM: time.Second,
		AllocateVolume: 500 * time.Millisecond, FreeVolume: 300 * time.Millisecond, StorageThroughput: 250 * mib,
		BootMaintenance:    20 * time.Second,
		BootConfigured:     25 * time.Second,
		BootSystem:         20 * time.Second,
		InstallPackages:    40 * time.Second,
		Install:            30 * time.Second,
		ApplyConfiguration: 15 * time.Second,
		EtcdBootstrap:      10 * time.Second,
		EtcdJoin:           8 * time.Second,
		KubernetesAPI:      30 * time.Second,
		NodeRegister:       10 * time.Second,
		Reboot:             30 * time.Second, Upgrade: 60 * time.Second, Reset: 20 * time.Second,
		StopHost: 10 * time.Second, BootHost: 80 * time.Second, Initramfs: 15 * time.Second, BootLoader: 3 * time.Second,
	}
}

// Clock makes modelled time pass: a speed of 10 lets ten modelled seconds pass in one real second.
type Clock struct{ speed float64 }

// NewClock returns a clock of the given speed; a speed of 0 or less is taken as 1.
func NewClock(speed float64) Clock {
	if speed <= 0 {
		speed = 1
	}

	return Clock{speed: speed}
}

// Speed returns how many modelled seconds pass in a real one.
func (c Clock) Speed() float64 { return c.speed }

// Real returns how long the modelled duration takes on the wall.
func (c Clock) Real(d time.Duration) time.Duration { return time.Duration(float64(d) / c.speed) }

// Sleep waits for the modelled duration, or until the context ends, whose error it returns.
func (c Clock) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(c.Real(d))
	defer timer.Stop()

	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
