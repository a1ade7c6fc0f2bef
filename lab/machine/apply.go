package machine

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/lab/machine/configuration"
	"talos-proxmox/lab/machine/etcd"
)

// ApplyConfiguration implements the machine service of a configured machine.
func (s *machined) ApplyConfiguration(
	ctx context.Context, in *machineapi.ApplyConfigurationRequest,
) (*machineapi.ApplyConfigurationResponse, error) {
	m := s.m
	if in.GetMode() != machineapi.ApplyConfigurationRequest_TRY {
		m.endTrial()
	}

	cfg, warnings, err := m.validator().Check(ctx, in, m.Resources())
	if err != nil {
		return nil, err
	}

	m.ms.mu.Lock()
	current := m.config
	m.ms.mu.Unlock()

	if current == nil {
		return nil, errGoingDown
	}

	reply, err := m.validator().DecideMode(in.GetMode(), current, cfg)
	if err != nil {
		return nil, err
	}

	if in.GetDryRun() {
		err = configuration.DryRun(reply, current, cfg)
	} else {
		reply.Warnings = warnings
		err = m.apply(in, reply, cfg)
	}

	if err != nil {
		return nil, err
	}

	return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{reply}}, nil
}

// apply carries out the decision about a configuration.
func (m *machine) apply(
	in *machineapi.ApplyConfigurationRequest, reply *machineapi.ApplyConfiguration, cfg config.Provider,
) error {
	m.Logf("[talos] apply config request: mode %s", configuration.ModeName(reply.GetMode()))

	switch reply.GetMode() {
	case machineapi.ApplyConfigurationRequest_TRY:
		timeout := constants.ConfigTryTimeout
		period := m.ms.world.Clock().Real(timeout)

		if t := in.GetTryModeTimeout(); t != nil { // of a client that waits for it, by its own clock
			timeout, period = t.AsDuration(), t.AsDuration()
		}

		reply.ModeDetails += fmt.Sprintf(
			"\nThe config is applied in 'try' mode and will be automatically reverted back in %s", timeout,
		)

		m.startTrial(period)
		m.reconfigure(cfg)

		return nil
	case machineapi.ApplyConfigurationRequest_STAGED:
		m.persist(in.GetData(), cfg)

		return nil
	case machineapi.ApplyConfigurationRequest_REBOOT:
		m.persist(in.GetData(), cfg)

		return m.request(action{kind: actReboot, actor: uuid.NewString()})
	default:
		m.persist(in.GetData(), cfg)
		m.reconfigure(cfg)

		return nil
	}
}

func (m *machine) persist(configuration []byte, cfg config.Provider) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.disk.Configuration, m.persisted = string(configuration), cfg
	m.save()
	m.changed.fire()
}

// startTrial schedules the return to the running configuration, unless another one is applied before.
func (m *machine) startTrial(period time.Duration) {
	m.endTrial()

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	before := m.config

	m.rollback = time.AfterFunc(period, func() {
		m.Logf("[talos] rolling back the configuration")
		m.reconfigure(before)
	})
}

func (m *machine) endTrial() {
	m.ms.mu.Lock()
	timer := m.rollback
	m.rollback = nil
	m.ms.mu.Unlock()

	if timer != nil {
		timer.Stop()
	}
}

// reconfigure applies another configuration to the running machine.
func (m *machine) reconfigure(cfg config.Provider) {
	m.ms.mu.Lock()

	if m.config == nil { // the machine is going down
		m.ms.mu.Unlock()

		return
	}

	before := m.apiAddresses()
	m.config, m.problem = cfg, ""
	m.planNetwork(cfg)
	after, port := m.apiAddresses(), uint16(cfg.K8sAPIServerConfig().APIPort())

	if e := m.etcdOfNode(); e != nil && !e.Real {
		m.registerNode(e)
	}

	m.logMissingVolumes()
	m.openVolumes() // those that the configuration adds
	m.kernel.Load(cfg)

	m.startExtensions()

	m.cluster.changed.fire()
	m.changed.fire()
	opened := m.listeners
	m.ms.mu.Unlock()

	current := map[string]bool{}
	for _, a := range after {
		current[a.String()] = true
	}

	for _, a := range before {
		if !current[a.String()] {
			opened.CloseAddress(a)
		}
	}

	opened.OpenTalos(after)
	opened.OpenKubernetes(after, port)
}

// etcdOfNode returns the cluster that holds the machine's Node object while its kubelet posts; the caller holds the
// lock.
func (m *machine) etcdOfNode() *etcd.Cluster {
	if !m.kubelet.posting {
		return nil
	}

	for _, e := range m.cluster.etcds {
		if n := e.Nodes[m.hostname]; n != nil && n.VMID == m.hw.VMID {
			return e
		}
	}

	return nil
}
