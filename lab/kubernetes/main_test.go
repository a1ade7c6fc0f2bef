package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	etcdversion "go.etcd.io/etcd/api/v3/version"
	compatibility "k8s.io/apiserver/pkg/util/compatibility"
	componentversion "k8s.io/component-base/version"
)

func TestCommandLine(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		args []string
		call call
		err  string
	}{
		"a part": {[]string{"labkube", "etcd", "--name", "a"}, call{part: "etcd", args: []string{"--name", "a"}}, ""},
		"a part as a version": {
			[]string{"/x/labkube", "--as", "v1.34.2", "kubectl", "version"},
			call{part: "kubectl", version: "v1.34.2", args: []string{"version"}},
			"",
		},
		"the name it is called by": {
			[]string{"/x/kubectl", "get", "nodes"},
			call{part: "kubectl", args: []string{"get", "nodes"}},
			"",
		},
		"nothing": {
			[]string{"labkube"},
			call{},
			"no part is set; usage: labkube [--as VERSION] etcd|etcdutl|kube-apiserver|",
		},
		"no such part": {
			[]string{"labkube", "kube-proxy"},
			call{},
			`"kube-proxy" is not part of labkube; it has etcd, etcdutl, kube-apiserver,`,
		},
		"--as without a version": {[]string{"labkube", "--as"}, call{}, "--as needs a version, such as --as v1.35."},
		"--as without a part":    {[]string{"labkube", "--as", "v1.35.0"}, call{}, "no part is set"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got, err := parse(test.args)
			if test.err != "" {
				assert.ErrorContains(t, err, test.err)

				return
			}

			require.NoError(t, err)
			assert.Equal(t, test.call, got)
		})
	}
}

// TestVersions is not parallel: the version is the process's.
func TestVersions(t *testing.T) { //nolint:paralleltest // see above
	for name, text := range map[string]string{ //nolint:paralleltest // see above
		"the next minor":     "v1.36.0",
		"a minor too old":    "v1.31.9",
		"no version":         "latest",
		"without the letter": "1.35.0",
		"another major":      "v2.35.0",
	} {
		t.Run(name, func(t *testing.T) {
			assert.Error(t, reportKubernetes(text))
		})
	}

	assert.EqualError(t, reportKubernetes("v1.36.0"), "this build cannot be Kubernetes v1.36.0: it is "+built()+
		" and emulates minors from v1.32 to v1.35; use one of these, or run the lab's model (--kubernetes=model)")

	for text, minor := range map[string]string{
		"v1.35.4": "1.35", "v1.35.0": "1.35", "v1.34.2": "1.34",
		"v1.32.11": "1.32",
	} {
		require.NoError(t, reportKubernetes(text))
		assert.Equal(t, text, componentversion.Get().GitVersion)

		effective := compatibility.DefaultBuildEffectiveVersion()
		assert.Equal(t, minor, effective.EmulationVersion().String(), text)
		assert.Empty(t, effective.Validate(), text)
	}

	assert.ErrorContains(t, reportEtcd("v3.5.21"), "this build cannot be etcd v3.5.21: it is v3.6.")
	assert.ErrorContains(t, reportEtcd("3"), `"3" is not a version of etcd`)
	require.NoError(t, reportEtcd("v3.6.6"))
	assert.Equal(t, "3.6.6", etcdversion.Version)
}
