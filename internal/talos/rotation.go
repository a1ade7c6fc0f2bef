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

// AuthorityKind is the API that a certificate authority belongs to.
type AuthorityKind string

// Kinds of authorities.
const (
	TalosAuthority      AuthorityKind = "talos"
	KubernetesAuthority AuthorityKind = "kubernetes"
)

// authorityKinds are the authorities in machine configurations and how to change them.
var authorityKinds = map[AuthorityKind]struct {
	api      string // whose authority it is, for messages
	secret   string // its name among the certificates of the provider's machine secrets
	generate func(now time.Time) (*x509.CertificateAuthority, error)
	// authorities returns the certificate of the issuing CA and the other accepted ones; nil if there is none.
	authorities                 func(config.Provider) (issuing []byte, accepted []*x509.PEMEncodedCertificate)
	addAccepted, deleteAccepted func(certificate []byte) rotatepatcher.PatcherFunc
	setIssuing                  func(*x509.PEMEncodedCertificateAndKey) rotatepatcher.PatcherFunc
}{
	TalosAuthority: {
		"Talos API", "os", secrets.NewTalosCA, talosAuthorities, addAcceptedTalosCA, removeAcceptedTalosCA, setTalosCA,
	},
	KubernetesAuthority: {
		"Kubernetes API", "k8s", newKubernetesCA, kubernetesAuthorities, rotatepatcher.K8sAddAcceptedCA,
		rotatepatcher.K8sDeleteAcceptedCA, rotatepatcher.K8sSetCA,
	},
}

// API returns whose authority it is, for messages: Talos API, Kubernetes API.
func (k AuthorityKind) API() string { return authorityKinds[k].api }

func newKubernetesCA(now time.Time) (*x509.CertificateAuthority, error) {
	return secrets.NewKubernetesCA(now, config.TalosVersionCurrent)
}

func talosAuthorities(c config.Provider) (issuing []byte, accepted []*x509.PEMEncodedCertificate) {
	if c.Machine() == nil || c.Machine().Security().IssuingCA() == nil {
		return nil, nil
	}

	return c.Machine().Security().IssuingCA().Crt, c.Machine().Security().AcceptedCAs()
}

// The first accepted CA of Kubernetes is the issuing one, on workers too.
func kubernetesAuthorities(c config.Provider) (issuing []byte, accepted []*x509.PEMEncodedCertificate) {
	ca := c.K8sAPIServerCAConfig()
	if ca == nil || len(ca.AcceptedCAs()) == 0 {
		return nil, nil
	}

	return ca.AcceptedCAs()[0].Crt, ca.AcceptedCAs()[1:]
}

// patchMachine and its callers are patchers for the authority of the Talos API: Talos has its own in talosctl, and the
// machinery only those for Kubernetes.
func patchMachine(change func(*v1alpha1.MachineConfig)) rotatepatcher.PatcherFunc {
	return func(in config.Provider) (config.Provider, error) {
		return in.PatchV1Alpha1(func(c *v1alpha1.Config) error {
			change(c.MachineConfig)

			return nil
		})
	}
}

func addAcceptedTalosCA(certificate []byte) rotatepatcher.PatcherFunc {
	return patchMachine(func(m *v1alpha1.MachineConfig) {
		m.MachineAcceptedCAs = append(m.MachineAcceptedCAs, &x509.PEMEncodedCertificate{Crt: certificate})
	})
}

func removeAcceptedTalosCA(certificate []byte) rotatepatcher.PatcherFunc {
	return patchMachine(func(m *v1alpha1.MachineConfig) {
		m.MachineAcceptedCAs = slices.DeleteFunc(m.MachineAcceptedCAs, func(one *x509.PEMEncodedCertificate) bool {
			return equalPEM(one.Crt, certificate)
		})
	})
}

func setTalosCA(next *x509.PEMEncodedCertificateAndKey) rotatepatcher.PatcherFunc {
	return patchMachine(func(m *v1alpha1.MachineConfig) {
		m.MachineCA = next
		if !m.Type().IsControlPlane() {
			m.MachineCA = &x509.PEMEncodedCertificateAndKey{Crt: next.Crt}
		}
	})
}

// Rotation replaces an authority in machine configurations, in the steps of Talos (pkg/rotate/pki). Each step is
// idempotent and returns nil for a configuration that needs no change.
type Rotation struct {
	Kind AuthorityKind
	Old  []byte // certificate
	New  Authority
}

// Add makes a machine accept the new authority as well.
func (r Rotation) Add(configuration string) (next []byte, err error) {
	return r.patch(configuration, func(issuing []byte, accepts func([]byte) bool) (patches []rotatepatcher.PatcherFunc) {
		if equalPEM(issuing, r.New.Certificate) || accepts(r.New.Certificate) {
			return nil
		}

		return append(patches, authorityKinds[r.Kind].addAccepted(r.New.Certificate))
	})
}

// Switch makes the new authority the issuing one; the machine still accepts the old one.
func (r Rotation) Switch(configuration string) (next []byte, err error) {
	return r.patch(configuration, func(issuing []byte, accepts func([]byte) bool) (patches []rotatepatcher.PatcherFunc) {
		if equalPEM(issuing, r.New.Certificate) {
			return nil
		}

		kind := authorityKinds[r.Kind]
		if !accepts(r.Old) {
			patches = append(patches, kind.addAccepted(r.Old))
		}

		return append(patches, kind.deleteAccepted(r.New.Certificate), kind.setIssuing(&x509.PEMEncodedCertificateAndKey{
			Crt: r.New.Certificate, Key: r.New.Key,
		}))
	})
}

// Remove makes a machine reject the old authority.
func (r Rotation) Remove(configuration string) (next []byte, err error) {
	return r.patch(configuration, func(_ []byte, accepts func([]byte) bool) (patches []rotatepatcher.PatcherFunc) {
		if !accepts(r.Old) {
			return nil
		}

		return append(patches, authorityKinds[r.Kind].deleteAccepted(r.Old))
	})
}

// CompletedSteps returns how many of the three steps a configuration has completed; an error if its authority is
// neither of the two.
func (r Rotation) CompletedSteps(configuration string) (steps int, err error) {
	_, err = r.patch(configuration, func(issuing []byte, accepts func([]byte) bool) []rotatepatcher.PatcherFunc {
		switch switched := equalPEM(issuing, r.New.Certificate); {
		case switched && !accepts(r.Old):
			steps = 3
		case switched:
			steps = 2
		case accepts(r.New.Certificate):
			steps = 1
		}

		return nil
	})

	return steps, err
}

// patch returns the patched configuration, or nil if it needs no change. patchesFor returns the patches for an issuing
// and the accepted authorities.
func (r Rotation) patch(
	configuration string, patchesFor func(issuing []byte, accepts func([]byte) bool) []rotatepatcher.PatcherFunc,
) ([]byte, error) {
	patched, err := configloader.NewFromBytes([]byte(configuration))
	if err != nil || patched.RawV1Alpha1() == nil || patched.RawV1Alpha1().MachineConfig == nil {
		return nil, errNotConfiguration // the cause would quote it
	}

	issuing, accepted := authorityKinds[r.Kind].authorities(patched)
	if issuing == nil {
		return nil, errNotConfiguration
	}

	if !equalPEM(issuing, r.Old) && !equalPEM(issuing, r.New.Certificate) {
		return nil, fmt.Errorf("its certificate authority of the %s is neither the one in the stack's state nor its replacement: "+
			"another tool has changed it", r.Kind.API())
	}

	patches := patchesFor(issuing, func(ca []byte) bool {
		return slices.ContainsFunc(accepted, func(one *x509.PEMEncodedCertificate) bool { return equalPEM(one.Crt, ca) })
	})
	if len(patches) == 0 {
		return nil, nil
	}

	for _, patch := range patches {
		if patched, err = patch(patched); err != nil {
			return nil, errNotConfiguration
		}
	}

	text, err := patched.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, errNotConfiguration
	}

	return text, nil
}

func equalPEM(a, b []byte) bool { return bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b)) }
