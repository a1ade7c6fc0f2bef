package kubelet

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// spoken is a machine that keeps what its kubelet says.
type spoken struct {
	Machine

	mu    sync.Mutex
	lines []string
}

func (s *spoken) Say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

// TestADrainTakesAPodThatTheNodeMayNotReadForGone: an API server answers 403 where a pod of the node is gone, and 404
// for the moment until its authorizer knows.
func TestADrainTakesAPodThatTheNodeMayNotReadForGone(t *testing.T) {
	t.Parallel()

	for _, gone := range []int{http.StatusForbidden, http.StatusNotFound} {
		t.Run(http.StatusText(gone), func(t *testing.T) {
			t.Parallel()

			const pod = `{"metadata":{"name":"%s","namespace":"default","ownerReferences":[{"kind":"%s","controller":true}]}}`

			var (
				mu      sync.Mutex
				evicted []string
			)

			answers := map[string]string{
				"GET /api/v1/nodes/a": `{"kind":"Node","apiVersion":"v1","spec":{"unschedulable":true}}`,
				"GET /api/v1/pods": `{"kind":"PodList","apiVersion":"v1","items":[` + fmt.Sprintf(pod, "web", "ReplicaSet") +
					"," + fmt.Sprintf(pod, "proxy", "DaemonSet") + `]}`,
			}

			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")

				answer, known := answers[r.Method+" "+r.URL.Path]

				switch {
				case known:
					_, _ = w.Write([]byte(answer))
				case r.Method == http.MethodPost:
					mu.Lock()
					defer mu.Unlock()

					evicted = append(evicted, r.URL.Path)

					w.WriteHeader(http.StatusCreated)
				default:
					w.WriteHeader(gone)
				}
			}))
			t.Cleanup(server.Close)

			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			require.NoError(t, err)

			m := &spoken{}
			k := &Kubelet{m: m}
			k.link = &link{k: k, client: client, talos: client, name: "a"}

			require.NoError(t, k.Drain(t.Context()))
			assert.Equal(t, []string{"/api/v1/namespaces/default/pods/web/eviction"}, evicted)
			assert.Equal(t, []string{"[talos] waiting for node to be cordoned"}, m.lines)
		})
	}
}
