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

	"talos-proxmox/components"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// errSecrets tells nothing of what was read.
var errSecrets = errors.New("the state's machine secrets are not what Talos' provider writes: bring the stack up once, then repeat")

// clusterSecrets are the outputs of a cluster's machine secrets. While the authority of the Talos API is replaced,
// machine has the new one, and client, which machines let in until the end, that of the old one.
type clusterSecrets struct {
	cluster         string
	machine, client object
}

// RotateAuthority replaces the certificate authority of the Talos API of a cluster that runs; see talosops rotate. The
// new authority is in the state, encrypted, before a machine is touched: an interrupted run is resumed by the next, and
// the program refuses to run in between.
func (d Deployed) RotateAuthority(ctx context.Context, name string, now time.Time) error {
	clusters, err := d.clusters([]string{name})
	if err != nil {
		return err
	}

	c := clusters[0]

	secrets, nodes, err := d.clusterSecrets(ctx, c)
	if err != nil {
		return err
	}

	about, err := secrets.rotation(c)
	if err != nil {
		return err
	}

	if !secrets.rotating() {
		if err := d.beginRotation(ctx, c, secrets, nodes, about, now); err != nil {
			return err
		}
	}

	next, err := secrets.authority().Administrator(now)
	if err != nil {
		return err
	}

	if about.Next, err = next.Talosconfig(c.Name, endpoints(c)); err != nil {
		return err
	}

	about.Key = string(secrets.authority().Key)
	if _, err := d.talosops(ctx, "rotate", about); err != nil {
		return fmt.Errorf("%w\nthe rotation of cluster %s has begun: run the same again; pulumi up refuses until it is done",
			err, c.Name)
	}

	secrets.client = clientObject(next)

	return d.putClusterSecrets(ctx, secrets)
}

// beginRotation writes a new authority to the state, once all machines are seen to take part, and a new client of the
// old one: Talos' provider renews a client in its last month, by the authority that the state has, so that an up in
// between would take the rotation for done.
func (d Deployed) beginRotation(
	ctx context.Context, c spec.Cluster, secrets clusterSecrets, nodes []string, about request.Rotate, now time.Time,
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

	client, err := secrets.authority().Administrator(now)
	if err != nil {
		return err
	}

	authority, err := talos.NewAuthority(now)
	if err != nil {
		return err
	}

	certs, _ := secrets.machine["certs"].(object)
	certs["os"] = object{"cert": encoded(authority.Certificate), "key": encoded(authority.Key)}
	secrets.client = clientObject(client)

	return d.putClusterSecrets(ctx, secrets)
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
			outputs := recovery.Reveal(r.Outputs)
			s.machine, _ = outputs["machineSecrets"].(object)
			s.client, _ = outputs["clientConfiguration"].(object)
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

// putClusterSecrets writes them to the state. All other secrets stay encrypted as they are.
func (d Deployed) putClusterSecrets(ctx context.Context, s clusterSecrets) error {
	state, _, err := recovery.ReadState(ctx, d.Pulumi, d.Stack)
	if err != nil {
		return err
	}

	var deployment object
	if err := json.Unmarshal(state.Deployment, &deployment); err != nil {
		return errState
	}

	found := false

	resources, _ := deployment["resources"].([]any)
	for _, item := range resources {
		r, _ := item.(object)
		urn, _ := r["urn"].(string)

		if r["type"] == typeSecrets && strings.HasSuffix(urn, "::"+s.cluster+secretsSuffix) {
			if err := sealSecrets(r, s.machine, s.client); err != nil {
				return err
			}

			found = true
		}
	}

	if !found {
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

// rotating says whether the authority is being replaced.
func (s clusterSecrets) rotating() bool {
	certs, _ := s.machine["certs"].(object)
	ca, _ := certs["os"].(object)

	return ca["cert"] != s.client["caCertificate"]
}

// authority is the one that the state's secrets have.
func (s clusterSecrets) authority() talos.Authority {
	certs, _ := s.machine["certs"].(object)
	ca, _ := certs["os"].(object)

	return talos.Authority{Certificate: decoded(ca["cert"]), Key: decoded(ca["key"])}
}

// rotation is what machines are asked with that know the client of the state.
func (s clusterSecrets) rotation(c spec.Cluster) (about request.Rotate, err error) {
	about.Common = controlPlanes(c, 0)
	for _, n := range c.Workers {
		about.Workers = append(about.Workers, request.Node{Name: n.Name, Address: n.Address.Addr().String()})
	}

	client := talos.Client{
		Authority: decoded(s.client["caCertificate"]), Certificate: decoded(s.client["clientCertificate"]),
		Key: decoded(s.client["clientKey"]),
	}
	about.Talosconfig, err = client.Talosconfig(c.Name, endpoints(c))

	return about, err
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
