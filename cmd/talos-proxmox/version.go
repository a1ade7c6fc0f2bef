package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/talos"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program, and of what it deploys and uses",
		Long: `Prints the commit that the program was built of, the releases of Talos and Kubernetes that it supports, and the
versions of Pulumi's SDK and of the provider plugins.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), versions())

			return err
		},
	}
}

// versions returns a line for each version.
func versions() string {
	var b strings.Builder

	info, _ := debug.ReadBuildInfo()
	if info == nil {
		info = &debug.BuildInfo{}
	}

	settings, modules := map[string]string{}, map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}

	for _, m := range info.Deps {
		modules[m.Path] = m.Version
	}

	commit := "an unknown commit"
	if revision := settings["vcs.revision"]; revision != "" {
		commit = revision[:min(len(revision), 12)] + " of " + settings["vcs.time"]
	}

	if settings["vcs.modified"] == "true" {
		commit += ", changed"
	}

	fmt.Fprintf(&b, "talos-proxmox  %s (%s)\n", commit, info.GoVersion)

	var supported []string

	newest := talos.Release{}

	for _, r := range talos.Releases() {
		if r.Support == talos.Supported {
			supported, newest = append(supported, r.Newest), r
		}
	}

	fmt.Fprintf(&b, "Talos          %s, and later patches\n", strings.Join(supported, ", "))
	fmt.Fprintf(&b, "Kubernetes     %s to %s (new clusters with Talos %s: %s)\n", newest.OldestKubernetes,
		newest.NewestKubernetes, newest.Talos, newest.DefaultKubernetes)

	for _, of := range []struct{ name, module string }{
		{"Pulumi SDK", "github.com/pulumi/pulumi/sdk/v3"},
		{"proxmoxve", "github.com/muhlba91/pulumi-proxmoxve/sdk/v6"},
		{"talos", "github.com/pulumiverse/pulumi-talos/sdk"},
		{"command", "github.com/pulumi/pulumi-command/sdk"},
	} {
		fmt.Fprintf(&b, "%-14s %s\n", of.name, modules[of.module])
	}

	return b.String()
}
