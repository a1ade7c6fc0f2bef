package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"golang.org/x/mod/semver"

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// checkMachines returns the requirements of a cluster's components that its plan, or the stack's backup, does not meet.
func checkMachines(stored spec.Backup, planned spec.Cluster, needs []requirements) []string {
	var problems []string

	machines := machinesOf(planned)
	for _, machine := range machines {
		problems = append(problems, machine.checkVolumes()...)
	}

	for _, r := range needs {
		for _, m := range r.Machines {
			for _, machine := range machines {
				if machine.matches(m.On, planned) {
					problems = append(problems, machine.check(r.Component, m)...)
				}
			}
		}

		if r.Cluster.Backup && (stored.S3 == nil || backup.SingleRecipient(stored.Recipients) == "") {
			problems = append(problems, r.Component+" needs a bucket and a public key: set backup.s3 and backup.recipients, of which "+
				"one must be of the kind X25519 (age1…)")
		}

		for _, problem := range checkCluster(planned, r.Cluster) {
			problems = append(problems, r.Component+" needs "+problem)
		}
	}

	slices.Sort(problems)

	return slices.Compact(problems)
}

// machine is a node with the machine configuration from the patches of the stack file.
type machine struct {
	spec.Node
	documents []map[string]any
	// unknown says that some patches are encrypted, so that they may have what seems to be missing.
	unknown bool
}

func machinesOf(planned spec.Cluster) []machine {
	var machines []machine
	for _, node := range planned.Nodes() {
		machines = append(machines, newMachine(planned, node))
	}

	return machines
}

// newMachine applies the patches of a node's cluster and pool to an empty configuration, as Talos does.
func newMachine(planned spec.Cluster, node spec.Node) machine {
	kind := "worker"
	if node.Role == spec.RoleControlPlane {
		kind = "controlplane"
	}

	m := machine{Node: node}
	text := []byte("version: v1alpha1\nmachine: {type: " + kind + "}\ncluster: {}\n")

	for _, patch := range slices.Concat(planned.Patches, node.Patches) {
		patched, err := talos.Patched(string(text), []string{patch})
		if err != nil { // the placeholder of an encrypted patch: invalid patches were refused with the plan
			m.unknown = true

			continue
		}

		text = patched
	}

	for decoder := yaml.NewDecoder(strings.NewReader(string(text))); ; {
		var document map[string]any
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) || err != nil {
			return m
		}

		m.documents = append(m.documents, document)
	}
}

// matches reports whether a requirement on controlPlanes, workers or all is one on this machine. Workers are machines
// that run pods, including those with taints.
func (m machine) matches(on string, planned spec.Cluster) bool {
	switch on {
	case "controlPlanes":
		return m.Role == spec.RoleControlPlane
	case "workers":
		return m.Role != spec.RoleControlPlane || planned.AllowSchedulingOnControlPlanes
	default:
		return true
	}
}

// taints returns the taints that keep pods off a machine, including that of GPUs: key → value:Effect.
func (m machine) taints() map[string]string {
	taints := maps.Clone(m.Taints)
	maps.DeleteFunc(taints, func(_, taint string) bool { return strings.HasSuffix(taint, ":PreferNoSchedule") })

	if m.Dedicated {
		if taints == nil {
			taints = map[string]string{}
		}

		taints["nvidia.com/gpu"] = "present:NoSchedule"
	}

	return taints
}

// toleratedBy reports whether pods with these tolerations can run on a machine. A value that is not a list is a
// template of its chart, and is assumed to tolerate everything.
func (m machine) toleratedBy(tolerations any) bool {
	list, ok := tolerations.([]any)
	if tolerations != nil && !ok {
		return true
	}

	for key := range m.taints() {
		if !slices.ContainsFunc(list, func(one any) bool {
			toleration, _ := one.(map[string]any)

			return toleration["key"] == nil || toleration["key"] == key
		}) {
			return false
		}
	}

	return true
}

// driverSuffix is the suffix of a template's class for machines with a GPU, which its key in the stack file lacks.
var driverSuffix = regexp.MustCompile(`-nvidia-(open|nonfree)-(lts|production)$`)

// check returns the requirements that a machine does not meet, with its pool.
func (m machine) check(component string, needs machineNeeds) []string {
	var problems []string

	// Requirements on all machines are reported once per cluster.
	where := m.Path
	if cluster, _, found := strings.Cut(m.Path, "]."); needs.On == "all" && found {
		where = cluster + "]"
	}

	report := func(needed, advice string) {
		if m.unknown {
			advice = "unless its encrypted patches have it: " + advice
		}

		problems = append(problems, fmt.Sprintf("%s needs %s, which %s of cluster %s lacks: %s",
			component, needed, where, m.Cluster, advice))
	}

	for _, extension := range needs.Extensions {
		if !slices.Contains(m.Template.Extensions, extension) {
			problems = append(problems, fmt.Sprintf("%s needs the extension %s, which %s of cluster %s lacks: add %s to "+
				"templates.%s.extensions", component, extension, m.Path, m.Cluster, strings.TrimPrefix(extension, "siderolabs/"),
				driverSuffix.ReplaceAllString(m.Template.Key, "")))
		}
	}

	for key, taint := range m.taints() {
		if len(needs.Tolerates) > 0 && !slices.Contains(needs.Tolerates, key) {
			problems = append(problems, fmt.Sprintf("%s is not on %s of cluster %s, whose taint %s=%s keeps its pods off, so that no pod "+
				"there has its volumes: add the taint to the tolerations of its release, and its key to tolerates in requirements.yaml",
				component, m.Path, m.Cluster, key, taint))
		}
	}

	for _, name := range needs.UserVolumes {
		if !m.hasVolume(name) {
			report("the user volume "+name, fmt.Sprintf("add a UserVolumeConfig of that name to %s.patches (docs/gitops.md#volumes)", where))
		}
	}

	modules, _ := m.field("machine.kernel.modules").([]any)
	for _, name := range needs.KernelModules {
		if !slices.ContainsFunc(modules, func(one any) bool {
			module, _ := one.(map[string]any)

			return module["name"] == name
		}) {
			report("the kernel module "+name, "add it to machine.kernel.modules in "+where+".patches")
		}
	}

	for name, value := range needs.Config {
		found := m.field(name)

		list, isList := found.([]any)
		if !isList {
			list = []any{found}
		}

		if !slices.ContainsFunc(list, func(one any) bool { return one != nil && fmt.Sprint(one) == value }) {
			add := "add it to " + where + ".patches"
			if document, path := talos.InDocument(name); document != "" {
				add += fmt.Sprintf(", for a cluster created with Talos 1.14 or later as %s of the document %s", path, document)
			}

			report(fmt.Sprintf("%s: %s in the machine configuration", name, value), add)
		}
	}

	sysctls, _ := m.field("machine.sysctls").(map[string]any)
	for name, value := range needs.Sysctls {
		if fmt.Sprint(sysctls[name]) != value {
			report(fmt.Sprintf("the sysctl %s=%s", name, value), "add it to machine.sysctls in "+where+".patches")
		}
	}

	return problems
}

func (m machine) hasVolume(name string) bool {
	return slices.ContainsFunc(m.documents, func(d map[string]any) bool {
		return d["kind"] == "UserVolumeConfig" && d["name"] == name
	})
}

// field returns a field of the machine configuration's main document, or of the document that replaces it; nil = it is
// not set.
func (m machine) field(name string) any {
	kind, path := talos.InDocument(name)

	for _, document := range m.documents {
		var (
			value any = document
			at        = name
		)

		if of, isOther := document["kind"]; isOther {
			if at = path; of != kind {
				continue
			}
		}

		for key := range strings.SplitSeq(at, ".") {
			fields, _ := value.(map[string]any)
			value = fields[key]
		}

		if value != nil {
			return value
		}
	}

	return nil
}

func checkCluster(planned spec.Cluster, needs clusterNeeds) []string {
	var problems []string

	for _, version := range []struct{ of, needs, has string }{
		{"Talos", needs.Talos, planned.TalosVersion}, {"Kubernetes", needs.Kubernetes, planned.KubernetesVersion},
	} {
		if version.needs != "" && semver.Compare(version.has, version.needs) < 0 {
			problems = append(problems, fmt.Sprintf("%s %s, and cluster %s has %s: upgrade it, or remove the component from the "+
				"cluster's kustomization.yaml", version.of, version.needs, planned.Name, version.has))
		}
	}

	for _, account := range needs.Proxmox {
		x := planned.Proxmox
		if x == nil || account == "csi" && x.CSI == nil || account == "cloudController" && x.CloudController == nil {
			problems = append(problems, fmt.Sprintf("an account on Proxmox: set proxmox.%s of cluster %s",
				account, planned.Name))
		}
	}

	if needs.DefaultStorageClass && (planned.Proxmox == nil || !slices.ContainsFunc(planned.Proxmox.StorageClasses,
		func(c spec.StorageClass) bool { return c.Default })) {
		problems = append(problems, fmt.Sprintf("a default storage class: set default: true of one of proxmox.csi.storageClasses of "+
			"cluster %s", planned.Name))
	}

	switch cni := planned.CNI; {
	case needs.CNI != "" && cni == nil:
		problems = append(problems, fmt.Sprintf("cni.kind: %s of cluster %s, which the program installs before Flux: set it",
			needs.CNI, planned.Name))
	case needs.GatewayAPI && (cni == nil || !cni.GatewayAPI):
		problems = append(problems, fmt.Sprintf("the Gateway API: set cni.gatewayApi: true of cluster %s", planned.Name))
	case needs.LoadBalancer && (cni == nil || len(cni.LoadBalancer) == 0):
		problems = append(problems, fmt.Sprintf("an address for its Service: set cni.loadBalancer.addresses of cluster %s",
			planned.Name))
	}

	switch {
	case needs.GPUs == "device-plugin" && planned.GPUOperator:
		problems = append(problems, fmt.Sprintf("the program's own device plugin, and cluster %s has gpuOperator: true: list "+
			"nvidia-gpu-operator instead, or remove gpuOperator", planned.Name))
	case needs.GPUs == "gpu-operator" && !planned.GPUOperator:
		problems = append(problems, fmt.Sprintf("gpuOperator: true of cluster %s, because otherwise there are two device plugins: set it, or list "+
			"nvidia-dcgm-exporter instead", planned.Name))
	}

	return problems
}
