package vmdiff_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/vmdiff"
)

func one(cluster string) bool { return cluster == "one" }
func none(string) bool        { return false }

func TestKeptCNIs(t *testing.T) {
	t.Parallel()

	plan := planOf(t, stackFile)
	problems := vmdiff.CheckCNIs(plan, one)
	require.Len(t, problems, 1)
	assert.Contains(t, problems[0].String(), `clusters[0].cni.kind: "none" would leave Cilium, the pod network of `+
		"cluster one, unmanaged; set cilium")

	assert.Empty(t, vmdiff.CheckCNIs(plan, none))

	plan.Clusters[0].CNI = &spec.CNI{}
	assert.Empty(t, vmdiff.CheckCNIs(plan, one))
}

func TestLeftFlux(t *testing.T) {
	t.Parallel()

	plan := planOf(t, stackFile)
	assert.Equal(t, []string{
		"clusters[0].gitops: is no longer set: Flux and everything that it created stay in cluster one, and it keeps " +
			"reconciling; docs/platform.md describes how to remove it",
	}, vmdiff.CheckFlux(plan, one))

	assert.Empty(t, vmdiff.CheckFlux(plan, none))

	plan.Clusters[0].GitOps = &spec.GitOps{}
	assert.Empty(t, vmdiff.CheckFlux(plan, one))
}

// TestKeepRoles: stacks from before 2026-11-25 see no change, and new ones need no privilege to create roles.
func TestKeepRoles(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		configured string
		created    string
		wants      bool // existing roles
	}{
		"a new cluster":                       {"", "", true},
		"roles of another cluster":            {"", "other-csi-machines", true},
		"roles that an earlier run made":      {"", "one-ccm-machines", false},
		"the same, and existing ones are set": {", roles: existing", "one-ccm-machines", true},
		"a new cluster with its own roles":    {", roles: make", "", false},
		"own roles that an earlier run made":  {", roles: make", "one-csi-storage", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			plan := planOf(t, strings.Replace(
				stackFile, "- name: one\n", "- name: one\n      proxmox: {region: home, cloudController: {}"+test.configured+"}\n", 1,
			))
			vmdiff.KeepRoles(plan, func(role string) bool { return role == test.created })
			assert.Equal(t, test.wants, plan.Clusters[0].Proxmox.ExistingRoles)
		})
	}
}
