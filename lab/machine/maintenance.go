package machine

import (
	"cmp"
	"context"
	"net/netip"
	"strings"
	"time"

	cosiapi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/google/uuid"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"

	"talos-proxmox/lab/image"
	"talos-proxmox/lab/machine/access"
	"talos-proxmox/lab/machine/certificates"
	"talos-proxmox/lab/machine/disks"
	"talos-proxmox/lab/machine/listeners"
	"talos-proxmox/lab/machine/network"
	"talos-proxmox/lab/machine/resources"
	"talos-proxmox/lab/machine/talosapi"
)

// runMaintenance waits for a configuration. With it, the machine installs Talos, or runs the configuration at once if
// it booted from a disk image.
func (m *machine) runMaintenance(ctx context.Context, bootTime time.Duration) outcome {
	m.ms.mu.Lock()
	m.planNetwork(nil)
	m.startServices()
	m.ms.mu.Unlock()

	if !m.sleep(ctx, cmp.Or(bootTime, m.durations().BootMaintenance)) {
		return outcome{}
	}

	if err := m.startMaintenanceAPI(); err != nil {
		m.ReportProblem("maintenance mode: %s", err)
	}

	for {
		select {
		case <-ctx.Done():
			return outcome{}
		case a := <-m.actions:
			if a.kind == actApply {
				return m.applyFirstConfig(ctx, a.configuration)
			}

			if next, ended := m.perform(ctx, a); ended {
				return next
			}
		}
	}
}

// planNetwork plans the network and logs its problems; the caller holds the lock.
func (m *machine) planNetwork(cfg config.Config) {
	m.net = network.Machine{
		Platform: m.system.Platform, CloudInit: m.hw.CloudInit,
		NICs: m.hw.NICs, Lease: m.ms.world.Lease,
	}.Plan(cfg)
	m.hostname = m.net.Hostname(cfg, m.nodeID)

	for _, w := range m.net.Warnings {
		m.logfLocked("[talos] network: %s", w)
	}

	if !m.net.Node.IsValid() {
		m.problem = "the machine has no address: give it nocloud data, a static address in its configuration, or DHCP"
		m.logfLocked("[talos] %s", m.problem)
	}
}

func (m *machine) startMaintenanceAPI() error {
	m.ms.mu.Lock()
	addresses := m.apiAddresses()
	m.ms.mu.Unlock()

	tlsConfig, err := certificates.Maintenance(addresses)
	if err != nil {
		return err
	}

	var table map[string]role.Set
	if m.release.MaintenanceServesMachineAPI {
		table = access.MaintenanceMethodRoles
	}

	m.listeners.ConfigureMaintenance(tlsConfig, &m.ms.requests, table, func(server grpc.ServiceRegistrar) {
		machineapi.RegisterMachineServiceServer(server, m.maintenanceService())
		storage.RegisterStorageServiceServer(server, m.storageServer(constants.MetaPartitionLabel))
		cosiapi.RegisterStateServer(server, m.cosi.Server())
	})
	m.listeners.OpenTalos(addresses)

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.apidUp = true
	m.setStage(runtime.MachineStageMaintenance)
	m.logfLocked("[talos] this machine is reachable at: %s", joinAddresses(addresses))

	return nil
}

// maintenanceService returns the machine service of maintenance mode.
func (m *machine) maintenanceService() machineapi.MachineServiceServer {
	validator := m.validator()
	validator.Mode.Installed = false // here a disk image of the metal platform still requires install instructions

	apply := func(configuration []byte) error {
		return m.request(action{kind: actApply, actor: uuid.NewString(), configuration: configuration})
	}

	if !m.release.MaintenanceServesMachineAPI {
		return &talosapi.Maintenance{Validator: validator, Resources: m.Resources, Apply: apply}
	}

	return &talosapi.Unconfigured{
		Validator: validator, Resources: m.Resources, Apply: apply, Stage: m.persist,
		System: talosapi.System{Facts: func() (talosapi.Facts, error) {
			m.ms.mu.Lock()
			defer m.ms.mu.Unlock()

			return m.apiFacts(), nil
		}},
		Streams: m.streams(),
	}
}

func joinAddresses(addresses []netip.Addr) string {
	texts := make([]string, 0, len(addresses))
	for _, a := range addresses {
		texts = append(texts, a.String())
	}

	return strings.Join(texts, ", ")
}

// apiAddresses returns the addresses that the APIs listen on; the caller holds the lock.
func (m *machine) apiAddresses() []netip.Addr {
	addresses := make([]netip.Addr, 0, len(m.net.Addresses))
	for _, p := range m.net.Addresses {
		addresses = append(addresses, p.Addr())
	}

	return addresses
}

// applyFirstConfig installs Talos with a configuration, or runs the configuration at once.
func (m *machine) applyFirstConfig(ctx context.Context, configuration []byte) outcome {
	m.listeners.DrainOnClose()
	m.listeners.Close()

	m.ms.mu.Lock()
	m.apidUp, m.busy = false, false
	m.cosi = resources.New(&m.ms.definitions, m)
	m.listeners = listeners.New(m.ReportProblem, m.unplugged, m.admits)
	live := m.system.Live
	m.disk.Configuration = string(configuration)
	m.save()
	m.ms.mu.Unlock()

	cfg, err := m.validator().Load(configuration)
	if !live || err == nil && m.installerImage(cfg) == "" {
		return m.runConfigured(ctx, m.durations().ApplyConfiguration)
	}

	if err == nil {
		err = m.install(ctx, cfg)
	}

	if err != nil && ctx.Err() == nil {
		m.ReportProblem("install failed: %s", err)
		m.Logf("[talos] rebooting in 10 seconds")
		m.sleep(ctx, failureDelay)
	}

	return outcome{}
}

// installerImage returns the installer image of a configuration; empty if it requests no installation, which Talos 1.14
// allows.
func (m *machine) installerImage(cfg config.Provider) string {
	if unattended := cfg.UnattendedInstallConfig(); unattended != nil {
		return unattended.InstallerImage()
	}

	if cfg.RawV1Alpha1().MachineConfig.MachineInstall == nil {
		return ""
	}

	return cfg.Machine().Install().Image()
}

// install writes Talos to the disk that the configuration selects.
func (m *machine) install(ctx context.Context, cfg config.Provider) error {
	disk, err := m.disks.InstallDisk(cfg)
	if err != nil {
		return err
	}

	if err := m.pullable(ctx, cfg, m.installerImage(cfg)); err != nil {
		return err
	}

	system, err := m.resolveInstaller(m.installerImage(cfg))
	if err != nil {
		return err
	}

	m.ms.mu.Lock()
	m.setStage(runtime.MachineStageInstalling)
	m.logfLocked("[talos] installing Talos %s to disk /dev/%s", system.Version, disk.Name)
	m.ms.mu.Unlock()

	if !m.sleep(ctx, m.durations().Install) {
		return ctx.Err()
	}

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.disks.Volume = disk.Volume
	m.writeSystem(system)
	m.logfLocked("[talos] install successful, rebooting")
	m.setStage(runtime.MachineStageRebooting)

	return nil
}

// storageServer returns the storage service; inUse is the first volume in use on the system disk.
func (m *machine) storageServer(inUse string) *disks.Server {
	return &disks.Server{Lock: &m.ms.mu, MachineDisks: m.disks, InUse: inUse, Wipe: func(volume string) error {
		return m.ms.world.WriteVolume(volume, image.Image{})
	}}
}
