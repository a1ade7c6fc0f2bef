package talos

import (
	"encoding/base64"
	"fmt"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
)

// fromBundle converts the machinery's secrets to the SDK's nested form.
func fromBundle(b *secrets.Bundle) machineSecrets {
	return machineSecrets{
		Cluster: clusterSecrets{ID: b.Cluster.ID, Secret: b.Cluster.Secret},
		Secrets: kubernetesSecrets{
			BootstrapToken: b.Secrets.BootstrapToken, SecretboxEncryptionSecret: b.Secrets.SecretboxEncryptionSecret,
		},
		TrustdInfo: trustdInfo{Token: b.TrustdInfo.Token},
		Certs: certificates{
			Etcd:              fromPair(b.Certs.Etcd),
			K8s:               fromPair(b.Certs.K8s),
			K8sAggregator:     fromPair(b.Certs.K8sAggregator),
			K8sServiceAccount: privateKey{Key: encode(b.Certs.K8sServiceAccount.Key)},
			OS:                fromPair(b.Certs.OS),
		},
	}
}

func fromPair(pair *x509.PEMEncodedCertificateAndKey) certificate {
	return certificate{Cert: encode(pair.Crt), Key: encode(pair.Key)}
}

// bundle is the inverse of fromBundle.
func (m machineSecrets) bundle(now time.Time) (*secrets.Bundle, error) {
	var d decoder

	b := &secrets.Bundle{
		Clock:   secrets.NewFixedClock(now),
		Cluster: &secrets.Cluster{ID: m.Cluster.ID, Secret: m.Cluster.Secret},
		Secrets: &secrets.Secrets{
			BootstrapToken:            m.Secrets.BootstrapToken,
			SecretboxEncryptionSecret: m.Secrets.SecretboxEncryptionSecret,
		},
		TrustdInfo: &secrets.TrustdInfo{Token: m.TrustdInfo.Token},
		Certs: &secrets.Certs{
			Etcd:              d.pair("etcd", m.Certs.Etcd),
			K8s:               d.pair("k8s", m.Certs.K8s),
			K8sAggregator:     d.pair("k8sAggregator", m.Certs.K8sAggregator),
			K8sServiceAccount: &x509.PEMEncodedKey{Key: d.bytes("k8sServiceaccount.key", m.Certs.K8sServiceAccount.Key)},
			OS:                d.pair("os", m.Certs.OS),
		},
	}

	return b, d.err
}

// decoder decodes base64 and keeps the first error.
type decoder struct{ err error }

func (d *decoder) pair(name string, c certificate) *x509.PEMEncodedCertificateAndKey {
	return &x509.PEMEncodedCertificateAndKey{Crt: d.bytes(name+".cert", c.Cert), Key: d.bytes(name+".key", c.Key)}
}

func (d *decoder) bytes(name, value string) []byte {
	b, err := base64.StdEncoding.DecodeString(value)
	if err != nil && d.err == nil {
		d.err = fmt.Errorf(
			"machineSecrets.certs.%s is not base64: %w: pass the secrets on as machine/secrets gave them", name, err,
		)
	}

	return b
}
