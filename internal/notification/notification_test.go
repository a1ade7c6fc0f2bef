package notification

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const token = "/services/T0/B0/hunter2"

func TestSend(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		answers []int // the last one is repeated
		calls   int32
		fails   string
	}{
		"taken":                    {answers: []int{200}, calls: 1},
		"taken the second time":    {answers: []int{503, 204}, calls: 2},
		"taken after a pause":      {answers: []int{429, 200}, calls: 2},
		"refused":                  {answers: []int{404}, calls: 1, fails: "the receiver answers 404 Not Found"},
		"redirected to anywhere":   {answers: []int{302}, calls: 1, fails: "the receiver answers 302 Found"},
		"too large, which repeats": {answers: []int{413}, calls: 1, fails: "the receiver answers 413 Request Entity Too Large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var calls atomic.Int32

			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var got map[string]string

				assert.NoError(t, json.NewDecoder(r.Body).Decode(&got))
				assert.Equal(t, map[string]string{"text": "done"}, got)
				assert.Equal(t, http.MethodPost+" "+token+" application/json",
					r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type"))
				w.Header().Set("Location", "/elsewhere")
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(test.answers[min(int(calls.Add(1)), len(test.answers))-1])
			}))
			defer server.Close()

			err := Send(t.Context(), server.URL+token, map[string]string{"text": "done"})
			assert.Equal(t, test.calls, calls.Load())

			if test.fails == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.fails)
			}
		})
	}
}

// TestErrorsDoNotShowTheURL, which has a token; a certificate of an unknown authority is not accepted.
func TestErrorsDoNotShowTheURL(t *testing.T) {
	t.Parallel()

	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)

	address, err := url.Parse(server.URL)
	require.NoError(t, err)

	for name, test := range map[string]struct{ url, fails string }{
		"an unknown authority": {server.URL + token, "certificate signed by unknown authority"},
		"nobody there":         {"https://" + strings.Replace(address.Host, "127.0.0.1", "127.0.0.2", 1) + token, "connection refused"},
		"no URL":               {"https://[" + token, "missing ']' in host"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := send(t.Context(), test.url, "done", time.Millisecond)
			require.ErrorContains(t, err, test.fails)
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
}
