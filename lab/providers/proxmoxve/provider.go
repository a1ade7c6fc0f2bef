// Package proxmoxve stands in for the published proxmoxve provider 6.18.1 (bpg/proxmox 0.69.1) on machines that cannot
// download it. It keeps the published types, property names, defaults, order of requests, replace rules and errors for
// VMs, downloaded files, PCI mappings, and for roles, users, their tokens and access rules, as far as this program
// states them, and refuses the rest. It imports VMs, mappings, roles and users.
package proxmoxve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/middleware/cancel"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// DefaultPoll is the interval at which the published provider asks for a task's state.
const DefaultPoll = time.Second

// resourceType is one resource: its table and the four operations on it.
type resourceType struct {
	token      string
	attributes attributes
	// named resources have a stated name, of which there cannot be two: they are deleted before they are replaced.
	named bool
	// framework resources are of Terraform's newer kind: a failed update leaves the state as it was.
	framework bool
	checkMore func(c *checker, inputs object)
	// planFails is what the published provider cannot plan, for whatever reason; nil = nothing.
	planFails func(plan object) error
	// suppress takes back differences that do not count.
	suppress func(plan, state object)
	// keeps tells a change that replaces by the table but does not in this case.
	keeps func(path string, plan, state object) bool
	// moreChanges adds differences of outputs.
	moreChanges func(plan, state object, found differences)
	// recomputes lists the outputs that an update makes unknown in a preview.
	recomputes func(plan, state object) []string

	// imported takes the id of an import apart: the resource's own, and what its state begins with; nil = there is no
	// import.
	imported func(id string) (own string, state object, err error)
	// create returns an id as soon as there is something to keep in the state, even with an error.
	create func(ctx context.Context, a *api, plan object) (string, object, error)
	// read returns nil for what is gone.
	read   func(ctx context.Context, a *api, id string, state object) (object, error)
	update func(ctx context.Context, a *api, id string, plan, state object) (object, error)
	remove func(ctx context.Context, a *api, id string, state object) error
}

// server is the provider behind its gRPC interface.
type server struct {
	poll  time.Duration
	types map[string]*resourceType
	api   *api // nil = not configured
}

// Provider makes an instance of the provider. It asks for the state of a task after each poll (0 = DefaultPoll); the
// waiting times between tries are multiples of it.
func Provider(poll time.Duration) p.Provider {
	s := &server{poll: poll, types: types()}
	if poll <= 0 {
		s.poll = DefaultPoll
	}

	return cancel.Wrap(s.provider())
}

func types() map[string]*resourceType {
	out := map[string]*resourceType{}
	for _, t := range []*resourceType{
		virtualMachineType(), downloadFileType(), mappingType(), roleType(), userType(), tokenType(), aclType(),
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

// typeOf finds the resource by its token in the URN.
func (s *server) typeOf(urn resource.URN) (*resourceType, error) {
	if t, ok := s.types[string(urn.Type())]; ok {
		return t, nil
	}

	return nil, fmt.Errorf(
		"the lab's stand-in does not know %s: use one of %s, or run against the published provider", urn.Type(),
		strings.Join(slices.Sorted(maps.Keys(s.types)), ", "),
	)
}

// operation prepares a call to Proxmox that the engine's Cancel can interrupt where nothing half made is left behind;
// see interrupt.
func (s *server) operation(ctx context.Context, urn resource.URN) (context.Context, *resourceType, *api, error) {
	t, err := s.typeOf(urn)
	if err == nil && s.api == nil {
		err = errNotConfigured
	}

	return uninterrupted(ctx), t, s.api, err
}
