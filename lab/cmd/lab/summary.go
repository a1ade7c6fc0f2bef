package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"

	"proxmox-talos/stacks"
)

// summarise writes the clients' configurations into the lab's folder and says what to do next.
func (r *run) summarise(outputs auto.OutputMap) error {
	talosconfigs, kubeconfigs := texts(outputs[stacks.Talosconfigs]), texts(outputs[stacks.Kubeconfigs])

	clusters := make([]string, 0, len(kubeconfigs))
	for name := range kubeconfigs {
		clusters = append(clusters, name)
	}

	slices.Sort(clusters)

	for i, name := range clusters {
		suffix := "-" + name
		if i == 0 {
			suffix = ""
		}

		for file, text := range map[string]string{"talosconfig" + suffix: talosconfigs[name], "kubeconfig" + suffix: kubeconfigs[name]} {
			if err := os.WriteFile(filepath.Join(r.dir, file), []byte(text), 0o600); err != nil {
				return fmt.Errorf("unable to write %s: %w", file, err)
			}
		}
	}

	endpoints, _ := outputs[stacks.Endpoints].Value.(map[string]any)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)

	fmt.Fprintln(table, "\nCLUSTER\tKUBERNETES API")

	for _, name := range clusters {
		fmt.Fprintf(table, "%s\t%v\n", name, endpoints[name])
	}

	if err := table.Flush(); err != nil {
		return err
	}

	shown := r.dir
	if cwd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(cwd, r.dir); err == nil {
			shown = "$PWD/" + rel
		}
	}

	bin := filepath.Join(r.project, ".bin")
	if cwd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(cwd, bin); err == nil {
			bin = rel
		}
	}

	fmt.Printf(`
The stack is up and the lab keeps running. Next:

  %[1]s/lab status
  export TALOSCONFIG=%[2]s/talosconfig KUBECONFIG=%[2]s/kubeconfig
  %[1]s/talosctl get members
  %[1]s/talosctl version
  kubectl get nodes        # NotReady until a CNI is installed: Talos is told to bring none

Change Pulumi.%[3]s.yaml and run this again; 'make down' removes everything.
`, bin, shown, r.stack)

	return nil
}

// texts reads an output that is a map of strings.
func texts(output auto.OutputValue) map[string]string {
	result := map[string]string{}

	values, _ := output.Value.(map[string]any)
	for name, value := range values {
		if text, ok := value.(string); ok {
			result[name] = text
		}
	}

	return result
}
