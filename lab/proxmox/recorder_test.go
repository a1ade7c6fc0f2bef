package proxmox_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/proxmox"
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

		if req.Body = http.NoBody; len(body) > 0 { // without a length it would be sent in chunks
			req.Body = io.NopCloser(bytes.NewReader(body))
		}
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
	e := exchange{
		method: req.Method,
		path:   strings.TrimPrefix(req.URL.EscapedPath(), "/api2/json"),
		params: req.URL.Query(),
		answer: answer,
	}

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
