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

// Authority is a certificate authority; certificate and key are PEM.
type Authority struct{ Certificate, Key []byte }

// New makes one as Talos does, for ten years. It is a secret.
func (k Kind) New(now time.Time) (Authority, error) {
	ca, err := kinds[k].make(now)
	if err != nil {
		return Authority{}, fmt.Errorf("unable to make a certificate authority: %w", err)
	}

	return Authority{Certificate: ca.CrtPEM, Key: ca.KeyPEM}, nil
}

// Client is who may call the Talos API, and which authority it trusts; all of it is PEM. The key is a secret.
type Client struct{ Authority, Certificate, Key []byte }

// Administrator returns a client of the Talos API that may do everything, with a new certificate of the authority, for
// a year.
func (a Authority) Administrator(now time.Time) (Client, error) {
	return a.client(now, constants.TalosAPIDefaultCertificateValidityDuration, role.Admin)
}

// A client for one look is valid for a day, on machines whose clocks are late by an hour, too.
const (
	clientValidity = 24 * time.Hour
	clientSkew     = time.Hour
)

// Reader returns a client that sees what is no secret, and changes nothing.
func (a Authority) Reader(now time.Time) (Client, error) {
	return a.client(now.Add(-clientSkew), clientSkew+clientValidity, role.Reader)
}

// Keeper returns a Reader that takes snapshots of etcd, too.
func (a Authority) Keeper(now time.Time) (Client, error) {
	return a.client(now.Add(-clientSkew), clientSkew+clientValidity, role.Reader, role.EtcdBackup)
}

func (a Authority) client(from time.Time, validity time.Duration, roles ...role.Role) (Client, error) {
	bundle := secrets.Bundle{Clock: secrets.NewFixedClock(from), Certs: &secrets.Certs{
		OS: &x509.PEMEncodedCertificateAndKey{Crt: a.Certificate, Key: a.Key},
	}}

	made, err := bundle.GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(roles...), validity)
	if err != nil {
		return Client{}, errSecrets // the cause may quote them
	}

	return Client{Authority: a.Certificate, Certificate: made.Crt, Key: made.Key}, nil
}

// Talosconfig is the client's, with the cluster's name and the addresses of control planes; it is a secret.
func (c Client) Talosconfig(cluster string, endpoints []string) (string, error) {
	config := clientconfig.NewConfig(
		cluster, endpoints, c.Authority, &x509.PEMEncodedCertificateAndKey{Crt: c.Certificate, Key: c.Key},
	)

	text, err := config.Bytes()
	if err != nil {
		return "", errSecrets
	}

	return string(text), nil
}

// Trusting is a talosconfig that takes servers of these authorities, in PEM, for the cluster's.
func Trusting(talosconfig string, authorities ...[]byte) (string, error) {
	config, current, err := contextOf(talosconfig)
	if err != nil {
		return "", err
	}

	current.CA = base64.StdEncoding.EncodeToString(bytes.Join(authorities, []byte("\n")))

	text, err := config.Bytes()
	if err != nil {
		return "", errTalosconfig
	}

	return string(text), nil
}

// Trusted returns the authority that a talosconfig trusts, in PEM.
func Trusted(talosconfig string) ([]byte, error) {
	_, current, err := contextOf(talosconfig)
	if err != nil {
		return nil, err
	}

	certificate, err := base64.StdEncoding.DecodeString(current.CA)
	if err != nil {
		return nil, errTalosconfig
	}

	return certificate, nil
}

// errTalosconfig tells nothing of what was read.
var errTalosconfig = errors.New("it is not a Talos client configuration")

func contextOf(talosconfig string) (*clientconfig.Config, *clientconfig.Context, error) {
	config, err := clientconfig.FromString(talosconfig)
	if err != nil || config.Contexts[config.Context] == nil {
		return nil, nil, errTalosconfig // the parser quotes the text
	}

	return config, config.Contexts[config.Context], nil
}

// Replacing takes certificates apart as a state has them: an authority's, and while it replaces another one, that one's
// behind it.
func Replacing(certificates []byte) (certificate, replaced []byte) {
	block, rest := pem.Decode(certificates)
	if block == nil {
		return certificates, nil
	}

	if behind, _ := pem.Decode(rest); behind != nil {
		replaced = pem.EncodeToMemory(behind)
	}

	return pem.EncodeToMemory(block), replaced
}
