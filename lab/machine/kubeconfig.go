package machine

import (
	"bytes"
	stdx509 "crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"go.yaml.in/yaml/v4"
)

// kubeconfig is the client configuration file of Kubernetes.
type kubeconfig struct {
	APIVersion     string       `yaml:"apiVersion"`
	Kind           string       `yaml:"kind"`
	Clusters       []namedEntry `yaml:"clusters"`
	Contexts       []namedEntry `yaml:"contexts"`
	CurrentContext string       `yaml:"current-context"`
	Users          []namedEntry `yaml:"users"`
}

type namedEntry struct {
	Name    string         `yaml:"name"`
	Cluster map[string]any `yaml:"cluster,omitempty"`
	Context map[string]any `yaml:"context,omitempty"`
	User    map[string]any `yaml:"user,omitempty"`
}

// adminKubeconfig makes the kubeconfig of the configuration's administrator, with a new certificate of the cluster's
// authority.
func adminKubeconfig(cfg config.Provider) ([]byte, error) {
	cluster := cfg.Cluster()

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(cluster.IssuingCA())
	if err != nil {
		return nil, fmt.Errorf("error getting Kubernetes CA: %w", err)
	}

	admin := cluster.AdminKubeconfig()

	pair, err := x509.NewKeyPair(ca,
		x509.CommonName(admin.CommonName()), x509.Organization(admin.CertOrganization()),
		x509.NotBefore(time.Now().Add(-10*time.Second)), x509.NotAfter(time.Now().Add(admin.CertLifetime())),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
	)
	if err != nil {
		return nil, fmt.Errorf("error generating Kubernetes client certificate: %w", err)
	}

	encoded := x509.NewCertificateAndKeyFromKeyPair(pair)
	name := clusterName(cfg)
	user := "admin@" + name

	return yaml.Marshal(kubeconfig{
		APIVersion: "v1", Kind: "Config", CurrentContext: user,
		Clusters: []namedEntry{{Name: name, Cluster: map[string]any{
			"server": cluster.Endpoint().String(),
			"certificate-authority-data": base64.StdEncoding.EncodeToString(
				append(bytes.Join(acceptedClusterCAs(cfg), []byte("\n")), '\n'),
			),
		}}},
		Contexts: []namedEntry{{Name: user, Context: map[string]any{"cluster": name, "namespace": "default", "user": user}}},
		Users: []namedEntry{{Name: user, User: map[string]any{
			"client-certificate-data": base64.StdEncoding.EncodeToString(encoded.Crt),
			"client-key-data":         base64.StdEncoding.EncodeToString(encoded.Key),
		}}},
	})
}

func writeAll(w io.Writer, content []byte) error {
	n, err := w.Write(content)
	if err == nil && n < len(content) {
		err = errors.New("short write")
	}

	return err
}
