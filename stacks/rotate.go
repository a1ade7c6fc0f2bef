package stacks

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/components"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// errSecrets tells nothing of what was read.
var errSecrets = errors.New("the state's machine secrets are not what Talos' provider writes: bring the stack up once, then repeat")

// clusterSecrets are the outputs of a cluster's machine secrets, and its kubeconfig. While an authority is replaced,
// machine has the certificate of the new one with that of the old one behind it, and client and kubeconfig, which
// machines let in until the end, those of the old one.
type clusterSecrets struct {
	cluster         string
	machine, client object
	kubeconfig      talos.Kubeconfig
}

// How the resource with a cluster's kubeconfig is called.
const (
	typeKubeconfig   = "talos:cluster/kubeconfig:Kubeconfig"
	kubeconfigSuffix = "-kubeconfig"
)

// certsOf are the names of authorities in the machine secrets.
var certsOf = map[talos.Kind]string{talos.OfTalos: "os", talos.OfKubernetes: "k8s"}

// RotateAuthority replaces the certificate authority of the Talos API or of Kubernetes of a cluster that runs; see
// talosops rotate. The new authority is in the state, encrypted, before a machine is touched: an interrupted run is
// resumed by the next, and the program refuses to run in between.
func (d Deployed) RotateAuthority(ctx context.Context, name string, kind talos.Kind, now time.Time) error {
	clusters, err := d.clusters([]string{name})
	if err != nil {
		return err
	}

	c := clusters[0]

	secrets, nodes, err := d.clusterSecrets(ctx, c)
	if err != nil {
		return err
	}

	if kind == talos.OfKubernetes && secrets.kubeconfig == "" {
		return d.missing(c, "kubeconfig")
	}

	for other := range certsOf {
		if _, old := secrets.authority(other); other != kind && old != nil {
			return fmt.Errorf("the authority of %s is being replaced: finish that first, with CA=%s", other, other)
		}
	}

	about, err := secrets.rotation(c, kind)
	if err != nil {
		return err
	}

	if _, old := secrets.authority(kind); old == nil {
		if err := d.beginRotation(ctx, c, &secrets, nodes, about, kind, now); err != nil {
			return err
		}
	}

	next, as, err := secrets.renewed(c, kind, now)
	if err != nil {
		return err
	}

	authority, _ := next.authority(kind)

	about.Next, about.Key = as, string(authority.Key)
	if _, err := d.talosops(ctx, "rotate", about); err != nil {
		return fmt.Errorf("%w\nthe rotation of cluster %s has begun: run the same again; pulumi up refuses until it is done",
			err, c.Name)
	}

	next.put(kind, authority, nil)

	return d.putClusterSecrets(ctx, next, next.kubeconfig)
}

// beginRotation writes a new authority to the state, once all machines are seen to take part, and a new client of the
// Talos API: Talos' provider renews one in its last month, by the authority that the state has, which machines may not
// know yet.
func (d Deployed) beginRotation(
	ctx context.Context, c spec.Cluster, secrets *clusterSecrets, nodes []string, about request.Rotate, kind talos.Kind,
	now time.Time,
) error {
	var planned []string
	for _, n := range c.Nodes() {
		planned = append(planned, n.Name)
	}

	slices.Sort(planned)

	if !slices.Equal(planned, nodes) {
		return fmt.Errorf("cluster %s has the nodes %s, and the stack file has %s: bring the stack up first, then repeat",
			c.Name, strings.Join(nodes, ", "), strings.Join(planned, ", "))
	}

	if _, err := d.talosops(ctx, "rotate", about); err != nil { // without a new authority it only looks
		return err
	}

	before, _ := secrets.authority(talos.OfTalos)

	client, err := before.Administrator(now)
	if err != nil {
		return err
	}

	next, err := kind.New(now)
	if err != nil {
		return err
	}

	secrets.client = clientObject(client)

	replaced, _ := secrets.authority(kind)
	secrets.put(kind, next, replaced.Certificate)

	return d.putClusterSecrets(ctx, *secrets, "")
}

// clusterSecrets reads those of a cluster from the state, and the names of its nodes.
func (d Deployed) clusterSecrets(ctx context.Context, c spec.Cluster) (s clusterSecrets, nodes []string, err error) {
	_, deployment, err := recovery.ReadState(ctx, d.Pulumi, d.Stack, "--show-secrets")
	if err != nil {
		return s, nil, err
	}

	s.cluster = c.Name

	for _, r := range deployment.Resources {
		switch {
		case r.Type == typeSecrets && r.URN.Name() == c.Name+secretsSuffix:
			of := secretsOf(r)
			s.machine, s.client = of.machine, of.client
		case r.Type == typeKubeconfig && r.URN.Name() == c.Name+kubeconfigSuffix:
			text, _ := recovery.Reveal(r.Outputs)["kubeconfigRaw"].(string)
			s.kubeconfig = talos.Kubeconfig(text)
		case string(r.Type) == components.TalosClusterType && r.URN.Name() == c.Name:
			addresses, _ := recovery.Reveal(r.Outputs)["addresses"].(object)
			for node := range addresses {
				nodes = append(nodes, node)
			}
		}
	}

	if s.machine == nil || s.client == nil {
		return s, nil, d.missing(c, "machine secrets")
	}

	slices.Sort(nodes)

	return s, nodes, nil
}

// secretsOf are those of a resource of machine secrets.
func secretsOf(r apitype.ResourceV3) (s clusterSecrets) {
	outputs := recovery.Reveal(r.Outputs)
	s.machine, _ = outputs["machineSecrets"].(object)
	s.client, _ = outputs["clientConfiguration"].(object)

	return s
}

// putClusterSecrets writes them to the state, and a kubeconfig where there is a new one. All other secrets stay
// encrypted as they are.
func (d Deployed) putClusterSecrets(ctx context.Context, s clusterSecrets, kubeconfig talos.Kubeconfig) error {
	state, _, err := recovery.ReadState(ctx, d.Pulumi, d.Stack)
	if err != nil {
		return err
	}

	var deployment object
	if err := json.Unmarshal(state.Deployment, &deployment); err != nil {
		return errState
	}

	wanted := map[string]object{
		typeSecrets + "::" + s.cluster + secretsSuffix: {"machineSecrets": s.machine, "clientConfiguration": s.client},
	}

	if kubeconfig != "" {
		client, err := kubeconfig.Provider()
		if err != nil {
			return err
		}

		wanted[typeKubeconfig+"::"+s.cluster+kubeconfigSuffix] = object{
			"kubeconfigRaw": string(kubeconfig), "kubernetesClientConfiguration": client,
		}
	}

	resources, _ := deployment["resources"].([]any)
	for _, item := range resources {
		r, _ := item.(object)
		urn, _ := r["urn"].(string)

		for suffix, outputs := range wanted {
			if strings.HasSuffix(urn, suffix) {
				if err := sealOutputs(r, outputs); err != nil {
					return err
				}

				delete(wanted, suffix)
			}
		}
	}

	if len(wanted) > 0 {
		return errSecrets
	}

	text, err := json.Marshal(object{"version": state.Version, "deployment": deployment})
	if err != nil {
		return fmt.Errorf("unable to write the state of stack %q: %w", d.Stack, err)
	}

	if _, err := d.Pulumi(ctx, bytes.NewReader(text), "stack", "import", "--stack", d.Stack); err != nil {
		return fmt.Errorf("unable to write the state of stack %q: %w", d.Stack, err)
	}

	return nil
}

// authority is the one that the state's secrets have, and the certificate of the one that it replaces; nil where it
// replaces none.
func (s clusterSecrets) authority(kind talos.Kind) (a talos.Authority, replaced []byte) {
	certs, _ := s.machine["certs"].(object)
	ca, _ := certs[certsOf[kind]].(object)
	a.Key = decoded(ca["key"])
	a.Certificate, replaced = talos.Replacing(decoded(ca["cert"]))

	return a, replaced
}

// put has the state's secrets have an authority, which may replace another one.
func (s clusterSecrets) put(kind talos.Kind, a talos.Authority, replaced []byte) {
	certs, _ := s.machine["certs"].(object)
	certs[certsOf[kind]] = object{
		"cert": encoded(slices.Concat(a.Certificate, replaced)), "key": encoded(a.Key),
	}
}

// renewed are the secrets with a client of the authority that the state has, which is a talosconfig or kubeconfig too.
func (s clusterSecrets) renewed(
	c spec.Cluster, kind talos.Kind, now time.Time,
) (_ clusterSecrets, as string, err error) {
	authority, _ := s.authority(kind)

	if kind == talos.OfKubernetes {
		s.kubeconfig, err = s.kubeconfig.Of(authority, now)

		return s, string(s.kubeconfig), err
	}

	client, err := authority.Administrator(now)
	if err != nil {
		return s, "", err
	}

	s.client, s.kubeconfig = clientObject(client), ""
	as, err = client.Talosconfig(c.Name, endpoints(c))

	return s, as, err
}

// rotation is what machines are asked with that know the clients of the state.
func (s clusterSecrets) rotation(c spec.Cluster, kind talos.Kind) (about request.Rotate, err error) {
	about.Common = controlPlanes(c, 0)
	for _, n := range c.Workers {
		about.Workers = append(about.Workers, request.Node{Name: n.Name, Address: n.Address.Addr().String()})
	}

	if about.Talosconfig, err = s.administrator().Talosconfig(c.Name, endpoints(c)); err != nil || kind == talos.OfTalos {
		return about, err
	}

	// It may trust more than the authority that is replaced: what users have machines accept.
	current, replaced := s.authority(kind)
	if replaced == nil {
		replaced = current.Certificate
	}

	former, err := s.kubeconfig.Trusting(replaced)
	about.Kubeconfig = string(former)

	return about, err
}

// administrator is the client that the state has.
func (s clusterSecrets) administrator() talos.Client {
	return talos.Client{
		Authority: decoded(s.client["caCertificate"]), Certificate: decoded(s.client["clientCertificate"]),
		Key: decoded(s.client["clientKey"]),
	}
}

func endpoints(c spec.Cluster) []string {
	var list []string
	for _, n := range c.ControlPlanes {
		list = append(list, n.Address.Addr().String())
	}

	return list
}

func clientObject(c talos.Client) object {
	return object{
		"caCertificate": encoded(c.Authority), "clientCertificate": encoded(c.Certificate), "clientKey": encoded(c.Key),
	}
}

func encoded(pem []byte) string { return base64.StdEncoding.EncodeToString(pem) }

// decoded is what the provider has in base64; nothing where it is something else.
func decoded(value any) []byte {
	text, _ := value.(string)

	pem, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}

	return pem
}
