package resources

import (
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	clusterres "github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/cri"
	etcdres "github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/files"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubeaccess"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubespan"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/perf"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	"github.com/siderolabs/talos/pkg/machinery/resources/siderolink"
	timeres "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
)

// shownNamespaces are Talos' namespaces of resources.
var shownNamespaces = []resource.Namespace{
	v1alpha1.NamespaceName, clusterres.NamespaceName, clusterres.RawNamespaceName, configres.NamespaceName,
	etcdres.NamespaceName, files.NamespaceName,
	hardware.NamespaceName, k8s.NamespaceName, k8s.ControlPlaneNamespaceName, kubespan.NamespaceName,
	network.NamespaceName, network.ConfigNamespaceName,
	cri.NamespaceName, secrets.NamespaceName, perf.NamespaceName,
}

// shownTypes are the types that Talos 1.12 registers, so that a client finds every name; those that no describe
// function fills are empty.
var shownTypes = []meta.ResourceWithRD{
	&block.Device{}, &block.DiscoveredVolume{}, &block.DiscoveryRefreshRequest{}, &block.DiscoveryRefreshStatus{},
	&block.Disk{}, &block.MountRequest{},
	&block.MountStatus{}, &block.SwapStatus{}, &block.Symlink{}, &block.SystemDisk{}, &block.UserDiskConfigStatus{},
	&block.VolumeConfig{},
	&block.VolumeLifecycle{}, &block.VolumeMountRequest{}, &block.VolumeMountStatus{}, &block.VolumeStatus{},
	&block.ZswapStatus{},
	&clusterres.Affiliate{}, &clusterres.Config{}, &clusterres.Identity{}, &clusterres.Info{}, &clusterres.Member{},
	&configres.MachineConfig{}, &configres.MachineType{},
	&cri.ImageCacheConfig{}, &cri.SeccompProfile{}, &cri.RegistriesConfig{},
	&etcdres.Config{}, &etcdres.PKIStatus{}, &etcdres.Spec{}, &etcdres.Member{},
	&files.EtcFileSpec{}, &files.EtcFileStatus{},
	&hardware.MemoryModule{}, &hardware.PCIDevice{}, &hardware.PCIDriverRebindConfig{}, &hardware.PCIDriverRebindStatus{},
	&hardware.PCRStatus{},
	&hardware.Processor{}, &hardware.SystemInformation{},
	&k8s.AdmissionControlConfig{}, &k8s.AuditPolicyConfig{}, &k8s.AuthorizationConfig{}, &k8s.APIServerConfig{},
	&k8s.KubePrismEndpoints{},
	&k8s.ConfigStatus{}, &k8s.ControllerManagerConfig{}, &k8s.Endpoint{}, &k8s.ExtraManifestsConfig{},
	&k8s.KubeletConfig{}, &k8s.KubeletLifecycle{},
	&k8s.KubeletSpec{}, &k8s.KubePrismConfig{}, &k8s.KubePrismStatuses{}, &k8s.Manifest{}, &k8s.ManifestStatus{},
	&k8s.BootstrapManifestsConfig{},
	&k8s.NodeAnnotationSpec{}, &k8s.NodeCordonedSpec{}, &k8s.NodeIP{}, &k8s.NodeIPConfig{}, &k8s.NodeLabelSpec{},
	&k8s.Nodename{}, &k8s.NodeStatus{},
	&k8s.NodeTaintSpec{}, &k8s.SchedulerConfig{}, &k8s.StaticPod{}, &k8s.StaticPodServerStatus{}, &k8s.StaticPodStatus{},
	&k8s.SecretsStatus{},
	&kubeaccess.Config{},
	&kubespan.Config{}, &kubespan.Endpoint{}, &kubespan.Identity{}, &kubespan.PeerSpec{}, &kubespan.PeerStatus{},
	&network.AddressStatus{}, &network.AddressSpec{}, &network.DeviceConfigSpec{}, &network.DNSResolveCache{},
	&network.DNSUpstream{},
	&network.EthernetSpec{}, &network.EthernetStatus{}, &network.HardwareAddr{}, &network.HostDNSConfig{},
	&network.HostnameStatus{},
	&network.HostnameSpec{}, &network.LinkAliasSpec{}, &network.LinkRefresh{}, &network.LinkStatus{}, &network.LinkSpec{},
	&network.NfTablesChain{},
	&network.NodeAddress{}, &network.NodeAddressFilter{}, &network.NodeAddressSortAlgorithm{}, &network.OperatorSpec{},
	&network.PlatformConfig{},
	&network.ProbeSpec{}, &network.ProbeStatus{}, &network.ResolverStatus{}, &network.ResolverSpec{},
	&network.RouteStatus{}, &network.RouteSpec{},
	&network.Status{}, &network.TimeServerStatus{}, &network.TimeServerSpec{},
	&perf.CPU{}, &perf.Memory{},
	&runtime.BootedEntry{}, &runtime.DevicesStatus{}, &runtime.Diagnostic{}, &runtime.EventSinkConfig{},
	&runtime.ExtensionServiceConfig{},
	&runtime.ExtensionServiceConfigStatus{}, &runtime.ExtensionStatus{}, &runtime.KernelCmdline{},
	&runtime.KernelModuleSpec{},
	&runtime.KernelParamSpec{}, &runtime.KernelParamDefaultSpec{}, &runtime.KernelParamStatus{}, &runtime.KmsgLogConfig{},
	&runtime.LoadedKernelModule{}, &runtime.MaintenanceServiceConfig{}, &runtime.MaintenanceServiceRequest{},
	&runtime.MachineResetSignal{},
	&runtime.MachineStatus{}, &runtime.MetaKey{}, &runtime.MetaLoaded{}, &runtime.MountStatus{}, &runtime.OOMAction{},
	&runtime.PlatformMetadata{},
	&runtime.SBOMItem{}, &runtime.SecurityState{}, &runtime.UniqueMachineToken{}, &runtime.Version{},
	&runtime.WatchdogTimerConfig{},
	&runtime.WatchdogTimerStatus{},
	&secrets.API{}, &secrets.CertSAN{}, &secrets.EncryptionSalt{}, &secrets.Etcd{}, &secrets.EtcdRoot{},
	&secrets.Kubelet{}, &secrets.Kubernetes{},
	&secrets.KubernetesDynamicCerts{}, &secrets.KubernetesRoot{},
	&secrets.MaintenanceRoot{}, &secrets.OSRoot{},
	&secrets.Trustd{},
	&siderolink.Config{}, &siderolink.Status{}, &siderolink.Tunnel{},
	&timeres.AdjtimeStatus{}, &timeres.Status{},
	&v1alpha1.AcquireConfigSpec{}, &v1alpha1.AcquireConfigStatus{}, &v1alpha1.Service{},
}
