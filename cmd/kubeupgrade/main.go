// Kubeupgrade upgrades the Kubernetes of a Talos cluster with Talos' own library. It is a module of its own, because
// that library brings Kubernetes' clients with it; `talosops kubernetes` decides whether there is something to do, and
// calls it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/request"
)

const help = `Upgrades the Kubernetes of a Talos cluster that was found steady: removed flags and API resources, images
that are pulled before, API servers, controller managers, schedulers, kubelets and Talos' own manifests, one node at a
time. What has its image already is skipped.

` + "`talosops kubernetes`" + ` calls it, and does what belongs around it. The request comes as JSON on standard input,
whose end is the end of the work: whoever began it is gone then.`

func main() {
	quiet()
	cli.Main(newRoot())
}

// quiet keeps the libraries' own logs out of the progress, and their connections out of proxies: nodes are reached
// directly.
func quiet() {
	log.SetOutput(io.Discard)
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctrllog.SetLogger(logr.Discard())
	rest.SetDefaultWarningHandler(rest.NoWarnings{})

	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		_ = os.Unsetenv(name)
	}
}

func newRoot() *cobra.Command {
	return &cobra.Command{
		Use: "kubeupgrade", Short: "Upgrade the Kubernetes of a Talos cluster", Long: help, Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true, CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, ctx, stop, err := read(cmd.Context(), cmd.InOrStdin())
			if err != nil {
				return err
			}
			defer stop()

			return upgradeNow(ctx, req, cmd.ErrOrStderr())
		},
	}
}

var errAbandoned = errors.New("standard input has ended: whoever began the upgrade is gone")

// read returns the request, and a context that ends when its sender does.
func read(ctx context.Context, in io.Reader) (request.KubernetesUpgrade, context.Context, func(), error) {
	var req request.KubernetesUpgrade

	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()

	if err := decoder.Decode(&req); err != nil {
		return req, nil, nil, fmt.Errorf(
			"the request on standard input is not one of this program's `talosops kubernetes`: %w: build both of the same "+
				"sources (make tools kubeupgrade)", err,
		)
	}

	ctx, end := context.WithCancelCause(ctx)

	go func() {
		_, _ = io.Copy(io.Discard, in)

		end(errAbandoned)
	}()

	return req, ctx, func() { end(nil) }, nil
}
