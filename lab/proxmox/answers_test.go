package proxmox_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"proxmox-talos/lab/proxmox"
)

// exchange is a call and what the lab answered with status 200.
type exchange struct {
	method, path string
	params       url.Values
	isUpload     bool
	answer       []byte
}

// recorder keeps what goes through it.
type recorder struct {
	next http.RoundTripper

	mu    sync.Mutex
	calls []exchange
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte

	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}

		req.Body = io.NopCloser(bytes.NewReader(body))
	}

	res, err := r.next.RoundTrip(req)
	if err != nil || res.StatusCode != http.StatusOK {
		return res, err
	}

	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}

	res.Body = io.NopCloser(bytes.NewReader(answer))
	e := exchange{method: req.Method, path: strings.TrimPrefix(req.URL.EscapedPath(), "/api2/json"), params: req.URL.Query(), answer: answer}

	kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err := e.addBody(kind, body); err != nil {
		return nil, err
	}

	r.mu.Lock()
	r.calls = append(r.calls, e)
	r.mu.Unlock()

	return res, nil
}

func (e *exchange) addBody(kind string, body []byte) error {
	if len(body) == 0 {
		return nil
	}

	switch kind {
	case "application/json":
		var doc map[string]any

		if err := json.Unmarshal(body, &doc); err != nil {
			return err
		}

		for k, v := range doc {
			switch v := v.(type) {
			case nil:
			case bool:
				e.params.Add(k, map[bool]string{true: "1", false: "0"}[v])
			case float64:
				e.params.Add(k, strconv.FormatFloat(v, 'f', -1, 64))
			default:
				e.params.Add(k, fmt.Sprint(v))
			}
		}
	case "multipart/form-data":
		e.isUpload = true
	default:
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return err
		}

		for k, v := range form {
			e.params[k] = append(e.params[k], v...)
		}
	}

	return nil
}

// template finds the implemented method of a call, and the values in its path.
func (e *exchange) template(t *testing.T) (string, map[string]string) {
	t.Helper()

	var (
		best string
		vars map[string]string
	)

	for _, m := range proxmox.Methods() {
		pattern := regexp.QuoteMeta(m.Path)
		pattern = regexp.MustCompile(`\\\{(\w+)\\\}`).ReplaceAllString(pattern, `(?P<$1>[^/]+)`)
		re := regexp.MustCompile("^" + pattern + "/?$")
		found := re.FindStringSubmatch(e.path)

		if found == nil || m.Method != e.method || best != "" && len(found)-1 >= len(vars) {
			continue
		}

		best, vars = m.Method+" "+m.Path, map[string]string{}

		for i, name := range re.SubexpNames()[1:] {
			value, err := url.PathUnescape(found[i+1])
			require.NoError(t, err)

			vars[name] = value
		}
	}

	return best, vars
}

// deviations are where Proxmox's servers do not answer what their description says: its results are not checked.
var deviations = map[string]string{
	`GET /cluster/nextid: data is "\d+", not of type integer`:                      "the VMID is a string",
	`GET /nodes/{node}/qemu/{vmid}/pending: data\[\d+\].value is .+, not a string`: "values have the types of the configuration",
	`GET /cluster/mapping/pci: data\[\d+\].description is missing`:                 "a mapping without a description has none",
}

// TestAnswersAreProxmoxs leads machines, files, pools and mappings through their lives by every implemented method, and checks each accepted request and its
// answer against Proxmox's description.
func TestAnswersAreProxmoxs(t *testing.T) {
	t.Parallel()

	api := description(t)
	rec := &recorder{}
	scenario(t, rec)

	called := map[string]bool{}
	seen := map[string]bool{}

	for _, e := range rec.calls {
		call, vars := e.template(t)
		require.Contains(t, api, call, e.path)

		called[call] = true

		for name, value := range vars {
			e.params[name] = []string{value}
		}

		if !e.isUpload {
			for _, c := range checkParameters(e.params, api[call].Parameters) {
				assert.Fail(t, "Proxmox would not take this", "%s %v: %s", call, e.params, c)
			}
		}

		var doc struct {
			Data any `json:"data"`
		}

		require.NoError(t, json.Unmarshal(e.answer, &doc))

		for _, c := range checkValue("data", doc.Data, api[call].Returns) {
			if d := deviation(call + ": " + c); d != "" {
				seen[d] = true
			} else {
				assert.Fail(t, "Proxmox would not answer this", "%s: %s", call, c)
			}
		}
	}

	for _, m := range proxmox.Methods() {
		assert.True(t, called[m.Method+" "+m.Path], "the scenario does not call %s %s", m.Method, m.Path)
	}

	assert.Len(t, seen, len(deviations), "a deviation is stated that does not occur")
}

func deviation(complaint string) string {
	for d := range deviations {
		if regexp.MustCompile("^" + strings.NewReplacer("{", `\{`, "}", `\}`).Replace(d) + "$").MatchString(complaint) {
			return d
		}
	}

	return ""
}

func checkParameters(given url.Values, p property) []string {
	doc := map[string]any{}

	for name, values := range given {
		switch of, _ := p.child(name); of.Type {
		case "array":
			list := []any{}
			for _, v := range values {
				list = append(list, v)
			}

			doc[name] = list
		case "boolean", "integer", "number":
			n, err := strconv.ParseFloat(values[0], 64)
			if err != nil {
				return []string{name + " is no number: " + values[0]}
			}

			doc[name] = n
		default:
			doc[name] = values[0]
		}
	}

	p.Type = "object"

	return checkValue("parameters", doc, p)
}

// child finds a property by its name; "scsi[n]" is that of scsi0, too.
func (p property) child(name string) (property, bool) {
	if c, ok := p.Properties[name]; ok {
		return c, true
	}

	c, ok := p.Properties[strings.TrimRight(name, "0123456789")+"[n]"]

	return c, ok
}

// checkValue returns what is wrong with a JSON value by a JSON schema of Proxmox's kind.
func checkValue(path string, value any, p property) []string {
	switch p.Type {
	case "null":
		if value != nil {
			return []string{fmt.Sprintf("%s is %v, not null", path, value)}
		}
	case "object":
		return checkObject(path, value, p)
	case "array":
		list, ok := value.([]any)
		if !ok {
			return []string{fmt.Sprintf("%s is %v, not a list", path, value)}
		}

		var wrong []string

		for i, v := range list {
			if p.Items != nil {
				wrong = append(wrong, checkValue(path+"["+strconv.Itoa(i)+"]", v, *p.Items)...)
			}
		}

		return wrong
	case "boolean", "integer", "number":
		return checkNumber(path, value, p)
	case "string":
		return checkText(path, value, p)
	}

	return nil
}

func checkObject(path string, value any, p property) []string {
	o, ok := value.(map[string]any)
	if !ok {
		return []string{fmt.Sprintf("%s is %v, not an object", path, value)}
	}

	var wrong []string

	for name, c := range p.Properties {
		if _, ok := o[name]; !ok && !truth(c.Optional) && !strings.HasSuffix(name, "[n]") {
			wrong = append(wrong, path+"."+name+" is missing")
		}
	}

	for name, v := range o {
		if c, ok := p.child(name); ok {
			wrong = append(wrong, checkValue(path+"."+name, v, c)...)
		} else if p.AdditionalProps != nil && !truth(p.AdditionalProps) {
			wrong = append(wrong, path+"."+name+" is not in the schema")
		}
	}

	return wrong
}

func checkNumber(path string, value any, p property) []string {
	n, ok := value.(float64)

	switch {
	case !ok:
		return []string{fmt.Sprintf("%s is %#v, not of type %s", path, value, p.Type)}
	case p.Type == "boolean" && n != 0 && n != 1:
		return []string{fmt.Sprintf("%s is %v, not 0 or 1", path, n)}
	case p.Type == "integer" && n != math.Trunc(n):
		return []string{fmt.Sprintf("%s is %v, not an integer", path, n)}
	}

	if low, err := strconv.ParseFloat(bound(p.Minimum), 64); err == nil && n < low {
		return []string{fmt.Sprintf("%s is %v, less than %v", path, n, low)}
	}

	if high, err := strconv.ParseFloat(bound(p.Maximum), 64); err == nil && n > high {
		return []string{fmt.Sprintf("%s is %v, more than %v", path, n, high)}
	}

	return nil
}

func checkText(path string, value any, p property) []string {
	s, ok := value.(string)

	switch {
	case !ok:
		return []string{fmt.Sprintf("%s is %#v, not a string", path, value)}
	case p.MaxLength > 0 && len(s) > p.MaxLength:
		return []string{fmt.Sprintf("%s is longer than %d", path, p.MaxLength)}
	case p.Enum != nil && !slices.Contains(p.Enum, s):
		return []string{fmt.Sprintf("%s is %q, none of %v", path, s, p.Enum)}
	case p.Pattern != "" && !regexp.MustCompile("^(?:"+goPattern(p.Pattern)+")$").MatchString(s):
		return []string{fmt.Sprintf("%s is %q, not like %s", path, s, p.Pattern)}
	}

	return nil
}
