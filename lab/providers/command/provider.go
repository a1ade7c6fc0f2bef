// Package command is a stand-in for the published Pulumi provider that runs commands, here and over SSH: the same
// resources, properties, defaults, replace rules and errors, as far as this program uses them.
package command

import (
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
)

// Provider makes an instance of the provider.
func Provider() (p.Provider, error) {
	return infer.Provider(infer.Options{
		Resources: []infer.InferredResource{
			infer.Resource(newLocalCommand()),
			infer.Resource(newRemoteCommand()),
		},
		Functions: []infer.InferredFunction{infer.Function(&localRun{})},
	}), nil
}

// output is what a command printed, without its last line feed.
type output struct {
	Stdout string `pulumi:"stdout"`
	Stderr string `pulumi:"stderr"`
}

// Environment variables in which a command finds what the one before it printed.
const (
	previousStdout = "PULUMI_COMMAND_STDOUT"
	previousStderr = "PULUMI_COMMAND_STDERR"
)

// previous returns those variables, where they are wanted (nil = true) and not empty.
func (o output) previous(wanted *bool) map[string]string {
	variables := map[string]string{}
	if wanted != nil && !*wanted {
		return variables
	}

	if o.Stdout != "" {
		variables[previousStdout] = o.Stdout
	}

	if o.Stderr != "" {
		variables[previousStderr] = o.Stderr
	}

	return variables
}
