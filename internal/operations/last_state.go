package operations

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/components"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmdiff"
	"talos-proxmox/stacks"
)

// lastState is what the stack's state has of its clusters.
type lastState struct {
	talosconfigs, kubeconfigs map[string]string          // by cluster; secret
	configurations            map[string]string          // by address of the node; secret
	applied                   []request.KeptApply        // what the state keeps of configurations; secret
	secrets                   map[string]*clusterSecrets // by cluster
	rebootPending             []string                   // hosts with a pending reboot
	id                        string                     // of the stack: see [ownership.Owner]
	hosts                     map[int]string             // of VMs, by VMID
	pending                   []string                   // operations that were begun: creating prod-cp-1-vm
}

// secretsOf returns the secrets of a cluster, to be filled in if it is new.
func (l lastState) secretsOf(cluster string) *clusterSecrets {
	if l.secrets[cluster] == nil {
		l.secrets[cluster] = &clusterSecrets{cluster: cluster}
	}

	return l.secrets[cluster]
}

func (d Deployed) readState(ctx context.Context) (lastState, error) {
	_, deployment, err := recovery.ReadState(ctx, d.Pulumi, d.Stack, "--show-secrets")
	if err != nil {
		return lastState{}, err
	}

	found := lastState{configurations: map[string]string{}, secrets: map[string]*clusterSecrets{}, hosts: map[int]string{}}

	for _, o := range deployment.PendingOperations {
		found.pending = append(found.pending, string(o.Type)+" "+o.Resource.URN.Name())
	}

	for _, r := range deployment.Resources {
		if r.Delete {
			continue
		}

		outputs := recovery.Reveal(r.Outputs)

		switch string(r.Type) {
		case tokens.ConfigurationApply: // of a program before this one applied configurations itself
			node, _ := outputs["node"].(string)
			found.configurations[node], _ = outputs["machineConfiguration"].(string)
		case tokens.Secrets:
			secrets := found.secretsOf(strings.TrimSuffix(r.URN.Name(), tokens.OfSecrets))
			secrets.machine, _ = outputs["machineSecrets"].(object)
			secrets.client, _ = outputs["clientConfiguration"].(object)
		case tokens.Kubeconfig:
			text, _ := outputs["kubeconfigRaw"].(string)
			found.secretsOf(strings.TrimSuffix(r.URN.Name(), tokens.OfKubeconfig)).kubeconfig = talos.Kubeconfig(text)
		case tokens.VirtualMachine:
			machine, _ := vmdiff.FromState(outputs) // an unreadable part does not affect others
			found.hosts[machine.VMID] = machine.Host
		case tokens.LocalCommand:
			found.addLeave(r)
			found.addConfiguration(r)
		case components.TalosClusterType:
			addresses, _ := outputs["addresses"].(object)
			found.secretsOf(r.URN.Name()).nodes = slices.Sorted(maps.Keys(addresses))
		case tokens.Record:
			found.id, _ = outputs["id"].(string)
		case tokens.Stack:
			found.addOutputs(outputs)
		}
	}

	found.readConfigurations()

	return found, nil
}

// readConfigurations reads the machine configurations that the state keeps, with the secrets of their clusters. After a
// rotation, they have the new authority, as the machines do.
func (l *lastState) readConfigurations() {
	for _, kept := range l.applied {
		resolved := false
		for _, secrets := range l.secrets {
			resolved = resolved || kept.Resolve(secrets.machine)
		}

		for _, secrets := range l.secrets {
			if !resolved && slices.Contains(secrets.nodes, kept.Machine.Name) {
				kept.Configuration = talos.WithoutReferences(kept.Configuration, secrets.machine)
			}
		}

		l.configurations[kept.Machine.Address.String()] = kept.Configuration
	}
}

// addConfiguration adds a node's machine configuration, if the resource is the command that applies it.
func (l *lastState) addConfiguration(r apitype.ResourceV3) {
	if strings.HasSuffix(r.URN.Name(), tokens.OfConfiguration) {
		text, _ := recovery.Reveal(r.Inputs)["stdin"].(string)
		l.applied = append(l.applied, request.AppliedConfiguration(text))
	}
}

// talosconfig returns a talosconfig with a new client, issued by the authority in the state, so that no verb depends on
// what the last successful up has left. During a rotation of the Talos API's authority, machines may not know the new
// one: then it is the administrator's of before, for machines of both.
func (l lastState) talosconfig(
	c spec.Cluster, newClient func(talos.Authority, time.Time) (talos.Client, error),
) (string, error) {
	secrets := l.secretsOf(c.Name)

	authority, replaced := secrets.authority(talos.TalosAuthority)
	if replaced != nil {
		text, err := talos.ProviderClient(secrets.client).Talosconfig(c.Name, c.ControlPlaneAddresses())
		if err != nil {
			return "", err
		}

		return talos.TalosconfigWithAuthorities(text, authority.Certificate, replaced)
	}

	client, err := newClient(authority, time.Now())
	if err != nil {
		return "", err
	}

	return client.Talosconfig(c.Name, c.ControlPlaneAddresses())
}

// kubeconfig is talosconfig for the API of Kubernetes.
func (l lastState) kubeconfig(c spec.Cluster) (string, error) {
	secrets := l.secretsOf(c.Name)

	authority, replaced := secrets.authority(talos.KubernetesAuthority)
	if replaced != nil {
		config, err := secrets.kubeconfig.WithAuthorities(authority.Certificate, replaced)

		return string(config), err
	}

	config, err := authority.TemporaryKubeconfig(c.Name, c.Endpoint, time.Now())

	return string(config), err
}

func (l *lastState) addOutputs(outputs object) {
	texts := func(output string) map[string]string {
		values, _ := outputs[output].(map[string]any)
		found := make(map[string]string, len(values))

		for name, value := range values {
			found[name], _ = value.(string)
		}

		return found
	}
	l.talosconfigs, l.kubeconfigs = texts(stacks.Talosconfigs), texts(stacks.Kubeconfigs)

	hosts, _ := outputs[stacks.Hosts].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		if host, _ := hosts[name].(map[string]any); host["rebootRequired"] == true {
			l.rebootPending = append(l.rebootPending, name)
		}
	}
}
