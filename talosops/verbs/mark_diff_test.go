package verbs

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/talosops/kube"
)

// nodeObject returns a Node as the API shows it.
func nodeObject(t *testing.T, labels, annotations map[string]string, taints ...string) kube.Node {
	t.Helper()

	n := kube.Node{Name: "w-1", Version: "7", Labels: labels, Annotations: annotations}

	for _, text := range taints {
		var held corev1.Taint
		require.NoError(t, json.Unmarshal([]byte(text), &held))
		n.Taints = append(n.Taints, held)
	}

	return n
}

func TestOnlyConfiguredMarksAreChanged(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	const (
		dedicated = `{"key":"dedicated","value":"db","effect":"NoSchedule"}`
		notReady  = `{"key":"node.kubernetes.io/not-ready","effect":"NoExecute","timeAdded":"2026-11-21T00:00:00Z"}`
		theirs    = `{"key":"theirs","effect":"NoSchedule"}`
	)

	db := taint{Key: "dedicated", Value: "db", Effect: "NoSchedule"}
	remembered := map[string]string{
		labelsAnnotation: `["tier"]`, taintsAnnotation: `["dedicated:NoSchedule"]`, "other": "x",
	}
	tier := map[string]string{"tier": "db", "theirs": "y"}

	for name, test := range map[string]struct {
		node kube.Node
		want marks
	}{
		"nothing is set, and nothing was": {
			node: nodeObject(t, map[string]string{"theirs": "y"}, nil, theirs), want: marks{},
		},
		"all is there and known": {
			node: nodeObject(t, tier, remembered, notReady, dedicated),
			want: marks{Labels: map[string]string{"tier": "db"}, Taints: []taint{db}},
		},
		"a node that ran before it had a provider id": {
			node: nodeObject(t, nil, nil, notReady), want: marks{ProviderID: "proxmox://homelab/3000"},
		},
		"a node that registered with all of it": {
			node: nodeObject(t, tier, nil, dedicated),
			want: marks{Labels: map[string]string{"tier": "db"}, Taints: []taint{db}},
		},
		"a node that runs and lacks it": {
			node: nodeObject(t, nil, nil, notReady),
			want: marks{
				Labels: map[string]string{"tier": "db", "empty": ""},
				Taints: []taint{db, {Key: "a", Effect: "NoExecute"}},
			},
		},
		"other values": {
			node: nodeObject(t, tier, remembered, dedicated, theirs),
			want: marks{
				Labels: map[string]string{"tier": "web"}, Taints: []taint{{Key: "dedicated", Value: "web", Effect: "NoSchedule"}},
			},
		},
		"another effect is another taint": {
			node: nodeObject(t, tier, remembered, dedicated),
			want: marks{
				Labels: map[string]string{"tier": "db"}, Taints: []taint{{Key: "dedicated", Value: "db", Effect: "NoExecute"}},
			},
		},
		"no longer set": {
			node: nodeObject(t, tier, remembered, theirs, dedicated, notReady), want: marks{},
		},
		"no longer set, and gone already": {node: nodeObject(t, nil, remembered), want: marks{}},
		"a note that someone spoilt": {
			node: nodeObject(t, tier, map[string]string{labelsAnnotation: "tier"}), want: marks{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			patch, note := diffMarks(test.node, test.want)
			if patch == nil {
				golden.Equal(t, name, note)

				return
			}

			golden.Equal(t, name, note, patch)
		})
	}
}
