package verbs

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verb"
)

const statusHelp = `Asks every node, every control plane's etcd and the Kubernetes API for their state, once, and
waits for nothing.

It prints a table, or with --json one line of JSON: members of etcd and their leader; per node the versions of Talos,
its schematic, its kubelet and its API server, whether it is Ready, the GPUs that it offers, and where its machine is;
when certificates end; the newest snapshot of etcd. What needs care comes first: what does not answer or is not healthy,
what is not as planned, a machine configuration that is not the one that was applied last, or waits for a restart, a
certificate that ends within thirty days (one that its owner renews: within a sixth of its lifetime), a snapshot that is
missing or too old, a host that has to reboot, and one that is offline with machines of the cluster on it.

Of machine configurations it names paths, and never a value. A part of the cluster that is down does not hide the rest.

With localVolumes it lists the local and hostPath PersistentVolumes that have a claim, by the nodes that they may be on.

The request is that of wait, with cluster, the configurations that were applied last by node, where snapshots are kept,
the hosts that have to reboot, where Proxmox has the machines, as reader a talosconfig with the role os:reader, which is
used for everything but machine configurations, and as users the clients whose certificates are shown; all of these can
be omitted. Exit status: 0 all is well, 1 something needs care, 2 no part of the cluster answered, or the request cannot
be used.`

// Exit statuses of the verb.
const (
	exitCare    = 1
	exitUnknown = 2
)

// statusRequest names the cluster, and what is planned for it; configurations are secret.
type statusRequest struct {
	request.Status
	verb.Base

	reader talosapi.API
}

func (r *statusRequest) Problems() problem.List {
	w := r.waitRequest()

	problems := w.Problems()
	for name := range r.Configurations {
		if !hasNode(w.nodes(), name) {
			problems.Add("configurations", name, unknownNode)
		}
	}

	r.Base = w.Base

	if r.Reader != "" {
		reader, err := talosapi.New(r.Reader)
		if err != nil {
			problems.Add("reader", nil, "%v", err)
		}

		r.reader = reader
	}

	if r.Backup != nil && r.Backup.MaxAge != "" {
		verb.ParseDuration("backup.maxAge", r.Backup.MaxAge, 0, &problems)
	}

	return problems
}

func (r *statusRequest) waitRequest() *waitRequest { return &waitRequest{Wait: r.Wait, Base: r.Base} }

func newStatus() *cobra.Command {
	var asJSON bool

	cmd := verb.NewForCluster("status", "Report the state of a cluster, for people and for monitoring", statusHelp,
		func(ctx context.Context, s *verb.Session, req *statusRequest) (any, error) {
			found, err := runStatus(ctx, s, req)
			if err != nil {
				return nil, err
			}

			var result any = found.Table(0)
			if asJSON {
				result = found
			}

			if err := verb.PrintResult(s.Out, result); err != nil {
				return nil, err
			}

			return nil, statusError(found)
		})
	cmd.Annotations = cli.OtherErrors(exitUnknown)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one line of JSON in place of the table")

	return cmd
}

func runStatus(ctx context.Context, s *verb.Session, req *statusRequest) (found request.ClusterStatus, err error) {
	if req.reader == nil {
		req.reader = s.Talos
	}

	defer req.reader.Close()

	q := &statusQuery{
		Cluster: s.Cluster, req: req, adminClient: s.Talos, now: time.Now,
		fetchCertificate: servingCertificate,
	}
	q.Talos = req.reader

	var wrong problem.List
	if q.clientCertificates, q.authorities, wrong, err = readClientCertificates(
		req.Users, req.Talosconfig, req.Kubeconfig,
	); err != nil {
		return found, err
	}

	req.Credentials = append(wrong, req.Credentials...)

	limited, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()

	found = q.query(limited)

	if ctx.Err() != nil {
		return found, errors.New("interrupted before every node had answered: run the same again")
	}

	return found, nil
}

// statusError returns the error, with its exit status, of a cluster that is not healthy.
func statusError(s request.ClusterStatus) error {
	switch s.Status {
	case request.StatusOK:
		return nil
	case request.StatusUnknown:
		return cli.WithStatus(exitUnknown, fmt.Errorf("no part of cluster %s answered, see above", s.Cluster))
	default:
		return cli.WithStatus(exitCare, fmt.Errorf("cluster %s needs care, see above", s.Cluster))
	}
}

// statusQuery asks a cluster for its state.
type statusQuery struct {
	*cluster.Cluster

	req         *statusRequest
	adminClient talosapi.API // for machine configurations alone
	now         func() time.Time
	// fetchCertificate returns the certificate that is shown at host:port, if the authority has signed it.
	fetchCertificate   func(ctx context.Context, endpoint string, authority *x509.CertPool) (*x509.Certificate, error)
	authorities        map[string]*x509.CertPool // by service, as far as they are known
	clientCertificates []namedCertificate
}
