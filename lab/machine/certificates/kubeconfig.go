package certificates

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"talos-proxmox/lab/machine/configuration"
)

// adminKubeconfig returns the administrator's kubeconfig with a new certificate of the cluster's authority.
func adminKubeconfig(cfg config.Provider) ([]byte, error) {
	ca, err := Authority(ClusterIssuingCA(cfg), "cluster.ca")
	if err != nil {
		return nil, fmt.Errorf("error getting Kubernetes CA: %w", err)
	}

	admin := cfg.Cluster().AdminKubeconfig()

	pair, err := Issue(
		ca, Subject{Name: admin.CommonName(), Groups: []string{admin.CertOrganization()}, Lifetime: admin.CertLifetime()},
		stdx509.ExtKeyUsageClientAuth,
	)
	if err != nil {
		return nil, fmt.Errorf("error generating Kubernetes client certificate: %w", err)
	}

	name := cmp.Or(configuration.ClusterName(cfg), constants.DefaultDNSDomain)
	user := "admin@" + name

	return clientcmd.Write(api.Config{
		CurrentContext: user,
		Clusters: map[string]*api.Cluster{name: {
			Server: configuration.Endpoint(cfg).String(), CertificateAuthorityData: ClusterBundle(cfg),
		}},
		Contexts:  map[string]*api.Context{user: {Cluster: name, Namespace: "default", AuthInfo: user}},
		AuthInfos: map[string]*api.AuthInfo{user: {ClientCertificateData: pair.Crt, ClientKeyData: pair.Key}},
	})
}

// Kubeconfig returns the administrator's kubeconfig in a .tar.gz, as the Talos API sends it.
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

	err = archive.WriteHeader(header)
	if err == nil {
		_, err = archive.Write(content)
	}

	if err = errors.Join(err, archive.Close(), zipped.Close()); err != nil {
		return nil, fmt.Errorf("unable to pack the kubeconfig: %w", err)
	}

	return buffer.Bytes(), nil
}
