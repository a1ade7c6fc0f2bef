package talos

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/siderolabs/crypto/x509"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// Authority is a certificate authority of the Talos API; certificate and key are PEM.
type Authority struct{ Certificate, Key []byte }

// NewAuthority makes one as Talos does, for ten years. It is a secret.
func NewAuthority(now time.Time) (Authority, error) {
	ca, err := secrets.NewTalosCA(now)
	if err != nil {
		return Authority{}, fmt.Errorf("unable to make a certificate authority: %w", err)
	}

	return Authority{Certificate: ca.CrtPEM, Key: ca.KeyPEM}, nil
}

// Client is who may call the Talos API, and which authority it trusts; all of it is PEM. The key is a secret.
type Client struct{ Authority, Certificate, Key []byte }

// Administrator returns a client with a new certificate of the authority, for a year.
func (a Authority) Administrator(now time.Time) (Client, error) {
	bundle := secrets.Bundle{Clock: secrets.NewFixedClock(now), Certs: &secrets.Certs{
		OS: &x509.PEMEncodedCertificateAndKey{Crt: a.Certificate, Key: a.Key},
	}}

	made, err := bundle.GenerateTalosAPIClientCertificate(role.MakeSet(role.Admin))
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

// Rotation replaces the authority of the Talos API in machine configurations. Each step is Talos' own
// (pkg/rotate/pki/talos), and does nothing to a configuration that it was done to.
type Rotation struct {
	Old []byte // certificate
	New Authority
}

// Add has a machine accept the new authority beside the one that issues.
func (r Rotation) Add(configuration string) (next []byte, err error) {
	return r.change(configuration, func(m *v1alpha1.MachineConfig) {
		if !same(m.MachineCA.Crt, r.New.Certificate) {
			m.MachineAcceptedCAs = accept(m.MachineAcceptedCAs, r.New.Certificate)
		}
	})
}

// Switch has a machine issue with the new authority, and accept the old one.
func (r Rotation) Switch(configuration string) (next []byte, err error) {
	return r.change(configuration, func(m *v1alpha1.MachineConfig) {
		if same(m.MachineCA.Crt, r.New.Certificate) {
			return
		}

		m.MachineAcceptedCAs = without(accept(m.MachineAcceptedCAs, r.Old), r.New.Certificate)

		next := &x509.PEMEncodedCertificateAndKey{Crt: r.New.Certificate}
		if len(m.MachineCA.Key) > 0 { // of a control plane
			next.Key = r.New.Key
		}

		m.MachineCA = next
	})
}

// Remove has a machine forget the old authority.
func (r Rotation) Remove(configuration string) (next []byte, err error) {
	return r.change(configuration, func(m *v1alpha1.MachineConfig) {
		m.MachineAcceptedCAs = without(m.MachineAcceptedCAs, r.Old)
	})
}

// Known says whether the authority of a machine is one of the two.
func (r Rotation) Known(configuration string) error {
	_, err := r.change(configuration, func(*v1alpha1.MachineConfig) {})

	return err
}

// change returns a configuration that was changed; nil where it has not to be.
func (r Rotation) change(configuration string, change func(*v1alpha1.MachineConfig)) ([]byte, error) {
	loaded, err := configloader.NewFromBytes([]byte(configuration))
	if err != nil || loaded.RawV1Alpha1() == nil || loaded.RawV1Alpha1().MachineConfig == nil ||
		loaded.RawV1Alpha1().MachineConfig.MachineCA == nil {
		return nil, errConfiguration // the cause would quote it
	}

	if ca := loaded.RawV1Alpha1().MachineConfig.MachineCA.Crt; !same(ca, r.Old) && !same(ca, r.New.Certificate) {
		return nil, errors.New("its machine.ca is neither the authority that the stack's state has nor the one that " +
			"replaces it: another tool has changed it")
	}

	differs := false

	next, err := loaded.PatchV1Alpha1(func(c *v1alpha1.Config) error {
		before := slices.Clone(c.MachineConfig.MachineAcceptedCAs)
		issuing := c.MachineConfig.MachineCA

		change(c.MachineConfig)

		differs = issuing != c.MachineConfig.MachineCA || len(before) != len(c.MachineConfig.MachineAcceptedCAs)

		return nil
	})
	if err != nil {
		return nil, errConfiguration
	}

	if !differs {
		return nil, nil
	}

	text, err := next.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, errConfiguration
	}

	return text, nil
}

func same(a, b []byte) bool { return bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b)) }

func accept(list []*x509.PEMEncodedCertificate, ca []byte) []*x509.PEMEncodedCertificate {
	return append(without(list, ca), &x509.PEMEncodedCertificate{Crt: ca})
}

func without(list []*x509.PEMEncodedCertificate, ca []byte) []*x509.PEMEncodedCertificate {
	kept := slices.DeleteFunc(slices.Clone(list), func(one *x509.PEMEncodedCertificate) bool { return same(one.Crt, ca) })
	if len(kept) == 0 {
		return nil
	}

	return kept
}
