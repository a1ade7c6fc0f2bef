package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sampleStacks holds the stack files as the project ships them, independent of the user's changes.
const sampleStacks = "../../stacks/testdata"

func TestReportOfACommittedStack(t *testing.T) {
	t.Parallel()

	folder := filepath.Join(t.TempDir(), "report")
	out, err := output("report", "--project", sampleStacks, "--folder", folder, "prod")
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(folder, "prod.md")+"\n"+filepath.Join(folder, "prod.html")+"\n", out)

	for _, name := range []string{"prod.md", "prod.html"} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		assert.Contains(t, string(content), "prod-cp-3")
		assert.Contains(t, string(content), "10.0.0.5")
	}
}

func TestReportErrors(t *testing.T) {
	t.Parallel()

	project := t.TempDir()

	dev, err := os.ReadFile(filepath.Join(sampleStacks, "Pulumi.dev.yaml"))
	require.NoError(t, err)

	for name, content := range map[string]string{
		"patched": strings.Replace(string(dev), "    - name: dev\n",
			"    - name: dev\n      patches: ['machine: {kubelet: {image: \"example.org/kubelet:v1.2.3\"}}']\n", 1),
		"broken":  "config: [",
		"invalid": "config:\n  talos-proxmox:hosts: [{name: pve1}]\n  talos-proxmox:templates: {}\n  talos-proxmox:clusters: []\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(project, "Pulumi."+name+".yaml"), []byte(content), 0o600))
	}

	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"no stack":                {nil, "accepts 1 arg(s), received 0"},
		"a stack without a file":  {[]string{"none"}, "name a stack that has a file Pulumi.<stack>.yaml"},
		"a file that is not YAML": {[]string{"broken"}, "unable to read Pulumi.broken.yaml: go-yaml load error"},
		"a patch that Talos refuses": {
			[]string{"patched"}, "Pulumi.patched.yaml:18: clusters[0].patches[0]: makes the machine configuration of dev-cp-1 invalid",
		},
		"a stack with problems, all now": {
			[]string{"invalid"}, "Pulumi.invalid.yaml:4: clusters: is an empty list; add at least 1 entry\n" +
				"Pulumi.invalid.yaml:2: hosts[0].address: is missing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "report")
			_, err := output(append([]string{"report", "--project", project, "--folder", out}, test.args...)...)
			require.ErrorContains(t, err, test.says)
			assert.NoDirExists(t, out)
		})
	}
}

// TestReportOfTheLab: the report has MAC addresses, which DHCP reservations need before the first up, and needs no
// connection settings.
func TestReportOfTheLab(t *testing.T) {
	t.Parallel()

	out := t.TempDir()
	_, err := output("report", "--project", sampleStacks, "--folder", out, "lab")
	require.NoError(t, err)

	for _, name := range []string{"lab.md", "lab.html"} {
		content, err := os.ReadFile(filepath.Join(out, name))
		require.NoError(t, err)
		assert.Regexp(t, `lab-cp-1.*127\.20\.1\.10.*02:[0-9a-f:]{14}`, string(content))
	}
}
