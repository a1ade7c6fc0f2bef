package machine

import (
	"encoding/json"
	"strconv"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/extensions"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	timeres "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"

	"proxmox-talos/lab/machine/kube"
	"proxmox-talos/lab/machine/resources"
)

// describe lists what the machine is at this moment; the caller holds the lock.
func (m *machine) describe() []resource.Resource {
	list := m.describeSystem()
	list = append(list, m.describeHardware()...)
	list = append(list, m.kernel.Resources(m.config, m.net.Cards())...)
	list = append(list, m.disks.Resources(m.config)...)
	list = append(list, m.net.Resources(m.hostname, m.heldIPs())...)

	if m.config != nil {
		list = append(list, m.describeCluster()...)
		list = append(list, m.describeKubernetes()...)
		list = append(list, m.describeSecrets()...)
	}

	return list
}

func (m *machine) describeSystem() []resource.Resource {
	unmet := m.unmet()

	list := []resource.Resource{
		resources.Filled(runtime.NewMachineStatus(), func(r *runtime.MachineStatus) {
			r.TypedSpec().Stage = m.stage
			r.TypedSpec().Status.Ready = len(unmet) == 0
			r.TypedSpec().Status.UnmetConditions = unmet
		}),
		resources.Filled(runtime.NewVersion(), func(r *runtime.Version) { r.TypedSpec().Version = m.system.Version }),
		resources.Filled(runtime.NewKernelCmdline(), func(r *runtime.KernelCmdline) { r.TypedSpec().Cmdline = m.cmdline() }),
		resources.Filled(runtime.NewSecurityStateSpec(runtime.NamespaceName), func(r *runtime.SecurityState) { r.TypedSpec().SELinuxState = runtime.SELinuxStatePermissive }),
		resources.Filled(runtime.NewPlatformMetadataSpec(runtime.NamespaceName, runtime.PlatformMetadataID), func(r *runtime.PlatformMetadata) {
			r.TypedSpec().Platform, r.TypedSpec().Hostname = m.system.Platform, m.net.PlatformHostname
		}),
		resources.Filled(timeres.NewStatus(), func(r *timeres.Status) { r.TypedSpec().Synced = true }),
	}

	for tag, value := range m.disk.META {
		list = append(list, resources.Filled(runtime.NewMetaKey(runtime.NamespaceName, runtime.MetaKeyTagToID(tag)), func(r *runtime.MetaKey) { r.TypedSpec().Value = value }))
	}

	for i, e := range m.extensions {
		list = append(list, m.extensionStatus(i, e.Name, e.Version))
	}

	if m.system.Schematic != "" {
		list = append(list, m.extensionStatus(len(m.extensions), "schematic", m.system.Schematic))
	}

	for _, s := range m.services.list() {
		list = append(list, resources.Filled(v1alpha1.NewService(s.name), func(r *v1alpha1.Service) {
			r.TypedSpec().Running, r.TypedSpec().Healthy, r.TypedSpec().Unknown = s.state == stateRunning, m.healthy(s), s.unknown
		}))
	}

	if m.config != nil {
		for _, c := range m.config.ExtensionServiceConfigs() {
			list = append(list, resources.Filled(runtime.NewExtensionServiceConfigSpec(runtime.NamespaceName, c.Name()), func(r *runtime.ExtensionServiceConfig) {
				r.TypedSpec().Environment = c.Environment()

				for _, f := range c.ConfigFiles() {
					r.TypedSpec().Files = append(r.TypedSpec().Files, runtime.ExtensionServiceConfigFile{Content: f.Content(), MountPath: f.MountPath()})
				}
			}))
		}

		list = append(list, configres.NewMachineConfigWithID(m.config, configres.ActiveID))
		machineType := configres.NewMachineType()
		machineType.SetMachineType(m.config.Machine().Type())
		list = append(list, machineType)
	}

	return list
}

// extensionStatus shows an extension as Talos lists it: by its place, with its short name. The pseudo extension "schematic" has the schematic's id as version.
func (m *machine) extensionStatus(place int, name, version string) resource.Resource {
	return resources.Filled(runtime.NewExtensionStatus(runtime.NamespaceName, strconv.Itoa(place)), func(r *runtime.ExtensionStatus) {
		*r.TypedSpec() = extensions.Layer{
			Image:    strconv.Itoa(place) + ".sqsh",
			Metadata: extensions.Metadata{Name: name, Version: version, Author: "Image Factory", Description: "Extension of the schematic " + m.system.Schematic},
		}
	})
}

// describeHardware is what the firmware says of the virtual machine.
func (m *machine) describeHardware() []resource.Resource {
	return []resource.Resource{
		resources.Filled(hardware.NewSystemInformation(hardware.SystemInformationID), func(r *hardware.SystemInformation) {
			s := r.TypedSpec()
			s.Manufacturer, s.ProductName, s.Version, s.UUID, s.WakeUpType = "QEMU", "Standard PC (Q35 + ICH9, 2009)", "pc-q35-10.1", m.hw.UUID, "Power Switch"
		}),
		resources.Filled(hardware.NewProcessorInfo("CPU-0"), func(r *hardware.Processor) {
			s := r.TypedSpec()
			s.Socket, s.Manufacturer, s.ProductName, s.MaxSpeed, s.BootSpeed = "CPU 0", "QEMU", "pc-q35-10.1", 2000, 2000
			s.CoreCount, s.CoreEnabled, s.ThreadCount, s.Status = uint32(m.hw.Cores), uint32(m.hw.Cores), uint32(m.hw.Cores), 65
		}),
		resources.Filled(hardware.NewMemoryModuleInfo("DIMM-0"), func(r *hardware.MemoryModule) {
			r.TypedSpec().Size, r.TypedSpec().DeviceLocator, r.TypedSpec().Manufacturer = uint32(m.hw.MemoryMiB), "DIMM 0", "QEMU"
		}),
	}
}

// describeSecrets are resources that only administrators read.
func (m *machine) describeSecrets() []resource.Resource {
	security, c := m.config.Machine().Security(), m.config.Cluster()

	list := []resource.Resource{
		resources.Filled(secrets.NewOSRoot(secrets.OSRootID), func(r *secrets.OSRoot) {
			r.TypedSpec().IssuingCA, r.TypedSpec().AcceptedCAs, r.TypedSpec().Token = security.IssuingCA(), security.AcceptedCAs(), security.Token()
		}),
	}

	if m.isControlPlane() {
		list = append(list,
			resources.Filled(secrets.NewKubernetesRoot(secrets.KubernetesRootID), func(r *secrets.KubernetesRoot) {
				r.TypedSpec().Name, r.TypedSpec().Endpoint, r.TypedSpec().IssuingCA, r.TypedSpec().AcceptedCAs = c.Name(), c.Endpoint(), c.IssuingCA(), c.AcceptedCAs()
			}),
			resources.Filled(secrets.NewEtcdRoot(secrets.EtcdRootID), func(r *secrets.EtcdRoot) { r.TypedSpec().EtcdCA = c.Etcd().CA() }),
		)
	}

	return list
}

func (m *machine) describeKubernetes() []resource.Resource {
	list := []resource.Resource{
		resources.Filled(k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID), func(r *k8s.Nodename) {
			r.TypedSpec().Nodename, r.TypedSpec().SkipNodeRegistration = m.hostname, m.config.Machine().Kubelet().SkipNodeRegistration()
		}),
		resources.Filled(k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID), func(r *k8s.KubeletSpec) {
			r.TypedSpec().Image, r.TypedSpec().ExpectedNodename = m.config.Machine().Kubelet().Image(), m.hostname
		}),
	}

	if m.net.Node.IsValid() {
		list = append(list, resources.Filled(k8s.NewNodeIP(k8s.NamespaceName, k8s.KubeletID), func(r *k8s.NodeIP) { r.TypedSpec().Addresses = append(r.TypedSpec().Addresses, m.net.Node) }))
	}

	if e := m.etcdOfNode(); e != nil {
		node := e.nodes[m.hostname]
		ready, _, _ := e.nodeState(node)

		list = append(list, resources.Filled(k8s.NewNodeStatus(k8s.NamespaceName, node.Name), func(r *k8s.NodeStatus) {
			s := r.TypedSpec()
			s.Nodename, s.NodeReady, s.Unschedulable, s.Labels, s.Annotations = node.Name, ready == "True", node.Unschedulable, node.Labels, node.Annotations
		}))
	}

	list = append(list, m.describeControlPlane()...)
	list = append(list, m.describeManifests()...)
	list = append(list, m.describeNodeSpecs()...)

	for _, pod := range m.staticPods() {
		list = append(list, resources.Filled(k8s.NewStaticPodStatus(k8s.NamespaceName, pod.Metadata.Namespace+"/"+pod.Metadata.Name), func(r *k8s.StaticPodStatus) {
			r.TypedSpec().PodStatus = podStatus(pod)
		}))
	}

	return list
}

func podStatus(pod kube.Object) map[string]any {
	var status map[string]any
	if err := json.Unmarshal(mustJSON(pod.Status), &status); err != nil {
		panic(err) // it has just been encoded
	}

	return status
}
