package engine

import "fmt"

// ForKubernetesModel returns a stack file's content without the keys that need real Kubernetes, and the paths of the
// removed keys: the model has neither Helm releases nor server-side apply.
func ForKubernetesModel(content []byte) (rest []byte, without []string, err error) {
	file, err := parseStackFile(content)
	if err != nil {
		return nil, nil, fmt.Errorf("unable to read a stack file: %w", err)
	}

	for i, cluster := range file.list("clusters") {
		for _, key := range []string{"cni", "gitops", "proxmox"} {
			if remove(cluster, key) {
				without = append(without, fmt.Sprintf("clusters[%d].%s", i, key))
			}
		}
	}

	if len(without) == 0 {
		return content, nil, nil
	}

	if rest, err = file.bytes(); err != nil {
		return nil, nil, fmt.Errorf("unable to write a stack file: %w", err)
	}

	return rest, without, nil
}
