package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/request"
)

const statusHelp = `Asks every node, every control plane's etcd and the Kubernetes API how they are, once, and waits for
nothing.

It prints a table, with --json one line of JSON: members of etcd and their leader; per node the versions of Talos, its
schematic, its kubelet and its API server, whether it is Ready, and the GPUs that it offers; when certificates end; the
newest snapshot of etcd. What needs care comes first: what does not answer or is not healthy, what is not as planned, a
machine configuration that is not the one that was applied last, or waits for a restart, a certificate that ends within
thirty days (one that its owner renews: within a sixth of its life), a snapshot that is missing or too old, a host that
has to reboot.

Of machine configurations it names paths, and never a value. A part of the cluster that is down hides nothing of the
rest.

The request is that of wait, with cluster, the configurations that were applied last by node, where snapshots are kept,
the hosts that have to reboot, and as reader a talosconfig with the role os:reader, with which all is asked but machine
configurations; all of these can be omitted. Exit status: 0 all is well, 1 something needs care,
2 no part of the cluster answered, or the request cannot be used.`

const statusExample = `  talosops status < request.json
  talosops status --json --timeout 30s < request.json

  request.json:
  {
    "talosconfig": "context: prod\ncontexts: …",
    "kubeconfig": "apiVersion: v1\nkind: Config\n…",
    "controlPlanes": [{"name": "prod-cp-1", "address": "10.0.0.10"}],
    "workers": [{"name": "prod-general-1", "address": "10.0.0.30"}],
    "kubernetesVersion": "v1.37.2",
    "versions": [{"node": "prod-cp-1", "talosVersion": "v1.14.4", "schematic": "376567988ad3…"}],
    "cluster": "prod",
    "reader": "context: prod\ncontexts: …",
    "configurations": {"prod-cp-1": "version: v1alpha1\n…"},
    "backup": {"directory": "/var/backups/talos", "name": "home-prod", "maxAge": "48h"},
    "rebootPending": ["pve2"]
  }`

// The exit statuses of status.
const (
	exitCare    = 1
	exitUnknown = 2
)

// statusRequest says which cluster is asked; configurations are secret.
type statusRequest struct {
	request.Status
	limits
}

func (r *statusRequest) problems() []string {
	w := r.asWait()

	problems := w.problems()
	for name := range r.Configurations {
		if problem := w.unknownNode(name); problem != "" {
			problems = append(problems, fmt.Sprintf("configurations: %s", problem))
		}
	}

	if r.Reader != "" && checkTalosconfig(r.Reader) != nil {
		problems = append(problems, fmt.Sprintf("reader: %v", errTalosconfig))
	}

	if r.Backup != nil && r.Backup.MaxAge != "" {
		parseDuration("backup.maxAge", r.Backup.MaxAge, 0, &problems)
	}

	return problems
}

func (r *statusRequest) asWait() *waitRequest { return &waitRequest{Wait: r.Wait, limits: r.limits} }

func newStatus() *cobra.Command {
	var asJSON bool

	cmd := &cobra.Command{
		Use: "status", Short: "Say how a cluster is, for people and for monitoring", Long: statusHelp,
		Example: statusExample, Annotations: cli.OtherErrors(exitUnknown),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one line of JSON in place of the table")

	return withRequest(cmd, func() *statusRequest { return &statusRequest{} },
		func(cmd *cobra.Command, req *statusRequest) error { return runStatus(cmd, req, asJSON) })
}

func runStatus(cmd *cobra.Command, req *statusRequest, asJSON bool) error {
	administrator, err := newTalosAPI(req.Talosconfig)
	if err != nil {
		return err
	}
	defer administrator.close()

	machines, err := newTalosAPI(cmp.Or(req.Reader, req.Talosconfig))
	if err != nil {
		return err
	}
	defer machines.close()

	kubernetes, err := newKubernetesAPI(req.Kubeconfig)
	if err != nil {
		return err
	}

	q := &inquiry{
		req: req, talos: machines, administrator: administrator, kubernetes: kubernetes, now: time.Now,
		serving: servingCertificate, ports: portsOf(kubernetes.config),
	}
	if q.clients, err = clientCertificates(req.Talosconfig, kubernetes.config); err != nil {
		return err
	}

	if q.authorities, err = authoritiesOf(req.Talosconfig, kubernetes.config); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(cmd.Context(), req.timeout)
	defer cancel()

	found := q.ask(ctx)

	if err := cmd.Context().Err(); err != nil {
		return errors.New("interrupted before every node had answered: run the same again")
	}

	if asJSON {
		err = printResult(cmd.OutOrStdout(), found)
	} else {
		_, err = fmt.Fprint(cmd.OutOrStdout(), statusTable(found))
	}

	if err != nil {
		return fmt.Errorf("unable to print the status: %w", err)
	}

	return verdict(found)
}

// verdict is the error, with its exit status, of a cluster that is not well.
func verdict(s request.ClusterStatus) error {
	switch s.Status {
	case request.StatusOK:
		return nil
	case request.StatusUnknown:
		return cli.WithStatus(exitUnknown, fmt.Errorf("no part of cluster %s answered, see above", s.Cluster))
	default:
		return cli.WithStatus(exitCare, fmt.Errorf("cluster %s needs care, see above", s.Cluster))
	}
}

// statusTalos asks one machine's Talos API on its own address.
type statusTalos interface {
	services(ctx context.Context, address string) ([]service, error)
	members(ctx context.Context, address string) ([]member, error)
	etcdStatus(ctx context.Context, address string) (etcdStatus, error)
	etcdAlarms(ctx context.Context, address string) ([]string, error)
	version(ctx context.Context, address string) (string, error)
	schematic(ctx context.Context, address string) (string, error)
}

// statusAdministrator asks for what Talos shows to administrators alone.
type statusAdministrator interface {
	configuration(ctx context.Context, address string) (active, persistent string, err error)
}

// statusKubernetes asks the Kubernetes API on one control plane's own address.
type statusKubernetes interface {
	ready(ctx context.Context, address string) error
	apiVersion(ctx context.Context, address string) (string, error)
	nodes(ctx context.Context, address string) ([]kubeNode, error)
}

// inquiry asks a cluster how it is.
type inquiry struct {
	req   *statusRequest
	talos statusTalos
	// administrator is asked for nothing but machine configurations.
	administrator statusAdministrator
	kubernetes    statusKubernetes
	now           func() time.Time
	// serving returns the certificate that is shown at host:port, where the authority has signed it.
	serving     func(ctx context.Context, endpoint string, authority *x509.CertPool) (*x509.Certificate, error)
	ports       map[string]string         // what serves → port
	authorities map[string]*x509.CertPool // of what serves, where they are known
	clients     []namedCertificate
}
