package proxmox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/schema"
)

func errUndecodableBody(err error) error {
	return datacentre.NewError(http.StatusBadRequest, "unable to decode request body: %v", err)
}

// readParams reads a call's parameters from its query and body.
func readParams(req *http.Request, body []byte) (datacentre.Config, error) {
	p := datacentre.Config{}
	for k, v := range req.URL.Query() {
		p.Set(k, v...)
	}

	// Browsers add it to bypass their cache; PVE drops it too.
	delete(p, "_dc")

	if len(body) == 0 || req.Method == http.MethodGet || req.Method == http.MethodDelete {
		return p, nil
	}

	kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil {
		kind = "application/x-www-form-urlencoded"
	}

	switch kind {
	case "application/json":
		return p, addJSON(p, body)
	case "application/x-www-form-urlencoded":
		values, err := url.ParseQuery(string(body))
		if err != nil {
			return nil, errUndecodableBody(err)
		}

		for k, v := range values {
			p.Set(k, v...)
		}

		return p, nil
	default:
		return nil, datacentre.NewError(http.StatusNotImplemented, "upload '%s' not implemented", kind)
	}
}

// readUpload reads the fields and the file of an upload, whose name becomes the parameter filename, as PVE's server
// does (pve-http-server, PVE/APIServer/AnyEvent.pm).
func readUpload(req *http.Request, body []byte) (p datacentre.Config, file []byte, err error) {
	p = datacentre.Config{}

	_, media, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil {
		return nil, nil, errUndecodableBody(err)
	}

	for parts := multipart.NewReader(bytes.NewReader(body), media["boundary"]); ; {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return p, file, nil
		}

		if err != nil {
			return nil, nil, errUndecodableBody(err)
		}

		content, err := io.ReadAll(part)
		if err != nil {
			return nil, nil, errUndecodableBody(err)
		}

		if part.FileName() == "" {
			p.Set(part.FormName(), string(content))
		} else {
			file = content

			p.Set("filename", part.FileName())
		}
	}
}

func addJSON(p datacentre.Config, body []byte) error {
	var doc map[string]any

	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()

	if err := d.Decode(&doc); err != nil {
		return errUndecodableBody(err)
	}

	for k, v := range doc {
		values, isList := v.([]any)
		if !isList {
			values = []any{v}
		}

		var texts []string

		for _, e := range values {
			switch e := e.(type) {
			case nil:
			case bool:
				texts = append(texts, strconv.Itoa(boolInt(e)))
			default:
				texts = append(texts, fmt.Sprint(e))
			}
		}

		if len(texts) > 0 {
			p.Set(k, texts...)
		}
	}

	return nil
}

// checkParams validates a call's parameters.
func (r *request) checkParams() error {
	problems := map[string]string{}
	all := maps.Clone(r.params)

	for name, value := range r.vars {
		if other, duplicate := all[name]; duplicate && other != value {
			problems[name] = "duplicate parameter (already defined in URI) with conflicting values!"
		}

		all[name] = value

		delete(r.params, name)
	}

	for name := range all {
		rule, ok := r.route.Rule(name)

		switch complaints := rule.Check(name, all.Values(name)); {
		case !ok:
			problems[name] = schema.Undefined
		case len(complaints) > 0:
			maps.Copy(problems, complaints)
		case rule.Requires != "" && !all.Has(rule.Requires):
			problems[rule.Requires] = schema.Needs(name)
		}
	}

	for name, rule := range r.route.Parameters {
		if !rule.Optional && !all.Has(name) {
			problems[name] = schema.Missing
		}
	}

	switch {
	case len(problems) > 0:
		return datacentre.ParameterError(problems)
	case r.params.Bool("skiplock") && r.user != "root@pam":
		return datacentre.WrongParameter("skiplock", "Only root may use this option.")
	default:
		return nil
	}
}
