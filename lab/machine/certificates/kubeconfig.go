package certificates

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	stdx509 "crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/lab/machine/configuration"
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
	ca, err := Authority(ClusterIssuing(cfg), "cluster.ca")
	if err != nil {
		return nil, fmt.Errorf("error getting Kubernetes CA: %w", err)
	}

	admin := cfg.Cluster().AdminKubeconfig()

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
			"server":                     configuration.Endpoint(cfg).String(),
			"certificate-authority-data": base64.StdEncoding.EncodeToString(ClusterBundle(cfg)),
		}}},
		Contexts: []namedEntry{{Name: user, Context: map[string]any{"cluster": name, "namespace": "default", "user": user}}},
		Users: []namedEntry{{Name: user, User: map[string]any{
			"client-certificate-data": base64.StdEncoding.EncodeToString(encoded.Crt),
			"client-key-data":         base64.StdEncoding.EncodeToString(encoded.Key),
		}}},
	})
}

// clusterName is what the kubeconfig calls the cluster.
func clusterName(cfg config.Provider) string {
	if name := configuration.ClusterName(cfg); name != "" {
		return name
	}

	return constants.DefaultDNSDomain
}

// Kubeconfig is the administrator's kubeconfig in a .tar.gz, as the Talos API sends it.
func Kubeconfig(cfg config.Provider) ([]byte, error) {
	content, err := adminKubeconfig(cfg)
	if err != nil {
		return nil, err
	}

	var buffer bytes.Buffer

	zipped := gzip.NewWriter(&buffer)
	archive := tar.NewWriter(zipped)
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: "kubeconfig", Size: int64(len(content)), ModTime: time.Now(), Mode: 0o600,
	}

	if err := errors.Join(
		archive.WriteHeader(header), writeAll(archive, content), archive.Close(), zipped.Close(),
	); err != nil {
		return nil, fmt.Errorf("unable to pack the kubeconfig: %w", err)
	}

	return buffer.Bytes(), nil
}

func writeAll(w io.Writer, content []byte) error {
	n, err := w.Write(content)
	if err == nil && n < len(content) {
		err = errors.New("short write")
	}

	return err
}
