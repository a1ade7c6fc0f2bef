package talos

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"go.yaml.in/yaml/v4"
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

// errExported tells nothing of what was read.
var errExported = errors.New("they are not machine secrets as `talos-proxmox secrets export` or `talosctl gen secrets` writes them")

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
	if failed || bundle.Validate(nil) != nil {
		return nil, errSecrets
	}

	text, err := yaml.Marshal(bundle)
	if err != nil {
		return nil, fmt.Errorf("unable to write the machine secrets: %w", errSecrets)
	}

	return text, nil
}

// ProviderSecrets is the inverse of [SecretsBundle]: the outputs machineSecrets and clientConfiguration of Talos'
// provider for machine secrets that were exported, with a new client certificate. Its errors tell nothing of them.
func ProviderSecrets(exported []byte, now time.Time) (machine, client map[string]any, err error) {
	var bundle secrets.Bundle
	if err := yaml.Unmarshal(exported, &bundle); err != nil {
		return nil, nil, errExported
	}

	bundle.Clock = secrets.NewFixedClock(now)
	if bundle.Cluster == nil || bundle.Secrets == nil || bundle.TrustdInfo == nil || bundle.Certs == nil ||
		bundle.Validate(nil) != nil {
		return nil, nil, errExported
	}

	made, err := bundle.GenerateTalosAPIClientCertificate(role.MakeSet(role.Admin))
	if err != nil {
		return nil, nil, errExported
	}

	encode := base64.StdEncoding.EncodeToString

	return providerSecrets(&bundle), map[string]any{
		"caCertificate": encode(bundle.Certs.OS.Crt), "clientCertificate": encode(made.Crt), "clientKey": encode(made.Key),
	}, nil
}

// providerSecrets is what Talos' provider has of a bundle in its output machineSecrets.
func providerSecrets(b *secrets.Bundle) map[string]any {
	encode := base64.StdEncoding.EncodeToString
	pair := func(c *x509.PEMEncodedCertificateAndKey) map[string]any {
		return map[string]any{"cert": encode(c.Crt), "key": encode(c.Key)}
	}

	values := map[string]any{
		"certs": map[string]any{
			"etcd":              pair(b.Certs.Etcd),
			"k8s":               pair(b.Certs.K8s),
			"k8sAggregator":     pair(b.Certs.K8sAggregator),
			"os":                pair(b.Certs.OS),
			"k8sServiceaccount": map[string]any{"key": encode(b.Certs.K8sServiceAccount.Key)},
		},
		"cluster": map[string]any{"id": b.Cluster.ID, "secret": b.Cluster.Secret},
		"secrets": map[string]any{
			"bootstrapToken": b.Secrets.BootstrapToken, "secretboxEncryptionSecret": b.Secrets.SecretboxEncryptionSecret,
		},
		"trustdinfo": map[string]any{"token": b.TrustdInfo.Token},
	}

	if old := b.Secrets.AESCBCEncryptionSecret; old != "" { // of contracts before 1.3
		values["secrets"].(map[string]any)["aescbcEncryptionSecret"] = old
	}

	return values
}
