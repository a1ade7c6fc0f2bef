package talos

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"gopkg.in/yaml.v3"
)

// machineSecrets is the output of this name of the provider's resource Secrets; certificates and keys are PEM in
// base64.
type machineSecrets struct {
	Certs struct {
		Etcd, K8s, K8sAggregator, K8sServiceaccount, OS certificate
	} `json:"certs"`
	Cluster struct {
		ID     string `json:"id"`
		Secret string `json:"secret"`
	} `json:"cluster"`
	Secrets struct {
		BootstrapToken            string `json:"bootstrapToken"`
		AESCBCEncryptionSecret    string `json:"aescbcEncryptionSecret"`
		SecretboxEncryptionSecret string `json:"secretboxEncryptionSecret"`
	} `json:"secrets"`
	Trustdinfo struct {
		Token string `json:"token"`
	} `json:"trustdinfo"`
}

type certificate struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// errSecrets tells nothing of what was read.
var errSecrets = errors.New(
	"the machine secrets are not what Talos' provider writes: bring the stack up once, then repeat",
)

// SecretsBundle returns the machine secrets of a cluster as `talosctl gen secrets` writes them (secrets.yaml), which
// `talosctl gen config --with-secrets` and an import of the provider's resource read. The values are the output
// machineSecrets of that resource, in plain. Its errors tell nothing of them.
func SecretsBundle(values map[string]any) ([]byte, error) {
	content, err := json.Marshal(values)
	if err != nil {
		return nil, errSecrets
	}

	var s machineSecrets
	if err := json.Unmarshal(content, &s); err != nil {
		return nil, errSecrets
	}

	failed := false
	decode := func(text string) []byte {
		pem, err := base64.StdEncoding.DecodeString(text)
		failed = failed || err != nil || len(pem) == 0

		return pem
	}
	pair := func(c certificate) *x509.PEMEncodedCertificateAndKey {
		return &x509.PEMEncodedCertificateAndKey{Crt: decode(c.Cert), Key: decode(c.Key)}
	}

	bundle := secrets.Bundle{
		Cluster: &secrets.Cluster{ID: s.Cluster.ID, Secret: s.Cluster.Secret},
		Secrets: &secrets.Secrets{
			BootstrapToken: s.Secrets.BootstrapToken, AESCBCEncryptionSecret: s.Secrets.AESCBCEncryptionSecret,
			SecretboxEncryptionSecret: s.Secrets.SecretboxEncryptionSecret,
		},
		TrustdInfo: &secrets.TrustdInfo{Token: s.Trustdinfo.Token},
		Certs: &secrets.Certs{
			Etcd: pair(s.Certs.Etcd), K8s: pair(s.Certs.K8s), K8sAggregator: pair(s.Certs.K8sAggregator), OS: pair(s.Certs.OS),
			K8sServiceAccount: &x509.PEMEncodedKey{Key: decode(s.Certs.K8sServiceaccount.Key)},
		},
	}
	if failed || bundle.Validate() != nil {
		return nil, errSecrets
	}

	text, err := yaml.Marshal(bundle)
	if err != nil {
		return nil, fmt.Errorf("unable to write the machine secrets: %w", errSecrets)
	}

	return text, nil
}
