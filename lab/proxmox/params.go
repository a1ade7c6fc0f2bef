package proxmox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/schema"
)

// params are a call's parameters, whatever form they came in.
type params map[string][]string

func (p params) get(name string) string {
	if v := p[name]; len(v) > 0 {
		return v[0]
	}

	return ""
}

func (p params) has(name string) bool {
	_, ok := p[name]

	return ok
}

func (p params) bool(name string) bool { return datacentre.Truth(p.get(name)) }

// number returns a value that is checked, or the fallback where there is none.
func (p params) number(name string, fallback int) int {
	if n, err := strconv.Atoi(p.get(name)); err == nil {
		return n
	}

	return fallback
}

// list splits a comma (or semicolon, or blank) separated value.
func (p params) list(name string) []string {
	var out []string

	for _, v := range p[name] {
		out = append(out, schema.SplitList(v)...)
	}

	return out
}

// config returns the parameters beside those of the path as the model takes them: lists in one text.
func (p params) config() datacentre.Config {
	c := datacentre.Config{}

	for k, v := range p {
		if k != "node" && k != "vmid" {
			c[k] = strings.Join(v, ",")
		}
	}

	return c
}

func badBody(err error) error {
	return &datacentre.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("unable to decode request body: %v", err)}
}

func readParams(req *http.Request, body []byte) (params, error) {
	p := params{}
	for k, v := range req.URL.Query() {
		p[k] = v
	}

	// With it browsers keep their caches from answering; PVE drops it too.
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
		return p, p.addJSON(body)
	case "application/x-www-form-urlencoded":
		values, err := url.ParseQuery(string(body))
		if err != nil {
			return nil, badBody(err)
		}

		for k, v := range values {
			p[k] = v
		}

		return p, nil
	default:
		return nil, &datacentre.Error{Status: http.StatusNotImplemented, Message: "upload '" + kind + "' not implemented"}
	}
}

func (p params) addJSON(body []byte) error {
	var doc map[string]any

	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()

	if err := d.Decode(&doc); err != nil {
		return badBody(err)
	}

	for k, v := range doc {
		values, isList := v.([]any)
		if !isList {
			values = []any{v}
		}

		for _, e := range values {
			switch e := e.(type) {
			case nil:
			case bool:
				n := "0"
				if e {
					n = "1"
				}

				p[k] = append(p[k], n)
			default:
				p[k] = append(p[k], fmt.Sprint(e))
			}
		}
	}

	return nil
}
