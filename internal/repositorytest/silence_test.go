package repositorytest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// silence is one of Alertmanager's, as its API has it.
type silence struct {
	ID       string `json:"id"`
	Matchers []struct {
		Name    string `json:"name"`
		Value   string `json:"value"`
		IsRegex bool   `json:"isRegex"`
		IsEqual bool   `json:"isEqual"`
	} `json:"matchers"`
	StartsAt  time.Time `json:"startsAt"`
	EndsAt    time.Time `json:"endsAt"`
	CreatedBy string    `json:"createdBy"`
	Comment   string    `json:"comment"`
	Status    struct {
		State string `json:"state"`
	} `json:"status"`
}

// alertmanager stands in for the silences of Alertmanager's API, version 2.
type alertmanager struct {
	t        *testing.T
	mu       sync.Mutex
	silences []silence
	user     string // of the last call
}

// ServeHTTP implements http.Handler.
func (a *alertmanager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.user, _, _ = r.BasicAuth()

	switch id, one := strings.CutPrefix(r.URL.Path, "/api/v2/silence/"); {
	case one && r.Method == http.MethodDelete:
		for i := range a.silences {
			if a.silences[i].ID == id {
				a.silences[i].Status.State = "expired"
			}
		}
	case r.URL.Path != "/api/v2/silences":
		http.NotFound(w, r)
	case r.Method == http.MethodGet:
		assert.NoError(a.t, json.NewEncoder(w).Encode(a.silences))
	case r.Header.Get("Content-Type") != "application/json":
		w.WriteHeader(http.StatusUnsupportedMediaType)
	default:
		var s silence

		body, err := io.ReadAll(r.Body)
		assert.NoError(a.t, err)
		assert.NoError(a.t, json.Unmarshal(body, &s), string(body))

		s.ID, s.Status.State = "id-"+s.CreatedBy[len(s.CreatedBy)-3:], "active"
		a.silences = append(a.silences, s)

		_, err = io.WriteString(w, `{"silenceID": "`+s.ID+`"}`)
		assert.NoError(a.t, err)
	}
}

// TestSilences runs the example of commands before and after a maintenance.
func TestSilences(t *testing.T) {
	t.Parallel()

	for _, tool := range []string{"curl", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing, which the example needs: %v", tool, err)
		}
	}

	a := &alertmanager{t: t}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)

	options := filepath.Join(t.TempDir(), "curl")
	require.NoError(t, os.WriteFile(options, []byte("user = \"me:hunter2\"\n"), 0o600))

	run := func(url, verb, cluster, outcome string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "../../examples/alertmanager/silence.sh", verb)

		cmd.Env = append(os.Environ(), "ALERTMANAGER="+url, "TALOS_PROXMOX_STACK=acme/talos-proxmox/prod",
			"TALOS_PROXMOX_CLUSTER="+cluster, "TALOS_PROXMOX_OPERATION=restart", `TALOS_PROXMOX_NODES=one-general-1 one-"2"`,
			"TALOS_PROXMOX_OUTCOME="+outcome, "CURL_OPTIONS_FILE="+options)

		out, err := cmd.CombinedOutput()

		return string(out), err
	}

	began := time.Now()

	for _, cluster := range []string{"one", "two"} {
		out, err := run(server.URL, "begin", cluster, "")
		require.NoError(t, err, out)
		assert.Equal(t, "silence id-"+cluster+"\n", out)
	}

	require.Len(t, a.silences, 2)
	one := a.silences[0]
	require.Len(t, one.Matchers, 1)
	assert.Equal(t, "cluster=one", one.Matchers[0].Name+"="+one.Matchers[0].Value)
	assert.True(t, one.Matchers[0].IsEqual && !one.Matchers[0].IsRegex)
	assert.Equal(t, `restart of one-general-1 one-"2"`, one.Comment)
	assert.WithinRange(t, one.StartsAt, began.Add(-2*time.Second), time.Now())
	assert.Equal(t, 4*time.Hour, one.EndsAt.Sub(one.StartsAt))
	assert.Equal(t, "me", a.user)

	out, err := run(server.URL, "end", "one", "failed")
	require.NoError(t, err, out)
	assert.Equal(t, "silence id-one has ended: the run failed\n", out)
	assert.Equal(t, "expired", a.silences[0].Status.State)
	assert.Equal(t, "active", a.silences[1].Status.State, "it is another cluster's")

	out, err = run(server.URL, "end", "one", "interrupted")
	require.NoError(t, err, out)
	assert.Empty(t, out, "there is none any more")

	out, err = run(server.URL+"/elsewhere", "begin", "one", "")
	require.Error(t, err)
	assert.Contains(t, out, "404")

	out, err = run("", "begin", "one", "")
	require.Error(t, err)
	assert.Contains(t, out, "ALERTMANAGER: is not set: the URL of Alertmanager")
}
