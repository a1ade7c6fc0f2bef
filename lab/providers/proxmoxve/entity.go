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

// entity is what Proxmox keeps under an id of its own, with one call for each verb: a role, a user, a token or a
// mapping.
type entity struct {
	table attributes
	id    func(values object) string
	at    func(id string) string
	// param has the id of an entity that is created in its collection; none = it is created at its own path.
	param string
	// request has the parameters that creation and change have in common.
	request func(plan object) repeated
	// removed are the parameters that a change deletes; nil = none.
	removed func(plan, state object) []string
	// created takes over what only the answer to the creation says, and a change loses. Such an entity is not read after
	// it was written; nil = all others.
	created func(plan, answer object)
	read    func(ctx context.Context, a *api, id string) (object, error)
	// absent tells the errors of a read that mean that the entity does not exist; nil = no error does.
	absent func(error) bool
	// holder is the parameter with which access rules name an entity that has them as a property; none = it has not.
	holder string
	// says is the published provider's wording of a failed call, by method; {id} is the quoted id.
	says map[string]string
}

// resource completes the description of a resource type with the four operations.
func (e entity) resource(t resourceType) *resourceType {
	t.attributes = e.table
	t.create, t.read, t.update, t.remove = e.create, e.refresh, e.update, e.remove

	if e.created == nil {
		t.imported = func(id string) (string, object, error) { return id, object{}, nil }
	}

	return &t
}

// under is the path of an id in a collection.
func under(collection string) func(string) string {
	return func(id string) string { return collection + "/" + url.PathEscape(id) }
}

func (e entity) failed(method, id string, err error) error {
	if err == nil {
		return nil
	}

	return fmt.Errorf("%s: %w", strings.ReplaceAll(e.says[method], "{id}", strconv.Quote(id)), err)
}

func (e entity) create(ctx context.Context, a *api, plan object) (string, object, error) {
	id, request := e.id(plan), e.request(plan)

	at := e.at(id)
	if e.param != "" {
		request[e.param] = []string{id}
		at = path.Dir(at)
	}

	var answer object
	if err := a.call(ctx, http.MethodPost, at, request, &answer); err != nil {
		return "", nil, e.failed(http.MethodPost, id, err)
	}

	if e.created != nil {
		e.created(plan, answer)

		return id, plan, nil
	}

	state, err := e.written(ctx, a, id, plan, nil)

	return id, state, err
}

// refresh keeps the order of sets in the state.
func (e entity) refresh(ctx context.Context, a *api, id string, before object) (object, error) {
	found, err := e.read(ctx, a, id)

	switch {
	case err != nil && e.absent != nil && e.absent(err):
		return nil, nil
	case err != nil:
		return nil, e.failed(http.MethodGet, id, err)
	}

	state := maps.Clone(before)
	maps.Copy(state, found)
	e.table.keepSets(state, before)

	return state, nil
}

// update writes to the id in the program, which an entity with a new name does not have yet.
func (e entity) update(ctx context.Context, a *api, _ string, plan, state object) (object, error) {
	id, request := e.id(plan), e.request(plan)

	if e.removed != nil {
		if removed := e.removed(plan, state); len(removed) > 0 {
			request["delete"] = []string{strings.Join(removed, ",")}
		}
	}

	if err := a.call(ctx, http.MethodPut, e.at(id), request, nil); err != nil {
		return nil, e.failed(http.MethodPut, id, err)
	}

	if e.created == nil {
		return e.written(ctx, a, id, plan, state)
	}

	maps.DeleteFunc(plan, func(name string, _ any) bool { return e.table[name].output })

	return plan, nil
}

// written is the state of an entity after its call: its own access rules follow, and then it is read. Its sets are
// those of the plan, whatever was read, until the next refresh: as published. Where a step fails, the plan is kept.
func (e entity) written(ctx context.Context, a *api, id string, plan, before object) (object, error) {
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

	if err := a.call(ctx, http.MethodDelete, e.at(id), nil, nil); err != nil && !gone(err) {
		return e.failed(http.MethodDelete, id, err)
	}

	return nil
}

// putRules deletes all old access rules of an entity and adds all new ones, whether they differ or not: as published.
func (e entity) putRules(ctx context.Context, a *api, id string, before, after object) error {
	if e.holder == "" {
		return nil
	}

	for _, entry := range children(before, "acls") {
		if err := putRule(ctx, a, entry, true, form{e.holder: id}); err != nil {
			return err
		}
	}

	for _, entry := range children(after, "acls") {
		if err := putRule(ctx, a, entry, false, form{e.holder: id}); err != nil {
			return err
		}
	}

	return nil
}
