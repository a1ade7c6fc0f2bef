package configuration_test

import (
	"sync"
	"testing"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/talos"
	"talos-proxmox/lab/machine/configuration"
)

// system returns a validator for a version of Talos, installed on a machine.
func system(t *testing.T, version string) configuration.Validator {
	t.Helper()

	release, err := talos.ReleaseOf(version)
	require.NoError(t, err)

	return configuration.Validator{Release: release, Version: version, Mode: configuration.Mode{Installed: true}}
}

// cluster returns the secrets of all configurations, with keys that are cheap to generate.
var cluster = sync.OnceValues(func() (*secrets.Bundle, error) {
	return secrets.NewBundle(secrets.NewClock(), config.TalosVersion1_6)
})

// generated returns a control plane's configuration of a contract for a version of Kubernetes, without comments.
func generated(t *testing.T, contract *config.VersionContract, kubernetes string) config.Provider {
	t.Helper()

	bundle, err := cluster()
	require.NoError(t, err)

	input, err := generate.NewInput("test", "https://127.9.9.100:6443", kubernetes,
		generate.WithVersionContract(contract), generate.WithSecretsBundle(bundle))
	require.NoError(t, err)

	cfg, err := input.Config(machine.TypeControlPlane)
	require.NoError(t, err)

	return cfg
}

func resources() state.State { return state.WrapCore(namespaced.NewState(inmem.Build)) }

// check validates a configuration with additional documents like the machine service.
func check(t *testing.T, s configuration.Validator, cfg config.Provider, more string) error {
	t.Helper()

	text, err := cfg.Bytes()
	require.NoError(t, err)

	_, _, err = s.Check(t.Context(), &machineapi.ApplyConfigurationRequest{
		Data: append(text, more...), Mode: machineapi.ApplyConfigurationRequest_AUTO,
	}, resources())

	return err
}

// TestDocumentsFollowTheRelease: a kind is known from the minor version on that registers it (registry.Register in
// pkg/machinery/config/types), a field from the one on that has it; the decoder reports others
// (pkg/machinery/config/configloader/internal/decoder/decoder.go).
func TestDocumentsFollowTheRelease(t *testing.T) {
	t.Parallel()

	const (
		server   = "---\napiVersion: v1alpha1\nkind: SysctlConfig\nparams: {vm.swappiness: \"1\"}\n"
		hostname = "---\napiVersion: v1alpha1\nkind: OOMConfig\nstrictCgroupClassOrdering: true\n"
		volume   = "---\napiVersion: v1alpha1\nkind: VolumeConfig\nname: ETCD\nprovisioning: {minSize: 2GiB}\n"
		trim     = "---\napiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data\nprovisioning: {minSize: 2GiB, diskSelector: {match: disk.size > 1u}}\n" +
			"trim: {enabled: true}\n"
	)

	for name, test := range map[string]struct {
		version, document, refused string
	}{
		"a kind of 1.14 on 1.14": {"v1.14.0", server, ""},
		"a kind of 1.14 on 1.13": {"v1.13.9", server, `"SysctlConfig" "v1alpha1": not registered`},
		"a kind of 1.14 on 1.12": {
			"v1.12.6", server, `error decoding document v1alpha1/SysctlConfig/ (line `,
		},
		"a kind of 1.13 on 1.12": {
			"v1.12.6", "---\napiVersion: v1alpha1\nkind: EnvironmentConfig\nvariables: {A: b}\n", "not registered",
		},
		"a kind of 1.13 on 1.13": {
			"v1.13.9", "---\napiVersion: v1alpha1\nkind: EnvironmentConfig\nvariables: {A: b}\n", "",
		},
		"a field of 1.13 on 1.12": {
			"v1.12.6", hostname, "unknown keys found during decoding:\nstrictCgroupClassOrdering: true\n",
		},
		"a field of 1.13 on 1.13": {"v1.13.9", hostname, ""},
		"a field of 1.14 on 1.13": {
			"v1.13.9", trim, "error decoding document v1alpha1/UserVolumeConfig/data (line ",
		},
		"a field of 1.14 on 1.14": {"v1.14.0", trim, ""},
		"a volume of 1.14 on 1.13": {
			"v1.13.9", volume, `VolumeConfig/ETCD: only ["STATE" "EPHEMERAL" "IMAGECACHE"] volumes are supported`,
		},
		"a volume of 1.14 on 1.14": {"v1.14.0", volume, ""},
		"a kind that no Talos has": {
			"v1.14.0", "---\napiVersion: v1alpha1\nkind: MoonConfig\n", `"MoonConfig" "v1alpha1": not registered`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := check(t, system(t, test.version), generated(t, config.TalosVersion1_12, "1.35.2"), test.document)
			if test.refused == "" {
				require.NoError(t, err)

				return
			}

			require.ErrorContains(t, err, test.refused)
			assert.Equal(t, codes.InvalidArgument, status.Code(err))
		})
	}
}

// TestUnknownKeysAreShownByTheirPath: xyaml.CheckUnknownKeys of siderolabs/gen prints unknown keys at their path.
func TestUnknownKeysAreShownByTheirPath(t *testing.T) {
	t.Parallel()

	release, err := talos.ReleaseOf("v1.13.0")
	require.NoError(t, err)

	require.EqualError(t, configuration.CheckKnown(release, []byte(`
apiVersion: v1alpha1
kind: ResolverConfig
nameservers:
  - address: 127.9.9.1
  - address: 127.9.9.2
    protocol: dot
hostDNS: {enabled: true}
`)), `error decoding document v1alpha1/ResolverConfig/ (line 2): unknown keys found during decoding:
hostDNS:
    enabled: true
nameservers:
    - protocol: dot
`)

	require.NoError(t, configuration.CheckKnown(release, []byte("kind: SysctlConfig\n$patch: delete\n")))
}

// TestConflictingDocuments: documents of Talos 1.14 refuse fields of the first document that they replace
// (V1Alpha1ConflictValidate in pkg/machinery/config/types/k8s).
func TestConflictingDocuments(t *testing.T) {
	t.Parallel()

	const prism = "---\napiVersion: v1alpha1\nkind: KubePrismConfig\nport: 7445\n"

	s := system(t, "v1.14.0")

	err := check(t, s, generated(t, config.TalosVersion1_13, "1.36.0"), prism)
	require.ErrorContains(t, err, "kubePrism")
	assert.Equal(t, codes.InvalidArgument, status.Code(err))

	require.NoError(t, check(t, s, generated(t, config.TalosVersion1_14, "1.37.0"), ""), "documents alone")
	require.NoError(t, check(t, s, generated(t, config.TalosVersion1_13, "1.36.0"), ""), "the first document alone")
}

// TestSupportedKubernetes: pkg/machinery/compatibility, with the machine's own version and not that of the
// lab's machinery.
func TestSupportedKubernetes(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ version, kubernetes, refused string }{
		"the newest of 1.12":  {"v1.12.6", "1.35.2", ""},
		"too new for 1.12":    {"v1.12.6", "1.36.0", "kube-apiserver image is not valid: version of Kubernetes 1.36.0 is too new to be used with Talos 1.12.6"},
		"too new for 1.13":    {"v1.13.9", "1.37.0", "kubelet image is not valid: version of Kubernetes 1.37.0 is too new"},
		"the newest of 1.14":  {"v1.14.0", "1.37.0", ""},
		"the oldest of 1.12":  {"v1.12.6", "1.30.0", ""},
		"too old for 1.14":    {"v1.14.0", "1.31.0", "version of Kubernetes 1.31.0 is too old to be used with Talos 1.14.0"},
		"the default of 1.14": {"v1.13.9", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cfg := generated(t, config.TalosVersion1_12, "1.35.2")

			cfg, err := cfg.PatchV1Alpha1(func(c *v1alpha1.Config) error {
				tag := ":v" + test.kubernetes
				c.MachineConfig.MachineKubelet.KubeletImage = "kubelet" + tag
				c.ClusterConfig.APIServerConfig.ContainerImage = "kube-apiserver" + tag
				c.ClusterConfig.ControllerManagerConfig.ContainerImage = "kube-controller-manager" + tag
				c.ClusterConfig.SchedulerConfig.ContainerImage = "kube-scheduler" + tag

				if test.kubernetes == "" {
					c.MachineConfig.MachineKubelet, c.ClusterConfig.APIServerConfig = nil, nil
					c.ClusterConfig.ControllerManagerConfig, c.ClusterConfig.SchedulerConfig = nil, nil
				}

				return nil
			})
			require.NoError(t, err)

			err = check(t, system(t, test.version), cfg, "")
			if test.refused == "" {
				require.NoError(t, err)

				return
			}

			require.ErrorContains(t, err, test.refused)
		})
	}
}

// TestMetalRequiresInstall: Validate in pkg/machinery/config/types/v1alpha1/v1alpha1_validation.go, up to
// Talos 1.13.
func TestMetalRequiresInstall(t *testing.T) {
	t.Parallel()

	for version, refused := range map[string]bool{"v1.12.6": true, "v1.13.9": true, "v1.14.0": false} {
		s := system(t, version)
		s.Mode = configuration.Mode{Metal: true}

		cfg, err := generated(t, config.TalosVersion1_12, "1.35.2").PatchV1Alpha1(func(c *v1alpha1.Config) error {
			c.MachineConfig.MachineInstall = nil

			return nil
		})
		require.NoError(t, err)

		err = check(t, s, cfg, "")
		if refused {
			require.ErrorContains(t, err, `install instructions are required in "metal" mode`, version)
		} else {
			require.NoError(t, err, version)
		}
	}
}

// TestDecideMode: ApplyConfiguration in
// internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go. From 1.14 on it never restarts a machine.
func TestDecideMode(t *testing.T) {
	t.Parallel()

	const (
		auto   = machineapi.ApplyConfigurationRequest_AUTO
		now    = machineapi.ApplyConfigurationRequest_NO_REBOOT
		reboot = machineapi.ApplyConfigurationRequest_REBOOT
		staged = machineapi.ApplyConfigurationRequest_STAGED
		try    = machineapi.ApplyConfigurationRequest_TRY
	)

	sysctl := func(c *v1alpha1.Config) { c.MachineConfig.MachineSysctls = map[string]string{"vm.swappiness": "1"} }
	files := func(c *v1alpha1.Config) {
		c.MachineConfig.MachineSystemDiskEncryption = &v1alpha1.SystemDiskEncryptionConfig{}
	}

	for name, test := range map[string]struct {
		version string
		wanted  machineapi.ApplyConfigurationRequest_Mode
		change  func(*v1alpha1.Config)
		does    machineapi.ApplyConfigurationRequest_Mode
		says    string // or the error
		code    codes.Code
	}{
		"1.13: at once":         {"v1.13.9", auto, sysctl, now, "Applied configuration without a reboot", 0},
		"1.13: by a restart":    {"v1.13.9", auto, files, reboot, "Applied configuration with a reboot: this config change can't be", 0},
		"1.12: by a restart":    {"v1.12.6", auto, files, reboot, "Applied configuration with a reboot: this config change can't be", 0},
		"1.13: refused at once": {"v1.13.9", now, files, 0, "this config change can't be applied in immediate mode", codes.InvalidArgument},
		"1.13: a restart":       {"v1.13.9", reboot, sysctl, reboot, "Applied configuration with a reboot", 0},
		"1.13: later":           {"v1.13.9", staged, files, staged, "Staged configuration to be applied after the next reboot", 0},
		"1.14: at once":         {"v1.14.0", auto, sysctl, now, "Applied configuration without a reboot", 0},
		"1.14: all at once":     {"v1.14.0", auto, files, now, "Applied configuration without a reboot", 0},
		"1.14: on trial":        {"v1.14.0", try, files, try, "Applied configuration without a reboot", 0},
		"1.14: no check":        {"v1.14.0", now, files, now, "Applied configuration without a reboot", 0},
		"1.14: later":           {"v1.14.0", staged, files, staged, "Staged configuration to be applied after the next reboot", 0},
		"1.14: no restart": {
			"v1.14.0", reboot, sysctl, 0, "the REBOOT mode is not supported, please use AUTO or NO_REBOOT modes instead",
			codes.Unimplemented,
		},
		"1.14: a mode that is none": {
			"v1.14.0", 7, sysctl, 0, "incorrect mode '7' specified for the apply config call", codes.InvalidArgument,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := system(t, test.version)
			current := generated(t, config.TalosVersion1_12, "1.35.2")

			changed, err := current.Clone().PatchV1Alpha1(func(c *v1alpha1.Config) error {
				test.change(c)

				return nil
			})
			require.NoError(t, err)

			text, err := changed.Bytes()
			require.NoError(t, err)

			next, _, err := s.Check(
				t.Context(), &machineapi.ApplyConfigurationRequest{Data: text, Mode: test.wanted}, resources(),
			)

			var reply *machineapi.ApplyConfiguration
			if err == nil {
				reply, err = s.DecideMode(test.wanted, current, next)
			}

			if test.code != codes.OK {
				require.ErrorContains(t, err, test.says)
				assert.Equal(t, test.code, status.Code(err))

				return
			}

			require.NoError(t, err)
			assert.Equal(t, test.does, reply.GetMode())
			assert.Contains(t, reply.GetModeDetails(), test.says)
		})
	}
}
