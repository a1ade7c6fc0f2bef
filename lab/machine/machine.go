package machine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"talos-proxmox/internal/talos"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/image"
	"talos-proxmox/lab/machine/cloudguest"
	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/disks"
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/journal"
	"talos-proxmox/lab/machine/kernel"
	"talos-proxmox/lab/machine/listeners"
	"talos-proxmox/lab/machine/network"
	"talos-proxmox/lab/machine/resources"
	"talos-proxmox/lab/machine/services"
	"talos-proxmox/lab/machine/talosapi"
)

// failureDelay is how long Talos shows a fatal error before it reboots.
const failureDelay = 10 * time.Second

// machine is a guest from power-on to power-off. The machines' lock guards its fields, except those set only once.
type machine struct {
	ms     *Machines
	hw     datacentre.Hardware
	disks  *disks.Disks
	cancel context.CancelFunc
	done   chan struct{}

	journal *journal.Journal
	// changed fires when anything that a client of this machine can watch changes.
	changed signal

	// The running system, new at every boot.
	system      image.Image   // what was booted
	release     talos.Release // the Talos of system
	installed   image.Image   // on the system disk; differs from system after an upgrade, until the reboot
	schematic   Schematic
	extensions  []kernel.Extension // in the schematic
	disk        diskState
	bootID      string
	bootedAt    time.Time
	stage       runtime.MachineStage
	cordoned    bool // Talos wants the node cordoned
	apidUp      bool // the Talos API is served
	noSystem    bool
	guest       *cloudguest.Guest // a system other than Talos, as cloud-init set it up; nil = Talos
	problem     string
	net         network.Plan
	hostname    string
	config      config.Provider // nil in maintenance mode
	apidTrust   string          // the authorities that apid's certificates were issued for
	persisted   config.Provider // the configuration written to the disk since the boot; nil = none
	cluster     *cluster
	services    *services.Services
	lastStatus  string        // the last machine status published as an event
	etcd        *etcd.Cluster // the cluster of the etcd member that runs here
	apiServerUp bool          // kube-apiserver runs
	kubelet     kubeletState
	kube        kubernetes      // runs etcd and Kubernetes
	vips        map[string]bool // virtual addresses held
	rollback    *time.Timer     // reverts a configuration on trial
	kernel      *kernel.Kernel
	security    disks.Security
	images      *talosapi.Images

	cosi      *resources.State
	listeners *listeners.Listeners
	actions   chan action
	busy      bool // a sequence is requested or running
	// installMu is held while an installer runs that a client follows.
	installMu  sync.Mutex
	background sync.WaitGroup
}

func newMachine(ms *Machines, hw datacentre.Hardware, cancel context.CancelFunc) *machine {
	m := &machine{
		ms: ms, hw: hw, disks: disks.New(hw.Disks), cancel: cancel, done: make(chan struct{}), actions: make(chan action, 1),
	}
	m.listeners = listeners.New(m.ReportProblem, m.unplugged, m.admits)
	m.journal, m.services = journal.New(m.changed.fire), m.newServices()
	m.cosi = resources.New(&ms.definitions, m)
	m.images = &talosapi.Images{Check: m.checkPullable}
	m.kube = modelKubernetes{m}

	if ms.options.Labkube != nil {
		m.kube = newRealKubernetes(m)
	}

	return m
}

// outcome is how a boot ended.
type outcome struct {
	off bool
	// bootTime is how long the next boot takes until its API is served; 0 = the default of its mode.
	bootTime time.Duration
}

// run boots the machine repeatedly until it is switched off.
func (m *machine) run(ctx context.Context) {
	defer close(m.done)

	next := outcome{}
	for ctx.Err() == nil && !next.off {
		bootCtx, stop := context.WithCancel(ctx)
		next = m.boot(bootCtx, next.bootTime)

		stop()
		m.halt()
	}

	if next.off && ctx.Err() == nil {
		m.ms.mu.Lock()
		if m.ms.running[m.hw.VMID] == m {
			delete(m.ms.running, m.hw.VMID)
		}
		m.ms.mu.Unlock()

		go m.ms.world.GuestShutdown(m.hw.VMID)
	}
}

// boot runs one operating system from the firmware until it ends.
func (m *machine) boot(ctx context.Context, bootTime time.Duration) outcome {
	if !m.start() {
		<-ctx.Done()

		return outcome{}
	}

	if !m.waitWhileHung(ctx) {
		return outcome{}
	}

	m.ms.mu.Lock()
	cloud, configured := m.system.OS != talosOS, m.disk.Configuration != ""
	m.ms.mu.Unlock()

	switch {
	case cloud:
		return m.runCloud(ctx)
	case configured:
		return m.runConfigured(ctx, bootTime)
	}

	if text := m.platformConfiguration(); text != "" {
		return m.applyFirstConfig(ctx, []byte(text))
	}

	return m.runMaintenance(ctx, bootTime)
}

// platformConfiguration returns the user data on a CD of the nocloud platform, which a machine without configuration
// takes for one unless it is a cloud-config; empty = none (internal/app/machined/pkg/runtime/v1alpha1/platform/nocloud
// of Talos 1.12).
func (m *machine) platformConfiguration() string {
	if m.system.Platform != "nocloud" {
		return ""
	}

	text, err := cloudguest.UserData(m.hw, m.cloudWorld().Read)
	if err != nil {
		m.Logf("[talos] nocloud: %s", err)
	}

	if strings.HasPrefix(text, "#cloud-config") {
		return ""
	}

	return text
}

// start resets the machine and loads the system that the firmware finds. It returns false if nothing can be booted.
func (m *machine) start() bool {
	var err error

	firmware := m.firmware()
	found, volume, problem := disks.FindSystem(firmware, m.hw.Boot, m.ms.world.ReadVolume)

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.discardActions()
	m.journal.ClearEvents()
	m.system, m.installed, m.disks.Volume, m.problem, m.noSystem = found, found, volume, problem, problem != ""
	m.schematic, m.extensions, m.disk, m.config, m.cluster = Schematic{}, nil, diskState{}, nil, nil
	m.bootID, m.bootedAt = uuid.NewString(), time.Now()
	m.services, m.lastStatus, m.etcd, m.apiServerUp, m.vips = m.newServices(), "", nil, false, map[string]bool{}
	m.hostname, m.net = "", network.Plan{}
	m.listeners = listeners.New(m.ReportProblem, m.unplugged, m.admits)
	m.cosi = resources.New(&m.ms.definitions, m)
	m.setStage(runtime.MachineStageBooting)

	m.guest = nil

	if problem != "" {
		m.logfLocked("firmware: %s", problem)

		return false
	}

	if found.OS != talosOS {
		m.noSystem = true // none with a Talos API

		return true
	}

	if m.release, err = talos.ReleaseOf(found.Version); err != nil {
		m.problem, m.noSystem = "the lab's machines do not run this system: "+err.Error(), true
		m.logfLocked("firmware: %s", m.problem)

		return false
	}

	m.logfLocked(
		"[talos] Linux Talos %s (%s, %s, schematic %s)", found.Version, found.Platform, found.Arch, found.Schematic,
	)

	if m.ms.options.Schematic != nil {
		m.schematic, _ = m.ms.options.Schematic(found.Schematic)
	}

	m.secure(firmware, found)
	m.disks.CloseVolumes()

	m.extensions = m.imageExtensions()
	m.kernel = kernel.New(m.hw.PCI, m.hw.USB, m.extensions, m.logfLocked)

	if err = m.loadDisk(); err != nil {
		m.problem = err.Error()
		m.logfLocked("[talos] %s", err)
	}

	if found.Live && m.disks.HasInstalledTalos(m.ms.world.ReadVolume) {
		m.problem = "Talos is installed on the disk, but the machine boots from an ISO: put the disk first in the VM's boot order"
		m.logfLocked("[talos] Talos is already installed to disk but booted from another media and talos.halt_if_installed kernel parameter is set. Please reboot from the disk.")

		return false
	}

	return true
}

// hangPollInterval is how often a hung machine checks whether the fault is still there.
const hangPollInterval = 20 * time.Millisecond

// waitWhileHung blocks while a fault hangs the boot. It returns false if the machine was switched off.
func (m *machine) waitWhileHung(ctx context.Context) bool {
	for logged := false; m.ms.world.IsHanging(m.hw.VMID); logged = true {
		if !logged {
			m.Logf("[    0.412] rcu: INFO: rcu_sched detected stalls on CPUs/tasks")
		}

		if controlplane.Sleep(ctx, hangPollInterval); ctx.Err() != nil {
			return false
		}
	}

	return true
}

// halt stops everything that the last boot started. It releases the lock while servers and goroutines stop, since they
// need it.
func (m *machine) halt() {
	m.ms.mu.Lock()
	m.apidUp, m.apiServerUp = false, false
	open, timer := m.listeners, m.rollback
	m.rollback = nil

	if m.cluster != nil {
		m.cluster.changed.fire() // wakes requests that wait for etcd here
	}
	m.ms.mu.Unlock()

	if timer != nil {
		timer.Stop()
	}

	open.Close()
	m.background.Wait()

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.leave()
	m.config, m.persisted = nil, nil
	m.changed.fire()
}

// Go runs a function in a goroutine that halt waits for.
func (m *machine) Go(run func()) {
	m.background.Add(1)

	go func() {
		defer m.background.Done()

		run()
	}()
}

// setStage sets Talos' machine stage; the caller holds the lock.
func (m *machine) setStage(s runtime.MachineStage) {
	if m.stage == s {
		return
	}

	m.stage = s

	switch s { //nolint:exhaustive // the other stages leave the cordon unchanged
	case runtime.MachineStageShuttingDown, runtime.MachineStageUpgrading, runtime.MachineStageResetting:
		m.cordoned = true
	case runtime.MachineStageBooting, runtime.MachineStageRunning:
		m.cordoned = false
	}

	m.publishStatus()
	m.changed.fire()
}

func (m *machine) hasExtension(name string) bool {
	return slices.ContainsFunc(m.extensions, func(e kernel.Extension) bool { return e.Name == name })
}

// imageExtensions returns the extensions of the booted image.
func (m *machine) imageExtensions() []kernel.Extension {
	list := make([]kernel.Extension, 0, len(m.schematic.Extensions))

	for _, full := range m.schematic.Extensions {
		version := m.system.Version
		if m.ms.options.ExtensionVersion != nil {
			version = cmp.Or(m.ms.options.ExtensionVersion(m.system.Version, full), version)
		}

		list = append(list, kernel.Extension{Name: full[strings.LastIndex(full, "/")+1:], Version: version})
	}

	return list
}

func (m *machine) durations() datacentre.Durations { return m.ms.world.Durations() }
