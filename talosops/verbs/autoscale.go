package verbs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/verb"
)

const autoscaleHelp = `Gives a cluster what an autoscaler needs to add machines to a pool: docs/autoscaling.md.

The Secret kube-system/autoscale-<pool> has the machine configuration, with the cluster's secrets, as user-data; the
ConfigMap of the same name has the objects of Karpenter for the pool. With --remove, both are deleted, but not while
Proxmox has machines that the autoscaler added: the verb fails and names them. TALOS_PROXMOX_FORCE=1 leaves them.`

// autoscaleRequest has secrets: the machine configuration, the kubeconfig and the credentials for Proxmox.
type autoscaleRequest struct {
	request.Autoscale
	verb.Base
}

func (r *autoscaleRequest) Problems() problem.List {
	problems := append(verb.NodeProblems(r.ControlPlanes), r.OpenKubernetes(r.Kubeconfig)...)
	problems = append(problems, hostProblems(r.Proxmox, map[string]string{
		"pool": r.Pool, "marker": r.Marker, "region": r.Region, "template": r.Template, "resourcePool": r.PVEPool,
		"datastore": r.Datastore, "talos": r.Talos, "kubernetesVersion": r.KubernetesVersion, "userData": r.UserData,
	}, map[string]int{
		"max": r.Max, "firstVmid": r.FirstVMID, "cores": r.Cores, "memoryMiB": r.MemoryMiB, "diskGiB": r.DiskGiB,
	})...)

	if len(r.Hosts) == 0 {
		problems.Add("hosts", nil, "is missing: set it")
	}

	if _, err := template.New("").Parse(r.UserData); err != nil {
		problems.Add("userData", nil, "is not a template of Go: set what talosops' caller generates")
	}

	return problems.Sorted()
}

func runAutoscale(ctx context.Context, s *verb.Session, req *autoscaleRequest) (any, error) {
	applier := &objectApplier{
		Cluster: s.Cluster, what: "hand-over to the autoscaler of " + req.Pool, part: kube.PartAutoscale + req.Pool,
		kinds: []string{kube.KindSecret, kube.KindConfigMap},
	}

	if s.Remove {
		return nil, req.remove(ctx, applier)
	}

	text, err := req.karpenter()
	if err != nil {
		return nil, err
	}

	applier.objects = []*unstructured.Unstructured{
		req.object(kube.KindSecret, "stringData", map[string]string{"user-data": req.UserData}),
		req.object(kube.KindConfigMap, "data", map[string]string{"karpenter.yaml": text}),
	}

	return nil, applier.apply(ctx)
}

const autoscaleNamespace = "kube-system"

func (r *autoscaleRequest) name() string { return "autoscale-" + r.Pool }

func (r *autoscaleRequest) object(kind, key string, data map[string]string) *unstructured.Unstructured {
	return kube.NewObject(kube.PartAutoscale+r.Pool, kind, autoscaleNamespace, r.name(), map[string]any{key: data})
}

// remove deletes the objects, unless machines are there that the autoscaler added. A cluster that does not answer keeps
// them: it is being destroyed, or they can be deleted with kubectl.
func (r *autoscaleRequest) remove(ctx context.Context, applier *objectApplier) error {
	if os.Getenv(request.ForceVariable) == "" {
		if err := r.requireNoMachines(ctx); err != nil {
			return err
		}
	}

	var err error
	for _, n := range applier.ControlPlanes {
		if err = applier.applyAt(ctx, n.Address); err == nil {
			return nil
		}
	}

	applier.Print(fmt.Sprintf("Secret and ConfigMap %s/%s stay: %v; delete them with kubectl if the cluster stays",
		autoscaleNamespace, r.name(), err))

	return nil
}

// requireNoMachines returns an error that names the machines that the autoscaler added to the pool.
func (r *autoscaleRequest) requireNoMachines(ctx context.Context) error {
	settings := proxmoxapi.Settings(func(key string) string { return r.Proxmox[key] }, os.Getenv)

	all, err := proxmoxapi.NewMachines(settings, nil).List(ctx)
	if err != nil {
		return fmt.Errorf("Proxmox does not say whether the autoscaler's machines of pool %s are gone, nothing was deleted: "+ //nolint:staticcheck // a name
			"%w: repeat when it answers, or leave them: %s=1", r.Pool, err, request.ForceVariable)
	}

	var found []string

	for _, m := range all {
		if ownership.HasTag(m.Tags, r.Marker) {
			found = append(found, fmt.Sprintf("  VM %d %s on %s", m.VMID, m.Name, m.Host))
		}
	}

	if len(found) == 0 {
		return nil
	}

	return fmt.Errorf("machines are there that an autoscaler added to pool %s, and nothing was deleted:\n%s\n"+
		"scale in first: `kubectl delete nodepool %[1]s` drains and deletes them; or leave them, running: %[3]s=1",
		r.Pool, strings.Join(found, "\n"), request.ForceVariable)
}

// karpenter returns the objects of Karpenter and its provider for Proxmox (v0.12.0). The versions are annotations of
// the nodes' template, so that Karpenter replaces machines of others.
func (r *autoscaleRequest) karpenter() (string, error) {
	const class = "karpenter.proxmox.sinextra.dev"

	object := func(api, kind string, spec map[string]any) map[string]any {
		return map[string]any{"apiVersion": api, "kind": kind, "metadata": map[string]any{"name": r.Pool}, "spec": spec}
	}

	var taints []any

	for _, key := range slices.Sorted(maps.Keys(r.Taints)) {
		value, effect, found := strings.Cut(r.Taints[key], ":")
		if !found {
			value, effect = "", value
		}

		taint := map[string]any{"key": key, "effect": effect}
		if value != "" {
			taint["value"] = value
		}

		taints = append(taints, taint)
	}

	nodes := map[string]any{
		"nodeClassRef": map[string]any{"group": class, "kind": "ProxmoxNodeClass", "name": r.Pool},
		"requirements": []any{
			map[string]any{"key": "kubernetes.io/arch", "operator": "In", "values": []string{"amd64"}},
			map[string]any{"key": "topology.kubernetes.io/region", "operator": "In", "values": []string{r.Region}},
			map[string]any{"key": "topology.kubernetes.io/zone", "operator": "In", "values": r.Hosts},
		},
	}
	if len(taints) > 0 {
		nodes["taints"] = taints
	}

	meta := map[string]any{"annotations": map[string]string{
		"talos-proxmox/talos": r.Talos, "talos-proxmox/kubernetes": r.KubernetesVersion,
	}}
	if len(r.Labels) > 0 {
		meta["labels"] = r.Labels
	}

	objects := []any{
		object(class+"/v1alpha1", "ProxmoxUnmanagedTemplate", map[string]any{"region": r.Region, "templateName": r.Template}),
		object(class+"/v1alpha1", "ProxmoxNodeClass", map[string]any{
			"region":              r.Region,
			"instanceTemplateRef": map[string]any{"kind": "ProxmoxUnmanagedTemplate", "name": r.Pool},
			"bootDevice":          map[string]any{"size": strconv.Itoa(r.DiskGiB) + "G", "storage": r.Datastore},
			"metadataOptions": map[string]any{
				"type": "cdrom", "templatesRef": map[string]any{"name": r.name(), "namespace": autoscaleNamespace},
			},
			"resourcePool": r.PVEPool, "tags": slices.Sorted(slices.Values(append(slices.Clone(r.Tags), r.Marker))),
		}),
		object("karpenter.sh/v1", "NodePool", map[string]any{
			"limits": map[string]any{
				"cpu": strconv.Itoa(r.Max * r.Cores), "memory": strconv.Itoa(r.Max*r.MemoryMiB) + "Mi", "nodes": r.Max,
			},
			"template": map[string]any{"metadata": meta, "spec": nodes},
		}),
	}

	var text strings.Builder

	fmt.Fprintf(&text, "# Karpenter's provider for Proxmox needs PROXMOX_VMID=%d, and a token of its own:\n"+
		"# docs/permissions.md#autoscalers\n", r.FirstVMID)

	encoder := yaml.NewEncoder(&text)
	for _, o := range objects {
		if err := encoder.Encode(o); err != nil {
			return "", errors.New("unable to encode Karpenter's objects")
		}
	}

	return text.String(), encoder.Close()
}
