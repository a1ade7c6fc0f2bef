package stacks

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
)

// errSecrets tells nothing of what was read.
var errSecrets = errors.New("the state's machine secrets are not what Talos' provider writes: bring the stack up once, then repeat")

// clusterSecrets are the outputs of a cluster's machine secrets, its kubeconfig, and the names of its nodes. While an
// authority is replaced, machine has the certificate of the new one with that of the old one behind it, and client and
// kubeconfig, which machines let in until the end, those of the old one.
type clusterSecrets struct {
	cluster         string
	nodes           []string // sorted
	machine, client object
	kubeconfig      talos.Kubeconfig
}

// certsOf are the names of authorities in the machine secrets.
var certsOf = map[talos.Kind]string{talos.OfTalos: "os", talos.OfKubernetes: "k8s"}

// RotateAuthority replaces the certificate authority of the Talos API or of Kubernetes of a running cluster; see
// talosops rotate. The new authority is in the state, encrypted, before a machine is touched: an interrupted run is
// resumed by the next, and the program refuses to run in between.
func (d Deployed) RotateAuthority(ctx context.Context, name string, kind talos.Kind, now time.Time) error {
	clusters, err := d.clusters([]string{name})
	if err != nil {
		return err
	}

	c := clusters[0]

	state, err := d.readState(ctx)
	if err != nil {
		return err
	}

	secrets := *state.of(c.Name)
	if secrets.machine == nil || secrets.client == nil {
		return d.missing(c, "machine secrets")
	}

	if kind == talos.OfKubernetes && secrets.kubeconfig == "" {
		return d.missing(c, "kubeconfig")
	}

	for other := range certsOf {
		if _, old := secrets.authority(other); other != kind && old != nil {
			return fmt.Errorf("the authority of %s is being replaced: finish that first, with --authority %s", other, other)
		}
	}

	about, err := secrets.rotation(c, kind)
	if err != nil {
		return err
	}

	if _, old := secrets.authority(kind); old == nil {
		if err := d.beginRotation(ctx, c, &secrets, about, kind, now); err != nil {
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
	ctx context.Context, c spec.Cluster, secrets *clusterSecrets, about request.Rotate, kind talos.Kind,
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
		tokens.Secrets + "::" + s.cluster + tokens.OfSecrets: {"machineSecrets": s.machine, "clientConfiguration": s.client},
	}

	if kubeconfig != "" {
		client, err := kubeconfig.Provider()
		if err != nil {
			return err
		}

		wanted[tokens.Kubeconfig+"::"+s.cluster+tokens.OfKubeconfig] = object{
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

	return recovery.WriteState(ctx, d.Pulumi, d.Stack, state, deployment)
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
	about.Workers = requestNodes(c.Workers)

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
