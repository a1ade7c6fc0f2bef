package platform

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"talos-proxmox/internal/request"
)

// Names of Flux' objects. The source and its Kustomization are named as `flux bootstrap` names them.
const (
	fluxNamespace = "flux-system"
	fluxOperator  = "flux-operator"
	fluxInstance  = "flux"
	fluxSync      = "flux-system"
	gitSecret     = "flux-system"
	ociSecret     = "flux-registry" // another Secret: the type of one is immutable
	ageSecret     = "sops-age"
	factsName     = "cluster-facts"
	ciliumSecret  = "cilium-values"
	verifySecret  = "flux-verify"
	fluxImages    = "ghcr.io/fluxcd"
)

// fluxComponents returns the controllers to install.
func fluxComponents() []any {
	return []any{"source-controller", "kustomize-controller", "helm-controller", "notification-controller"}
}

// AwaitFlux waits until Flux reconciles a cluster: until the FluxInstance with its controllers is ready, and the source
// and the Kustomization flux-system are after a reconciliation that it requests. It reports what it waits for. A source
// or a Kustomization that has the same error for half a minute ends the wait.
func AwaitFlux(ctx context.Context, req request.Reconciled, timeout time.Duration, progress io.Writer) error {
	r, err := newReleaser(Release{Kubeconfig: req.Kubeconfig, Endpoints: req.Endpoints, Timeout: timeout}, progress)
	if err != nil {
		return err
	}

	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	a := fluxWait{releaser: r, kind: sourceKind(req.Kind), requestedAt: req.Asked}

	return a.await(ctx, limited)
}

// InstallFlux installs Flux in a cluster:
//  1. the namespace flux-system, the credentials of the source, the secret keys of age, and the facts of the cluster;
//  2. Flux' operator, as a Helm release, and waits for its pods;
//  3. the FluxInstance, from which the operator creates the controllers, the source and the Kustomization flux-system.
//
// Existing objects are changed only if they differ. AwaitFlux waits for the rest.
func InstallFlux(ctx context.Context, req request.GitOps, timeout time.Duration, progress io.Writer) error {
	release, err := fluxRelease(req)
	if err != nil {
		return err
	}

	release.Timeout = timeout

	return Install(ctx, release, progress)
}

// fluxRelease returns the operator's release, with the objects before and after it.
func fluxRelease(req request.GitOps) (Release, error) {
	release := Release{
		Kubeconfig: req.Kubeconfig, Endpoints: req.Endpoints, HelmRelease: request.HelmRelease{
			Name: fluxOperator, Namespace: fluxNamespace, Chart: req.Chart, Version: req.ChartVersion, Digest: req.ChartDigest,
		},
	}

	before := []map[string]any{{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": fluxNamespace},
	}}

	for _, s := range fluxSecrets(req) {
		if len(s.data) == 0 {
			release.Absent = append(release.Absent, request.ObjectName{
				APIVersion: "v1", Kind: "Secret", Namespace: fluxNamespace, Name: s.name,
			})

			continue
		}

		secret := fluxObject("v1", "Secret", s.name, "data", s.data)
		secret["type"] = s.kind
		before = append(before, secret)
	}

	before = append(before, fluxObject("v1", "ConfigMap", factsName, "data", req.Facts))

	var err error
	if release.Before, err = marshalAll(before...); err != nil {
		return release, err
	}

	release.After, err = marshalAll(fluxObject("fluxcd.controlplane.io/v1", "FluxInstance", fluxInstance, "spec", instanceSpec(req)))

	return release, err
}

// fluxObject returns an object in Flux' namespace. The label makes Flux reconcile as soon as a ConfigMap or a Secret
// changes.
func fluxObject(version, kind, name, field string, content any) map[string]any {
	metadata := map[string]any{"name": name, "namespace": fluxNamespace}
	if version == "v1" {
		metadata["labels"] = map[string]any{"reconcile.fluxcd.io/watch": "Enabled"}
	}

	return map[string]any{"apiVersion": version, "kind": kind, "metadata": metadata, field: content}
}

func marshalAll(objects ...map[string]any) ([]json.RawMessage, error) {
	list := make([]json.RawMessage, 0, len(objects))

	for _, object := range objects {
		text, err := json.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("unable to encode an object for Flux: %w", err)
		}

		list = append(list, text)
	}

	return list, nil
}

// secret is a Secret in Flux' namespace; without data it must not exist.
type secret struct {
	name, kind string
	data       map[string]string // base64
}

// fluxSecrets returns the Secrets that Flux reads.
func fluxSecrets(req request.GitOps) []secret {
	s := req.PullSecret
	list := []secret{
		{name: gitSecret, kind: "Opaque"},
		{name: ociSecret, kind: "kubernetes.io/dockerconfigjson"},
		{name: ageSecret, kind: "Opaque", data: secretData("age.agekey", req.Age)}, // Flux reads keys with this suffix
		{name: ciliumSecret, kind: "Opaque", data: secretData("values.yaml", req.CiliumValues)},
		{name: verifySecret, kind: "Opaque", data: publicKeys(req.Verify.Keys)},
	}

	if req.Kind != "oci" {
		list[0].data = secretData("identity", s.Identity, "known_hosts", s.KnownHosts, "username", s.Username,
			"password", s.Password, "ca.crt", s.CA)
	} else if source, err := url.Parse(req.URL); err == nil && s.Password != "" {
		text, _ := json.Marshal(map[string]any{"auths": map[string]any{source.Host: map[string]any{ // always encodes
			"username": s.Username, "password": s.Password,
			"auth": base64.StdEncoding.EncodeToString([]byte(s.Username + ":" + s.Password)),
		}}})
		list[1].data = secretData(".dockerconfigjson", string(text))
	}

	return list
}

// publicKeys returns the data of a Secret with public keys. Flux recognizes the kind of a key by the suffix of its
// name.
func publicKeys(keys []string) map[string]string {
	var pairs []string

	for i, key := range keys {
		suffix := "sshpub"

		switch {
		case strings.Contains(key, "BEGIN PGP"):
			suffix = "asc"
		case strings.Contains(key, "BEGIN PUBLIC KEY"):
			suffix = "pub" // cosign's
		}

		pairs = append(pairs, fmt.Sprintf("key-%d.%s", i+1, suffix), key)
	}

	return secretData(pairs...)
}

// secretData returns the data of a Secret from pairs of key and value, without empty values.
func secretData(pairs ...string) map[string]string {
	data := map[string]string{}

	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			data[pair[0]] = base64.StdEncoding.EncodeToString([]byte(pair[1]))
		}
	}

	return data
}

func sourceKind(kind string) string {
	if kind == "oci" {
		return "OCIRepository"
	}

	return "GitRepository"
}

// instanceSpec returns the spec of the FluxInstance.
func instanceSpec(req request.GitOps) map[string]any {
	sync := map[string]any{
		"kind": sourceKind(req.Kind), "url": req.URL, "ref": req.Ref, "path": req.Path, "interval": req.Interval,
	}

	for _, s := range fluxSecrets(req)[:2] {
		if len(s.data) > 0 {
			sync["pullSecret"] = s.name
		}
	}

	cluster := map[string]any{"type": "kubernetes", "networkPolicy": true}
	if req.Domain != "" {
		cluster["domain"] = req.Domain
	}

	if !req.SingleTenant {
		// Objects in flux-system, which are the tree's own, act as the controllers' account. Other namespaces do not have
		// that account: objects there must name their own.
		cluster["multitenant"], cluster["tenantDefaultServiceAccount"] = true, "kustomize-controller"
	}

	spec := map[string]any{
		"distribution": map[string]any{"version": req.Version, "registry": fluxImages},
		"components":   fluxComponents(), "cluster": cluster, "sync": sync,
	}

	var patches []any

	if req.Age != "" {
		patches = append(patches,
			kustomizePatch("Kustomization", fluxSync, `[{"op":"add","path":"/spec/decryption","value":{"provider":"sops"}}]`),
			kustomizePatch("Deployment", "kustomize-controller",
				`[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--sops-age-secret=`+ageSecret+`"}]`))
	}

	if check := verifySpec(req); check != nil {
		text, _ := json.Marshal([]any{map[string]any{"op": "add", "path": "/spec/verify", "value": check}}) // always encodes
		patches = append(patches, kustomizePatch(sourceKind(req.Kind), fluxSync, string(text)))
	}

	if len(patches) > 0 {
		spec["kustomize"] = map[string]any{"patches": patches}
	}

	return spec
}

// verifySpec returns spec.verify of Flux' source; nil = no verification.
func verifySpec(req request.GitOps) map[string]any {
	check := map[string]any{}
	if req.Kind == "oci" {
		check["provider"] = "cosign"
	}

	switch {
	case len(req.Verify.Keys) > 0:
		check["secretRef"] = map[string]any{"name": verifySecret}
	case req.Verify.Issuer != "":
		check["matchOIDCIdentity"] = []any{map[string]any{"issuer": req.Verify.Issuer, "subject": req.Verify.Subject}}
	default:
		return nil
	}

	return check
}

func kustomizePatch(kind, name, operations string) map[string]any {
	return map[string]any{"target": map[string]any{"kind": kind, "name": name}, "patch": operations}
}
