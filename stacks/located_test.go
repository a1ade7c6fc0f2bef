package stacks

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/problem"
)

func TestLocated(t *testing.T) {
	t.Parallel()

	const file = `# a comment
config:
  proxmoxve:endpoint: here
  talos-proxmox:clusters:
    - name: one
      network: &net
        vip: 10.0.0.5
    - {name: two, network: *net, controlPlane: {count: 2}}
  talos-proxmox:templates: '{"talos": {"version": "x"}}'
  protect: maybe
`

	for path, want := range map[string]string{
		"clusters[0].network.vip":              "Pulumi.dev.yaml:7: ",
		"clusters[0].network.gateway":          "Pulumi.dev.yaml:6: ",
		"clusters[1].network.vip":              "Pulumi.dev.yaml:7: ",
		"clusters[1].controlPlane.count":       "Pulumi.dev.yaml:8: ",
		"clusters[2]":                          "Pulumi.dev.yaml:4: ",
		"templates.talos.version":              "Pulumi.dev.yaml:9: ",
		"protect":                              "Pulumi.dev.yaml:10: ",
		"proxmoxve:endpoint":                   "Pulumi.dev.yaml:3: ",
		"hosts[0].name":                        "",
		"clusters[0].labels.example.org/x.y.z": "Pulumi.dev.yaml:5: ",
	} {
		err := Located(problem.List{problem.New(path, 1, "is wrong")}, "dev", []byte(file))
		assert.EqualError(t, err, want+path+": 1 is wrong")
	}

	other := errors.New("no problem of the configuration")
	assert.Equal(t, other, Located(other, "dev", []byte(file)))
}

func TestFailure(t *testing.T) {
	t.Parallel()

	_, err := load(map[string]string{"hosts": "[]"}, planOptions("dev"))
	require.Error(t, err)
	assert.Equal(t, err.Error(), Failure(sdkErrors{err}))
}

// sdkErrors is an error as Pulumi's SDK returns that of a program.
type sdkErrors []error

func (sdkErrors) Error() string { return "1 error occurred:\n\t* …" }

func (s sdkErrors) WrappedErrors() []error { return s }
