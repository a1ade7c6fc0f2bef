// Talosops does at apply time what no Pulumi provider does. Each verb reads one JSON request on standard input, so that
// no secret is ever an argument.
package main

import (
	"io"
	"log"
	"log/slog"
	"slices"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"talos-proxmox/internal/cli"
	"talos-proxmox/talosops/hosts"
	"talos-proxmox/talosops/verbs"
)

func main() {
	quiet()
	cli.Main(newRoot())
}

// quiet discards the libraries' logs, which would mix with the progress.
func quiet() {
	log.SetOutput(io.Discard)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	ctrllog.SetLogger(logr.Discard())
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:               "talosops",
		Short:             "Operations on running Talos clusters, for Pulumi programs and people",
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.AddCommand(slices.Concat(hosts.Commands(), verbs.Commands())...)

	return root
}
