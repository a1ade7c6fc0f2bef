package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/lab/machine/images"
)

// configMap reads the data of a ConfigMap with the rights of the node's kubelet; nil if it does not exist.
func (r *session) configMap(ctx context.Context, namespace, name string) (map[string]string, error) {
	found, err := r.Client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // documented above
	}

	if err != nil {
		return nil, fmt.Errorf("unable to read ConfigMap %s/%s: %w", namespace, name, err)
	}

	return found.Data, nil
}

// mountConfigMaps writes the ConfigMaps that a container mounts to the folders that stand for their mount paths.
func (r *session) mountConfigMaps(
	ctx context.Context, p *corev1.Pod, c corev1.Container, sandbox images.Sandbox,
) error {
	for _, mount := range c.VolumeMounts {
		i := slices.IndexFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == mount.Name && v.ConfigMap != nil
		})
		if i < 0 {
			continue
		}

		data, err := r.configMap(ctx, p.Namespace, p.Spec.Volumes[i].ConfigMap.Name)
		if err != nil {
			return err
		}

		dir := sandbox.Folder(mount.MountPath)
		if err = os.RemoveAll(dir); err == nil {
			err = os.MkdirAll(dir, 0o700)
		}

		for key, value := range data {
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, key), []byte(value), 0o600)
			}
		}

		if err != nil {
			return fmt.Errorf("unable to mount a ConfigMap: %w", err)
		}
	}

	return nil
}

// containerEnv returns a container's variables, including those from ConfigMaps.
func (r *session) containerEnv(ctx context.Context, p *corev1.Pod, c corev1.Container) ([]string, error) {
	list := environment(p, c, r.Node)

	for i, v := range c.Env {
		if v.ValueFrom == nil || v.ValueFrom.ConfigMapKeyRef == nil {
			continue
		}

		data, err := r.configMap(ctx, p.Namespace, v.ValueFrom.ConfigMapKeyRef.Name)
		if err != nil {
			return nil, err
		}

		list[i] = v.Name + "=" + data[v.ValueFrom.ConfigMapKeyRef.Key]
	}

	return list, nil
}
