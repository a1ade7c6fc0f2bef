package proxmoxve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"talos-proxmox/lab/loopback"
)

// apiOptions are endpoint, credentials and polling interval.
type apiOptions struct {
	base, token, username, password string
	insecure                        bool
	poll                            time.Duration
	roots                           *x509.CertPool
}

// api is a client of one Proxmox endpoint.
type api struct {
	o    apiOptions
	http *http.Client

	mu          sync.Mutex
	credentials http.Header
}

// parameters are the encoded parameters of a call.
type parameters interface{ values() url.Values }

// multiForm are the parameters of a call that repeats some of them.
type multiForm url.Values

// newAPI does not connect: the first call tests the credentials, so that previews work without Proxmox.
func newAPI(o apiOptions) *api {
	t := loopback.Transport()
	t.MaxIdleConnsPerHost = 64
	//nolint:gosec // the user's own setting, as published
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: o.roots, InsecureSkipVerify: o.insecure}

	return &api{o: o, http: &http.Client{Transport: t}}
}

// authHeaders returns the headers of a call. Like the published provider, it logs in once and keeps the ticket, which
// is valid for two hours.
func (a *api) authHeaders(ctx context.Context) (http.Header, error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.credentials == nil && a.o.token != "" {
		a.credentials = http.Header{"Authorization": {"PVEAPIToken=" + a.o.token}}
	}

	if a.credentials != nil {
		return a.credentials, nil
	}

	var session struct {
		Ticket string `json:"ticket"`
		CSRF   string `json:"CSRFPreventionToken"`
	}

	login := form{"username": a.o.username, "password": a.o.password}
	if err := a.send(ctx, http.MethodPost, "/access/ticket", nil, login, &session); err != nil {
		return nil, fmt.Errorf("failed to authenticate as %s: %w", a.o.username, err)
	}

	a.credentials = http.Header{
		"Cookie": {"PVEAuthCookie=" + session.Ticket}, "Csrfpreventiontoken": {session.CSRF},
	}

	return a.credentials, nil
}

// call makes one request. It tries reads three times if the connection fails.
func (a *api) call(ctx context.Context, method, path string, params parameters, out any) error {
	header, err := a.authHeaders(ctx)
	if err != nil {
		return err
	}

	tries := 1
	if method == http.MethodGet {
		tries = 3
	}

	for try := 1; ; try++ {
		err = a.send(ctx, method, path, header, params, out)

		var answer *statusError

		switch {
		case err == nil || errors.As(err, &answer):
			return err
		case try >= tries || ctx.Err() != nil:
			return fmt.Errorf(
				"failed to perform HTTP %s request (path: %s) - Reason: %w", method, strings.TrimPrefix(path, "/"), err,
			)
		}

		if err := sleep(ctx, time.Duration(try)*a.o.poll/10, nil); err != nil {
			return err
		}
	}
}

// send makes one request and decodes the response. Parameters are in the body or, for GET and DELETE, in the URL.
func (a *api) send(ctx context.Context, method, path string, header http.Header, params parameters, out any) error {
	encoded := ""
	if params != nil {
		encoded = params.values().Encode()
	}

	if inAddress := method == http.MethodGet || method == http.MethodDelete; inAddress && encoded != "" {
		path, encoded = path+"?"+encoded, ""
	}

	request, err := http.NewRequestWithContext(ctx, method, a.o.base+path, strings.NewReader(encoded))
	if err != nil {
		return err
	}

	if header != nil {
		request.Header = header.Clone()
	}

	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")

	response, err := a.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck

	if response.StatusCode >= http.StatusMultipleChoices {
		return newStatusError(response)
	}

	answer := struct {
		Data any `json:"data"`
	}{out}
	if out == nil {
		answer.Data = new(json.RawMessage)
	}

	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("unable to read the answer: %w", err)
	}

	return nil
}

func (f form) values() url.Values {
	out := url.Values{}
	for name, v := range f {
		out.Set(name, v)
	}

	return out
}

func (r multiForm) values() url.Values { return url.Values(r) }

// statusError is an error response of Proxmox; its message is the HTTP reason phrase.
type statusError struct {
	code   int
	reason string
}

// newStatusError returns the error with the reason phrase and the problems of single parameters.
func newStatusError(response *http.Response) error {
	answer := &statusError{
		code: response.StatusCode, reason: strings.TrimPrefix(response.Status, fmt.Sprintf("%d ", response.StatusCode)),
	}

	var body struct {
		Errors map[string]string `json:"errors"`
	}

	if json.NewDecoder(response.Body).Decode(&body) == nil && len(body.Errors) > 0 {
		var parts []string
		for name, problem := range body.Errors {
			parts = append(parts, name+": "+strings.TrimRight(problem, "\r\n"))
		}

		slices.Sort(parts)
		answer.reason += " (" + strings.Join(parts, " - ") + ")"
	}

	return answer
}

// Error uses the published provider's wording.
func (e *statusError) Error() string {
	if e.isNotFound() {
		return "the requested resource does not exist"
	}

	return fmt.Sprintf("received an HTTP %d response - Reason: %s", e.code, e.reason)
}

// isNotFound reports whether an error means that something does not exist.
func isNotFound(err error) bool {
	var answer *statusError

	return errors.As(err, &answer) && answer.isNotFound()
}

func (e *statusError) isNotFound() bool {
	return e.code == http.StatusNotFound || e.code == http.StatusInternalServerError &&
		strings.Contains(e.reason, "does not exist")
}
