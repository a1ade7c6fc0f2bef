package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/verb"
)

const proxmoxHelp = `Gives a cluster the Proxmox accounts of its software, and its storage classes.

The tokens become Secrets in the form that the software's charts read: csi-proxmox/proxmox-csi-plugin for the Proxmox
CSI plugin, with its namespace, and kube-system/proxmox-cloud-controller-manager for the cloud controller manager. Each
has config.yaml and, if a certificate authority is set, ca.crt.

Objects are applied by server-side apply with the label talos-proxmox/part=proxmox. Those with the label that are no
longer set are deleted; volumes stay. An object of the same name without the label belongs to somebody else: the verb
fails and names the owner. A storage class whose parameters change is deleted and created again, because Kubernetes
allows no other way; volumes are not affected.

Control planes are asked on their own addresses; one that answers is enough.`

// proxmoxRequest has secrets: tokens and the kubeconfig.
type proxmoxRequest struct {
	request.Proxmox
	verb.Base
}

func (r *proxmoxRequest) Problems() problem.List {
	problems := append(verb.NodeProblems(r.ControlPlanes), r.OpenKubernetes(r.Kubeconfig)...)

	if len(r.Tokens) > 0 && (r.Region == "" || !strings.HasPrefix(r.URL, "https://")) {
		problems.Add("region and url", nil, "are missing beside tokens: set both, such as https://10.0.0.2:8006/api2/json")
	}

	for what, token := range r.Tokens {
		if !slices.Contains([]string{request.ForCSI, request.ForCCM}, what) {
			problems.Add("tokens."+what, nil, "is unknown: use csi or ccm")
		}

		if id, secret, _ := strings.Cut(token, "="); !strings.Contains(id, "!") || secret == "" {
			problems.Add("tokens."+what, nil, "is not of the form user@realm!name=secret")
		}
	}

	return problems.Sorted()
}

func runProxmox(ctx context.Context, s *verb.Session, req *proxmoxRequest) (any, error) {
	objects, err := req.objects()
	if err != nil {
		return nil, err
	}

	applied := make([]string, 0, len(objects))
	for _, o := range objects {
		applied = append(applied, kube.ObjectName(o))
	}

	applier := &objectApplier{
		Cluster: s.Cluster, what: "accounts and storage classes", part: kube.PartProxmox,
		kinds: []string{kube.KindSecret, kube.KindStorageClass}, objects: objects,
	}

	return struct {
		Applied []string `json:"applied"`
	}{applied}, applier.apply(ctx)
}

// Names that the software's charts expect.
const (
	csiNamespace = "csi-proxmox"
	csiSecret    = "proxmox-csi-plugin" //nolint:gosec // a name
	ccmNamespace = "kube-system"
	ccmSecret    = "proxmox-cloud-controller-manager" //nolint:gosec // a name
	csiDriver    = "csi.proxmox.sinextra.dev"

	keyDefaultClass = "storageclass.kubernetes.io/is-default-class"
	keyPodSecurity  = "pod-security.kubernetes.io/enforce"
)

// objects returns the objects of the cluster, in the order in which they are applied.
func (r *proxmoxRequest) objects() ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured

	if token := r.Tokens[request.ForCSI]; token != "" {
		secret, err := r.secret(csiNamespace, csiSecret, token)
		if err != nil {
			return nil, err
		}

		namespace := kube.NewObject(kube.PartProxmox, kube.KindNamespace, "", csiNamespace, map[string]any{})
		namespace.SetLabels(map[string]string{keyPodSecurity: "privileged"}) // other software may use it, too

		objects = append(objects, namespace, secret)
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

// secret returns the Secret with a token, as the software's charts read it.
func (r *proxmoxRequest) secret(namespace, name, token string) (*unstructured.Unstructured, error) {
	id, secret, _ := strings.Cut(token, "=")

	config, err := yaml.Marshal(map[string]any{"clusters": []any{map[string]any{
		"url": r.URL, "insecure": r.Insecure, "token_id": id, "token_secret": secret, "region": r.Region,
	}}})
	if err != nil {
		return nil, errors.New("unable to encode the software's configuration")
	}

	data := map[string]string{"config.yaml": string(config)}
	if r.CA != "" {
		data["ca.crt"] = r.CA
	}

	return kube.NewObject(kube.PartProxmox, kube.KindSecret, namespace, name, map[string]any{
		"type": "Opaque", "stringData": data,
	}), nil
}

// storageClass returns a class that creates a volume only once a pod is scheduled, on the datastore of that pod's host.
func storageClass(c spec.StorageClass) *unstructured.Unstructured {
	parameters := map[string]string{"storage": c.Datastore, "csi.storage.k8s.io/fstype": c.FSType}
	if c.SSD {
		parameters["ssd"] = "true"
	}

	class := kube.NewObject(kube.PartProxmox, kube.KindStorageClass, "", c.Name, map[string]any{
		"provisioner": csiDriver, "parameters": parameters, "reclaimPolicy": c.ReclaimPolicy,
		"volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
	})
	class.SetAnnotations(map[string]string{keyDefaultClass: fmt.Sprint(c.Default)})

	return class
}
