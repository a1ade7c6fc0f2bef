package proxmoxve

import (
	"context"
	"fmt"
	"maps"

	"github.com/hashicorp/go-multierror"
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// create keeps the state of a failed creation, so that the next update or a destroy finds the resource.
func (s *server) create(ctx context.Context, req p.CreateRequest) (p.CreateResponse, error) {
	t, err := s.typeOf(req.Urn)
	if err != nil {
		return p.CreateResponse{}, err
	}

	plan, secret := t.plan(fromMap(req.Properties), object{}, nil), secrets(req.Properties)
	if t.planError != nil {
		if err := t.wrapError("diffing", req.Urn, t.planError(plan)); err != nil {
			return p.CreateResponse{}, err
		}
	}

	if req.DryRun {
		return p.CreateResponse{Properties: t.attributes.toMap(t.preview(plan), secret)}, nil
	}

	ctx, _, a, err := s.operation(ctx, req.Urn)
	if err != nil {
		return p.CreateResponse{}, err
	}

	id, state, err := t.create(ctx, a, plan)
	if err != nil && id == "" {
		return p.CreateResponse{}, t.wrapError("", "", err)
	}

	out := p.CreateResponse{ID: id, Properties: t.attributes.toMap(state, secret)}
	if err = t.wrapError("creating", req.Urn, err); err != nil {
		// As published, what exists stays in the state, with the reason of the failure.
		out.PartialState = &p.InitializationFailed{Reasons: []string{err.Error()}}
	}

	return out, err
}

// wrapError adds the prefix of the bridge to Terraform, which does not change errors of framework resources. action
// is empty if nothing was created.
func (t *resourceType) wrapError(action string, urn resource.URN, err error) error {
	if err == nil || t.framework {
		return err
	}

	err = multierror.Append(nil, err)
	if action == "" {
		return err
	}

	return fmt.Errorf("%s %s: %w", action, urn, err)
}

// preview returns a resource before its creation: choices of the server are unknown.
func (t *resourceType) preview(plan object) object {
	for name, a := range t.attributes {
		if a.output || (a.computed && plan[name] == nil) {
			plan[name] = unknown{}
		}
	}

	return plan
}

// read serves refreshes, and imports of resources that are in no state.
func (s *server) read(ctx context.Context, req p.ReadRequest) (p.ReadResponse, error) {
	ctx, t, a, err := s.operation(ctx, req.Urn)
	if err != nil {
		return p.ReadResponse{}, err
	}

	id, before, imports := req.ID, fromMap(req.Properties), req.Properties.Len() == 0
	if imports {
		if t.parseImportID == nil {
			return p.ReadResponse{}, fmt.Errorf(
				"the lab's stand-in does not import %s, and %s is in no state: run against the published provider",
				req.Urn.Type(), id,
			)
		}

		if id, before, err = t.parseImportID(id); err != nil {
			return p.ReadResponse{}, err
		}
	}

	state, err := t.read(ctx, a, id, before)
	if imports && err == nil && state == nil { // the engine's error for published providers, which may return nothing
		return p.ReadResponse{}, fmt.Errorf("resource '%s' does not exist", req.ID)
	}

	if err != nil || state == nil {
		return p.ReadResponse{}, t.wrapError("refreshing", req.Urn, err)
	}

	secret := secrets(req.Properties)
	maps.Copy(secret, secrets(req.Inputs))

	out := p.ReadResponse{ID: id, Properties: t.attributes.toMap(state, secret), Inputs: req.Inputs}
	if imports {
		out.Inputs = t.attributes.toMap(t.attributes.inputsOf(state), secret)
	}

	return out, nil
}

// update plans again like diff, including ignored paths: the engine passes the same inputs.
func (s *server) update(ctx context.Context, req p.UpdateRequest) (p.UpdateResponse, error) {
	t, err := s.typeOf(req.Urn)
	if err != nil {
		return p.UpdateResponse{}, err
	}

	state := fromMap(req.State)
	plan := t.plan(fromMap(req.Inputs), state, req.IgnoreChanges)
	secret := secrets(req.Inputs)

	if req.DryRun {
		if t.recomputedOutputs != nil {
			for _, name := range t.recomputedOutputs(plan, state) {
				plan[name] = unknown{}
			}
		}

		return p.UpdateResponse{Properties: t.attributes.toMap(plan, secret)}, nil
	}

	if len(t.differences(plan, state)) == 0 {
		// The engine updates a resource that failed to initialize even without a difference; the published provider then
		// does nothing.
		return p.UpdateResponse{Properties: req.State}, nil
	}

	ctx, t, a, err := s.operation(ctx, req.Urn)
	if err != nil {
		return p.UpdateResponse{}, err
	}

	result, err := t.update(ctx, a, req.ID, plan, state)
	err = t.wrapError("updating", req.Urn, err)

	switch {
	case err != nil && t.framework:
		return p.UpdateResponse{}, err
	case err != nil:
		// Terraform keeps the plan as the state after a failed update.
		return p.UpdateResponse{
			Properties:   t.attributes.toMap(plan, secret),
			PartialState: &p.InitializationFailed{Reasons: []string{err.Error()}},
		}, err
	}

	return p.UpdateResponse{Properties: t.attributes.toMap(result, secret)}, nil
}

// remove uses only the state, because the program may no longer have the resource.
func (s *server) remove(ctx context.Context, req p.DeleteRequest) error {
	ctx, t, a, err := s.operation(ctx, req.Urn)
	if err != nil {
		return err
	}

	return t.wrapError("deleting", req.Urn, t.remove(ctx, a, req.ID, fromMap(req.Properties)))
}
