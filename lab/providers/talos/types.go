package talos

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	p "github.com/pulumi/pulumi-go-provider"
	"golang.org/x/mod/semver"
)

// The published provider's default for every timeout, and when it renews certificates.
const (
	defaultTimeout       = 10 * time.Minute
	defaultRenewal       = "720h"
	secretsRenewalMonths = 1
)

// clientConfiguration is the certificate of a Talos client; every value is base64 of PEM.
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
	BootstrapToken            string  `pulumi:"bootstrapToken" provider:"secret"`
	SecretboxEncryptionSecret string  `pulumi:"secretboxEncryptionSecret" provider:"secret"`
	AESCBCEncryptionSecret    *string `pulumi:"aescbcEncryptionSecret,optional" provider:"secret"`
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

// timeouts are Go durations; a resource uses those of its own operations.
type timeouts struct {
	Create *string `pulumi:"create,optional"`
	Update *string `pulumi:"update,optional"`
}

func (t *timeouts) create() time.Duration {
	return duration(t != nil, func() *string { return t.Create })
}

func (t *timeouts) update() time.Duration {
	return duration(t != nil, func() *string { return t.Update })
}

// applyTimeouts are those of a resource whose deletion does something.
type applyTimeouts struct {
	timeouts

	Delete *string `pulumi:"delete,optional"`
}

func (t *applyTimeouts) delete() time.Duration {
	return duration(t != nil, func() *string { return t.Delete })
}

// common are the timeouts that other resources have as well.
func (t *applyTimeouts) common() *timeouts {
	if t == nil {
		return nil
	}

	return &t.timeouts
}

func (t *applyTimeouts) check() []p.CheckFailure {
	if t == nil {
		return nil
	}

	return append(t.timeouts.check(), checkDuration("delete", t.Delete)...)
}

// duration reads a timeout. One that is not a duration was unknown when Check refused such ones.
func duration(stated bool, field func() *string) time.Duration {
	if !stated || field() == nil {
		return defaultTimeout
	}

	d, err := time.ParseDuration(*field())
	if err != nil || d <= 0 {
		return defaultTimeout
	}

	return d
}

// savable judges timeouts after everything else has worked: the published plugin does the work, and then fails to save
// the resource, which the engine takes for one that was not made (pulumiverse/pulumi-talos#208 and #252).
func (t *timeouts) savable() error {
	if t == nil {
		return nil
	}

	return errors.New(`failed recovering value for turnaround check: Data integrity error: "__pulumi_raw_state_delta" does not apply cleanly to the resource state: ` +
		`leave out timeouts, which the published provider cannot save; every timeout is ten minutes then`)
}

func (t *timeouts) check() []p.CheckFailure {
	if t == nil {
		return nil
	}

	return append(checkDuration("create", t.Create), checkDuration("update", t.Update)...)
}

func checkDuration(name string, value *string) []p.CheckFailure {
	if value == nil || *value == "" {
		return nil
	}

	if _, err := time.ParseDuration(*value); err != nil {
		return []p.CheckFailure{
			{Property: "timeouts." + name, Reason: fmt.Sprintf("%q is not a duration: write it like 10m", *value)},
		}
	}

	return nil
}

// or returns the value of an optional input, or its default.
func or(value *string, fallback string) string {
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

// expires says whether the certificate (base64 of PEM) is no longer valid at the given time. No certificate never
// expires.
func expires(encoded string, at time.Time) (bool, error) {
	if encoded == "" {
		return false, nil
	}

	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return false, fmt.Errorf("decode the client certificate in the state: %w", err)
	}

	block, _ := pem.Decode(text)
	if block == nil {
		return false, fmt.Errorf("decode the client certificate in the state: it is not PEM")
	}

	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return false, fmt.Errorf("parse the client certificate in the state: %w", err)
	}

	return parsed.NotAfter.Before(at), nil
}

// lowered says that the version contract of existing secrets would go down, which only new secrets can do.
func lowered(old, wanted string) bool {
	if old == "" || wanted == "" {
		return false
	}

	return semver.Compare(withV(wanted), withV(old)) < 0
}

func withV(version string) string { return "v" + strings.TrimPrefix(version, "v") }
