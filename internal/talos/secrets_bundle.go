package talos

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"go.yaml.in/yaml/v4"
)

// providerMachineSecrets is the output machineSecrets of the provider's resource Secrets; certificates and keys are
// base64-encoded PEM.
type providerMachineSecrets struct {
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

// errNotExportedSecrets does not quote the input.
var errNotExportedSecrets = errors.New("they are not machine secrets as `talos-proxmox secrets export` or `talosctl gen secrets` writes them")

// errNotProviderSecrets does not quote the input.
var errNotProviderSecrets = errors.New(
	"the machine secrets are not what Talos' provider writes: bring the stack up once, then repeat",
)

// SecretsBundle converts the output machineSecrets of the provider's resource, decrypted, into the secrets.yaml that
// `talosctl gen secrets` writes, and that `talosctl gen config --with-secrets` and an import of the resource read.
// Errors do not quote the values.
func SecretsBundle(values map[string]any) ([]byte, error) {
	bundle, err := bundleOf(values)
	if err != nil {
		return nil, err
	}

	text, err := yaml.Marshal(bundle)
	if err != nil {
		return nil, fmt.Errorf("unable to write the machine secrets: %w", errNotProviderSecrets)
	}

	return text, nil
}

// bundleOf returns the output machineSecrets of the provider's resource, decrypted, as a bundle.
func bundleOf(values map[string]any) (*secrets.Bundle, error) {
	content, err := json.Marshal(values)
	if err != nil {
		return nil, errNotProviderSecrets
	}

	var s providerMachineSecrets
	if err := json.Unmarshal(content, &s); err != nil {
		return nil, errNotProviderSecrets
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

	bundle := &secrets.Bundle{
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
		return nil, errNotProviderSecrets
	}

	return bundle, nil
}

// PlaceholderSecrets returns valid secrets of no cluster, in the form of the provider's output machineSecrets.
func PlaceholderSecrets() (map[string]any, error) {
	bundle, err := placeholderBundle()
	if err != nil {
		return nil, err
	}

	return machineSecretsOutput(bundle), nil
}

// ProviderSecrets is the inverse of [SecretsBundle]: it returns the outputs machineSecrets and clientConfiguration of
// the Talos provider for exported secrets, with a new client certificate. Errors do not quote the secrets.
func ProviderSecrets(exported []byte, now time.Time) (machine, client map[string]any, err error) {
	var bundle secrets.Bundle
	if err := yaml.Unmarshal(exported, &bundle); err != nil {
		return nil, nil, errNotExportedSecrets
	}

	bundle.Clock = secrets.NewFixedClock(now)
	if bundle.Cluster == nil || bundle.Secrets == nil || bundle.TrustdInfo == nil || bundle.Certs == nil ||
		bundle.Validate(nil) != nil {
		return nil, nil, errNotExportedSecrets
	}

	issued, err := bundle.GenerateTalosAPIClientCertificate(role.MakeSet(role.Admin))
	if err != nil {
		return nil, nil, errNotExportedSecrets
	}

	client = Client{Authority: bundle.Certs.OS.Crt, Certificate: issued.Crt, Key: issued.Key}.ProviderOutput()

	return machineSecretsOutput(&bundle), client, nil
}

// SecretsAuthority returns the authority of an API in the output machineSecrets of the provider's resource, decrypted,
// and while it is being replaced the certificate of the former one, else nil. What the output does not have is empty.
func SecretsAuthority(machine map[string]any, kind AuthorityKind) (a Authority, replaced []byte) {
	certs, _ := machine["certs"].(map[string]any)
	ca, _ := certs[authorityKinds[kind].secret].(map[string]any)
	a.Key = decodePEM(ca["key"])
	a.Certificate, replaced = SplitAuthorities(decodePEM(ca["cert"]))

	return a, replaced
}

// SetSecretsAuthority sets the authority of an API in such an output, and the certificate of the one that it replaces;
// nil = none.
func SetSecretsAuthority(machine map[string]any, kind AuthorityKind, a Authority, replaced []byte) {
	certs, _ := machine["certs"].(map[string]any)
	certs[authorityKinds[kind].secret] = map[string]any{
		"cert": encodePEM(slices.Concat(a.Certificate, replaced)), "key": encodePEM(a.Key),
	}
}

// ProviderClient returns the client in the output clientConfiguration of the provider's resource, decrypted. What the
// output does not have is empty.
func ProviderClient(output map[string]any) Client {
	return Client{
		Authority: decodePEM(output["caCertificate"]), Certificate: decodePEM(output["clientCertificate"]),
		Key: decodePEM(output["clientKey"]),
	}
}

// ProviderOutput is the inverse of [ProviderClient].
func (c Client) ProviderOutput() map[string]any {
	return map[string]any{
		"caCertificate": encodePEM(c.Authority), "clientCertificate": encodePEM(c.Certificate), "clientKey": encodePEM(c.Key),
	}
}

func encodePEM(pem []byte) string { return base64.StdEncoding.EncodeToString(pem) }

// decodePEM decodes a value of the provider; nil = it is not base64.
func decodePEM(value any) []byte {
	text, _ := value.(string)

	pem, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}

	return pem
}

// ContractOfSecrets returns the contract of existing machine secrets, as [ProviderSecrets] returns them, on a release:
// its own, but none with documents for secrets that encrypt etcd with AES-CBC, for which Talos would generate another
// encryption (pkg/machinery/config/generate/kubernetes.go of 1.14.1 has their key as one of secretbox).
func ContractOfSecrets(machine map[string]any, r Release) string {
	_, old := machine["secrets"].(map[string]any)["aescbcEncryptionSecret"]
	contract := Releases()[0].Contract

	for _, known := range Releases() {
		if fits := !old || !known.KubernetesDocuments; fits && !minorVersion(r.Talos).before(minorVersion(known.Talos)) {
			contract = known.Contract
		}
	}

	return contract
}

// machineSecretsOutput returns a bundle as the output machineSecrets of the Talos provider.
func machineSecretsOutput(b *secrets.Bundle) map[string]any {
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

	if old := b.Secrets.AESCBCEncryptionSecret; old != "" { // version contracts before 1.3
		values["secrets"].(map[string]any)["aescbcEncryptionSecret"] = old
	}

	return values
}
