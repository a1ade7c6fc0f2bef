package operations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
)

// errSecrets does not quote the secrets.
var errSecrets = errors.New("the state's machine secrets are not what Talos' provider writes: bring the stack up once, then repeat")

// clusterSecrets are a cluster's machine secrets in the state, its kubeconfig, and the names of its nodes. During a
// rotation, machine has the certificates of the new authority and the old one, in this order; client and kubeconfig are
// of the old one, which machines accept until the end.
type clusterSecrets struct {
	cluster         string
	nodes           []string // sorted
	machine, client object
	kubeconfig      talos.Kubeconfig
	leaves          map[string]string // requests of leave commands, by URN
}

// RotateAuthority replaces the certificate authority of the Talos API or of Kubernetes of a running cluster; see
// talosops rotate. The new authority is stored in the state, encrypted, before a machine is changed: the next run
// resumes an interrupted one, and until then the program refuses to run.
func (d Deployed) RotateAuthority(ctx context.Context, name string, kind talos.AuthorityKind, now time.Time) error {
	clusters, err := d.clusters([]string{name})
	if err != nil {
		return err
	}

	c := clusters[0]

	state, err := d.readState(ctx)
	if err != nil {
		return err
	}

	if s := state.secretsOf(c.Name); s.machine == nil || s.client == nil {
		return d.missingError(c, "machine secrets")
	}

	if kind == talos.KubernetesAuthority && state.secretsOf(c.Name).kubeconfig == "" {
		return d.missingError(c, "kubeconfig")
	}

	for _, other := range []talos.AuthorityKind{talos.TalosAuthority, talos.KubernetesAuthority} {
		if _, old := state.secretsOf(c.Name).authority(other); other != kind && old != nil {
			return fmt.Errorf("the authority of %s is being replaced: finish that first, with --authority %s", other, other)
		}
	}

	req, err := state.rotationRequest(c, kind)
	if err != nil {
		return err
	}

	secrets := *state.secretsOf(c.Name)
	if _, old := secrets.authority(kind); old == nil {
		if err := d.requireNotAutoscaled(ctx, c, state.id); err != nil {
			return err
		}

		if err := d.storeNewAuthority(ctx, c, &secrets, req, kind, now); err != nil {
			return err
		}
	}

	next, clientConfig, err := secrets.withNewClient(c, kind, now)
	if err != nil {
		return err
	}

	authority, _ := next.authority(kind)

	req.Next, req.Key = clientConfig, string(authority.Key)
	if _, err := d.talosops(ctx, "rotate", req); err != nil {
		return fmt.Errorf("%w\nthe rotation of cluster %s has begun: run the same again; pulumi up refuses until it is done",
			err, c.Name)
	}

	talos.SetSecretsAuthority(next.machine, kind, authority, nil)

	return d.writeClusterSecrets(ctx, next, next.kubeconfig)
}

// requireNotAutoscaled refuses a rotation while there are machines that an autoscaler added to the cluster: the stack
// does not know their addresses, and they would be cut off.
func (d Deployed) requireNotAutoscaled(ctx context.Context, c spec.Cluster, stackID string) error {
	if len(c.Autoscaled) == 0 {
		return nil
	}

	all, err := d.Proxmox().List(ctx)
	if err != nil {
		return fmt.Errorf("unable to list the machines that an autoscaler added to cluster %s: %w", c.Name, err)
	}

	var added []string

	for _, pool := range c.Autoscaled {
		for _, m := range all {
			if ownership.HasTag(m.Tags, ownership.AutoscaledTag(stackID, c.Name, pool.Name)) {
				added = append(added, m.Name)
			}
		}
	}

	if len(added) == 0 {
		return nil
	}

	return fmt.Errorf("cluster %s has machines that an autoscaler added and that the stack does not know: %s; a new authority would "+
		"cut them off: scale in first (docs/autoscaling.md#certificate-authorities), then repeat", c.Name, strings.Join(added, ", "))
}

// storeNewAuthority checks that all machines can take part and stores a new authority in the state, with a new client
// of the Talos API: otherwise the Talos provider would renew a client in its last month with the new authority, which
// machines may not know yet.
func (d Deployed) storeNewAuthority(
	ctx context.Context, c spec.Cluster, secrets *clusterSecrets, req request.Rotate, kind talos.AuthorityKind,
	now time.Time,
) error {
	var planned []string
	for _, n := range c.Nodes() {
		planned = append(planned, n.Name)
	}

	slices.Sort(planned)

	if !slices.Equal(planned, secrets.nodes) {
		return fmt.Errorf("cluster %s has the nodes %s, and the stack file has %s: bring the stack up first, then repeat",
			c.Name, strings.Join(secrets.nodes, ", "), strings.Join(planned, ", "))
	}

	if _, err := d.talosops(ctx, "rotate", req); err != nil { // without a new authority it only checks
		return err
	}

	before, _ := secrets.authority(talos.TalosAuthority)

	client, err := before.Administrator(now)
	if err != nil {
		return err
	}

	next, err := kind.New(now)
	if err != nil {
		return err
	}

	secrets.client = client.ProviderOutput()

	replaced, _ := secrets.authority(kind)
	talos.SetSecretsAuthority(secrets.machine, kind, next, replaced.Certificate)

	kubeconfig := secrets.kubeconfig // renewed, too
	if kind == talos.TalosAuthority {
		kubeconfig = ""
	}

	return d.writeClusterSecrets(ctx, *secrets, kubeconfig)
}

// writeClusterSecrets writes secrets to the state, and the kubeconfig if it is not empty. All other secrets stay
// encrypted.
func (d Deployed) writeClusterSecrets(ctx context.Context, s clusterSecrets, kubeconfig talos.Kubeconfig) error {
	state, _, err := recovery.ReadState(ctx, d.Pulumi, d.Stack)
	if err != nil {
		return err
	}

	var deployment object
	if err := json.Unmarshal(state.Deployment, &deployment); err != nil {
		return errState
	}

	outputsOf := map[string]object{ // by the end of the URN
		tokens.Secrets + "::" + s.cluster + tokens.OfSecrets: {"machineSecrets": s.machine, "clientConfiguration": s.client},
	}

	if kubeconfig != "" {
		client, err := kubeconfig.ProviderOutput()
		if err != nil {
			return err
		}

		outputsOf[tokens.Kubeconfig+"::"+s.cluster+tokens.OfKubeconfig] = object{
			"kubeconfigRaw": string(kubeconfig), "kubernetesClientConfiguration": client,
		}
	}

	leaves, err := s.renewedLeaves()
	if err != nil {
		return err
	}

	resources, _ := deployment["resources"].([]any)
	for _, item := range resources {
		r, _ := item.(object)
		urn, _ := r["urn"].(string)

		if text, found := leaves[urn]; found {
			if err := setLeave(r, text); err != nil {
				return err
			}
		}

		for suffix, outputs := range outputsOf {
			if strings.HasSuffix(urn, suffix) {
				if err := setSecretOutputs(r, outputs); err != nil {
					return err
				}

				delete(outputsOf, suffix)
			}
		}
	}

	if len(outputsOf) > 0 {
		return errSecrets
	}

	return recovery.WriteState(ctx, d.Pulumi, d.Stack, state, deployment)
}

// authority returns the current authority, and during its rotation the certificate of the one that it replaces, else
// nil.
func (s clusterSecrets) authority(kind talos.AuthorityKind) (a talos.Authority, replaced []byte) {
	return talos.SecretsAuthority(s.machine, kind)
}

// withNewClient returns the secrets with a new client of the current authority, and the client as a talosconfig or
// kubeconfig.
func (s clusterSecrets) withNewClient(
	c spec.Cluster, kind talos.AuthorityKind, now time.Time,
) (_ clusterSecrets, clientConfig string, err error) {
	authority, _ := s.authority(kind)

	if kind == talos.KubernetesAuthority {
		s.kubeconfig, err = s.kubeconfig.Reissue(authority, now)

		return s, string(s.kubeconfig), err
	}

	client, err := authority.Administrator(now)
	if err != nil {
		return s, "", err
	}

	s.client, s.kubeconfig = client.ProviderOutput(), ""
	clientConfig, err = client.Talosconfig(c.Name, c.ControlPlaneAddresses())

	return s, clientConfig, err
}

// rotationRequest returns the request for machines that accept clients of the authority that is or was replaced.
func (l lastState) rotationRequest(c spec.Cluster, kind talos.AuthorityKind) (req request.Rotate, err error) {
	req.Common = controlPlanes(c, 0)
	req.Workers = request.NodesOf(c.Workers)
	s := l.secretsOf(c.Name)

	if _, replaced := s.authority(talos.TalosAuthority); replaced != nil {
		req.Talosconfig, err = talos.ProviderClient(s.client).Talosconfig(c.Name, c.ControlPlaneAddresses())
	} else {
		req.Talosconfig, err = l.talosconfig(c, talos.Authority.TemporaryAdministrator)
	}

	if err != nil || kind == talos.TalosAuthority {
		return req, err
	}

	// The kubeconfig may trust more than the old authority: users can configure machines to accept others.
	current, replaced := s.authority(kind)
	if replaced == nil {
		s.kubeconfig, err = s.kubeconfig.Reissue(current, time.Now())
		replaced = current.Certificate
	}

	if err != nil {
		return req, err
	}

	former, err := s.kubeconfig.WithAuthorities(replaced)
	req.Kubeconfig = string(former)

	return req, err
}
