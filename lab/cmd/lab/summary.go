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
	"text/tabwriter"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"

	"talos-proxmox/lab/control"
	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/server"
	"talos-proxmox/stacks"
)

// summarise writes the clients' configurations into the lab's folder and says what to do next.
func (r *run) summarise(ctx context.Context, outputs auto.OutputMap) error {
	talosconfigs, kubeconfigs := texts(outputs[stacks.Talosconfigs]), texts(outputs[stacks.Kubeconfigs])

	clusters := make([]string, 0, len(kubeconfigs))
	for name := range kubeconfigs {
		clusters = append(clusters, name)
	}

	slices.Sort(clusters)

	for i, name := range clusters {
		for file, text := range map[string]string{"talosconfig": talosconfigs[name], "kubeconfig": kubeconfigs[name]} {
			file = clientFile(file, name, i)
			if err := os.WriteFile(filepath.Join(r.dir, file), []byte(text), 0o600); err != nil {
				return fmt.Errorf("unable to write %s: %w", file, err)
			}
		}
	}

	endpoints, _ := outputs[stacks.Endpoints].Value.(map[string]any)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)

	shown, bin := fromHere("$PWD/", r.dir), fromHere("", filepath.Join(r.project, ".bin"))

	fmt.Fprintln(table, "\nCLUSTER\tKUBERNETES API\tKUBECONFIG, TALOSCONFIG")

	for i, name := range clusters {
		fmt.Fprintf(
			table, "%s\t%v\t%s, %s\n", name, endpoints[name], filepath.Join(shown, clientFile("kubeconfig", name, i)),
			filepath.Join(shown, clientFile("talosconfig", name, i)),
		)
	}

	if err := table.Flush(); err != nil {
		return err
	}

	fmt.Printf(`
The stack is up and the lab keeps running. Next:

  %[1]s/lab status
  %[1]s/lab output            # what the stack says of itself; lab output readme: as a document
  export TALOSCONFIG=%[2]s/talosconfig KUBECONFIG=%[2]s/kubeconfig
  %[1]s/talosctl get members
  kubectl get nodes          # NotReady until there is a CNI: clusters[].cni
  %[1]s/talosctl health       # waits until they are Ready

Change Pulumi.%[3]s.yaml and run this again; 'make down' removes everything.
`, bin, shown, r.stack)

	status, err := control.NewClient(r.dir).Status(ctx)
	if err == nil && status.Kubernetes == server.KubernetesModel {
		fmt.Println("Its Kubernetes is a model that has nodes. Pods, kubectl apply and all else: make down, then make up KUBERNETES=real")
	}

	return err
}

// fromHere is a path for a shell in the working folder: below it after a prefix, elsewhere absolute.
func fromHere(prefix, path string) string {
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

// clientFile names the file with a cluster's configuration of a client; that of the first cluster is the one that the
// shell is told to use.
func clientFile(kind, cluster string, place int) string {
	if place == 0 {
		return kind
	}

	return kind + "-" + cluster
}

// output prints the stack's outputs as JSON, without the secret ones, or the named one as it is.
func (r *run) output(ctx context.Context, e *engine.Engine) error {
	outputs, err := e.Outputs(ctx)
	if err != nil {
		return fmt.Errorf("unable to read the outputs of stack %q: %w", r.stack, err)
	}

	var shown any

	if r.name == "" {
		all := map[string]any{}

		for name, output := range outputs {
			all[name] = output.Value
			if output.Secret {
				all[name] = "[secret]"
			}
		}

		shown = all
	} else {
		output, known := outputs[r.name]
		if !known {
			return fmt.Errorf(
				"stack %q has no output %q, but %s", r.stack, r.name, strings.Join(slices.Sorted(maps.Keys(outputs)), ", "),
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
