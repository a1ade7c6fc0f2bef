package verbs

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// fakeAPI is a Proxmox that serves one request at a time, and records changes in order.
type fakeAPI struct {
	t     *testing.T
	mu    sync.Mutex
	calls []string // POST /cluster/ha/rules, without the prefix
}

// settings starts the server, and returns the settings of the provider for it. Handle gets the path without the prefix,
// and the parameters in the body.
func (f *fakeAPI) settings(
	prefix string, handle func(w http.ResponseWriter, r *http.Request, path string, parameters map[string]any),
) map[string]string {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()

		assert.Equal(f.t, "PVEAPIToken=t@pve!t=hunter2", r.Header.Get("Authorization"))

		body, err := io.ReadAll(r.Body)
		assert.NoError(f.t, err)

		parameters := map[string]any{}
		if len(body) > 0 {
			assert.NoError(f.t, json.Unmarshal(body, &parameters))
		}

		path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api2/json"), prefix)
		if r.Method != http.MethodGet {
			f.calls = append(f.calls, r.Method+" "+path)
		}

		handle(w, r, path, parameters)
	}))
	f.t.Cleanup(server.Close)

	return map[string]string{"endpoint": server.URL, "apiToken": "t@pve!t=hunter2", "insecure": "true"}
}

func (f *fakeAPI) answer(w io.Writer, data any) {
	assert.NoError(f.t, json.NewEncoder(w).Encode(map[string]any{"data": data}))
}
