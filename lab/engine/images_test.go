package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/download"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"

	"talos-proxmox/stacks"
)

// TestStacksOfOneHostShareNoImage has two stacks with the same image on one host: neither deletes or downloads the file
// that the other's machines boot from.
func TestStacksOfOneHostShareNoImage(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	as := func(name string, of cluster) string {
		w.options.Stack = name

		return stack{Network: w.network, Source: "iso", OneHost: true, Clusters: []cluster{of}}.yaml(t)
	}
	other := cluster{
		Name: "two", ControlPlanes: 1, FirstControlPlane: 2100, FirstWorker: 3100, FirstAddress: 60, FirstWorkerAddress: 70,
	}

	w.up(as("lab", clusterOne(1, 0)))
	w.up(as("other", other))
	assert.False(
		t, w.hasFinishedTask("download", "refusing to override existing file"), "the second stack downloads its own file",
	)

	w.destroy(as("other", other))

	first := as("lab", clusterOne(1, 0))
	assert.Empty(t, w.refresh(first), "the first stack's file is still there")
	w.up(first, optup.ExpectNoChanges())
	w.requireRunning(1)
}

// TestImagesKeepTheirFileNames: a stack that downloaded its image when file names did not have the stack's name sees no
// change.
func TestImagesKeepTheirFileNames(t *testing.T) {
	t.Parallel()

	for _, source := range []string{"image", "iso"} {
		t.Run("by "+source, func(t *testing.T) {
			t.Parallel()

			w := newWorld(t, testSpeed)
			s := stack{Network: w.network, Source: source, OneHost: true, Clusters: []cluster{clusterOne(1, 0)}}

			w.options.Program = w.withFormerNames
			w.up(s.yaml(t))
			assert.True(t, strings.Contains(w.state(s.yaml(t)), "nocloud-amd64.i"), "the former name")

			w.options.Program = nil
			w.up(s.yaml(t), optup.ExpectNoChanges())
			assert.Empty(t, w.refresh(s.yaml(t)))
		})
	}
}

// withFormerNames is the program with the former file names of images.
func (w *world) withFormerNames(ctx *pulumi.Context) error {
	err := ctx.RegisterStackTransformation(
		func(args *pulumi.ResourceTransformationArgs) *pulumi.ResourceTransformationResult {
			if file, ok := args.Props.(*download.FileArgs); ok {
				file.FileName = pulumi.String(strings.TrimSuffix(args.Name, "-pve1-local"))
			}

			return &pulumi.ResourceTransformationResult{Props: args.Props, Opts: args.Opts}
		},
	)
	if err != nil {
		return fmt.Errorf("unable to give images their former names: %w", err)
	}

	return stacks.Program{Transport: w.proxmoxClient().Transport}.Deploy(ctx)
}
