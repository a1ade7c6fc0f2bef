package resources

import (
	"context"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/api/inspect"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	clusterres "github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	etcdres "github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	timeres "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
	"google.golang.org/protobuf/types/known/emptypb"
)

// controller is one of Talos' controllers: the types it reads and the one it writes.
type controller struct {
	name   string
	reads  []resource.Type
	writes resource.Type
	shared bool // other controllers write the type, too
}

// controllers are those of Talos 1.12 that write what the lab's machines show.
var controllers = []controller{
	{name: "block.DiscoveryController", reads: []resource.Type{block.DeviceType}, writes: block.DiscoveredVolumeType},
	{name: "block.DisksController", reads: []resource.Type{block.DeviceType, block.SymlinkType}, writes: block.DiskType},
	{
		name:   "block.MountController",
		reads:  []resource.Type{block.MountRequestType, block.VolumeStatusType},
		writes: block.MountStatusType,
	},
	{
		name: "block.VolumeManagerController", writes: block.VolumeStatusType,
		reads: []resource.Type{
			block.VolumeConfigType, block.DiscoveredVolumeType, block.DiskType, block.SystemDiskType,
			hardware.SystemInformationType,
		},
	},
	{
		name:   "cluster.AffiliateMergeController",
		reads:  []resource.Type{clusterres.AffiliateType},
		writes: clusterres.AffiliateType,
		shared: true,
	},
	{
		name: "cluster.LocalAffiliateController", writes: clusterres.AffiliateType, shared: true,
		reads: []resource.Type{
			clusterres.ConfigType, clusterres.IdentityType, network.HostnameStatusType, k8s.NodenameType,
			network.NodeAddressType, configres.MachineTypeType,
		},
	},
	{name: "cluster.MemberController", reads: []resource.Type{clusterres.AffiliateType}, writes: clusterres.MemberType},
	{
		name:   "config.MachineTypeController",
		reads:  []resource.Type{configres.MachineConfigType},
		writes: configres.MachineTypeType,
	},
	{name: "etcd.MemberController", reads: []resource.Type{v1alpha1.ServiceType}, writes: etcdres.MemberType},
	{
		name:   "etcd.SpecController",
		reads:  []resource.Type{etcdres.ConfigType, network.HostnameStatusType, network.NodeAddressType},
		writes: etcdres.SpecType,
	},
	{name: "hardware.PCIDevicesController", reads: []resource.Type{v1alpha1.ServiceType}, writes: hardware.PCIDeviceType},
	{
		name:   "hardware.SystemInfoController",
		reads:  []resource.Type{runtime.MetaKeyType},
		writes: hardware.SystemInformationType,
	},
	{
		name:   "k8s.ExtraManifestController",
		reads:  []resource.Type{k8s.ExtraManifestsConfigType, network.StatusType},
		writes: k8s.ManifestType,
		shared: true,
	},
	{
		name:   "k8s.KubeletSpecController",
		reads:  []resource.Type{k8s.KubeletConfigType, k8s.NodenameType, k8s.NodeIPType, configres.MachineTypeType},
		writes: k8s.KubeletSpecType,
	},
	{
		name:   "k8s.KubeletStaticPodController",
		reads:  []resource.Type{k8s.NodenameType, v1alpha1.ServiceType},
		writes: k8s.StaticPodStatusType,
	},
	{
		name:   "k8s.ManifestApplyController",
		reads:  []resource.Type{secrets.KubernetesType, k8s.ManifestType, v1alpha1.ServiceType},
		writes: k8s.ManifestStatusType,
	},
	{
		name:   "k8s.ManifestController",
		reads:  []resource.Type{k8s.BootstrapManifestsConfigType, secrets.KubernetesRootType},
		writes: k8s.ManifestType,
		shared: true,
	},
	{
		name:   "k8s.NodeIPController",
		reads:  []resource.Type{k8s.NodeIPConfigType, network.NodeAddressType},
		writes: k8s.NodeIPType,
	},
	{
		name:   "k8s.NodenameController",
		reads:  []resource.Type{configres.MachineConfigType, network.HostnameStatusType},
		writes: k8s.NodenameType,
	},
	{name: "k8s.NodeStatusController", reads: []resource.Type{k8s.NodenameType}, writes: k8s.NodeStatusType},
	{name: "network.AddressStatusController", writes: network.AddressStatusType, shared: true},
	{
		name:   "network.HostnameSpecController",
		reads:  []resource.Type{network.HostnameSpecType},
		writes: network.HostnameStatusType,
	},
	{name: "network.LinkStatusController", writes: network.LinkStatusType},
	{
		name:   "network.NodeAddressController",
		reads:  []resource.Type{network.AddressStatusType, network.LinkStatusType},
		writes: network.NodeAddressType,
	},
	{
		name:   "network.ResolverSpecController",
		reads:  []resource.Type{network.ResolverSpecType},
		writes: network.ResolverStatusType,
	},
	{name: "network.RouteStatusController", writes: network.RouteStatusType},
	{name: "runtime.ExtensionStatusController", writes: runtime.ExtensionStatusType},
	{name: "runtime.KernelCmdlineController", writes: runtime.KernelCmdlineType},
	{
		name:   "runtime.KernelModuleConfigController",
		reads:  []resource.Type{configres.MachineConfigType},
		writes: runtime.KernelModuleSpecType,
		shared: true,
	},
	{
		name:   "runtime.KernelParamSpecController",
		reads:  []resource.Type{runtime.KernelParamSpecType},
		writes: runtime.KernelParamStatusType,
	},
	{name: "runtime.LoadedKernelModuleController", writes: runtime.LoadedKernelModuleType},
	{
		name: "runtime.MachineStatusController", writes: runtime.MachineStatusType,
		reads: []resource.Type{
			timeres.StatusType, network.StatusType, v1alpha1.ServiceType, k8s.StaticPodStatusType, configres.MachineTypeType,
			k8s.NodenameType, k8s.NodeStatusType,
		},
	},
	{
		name:   "runtime.SecurityStateController",
		reads:  []resource.Type{v1alpha1.ServiceType},
		writes: runtime.SecurityStateType,
	},
	{name: "time.SyncController", writes: timeres.StatusType},
}

// InspectServer implements the inspect service.
type InspectServer struct {
	inspect.UnimplementedInspectServiceServer
}

// ControllerRuntimeDependencies implements the inspect service.
func (InspectServer) ControllerRuntimeDependencies(
	context.Context, *emptypb.Empty,
) (*inspect.ControllerRuntimeDependenciesResponse, error) {
	namespaces := map[resource.Type]resource.Namespace{}

	for _, r := range shownTypes {
		definition := r.ResourceDefinition()
		namespaces[definition.Type] = definition.DefaultNamespace
	}

	graph := &inspect.ControllerRuntimeDependency{}
	add := func(c controller, of resource.Type, kind inspect.DependencyEdgeType) {
		graph.Edges = append(graph.Edges, &inspect.ControllerDependencyEdge{
			ControllerName: c.name, EdgeType: kind, ResourceNamespace: namespaces[of], ResourceType: of,
		})
	}

	for _, c := range controllers {
		for _, read := range c.reads {
			add(c, read, inspect.DependencyEdgeType_INPUT_WEAK)
		}

		if c.shared {
			add(c, c.writes, inspect.DependencyEdgeType_OUTPUT_SHARED)
		} else {
			add(c, c.writes, inspect.DependencyEdgeType_OUTPUT_EXCLUSIVE)
		}
	}

	return &inspect.ControllerRuntimeDependenciesResponse{Messages: []*inspect.ControllerRuntimeDependency{graph}}, nil
}
