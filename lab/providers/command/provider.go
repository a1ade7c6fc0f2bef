// Package command is a stand-in for the published Pulumi provider that runs commands, here and over SSH: the same
// resources, properties, defaults, replace rules and errors, as far as this program uses them.
package command

import (
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
)

// Surroundings are what a plugin's process gets from the engine that starts it, and a stand-in does not: it runs in the
// process of the lab.
type Surroundings struct {
	// Dir is where local commands run; empty = the working folder of this process.
	Dir string
	// Env are environment variables of local commands beside those of this process.
	Env map[string]string
}

// Provider makes an instance of the provider.
func (s Surroundings) Provider() (p.Provider, error) {
	return infer.Provider(infer.Options{
		Resources: []infer.InferredResource{
			infer.Resource(newLocalCommand(s)),
			infer.Resource(newRemoteCommand()),
		},
		Functions: []infer.InferredFunction{infer.Function(&localRun{s})},
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
