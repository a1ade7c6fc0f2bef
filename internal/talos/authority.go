package talos

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/siderolabs/crypto/x509"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// Authority is a certificate authority, with PEM-encoded certificate and key.
type Authority struct {
	Certificate []byte `json:"certificate"`
	Key         []byte `json:"key"`
}

// New generates an authority as Talos does, valid for ten years. It is a secret.
func (k AuthorityKind) New(now time.Time) (Authority, error) {
	ca, err := authorityKinds[k].generate(now)
	if err != nil {
		return Authority{}, fmt.Errorf("unable to make a certificate authority: %w", err)
	}

	return Authority{Certificate: ca.CrtPEM, Key: ca.KeyPEM}, nil
}

// Client is a client certificate of the Talos API and the authority that the client trusts, PEM-encoded. The key is a
// secret.
type Client struct{ Authority, Certificate, Key []byte }

// Administrator issues a client certificate with the role os:admin, valid for a year.
func (a Authority) Administrator(now time.Time) (Client, error) {
	return a.newClient(now, constants.TalosAPIDefaultCertificateValidityDuration, role.Admin)
}

// Short-lived clients are valid for a day, also on machines whose clocks are an hour slow.
const (
	clientValidity = 24 * time.Hour
	clientSkew     = time.Hour
)

// TemporaryAdministrator issues a short-lived client certificate with the role os:admin.
func (a Authority) TemporaryAdministrator(now time.Time) (Client, error) {
	return a.newClient(now.Add(-clientSkew), clientSkew+clientValidity, role.Admin)
}

// Reader issues a short-lived client certificate with the role os:reader.
func (a Authority) Reader(now time.Time) (Client, error) {
	return a.newClient(now.Add(-clientSkew), clientSkew+clientValidity, role.Reader)
}

// EtcdBackup issues a short-lived client certificate with the roles os:reader and os:etcd:backup.
func (a Authority) EtcdBackup(now time.Time) (Client, error) {
	return a.newClient(now.Add(-clientSkew), clientSkew+clientValidity, role.Reader, role.EtcdBackup)
}

func (a Authority) newClient(from time.Time, validity time.Duration, roles ...role.Role) (Client, error) {
	bundle := secrets.Bundle{Clock: secrets.NewFixedClock(from), Certs: &secrets.Certs{
		OS: &x509.PEMEncodedCertificateAndKey{Crt: a.Certificate, Key: a.Key},
	}}

	issued, err := bundle.GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(roles...), validity)
	if err != nil {
		return Client{}, errNotProviderSecrets // the cause may quote secrets
	}

	return Client{Authority: a.Certificate, Certificate: issued.Crt, Key: issued.Key}, nil
}

// Talosconfig returns the client's talosconfig, which is a secret; the endpoints are addresses of control planes.
func (c Client) Talosconfig(cluster string, endpoints []string) (string, error) {
	config := clientconfig.NewConfig(
		cluster, endpoints, c.Authority, &x509.PEMEncodedCertificateAndKey{Crt: c.Certificate, Key: c.Key},
	)

	text, err := config.Bytes()
	if err != nil {
		return "", errNotProviderSecrets
	}

	return string(text), nil
}

// TalosconfigWithAuthorities returns a talosconfig with these certificate authorities, in PEM.
func TalosconfigWithAuthorities(talosconfig string, authorities ...[]byte) (string, error) {
	config, current, err := parseTalosconfig(talosconfig)
	if err != nil {
		return "", err
	}

	current.CA = base64.StdEncoding.EncodeToString(bytes.Join(authorities, []byte("\n")))

	text, err := config.Bytes()
	if err != nil {
		return "", errNotTalosconfig
	}

	return string(text), nil
}

// TalosconfigAuthority returns the certificate authority of a talosconfig, in PEM.
func TalosconfigAuthority(talosconfig string) ([]byte, error) {
	_, current, err := parseTalosconfig(talosconfig)
	if err != nil {
		return nil, err
	}

	certificate, err := base64.StdEncoding.DecodeString(current.CA)
	if err != nil {
		return nil, errNotTalosconfig
	}

	return certificate, nil
}

// errNotTalosconfig does not quote the input.
var errNotTalosconfig = errors.New("it is not a Talos client configuration")

func parseTalosconfig(talosconfig string) (*clientconfig.Config, *clientconfig.Context, error) {
	config, err := clientconfig.FromString(talosconfig)
	if err != nil || config.Contexts[config.Context] == nil {
		return nil, nil, errNotTalosconfig // the parser quotes the text
	}

	return config, config.Contexts[config.Context], nil
}

// SplitAuthorities splits the certificates of an authority as the state has them: during a rotation, the certificate of
// the replaced authority follows that of the new one.
func SplitAuthorities(certificates []byte) (certificate, replaced []byte) {
	block, rest := pem.Decode(certificates)
	if block == nil {
		return certificates, nil
	}

	if second, _ := pem.Decode(rest); second != nil {
		replaced = pem.EncodeToMemory(second)
	}

	return pem.EncodeToMemory(block), replaced
}
