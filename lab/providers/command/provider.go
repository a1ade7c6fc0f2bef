// Package command is a stand-in for the published Pulumi provider that runs commands locally and over SSH. It has the
// same resources, properties, defaults, replace rules and errors, as far as this program uses them.
package command

import (
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
)

// Options are of a provider that the engine did not start, and which does not have its environment.
type Options struct {
	// Folder is where local commands run; empty = this process's.
	Folder string
	// Variables are added to this process's for local commands, as NAME=value.
	Variables []string
}

// Provider returns a new instance of the provider.
func Provider(o Options) (p.Provider, error) {
	return infer.Provider(infer.Options{
		Resources: []infer.InferredResource{
			infer.Resource(newLocalCommand(o)),
			infer.Resource(newRemoteCommand()),
		},
		Functions: []infer.InferredFunction{infer.Function(&localRun{o: o})},
	}), nil
}

// output is the output of a command without its last line feed.
type output struct {
	Stdout string `pulumi:"stdout"`
	Stderr string `pulumi:"stderr"`
}

// Environment variables with a command's previous output.
const (
	previousStdout = "PULUMI_COMMAND_STDOUT"
	previousStderr = "PULUMI_COMMAND_STDERR"
)

// variables returns the output as environment variables, without empty ones; none if wanted is false (nil = true).
func (o output) variables(wanted *bool) map[string]string {
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
