package proxmox

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/schema"
)

// kind is a kind of records as the API has it. What is nil of its functions, the kind has not.
type kind struct {
	datacentre.Kind
	// made is the call that makes one: its parameters are what a record has. id is the template of a record's id.
	made, id string
	// file is what has failed where a change fails: "update user failed: ".
	file string
	// defaults are what a record has without being told.
	defaults datacentre.Config
	// absent and taken are the refusals where there is no such record, or one already.
	absent, taken func(r *request) error
	// sees says whether the caller sees a record in the list, row adds to its row, and get is the answer of one alone.
	sees func(r *request, id string, record datacentre.Config) bool
	row  func(r *request, id string, record datacentre.Config, row object)
	get  func(r *request, id string, record datacentre.Config, row object) any
	// change judges and completes what a record is to be; was is nil of a new one. keep refuses the removal of one.
	change func(r *request, id string, was, record datacentre.Config) error
	keep   func(r *request, id string, record datacentre.Config) error
}

// failing is what the refusal of a change begins with.
func (k kind) failing(r *request) string {
	verbs := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodDelete: "delete"}

	verb, changes := verbs[r.route.method]
	if !changes {
		return ""
	}

	return verb + " " + k.file + " failed: "
}

// find returns the record that a call names.
func (k kind) find(r *request) (datacentre.Config, error) {
	record, ok := r.dc.Record(k.Kind, r.fill(k.id))

	switch {
	case ok:
		return record, nil
	case k.absent != nil:
		return nil, k.absent(r)
	default:
		return nil, datacentre.Refuse("%s%s '%s' does not exist", k.failing(r), k.Kind, r.fill(k.id))
	}
}

func (k kind) list(r *request) (any, error) {
	all := r.dc.Records(k.Kind)

	return rows(slices.Sorted(maps.Keys(all)), func(id string) object {
		if k.sees != nil && !k.sees(r, id, all[id]) {
			return nil
		}

		o := k.shown(r, id, all[id])
		o[strings.Trim(k.id, "{}")] = id

		return o
	}), nil
}

// shown is a record in an answer: what its call takes beside the password, with the types that it has there.
func (k kind) shown(r *request, id string, record datacentre.Config) object {
	o, values, made := object{}, datacentre.Config{}, schema.Call(k.made)
	maps.Copy(values, k.defaults)
	maps.Copy(values, record)

	for name, value := range values {
		if rule, ok := made.Rule(name); ok && name != "password" {
			o[name] = typed(rule, value)
		}
	}

	if k.row != nil {
		k.row(r, id, record, o)
	}

	return o
}

func (k kind) show(r *request) (any, error) {
	record, err := k.find(r)
	if err != nil {
		return nil, err
	}

	o := k.shown(r, r.fill(k.id), record)
	if k.get != nil {
		return k.get(r, r.fill(k.id), record, o), nil
	}

	return o, nil
}

func (k kind) create(r *request) (any, error) {
	id := r.fill(k.id)

	switch _, taken := r.dc.Record(k.Kind, id); {
	case taken && k.taken != nil:
		return nil, k.taken(r)
	case taken:
		return nil, datacentre.Refuse("%s%s '%s' already exists", k.failing(r), k.Kind, id)
	default:
		return nil, k.store(r, id, nil)
	}
}

func (k kind) update(r *request) (any, error) {
	was, err := k.find(r)
	if err != nil {
		return nil, err
	}

	return nil, k.store(r, r.fill(k.id), was)
}

// store makes the record what it was, with what the call sets and deletes.
func (k kind) store(r *request, id string, was datacentre.Config) error {
	record, made := datacentre.Config{}, schema.Call(k.made)
	maps.Copy(record, was)

	for name, value := range r.params {
		if _, ok := made.Rule(name); ok && !strings.Contains(k.id, "{"+name+"}") {
			record[name] = value
		}
	}

	if k.change != nil {
		if err := k.change(r, id, was, record); err != nil {
			return err
		}
	}

	for _, name := range r.params.List("delete") {
		if rule, ok := made.Rule(name); !ok || !rule.Optional {
			return datacentre.Refuse("%sno such option '%s'", k.failing(r), name)
		}

		delete(record, name)
	}

	r.dc.Put(k.Kind, id, record)

	return nil
}

func (k kind) remove(r *request) (any, error) {
	record, err := k.find(r)
	if err == nil && k.keep != nil {
		err = k.keep(r, r.fill(k.id), record)
	}

	if err != nil {
		return nil, err
	}

	r.dc.Delete(k.Kind, r.fill(k.id))

	return nil, nil
}
