package proxmoxve

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// entity is an object with its own id in Proxmox, and one call per operation: a role, a user, a token or a mapping.
type entity struct {
	table attributes
	id    func(values object) string
	path  func(id string) string
	// idParam is the parameter with the id of an entity that is created in its collection; empty = it is created at its
	// own path.
	idParam string
	// request returns the parameters that create and update have in common.
	request func(plan object) multiForm
	// deletedParams returns the parameters that an update deletes; nil = none.
	deletedParams func(plan, state object) []string
	// afterCreate takes values that only the response to the creation has, and that an update loses. Such an entity is
	// not read after a write; nil = all others.
	afterCreate func(plan, answer object)
	read        func(ctx context.Context, a *api, id string) (object, error)
	// isAbsent reports whether an error of a read means that the entity does not exist; nil = no error does.
	isAbsent func(error) bool
	// holderParam is the parameter of access rules that names an entity with rules of its own; empty = it has none.
	holderParam string
	// messages are the published provider's messages for failed calls, by method; {id} is the quoted id.
	messages map[string]string
}

// resource returns the resource type with the entity's four operations.
func (e entity) resource(t resourceType) *resourceType {
	t.attributes = e.table
	t.create, t.read, t.update, t.remove = e.create, e.refresh, e.update, e.remove

	if e.afterCreate == nil {
		t.parseImportID = func(id string) (string, object, error) { return id, object{}, nil }
	}

	return &t
}

// pathIn returns a function that returns the path of an id in a collection.
func pathIn(collection string) func(string) string {
	return func(id string) string { return collection + "/" + url.PathEscape(id) }
}

func (e entity) wrapError(method, id string, err error) error {
	if err == nil {
		return nil
	}

	return fmt.Errorf("%s: %w", strings.ReplaceAll(e.messages[method], "{id}", strconv.Quote(id)), err)
}

func (e entity) create(ctx context.Context, a *api, plan object) (string, object, error) {
	id, request := e.id(plan), e.request(plan)

	at := e.path(id)
	if e.idParam != "" {
		request[e.idParam] = []string{id}
		at = path.Dir(at)
	}

	var answer object
	if err := a.call(ctx, http.MethodPost, at, request, &answer); err != nil {
		return "", nil, e.wrapError(http.MethodPost, id, err)
	}

	if e.afterCreate != nil {
		e.afterCreate(plan, answer)

		return id, plan, nil
	}

	state, err := e.finishWrite(ctx, a, id, plan, nil)

	return id, state, err
}

// refresh reads an entity, and keeps the order of sets in the state.
func (e entity) refresh(ctx context.Context, a *api, id string, before object) (object, error) {
	found, err := e.read(ctx, a, id)

	switch {
	case err != nil && e.isAbsent != nil && e.isAbsent(err):
		return nil, nil
	case err != nil:
		return nil, e.wrapError(http.MethodGet, id, err)
	}

	state := maps.Clone(before)
	maps.Copy(state, found)
	e.table.keepSetOrder(state, before)

	return state, nil
}

// update writes to the id in the inputs, which does not exist yet if an entity was renamed.
func (e entity) update(ctx context.Context, a *api, _ string, plan, state object) (object, error) {
	id, request := e.id(plan), e.request(plan)

	if e.deletedParams != nil {
		if removed := e.deletedParams(plan, state); len(removed) > 0 {
			request["delete"] = []string{strings.Join(removed, ",")}
		}
	}

	if err := a.call(ctx, http.MethodPut, e.path(id), request, nil); err != nil {
		return nil, e.wrapError(http.MethodPut, id, err)
	}

	if e.afterCreate == nil {
		return e.finishWrite(ctx, a, id, plan, state)
	}

	maps.DeleteFunc(plan, func(name string, _ any) bool { return e.table[name].output })

	return plan, nil
}

// finishWrite sets the access rules of an entity, reads it and returns its state. As published, its sets are those of
// the plan until the next refresh. If a step fails, the state is the plan.
func (e entity) finishWrite(ctx context.Context, a *api, id string, plan, before object) (object, error) {
	if err := e.putRules(ctx, a, id, before, plan); err != nil {
		return plan, err
	}

	state, err := e.refresh(ctx, a, id, plan)

	switch {
	case err != nil:
		return plan, err
	case state == nil:
		return plan, fmt.Errorf("%s is gone right after it was written: run the update again", id)
	}

	for name, attribute := range e.table {
		if attribute.set {
			state[name] = plan[name]
		}
	}

	return state, nil
}

func (e entity) remove(ctx context.Context, a *api, id string, state object) error {
	if err := e.putRules(ctx, a, id, state, nil); err != nil {
		return err
	}

	if err := a.call(ctx, http.MethodDelete, e.path(id), nil, nil); err != nil && !isNotFound(err) {
		return e.wrapError(http.MethodDelete, id, err)
	}

	return nil
}

// putRules deletes all old access rules of an entity and adds all new ones, even if they are equal, as published.
func (e entity) putRules(ctx context.Context, a *api, id string, before, after object) error {
	if e.holderParam == "" {
		return nil
	}

	for _, entry := range children(before, "acls") {
		if err := putRule(ctx, a, entry, true, form{e.holderParam: id}); err != nil {
			return err
		}
	}

	for _, entry := range children(after, "acls") {
		if err := putRule(ctx, a, entry, false, form{e.holderParam: id}); err != nil {
			return err
		}
	}

	return nil
}
