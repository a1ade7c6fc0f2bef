package machine

import (
	"cmp"
	"net/netip"
	"slices"

	"talos-proxmox/lab/machine/etcd"
)

// MachineStatus is one row of the lab's table of machines.
type MachineStatus struct { //nolint:revive // distinguishes it from the statuses of VMs and tasks
	VMID     int
	Name     string // of the VM
	Hostname string
	// Address is the node address; invalid while there is none.
	Address netip.Addr
	// Stage is Talos' stage ("maintenance", "booting", "running", …), the name of another system such as debian once
	// cloud-init is done, or "no system" if nothing could be booted.
	Stage string
	// Problem says in one sentence why the machine cannot be reached; empty if it can.
	Problem string
	Version string
	Role    string // "controlplane", "worker" or empty
	// Ready is Talos' machine status: all services, static pods and the node are ready.
	Ready bool
	// EtcdMember is the hexadecimal member id; empty if the machine is no member.
	EtcdMember string
	Services   []ServiceStatus
	// Console is the last lines of the machine's console.
	Console []string
}

// ServiceStatus is a service as `talosctl services` shows it.
type ServiceStatus struct {
	Name    string
	State   string
	Healthy bool
}

const statusConsoleLines = 10

// Status describes every machine that is switched on, sorted by VMID.
func (ms *Machines) Status() []MachineStatus {
	ms.mu.Lock()
	defer ms.mu.Unlock()

	rows := make([]MachineStatus, 0, len(ms.running))
	for _, m := range ms.running {
		rows = append(rows, m.statusRow())
	}

	slices.SortFunc(rows, func(a, b MachineStatus) int { return cmp.Compare(a.VMID, b.VMID) })

	return rows
}

func (m *machine) statusRow() MachineStatus {
	row := MachineStatus{
		VMID:     m.hw.VMID,
		Name:     m.hw.Name,
		Hostname: m.hostname,
		Address:  m.net.Node,
		Stage:    m.stage.String(),
		Problem:  m.problem,
		Version:  m.system.Version, Console: m.journal.Tail(statusConsoleLines),
	}

	switch {
	case m.guest != nil:
		row.Stage, row.Hostname, row.Address = m.system.OS, m.guest.Hostname, m.guest.Address(m.hw)
	case m.noSystem && m.problem == "":
		row.Stage = "booting"
	case m.noSystem:
		row.Stage = "no system"
	}

	if m.config != nil {
		row.Role = m.config.Machine().Type().String()
		row.Ready = len(m.unmet()) == 0 && m.apidUp
	}

	if m.etcd != nil {
		row.EtcdMember = etcd.FormatID(m.disk.Etcd.MemberID)
	}

	for _, s := range m.services.List() {
		row.Services = append(row.Services, ServiceStatus{Name: s.Name, State: s.State, Healthy: s.Healthy()})
	}

	return row
}

// Console returns a machine's console since it was switched on; nil if it is off.
func (ms *Machines) Console(vmid int) []string {
	ms.mu.Lock()
	defer ms.mu.Unlock()

	if m := ms.running[vmid]; m != nil {
		return m.journal.Tail(0)
	}

	return nil
}
