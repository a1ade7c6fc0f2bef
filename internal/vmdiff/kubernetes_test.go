package vmdiff_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/vmdiff"
)

func TestKubernetesSteps(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		runs, planned string // runs: commas between versions
		want          string
	}{
		"a minor":              {runs: "v1.34.3", planned: "v1.35.0"},
		"between two versions": {runs: "v1.34.3,v1.35.0", planned: "v1.35.0"},
		"nothing is known":     {planned: "v1.30.0"},
		"two minors": {
			runs: "v1.33.1,v1.34.3", planned: "v1.35.0",
			want: `clusters[0].kubernetesVersion: "v1.35.0" is 2 minor versions newer, and Kubernetes is upgraded by one at a time; set the latest patch of v1.34 first`,
		},
		"back": {
			runs: "v1.34.3,v1.35.0", planned: "v1.34.3",
			want: `clusters[0].kubernetesVersion: "v1.34.3" is older, and Kubernetes is never downgraded; set v1.35.0, or a newer one`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			plan := planOf(t, strings.Replace(stackFile, "v1.35.0", test.planned, 1))
			runs := map[string][]string{"other": {"v1.20.0"}}

			if test.runs != "" {
				runs["one"] = strings.Split(test.runs, ",")
			}

			var got string
			for _, p := range vmdiff.CheckKubernetes(plan, nil, runs) {
				got += p.String()
			}

			assert.Equal(t, test.want, got)
		})
	}
}

// TestUpgradesOfKubernetesAreSaid in previews, once for a cluster.
func TestUpgradesOfKubernetesAreSaid(t *testing.T) {
	t.Parallel()

	plan := planOf(t, stackFile)
	require.Len(t, plan.Clusters[0].ControlPlanes, 1)

	for name, test := range map[string]struct {
		runs []string
		want string
	}{
		"nothing is known": {},
		"no upgrade":       {runs: []string{"v1.35.0"}},
		"one that was cut": {
			runs: []string{"v1.34.3", "v1.35.0"},
			want: "cluster one: Kubernetes v1.34.3 → v1.35.0 (clusters[0].kubernetesVersion): the control planes' pods are replaced one " +
				"node after the other, then the kubelets; other pods keep running; with one control plane, its API is unavailable for " +
				"about 5 s meanwhile",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			lines := vmdiff.KubernetesUpgrades(plan, map[string][]string{"one": test.runs, "other": {"v1.20.0"}})
			assert.Equal(t, test.want, strings.Join(lines, "\n"))
		})
	}
}

// TestPlannedTalosSupportsRunningKubernetes: Talos is upgraded before Kubernetes.
func TestPlannedTalosSupportsRunningKubernetes(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		runs, talos, kubernetes string
		want                    string
	}{
		"another minor version that runs it":  {runs: "v1.35.0", talos: "v1.13.10", kubernetes: "v1.35.0"},
		"one that follows Talos":              {runs: "v1.35.0", talos: "v1.13.10"},
		"the Talos that runs, whatever it is": {runs: "v1.29.0", talos: "v1.12.6", kubernetes: "v1.30.1"},
		"nothing is known":                    {talos: "v1.13.10", kubernetes: "v1.31.0"},
		"one that runs the planned Kubernetes only": {
			runs: "v1.30.4", talos: "v1.13.10", kubernetes: "v1.31.4",
			want: `templates.talos.version: "v1.13.10" does not support the Kubernetes that cluster one runs, and Talos is upgraded first: ` +
				"version v1.30.4 of Kubernetes does not run on Talos v1.13.10: choose a version from v1.31 to v1.36, or Talos v1.12; " +
				"upgrade Kubernetes in a separate up before",
		},
		"the default of a Talos that follows": {
			runs: "v1.34.2", talos: "v1.13.10",
			want: `clusters[0].kubernetesVersion: "v1.36.0" is 2 minor versions newer, and Kubernetes is upgraded by one at a time; ` +
				"set the latest patch of v1.35 first",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			machines := machinesOf(planOf(t, stackFile))
			for i := range machines {
				machines[i].Talos = "v1.12.6"
			}

			after := strings.NewReplacer("version: v1.12.6", "version: "+test.talos, "      kubernetesVersion: v1.35.0\n",
				map[bool]string{true: "      kubernetesVersion: " + test.kubernetes + "\n"}[test.kubernetes != ""])

			var runs map[string][]string
			if test.runs != "" {
				runs = map[string][]string{"one": {test.runs}}
			}

			problems := vmdiff.CheckKubernetes(planOf(t, after.Replace(stackFile)), machines, runs)
			if test.want == "" {
				assert.Empty(t, problems)
			} else {
				assert.Equal(t, test.want, problems.Error())
			}
		})
	}
}
