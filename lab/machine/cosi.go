package machine

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
)

// resourceState is what a machine shows as COSI resources. It is made when the first client asks and brought up to date at every request, so that machines
// nobody looks at cost nothing.
type resourceState struct {
	mu    sync.Mutex
	state state.State
	known map[string]resource.Resource
}

// definitions is the state of the "meta" namespace: namespaces and resource definitions, the same on every machine and made once.
func (ms *Machines) definitions() state.CoreState {
	ms.defineOnce.Do(func() {
		core := inmem.NewState(meta.NamespaceName)
		st := state.WrapCore(core)
		ctx := context.Background()

		namespaces, types := registry.NewNamespaceRegistry(st), registry.NewResourceRegistry(st)
		failure := namespaces.RegisterDefault(ctx)

		if err := types.RegisterDefault(ctx); err != nil {
			failure = err
		}

		for _, name := range shownNamespaces {
			if err := namespaces.Register(ctx, name, "Talos resources: "+name); err != nil {
				failure = err
			}
		}

		for _, r := range shownTypes {
			if err := types.Register(ctx, r); err != nil {
				failure = err
			}
		}

		if failure != nil { // two resources with the same name: a programming error
			panic(failure)
		}

		ms.meta = core
	})

	return ms.meta
}

// resources returns the machine's resources, up to date.
func (m *machine) resources() state.State {
	m.ms.mu.Lock()
	if m.cosi == nil {
		m.cosi = &resourceState{known: map[string]resource.Resource{}}
	}

	r := m.cosi
	m.ms.mu.Unlock()

	r.mu.Lock()
	defer r.mu.Unlock()

	if r.state == nil {
		r.state = state.WrapCore(namespaced.NewState(func(ns resource.Namespace) state.CoreState {
			if ns == meta.NamespaceName {
				return m.ms.definitions()
			}

			return inmem.NewState(ns)
		}))
	}

	m.ms.mu.Lock()
	wanted := m.describe()
	m.ms.mu.Unlock()

	if err := r.update(wanted); err != nil {
		m.fail("resources: %s", err)
	}

	return r.state
}

// update makes the state hold exactly the wanted resources, touching only what differs: clients watch.
func (r *resourceState) update(wanted []resource.Resource) error {
	ctx := context.Background()
	seen := map[string]bool{}

	for _, w := range wanted {
		key := w.Metadata().Namespace() + "/" + w.Metadata().Type() + "/" + w.Metadata().ID()
		if seen[key] {
			continue
		}

		seen[key] = true

		have := r.known[key]

		switch {
		case have == nil:
			if err := r.state.Create(ctx, w); err != nil {
				return fmt.Errorf("unable to create %s: %w", key, err)
			}
		case reflect.DeepEqual(have.Spec(), w.Spec()):
			continue
		default:
			current, err := r.state.Get(ctx, have.Metadata())
			if err != nil {
				return fmt.Errorf("unable to read %s: %w", key, err)
			}

			w.Metadata().SetVersion(current.Metadata().Version())
			w.Metadata().SetCreated(current.Metadata().Created())

			if err := r.state.Update(ctx, w); err != nil {
				return fmt.Errorf("unable to update %s: %w", key, err)
			}
		}

		r.known[key] = w
	}

	for key, have := range r.known {
		if !seen[key] {
			if err := r.state.Destroy(ctx, have.Metadata()); err != nil {
				return fmt.Errorf("unable to destroy %s: %w", key, err)
			}

			delete(r.known, key)
		}
	}

	return nil
}

// stateServer is the COSI service of the machine's API.
func (m *machine) stateServer() cosiapi.StateServer {
	return server.NewState(state.Filter(lazyState{m}, m.access))
}

// lazyState is the machine's state, made when it is first used. It implements state.CoreState for reading; the filter before it refuses everything else.
type lazyState struct{ m *machine }

var errReadOnly = status.Error(codes.PermissionDenied, "write access is not allowed")

// Get implements state.CoreState.
func (l lazyState) Get(ctx context.Context, p resource.Pointer, o ...state.GetOption) (resource.Resource, error) {
	return l.m.resources().Get(ctx, p, o...)
}

// List implements state.CoreState.
func (l lazyState) List(ctx context.Context, k resource.Kind, o ...state.ListOption) (resource.List, error) {
	return l.m.resources().List(ctx, k, o...)
}

// Watch implements state.CoreState.
func (l lazyState) Watch(ctx context.Context, p resource.Pointer, ch chan<- state.Event, o ...state.WatchOption) error {
	return l.m.resources().Watch(ctx, p, ch, o...)
}

// WatchKind implements state.CoreState.
func (l lazyState) WatchKind(ctx context.Context, k resource.Kind, ch chan<- state.Event, o ...state.WatchKindOption) error {
	return l.m.resources().WatchKind(ctx, k, ch, o...)
}

// WatchKindAggregated implements state.CoreState.
func (l lazyState) WatchKindAggregated(ctx context.Context, k resource.Kind, ch chan<- []state.Event, o ...state.WatchKindOption) error {
	return l.m.resources().WatchKindAggregated(ctx, k, ch, o...)
}

// Create implements state.CoreState.
func (lazyState) Create(context.Context, resource.Resource, ...state.CreateOption) error {
	return errReadOnly
}

// Update implements state.CoreState.
func (lazyState) Update(context.Context, resource.Resource, ...state.UpdateOption) error {
	return errReadOnly
}

// Destroy implements state.CoreState.
func (lazyState) Destroy(context.Context, resource.Pointer, ...state.DestroyOption) error {
	return errReadOnly
}

// access brings the resources up to date before they are read, keeps them so while they are watched, and refuses what Talos refuses.
func (m *machine) access(ctx context.Context, a state.Access) error {
	if !a.Verb.Readonly() {
		return errReadOnly
	}

	st := m.resources()

	definition, err := safe.StateGet[*meta.ResourceDefinition](ctx, st,
		resource.NewMetadata(meta.NamespaceName, meta.ResourceDefinitionType, strings.ToLower(a.ResourceType), resource.VersionUndefined))
	if state.IsNotFoundError(err) {
		return status.Error(codes.PermissionDenied, fmt.Sprintf("resource type %q is not supported", a.ResourceType))
	}

	if err != nil {
		return err
	}

	if definition.TypedSpec().Sensitivity == meta.Sensitive && !rolesOf(ctx).Includes(role.Admin) {
		return errNotAuthorized
	}

	_, err = st.Get(ctx, resource.NewMetadata(meta.NamespaceName, meta.NamespaceType, a.ResourceNamespace, resource.VersionUndefined))
	if state.IsNotFoundError(err) {
		return status.Error(codes.PermissionDenied, fmt.Sprintf("namespace %q is not supported", a.ResourceNamespace))
	}

	if a.Verb == state.Watch && err == nil {
		go m.refresh(ctx)
	}

	return err
}

// refresh brings the resources up to date at every change until the watch ends.
func (m *machine) refresh(ctx context.Context) {
	for {
		m.ms.mu.Lock()
		mine, others := m.changed.wait(), (<-chan struct{})(nil)

		if m.cluster != nil {
			others = m.cluster.changed.wait()
		}

		m.ms.mu.Unlock()

		m.resources()

		select {
		case <-mine:
		case <-others:
		case <-ctx.Done():
			return
		}
	}
}
