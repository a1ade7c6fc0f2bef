package talos

import (
	"encoding/base64"
	"fmt"
	"time"

	"github.com/siderolabs/crypto/x509"
)

// The published provider's timeout and renewal periods. It fails to save a state with other timeouts, so the program
// sets none (pulumiverse/pulumi-talos#208 and #252).
const (
	defaultTimeout       = 10 * time.Minute
	defaultRenewal       = "720h"
	secretsRenewalMonths = 1
)

// clientConfiguration is a Talos client certificate; every value is base64 of PEM.
type clientConfiguration struct {
	CACertificate     string `pulumi:"caCertificate"`
	ClientCertificate string `pulumi:"clientCertificate"`
	ClientKey         string `pulumi:"clientKey" provider:"secret"`
}

// machineSecrets are a cluster's secrets; certificates and keys are base64 of PEM.
type machineSecrets struct {
	Cluster    clusterSecrets    `pulumi:"cluster"`
	Secrets    kubernetesSecrets `pulumi:"secrets"`
	TrustdInfo trustdInfo        `pulumi:"trustdinfo"`
	Certs      certificates      `pulumi:"certs"`
}

type clusterSecrets struct {
	ID     string `pulumi:"id"`
	Secret string `pulumi:"secret" provider:"secret"`
}

type kubernetesSecrets struct {
	BootstrapToken            string `pulumi:"bootstrapToken" provider:"secret"`
	SecretboxEncryptionSecret string `pulumi:"secretboxEncryptionSecret" provider:"secret"`
}

type trustdInfo struct {
	Token string `pulumi:"token" provider:"secret"`
}

type certificates struct {
	Etcd              certificate `pulumi:"etcd"`
	K8s               certificate `pulumi:"k8s"`
	K8sAggregator     certificate `pulumi:"k8sAggregator"`
	K8sServiceAccount privateKey  `pulumi:"k8sServiceaccount"`
	OS                certificate `pulumi:"os"`
}

type certificate struct {
	Cert string `pulumi:"cert"`
	Key  string `pulumi:"key" provider:"secret"`
}

type privateKey struct {
	Key string `pulumi:"key" provider:"secret"`
}

// orDefault returns the value of an optional input, or its default.
func orDefault(value *string, fallback string) string {
	if value == nil || *value == "" {
		return fallback
	}

	return *value
}

func renewalDuration(text string) (time.Duration, error) {
	if text == "" {
		text = defaultRenewal
	}

	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("certificateRenewalDuration %q is not a duration: write it like %s", text, defaultRenewal)
	}

	return d, nil
}

// expiresBefore reports whether a certificate (base64 of PEM) is no longer valid at a time. An empty one never
// expires.
func expiresBefore(encoded string, at time.Time) (bool, error) {
	if encoded == "" {
		return false, nil
	}

	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return false, fmt.Errorf("decode the client certificate in the state: %w", err)
	}

	parsed, err := (&x509.PEMEncodedCertificateAndKey{Crt: text}).GetCert()
	if err != nil {
		return false, fmt.Errorf("parse the client certificate in the state: %w", err)
	}

	return parsed.NotAfter.Before(at), nil
}
