package talos

import (
	"bytes"
	stdx509 "crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"time"

	"github.com/siderolabs/crypto/x509"
	"go.yaml.in/yaml/v4"
)

// Kubeconfig is what Talos makes for the administrator: one cluster, one user. Its errors tell nothing of it.
type Kubeconfig string

var errKubeconfig = errors.New("it is not a kubeconfig as Talos makes it, with the certificates of one administrator")

// kubeconfigFile keeps what it does not know.
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
		return file, errKubeconfig // the parser quotes the text
	}

	return file, nil
}

// Trusted returns the authorities that it trusts, in PEM.
func (k Kubeconfig) Trusted() ([]byte, error) {
	file, err := k.parse()
	if err != nil {
		return nil, err
	}

	certificate, err := base64.StdEncoding.DecodeString(file.Clusters[0].Cluster.Authority)
	if err != nil || len(certificate) == 0 {
		return nil, errKubeconfig
	}

	return certificate, nil
}

// Trusting is one that takes servers of these authorities, in PEM, for the cluster's.
func (k Kubeconfig) Trusting(authorities ...[]byte) (Kubeconfig, error) {
	file, err := k.parse()
	if err != nil {
		return "", err
	}

	file.Clusters[0].Cluster.Authority = base64.StdEncoding.EncodeToString(bytes.Join(authorities, []byte("\n")))

	return file.text()
}

// Of is one of the same user, with a new certificate of another authority, which it trusts alone. The certificate lasts
// as long as the one before did.
func (k Kubeconfig) Of(a Authority, now time.Time) (Kubeconfig, error) {
	file, err := k.parse()
	if err != nil {
		return "", err
	}

	text, _ := base64.StdEncoding.DecodeString(file.Users[0].User.Certificate)

	block, _ := pem.Decode(text)
	if block == nil {
		return "", errKubeconfig
	}

	before, err := stdx509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", errKubeconfig
	}

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(
		&x509.PEMEncodedCertificateAndKey{Crt: a.Certificate, Key: a.Key},
	)
	if err != nil {
		return "", errSecrets // the cause may quote them
	}

	pair, err := x509.NewKeyPair(ca,
		x509.CommonName(before.Subject.CommonName), x509.Organization(before.Subject.Organization...),
		x509.NotBefore(now.Add(-10*time.Second)), x509.NotAfter(now.Add(before.NotAfter.Sub(before.NotBefore))),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
	)
	if err != nil {
		return "", errSecrets
	}

	made := x509.NewCertificateAndKeyFromKeyPair(pair)
	file.Clusters[0].Cluster.Authority = base64.StdEncoding.EncodeToString(a.Certificate)
	file.Users[0].User.Certificate = base64.StdEncoding.EncodeToString(made.Crt)
	file.Users[0].User.Key = base64.StdEncoding.EncodeToString(made.Key)

	return file.text()
}

// Provider is what Talos' provider has of it in its output kubernetesClientConfiguration.
func (k Kubeconfig) Provider() (map[string]any, error) {
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

func (f kubeconfigFile) text() (Kubeconfig, error) {
	text, err := yaml.Marshal(f)
	if err != nil {
		return "", errKubeconfig
	}

	return Kubeconfig(text), nil
}
