// Platform brings what a cluster's platform begins with to a cluster: Helm releases and a few objects around them. It
// is a module of its own, because Helm's library brings Kubernetes' clients with it; talosops calls it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/spf13/cobra"
	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"talos-proxmox/internal/cli"
)

const help = `Brings what a cluster's platform begins with to a cluster: Helm releases, and objects around them.

talosops calls it. Each verb reads a request as JSON on standard input, whose end is the end of the work: whoever began
it is gone then.`

// fieldManager is who owns the fields of what is applied. It is the name of Flux' helm-controller, so that a
// HelmRelease of the same name takes a release over without a conflict.
const fieldManager = "helm-controller"

func main() {
	quiet()

	kube.ManagedFieldsManager = fieldManager

	cli.Main(newRoot())
}

// quiet keeps the libraries' own logs out of the progress.
func quiet() {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	log.SetOutput(io.Discard)
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use: "platform", Short: "Bring Helm releases and objects to a cluster", Long: help,
		SilenceUsage: true, SilenceErrors: true, CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(newRelease(), newGitOps(), newReconciled())

	return root
}

var errAbandoned = errors.New("standard input has ended: whoever began this is gone")

// withRequest makes a command one that reads a request, and that ends when the request's sender does.
func withRequest[R any](
	cmd *cobra.Command, run func(ctx context.Context, req R, progress io.Writer) error,
) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var req R

		decoder := json.NewDecoder(cmd.InOrStdin())
		decoder.DisallowUnknownFields()

		if err := decoder.Decode(&req); err != nil {
			return fmt.Errorf("the request on standard input is not one of this program's talosops: %w: build both of the "+
				"same sources (make stack-tools)", err)
		}

		ctx, end := context.WithCancelCause(cmd.Context())
		defer end(nil)

		go func() {
			_, _ = io.Copy(io.Discard, cmd.InOrStdin())

			end(errAbandoned)
		}()

		return run(ctx, req, cmd.ErrOrStderr())
	}

	return cmd
}
