package talos

// Support says what the program does with a release of Talos.
type Support int

// Kinds of support.
const (
	// Supported releases are installed and upgraded to.
	Supported Support = iota
	// Ended releases were supported; clusters that began with one keep its contract.
	Ended
	// Announced releases are known and not supported yet.
	Announced
)

// LastWithEnded is the last version of this program that took the newest ended release.
const LastWithEnded = "commit dec0da7 of November 2026"

// Provider is the newest release whose documents the Talos provider reads: pulumi-talos 0.7.1 is built with the
// machinery of Talos 1.12.
const Provider = "v1.12"

// NVIDIA are the drivers in a release's extensions.
type NVIDIA struct {
	// LTS and Production are the drivers' versions in the first patch: nvidia-gpu/vars.yaml of siderolabs/extensions.
	LTS, Production string
	// Oldest is the oldest GPU generation that the production driver drives.
	Oldest string
	// Operator says whether NVIDIA's GPU Operator finds the driver, by CDI.
	Operator bool
}

// Release is one minor version of Talos and everything that the program and the lab know about it. Code asks a release
// what it does, and compares no versions; docs/releases.md says how the next one is added.
type Release struct {
	// Talos is the minor version with its v.
	Talos string
	// Support says whether it is installed.
	Support Support
	// Newest is the newest patch known here, in full. Newer ones are accepted as well.
	Newest string
	// EndOfLife is the day from which it gets no fixes (2026-09-04); empty = it gets them. Talos fixes its last two
	// minors.
	EndOfLife string
	// OldestKubernetes and NewestKubernetes are minor versions, both included: pkg/machinery/compatibility.
	OldestKubernetes, NewestKubernetes string
	// DefaultKubernetes is a full version: the one the minor's first release shipped with, so that a newer Talos patch
	// never changes Kubernetes.
	DefaultKubernetes string
	// Contract is the version contract of configurations and secrets that are generated for it. It is never newer than
	// what the machinery of the Talos provider knows, nor than 1.13: from contract 1.14 on Kubernetes is described in
	// documents that no provider reads yet, workloads are isolated (which breaks hostPID and in-tree iSCSI), and /var is
	// mounted securely (VolumeConfig EPHEMERAL: mount.secure). A configuration of an older contract states none of this
	// and leaves it off.
	Contract string
	// NamedInFirstDocument says whether configurations of its contract have the machine's name in the first document;
	// Talos refuses it there beside the document HostnameConfig that newer ones have.
	NamedInFirstDocument bool
	// Documents are the kinds of configuration documents that appeared with it; Kind/name is one only under that name.
	Documents string
	// Fields are new fields of documents that were there before: Kind.path, v1alpha1 for the first document.
	Fields string
	// Extensions are the official system extensions that appeared with it, after the tags of siderolabs/extensions; a name
	// that came with a later patch counts for all. None has gone since.
	Extensions string
	// NVIDIA are its GPU drivers.
	NVIDIA NVIDIA
	// RestartsForChanges says whether a machine restarts by itself for some changes of its configuration. From 1.14 on
	// every change is answered by NO_REBOOT (internal/app/machined/internal/server/v1alpha1), and whoever makes it
	// restarts the machine: see [AtRestart].
	RestartsForChanges bool
	// RequiresInstall says whether a machine of the metal platform refuses a configuration without machine.install, which
	// UnattendedInstallConfig replaces from 1.14 on (pkg/machinery/config/types/v1alpha1: Validate).
	RequiresInstall bool
	// RegistersTaints says whether the kubelet registers its node with all taints of the configuration. Before, it
	// registers with the control plane's alone (internal/app/machined/pkg/controllers/k8s/kubelet_spec.go).
	RegistersTaints bool
	// FinalSettings says whether the settings of static pods are shown a second time, as final-kube-apiserver and so on,
	// and whether the pods follow those (internal/app/machined/pkg/controllers/k8s/control_plane_final.go).
	FinalSettings bool
	// OneAPI says whether the Talos API of maintenance mode is that of a configured machine, for readers
	// (internal/app/machined/internal/server); before, a server of its own took configurations and told strangers little
	// (internal/app/maintenance).
	OneAPI bool
	// Lifecycle says whether the Talos API has the services for images and for installations and upgrades
	// (api/machine/lifecycle.proto, image.proto). An upgrade by them drains no node and restarts no machine.
	Lifecycle bool
	// InstallerChecksKubernetes says whether its installer refuses a configuration whose Kubernetes it does not run
	// (cmd/installer/cmd/installer/install.go: ValidateAsClient); before, the installed system refused to be given one.
	InstallerChecksKubernetes bool
	// PublishedInstaller says whether its installer is on ghcr.io, too, and not in an Image Factory alone.
	PublishedInstaller bool
	// EtcdHTTPPort is where etcd serves metrics and its health over HTTP (pkg/machinery/constants: EtcdClientHTTPPort).
	EtcdHTTPPort int
	// MinimumTLS is the oldest TLS that etcd and the API server accept, as their flags name it.
	MinimumTLS string
	// Etcd, CoreDNS, Flannel, Containerd, Kernel and Pause are what its newest patch known here ships: versions as in
	// pkg/machinery/constants, and the sandbox of every pod (pkg/images: DefaultSandboxImage).
	Etcd, CoreDNS, Flannel, Containerd, Kernel, Pause string
}

// Releases returns every release that is known, oldest first.
func Releases() []Release {
	return []Release{
		{
			Talos: "v1.11", Support: Ended, EndOfLife: "2026-04-27", Contract: "v1.11", NamedInFirstDocument: true,
			Extensions: `amazon-ena amd-ucode amdgpu binfmt-misc bnx2-bnx2x btrfs chelsio-drivers chelsio-firmware cloudflared
				crun ctr drbd dvb-cx23885 dvb-m88ds3103 ecr-credential-provider fuse3 gasket-driver glibc gvisor gvisor-debug
				hailort hello-world-service i915 intel-ice-firmware intel-ucode iscsi-tools kata-containers lldpd mdadm mei
				metal-agent nebula newt nfsd nfsrahead nonfree-kmod-nvidia-lts nonfree-kmod-nvidia-production nut-client
				nvidia-container-toolkit-lts nvidia-container-toolkit-production nvidia-fabricmanager-lts
				nvidia-fabricmanager-production nvidia-open-gpu-kernel-modules-lts nvidia-open-gpu-kernel-modules-production
				nvme-cli panfrost qemu-guest-agent qlogic-firmware realtek-firmware revpi-firmware spin stargz-snapshotter
				tailscale tenstorrent thunderbolt uinput usb-modem-drivers util-linux-tools v4l-uvc-drivers vc4
				vmtoolsd-guest-agent wasmedge xdma-driver xen-guest-agent youki zerotier zfs`,
		},
		{
			Talos: "v1.12", Newest: "v1.12.12", EndOfLife: "2026-09-04", Contract: "v1.12",
			OldestKubernetes: "v1.30", NewestKubernetes: "v1.35", DefaultKubernetes: "v1.35.0",
			Extensions: `bird2 gpio-pinctrl mellanox-mstflint multipath-tools netbird nfs-utils nvidia-gdrdrv-device
				soci-snapshotter trident-iscsi-tools usb-audio-drivers xe`,
			NVIDIA:             NVIDIA{LTS: "580.105.08", Production: "570.195.03", Oldest: "maxwell"},
			RestartsForChanges: true, RequiresInstall: true, PublishedInstaller: true,
			EtcdHTTPPort: 2379, MinimumTLS: "VersionTLS12",
			Etcd: "v3.6.14", CoreDNS: "v1.14.2", Flannel: "v0.27.4", Containerd: "2.2.5",
			Kernel: "6.18.49-talos", Pause: "registry.k8s.io/pause:3.10.1",
		},
		{
			Talos: "v1.13", Newest: "v1.13.10", Contract: "v1.13",
			OldestKubernetes: "v1.31", NewestKubernetes: "v1.36", DefaultKubernetes: "v1.36.0",
			Documents: `BlackholeRouteConfig EnvironmentConfig ExternalVolumeConfig ImageVerificationConfig KubeSpanConfig
				RoutingRuleConfig TCPProbeConfig VRFConfig`,
			Fields: `OOMConfig.strictCgroupClassOrdering UserVolumeConfig.mount VolumeConfig.mount
				v1alpha1.cluster.network.cni.flannel.kubeNetworkPoliciesEnabled`,
			Extensions:         "intel-npu joydev px-fuse rockchip-rknn uhid",
			NVIDIA:             NVIDIA{LTS: "580.126.20", Production: "595.58.03", Oldest: "turing", Operator: true},
			RestartsForChanges: true, RequiresInstall: true, PublishedInstaller: true, OneAPI: true,
			Lifecycle: true, EtcdHTTPPort: 2379, MinimumTLS: "VersionTLS12",
			Etcd: "v3.6.12", CoreDNS: "v1.14.6", Flannel: "0.28.8", Containerd: "2.2.7",
			Kernel: "6.18.48-talos", Pause: "registry.k8s.io/pause:3.10.1",
		},
		{
			Talos: "v1.14", Newest: "v1.14.4", Contract: "v1.13",
			OldestKubernetes: "v1.32", NewestKubernetes: "v1.37", DefaultKubernetes: "v1.37.0",
			Documents: `BGPInstanceConfig CRIBaseRuntimeSpecConfig CRICustomizationConfig ContainerConfig
				DiscoveryIdentityConfig DiscoveryServiceConfig EtcFileConfig FilesystemScrubConfig FilesystemTrimConfig
				HTTPProbeConfig ImageCacheConfig KernelModuleConfig KubeAPIServerCAConfig KubeAPIServerConfig
				KubeAdmissionControlConfig KubeAggregatorCAConfig KubeAuditPolicyConfig KubeAuthenticationConfig
				KubeAuthorizerConfig KubeClusterConfig KubeControllerManagerConfig KubeCoreDNSConfig
				KubeCredentialProviderConfig KubeEtcdEncryptionConfig KubeExternalManifestConfig KubeFlannelCNIConfig
				KubeInlineManifestConfig KubeNetworkConfig KubeNodeConfig KubePrismConfig KubeProxyConfig
				KubeSchedulerConfig KubeServiceAccountConfig KubeStaticPodConfig KubeTalosAPIAccessConfig KubeletConfig
				LVMLogicalVolumeConfig LVMVolumeGroupConfig RAIDArrayConfig SecurityProfileConfig SysctlConfig SysfsConfig
				UdevRulesConfig UnattendedInstallConfig VethConfig
				VolumeConfig/CRI VolumeConfig/ETCD VolumeConfig/KUBELET VolumeConfig/LOG`,
			Fields: `DHCPv4Config.ignoreRoutes ExistingVolumeConfig.scrub ExistingVolumeConfig.trim ResolverConfig.hostDNS
				ResolverConfig.nameservers.protocol ResolverConfig.nameservers.tlsServerName TimeSyncConfig.ntp.useNTS
				RawVolumeConfig.encryption.allowDiscards SwapVolumeConfig.encryption.allowDiscards
				UserVolumeConfig.encryption.allowDiscards UserVolumeConfig.filesystem.xfs
				UserVolumeConfig.mount.disableAccessTime UserVolumeConfig.scrub UserVolumeConfig.trim
				VolumeConfig.encryption.allowDiscards VolumeConfig.filesystem VolumeConfig.mount.disableAccessTime
				VolumeConfig.scrub VolumeConfig.trim`,
			Extensions:      "amd-npu harbor-credential-provider hyperv-guest-agent kata-containers-snp",
			NVIDIA:          NVIDIA{LTS: "580.178.04", Production: "595.91.07", Oldest: "turing", Operator: true},
			RegistersTaints: true, FinalSettings: true, OneAPI: true, Lifecycle: true, InstallerChecksKubernetes: true,
			EtcdHTTPPort: 2383, MinimumTLS: "VersionTLS13",
			Etcd: "v3.7.2", CoreDNS: "v1.14.6", Flannel: "0.28.9", Containerd: "2.3.3",
			Kernel: "6.18.57-talos", Pause: "registry.k8s.io/pause:3.10.2",
		},
		{
			Talos: "v1.15", Support: Announced, Contract: "v1.13",
			OldestKubernetes: "v1.33", NewestKubernetes: "v1.38",
			Documents: "MacVLANConfig VXLANConfig", Fields: "BondConfig.primary", Extensions: "cachefilesd",
			NVIDIA:          NVIDIA{LTS: "580.178.04", Production: "595.91.07", Oldest: "turing", Operator: true},
			RegistersTaints: true, FinalSettings: true, OneAPI: true, Lifecycle: true, InstallerChecksKubernetes: true,
			EtcdHTTPPort: 2383, MinimumTLS: "VersionTLS13",
		},
	}
}

// KubernetesRelease is a minor version of Kubernetes.
type KubernetesRelease struct {
	// Kubernetes is the minor version with its v.
	Kubernetes string
	// EndOfLife is the day from which it gets no fixes: the schedule of Kubernetes' patch releases.
	EndOfLife string
}

// KubernetesReleases returns what is known of the minors that a release of Talos runs, oldest first.
func KubernetesReleases() []KubernetesRelease {
	return []KubernetesRelease{
		{"v1.30", "2025-07-15"},
		{"v1.31", "2025-11-11"},
		{"v1.32", "2026-02-28"},
		{"v1.33", "2026-06-28"},
		{"v1.34", "2026-10-27"},
		{"v1.35", "2027-02-28"},
		{"v1.36", "2027-06-28"},
		{"v1.37", "2027-10-28"},
	}
}
