package verbs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// certificateWarning is how long before its end a certificate needs care: an up renews clients' from then on. Machines
// renew their own, some within a day, so those are late only in the last sixth of their lifetime.
const (
	certificateWarning = 30 * 24 * time.Hour
	lifetimeFraction   = 6
)

// Services with a certificate of their own.
const (
	servesTalos      = "Talos API"
	servesKubernetes = "Kubernetes API"
	servesKubelet    = "kubelet"
)

const kubeletPort = "10250"

// namedCertificate is a certificate with its owner, and how it is renewed.
type namedCertificate struct {
	owner, remedy string
	*x509.Certificate
}

func servicePorts(k *rest.Config) map[string]string {
	return map[string]string{
		servesTalos:      fmt.Sprint(constants.ApidPort),
		servesKubernetes: kube.ServerPort(k),
		servesKubelet:    kubeletPort,
	}
}

// readClientCertificates returns the certificates of the talosconfig, the kubeconfig and the authorities that signed
// them, and these authorities by service. A kubelet's is not known: it signs its own certificate.
func readClientCertificates(
	talosconfig string, kubernetes *rest.Config,
) (list []namedCertificate, authorities map[string]*x509.CertPool, err error) {
	const renewed, rotated = "pulumi up renews it", "docs/secrets.md says how authorities are replaced"

	config, err := clientconfig.FromString(talosconfig)
	if err != nil {
		return nil, nil, talosapi.ErrTalosconfig
	}

	current := config.Contexts[config.Context]
	client, clientErr := base64.StdEncoding.DecodeString(current.Crt)

	authority, err := base64.StdEncoding.DecodeString(current.CA)
	if err = errors.Join(clientErr, err); err != nil {
		return nil, nil, talosapi.ErrTalosconfig
	}

	for _, one := range []struct {
		of, remedy string
		pem        []byte
		otherwise  error
	}{
		{"kubeconfig", renewed, kubernetes.CertData, kube.ErrKubeconfig},
		{"talosconfig", renewed, client, talosapi.ErrTalosconfig},
		{"authority of Talos", rotated, authority, talosapi.ErrTalosconfig},
		{"authority of Kubernetes", rotated, kubernetes.CAData, kube.ErrKubeconfig},
	} {
		parsed, err := certutil.ParseCertsPEM(one.pem)
		if err != nil {
			return nil, nil, one.otherwise
		}

		list = append(list, namedCertificate{one.of, one.remedy, parsed[0]})
	}

	authorities = map[string]*x509.CertPool{servesTalos: x509.NewCertPool(), servesKubernetes: x509.NewCertPool()}
	authorities[servesTalos].AppendCertsFromPEM(authority)
	authorities[servesKubernetes].AppendCertsFromPEM(kubernetes.CAData)

	return list, authorities, nil
}

// servedCertificates returns the certificates that a node shows. A service that does not answer has none.
func (q *statusQuery) servedCertificates(ctx context.Context, n request.NodeStatus) []namedCertificate {
	remedies := map[string]string{
		servesTalos:   "Talos renews it: look at talosctl --nodes " + n.Address + " dmesg",
		servesKubelet: "talosctl --nodes " + n.Address + " service kubelet restart renews it",
	}
	what := []string{servesTalos, servesKubelet}

	if n.Role != "worker" {
		remedies[servesKubernetes] = remedies[servesTalos]
		what = append(what, servesKubernetes)
	}

	var list []namedCertificate

	for _, service := range what {
		certificate, err := q.fetchCertificate(ctx, net.JoinHostPort(n.Address, q.ports[service]), q.authorities[service])
		if err == nil {
			list = append(list, namedCertificate{n.Name + " " + service, remedies[service], certificate})
		}
	}

	return list
}

// servingCertificate returns the certificate that an endpoint shows, even an expired one. An authority, if given, must
// have signed it; otherwise somebody else answers.
func servingCertificate(ctx context.Context, endpoint string, authority *x509.CertPool) (*x509.Certificate, error) {
	var shown *x509.Certificate

	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: checks.CallTimeout}, Config: &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // nothing is sent, and the certificate is verified below
		MinVersion:         tls.VersionTLS12,
		VerifyConnection: func(state tls.ConnectionState) error {
			certificate := state.PeerCertificates[0]

			if authority != nil {
				at := time.Now()
				if at.After(certificate.NotAfter) {
					at = certificate.NotAfter
				}

				if _, err := certificate.Verify(x509.VerifyOptions{Roots: authority, CurrentTime: at}); err != nil {
					return fmt.Errorf("somebody else answers on %s: %w", endpoint, err)
				}
			}

			shown = certificate

			return nil
		},
	}}

	conn, err := dialer.DialContext(ctx, "tcp", endpoint)
	if err == nil {
		_ = conn.Close()
	}

	switch {
	case shown != nil: // even if the endpoint then requires a client certificate
		return shown, nil
	case err != nil:
		return nil, err
	default:
		return nil, errors.New("no certificate was shown")
	}
}

// checkCertificates adds the ends of certificates, the earliest first, and warnings about those that end soon.
func (q *statusQuery) checkCertificates(s *request.ClusterStatus, answers []nodeResult) {
	all := slices.Clone(q.clientCertificates)
	for _, a := range answers {
		all = append(all, a.certificates...)
	}

	slices.SortStableFunc(all, func(a, b namedCertificate) int { return a.NotAfter.Compare(b.NotAfter) })

	for _, c := range all {
		s.Certificates = append(s.Certificates, request.Certificate{Of: c.owner, Ends: c.NotAfter.UTC()})

		remaining := c.NotAfter.Sub(q.now())
		if remaining > min(certificateWarning, c.NotAfter.Sub(c.NotBefore)/lifetimeFraction) {
			continue
		}

		problem := fmt.Sprintf(
			"its certificate ends in %s (%s): %s", formatDuration(remaining), c.NotAfter.UTC().Format(time.DateOnly), c.remedy,
		)
		if remaining <= 0 {
			problem = fmt.Sprintf("its certificate has ended (%s): %s", c.NotAfter.UTC().Format(time.DateTime), c.remedy)
		}

		s.Care.Add(c.owner, nil, "%s", problem)
	}
}
