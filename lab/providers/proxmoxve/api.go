package proxmoxve

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/luthermonson/go-proxmox"

	"talos-proxmox/lab/loopback"
)

// apiOptions are where Proxmox is, who asks, and how often.
type apiOptions struct {
	base, token, username, password string
	insecure                        bool
	minTLS                          uint16
	roots                           *x509.CertPool // trusted authorities; nil = the system's
	poll                            time.Duration
}

// api speaks to one Proxmox endpoint.
type api struct {
	o    apiOptions
	http *http.Client

	mu     sync.Mutex
	client *proxmox.Client
}

// parameters of a call in the form in which they are sent.
type parameters interface{ values() url.Values }

// form is the parameters of a call.
type form map[string]string

// repeated is the parameters of a call that has some of them several times.
type repeated url.Values

// newAPI connects nowhere yet: credentials are first tried by the first call, so that a preview without Proxmox works.
func newAPI(o apiOptions) *api {
	t := loopback.Transport()
	t.MaxIdleConnsPerHost = 64
	//nolint:gosec // the user's own setting, as published
	t.TLSClientConfig = &tls.Config{MinVersion: o.minTLS, RootCAs: o.roots, InsecureSkipVerify: o.insecure}

	return &api{o: o, http: &http.Client{Transport: transport{t}}}
}

// connect returns a client with credentials. As the published provider does, it logs in once and keeps the ticket,
// which Proxmox honours for two hours.
func (a *api) connect(ctx context.Context) (*proxmox.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.client != nil {
		return a.client, nil
	}

	if id, secret, ok := strings.Cut(a.o.token, "="); ok {
		a.client = proxmox.NewClient(a.o.base, proxmox.WithHTTPClient(a.http), proxmox.WithAPIToken(id, secret))

		return a.client, nil
	}

	client := proxmox.NewClient(a.o.base, proxmox.WithHTTPClient(a.http),
		proxmox.WithCredentials(&proxmox.Credentials{Username: a.o.username, Password: a.o.password}))
	if err := client.CreateSession(ctx); err != nil {
		return nil, fmt.Errorf("failed to authenticate as %s: %w", a.o.username, plain(err))
	}

	a.client = client

	return client, nil
}

// call makes one request. Reads are tried three times when the connection breaks.
func (a *api) call(ctx context.Context, method, path string, params parameters, out any) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}

	var body []byte

	if params != nil {
		if method == http.MethodGet || method == http.MethodDelete {
			path += "?" + params.values().Encode()
		} else if body, err = json.Marshal(params.values()); err != nil {
			return fmt.Errorf("unable to encode the parameters of %s: %w", path, err)
		}
	}

	tries := 1
	if method == http.MethodGet {
		tries = 3
	}

	for try := 1; ; try++ {
		err = client.Req(ctx, method, path, body, out)

		var answer *statusError
		if err == nil || errors.As(err, &answer) || try >= tries || ctx.Err() != nil {
			break
		}

		if err := sleep(ctx, time.Duration(try)*a.o.poll/10, nil); err != nil {
			return err
		}
	}

	if err != nil {
		return failed(method, path, err)
	}

	return nil
}

// failed words the end of a call: what Proxmox answered, or why no answer came.
func failed(method, path string, err error) error {
	var answer *statusError
	if errors.As(err, &answer) {
		return answer
	}

	return fmt.Errorf(
		"failed to perform HTTP %s request (path: %s) - Reason: %w", method, strings.TrimPrefix(path, "/"), err,
	)
}

// plain removes net/http's wrapping around an answer.
func plain(err error) error {
	var answer *statusError
	if errors.As(err, &answer) {
		return answer
	}

	return err
}

func (f form) values() url.Values {
	out := url.Values{}
	for name, v := range f {
		out.Set(name, v)
	}

	return out
}

func (r repeated) values() url.Values { return url.Values(r) }

// statusError is an answer of Proxmox that is not a success; its words are the HTTP reason phrase.
type statusError struct {
	code   int
	reason string
}

// Error is worded as the published provider words it.
func (e *statusError) Error() string {
	if e.gone() {
		return "the requested resource does not exist"
	}

	return fmt.Sprintf("received an HTTP %d response - Reason: %s", e.code, e.reason)
}

// gone tells the answers that mean that something does not exist.
func gone(err error) bool {
	var answer *statusError

	return errors.As(err, &answer) && answer.gone()
}

func (e *statusError) gone() bool {
	return e.code == http.StatusNotFound || e.code == http.StatusInternalServerError &&
		strings.Contains(e.reason, "does not exist")
}

// transport makes go-proxmox speak like the published provider: forms instead of JSON, and errors with all that Proxmox
// said.
type transport struct{ next http.RoundTripper }

// RoundTrip is part of http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil && req.Header.Get("Content-Type") == "application/json" {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, fmt.Errorf("unable to read the request: %w", err)
		}

		params, err := fromJSON(body)
		if err != nil {
			return nil, fmt.Errorf("unable to read the parameters of %s: %w", req.URL.Path, err)
		}

		encoded := []byte(params.Encode())
		req = req.Clone(req.Context())
		req.ContentLength = int64(len(encoded))

		// A body without a length would be sent in chunks, which Proxmox refuses.
		if req.Body = http.NoBody; len(encoded) > 0 {
			req.Body = io.NopCloser(bytes.NewReader(encoded))
		}

		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}

	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.StatusCode < http.StatusMultipleChoices {
		return resp, err
	}
	defer resp.Body.Close()

	answer := &statusError{
		code: resp.StatusCode, reason: strings.TrimPrefix(resp.Status, fmt.Sprintf("%d ", resp.StatusCode)),
	}

	var body struct {
		Errors map[string]string `json:"errors"`
	}

	if json.NewDecoder(resp.Body).Decode(&body) == nil && len(body.Errors) > 0 {
		var parts []string
		for name, problem := range body.Errors {
			parts = append(parts, name+": "+strings.TrimRight(problem, "\r\n"))
		}

		slices.Sort(parts)
		answer.reason += " (" + strings.Join(parts, " - ") + ")"
	}

	return nil, answer
}

// fromJSON reads parameters as call writes them, lists, and as go-proxmox itself does.
func fromJSON(body []byte) (url.Values, error) {
	var params map[string]any
	if err := json.Unmarshal(body, &params); err != nil {
		return nil, err
	}

	out := url.Values{}

	for name, v := range params {
		values, many := v.([]any)
		if !many {
			values = []any{v}
		}

		for _, value := range values {
			out.Add(name, fmt.Sprint(value))
		}
	}

	return out, nil
}
