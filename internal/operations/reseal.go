package operations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
)

var errState = errors.New(
	"it is not a state of Pulumi: take a file of `talos-proxmox backup state`, or <stack>.json of a folder that is the backend",
)

// object is a JSON object that keeps unknown fields.
type object = map[string]any

// Reseal imports a state whose secrets can no longer be decrypted into an empty stack with a new secrets provider.
// Machine secrets come from the exports of all its clusters. Other secrets are not needed: they are removed from
// machines, providers and the bootstrap; other resources with secrets are removed from the state, and the next up
// creates them again, which changes nothing on machines. It returns the names of the removed resources.
func Reseal(
	ctx context.Context, pulumi recovery.Pulumi, stack string, state io.Reader, exported map[string][]byte, now time.Time,
) (removed []string, err error) {
	deployment, err := readDeployment(state)
	if err != nil {
		return nil, err
	}

	if removed, err = resealDeployment(deployment, exported, now); err != nil {
		return nil, err
	}

	if deployment["secrets_providers"], err = secretsProviderOf(ctx, pulumi, stack); err != nil {
		return nil, err
	}

	return removed, recovery.WriteState(ctx, pulumi, stack, apitype.UntypedDeployment{Version: 3}, deployment)
}

// secretsProviderOf returns the secrets provider of the stack, which must be empty.
func secretsProviderOf(ctx context.Context, pulumi recovery.Pulumi, stack string) (any, error) {
	state, deployment, err := recovery.ReadState(ctx, pulumi, stack)
	if err != nil {
		return nil, err
	}

	var fresh object
	if err := json.Unmarshal(state.Deployment, &fresh); err != nil || fresh["secrets_providers"] == nil {
		return nil, fmt.Errorf("stack %q has no secrets provider: create it again with pulumi stack init", stack)
	}

	if n := len(deployment.Resources); n > 0 {
		return nil, fmt.Errorf(
			"stack %q has a state with %d resources already: a state is resealed into an empty stack only", stack, n,
		)
	}

	return fresh["secrets_providers"], nil
}

// ReadExports decrypts exported machine secrets: files by cluster, identities as age-keygen writes them.
func ReadExports(files map[string]string, identities string) (map[string][]byte, error) {
	exported := map[string][]byte{}

	for cluster, path := range files {
		from, err := backup.Open(path, identities)
		if err != nil {
			return nil, err
		}

		content, err := io.ReadAll(from)
		_ = from.Close() // it was only read

		if err != nil {
			return nil, fmt.Errorf("unable to read %s: %w", path, err)
		}

		exported[cluster] = content
	}

	return exported, nil
}

// readDeployment reads the output of `pulumi stack export`, or a file of a backend.
func readDeployment(state io.Reader) (object, error) {
	var file struct {
		Deployment object `json:"deployment"`
		Checkpoint struct {
			Latest object `json:"latest"`
		} `json:"checkpoint"`
	}
	if err := json.NewDecoder(state).Decode(&file); err != nil {
		return nil, errState
	}

	if file.Deployment == nil {
		file.Deployment = file.Checkpoint.Latest
	}

	if _, ok := file.Deployment["resources"].([]any); !ok {
		return nil, errState
	}

	return file.Deployment, nil
}

func resealDeployment(deployment object, exported map[string][]byte, now time.Time) (removed []string, err error) {
	var (
		kept        []any
		removedURNs = map[string]bool{}
		sealed      = map[string]bool{} // clusters
	)

	for _, item := range deployment["resources"].([]any) {
		r, _ := item.(object)
		kind, _ := r["type"].(string)
		urn, _ := r["urn"].(string)
		name := urn[strings.LastIndex(urn, ":")+1:]

		switch cluster, isSecrets := strings.CutSuffix(name, tokens.OfSecrets); {
		case kind == tokens.Secrets && isSecrets:
			// The published provider also stores how its values differ from Terraform's, including a secret; it is not needed.
			r["outputs"] = withoutSecrets(r["outputs"])

			if err := setMachineSecrets(r, cluster, exported, now); err != nil {
				return nil, err
			}

			sealed[cluster] = true
		case r["custom"] != true || strings.HasPrefix(kind, "pulumi:providers:") || strings.HasPrefix(kind, "proxmoxve:"),
			kind == tokens.LocalCommand && strings.HasSuffix(name, tokens.OfBootstrap):
			for _, part := range []string{"inputs", "outputs"} {
				r[part] = withoutSecrets(r[part])
			}
		case holdsSecret(r["inputs"]) || holdsSecret(r["outputs"]):
			removedURNs[urn], removed = true, append(removed, name)

			continue
		}

		kept = append(kept, r)
	}

	for cluster := range exported {
		if !sealed[cluster] {
			return nil, fmt.Errorf("the state has no machine secrets of cluster %q: name the clusters of the stack", cluster)
		}
	}

	for _, item := range kept {
		removeDependencies(item.(object), removedURNs)
	}

	deployment["resources"] = kept
	delete(deployment, "pending_operations")
	slices.Sort(removed)

	return removed, nil
}

// setMachineSecrets sets the machine secrets of a cluster from its export.
func setMachineSecrets(r object, cluster string, exported map[string][]byte, now time.Time) error {
	text, ok := exported[cluster]
	if !ok {
		return fmt.Errorf("there is no export of the machine secrets of cluster %q: name its file", cluster)
	}

	machine, client, err := talos.ProviderSecrets(text, now)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", cluster, err)
	}

	return setSecretOutputs(r, object{"machineSecrets": machine, "clientConfiguration": client})
}

// setSecretOutputs sets secret outputs of a resource in plain text; the import encrypts them.
func setSecretOutputs(r, secrets object) error { return setSecrets(r, "outputs", secrets) }

// setSecrets does the same for its inputs or outputs.
func setSecrets(r object, in string, secrets object) error {
	outputs, _ := r[in].(object)
	if outputs == nil {
		return errState
	}

	for field, value := range secrets {
		plain, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("unable to write the state: %w", err)
		}

		outputs[field] = object{resource.SigKey: resource.SecretSig, "plaintext": string(plain)}
	}

	return nil
}

func isSecret(value any) bool {
	fields, _ := value.(object)

	return fields[resource.SigKey] == resource.SecretSig
}

func holdsSecret(value any) bool {
	if isSecret(value) {
		return true
	}

	switch value := value.(type) {
	case object:
		for _, field := range value {
			if holdsSecret(field) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, holdsSecret)
	}

	return false
}

// withoutSecrets returns an object without its secrets.
func withoutSecrets(value any) any {
	fields, ok := value.(object)
	if !ok {
		return value
	}

	kept := object{}

	for name, field := range fields {
		if !holdsSecret(field) {
			kept[name] = field
		}
	}

	return kept
}

// removeDependencies removes a resource's dependencies on removed resources.
func removeDependencies(r object, removed map[string]bool) {
	without := func(list any) []any {
		urns, _ := list.([]any)

		return slices.DeleteFunc(urns, func(urn any) bool {
			text, _ := urn.(string)

			return removed[text]
		})
	}

	for _, field := range []string{"dependencies", "replaceWith"} {
		if r[field] != nil {
			r[field] = without(r[field])
		}
	}

	properties, _ := r["propertyDependencies"].(object)
	for name, list := range properties {
		properties[name] = without(list)
	}

	if with, _ := r["deletedWith"].(string); removed[with] {
		delete(r, "deletedWith")
	}
}
