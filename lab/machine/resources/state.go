package resources

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"

	cosiapi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/cosi-project/runtime/pkg/state/registry"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/lab/machine/access"
)

// Machine is the machine that a State shows.
type Machine interface {
	// Describe returns the machine's current resources.
	Describe() []resource.Resource
	// Changes returns channels that close when they may have changed; the second is nil outside of a cluster.
	Changes() (machine, cluster <-chan struct{})
	// ReportProblem logs why they cannot be shown.
	ReportProblem(format string, args ...any)
}

// State is the COSI state of a machine. It is updated at every request, so that machines without clients cost nothing.
// Its own lock is taken before the machine's.
type State struct {
	machine Machine
	state   state.State

	mu    sync.Mutex
	known map[string]resource.Resource
}

// New returns the state of a machine.
func New(definitions *Definitions, machine Machine) *State {
	core := namespaced.NewState(func(ns resource.Namespace) state.CoreState {
		if ns == meta.NamespaceName {
			return definitions.get()
		}

		return inmem.NewState(ns)
	})

	return &State{machine: machine, state: state.WrapCore(core), known: map[string]resource.Resource{}}
}

// Definitions are the resources of the "meta" namespace: namespaces and resource definitions, created once for all
// machines.
type Definitions struct {
	once sync.Once
	core state.CoreState
}

func (d *Definitions) get() state.CoreState {
	d.once.Do(func() {
		core := inmem.NewState(meta.NamespaceName)
		st := state.WrapCore(core)
		ctx := context.Background()

		namespaces, types := registry.NewNamespaceRegistry(st), registry.NewResourceRegistry(st)
		failure := namespaces.RegisterDefault(ctx)

		if err := types.RegisterDefault(ctx); err != nil {
			failure = err
		}

		for _, name := range registeredNamespaces {
			if err := namespaces.Register(ctx, name, "Talos resources: "+name); err != nil {
				failure = err
			}
		}

		for _, r := range registeredTypes {
			if err := types.Register(ctx, r); err != nil {
				failure = err
			}
		}

		if failure != nil { // duplicate names: a programming error
			panic(failure)
		}

		d.core = core
	})

	return d.core
}

// Current returns the updated resources.
func (s *State) Current() state.State {
	s.mu.Lock()
	defer s.mu.Unlock()

	if err := s.update(s.machine.Describe()); err != nil {
		s.machine.ReportProblem("resources: %s", err)
	}

	return s.state
}

// update makes the state contain exactly the wanted resources. It modifies only what differs, since clients watch.
func (s *State) update(wanted []resource.Resource) error {
	ctx := context.Background()
	seen := map[string]bool{}

	for _, w := range wanted {
		key := w.Metadata().Namespace() + "/" + w.Metadata().Type() + "/" + w.Metadata().ID()
		if seen[key] {
			continue
		}

		seen[key] = true

		existing := s.known[key]

		switch {
		case existing == nil:
			if err := s.state.Create(ctx, w); err != nil {
				return fmt.Errorf("unable to create %s: %w", key, err)
			}
		case reflect.DeepEqual(existing.Spec(), w.Spec()):
			continue
		default:
			current, err := s.state.Get(ctx, existing.Metadata())
			if err != nil {
				return fmt.Errorf("unable to read %s: %w", key, err)
			}

			w.Metadata().SetVersion(current.Metadata().Version())
			w.Metadata().SetCreated(current.Metadata().Created())

			if err := s.state.Update(ctx, w); err != nil {
				return fmt.Errorf("unable to update %s: %w", key, err)
			}
		}

		s.known[key] = w
	}

	for key, existing := range s.known {
		if !seen[key] {
			if err := s.state.Destroy(ctx, existing.Metadata()); err != nil {
				return fmt.Errorf("unable to destroy %s: %w", key, err)
			}

			delete(s.known, key)
		}
	}

	return nil
}

// Server returns the COSI service of the machine's API.
func (s *State) Server() cosiapi.StateServer {
	return server.NewState(state.Filter(s.state, s.access))
}

var errReadOnly = status.Error(codes.PermissionDenied, "write access is not allowed")

// access updates the resources before they are read and while they are watched, and refuses what Talos refuses.
func (s *State) access(ctx context.Context, a state.Access) error {
	if !a.Verb.Readonly() {
		return errReadOnly
	}

	st := s.Current()

	definition, err := safe.StateGet[*meta.ResourceDefinition](ctx, st,
		resource.NewMetadata(
			meta.NamespaceName, meta.ResourceDefinitionType, strings.ToLower(a.ResourceType), resource.VersionUndefined,
		))
	if state.IsNotFoundError(err) {
		return status.Error(codes.PermissionDenied, fmt.Sprintf("resource type %q is not supported", a.ResourceType))
	}

	if err != nil {
		return err
	}

	if definition.TypedSpec().Sensitivity == meta.Sensitive && !access.Roles(ctx).Includes(role.Admin) {
		return access.ErrNotAuthorized
	}

	_, err = st.Get(
		ctx, resource.NewMetadata(meta.NamespaceName, meta.NamespaceType, a.ResourceNamespace, resource.VersionUndefined),
	)
	if state.IsNotFoundError(err) {
		return status.Error(codes.PermissionDenied, fmt.Sprintf("namespace %q is not supported", a.ResourceNamespace))
	}

	if a.Verb == state.Watch && err == nil {
		go s.refresh(ctx)
	}

	return err
}

// refresh updates the resources at every change until the watch ends.
func (s *State) refresh(ctx context.Context) {
	for {
		machine, cluster := s.machine.Changes()

		s.Current()

		select {
		case <-machine:
		case <-cluster:
		case <-ctx.Done():
			return
		}
	}
}
