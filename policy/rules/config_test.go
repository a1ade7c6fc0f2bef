package rules

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheckConfig(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		file string
		want string // the whole error, empty = none
	}{
		"nothing": {file: "{}"},
		"levels": {
			file: `{"all": "advisory", "host-capacity": "mandatory", "required-tags": {"enforcementLevel": "disabled"}}`,
		},
		"options": {
			file: `{"host-capacity": {"memoryRatio": 0.9, "hosts": {"pve1": {"cores": 4}}}, "environments": ["prod"]}`,
		},
		"a level that Pulumi knows": {file: `{"host-capacity": "perhaps"}`},
		"a misspelt policy": {
			file: `{"host-capcity": {"memoryRatio": 0.9}}`,
			want: "host-capcity: there is no such policy; did you mean host-capacity?",
		},
		"a misspelt option": {
			file: `{"host-capacity": {"memoryratio": 0.9}}`,
			want: "host-capacity.memoryratio: the policy has no such option; did you mean memoryRatio?",
		},
		"an option of another policy": {
			file: `{"control-plane-count": {"trusted": []}}`,
			want: "control-plane-count.trusted: the policy has no such option; choose from enforcementLevel",
		},
		"several at once": {
			file: `{"control-plane-cont": "disabled", "image-checksum": {"trust": []}}`,
			want: "control-plane-cont: there is no such policy; did you mean control-plane-count?\nimage-checksum.trust: the policy has no such option; did you mean trusted?",
		},
		"a list": {
			file: `["host-capacity"]`,
			want: "not a JSON object of policies: json: cannot unmarshal array into Go value of type map[string]json.RawMessage",
		},
		"no JSON": {
			file: `host-capacity:`, want: "not a JSON object of policies: invalid character 'h' looking for beginning of value",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := CheckConfig([]byte(c.file))
			if c.want == "" {
				require.NoError(t, err)

				return
			}

			require.EqualError(t, err, c.want)
		})
	}
}

// TestPolicyConfigFiles includes files that users add for their own stacks.
func TestPolicyConfigFiles(t *testing.T) {
	t.Parallel()

	files, err := filepath.Glob("../policy-config.*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)

	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.NoError(t, CheckConfig(data), file)
	}
}
