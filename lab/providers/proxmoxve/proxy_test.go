package proxmoxve

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// refusal is the first call that was refused.
type refusal struct{ call, reason string }

// recordingProxy is a proxy of the lab's API that records requests, and ends a run at the first refusal.
type recordingProxy struct {
	endpoint string
	cancel   context.CancelFunc

	mu       sync.Mutex
	requests []string
	first    refusal
}

func startProxy(t *testing.T, endpoint string, cancel context.CancelFunc) *recordingProxy {
	t.Helper()

	//nolint:gosec // the lab's own certificate
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(transport.CloseIdleConnections)

	w := &recordingProxy{cancel: cancel}
	front := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		assert.NoError(t, w.forward(out, r, transport, strings.TrimSuffix(endpoint, "/")))
	}))
	t.Cleanup(front.Close)
	w.endpoint = front.URL

	return w
}

// forward forwards a call. It writes the response itself, because a ResponseWriter cannot write Proxmox' reason
// phrase.
func (w *recordingProxy) forward(
	out http.ResponseWriter, r *http.Request, transport http.RoundTripper, endpoint string,
) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}

	onward, err := http.NewRequestWithContext(
		context.WithoutCancel(r.Context()), r.Method, endpoint+r.URL.RequestURI(), bytes.NewReader(body),
	)
	if err != nil {
		return err
	}

	w.record(r, string(body))

	onward.Header, onward.ContentLength = r.Header, r.ContentLength

	answer, err := transport.RoundTrip(onward)
	if err != nil {
		return err
	}

	defer func() { _ = answer.Body.Close() }()

	// Granting a role that the caller lacks is refused with 400, not 403.
	if answer.StatusCode == http.StatusForbidden || strings.Contains(answer.Status, " ACL update failed: 400 ") {
		w.recordRefusal(answer)
	}

	hijacker, ok := out.(http.Hijacker)
	if !ok {
		return http.ErrNotSupported
	}

	conn, _, err := hijacker.Hijack()
	if err != nil {
		return err
	}

	answer.Close = true
	_, _ = answer.Write(conn), conn.Close() // the client may have gone

	return nil
}

// record records a request as METHOD path parameters, except those about tasks, whose number varies.
func (w *recordingProxy) record(r *http.Request, body string) {
	form, _ := url.ParseQuery(body)
	maps.Copy(form, r.URL.Query())

	if path := strings.TrimPrefix(r.URL.Path, "/api2/json"); !strings.Contains(path, "/tasks/") {
		w.mu.Lock()
		defer w.mu.Unlock()

		w.requests = append(w.requests, r.Method+" "+path+" "+form.Encode())
	}
}

// takeRequests returns the requests since the last call.
func (w *recordingProxy) takeRequests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()

	requests := w.requests
	w.requests = nil

	return requests
}

func (w *recordingProxy) recordRefusal(r *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.first == (refusal{}) {
		_, reason, _ := strings.Cut(r.Status, " ")
		w.first = refusal{r.Request.Method + " " + strings.TrimPrefix(r.Request.URL.Path, "/api2/json"), reason}
	}

	w.cancel()
}

func (w *recordingProxy) firstRefusal() refusal {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.first
}
