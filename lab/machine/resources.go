package machine

import (
	"cmp"
	"encoding/json"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/extensions"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	timeres "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"

	"proxmox-talos/lab/machine/kube"
)

// filled sets the spec of a new resource.
func filled[R any](r R, set func(R)) R {
	set(r)

	return r
}

// describe lists what the machine is at this moment; the caller holds the lock.
func (m *machine) describe() []resource.Resource {
	list := m.describeSystem()
	list = append(list, m.describeHardware()...)
	list = append(list, m.describeNetwork()...)

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
		filled(runtime.NewMachineStatus(), func(r *runtime.MachineStatus) {
			r.TypedSpec().Stage = m.stage
			r.TypedSpec().Status.Ready = len(unmet) == 0
			r.TypedSpec().Status.UnmetConditions = unmet
		}),
		filled(runtime.NewVersion(), func(r *runtime.Version) { r.TypedSpec().Version = m.system.Version }),
		filled(runtime.NewKernelCmdline(), func(r *runtime.KernelCmdline) { r.TypedSpec().Cmdline = m.cmdline() }),
		filled(runtime.NewSecurityStateSpec(runtime.NamespaceName), func(r *runtime.SecurityState) { r.TypedSpec().SELinuxState = runtime.SELinuxStatePermissive }),
		filled(runtime.NewPlatformMetadataSpec(runtime.NamespaceName, runtime.PlatformMetadataID), func(r *runtime.PlatformMetadata) {
			r.TypedSpec().Platform, r.TypedSpec().Hostname = m.system.Platform, m.net.hostname
		}),
		filled(timeres.NewStatus(), func(r *timeres.Status) { r.TypedSpec().Synced = true }),
	}

	for tag, value := range m.disk.META {
		list = append(list, filled(runtime.NewMetaKey(runtime.NamespaceName, runtime.MetaKeyTagToID(tag)), func(r *runtime.MetaKey) { r.TypedSpec().Value = value }))
	}

	for i, e := range m.schematic.Extensions {
		list = append(list, m.extensionStatus(i, baseName(e), m.extensionVersion(e)))
	}

	if m.system.Schematic != "" {
		list = append(list, m.extensionStatus(len(m.schematic.Extensions), "schematic", m.system.Schematic))
	}

	list = append(list, m.describeModules()...)

	for _, s := range m.services.list() {
		list = append(list, filled(v1alpha1.NewService(s.name), func(r *v1alpha1.Service) {
			r.TypedSpec().Running, r.TypedSpec().Healthy, r.TypedSpec().Unknown = s.state == stateRunning, m.healthy(s), s.unknown
		}))
	}

	if m.config != nil {
		for _, c := range m.config.ExtensionServiceConfigs() {
			list = append(list, filled(runtime.NewExtensionServiceConfigSpec(runtime.NamespaceName, c.Name()), func(r *runtime.ExtensionServiceConfig) {
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

// extensionVersion is the version of an extension of the machine's image.
func (m *machine) extensionVersion(extension string) string {
	if m.ms.options.ExtensionVersion == nil {
		return m.system.Version
	}

	return cmp.Or(m.ms.options.ExtensionVersion(m.system.Version, extension), m.system.Version)
}

// extensionStatus shows an extension as Talos lists it: by its place, with its short name. The pseudo extension "schematic" has the schematic's id as version.
func (m *machine) extensionStatus(place int, name, version string) resource.Resource {
	return filled(runtime.NewExtensionStatus(runtime.NamespaceName, itoa(place)), func(r *runtime.ExtensionStatus) {
		*r.TypedSpec() = extensions.Layer{
			Image:    itoa(place) + ".sqsh",
			Metadata: extensions.Metadata{Name: name, Version: version, Author: "Image Factory", Description: "Extension of the schematic " + m.system.Schematic},
		}
	})
}

// describeSecrets are resources that only administrators read.
func (m *machine) describeSecrets() []resource.Resource {
	security, c := m.config.Machine().Security(), m.config.Cluster()

	list := []resource.Resource{
		filled(secrets.NewOSRoot(secrets.OSRootID), func(r *secrets.OSRoot) {
			r.TypedSpec().IssuingCA, r.TypedSpec().AcceptedCAs, r.TypedSpec().Token = security.IssuingCA(), security.AcceptedCAs(), security.Token()
		}),
	}

	if m.isControlPlane() {
		list = append(list,
			filled(secrets.NewKubernetesRoot(secrets.KubernetesRootID), func(r *secrets.KubernetesRoot) {
				r.TypedSpec().Name, r.TypedSpec().Endpoint, r.TypedSpec().IssuingCA, r.TypedSpec().AcceptedCAs = c.Name(), c.Endpoint(), c.IssuingCA(), c.AcceptedCAs()
			}),
			filled(secrets.NewEtcdRoot(secrets.EtcdRootID), func(r *secrets.EtcdRoot) { r.TypedSpec().EtcdCA = c.Etcd().CA() }),
		)
	}

	return list
}

func (m *machine) describeKubernetes() []resource.Resource {
	list := []resource.Resource{
		filled(k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID), func(r *k8s.Nodename) {
			r.TypedSpec().Nodename, r.TypedSpec().SkipNodeRegistration = m.hostname, m.config.Machine().Kubelet().SkipNodeRegistration()
		}),
		filled(k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID), func(r *k8s.KubeletSpec) {
			r.TypedSpec().Image, r.TypedSpec().ExpectedNodename = m.config.Machine().Kubelet().Image(), m.hostname
		}),
	}

	if m.net.node.IsValid() {
		list = append(list, filled(k8s.NewNodeIP(k8s.NamespaceName, k8s.KubeletID), func(r *k8s.NodeIP) { r.TypedSpec().Addresses = append(r.TypedSpec().Addresses, m.net.node) }))
	}

	if e := m.etcdOfNode(); e != nil {
		node := e.nodes[m.hostname]
		ready, _, _ := e.nodeState(node)

		list = append(list, filled(k8s.NewNodeStatus(k8s.NamespaceName, node.Name), func(r *k8s.NodeStatus) {
			s := r.TypedSpec()
			s.Nodename, s.NodeReady, s.Unschedulable, s.Labels, s.Annotations = node.Name, ready == "True", node.Unschedulable, node.Labels, node.Annotations
		}))
	}

	list = append(list, m.describeControlPlane()...)
	list = append(list, m.describeManifests()...)
	list = append(list, m.describeNodeSpecs()...)

	for _, pod := range m.staticPods() {
		list = append(list, filled(k8s.NewStaticPodStatus(k8s.NamespaceName, pod.Metadata.Namespace+"/"+pod.Metadata.Name), func(r *k8s.StaticPodStatus) {
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
