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
	"github.com/siderolabs/talos/pkg/machinery/resources/kubespan"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/perf"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
)

// registeredNamespaces are Talos' namespaces of resources.
var registeredNamespaces = []resource.Namespace{
	v1alpha1.NamespaceName, clusterres.NamespaceName, clusterres.RawNamespaceName, configres.NamespaceName,
	etcdres.NamespaceName, files.NamespaceName,
	hardware.NamespaceName, k8s.NamespaceName, k8s.ControlPlaneNamespaceName, kubespan.NamespaceName,
	network.NamespaceName, network.ConfigNamespaceName,
	cri.NamespaceName, secrets.NamespaceName, perf.NamespaceName,
}

// registeredTypes are the types that clients of the lab's machines read, including Talos' own libraries. Types that
// nothing fills are empty.
var registeredTypes = []meta.ResourceWithRD{
	&block.SystemDisk{}, &block.VolumeStatus{},
	&clusterres.Info{}, &clusterres.Member{},
	&configres.MachineConfig{}, &configres.MachineType{},
	&etcdres.Member{}, &etcdres.Spec{},
	&hardware.PCIDevice{},
	&k8s.APIServerConfig{}, &k8s.BootstrapManifestsConfig{}, &k8s.ControllerManagerConfig{}, &k8s.KubeletConfig{},
	&k8s.KubeletSpec{}, &k8s.Manifest{}, &k8s.NodeIP{}, &k8s.Nodename{}, &k8s.SchedulerConfig{}, &k8s.StaticPod{},
	&k8s.StaticPodStatus{},
	&network.AddressStatus{}, &network.HostnameStatus{}, &network.LinkStatus{}, &network.NodeAddress{},
	&network.RouteStatus{},
	&runtime.Diagnostic{}, &runtime.ExtensionStatus{}, &runtime.LoadedKernelModule{}, &runtime.MachineStatus{},
	&runtime.MountStatus{}, &runtime.SecurityState{},
	&secrets.EtcdRoot{}, &secrets.KubernetesRoot{}, &secrets.OSRoot{},
	&v1alpha1.Service{},
}
