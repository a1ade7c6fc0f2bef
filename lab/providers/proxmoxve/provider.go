// Package proxmoxve is a stand-in for the published proxmoxve provider 6.18.1 (bpg/proxmox 0.69.1), for machines that
// cannot download it. It has the published types, property names, defaults, order of requests, replace rules and
// errors for VMs, downloaded files, PCI mappings, roles, users, their tokens and access rules, as far as this program
// uses them, and refuses everything else. It imports VMs, mappings, roles and users.
package proxmoxve

import (
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/middleware/cancel"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// DefaultPoll is the interval at which the published provider reads the status of a task.
const DefaultPoll = time.Second

// resourceType is a type of resources: its table and its four operations.
type resourceType struct {
	token      string
	attributes attributes
	// uniqueName resources have a name that no two can have, so they are deleted before they are replaced.
	uniqueName bool
	// framework resources are of Terraform's newer plugin framework: a failed update does not change the state.
	framework bool
	validate  func(c *checker, inputs object)
	// planError returns the published provider's error for a resource that it cannot plan; nil = none.
	planError func(plan object) error
	// suppressDiff removes irrelevant differences from a plan.
	suppressDiff func(plan, state object)
	// updatesInPlace reports whether a change updates in place although the table says replace.
	updatesInPlace func(path string, plan, state object) bool
	// outputChanges adds differences of outputs.
	outputChanges func(plan, state object, found differences)
	// recomputedOutputs returns the outputs that an update makes unknown in a preview.
	recomputedOutputs func(plan, state object) []string

	// parseImportID splits the id of an import into the resource's id and its first state; nil = no import.
	parseImportID func(id string) (own string, state object, err error)
	// create returns an id, even with an error, as soon as something exists that the state must keep.
	create func(ctx context.Context, a *api, plan object) (string, object, error)
	// read returns nil if the resource does not exist.
	read   func(ctx context.Context, a *api, id string, state object) (object, error)
	update func(ctx context.Context, a *api, id string, plan, state object) (object, error)
	remove func(ctx context.Context, a *api, id string, state object) error
}

// server implements the provider's gRPC interface.
type server struct {
	poll  time.Duration
	roots *x509.CertPool
	types map[string]*resourceType
	api   *api // nil = not configured
}

// Provider returns a new instance of the provider. It reads the status of a task at the interval poll (0 =
// DefaultPoll); waits between tries are multiples of it. Certificates of hosts are verified by roots; nil = the
// system's.
func Provider(poll time.Duration, roots *x509.CertPool) p.Provider {
	s := &server{poll: poll, roots: roots, types: types()}
	if poll <= 0 {
		s.poll = DefaultPoll
	}

	return cancel.Wrap(s.provider())
}

func types() map[string]*resourceType {
	out := map[string]*resourceType{}
	for _, t := range []*resourceType{
		virtualMachineType(), downloadFileType(), pciMappingType(), usbMappingType(),
		roleType(), userType(), tokenType(), aclType(),
	} {
		out[t.token] = t
	}

	return out
}

func (s *server) provider() p.Provider {
	return p.Provider{
		CheckConfig: s.checkConfig,
		DiffConfig:  diffConfig,
		Configure:   s.configure,
		Check: func(ctx context.Context, req p.CheckRequest) (p.CheckResponse, error) {
			t, err := s.typeOf(req.Urn)
			if err != nil {
				return p.CheckResponse{}, err
			}

			return t.check(ctx, req)
		},
		Diff: func(ctx context.Context, req p.DiffRequest) (p.DiffResponse, error) {
			t, err := s.typeOf(req.Urn)
			if err != nil {
				return p.DiffResponse{}, err
			}

			return t.diff(ctx, req)
		},
		Create: s.create,
		Read:   s.read,
		Update: s.update,
		Delete: s.remove,
	}
}

// typeOf returns the resource type of a URN.
func (s *server) typeOf(urn resource.URN) (*resourceType, error) {
	if t, ok := s.types[string(urn.Type())]; ok {
		return t, nil
	}

	return nil, fmt.Errorf(
		"the lab's stand-in does not know %s: use one of %s, or run against the published provider", urn.Type(),
		strings.Join(slices.Sorted(maps.Keys(s.types)), ", "),
	)
}

// operation prepares a call to Proxmox, which the engine's Cancel interrupts only if nothing incomplete is left; see
// interrupt.
func (s *server) operation(ctx context.Context, urn resource.URN) (context.Context, *resourceType, *api, error) {
	t, err := s.typeOf(urn)
	if err == nil && s.api == nil {
		err = errNotConfigured
	}

	return withoutInterrupt(ctx), t, s.api, err
}
