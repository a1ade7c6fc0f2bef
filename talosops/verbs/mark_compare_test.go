package verbs

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/talosops/kube"
)

// nodeObject is a Node as the API shows it.
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

func TestOnlyWhatWasStatedIsChangedInANode(t *testing.T) {
	t.Parallel()

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
		node   kube.Node
		stated marks
		patch  string // without the version; empty = none
		note   string
	}{
		"nothing is set, and nothing was": {
			node:   nodeObject(t, map[string]string{"theirs": "y"}, nil, theirs),
			stated: marks{},
			note:   "up to date",
		},
		"all is there and known": {
			node:   nodeObject(t, tier, remembered, notReady, dedicated),
			stated: marks{Labels: map[string]string{"tier": "db"}, Taints: []taint{db}},
			note:   "up to date",
		},
		"a node that ran before it had a provider id": {
			node:   nodeObject(t, nil, nil, notReady),
			stated: marks{ProviderID: "proxmox://homelab/3000"},
			patch:  `{"metadata":{},"spec":{"providerID":"proxmox://homelab/3000"}}`,
			note:   "1 provider id set",
		},
		"a node that registered with all of it": {
			node:   nodeObject(t, tier, nil, dedicated),
			stated: marks{Labels: map[string]string{"tier": "db"}, Taints: []taint{db}},
			patch:  `{"metadata":{"annotations":{"talos-proxmox/labels":"[\"tier\"]","talos-proxmox/taints":"[\"dedicated:NoSchedule\"]"}}}`,
			note:   "up to date",
		},
		"a node that runs and lacks it": {
			node: nodeObject(t, nil, nil, notReady),
			stated: marks{
				Labels: map[string]string{"tier": "db", "empty": ""},
				Taints: []taint{db, {Key: "a", Effect: "NoExecute"}},
			},
			patch: `{"metadata":{"labels":{"tier":"db","empty":""},"annotations":{"talos-proxmox/labels":"[\"empty\",\"tier\"]","talos-proxmox/taints":"[\"a:NoExecute\",\"dedicated:NoSchedule\"]"}},` +
				`"spec":{"taints":[` + notReady + `,` + dedicated + `,{"key":"a","effect":"NoExecute"}]}}`,
			note: "2 labels set, 2 taints set",
		},
		"other values": {
			node: nodeObject(t, tier, remembered, dedicated, theirs),
			stated: marks{
				Labels: map[string]string{"tier": "web"}, Taints: []taint{{Key: "dedicated", Value: "web", Effect: "NoSchedule"}},
			},
			patch: `{"metadata":{"labels":{"tier":"web"}},"spec":{"taints":[{"key":"dedicated","value":"web","effect":"NoSchedule"},` +
				theirs + `]}}`,
			note: "1 label set, 1 taint set",
		},
		"another effect is another taint": {
			node: nodeObject(t, tier, remembered, dedicated),
			stated: marks{
				Labels: map[string]string{"tier": "db"}, Taints: []taint{{Key: "dedicated", Value: "db", Effect: "NoExecute"}},
			},
			patch: `{"metadata":{"annotations":{"talos-proxmox/taints":"[\"dedicated:NoExecute\"]"}},"spec":{"taints":[{"key":"dedicated","value":"db","effect":"NoExecute"}]}}`,
			note:  "1 taint set, 1 taint removed",
		},
		"no longer set": {
			node:   nodeObject(t, tier, remembered, theirs, dedicated, notReady),
			stated: marks{},
			patch:  `{"metadata":{"labels":{"tier":null},"annotations":{"talos-proxmox/labels":null,"talos-proxmox/taints":null}},"spec":{"taints":[` + theirs + `,` + notReady + `]}}`,
			note:   "1 label removed, 1 taint removed",
		},
		"no longer set, and gone already": {
			node:   nodeObject(t, nil, remembered),
			stated: marks{},
			patch:  `{"metadata":{"annotations":{"talos-proxmox/labels":null,"talos-proxmox/taints":null}}}`,
			note:   "up to date",
		},
		"a note that someone spoilt": {
			node:   nodeObject(t, tier, map[string]string{labelsAnnotation: "tier"}),
			stated: marks{},
			note:   "up to date",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			patch, note := compareMarks(test.node, test.stated)
			assert.Equal(t, test.note, note)

			if test.patch == "" {
				assert.Nil(t, patch)

				return
			}

			require.NotNil(t, patch)
			assert.Equal(t, "7", patch.Metadata.ResourceVersion)
			patch.Metadata.ResourceVersion = ""
			text, err := json.Marshal(patch)
			require.NoError(t, err)

			var got map[string]any
			require.NoError(t, json.Unmarshal(text, &got))
			delete(got["metadata"].(map[string]any), "resourceVersion")
			text, err = json.Marshal(got)
			require.NoError(t, err)
			assert.JSONEq(t, test.patch, string(text))
		})
	}
}
