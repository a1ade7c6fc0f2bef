package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/terminal"
	"talos-proxmox/lab/control"
	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/server"
	"talos-proxmox/stacks"
)

// printSummary writes the clients' configurations to the lab's folder and prints the next steps.
func (r *runner) printSummary(ctx context.Context, outputs auto.OutputMap) error {
	talosconfigs, kubeconfigs := stringMap(outputs[stacks.Talosconfigs]), stringMap(outputs[stacks.Kubeconfigs])
	clusters := slices.Sorted(maps.Keys(kubeconfigs))

	for i, name := range clusters {
		for file, text := range map[string]string{"talosconfig": talosconfigs[name], "kubeconfig": kubeconfigs[name]} {
			file = clientFile(file, name, i)
			if err := os.WriteFile(filepath.Join(r.dir, file), []byte(text), 0o600); err != nil {
				return fmt.Errorf("unable to write %s: %w", file, err)
			}
		}
	}

	shown, bin := shellPath("$PWD/", r.dir), shellPath("", filepath.Join(r.project, ".bin"))

	if len(clusters) > 0 {
		endpoints, _ := outputs[stacks.Endpoints].Value.(map[string]any)
		rows := [][]string{{"CLUSTER", "KUBERNETES API", "KUBECONFIG, TALOSCONFIG"}}

		for i, name := range clusters {
			rows = append(rows, []string{name, fmt.Sprint(endpoints[name]), fmt.Sprintf("%s, %s",
				filepath.Join(shown, clientFile("kubeconfig", name, i)), filepath.Join(shown, clientFile("talosconfig", name, i)))})
		}

		fmt.Print("\n" + terminal.Table(rows, terminal.Of(os.Stdout).Width()))
	}

	fmt.Print(r.nextSteps(bin, shown, len(clusters) > 0))

	status, err := control.NewClient(r.dir).Status(ctx)
	if err == nil && len(clusters) > 0 && status.Kubernetes == server.KubernetesModel {
		fmt.Println("Its Kubernetes is a model with nodes only. For pods, kubectl apply and the rest: make down, then make up KUBERNETES=real")
	}

	return err
}

// nextSteps are commands for a stack that is up.
func (r *runner) nextSteps(bin, shown string, hasClusters bool) string {
	of, onLab, remove := "", "", "make down"
	if r.stack != labStack {
		of, onLab = " --stack "+r.stack, " --on-lab"
		remove = bin + "/lab destroy" + of
	}

	steps := fmt.Sprintf(`
The stack is up and the lab keeps running. Next:

  %[1]s/lab status
  %[1]s/lab output%[2]s            # the stack's outputs; lab output readme%[2]s: a description
  %[1]s/talos-proxmox status %[3]s%[4]s
`, bin, of, r.stack, onLab)

	if hasClusters {
		steps += fmt.Sprintf(`  export TALOSCONFIG=%[2]s/talosconfig KUBECONFIG=%[2]s/kubeconfig
  %[1]s/talosctl get members
  kubectl get nodes          # NotReady without a CNI: clusters[].cni
  %[1]s/talosctl health       # waits until they are Ready
`, bin, shown)
	}

	return steps + fmt.Sprintf("\nChange Pulumi.%s.yaml and run this again; '%s' removes everything.\n", r.stack, remove)
}

// shellPath returns a path for a shell in the working directory: relative with a prefix, or absolute outside of it.
func shellPath(prefix, path string) string {
	here, err := os.Getwd()
	if err != nil {
		return path
	}

	if path, err = filepath.Abs(path); err != nil {
		return path
	}

	if below, err := filepath.Rel(here, path); err == nil && filepath.IsLocal(below) {
		return prefix + below
	}

	return path
}

// clientFile names the file with a cluster's client configuration. The first cluster has the one that the summary
// exports.
func clientFile(kind, cluster string, index int) string {
	if index == 0 {
		return kind
	}

	return kind + "-" + cluster
}

// output prints the stack's outputs as JSON without secrets, or the named output.
func (r *runner) output(ctx context.Context, e *engine.Engine) error {
	outputs, err := e.Outputs(ctx)
	if err != nil {
		return fmt.Errorf("unable to read the outputs of stack %q: %w", r.stack, err)
	}

	if len(outputs) == 0 {
		return fmt.Errorf("stack %q has no outputs: %s brings it up", r.stack, cli.LabUp(r.stack))
	}

	var shown any

	if r.outputName == "" {
		all := map[string]any{}

		for name, output := range outputs {
			all[name] = output.Value
			if output.Secret {
				all[name] = "[secret]"
			}
		}

		shown = all
	} else {
		output, known := outputs[r.outputName]
		if !known {
			return fmt.Errorf(
				"stack %q has no output %q, but %s", r.stack, r.outputName, strings.Join(slices.Sorted(maps.Keys(outputs)), ", "),
			)
		}

		shown = output.Value
	}

	if text, ok := shown.(string); ok {
		_, err = fmt.Fprintln(os.Stdout, text)

		return err
	}

	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")

	return encoder.Encode(shown)
}

// stringMap returns an output that is a map of strings.
func stringMap(output auto.OutputValue) map[string]string {
	result := map[string]string{}

	values, _ := output.Value.(map[string]any)
	for name, value := range values {
		if text, ok := value.(string); ok {
			result[name] = text
		}
	}

	return result
}
