package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/internal/request"
)

const proxmoxHelp = `Hands a cluster the accounts that its software has on Proxmox, and keeps its storage classes.

The tokens become Secrets in the form that the software's charts read: csi-proxmox/proxmox-csi-plugin for the Proxmox
CSI plugin, with its namespace, and kube-system/proxmox-cloud-controller-manager for the cloud controller manager. Each
has config.yaml and, where a certificate authority is set, ca.crt.

Objects are applied by the server and have the label talos-proxmox/part=proxmox. Those with the label that are not set
any more are deleted; volumes stay. An object of the same name without the label is somebody else's: then the verb ends
with an error and says whose. A storage class whose parameters change is deleted and made again, which Kubernetes asks
for, and which does nothing to volumes.

Control planes are asked on their own addresses, one that answers is enough. The request comes as JSON on standard
input; timeout (default 15m) and interval (default 2s) can be omitted. The result is one line of JSON on standard
output, without secrets.`

const proxmoxExample = `  talosops proxmox --timeout 5m < request.json

  request.json:
  {
    "kubeconfig": "apiVersion: v1\nkind: Config\n…",
    "controlPlanes": [{"name": "prod-cp-1", "address": "10.0.0.10"}],
    "region": "homelab", "url": "https://10.0.0.2:8006/api2/json",
    "tokens": {"csi": "talos-prod-csi@pve!kubernetes-1=…"},
    "storageClasses": [{"name": "fast", "datastore": "local-zfs", "fsType": "ext4", "reclaimPolicy": "Delete"}]
  }`

// proxmoxRequest has secrets: tokens and the kubeconfig.
type proxmoxRequest struct {
	request.Proxmox
	limits
}

func (r *proxmoxRequest) problems() []string {
	problems := nodeProblems(r.ControlPlanes)
	if _, err := parseKubeconfig(r.Kubeconfig); err != nil {
		problems = append(problems, fmt.Sprintf("kubeconfig: %v", err))
	}

	if len(r.Tokens) > 0 && (r.Region == "" || !strings.HasPrefix(r.URL, "https://")) {
		problems = append(
			problems, "region and url: are missing beside tokens: set both, such as https://10.0.0.2:8006/api2/json",
		)
	}

	for what, token := range r.Tokens {
		if !slices.Contains([]string{request.ForCSI, request.ForCCM}, what) {
			problems = append(problems, fmt.Sprintf("tokens.%s: is for nothing that is known: use csi or ccm", what))
		}

		if id, secret, _ := strings.Cut(token, "="); !strings.Contains(id, "!") || secret == "" {
			problems = append(problems, fmt.Sprintf("tokens.%s: is not of the form user@realm!name=secret", what))
		}
	}

	slices.Sort(problems)

	return problems
}

func newProxmox() *cobra.Command {
	cmd := &cobra.Command{
		Use: "proxmox", Short: "Hand a cluster its accounts on Proxmox, and keep its storage classes",
		Long: proxmoxHelp, Example: proxmoxExample,
	}

	return withRequest(cmd, func() *proxmoxRequest { return &proxmoxRequest{} }, runProxmox)
}

func runProxmox(cmd *cobra.Command, req *proxmoxRequest) error {
	kubernetes, err := newKubernetesAPI(req.Kubeconfig)
	if err != nil {
		return err
	}

	objects, err := req.objects()
	if err != nil {
		return err
	}

	h := &handover{watch: newWatch(&req.limits, cmd.ErrOrStderr()), req: req, kubernetes: kubernetes, objects: objects}
	if err := h.apply(cmd.Context()); err != nil {
		return err
	}

	applied := make([]string, 0, len(objects))
	for _, o := range objects {
		applied = append(applied, o.String())
	}

	return printResult(cmd.OutOrStdout(), struct {
		Applied []string `json:"applied"`
	}{applied})
}

// What the charts of the software read.
const (
	csiNamespace = "csi-proxmox"
	csiSecret    = "proxmox-csi-plugin" //nolint:gosec // a name
	ccmNamespace = "kube-system"
	ccmSecret    = "proxmox-cloud-controller-manager" //nolint:gosec // a name
	csiDriver    = "csi.proxmox.sinextra.dev"

	keyDefaultClass = "storageclass.kubernetes.io/is-default-class"
	keyPodSecurity  = "pod-security.kubernetes.io/enforce"
)

// objects are what the cluster has to have, in the order in which they are applied.
func (r *proxmoxRequest) objects() ([]kubeApplied, error) {
	var objects []kubeApplied

	if token := r.Tokens[request.ForCSI]; token != "" {
		secret, err := r.secret(csiNamespace, csiSecret, token)
		if err != nil {
			return nil, err
		}

		objects = append(objects, kubeApplied{
			kind: kindNamespace, name: csiNamespace, shared: true,
			body: map[string]any{"metadata": map[string]any{"labels": map[string]string{keyPodSecurity: "privileged"}}},
		}, secret)
	}

	if token := r.Tokens[request.ForCCM]; token != "" {
		secret, err := r.secret(ccmNamespace, ccmSecret, token)
		if err != nil {
			return nil, err
		}

		objects = append(objects, secret)
	}

	for _, class := range r.StorageClasses {
		objects = append(objects, storageClass(class))
	}

	return objects, nil
}

// secret is a token as the software's charts read it.
func (r *proxmoxRequest) secret(namespace, name, token string) (kubeApplied, error) {
	id, secret, _ := strings.Cut(token, "=")

	config, err := yaml.Marshal(map[string]any{"clusters": []any{map[string]any{
		"url": r.URL, "insecure": r.Insecure, "token_id": id, "token_secret": secret, "region": r.Region,
	}}})
	if err != nil {
		return kubeApplied{}, errors.New("unable to encode the software's configuration")
	}

	data := map[string]string{"config.yaml": string(config)}
	if r.CA != "" {
		data["ca.crt"] = r.CA
	}

	return kubeApplied{
		kind: kindSecret, namespace: namespace, name: name, body: map[string]any{"type": "Opaque", "stringData": data},
	}, nil
}

// storageClass waits for a pod before it makes a volume, which is then on the datastore of the pod's host.
func storageClass(c request.StorageClass) kubeApplied {
	parameters := map[string]string{"storage": c.Datastore, "csi.storage.k8s.io/fstype": c.FSType}
	if c.SSD {
		parameters["ssd"] = "true"
	}

	return kubeApplied{kind: kindStorageClass, name: c.Name, body: map[string]any{
		"metadata":    map[string]any{"annotations": map[string]string{keyDefaultClass: fmt.Sprint(c.Default)}},
		"provisioner": csiDriver, "parameters": parameters, "reclaimPolicy": c.ReclaimPolicy,
		"volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
	}}
}

// handover applies a cluster's objects.
type handover struct {
	*watch

	req        *proxmoxRequest
	kubernetes *kubernetesClients
	objects    []kubeApplied
}

// apply tries again what has no answer; what Kubernetes refuses ends it.
func (h *handover) apply(ctx context.Context) error {
	had := goal{
		before: "the cluster had its accounts and storage classes",
		missed: "the cluster does not have its accounts and storage classes",
		remedy: "see what keeps the API server from answering, with talosctl --nodes <address> dmesg",
	}

	var refused *refusedError

	err := h.until(ctx, had, func(ctx context.Context) (report, bool) {
		var last finding

		for _, n := range h.req.ControlPlanes {
			err := h.applyAt(ctx, n.Address)
			if err == nil || errors.As(err, &refused) {
				return nil, true
			}

			last = finding{
				node: n.Name, check: "accounts and storage classes", problem: "the Kubernetes API does not take them",
				detail: err.Error(),
			}
		}

		return report{last}, false
	})

	if refused != nil {
		return refused
	}

	return err
}

func (h *handover) applyAt(ctx context.Context, address string) error {
	for _, o := range h.objects {
		changed, err := h.kubernetes.applyObject(ctx, address, o)
		if err != nil {
			return fmt.Errorf("%s: %w", o, err)
		}

		if changed {
			h.print(o.String() + ": applied")
		}
	}

	for _, kind := range []objectKind{kindSecret, kindStorageClass} {
		gone, err := h.kubernetes.pruneObjects(ctx, address, kind, h.objects)
		for _, name := range gone {
			h.print(name + ": deleted, it is not set any more")
		}

		if err != nil {
			return err
		}
	}

	return nil
}

// refusedError is what the Kubernetes API does not take, now or later.
type refusedError struct{ message string }

func (e *refusedError) Error() string { return e.message }

// object is an object as it is applied.
func (o kubeApplied) object() *unstructured.Unstructured {
	whole := &unstructured.Unstructured{Object: maps.Clone(o.body)}
	if whole.Object == nil {
		whole.Object = map[string]any{}
	}

	metadata := map[string]any{}
	if stated, ok := o.body["metadata"].(map[string]any); ok {
		maps.Copy(metadata, stated)
	}

	whole.Object["metadata"] = metadata
	whole.SetAPIVersion(o.kind.apiVersion)
	whole.SetKind(o.kind.name)
	whole.SetName(o.name)
	whole.SetNamespace(o.namespace)

	if !o.shared {
		whole.SetLabels(map[string]string{partLabel: partProxmox})
	}

	return whole
}
