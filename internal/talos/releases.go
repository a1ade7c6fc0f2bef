package talos

// Support is the program's level of support for a release of Talos.
type Support int

// Levels of support.
const (
	// Supported releases can be installed and upgraded to.
	Supported Support = iota
	// Ended releases were supported; clusters created with one keep its contract.
	Ended
	// Announced releases are known but not supported yet.
	Announced
)

// LastWithEnded is the last version of this program that supported the newest ended release.
const LastWithEnded = "commit dec0da7 of November 2026"

// NVIDIA are the drivers in a release's extensions.
type NVIDIA struct {
	// LTS and Production are the driver versions of the minor's first release: nvidia-gpu/vars.yaml of
	// siderolabs/extensions.
	LTS, Production string
	// Oldest is the oldest GPU generation that the production driver supports.
	Oldest string
	// Operator reports whether NVIDIA's GPU Operator finds the driver, through CDI.
	Operator bool
}

// Release is a minor version of Talos with everything that the program and the lab know about it. Code checks features
// of a release and never compares versions; docs/dev/releases.md describes how to add the next one.
type Release struct {
	// Talos is the minor version with its v.
	Talos string
	// Support is the program's level of support.
	Support Support
	// Newest is the newest known patch version. Newer ones are accepted as well.
	Newest string
	// EndOfLife is the day from which it receives no fixes (2026-09-04); empty = not set yet. Talos maintains its last
	// two minors.
	EndOfLife string
	// OldestKubernetes and NewestKubernetes are the supported minor versions, inclusive: pkg/machinery/compatibility.
	OldestKubernetes, NewestKubernetes string
	// DefaultKubernetes is the full version with which the minor's first release shipped, so that a Talos patch never
	// changes Kubernetes.
	DefaultKubernetes string
	// Contract is the version contract with which configurations and secrets of new clusters are generated; a cluster
	// keeps its own.
	Contract string
	// HostnameInV1Alpha1 reports whether configurations of its contract have the host name in the v1alpha1 document;
	// Talos rejects that together with the HostnameConfig document of newer contracts.
	HostnameInV1Alpha1 bool
	// KubernetesDocuments reports whether configurations of its contract have Kubernetes, discovery, installation and
	// servers in documents of their own; Talos rejects these together with the fields of the v1alpha1 document.
	KubernetesDocuments bool
	// Documents are the kinds of configuration documents that it added; Kind/name adds only that name.
	Documents string
	// Fields are the fields that it added to existing documents: Kind.path, v1alpha1 for the first document.
	Fields string
	// Extensions are the official system extensions that it added, from the tags of siderolabs/extensions; one that came
	// with a later patch counts for all patches. None has been removed since.
	Extensions string
	// NVIDIA are its GPU drivers.
	NVIDIA NVIDIA
	// RestartsForChanges reports whether a machine restarts by itself for some configuration changes. Since 1.14 every
	// change is applied with NO_REBOOT (internal/app/machined/internal/server/v1alpha1), and the client restarts the
	// machine: see [ChangesRequiringRestart].
	RestartsForChanges bool
	// RequiresInstall reports whether a machine of the metal platform rejects a configuration without machine.install,
	// which UnattendedInstallConfig replaces since 1.14 (pkg/machinery/config/types/v1alpha1: Validate).
	RequiresInstall bool
	// RegistersTaints reports whether the kubelet registers its node with all configured taints. Before, it registered
	// only with that of control planes (internal/app/machined/pkg/controllers/k8s/kubelet_spec.go).
	RegistersTaints bool
	// ListArguments reports whether an argument of Kubernetes' programs can have several values
	// (pkg/machinery/config/types/v1alpha1: ExtraArgsConfig).
	ListArguments bool
	// RestartsContainerd reports whether containerd restarts, without its pods, when its settings change, such as users of
	// registries (internal/app/machined/pkg/controllers/cri/service.go). Before, it read them only at boot.
	RestartsContainerd bool
	// FinalSettings reports whether the settings of static pods also exist as final-kube-apiserver and so on, which the
	// pods then use (internal/app/machined/pkg/controllers/k8s/control_plane_final.go).
	FinalSettings bool
	// MaintenanceServesMachineAPI reports whether maintenance mode serves the Talos API of a configured machine, read-only
	// (internal/app/machined/internal/server). Before, a separate server accepted configurations and revealed little to
	// unauthenticated clients (internal/app/maintenance).
	MaintenanceServesMachineAPI bool
	// LifecycleAPI reports whether the Talos API has services for images, installation and upgrades
	// (api/machine/lifecycle.proto, image.proto). Their upgrade neither drains the node nor restarts the machine.
	LifecycleAPI bool
	// InstallerChecksKubernetes reports whether its installer rejects a configuration with an unsupported Kubernetes
	// (cmd/installer/cmd/installer/install.go: ValidateAsClient); before, the installed system rejected such a
	// configuration.
	InstallerChecksKubernetes bool
	// DiskImagesEnrollKeys reports whether a disk image of Secure Boot, and not only an ISO, enrolls its keys in a
	// machine's firmware at its first boot (pkg/imager/out.go: SDBootEnrollKeys).
	DiskImagesEnrollKeys bool
	// PublishedInstaller reports whether its installer is on ghcr.io, too, and not only in an Image Factory.
	PublishedInstaller bool
	// EtcdHTTPPort is the port on which etcd serves metrics and health over HTTP (pkg/machinery/constants:
	// EtcdClientHTTPPort).
	EtcdHTTPPort int
	// MinimumTLS is the oldest TLS version that etcd and the API server accept, as their flags spell it.
	MinimumTLS string
	// Etcd, CoreDNS, Flannel, Containerd, Kernel and Pause are the versions in its newest known patch
	// (pkg/machinery/constants); Pause is the sandbox image of pods (pkg/images: DefaultSandboxImage).
	Etcd, CoreDNS, Flannel, Containerd, Kernel, Pause string
}

// Releases returns every known release, oldest first.
func Releases() []Release {
	return []Release{
		{
			Talos: "v1.11", Support: Ended, EndOfLife: "2026-04-27", Contract: "v1.11", HostnameInV1Alpha1: true,
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
			RestartsForChanges: true, RequiresInstall: true, PublishedInstaller: true, MaintenanceServesMachineAPI: true,
			LifecycleAPI: true, ListArguments: true, EtcdHTTPPort: 2379, MinimumTLS: "VersionTLS12",
			Etcd: "v3.6.12", CoreDNS: "v1.14.6", Flannel: "0.28.8", Containerd: "2.2.7",
			Kernel: "6.18.48-talos", Pause: "registry.k8s.io/pause:3.10.1",
		},
		{
			Talos: "v1.14", Newest: "v1.14.4", Contract: "v1.14", KubernetesDocuments: true,
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
			RegistersTaints: true, FinalSettings: true, MaintenanceServesMachineAPI: true, LifecycleAPI: true,
			ListArguments: true, RestartsContainerd: true,
			InstallerChecksKubernetes: true, DiskImagesEnrollKeys: true,
			EtcdHTTPPort: 2383, MinimumTLS: "VersionTLS13",
			Etcd: "v3.7.2", CoreDNS: "v1.14.6", Flannel: "0.28.9", Containerd: "2.3.3",
			Kernel: "6.18.57-talos", Pause: "registry.k8s.io/pause:3.10.2",
		},
		{
			Talos: "v1.15", Support: Announced, Contract: "v1.14", KubernetesDocuments: true,
			OldestKubernetes: "v1.33", NewestKubernetes: "v1.38",
			Documents: "MacVLANConfig VXLANConfig", Fields: "BondConfig.primary", Extensions: "cachefilesd",
			NVIDIA:          NVIDIA{LTS: "580.178.04", Production: "595.91.07", Oldest: "turing", Operator: true},
			RegistersTaints: true, FinalSettings: true, MaintenanceServesMachineAPI: true, LifecycleAPI: true,
			ListArguments: true, RestartsContainerd: true,
			InstallerChecksKubernetes: true, DiskImagesEnrollKeys: true,
			EtcdHTTPPort: 2383, MinimumTLS: "VersionTLS13",
		},
	}
}

// KubernetesRelease is a minor version of Kubernetes.
type KubernetesRelease struct {
	// Kubernetes is the minor version with its v.
	Kubernetes string
	// EndOfLife is the day from which it receives no fixes: the schedule of Kubernetes' patch releases.
	EndOfLife string
}

// KubernetesReleases returns the minors that releases of Talos run, oldest first.
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
