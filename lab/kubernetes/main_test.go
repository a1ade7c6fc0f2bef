package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	etcdversion "go.etcd.io/etcd/api/v3/version"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	basecompatibility "k8s.io/component-base/compatibility"
	componentversion "k8s.io/component-base/version"
)

// asLabkube is set if the tests have started their own binary as labkube.
const asLabkube = "TEST_AS_LABKUBE"

func TestMain(m *testing.M) {
	if os.Getenv(asLabkube) != "" {
		main()
	}

	os.Exit(m.Run())
}

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
		"--as without a version": {[]string{"labkube", "--as"}, call{}, "--as needs a version, such as --as v1.37."},
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

// TestVersions is not parallel: the version is global to the process.
func TestVersions(t *testing.T) { //nolint:paralleltest // see above
	for name, text := range map[string]string{ //nolint:paralleltest // see above
		"the next minor":     "v1.38.0",
		"a minor too old":    "v1.33.9",
		"no version":         "latest",
		"without the letter": "1.37.0",
		"another major":      "v2.37.0",
	} {
		t.Run(name, func(t *testing.T) {
			assert.Error(t, reportKubernetes(text))
		})
	}

	assert.EqualError(t, reportKubernetes("v1.38.0"), "this build cannot be Kubernetes v1.38.0: it is "+buildVersion()+
		" and reports minors from v1.34 to v1.37; use one of these, or run the lab's model (--kubernetes=model)")

	for text, minor := range map[string]string{
		"v1.37.2": "1.37", "v1.37.0": "1.37", "v1.36.1": "1.36", "v1.35.4": "1.35", "v1.34.11": "1.34",
	} {
		require.NoError(t, reportKubernetes(text))
		assert.Equal(t, text, componentversion.Get().GitVersion)

		// What the parts use, not what a new version would be.
		effective := compatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor(
			basecompatibility.DefaultKubeComponent)
		assert.Equal(t, minor, effective.EmulationVersion().String(), text)
		assert.Equal(t, text, "v"+effective.BinaryVersion().String())
		assert.Empty(t, compatibility.DefaultComponentGlobalsRegistry.Validate(), text)
		assert.Equal(t, minor == "1.37", utilfeature.DefaultFeatureGate.Enabled(features.EtcdRangeStream), text)
	}
}

// TestEtcdVersions is not parallel: the version is global to the process.
func TestEtcdVersions(t *testing.T) { //nolint:paralleltest // see above
	build, api := etcdversion.Version, etcdversion.APIVersion

	for name, text := range map[string]string{ //nolint:paralleltest // see above
		"the next minor":  "v3.8.0",
		"a minor too old": "v3.5.21",
		"no version":      "3",
		"another major":   "v4.7.0",
	} {
		t.Run(name, func(t *testing.T) {
			assert.Error(t, reportEtcd(text))
		})
	}

	assert.EqualError(t, reportEtcd("v3.5.21"), "this build cannot be etcd v3.5.21: it is v"+build+
		" and reports minors from v3.6 to v3.7; use one of these, or run the lab's model (--kubernetes=model)")
	assert.ErrorContains(t, reportEtcd("3"), `"3" is not a version of etcd; use one such as v`+build)

	for text, minor := range map[string]string{"v3.7.1": "3.7", "v3.6.16": "3.6", "3.6.6": "3.6"} {
		require.NoError(t, reportEtcd(text))
		assert.Equal(t, strings.TrimPrefix(text, "v"), etcdversion.Version)
		assert.Equal(t, minor, etcdversion.APIVersion)

		etcdversion.Version, etcdversion.APIVersion = build, api
	}
}
