package verbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/k8s"
	"github.com/siderolabs/talos/pkg/machinery/config/types/meta"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// fleet fakes machines that accept clients and show certificates according to their configurations.
type fleet struct {
	t           *testing.T
	kind        talos.AuthorityKind
	nodes       []request.Node
	machines    map[string]string // configurations by address
	down        map[string]bool
	changesLeft int // changes until the run is interrupted
	stop        context.CancelFunc
	changed     []string
	started     map[string]int // number of kubelet starts
	old         string         // the old authority
}

// trust returns the authority that a machine issues certificates with, and all that it accepts.
func (f *fleet) trust(address netip.Addr) (issuing string, accepted []string, key bool) {
	loaded, err := configloader.NewFromBytes([]byte(f.machines[address.String()]))
	require.NoError(f.t, err)

	ca, others := loaded.Machine().Security().IssuingCA(), loaded.Machine().Security().AcceptedCAs()
	issuing = string(ca.Crt)

	if f.kind == talos.KubernetesAuthority {
		ca, others = loaded.K8sAPIServerCAConfig().IssuingCA(), loaded.K8sAPIServerCAConfig().AcceptedCAs()
		issuing, others = string(others[0].Crt), others[1:]
	}

	for _, other := range others {
		accepted = append(accepted, string(other.Crt))
	}

	return issuing, append(accepted, issuing), ca != nil && len(ca.Key) > 0
}

// requireConnected requires that every machine accepts the certificates that every other one issues.
func (f *fleet) requireConnected() {
	for _, a := range f.nodes {
		issuing, _, _ := f.trust(a.Address)

		for _, b := range f.nodes {
			_, accepted, _ := f.trust(b.Address)
			require.Contains(f.t, accepted, issuing, "%s does not accept what %s issues", b.Name, a.Name)
		}
	}
}

// kubeletRefused reports whether any API server rejects a node's kubelet. The kubelet's certificate is of the old
// authority until its machine drops that. This is the worst case: a kubelet may use any API server.
func (f *fleet) kubeletRefused(n request.Node) bool {
	_, accepted, _ := f.trust(n.Address)

	return slices.ContainsFunc(f.nodes[:3], func(controlPlane request.Node) bool {
		_, others, _ := f.trust(controlPlane.Address)

		return slices.Contains(accepted, f.old) && !slices.Contains(others, f.old)
	})
}

// fleetClient has a certificate of one authority, and trusts some. It implements [talosapi.API] and [kube.Interface].
type fleetClient struct {
	clustertest.Unimplemented
	*fleet

	authority string
	trusts    []string
}

func (c fleetClient) Version(ctx context.Context, address netip.Addr) (string, error) {
	issuing, accepted, _ := c.trust(address)

	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case c.down[address.String()]:
		return "", errors.New("connection refused")
	case !slices.Contains(accepted, c.authority) || !slices.Contains(c.trusts, issuing):
		return "", errors.New("tls: unknown certificate authority")
	}

	return "v1.14.4", nil
}

func (c fleetClient) Nodes(ctx context.Context, address netip.Addr) (list []kube.Node, err error) {
	for _, n := range c.nodes {
		ready := !c.down[n.Address.String()] && !c.kubeletRefused(n)
		list = append(list, kube.Node{Name: n.Name, Ready: ready, ReadyMessage: "Kubelet stopped posting"})
	}

	_, err = c.Version(ctx, address)

	return list, err
}

func (c fleetClient) Configuration(ctx context.Context, address netip.Addr) (active, persistent string, err error) {
	if c.kind == talos.TalosAuthority {
		_, err = c.Version(ctx, address)
	}

	return c.machines[address.String()], "", err
}

func (c fleetClient) Reconfigure(ctx context.Context, address netip.Addr, configuration []byte) error {
	if _, _, err := c.Configuration(ctx, address); err != nil {
		return err
	}

	c.machines[address.String()] = string(configuration)
	c.changed = append(c.changed, address.String())
	c.started[address.String()]++
	c.requireConnected()

	if c.changesLeft--; c.changesLeft == 0 {
		c.stop()
	}

	return nil
}

func (c fleetClient) KubeletStart(_ context.Context, address netip.Addr) (string, error) {
	return fmt.Sprint(c.started[address.String()]), nil
}

// newFleet returns machines whose configurations have the authority of Kubernetes in a document of its own, as
// contracts from 1.14 on, or in the v1alpha1 document.
func newFleet(t *testing.T, kind talos.AuthorityKind, inDocument bool, old, other talos.Authority) *fleet {
	t.Helper()

	f := &fleet{
		t: t, kind: kind, machines: map[string]string{}, down: map[string]bool{}, started: map[string]int{},
		old: string(old.Certificate),
		nodes: append(clustertest.ControlPlanes().ControlPlanes,
			request.Node{Name: "general-1", Address: netip.MustParseAddr("127.0.9.9")}),
	}

	for i, n := range f.nodes {
		ca := &x509.PEMEncodedCertificateAndKey{Crt: old.Certificate, Key: old.Key}
		accepted := []*x509.PEMEncodedCertificate{{Crt: other.Certificate}} // from the user's own patch
		machine := &v1alpha1.MachineConfig{MachineType: "controlplane"}

		if i == len(f.nodes)-1 {
			machine.MachineType, ca.Key = "worker", nil
		}

		machine.MachineCA, machine.MachineAcceptedCAs = ca, accepted

		cluster := &v1alpha1.ClusterConfig{}
		documents := []config.Document{&v1alpha1.Config{
			ConfigVersion: "v1alpha1", MachineConfig: machine, ClusterConfig: cluster,
		}}

		if !inDocument {
			cluster.ClusterCA, cluster.ClusterAcceptedCAs = ca, accepted //nolint:staticcheck // as contracts up to 1.13 have it
		} else {
			document := k8s.NewKubeAPIServerCAConfigV1Alpha1()
			document.APIAcceptedCAs = []string{string(other.Certificate)}
			documents = append(documents, document)

			if machine.MachineType == "worker" {
				document.APIAcceptedCAs = []string{string(old.Certificate), string(other.Certificate)}
			} else {
				document.APIIssuingCA = &meta.CertificateAndKey{Cert: string(ca.Crt), Key: string(ca.Key)}
			}
		}

		loaded, err := container.New(documents...)
		require.NoError(t, err)
		text, err := loaded.Bytes()
		require.NoError(t, err)

		f.machines[n.Address.String()] = string(text)
	}

	return f
}

func (f *fleet) rotation(old, next talos.Authority) *rotation {
	both := []string{string(old.Certificate), string(next.Certificate)}
	oldClient := fleetClient{fleet: f, authority: both[0], trusts: both}
	newClient := fleetClient{fleet: f, authority: both[1], trusts: both}
	newOnlyClient := fleetClient{fleet: f, authority: both[1], trusts: both[1:]}
	r := &rotation{
		Watch:         &checks.Watch{Timeout: time.Minute, Interval: time.Millisecond, Progress: &bytes.Buffer{}},
		controlPlanes: f.nodes[:3], workers: f.nodes[3:], kubeletStarts: map[string]string{},
		Rotation: talos.Rotation{Kind: f.kind, Old: old.Certificate, New: next},
		talos:    []talosapi.API{newClient, oldClient},
		oldProbe: talosProbe{oldClient}, newProbe: talosProbe{newClient}, newOnlyProbe: talosProbe{newOnlyClient},
	}

	if f.kind == talos.KubernetesAuthority {
		r.oldProbe, r.newProbe = kubernetesProbe{oldClient, r.controlPlanes}, kubernetesProbe{newClient, r.controlPlanes}
		r.newOnlyProbe = kubernetesProbe{newOnlyClient, r.controlPlanes}
	}

	return r
}

func authorities(t *testing.T, kind talos.AuthorityKind) (list [3]talos.Authority) {
	t.Helper()

	for i := range list {
		var err error

		list[i], err = kind.New(time.Now())
		require.NoError(t, err)
	}

	return list
}

func TestARotationMayBeInterruptedAfterEachChange(t *testing.T) {
	t.Parallel()

	cp1, cp2, cp3, worker := "127.0.9.1", "127.0.9.2", "127.0.9.3", "127.0.9.9"
	first := []string{cp1, cp2, cp3, worker}

	for _, test := range []struct {
		kind       talos.AuthorityKind
		inDocument bool
		last       []string
	}{
		{talos.TalosAuthority, false, first},
		{talos.KubernetesAuthority, false, []string{worker, cp1, cp2, cp3}},
		{talos.KubernetesAuthority, true, []string{worker, cp1, cp2, cp3}},
	} {
		kind := test.kind
		cas := authorities(t, kind)
		old, next, other := cas[0], cas[1], cas[2]

		for changes := range 13 {
			t.Run(fmt.Sprint(kind, changes, test.inDocument), func(t *testing.T) {
				t.Parallel()

				f := newFleet(t, kind, test.inDocument, old, other)
				ctx, stop := context.WithCancel(t.Context())
				f.changesLeft, f.stop = changes, stop

				if changes > 0 {
					err := f.rotation(old, next).run(ctx)
					require.ErrorContains(t, err, "interrupted before every machine")
				}

				require.NoError(t, f.rotation(old, next).run(t.Context()))
				assert.Equal(t, slices.Concat(first, first, test.last), f.changed, "each step once for each machine")

				for i, n := range f.nodes {
					issuing, accepted, key := f.trust(n.Address)
					assert.Equal(t, string(next.Certificate), issuing)
					assert.Equal(t, []string{string(other.Certificate), issuing}, accepted)
					assert.Equal(t, i < 3, key, "%s: only control planes have the key", n.Name)
				}
			})
		}
	}
}

func TestARotationNeedsEveryMachine(t *testing.T) {
	t.Parallel()

	cas := authorities(t, talos.TalosAuthority)
	f := newFleet(t, talos.TalosAuthority, false, cas[0], cas[2])
	f.down["127.0.9.2"], f.down["127.0.9.9"] = true, true

	err := f.rotation(cas[0], cas[1]).run(t.Context())
	require.EqualError(t, err, "no machine was changed, because these do not take part, and would be cut off:\n"+
		"  cp-2 on 127.0.9.2: connection refused\n  general-1 on 127.0.9.9: connection refused\n"+
		"start or repair them, or take those that are gone for good out of the stack file, then run the same again")
	assert.Empty(t, f.changed)

	clear(f.down)

	f.machines["127.0.9.3"] = newFleet(t, talos.TalosAuthority, false, cas[2], cas[0]).machines["127.0.9.3"]
	err = f.rotation(cas[0], cas[1]).run(t.Context())
	require.ErrorContains(t, err, "  cp-3 on 127.0.9.3: tls: unknown certificate authority\n")
	assert.Empty(t, f.changed)
}

func TestARotationOfKubernetesNeedsReadyNodes(t *testing.T) {
	t.Parallel()

	cas := authorities(t, talos.KubernetesAuthority)
	f := newFleet(t, talos.KubernetesAuthority, true, cas[0], cas[2])
	f.down["127.0.9.9"] = true

	look := f.rotation(cas[0], talos.Authority{})
	look.newProbe = nil

	err := look.run(t.Context())
	require.ErrorContains(t, err, "  general-1 on 127.0.9.9: its node is not Ready: Kubelet stopped posting\n")
	assert.Empty(t, f.changed)

	clear(f.down)
	require.NoError(t, look.run(t.Context()))

	f.machines["127.0.9.3"] = newFleet(t, talos.KubernetesAuthority, true, cas[2], cas[0]).machines["127.0.9.3"]
	require.ErrorContains(t, f.rotation(cas[0], cas[1]).run(t.Context()), "  cp-3 on 127.0.9.3: its certificate authority of the Kubernetes API is neither")
}
