package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// ciliumDefinitions is the folder, beside the lab's binaries, of the definitions of Cilium's kinds.
const ciliumDefinitions = "cilium-crds"

// isCiliumOperator tells Cilium's operator from its other images.
func isCiliumOperator(image string) bool { return strings.Contains(image, "cilium/operator-") }

// operate does what Cilium's operator begins with, where one of these containers is one: it registers the definitions
// of Cilium's kinds with the rights of its service account.
func (r *link) operate(p *corev1.Pod, started []string) {
	for _, c := range p.Spec.Containers {
		for _, name := range started {
			if name == c.Name && isCiliumOperator(c.Image) {
				r.k.m.Track(func() { r.k.registerDefinitions(p) })
			}
		}
	}
}

// registerDefinitions tries until it can, or until the pod's machine goes down or the pod away.
func (k *Kubelet) registerDefinitions(p *corev1.Pod) {
	for {
		k.mu.Lock()
		ctx, there := k.booted, k.pods[string(p.UID)] != nil
		k.mu.Unlock()

		if !there || ctx.Err() != nil {
			return
		}

		err := k.register(ctx, p)
		if err == nil {
			return
		}

		k.m.Say("[talos] %s: %s", p.Name, err)

		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// register creates the definitions that are missing.
func (k *Kubelet) register(ctx context.Context, p *corev1.Pod) error {
	config, err := k.asPod(ctx, p)
	if err != nil {
		return err
	}

	config.APIPath = "/apis"
	config.ContentConfig = rest.ContentConfig{
		GroupVersion:         &schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"},
		NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
	}

	client, err := rest.RESTClientFor(config)
	if err != nil {
		return err
	}

	files, err := filepath.Glob(filepath.Join(k.m.Facts().Binaries, ciliumDefinitions, "*.yaml"))
	if err != nil {
		return err
	}

	var problems []error

	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // the lab's own
		if err != nil {
			return err
		}

		err = client.Post().Resource("customresourcedefinitions").SetHeader("Content-Type", "application/yaml").Body(text).
			Do(ctx).Error()
		if err != nil && !apierrors.IsAlreadyExists(err) {
			problems = append(problems, fmt.Errorf("unable to create %s: %w", filepath.Base(file), err))
		}
	}

	return errors.Join(problems...)
}

// lacksDefinitions is why Cilium's operator cannot run: nobody has made the definitions.
func lacksDefinitions(binaries string) *obstacle {
	if _, err := os.Stat(filepath.Join(binaries, ciliumDefinitions)); err == nil {
		return nil
	}

	return &obstacle{code: 1, reason: "Error", log: "level=fatal msg=\"the lab has no definitions of Cilium: " +
		"make platform-tools copies them\"\n"}
}
