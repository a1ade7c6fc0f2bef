package datacentre

import (
	"context"
	"time"
)

// Durations is the table of how long operations take, in modelled time: see Clock.
type Durations struct {
	DownloadImage, CreateVM, ConvertTemplate, ConfigVM, ResizeDisk, StartVM, StopVM, DeleteVM time.Duration
	// AllocateVolume and FreeVolume are how long a storage takes to allocate (also for a linked clone) or delete a
	// volume. Meanwhile it is locked, as in PVE.
	AllocateVolume, FreeVolume time.Duration
	// StorageThroughput is how many bytes per second a storage copies, shared by all its copies: full clones, imports,
	// moves.
	StorageThroughput int64
	// BootMaintenance is the time from power-on to the Talos API in maintenance mode, BootConfigured to the API of a
	// configured machine.
	BootMaintenance, BootConfigured time.Duration
	// BootSystem is the time from power-on to cloud-init in a system other than Talos that has a seed image,
	// InstallPackages that of installing its packages.
	BootSystem, InstallPackages time.Duration
	// Install is how long a boot from ISO takes to write the disk, ApplyConfiguration how long a machine booted from a
	// disk image takes from receiving its configuration to a running API.
	Install, ApplyConfiguration time.Duration
	// EtcdBootstrap and EtcdJoin end when a member votes. KubernetesAPI is from etcd to readyz, NodeRegister from a
	// running kubelet and API to a Ready node.
	EtcdBootstrap, EtcdJoin, KubernetesAPI, NodeRegister time.Duration
	// Reboot, Upgrade and Reset are Talos' operations.
	Reboot, Upgrade, Reset time.Duration
	// StopHost is how long a host's services take to stop, BootHost how long its firmware and system take to start.
	// Initramfs is update-initramfs, BootLoader a refresh of the boot loader.
	StopHost, BootHost, Initramfs, BootLoader time.Duration
}

// DefaultDurations returns those of a small server with NVMe storage and a 1 Gbit/s line.
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

// Clock scales modelled time: at a speed of 10, ten modelled seconds pass in a real one.
type Clock struct{ speed float64 }

// NewClock returns a clock with the given speed; 0 or less means 1.
func NewClock(speed float64) Clock {
	if speed <= 0 {
		speed = 1
	}

	return Clock{speed: speed}
}

// Speed returns how many modelled seconds pass in a real one.
func (c Clock) Speed() float64 { return c.speed }

// Real converts a modelled duration to a real one.
func (c Clock) Real(d time.Duration) time.Duration { return time.Duration(float64(d) / c.speed) }

// Sleep waits for the modelled duration, or returns the context's error if it ends earlier.
func (c Clock) Sleep(ctx context.Context, d time.Duration) error { return sleepReal(ctx, c.Real(d)) }

func sleepReal(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
