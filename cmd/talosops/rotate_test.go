package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
)

// fleet are machines whose Talos API lets in and shows what their configurations say.
type fleet struct {
	t        *testing.T
	nodes    []node
	machines map[string]string // configurations by address
	down     map[string]bool
	left     int // changes until the run is interrupted
	stop     context.CancelFunc
	changed  []string
}

// trust is the authority that a machine issues with, and all that it accepts.
func (f *fleet) trust(address string) (issuing string, accepted []string, key bool) {
	loaded, err := configloader.NewFromBytes([]byte(f.machines[address]))
	require.NoError(f.t, err)

	security := loaded.Machine().Security()
	for _, ca := range security.AcceptedCAs() {
		accepted = append(accepted, string(ca.Crt))
	}

	issuing = string(security.IssuingCA().Crt)

	return issuing, append(accepted, issuing), len(security.IssuingCA().Key) > 0
}

// requireConnected says that no machine is cut off: each accepts what each other one issues.
func (f *fleet) requireConnected() {
	for _, a := range f.nodes {
		issuing, _, _ := f.trust(a.Address)

		for _, b := range f.nodes {
			_, accepted, _ := f.trust(b.Address)
			require.Contains(f.t, accepted, issuing, "%s does not accept what %s issues", b.Name, a.Name)
		}
	}
}

// client of one authority, which takes servers of some. It implements rotateAPI.
type fleetClient struct {
	*fleet

	of    string
	takes []string
}

func (c fleetClient) version(ctx context.Context, address string) (string, error) {
	issuing, accepted, _ := c.trust(address)

	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case c.down[address]:
		return "", errors.New("connection refused")
	case !slices.Contains(accepted, c.of) || !slices.Contains(c.takes, issuing):
		return "", errors.New("tls: unknown certificate authority")
	}

	return "v1.14.4", nil
}

func (c fleetClient) configuration(ctx context.Context, address string) (active, persistent string, err error) {
	_, err = c.version(ctx, address)

	return c.machines[address], "", err
}

func (c fleetClient) reconfigure(ctx context.Context, address string, configuration []byte) error {
	if _, err := c.version(ctx, address); err != nil {
		return err
	}

	c.machines[address] = string(configuration)
	c.changed = append(c.changed, address)
	c.requireConnected()

	if c.left--; c.left == 0 {
		c.stop()
	}

	return nil
}

func (fleetClient) close() {}

func newFleet(t *testing.T, old, other talos.Authority) *fleet {
	t.Helper()

	f := &fleet{
		t: t, machines: map[string]string{}, down: map[string]bool{},
		nodes: append(testControlPlanes().ControlPlanes, node{Name: "general-1", Address: "127.0.9.9"}),
	}

	for i, n := range f.nodes {
		machine := &v1alpha1.MachineConfig{
			MachineType: "controlplane", MachineCA: &x509.PEMEncodedCertificateAndKey{Crt: old.Certificate, Key: old.Key},
			MachineAcceptedCAs: []*x509.PEMEncodedCertificate{{Crt: other.Certificate}}, // of the user's own patch
		}
		if i == len(f.nodes)-1 {
			machine.MachineType, machine.MachineCA.Key = "worker", nil
		}

		text, err := container.NewV1Alpha1(&v1alpha1.Config{ConfigVersion: "v1alpha1", MachineConfig: machine}).Bytes()
		require.NoError(t, err)

		f.machines[n.Address] = string(text)
	}

	return f
}

func (f *fleet) rotation(old, next talos.Authority) *rotation {
	both, out := []string{string(old.Certificate), string(next.Certificate)}, &bytes.Buffer{}

	return &rotation{
		watch: newWatch(&limits{timeout: time.Minute, interval: time.Millisecond}, out), nodes: f.nodes,
		Rotation: talos.Rotation{Old: old.Certificate, New: next},
		former:   fleetClient{f, both[0], both}, next: fleetClient{f, both[1], both},
		strict: fleetClient{f, both[1], both[1:]},
	}
}

func authorities(t *testing.T) (list [3]talos.Authority) {
	t.Helper()

	for i := range list {
		var err error

		list[i], err = talos.NewAuthority(time.Now())
		require.NoError(t, err)
	}

	return list
}

func TestARotationMayBeInterruptedAfterEachChange(t *testing.T) {
	t.Parallel()

	cas := authorities(t)
	old, next, other := cas[0], cas[1], cas[2]

	for changes := range 13 {
		t.Run(fmt.Sprint(changes), func(t *testing.T) {
			t.Parallel()

			f := newFleet(t, old, other)
			ctx, stop := context.WithCancel(t.Context())
			f.left, f.stop = changes, stop

			if changes > 0 {
				err := f.rotation(old, next).run(ctx)
				require.ErrorContains(t, err, "interrupted before every machine")
			}

			require.NoError(t, f.rotation(old, next).run(t.Context()))
			assert.Len(t, f.changed, 3*len(f.nodes), "each step once for each machine")

			for step := range slices.Chunk(f.changed, len(f.nodes)) {
				assert.Equal(t, []string{"127.0.9.1", "127.0.9.2", "127.0.9.3", "127.0.9.9"}, step)
			}

			for i, n := range f.nodes {
				issuing, accepted, key := f.trust(n.Address)
				assert.Equal(t, string(next.Certificate), issuing)
				assert.Equal(t, []string{string(other.Certificate), issuing}, accepted)
				assert.Equal(t, i < 3, key, "%s: only control planes have the key", n.Name)
			}
		})
	}
}

func TestARotationBeginsOnlyWhereEveryMachineTakesPart(t *testing.T) {
	t.Parallel()

	cas := authorities(t)
	f := newFleet(t, cas[0], cas[2])
	f.down["127.0.9.2"], f.down["127.0.9.9"] = true, true

	err := f.rotation(cas[0], cas[1]).run(t.Context())
	require.EqualError(t, err, "no machine was changed, because these do not take part, and would be cut off:\n"+
		"  cp-2 on 127.0.9.2: connection refused\n  general-1 on 127.0.9.9: connection refused\n"+
		"start or repair them, or take those that are gone for good out of the stack file, then run the same again")
	assert.Empty(t, f.changed)

	clear(f.down)

	f.machines["127.0.9.3"] = newFleet(t, cas[2], cas[0]).machines["127.0.9.3"]
	err = f.rotation(cas[0], cas[1]).run(t.Context())
	require.ErrorContains(t, err, "  cp-3 on 127.0.9.3: tls: unknown certificate authority\n")
	assert.Empty(t, f.changed)
}

func TestARequestForARotationIsWhole(t *testing.T) {
	t.Parallel()

	talosconfig := newAuthority(t).talosconfig(t)
	r := &rotateRequest{Rotate: request.Rotate{Common: testControlPlanes(), Talosconfig: talosconfig}}
	assert.Empty(t, r.problems())

	r.Next = talosconfig
	assert.Equal(t, []string{"key: the new authority's key goes with a talosconfig of it under next: send both"}, r.problems())
}
