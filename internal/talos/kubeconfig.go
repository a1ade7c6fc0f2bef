package talos

import (
	"bytes"
	stdx509 "crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v4"
)

// Kubeconfig is the administrator's kubeconfig as Talos generates it: one cluster, one user. Errors do not quote it.
type Kubeconfig string

var errNotKubeconfig = errors.New("it is not a kubeconfig as Talos generates it, with the certificate of one administrator")

// kubeconfigFile preserves unknown fields.
type kubeconfigFile struct {
	Clusters []struct {
		Cluster struct {
			Authority string         `yaml:"certificate-authority-data"`
			Others    map[string]any `yaml:",inline"`
		} `yaml:"cluster"`
		Others map[string]any `yaml:",inline"`
	} `yaml:"clusters"`
	Users []struct {
		User struct {
			Certificate string         `yaml:"client-certificate-data"`
			Key         string         `yaml:"client-key-data"`
			Others      map[string]any `yaml:",inline"`
		} `yaml:"user"`
		Others map[string]any `yaml:",inline"`
	} `yaml:"users"`
	Others map[string]any `yaml:",inline"`
}

func (k Kubeconfig) parse() (file kubeconfigFile, err error) {
	if err := yaml.Unmarshal([]byte(k), &file); err != nil || len(file.Clusters) != 1 || len(file.Users) != 1 {
		return file, errNotKubeconfig // the parser quotes the text
	}

	return file, nil
}

// Authorities returns the certificate authorities of the cluster, in PEM.
func (k Kubeconfig) Authorities() ([]byte, error) {
	file, err := k.parse()
	if err != nil {
		return nil, err
	}

	certificate, err := base64.StdEncoding.DecodeString(file.Clusters[0].Cluster.Authority)
	if err != nil || len(certificate) == 0 {
		return nil, errNotKubeconfig
	}

	return certificate, nil
}

// WithAuthorities returns a copy with these certificate authorities for the cluster, in PEM.
func (k Kubeconfig) WithAuthorities(authorities ...[]byte) (Kubeconfig, error) {
	file, err := k.parse()
	if err != nil {
		return "", err
	}

	file.Clusters[0].Cluster.Authority = base64.StdEncoding.EncodeToString(bytes.Join(authorities, []byte("\n")))

	return file.encode()
}

// WithServer returns a copy with the URL of another server for the same cluster; itself if it has that already, or is
// no kubeconfig, which those who read it report.
func (k Kubeconfig) WithServer(url string) Kubeconfig {
	file, err := k.parse()
	if err != nil {
		return k
	}

	cluster := file.Clusters[0].Cluster.Others
	if server, known := cluster["server"]; !known || server == url {
		return k
	}

	cluster["server"] = url

	changed, err := file.encode()
	if err != nil {
		return k
	}

	return changed
}

// Reissue returns a copy that trusts only this authority, with a client certificate issued by it for the same user and
// the same validity.
func (k Kubeconfig) Reissue(a Authority, now time.Time) (Kubeconfig, error) {
	file, err := k.parse()
	if err != nil {
		return "", err
	}

	text, _ := base64.StdEncoding.DecodeString(file.Users[0].User.Certificate)

	block, _ := pem.Decode(text)
	if block == nil {
		return "", errNotKubeconfig
	}

	oldCertificate, err := stdx509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", errNotKubeconfig
	}

	subject := oldCertificate.Subject

	certificate, key, err := a.kubernetesClient(
		now.Add(-10*time.Second), now.Add(oldCertificate.NotAfter.Sub(oldCertificate.NotBefore)),
		subject.CommonName, subject.Organization...,
	)
	if err != nil {
		return "", err
	}

	file.Clusters[0].Cluster.Authority = base64.StdEncoding.EncodeToString(a.Certificate)
	file.Users[0].User.Certificate = base64.StdEncoding.EncodeToString(certificate)
	file.Users[0].User.Key = base64.StdEncoding.EncodeToString(key)

	return file.encode()
}

// TemporaryKubeconfig returns a kubeconfig for the server with a short-lived administrator of this authority of
// Kubernetes.
func (a Authority) TemporaryKubeconfig(cluster, server string, now time.Time) (Kubeconfig, error) {
	certificate, key, err := a.kubernetesClient(
		now.Add(-clientSkew), now.Add(clientValidity),
		constants.KubernetesAdminCertCommonName, constants.KubernetesAdminCertOrganization,
	)
	if err != nil {
		return "", err
	}

	encode := base64.StdEncoding.EncodeToString

	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": cluster,
		"clusters": []any{map[string]any{"name": cluster, "cluster": map[string]any{
			"server": server, "certificate-authority-data": encode(a.Certificate),
		}}},
		"users": []any{map[string]any{"name": cluster, "user": map[string]any{
			"client-certificate-data": encode(certificate), "client-key-data": encode(key),
		}}},
		"contexts": []any{map[string]any{"name": cluster, "context": map[string]any{"cluster": cluster, "user": cluster}}},
	})
	if err != nil {
		return "", errNotKubeconfig
	}

	return Kubeconfig(text), nil
}

// kubernetesClient issues a client certificate of this authority of Kubernetes, in PEM with its key.
func (a Authority) kubernetesClient(
	from, to time.Time, name string, groups ...string,
) (certificate, key []byte, err error) {
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(
		&x509.PEMEncodedCertificateAndKey{Crt: a.Certificate, Key: a.Key},
	)
	if err != nil {
		return nil, nil, errNotProviderSecrets // the cause may quote secrets
	}

	pair, err := x509.NewKeyPair(ca,
		x509.CommonName(name), x509.Organization(groups...), x509.NotBefore(from), x509.NotAfter(to),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
	)
	if err != nil {
		return nil, nil, errNotProviderSecrets
	}

	issued := x509.NewCertificateAndKeyFromKeyPair(pair)

	return issued.Crt, issued.Key, nil
}

// ProviderOutput returns it as the output kubernetesClientConfiguration of the Talos provider.
func (k Kubeconfig) ProviderOutput() (map[string]any, error) {
	file, err := k.parse()
	if err != nil {
		return nil, err
	}

	return map[string]any{
		"caCertificate":     file.Clusters[0].Cluster.Authority,
		"clientCertificate": file.Users[0].User.Certificate, "clientKey": file.Users[0].User.Key,
		"host": file.Clusters[0].Cluster.Others["server"],
	}, nil
}

func (f kubeconfigFile) encode() (Kubeconfig, error) {
	text, err := yaml.Marshal(f)
	if err != nil {
		return "", errNotKubeconfig
	}

	return Kubeconfig(text), nil
}
