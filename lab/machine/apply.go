package machine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	appliedNow      = "Applied configuration without a reboot"
	appliedByReboot = "Applied configuration with a reboot"
	appliedLater    = "Staged configuration to be applied after the next reboot"
)

// ApplyConfiguration implements the machine service of a configured machine.
func (s *machined) ApplyConfiguration(ctx context.Context, in *machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
	m := s.m
	if in.GetMode() != machineapi.ApplyConfigurationRequest_TRY {
		m.endTrial()
	}

	cfg, warnings, err := m.checkConfiguration(ctx, in.GetData())
	if err != nil {
		return nil, err
	}

	m.ms.mu.Lock()
	current := m.config
	m.ms.mu.Unlock()

	if current == nil {
		return nil, errGoingDown
	}

	reply, err := applyMode(in.GetMode(), current, cfg)
	if err != nil {
		return nil, err
	}

	if in.GetDryRun() {
		diff, err := configdiff.DiffConfigs(current, cfg)
		if err != nil {
			return nil, fmt.Errorf("failed to generate diff: %w", err)
		}

		if diff == "" {
			diff = "No changes."
		}

		reply.ModeDetails = fmt.Sprintf("Dry run summary:\n%s (skipped in dry-run).\nConfig diff:\n\n%s", reply.GetModeDetails(), diff)

		return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{reply}}, nil
	}

	reply.Warnings = warnings

	if err := m.apply(in, reply, cfg); err != nil {
		return nil, err
	}

	return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{reply}}, nil
}

// checkConfiguration loads and validates with Talos' own machinery.
func (m *machine) checkConfiguration(ctx context.Context, data []byte) (config.Provider, []string, error) {
	cfg, err := configloader.NewFromBytes(data)
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}

	if cfg.RawV1Alpha1() == nil {
		return nil, nil, status.Error(codes.InvalidArgument, "the applied machine configuration doesn't contain v1alpha1 config, did you mean to patch the machine config instead?")
	}

	warnings, err := cfg.Validate(m.mode())
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}

	more, err := cfg.RuntimeValidate(ctx, m.resources(), m.mode())
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}

	return cfg, append(warnings, more...), nil
}

// applyMode decides what a request does to the running machine.
func applyMode(wanted machineapi.ApplyConfigurationRequest_Mode, current, next config.Provider) (*machineapi.ApplyConfiguration, error) {
	reply := &machineapi.ApplyConfiguration{Mode: wanted, ModeDetails: appliedByReboot}
	reboot := needsReboot(current, next)

	switch wanted {
	case machineapi.ApplyConfigurationRequest_TRY, machineapi.ApplyConfigurationRequest_NO_REBOOT:
		if reboot != nil {
			return nil, status.Error(codes.InvalidArgument, reboot.Error())
		}

		reply.ModeDetails = appliedNow
	case machineapi.ApplyConfigurationRequest_STAGED:
		reply.ModeDetails = appliedLater
	case machineapi.ApplyConfigurationRequest_AUTO:
		reply.Mode, reply.ModeDetails = machineapi.ApplyConfigurationRequest_NO_REBOOT, appliedNow

		if reboot != nil {
			reply.Mode, reply.ModeDetails = machineapi.ApplyConfigurationRequest_REBOOT, appliedByReboot+": "+reboot.Error()
		}
	case machineapi.ApplyConfigurationRequest_REBOOT:
	}

	return reply, nil
}

// immediate are the parts of the machine section that Talos 1.12 takes over while it runs, by field of v1alpha1.MachineConfig.
const immediate = "MachineCA MachineAcceptedCAs MachineTime MachineCertSANs MachineInstall MachineNetwork MachineSysfs MachineSysctls MachineLogging MachineControlPlane " +
	"MachineKubelet MachineKernel MachineRegistries MachinePods MachineSeccompProfiles MachineNodeAnnotations MachineNodeLabels MachineNodeTaints"

// immediateFeatures are those of v1alpha1.FeaturesConfig.
const immediateFeatures = "KubernetesTalosAPIAccessConfig KubePrismSupport HostDNSSupport ImageCacheSupport FeatureNodeAddressSortAlgorithm"

// needsReboot says what in the first document cannot be taken over at once; nil when everything can. The other documents never need a reboot.
func needsReboot(current, next config.Provider) error {
	before, after := current.RawV1Alpha1(), next.RawV1Alpha1().DeepCopy()
	if before == nil {
		return errors.New("current config is not v1alpha1")
	}

	after.ConfigDebug, after.ClusterConfig = before.ConfigDebug, before.ClusterConfig //nolint:staticcheck // compared as they are

	if before.MachineConfig != nil && after.MachineConfig != nil {
		take(after.MachineConfig, before.MachineConfig, immediate)

		if before.MachineConfig.MachineFeatures != nil && after.MachineConfig.MachineFeatures != nil {
			take(after.MachineConfig.MachineFeatures, before.MachineConfig.MachineFeatures, immediateFeatures)
		}
	}

	if reflect.DeepEqual(before, after) {
		return nil
	}

	diff, err := configdiff.DiffConfigs(container.NewV1Alpha1(before), container.NewV1Alpha1(after))
	if err != nil {
		return fmt.Errorf("error calculating diff: %w", err)
	}

	return fmt.Errorf("this config change can't be applied in immediate mode\ndiff:\n%s", diff)
}

// take copies the named fields of one struct into another.
func take(to, from any, fields string) {
	target, source := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()

	for name := range strings.FieldsSeq(fields) {
		target.FieldByName(name).Set(source.FieldByName(name))
	}
}

// apply does what was decided.
func (m *machine) apply(in *machineapi.ApplyConfigurationRequest, reply *machineapi.ApplyConfiguration, cfg config.Provider) error {
	m.say("[talos] apply config request: mode %s", modeName(reply.GetMode()))

	switch reply.GetMode() {
	case machineapi.ApplyConfigurationRequest_TRY:
		timeout := constants.ConfigTryTimeout
		if t := in.GetTryModeTimeout(); t != nil {
			timeout = t.AsDuration()
		}

		reply.ModeDetails += fmt.Sprintf("\nThe config is applied in 'try' mode and will be automatically reverted back in %s", timeout)
		m.startTrial(timeout)
		m.reconfigure(cfg)

		return nil
	case machineapi.ApplyConfigurationRequest_STAGED:
		m.persist(in.GetData())

		return nil
	case machineapi.ApplyConfigurationRequest_REBOOT:
		m.persist(in.GetData())

		return m.request(action{kind: actReboot, actor: uuid.NewString()})
	default:
		m.persist(in.GetData())
		m.reconfigure(cfg)

		return nil
	}
}

func (m *machine) persist(configuration []byte) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.disk.Configuration = string(configuration)
	m.save()
}

// startTrial returns to the persisted configuration after the time, unless another one is applied before.
func (m *machine) startTrial(timeout time.Duration) {
	m.endTrial()

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	persisted := m.disk.Configuration

	m.rollback = time.AfterFunc(m.ms.world.Clock().Real(timeout), func() {
		if cfg, err := configloader.NewFromBytes([]byte(persisted)); err == nil {
			m.say("[talos] the configuration on trial was not confirmed: reverting")
			m.reconfigure(cfg)
		}
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

// reconfigure makes the running machine follow another configuration.
func (m *machine) reconfigure(cfg config.Provider) {
	m.ms.mu.Lock()

	if m.config == nil { // the machine went down meanwhile
		m.ms.mu.Unlock()

		return
	}

	before := m.serveAddresses()
	m.config, m.problem = cfg, ""
	m.adoptNetwork(cfg)
	after, port := m.serveAddresses(), uint16(cfg.Cluster().LocalAPIServerPort())

	if e := m.etcdOfNode(); e != nil && !e.real {
		m.register(e)
	}

	m.checkVolumes()
	m.kernel.Load(cfg)

	m.startExtensions()

	m.cluster.changed.fire()
	m.changed.fire()
	doors := m.doors
	m.ms.mu.Unlock()

	kept := map[string]bool{}
	for _, a := range after {
		kept[a.String()] = true
	}

	for _, a := range before {
		if !kept[a.String()] {
			doors.Shut(a)
		}
	}

	doors.OpenTalos(after)
	doors.OpenKubernetes(after, port)
}

// etcdOfNode is the cluster that holds the machine's Node object while its kubelet posts; the caller holds the lock.
func (m *machine) etcdOfNode() *etcd {
	if !m.kubelet.posting {
		return nil
	}

	for _, e := range m.cluster.etcds {
		if n := e.nodes[m.hostname]; n != nil && n.VMID == m.hw.VMID {
			return e
		}
	}

	return nil
}
