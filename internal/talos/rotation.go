package talos

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/rotatepatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// Kind is whose certificate authority is replaced.
type Kind string

// Kinds of authorities.
const (
	OfTalos      Kind = "talos"
	OfKubernetes Kind = "kubernetes"
)

// kinds are how machine configurations have an authority.
var kinds = map[Kind]struct {
	path string // in the configuration
	make func(now time.Time) (*x509.CertificateAuthority, error)
	// of is the certificate that issues, and others that are accepted; nil where there is none.
	of             func(config.Provider) (issuing []byte, accepted []*x509.PEMEncodedCertificate)
	accept, forget func(certificate []byte) rotatepatcher.PatcherFunc
	issue          func(*x509.PEMEncodedCertificateAndKey) rotatepatcher.PatcherFunc
}{
	OfTalos: {"machine.ca", secrets.NewTalosCA, talosAuthority, acceptTalos, forgetTalos, issueTalos},
	OfKubernetes: {
		"cluster.ca", newKubernetesCA, kubernetesAuthority, rotatepatcher.K8sAddAcceptedCA,
		rotatepatcher.K8sDeleteAcceptedCA, rotatepatcher.K8sSetCA,
	},
}

func newKubernetesCA(now time.Time) (*x509.CertificateAuthority, error) {
	return secrets.NewKubernetesCA(now, config.TalosVersionCurrent)
}

func talosAuthority(c config.Provider) (issuing []byte, accepted []*x509.PEMEncodedCertificate) {
	if c.Machine() == nil || c.Machine().Security().IssuingCA() == nil {
		return nil, nil
	}

	return c.Machine().Security().IssuingCA().Crt, c.Machine().Security().AcceptedCAs()
}

// kubernetesAuthority: the first of the accepted ones is the one that issues, on workers too.
func kubernetesAuthority(c config.Provider) (issuing []byte, accepted []*x509.PEMEncodedCertificate) {
	ca := c.K8sAPIServerCAConfig()
	if ca == nil || len(ca.AcceptedCAs()) == 0 {
		return nil, nil
	}

	return ca.AcceptedCAs()[0].Crt, ca.AcceptedCAs()[1:]
}

// The machinery has patchers for Kubernetes alone; those of the Talos API are in Talos' own command.

func patchMachine(change func(*v1alpha1.MachineConfig)) rotatepatcher.PatcherFunc {
	return func(in config.Provider) (config.Provider, error) {
		return in.PatchV1Alpha1(func(c *v1alpha1.Config) error {
			change(c.MachineConfig)

			return nil
		})
	}
}

func acceptTalos(certificate []byte) rotatepatcher.PatcherFunc {
	return patchMachine(func(m *v1alpha1.MachineConfig) {
		m.MachineAcceptedCAs = append(m.MachineAcceptedCAs, &x509.PEMEncodedCertificate{Crt: certificate})
	})
}

func forgetTalos(certificate []byte) rotatepatcher.PatcherFunc {
	return patchMachine(func(m *v1alpha1.MachineConfig) {
		m.MachineAcceptedCAs = slices.DeleteFunc(m.MachineAcceptedCAs, func(one *x509.PEMEncodedCertificate) bool {
			return same(one.Crt, certificate)
		})
	})
}

func issueTalos(next *x509.PEMEncodedCertificateAndKey) rotatepatcher.PatcherFunc {
	return patchMachine(func(m *v1alpha1.MachineConfig) {
		m.MachineCA = next
		if !m.Type().IsControlPlane() {
			m.MachineCA = &x509.PEMEncodedCertificateAndKey{Crt: next.Crt}
		}
	})
}

// Rotation replaces an authority in machine configurations. Each step is Talos' own (pkg/rotate/pki), and does nothing
// to a configuration that it was done to.
type Rotation struct {
	Kind Kind
	Old  []byte // certificate
	New  Authority
}

// Add has a machine accept the new authority beside the one that issues.
func (r Rotation) Add(configuration string) (next []byte, err error) {
	return r.change(configuration, func(issuing []byte, accepts func([]byte) bool) (patches []rotatepatcher.PatcherFunc) {
		if same(issuing, r.New.Certificate) || accepts(r.New.Certificate) {
			return nil
		}

		return append(patches, kinds[r.Kind].accept(r.New.Certificate))
	})
}

// Switch has a machine issue with the new authority, and accept the old one.
func (r Rotation) Switch(configuration string) (next []byte, err error) {
	return r.change(configuration, func(issuing []byte, accepts func([]byte) bool) (patches []rotatepatcher.PatcherFunc) {
		if same(issuing, r.New.Certificate) {
			return nil
		}

		kind := kinds[r.Kind]
		if !accepts(r.Old) {
			patches = append(patches, kind.accept(r.Old))
		}

		return append(patches, kind.forget(r.New.Certificate), kind.issue(&x509.PEMEncodedCertificateAndKey{
			Crt: r.New.Certificate, Key: r.New.Key,
		}))
	})
}

// Remove has a machine forget the old authority.
func (r Rotation) Remove(configuration string) (next []byte, err error) {
	return r.change(configuration, func(_ []byte, accepts func([]byte) bool) (patches []rotatepatcher.PatcherFunc) {
		if !accepts(r.Old) {
			return nil
		}

		return append(patches, kinds[r.Kind].forget(r.Old))
	})
}

// Done is how many of the steps a configuration has; an error where its authority is neither of the two.
func (r Rotation) Done(configuration string) (steps int, err error) {
	_, err = r.change(configuration, func(issuing []byte, accepts func([]byte) bool) []rotatepatcher.PatcherFunc {
		switch issued := same(issuing, r.New.Certificate); {
		case issued && !accepts(r.Old):
			steps = 3
		case issued:
			steps = 2
		case accepts(r.New.Certificate):
			steps = 1
		}

		return nil
	})

	return steps, err
}

// change returns a configuration that was changed; nil where it has not to be. What is to be done follows from the
// authority that issues, and from which others are accepted.
func (r Rotation) change(
	configuration string, what func(issuing []byte, accepts func([]byte) bool) []rotatepatcher.PatcherFunc,
) ([]byte, error) {
	next, err := configloader.NewFromBytes([]byte(configuration))
	if err != nil || next.RawV1Alpha1() == nil || next.RawV1Alpha1().MachineConfig == nil {
		return nil, errConfiguration // the cause would quote it
	}

	issuing, accepted := kinds[r.Kind].of(next)
	if issuing == nil {
		return nil, errConfiguration
	}

	if !same(issuing, r.Old) && !same(issuing, r.New.Certificate) {
		return nil, fmt.Errorf("its %s is neither the authority that the stack's state has nor the one that "+
			"replaces it: another tool has changed it", kinds[r.Kind].path)
	}

	patches := what(issuing, func(ca []byte) bool {
		return slices.ContainsFunc(accepted, func(one *x509.PEMEncodedCertificate) bool { return same(one.Crt, ca) })
	})
	if len(patches) == 0 {
		return nil, nil
	}

	for _, patch := range patches {
		if next, err = patch(next); err != nil {
			return nil, errConfiguration
		}
	}

	text, err := next.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, errConfiguration
	}

	return text, nil
}

func same(a, b []byte) bool { return bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b)) }
