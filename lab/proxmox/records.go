package proxmox

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/schema"
)

// recordKind implements the calls of a kind of record. Its functions are optional.
type recordKind struct {
	datacentre.Kind
	// createCall creates a record: its parameters are the record's fields. idTemplate is the template of a record's id.
	createCall, idTemplate string
	// errorSubject names the record in the errors of changes: "update user failed: ".
	errorSubject string
	// defaults are the default values of fields.
	defaults datacentre.Config
	// errNotFound and errExists are the errors for a missing and for an existing record.
	errNotFound, errExists func(r *request) error
	// isVisible reports whether a list contains a record, addToRow adds to its row, detail returns a single record.
	isVisible func(r *request, id string, record datacentre.Config) bool
	addToRow  func(r *request, id string, record datacentre.Config, row object)
	detail    func(r *request, id string, record datacentre.Config, row object) any
	// prepare checks and completes a changed record; old is nil for a new one. checkRemoval can refuse a removal.
	prepare      func(r *request, id string, old, record datacentre.Config) error
	checkRemoval func(r *request, id string, record datacentre.Config) error
}

// errorPrefix returns the beginning of a change's error.
func (k recordKind) errorPrefix(r *request) string {
	verbs := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodDelete: "delete"}

	verb, changes := verbs[r.route.method]
	if !changes {
		return ""
	}

	return verb + " " + k.errorSubject + " failed: "
}

// find returns the call's record.
func (k recordKind) find(r *request) (datacentre.Config, error) {
	record, ok := r.dc.Record(k.Kind, r.fill(k.idTemplate))

	switch {
	case ok:
		return record, nil
	case k.errNotFound != nil:
		return nil, k.errNotFound(r)
	default:
		return nil, datacentre.Refuse("%s%s '%s' does not exist", k.errorPrefix(r), k.Kind, r.fill(k.idTemplate))
	}
}

func (k recordKind) list(r *request) (any, error) {
	all := r.dc.Records(k.Kind)

	return rows(slices.Sorted(maps.Keys(all)), func(id string) object {
		if k.isVisible != nil && !k.isVisible(r, id, all[id]) {
			return nil
		}

		o := k.render(r, id, all[id])
		o[strings.Trim(k.idTemplate, "{}")] = id

		return o
	}), nil
}

// render returns a record for a response: the parameters of its creation without the password, with their types.
func (k recordKind) render(r *request, id string, record datacentre.Config) object {
	o, values, createCall := object{}, datacentre.Config{}, schema.Call(k.createCall)
	maps.Copy(values, k.defaults)
	maps.Copy(values, record)

	for name, value := range values {
		if rule, ok := createCall.Rule(name); ok && name != "password" {
			o[name] = typedValue(rule, value)
		}
	}

	if k.addToRow != nil {
		k.addToRow(r, id, record, o)
	}

	return o
}

func (k recordKind) show(r *request) (any, error) {
	record, err := k.find(r)
	if err != nil {
		return nil, err
	}

	o := k.render(r, r.fill(k.idTemplate), record)
	if k.detail != nil {
		return k.detail(r, r.fill(k.idTemplate), record, o), nil
	}

	return o, nil
}

func (k recordKind) create(r *request) (any, error) {
	id := r.fill(k.idTemplate)

	switch _, taken := r.dc.Record(k.Kind, id); {
	case taken && k.errExists != nil:
		return nil, k.errExists(r)
	case taken:
		return nil, datacentre.Refuse("%s%s '%s' already exists", k.errorPrefix(r), k.Kind, id)
	default:
		return nil, k.store(r, id, nil)
	}
}

func (k recordKind) update(r *request) (any, error) {
	old, err := k.find(r)
	if err != nil {
		return nil, err
	}

	return nil, k.store(r, r.fill(k.idTemplate), old)
}

// store changes the old record by the parameters that the call sets and deletes.
func (k recordKind) store(r *request, id string, old datacentre.Config) error {
	record, createCall := datacentre.Config{}, schema.Call(k.createCall)
	maps.Copy(record, old)

	for name, value := range r.params {
		if _, ok := createCall.Rule(name); ok && !strings.Contains(k.idTemplate, "{"+name+"}") {
			record[name] = value
		}
	}

	if k.prepare != nil {
		if err := k.prepare(r, id, old, record); err != nil {
			return err
		}
	}

	for _, name := range r.params.List("delete") {
		if rule, ok := createCall.Rule(name); !ok || !rule.Optional {
			return datacentre.Refuse("%sno such option '%s'", k.errorPrefix(r), name)
		}

		delete(record, name)
	}

	r.dc.Put(k.Kind, id, record)

	return nil
}

func (k recordKind) remove(r *request) (any, error) {
	record, err := k.find(r)
	if err == nil && k.checkRemoval != nil {
		err = k.checkRemoval(r, r.fill(k.idTemplate), record)
	}

	if err != nil {
		return nil, err
	}

	r.dc.Delete(k.Kind, r.fill(k.idTemplate))

	return nil, nil
}
