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
	certutil "k8s.io/client-go/util/cert"

	"talos-proxmox/internal/problem"
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

var servicePorts = map[string]string{
	servesTalos:      fmt.Sprint(constants.ApidPort),
	servesKubernetes: kube.Port,
	servesKubelet:    kubeletPort,
}

// readClientCertificates returns the certificates of the users' talosconfig and kubeconfig and of the authorities that
// sign such, these authorities by service, and what is wrong with the users' clients. A kubelet's authority is not
// known: it signs its own certificate. Nil users have the clients of the request.
func readClientCertificates(
	users *request.Clients, talosconfig, kubeconfig string,
) (list []namedCertificate, authorities map[string]*x509.CertPool, wrong problem.List, err error) {
	const renewed, rotated = "pulumi up renews it", "docs/secrets.md says how authorities are replaced"

	if users == nil {
		users = &request.Clients{Talosconfig: talosconfig, Kubeconfig: kubeconfig}
	}

	_, talosCA, err := talosconfigPEM(talosconfig)
	_, kubernetesCA, kubernetesErr := kubeconfigPEM(kubeconfig)

	if err = errors.Join(err, kubernetesErr); err != nil {
		return nil, nil, nil, err
	}

	authorities = map[string]*x509.CertPool{servesTalos: x509.NewCertPool(), servesKubernetes: x509.NewCertPool()}

	for _, one := range []struct {
		of, text    string
		parse       func(text string) (client, authority []byte, err error)
		authority   []byte
		ofAuthority string
		service     string
	}{
		{"kubeconfig", users.Kubeconfig, kubeconfigPEM, kubernetesCA, "authority of Kubernetes", servesKubernetes},
		{"talosconfig", users.Talosconfig, talosconfigPEM, talosCA, "authority of Talos", servesTalos},
	} {
		signing, err := certutil.ParseCertsPEM(one.authority)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("the %s is not a certificate", one.ofAuthority)
		}

		list = append(list, namedCertificate{one.ofAuthority, rotated, signing[0]})
		authorities[one.service].AppendCertsFromPEM(one.authority)

		if one.text == "" {
			wrong.Add(one.of, nil, "the stack's outputs have none, as after secrets reseal: pulumi up writes it")

			continue
		}

		client, _, err := one.parse(one.text)

		parsed, notPEM := certutil.ParseCertsPEM(client)
		if err != nil || notPEM != nil {
			wrong.Add(one.of, nil, "it is unreadable: pulumi up writes it again")

			continue
		}

		list = append(list, namedCertificate{one.of, renewed, parsed[0]})

		if !slices.ContainsFunc(signing, func(ca *x509.Certificate) bool { return parsed[0].CheckSignatureFrom(ca) == nil }) {
			wrong.Add(one.of, nil, "its certificate is of a former authority: "+renewed)
		}
	}

	return list, authorities, wrong, nil
}

// talosconfigPEM returns the client certificate and the authority of a talosconfig.
func talosconfigPEM(text string) (client, authority []byte, err error) {
	config, err := clientconfig.FromString(text)
	if err != nil || config.Contexts[config.Context] == nil {
		return nil, nil, talosapi.ErrTalosconfig
	}

	current := config.Contexts[config.Context]
	client, clientErr := base64.StdEncoding.DecodeString(current.Crt)

	authority, err = base64.StdEncoding.DecodeString(current.CA)
	if errors.Join(clientErr, err) != nil {
		return nil, nil, talosapi.ErrTalosconfig
	}

	return client, authority, nil
}

// kubeconfigPEM returns the client certificate and the authority of a kubeconfig.
func kubeconfigPEM(text string) (client, authority []byte, err error) {
	config, err := kube.ParseConfig(text)
	if err != nil {
		return nil, nil, err
	}

	return config.CertData, config.CAData, nil
}

// servedCertificates returns the certificates that a node shows. A service that does not answer has none.
func (q *statusQuery) servedCertificates(ctx context.Context, n request.NodeStatus) []namedCertificate {
	remedies := map[string]string{
		servesTalos:   "Talos renews it: look at talosctl --nodes " + n.Address.String() + " dmesg",
		servesKubelet: "talosctl --nodes " + n.Address.String() + " service kubelet restart renews it",
	}
	what := []string{servesTalos, servesKubelet}

	if n.Role != "worker" {
		remedies[servesKubernetes] = remedies[servesTalos]
		what = append(what, servesKubernetes)
	}

	var list []namedCertificate

	for _, service := range what {
		endpoint := net.JoinHostPort(n.Address.String(), servicePorts[service])

		certificate, err := q.fetchCertificate(ctx, endpoint, q.authorities[service])
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
			"its certificate ends in %s (%s): %s", request.FormatDuration(remaining), c.NotAfter.UTC().Format(time.DateOnly),
			c.remedy,
		)
		if remaining <= 0 {
			problem = fmt.Sprintf("its certificate has ended (%s): %s", c.NotAfter.UTC().Format(time.DateTime), c.remedy)
		}

		s.Care.Add(c.owner, nil, "%s", problem)
	}
}
